"""`lacuna bench decode` from outside, on caches that take no time.

    cli_decode_test.py PROGRAM
"""

import json
import re
import signal
import subprocess
import unittest
import xml.etree.ElementTree

import program
from program import FOLDER, cached_gemma, check, document, main, number, run, start

QUICK = ["--repetitions", 1, "--min-time-ms", 1, "--threads", 1]
SIZES = ["--num-q-heads", 6, "--num-kv-heads", 2, "--head-dim", 32]


def decode(*args, returncode=0):
    result = run("bench", "decode", *args)
    if result.returncode != returncode:
        raise AssertionError(f"exit {result.returncode}: {args}: {result.stderr}")
    return result


def decode_document(*args):
    found = json.loads(decode(*args, *QUICK, "--json").stdout)
    check(found, "bench_decode.schema.json", args)
    return found


class Documents(unittest.TestCase):
    def test_every_dtype_holds_and_reads_what_was_predicted(self):
        for dtype in ["f32", "bf16", "f16", "int8", "int4"]:
            for exact in [[], ["--exact-kv"]] if dtype.startswith("int") else [[]]:
                found = decode_document("--attend", "window(40)+sink(3), full", "--num-layers", 3,
                                        *SIZES, "--length", 100, "--kv-dtype", dtype, *exact)
                (row,) = found["rows"]
                self.assertTrue(row["as_predicted"] and row["check"]["agrees"], (dtype, exact))
                self.assertEqual([kind["num_layers"] for kind in row["kinds"]], [2, 1])
                self.assertEqual(row["live_bytes"],
                                 sum(kind["held_bytes"] for kind in row["kinds"]))

    def test_held_bytes_are_those_that_cost_prints_for_paged(self):
        table = ["--attend", "window(50), full, chunk(64)", "--num-layers", 3, *SIZES]
        for length in [1, 63, 64, 65, 200]:
            found = decode_document(*table, "--length", length, "--kv-dtype", "int8", "--rows", 3)
            cost = document("cost", *table, "--prompt", length + 3, "--kv-dtype", "int8",
                            "--phase", "decode", "--policy", "paged(P=64,in_flight=3)")
            policies = cost["phases"]["decode"]["policies"]
            self.assertEqual(found["rows"][0]["live_bytes"],
                             number(policies["paged"]["kv_held_bytes"]), length)

    def test_ragged_work_of_threads_and_rows(self):
        found = decode_document("--attend", "full", *SIZES, "--length", 30, "--length", 70,
                                "--batch", 3, "--rows", 5, "--page-size", 16)
        self.assertEqual([row["lengths_tokens"] for row in found["rows"]], [[30] * 3, [70] * 3])
        for row in found["rows"]:
            self.assertTrue(row["as_predicted"] and row["check"]["agrees"])
            self.assertEqual((row["rows"], row["page_size"]), (5, 16))

    def test_a_real_model(self):
        model = cached_gemma()
        if model is None:
            self.skipTest("no model in the cache; ./dev model fetches it")
        (row,) = decode_document("--model", model, "--length", 1500)["rows"]
        self.assertEqual([(kind["attend"], kind["num_layers"]) for kind in row["kinds"]],
                         [("window(512)", 15), ("full", 3)])
        self.assertTrue(row["as_predicted"] and row["check"]["agrees"])


class Scan(unittest.TestCase):
    def test_step_time_over_position_as_text_and_picture(self):
        svg = FOLDER.path / "steps.svg"
        words = decode("--attend", "window(16), full", "--num-layers", 2, *SIZES, "--scan", "16..64",
                       "--svg", svg, *QUICK).stdout
        for length in [16, 32, 64]:
            self.assertRegex(words, rf"kv {length}, bf16 +\w+ +[\d.e-]+ \(")
        self.assertIn("Step time by position", words)
        self.assertTrue(xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg"))


class Interrupts(unittest.TestCase):
    def test_what_is_done_is_printed(self):
        child = start("bench", "decode", "--attend", "full", *map(str, SIZES), "--length", "500",
                      "--repetitions", "1000", "--json", stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, text=True)
        self.assertIn("bench decode", child.stderr.readline())  # it runs, and says so
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=program.SECONDS)
        self.assertEqual(child.returncode, 0)
        found = json.loads(out)
        check(found, "bench_decode.schema.json", "interrupted")
        self.assertTrue(found["interrupted"])


class Words(unittest.TestCase):
    def refused(self, *args, says):
        program.assert_refused(self, decode(*args, returncode=2), says)

    def test_what_is_wrong_is_named(self):
        full = ["--attend", "full"]
        for flag in ["--length", "--rows", "--batch", "--page-size", "--repetitions",
                     "--min-time-ms"]:
            for value in ["0", "-1", "1e3", "ten", ""]:
                self.refused(*full, f"{flag}={value}", says=[flag, "allowed"])
        self.refused(*full, "--kv-dtype", "int9", says=["int9", "did you mean 'int8'"])
        self.refused(*full, "--page-size", 40, says=["page_size is 40", "16, 32"])
        self.refused(*full, "--kv-dtype", "int4", "--head-dim", 40, says=["head_dim is 40", "32"])
        self.refused(*full, "--scan", "8..4", says=["8..4"])
        self.refused(*full, "--scan", "1..8", "--length", 4, says=["--scan and --length"])
        for flag in ["--length", "--page-size", "--threads", "--head-dim", "--num-layers"]:
            self.refused(flag, 16, says=["without a table"])
        self.refused(*full, "--exact-kv", says=["exact_kv is given with bf16"])
        self.refused(*full, "--svg", "x.svg", says=["--svg is given without --scan"])
        self.refused("--attend", "window(2,2)", "--bidirectional", says=["bidirectional"])
        self.refused("--only", "no such row", says=["no such row", "kv 32768"])

    def test_help_has_examples(self):
        words = run("bench", "decode", "--help").stdout
        self.assertGreaterEqual(len(re.findall(r"\n  lacuna bench decode ", words)), 3)


if __name__ == "__main__":
    main()
