"""`lacuna bench model` from outside, on tiny models; a real one where it is in the cache.

    cli_model_test.py PROGRAM
"""

import json
import signal
import subprocess
import unittest

from program import (ROOT, SECONDS, assert_refused, cached_smollm2, check, document, main, number, run,
                     start)

TINY = ROOT / "tests/data/models"
MISTRAL = ["--model", TINY / "tiny-mistral.gguf", "--threads", 1]
CONTEXT = 128  # of all tiny models
QUICK = ["--repetitions", 1]


def bench(*args):
    result = run("bench", "model", *args, "--json")
    if result.returncode != 0:
        raise AssertionError(f"exit {result.returncode}: {args}: {result.stderr}")
    found = json.loads(result.stdout)
    check(found, "bench_model.schema.json", args)
    return found


class Documents(unittest.TestCase):
    def test_tables_stand_side_by_side_and_do_as_predicted(self):
        found = bench(*MISTRAL, "--length", 20, "--length", 70, "--generate", 9, "--against", "full",
                      "--against", "window(8)+sink(2)", "--repetitions", 2)
        self.assertEqual([row["length_tokens"] for row in found["rows"]], [20] * 3 + [70] * 3)
        self.assertEqual([row["table"] for row in found["rows"][1:3]], ["full", "window(8)+sink(2)"])
        self.assertEqual([row["trained"] for row in found["rows"][1:3]], ["false"] * 2)
        for row in found["rows"]:
            self.assertTrue(row["as_predicted"])
            self.assertEqual(len(row["rounds"]), 2)
            self.assertEqual(row["step_seconds"]["num_runs"], 16)
            for key in ["executed_pairs", "held_bytes", "read_bytes"]:
                self.assertEqual(row[key], sum(kind[key] for kind in row["kinds"]))
                self.assertEqual(row[key], row["predicted_" + key])

    def test_figures_are_those_that_cost_prints(self):
        for attend in ["full", "window(8)", "window(20)+sink(3)"]:
            (row,) = bench(*MISTRAL, *QUICK, "--attend", attend, "--length", 48, "--generate", 5,
                           "--page-size", 16, "--chunk", 16)["rows"]
            asked = ["cost", "--model", TINY / "tiny-mistral.gguf", "--attend", attend]
            prefill = document(*asked, "--prompt", 48, "--phase", "prefill", "--tile", "16,16")
            *layers, _ = prefill["phases"]["prefill"]["layers"]
            last_row = {"full": 48, "window(8)": 16, "window(20)+sink(3)": 48}[attend] * 4  # heads
            self.assertEqual(row["executed_pairs"],
                             sum(number(layer["executed_pairs"]) for layer in layers) + last_row)
            decode = document(*asked, "--prompt", 52, "--phase", "decode", "--policy",
                              "paged(P=16,in_flight=0)")
            self.assertEqual(
                row["held_bytes"],
                number(decode["phases"]["decode"]["policies"]["paged"]["kv_held_bytes"]))

    def test_keys_that_the_model_reads_are_not_ignored_ones(self):
        for key in bench(*MISTRAL, *QUICK, "--length", 8, "--generate", 2)["model"]["ignored_keys"]:
            self.assertTrue(key.startswith("general."), key)

    def test_parts_of_the_whole_leave_little_out(self):
        (row,) = bench(*MISTRAL, "--length", 100, "--generate", 20)["rows"]
        whole = row["first_token_seconds"]["p50"]
        self.assertLess(abs(sum(row["prefill_parts_seconds"].values()) - whole), 0.2 * whole)
        self.assertGreaterEqual(row["step_parts_seconds"]["unattributed"], 0)

    def test_lengths_end_where_the_context_does(self):
        found = bench(*MISTRAL, *QUICK, "--generate", 8)
        self.assertEqual([row["length_tokens"] for row in found["rows"]], [CONTEXT - 8])

    def test_an_answer_of_one_token_has_no_steps(self):
        (row,) = bench(*MISTRAL, *QUICK, "--length", 5, "--generate", 1)["rows"]
        self.assertIsNone(row["step_seconds"])
        self.assertIsNone(row["bound_seconds"])

    def test_keys_in_int8_and_f32(self):
        for more in [["--kv-dtype", "int8"], ["--kv-dtype", "int8", "--exact-kv"], ["--exact"]]:
            (row,) = bench(*MISTRAL, *QUICK, "--length", 30, "--generate", 4, *more)["rows"]
            self.assertTrue(row["as_predicted"], more)

    def test_a_real_model_reads_a_text(self):
        path = cached_smollm2()
        if path is None:
            self.skipTest("the model is not in the cache")
        found = bench("--model", path, *QUICK, "--length", 100, "--generate", 4, "--file",
                      ROOT / "README.md")
        self.assertTrue(found["rows"][0]["as_predicted"])
        # Q4_1 and Q8_0: read in the file's own bits.
        self.assertEqual(found["file_weight_bytes"], found["weight_bytes"])


class Texts(unittest.TestCase):
    def test_one_page_says_times_figures_and_parts(self):
        result = run("bench", "model", *MISTRAL, *QUICK, "--length", 40, "--generate", 5)
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ["first token s", "as predicted", "output_projection", "sampling"]:
            self.assertIn(words, result.stdout)
        self.assertNotIn("predicted 0", result.stdout)


class Refusals(unittest.TestCase):
    def test_what_is_out_of_range_is_named(self):
        for more, says in [(["--length", 0], ["--length", "0"]),
                           (["--length", 125, "--generate", 4], ["125", "128"]),
                           (["--against", "windo(3)"], ["windo"]),
                           (["--exact-kv"], ["--exact-kv", "int8"]),
                           (["--kv-dtype", ""], ["--kv-dtype", "empty"]),
                           (["--length", 40, "--file", TINY / "missing.txt"], ["missing.txt"]),
                           (["--attend", "full", "--layers", "x.json"], ["--layers"])]:
            assert_refused(self, run("bench", "model", *MISTRAL, *QUICK, *more), says)


class Interrupts(unittest.TestCase):
    def test_ctrl_c_keeps_what_is_done(self):
        call = start("bench", "model", *map(str, MISTRAL), "--length", "120", "--generate", "8",
                     "--repetitions", "1000", "--json", stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE)
        call.stderr.readline()  # progress, after two seconds
        call.send_signal(signal.SIGINT)
        out, _ = call.communicate(timeout=SECONDS)
        self.assertEqual(call.returncode, 0)
        found = json.loads(out)
        check(found, "bench_model.schema.json", "interrupted")
        self.assertTrue(found["interrupted"])
        self.assertGreaterEqual(len(found["rows"]), 1)


if __name__ == "__main__":
    main()
