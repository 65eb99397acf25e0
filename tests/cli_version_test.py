"""What `lacuna --version --verbose` says of the program and the machine.

    cli_version_test.py PROGRAM
"""

import json
import os
import unittest
import unittest.mock

from program import FOLDER, main, run, text


class Version(unittest.TestCase):
    def test_a_verbose_version_shows_the_machine_and_measures_it_once(self):
        cache = FOLDER.path / "cache"
        with unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(cache)):
            words = text("--version", "--verbose")
            self.assertEqual(text("--verbose", "--version"), words)
        self.assertEqual(words.splitlines()[0], text("--version").strip())
        lines = dict(line.split(": ", 1) for line in words.splitlines() if ": " in line)
        self.assertRegex(lines["compiler"], r"(g\+\+|[Cc]lang).* \d+\.\d+")
        self.assertIn(int(lines["CPUs allowed"]), range(1, len(os.sched_getaffinity(0)) + 1))
        stored = cache / "lacuna" / "product_rates.json"
        self.assertEqual(lines["product rates"], str(stored))
        rates = json.loads(stored.read_text(encoding="utf-8"))
        self.assertEqual(lines["CPU"], rates["cpu"])
        self.assertEqual(rates["rates"][-1]["isa"], "portable")
        for rate in rates["rates"]:
            row = next(line for line in words.splitlines() if line.startswith(rate["isa"] + " "))
            _, product, shown, prefix = row.split()
            scale = {"M": 1e6, "G": 1e9, "T": 1e12}[prefix[0]]
            self.assertEqual(product, rate["product"])
            self.assertAlmostEqual(float(shown) * scale, rate["flops_per_s"], delta=0.01 * scale)

    def test_verbose_is_for_the_version(self):
        refused = run("--verbose", "show", "--attend", "full", "--length", 4)
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertEqual(refused.stderr, "lacuna: --verbose requires --version\n")


if __name__ == "__main__":
    main()
