"""Runs run_fuzzers.sh over stand-ins for fuzzers."""

import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("run_fuzzers.sh")


class RunFuzzers(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.build = pathlib.Path(temporary.name)

    def add_fuzzer(self, name, body):
        path = self.build / "fuzzers" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + body, encoding="utf-8")
        path.chmod(0o755)

    def run_script(self, *names):
        return subprocess.run([SCRIPT, self.build, "7", *names], capture_output=True, text=True,
                              cwd=self.build, check=False)

    def test_no_fuzzer_passes_with_a_message(self):
        result = self.run_script()
        self.assertEqual(result.returncode, 0)
        self.assertIn("no fuzzer yet", result.stdout)

    def test_seconds_limits_and_seeds_reach_the_fuzzer(self):
        (self.build / "tests/corpus/text").mkdir(parents=True)
        (self.build / "tests/corpus/text/seed").write_text("window(4)", encoding="utf-8")
        self.add_fuzzer("text", 'echo "$@" > arguments\n')
        result = self.run_script()
        self.assertEqual(result.returncode, 0, result.stderr)
        arguments = (self.build / "arguments").read_text(encoding="utf-8")
        for expected in ("-max_total_time=7", "-timeout=10", "-rss_limit_mb=2048", "tests/corpus/text"):
            self.assertIn(expected, arguments)
        self.assertIn("text: 7 s from 1 inputs", result.stdout)

    def test_crash_fails_after_all_have_run(self):
        self.add_fuzzer("a_crashes", "echo overflow in parser; exit 77\n")
        self.add_fuzzer("b_passes", "touch passed\n")
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertIn("overflow in parser", result.stdout)
        self.assertIn("Fuzzers that failed: a_crashes", result.stderr)
        self.assertTrue((self.build / "passed").exists())

    def test_only_the_named_ones_run(self):
        self.add_fuzzer("a_crashes", "exit 77\n")
        self.add_fuzzer("b_passes", "")
        self.assertEqual(self.run_script("b_passes").returncode, 0)

    def test_unknown_name_is_an_error(self):
        result = self.run_script("gone")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no fuzzer 'gone'", result.stderr)


if __name__ == "__main__":
    unittest.main()
