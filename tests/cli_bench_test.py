"""`lacuna bench kernels` from outside, on problems that take no time.

    cli_bench_test.py PROGRAM
"""

import json
import math
import re
import shlex
import signal
import struct
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import program
from program import FOLDER, ROOT, check, document, main, number, run, start

sys.path.insert(0, str(ROOT / "bench" / "peers"))
from topology_mask import mask_of  # noqa: E402  pylint: disable=wrong-import-position

QUICK = ["--repetitions", 1, "--min-time-ms", 1]
TINY = ["--length", 64, "--head-dim", 32]


def bench(*args, returncode=0):
    result = run("bench", "kernels", *args)
    if result.returncode != returncode:
        raise AssertionError(f"exit {result.returncode}: {args}: {result.stderr}")
    return result


def bench_document(*args):
    found = json.loads(bench(*args, "--json").stdout)
    check(found, "bench_kernels.schema.json", args)
    return found


class Documents(unittest.TestCase):
    def test_every_kind_of_row_is_valid_right_and_as_predicted(self):
        found = bench_document(*TINY, *QUICK, "--attend", "full", "--attend", "window(9)+sink(2)",
                               "--dtype", "f32", "--dtype", "bf16", "--dtype", "f16", "--threads", 1,
                               "--threads", 2, "--masked-dense", "--prepacked", "--learned-sinks")
        self.assertEqual(len(found["rows"]), 2 * 3 * 2 * 3)
        for row in found["rows"]:
            self.assertTrue(row["as_predicted"], row["name"])
            self.assertTrue(row["check"]["agrees"], row["name"])
            self.assertEqual(len(row["rounds"]), 1)
            self.assertIn(row["isa"], found["machine"]["isas"])
        whats = {ratio["what"] for ratio in found["ratios"]}
        self.assertEqual(len(whats), 4, whats)

    def test_pairs_are_those_that_the_cost_model_says(self):
        for attend in ["full", "window(17)+sink(3)", "chunk(20)", "global(every=16)+window(5)"]:
            found = bench_document("--length", 200, "--attend", attend, "--num-q-heads", 6,
                                   "--num-kv-heads", 3, "--head-dim", 16, *QUICK)
            (row,) = found["rows"]
            cost = document("cost", "--attend", attend, "--num-q-heads", 6, "--num-kv-heads", 3,
                            "--head-dim", 16, "--prompt", 200, "--tile",
                            f"{row['tile']['q']},{row['tile']['k']}", "--kv-dtype", "f32")
            total = cost["phases"]["prefill"]["total"]
            self.assertEqual(row["needed_pairs"], number(total["pairs"]))
            self.assertEqual(row["ledger"]["executed_pairs"], number(total["executed_pairs"]))
            self.assertEqual(row["ledger"]["loaded_bytes"], number(total["kv_loaded_bytes"]))
            self.assertEqual(row["useful_flops"], number(total["pair_flops"]))

    def test_the_table_of_speeds_has_its_goals(self):
        found = bench_document("--only", "bf16 t1 rows 2", *QUICK)
        self.assertEqual(len(found["long_plans"]), 6)
        self.assertGreater(len(found["goals"]), 20)
        self.assertTrue(all(goal["value"] is None for goal in found["goals"]
                            if "dense causal" in goal["what"]))
        self.assertTrue(any(goal["value"] is not None for goal in found["goals"]))

    def test_last_rows_and_both_directions(self):
        for flags in [["--rows", 1], ["--rows", 2, "--rows", 64],
                      ["--bidirectional", "--attend", "window(4,9)"], ["--isa", "portable"]]:
            for row in bench_document(*TINY, *QUICK, *flags)["rows"]:
                self.assertTrue(row["check"]["agrees"] and row["as_predicted"], row["name"])


class Scan(unittest.TestCase):
    def test_curves_as_json_text_and_picture(self):
        scan = ["--scan", "16..64", "--head-dim", 16, *QUICK]
        curves = bench_document(*scan)["scan"]
        self.assertEqual([curve["lengths_tokens"] for curve in curves], [[16, 32, 64]] * 3)
        full, window, hybrid = (curve["seconds"] for curve in curves)
        for idx in range(3):
            self.assertAlmostEqual(hybrid[idx], (5 * window[idx] + full[idx]) / 6)
        svg = FOLDER.path / "scan.svg"
        words = bench(*scan, "--svg", svg).stdout
        self.assertRegex(words, r"tokens +full, ms +window\(512\), ms")
        self.assertIn("  a full\n", words)
        self.assertTrue(xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg"))


class Dump(unittest.TestCase):
    """The tensors of a call against the softmax by definition, in Python's own arithmetic."""

    @staticmethod
    def tensor(folder, told):
        data = (folder / told["file"]).read_bytes()
        values = struct.unpack(f"<{len(data) // 4}f", data)
        return values, told["shape"]

    def definition(self, problem, tensors, row, head):
        (q, shape), (k, kv_shape), (v, v_shape) = (tensors[name] for name in "qkv")
        dim, v_dim = shape[2], v_shape[2]
        kv_head = head // (shape[1] // kv_shape[1])
        query = problem["length"] - problem["rows"] + row
        reads = mask_of(problem["attend"], problem["causal"])
        keys = [key for key in range(problem["length"]) if reads(query, key, problem["length"])]
        at = (row * shape[1] + head) * dim
        scores = []
        for key in keys:
            first = (key * kv_shape[1] + kv_head) * dim
            scores.append(sum(q[at + d] * k[first + d] for d in range(dim)) / math.sqrt(dim))
        logits = scores + ([tensors["sinks"][0][head]] if "sinks" in tensors else [])
        lse = math.log(sum(map(math.exp, logits)))
        out = [sum(math.exp(score - lse) * v[(key * v_shape[1] + kv_head) * v_dim + d]
                   for key, score in zip(keys, scores)) for d in range(v_dim)]
        return out, lse

    def test_out_and_lse_are_those_of_the_definition(self):
        for flags in [["--attend", "window(5)+sink(2)"], ["--learned-sinks"],
                      ["--attend", "window(3,4)", "--bidirectional", "--rows", 7]]:
            folder = FOLDER.path / "dump"
            folder.mkdir(exist_ok=True)
            bench("--length", 19, "--num-q-heads", 4, "--head-dim", 8, "--v-head-dim", 5,
                  "--dump-dir", folder, *flags)
            problem = json.loads((folder / "problem.json").read_text(encoding="utf-8"))
            tensors = {name: self.tensor(folder, told) for name, told in problem["tensors"].items()}
            out, shape = tensors["out"]
            for row in range(problem["rows"]):
                for head in range(4):
                    wanted, lse = self.definition(problem, tensors, row, head)
                    lane = row * shape[1] + head
                    for dim, value in enumerate(wanted):
                        self.assertAlmostEqual(out[lane * shape[2] + dim], value, delta=2e-6)
                    self.assertAlmostEqual(tensors["lse"][0][lane], lse, delta=2e-6)

    def test_a_folder_that_is_not_there_is_named(self):
        result = bench(*TINY, "--dump-dir", FOLDER.path / "none", returncode=2)
        self.assertIn("none", result.stderr)


class Requests(unittest.TestCase):
    def test_a_row_is_timed_for_each_line(self):
        child = start("bench", "kernels", *map(str, TINY), "--attend", "full", "--attend", "sink(1)",
                      "--min-time-ms", "1", "--on-request", stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, text=True)
        out, _ = child.communicate("1\n0\n1\n", timeout=program.SECONDS)
        self.assertEqual(child.returncode, 0)
        rows, *rounds = map(json.loads, out.splitlines())
        self.assertEqual([row["attend"] for row in rows["rows"]], ["full", "sink(1)"])
        self.assertEqual([one["row"] for one in rounds], [1, 0, 1])
        for one in rounds:
            self.assertGreater(one["whole_seconds"], 0)

    def test_a_line_that_names_no_row_is_an_error(self):
        child = start("bench", "kernels", *map(str, TINY), "--on-request", stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        _, words = child.communicate("1\n", timeout=program.SECONDS)
        self.assertEqual(child.returncode, 2)
        self.assertIn("the row asked for is '1'; allowed: whole numbers 0..0", words)


class Interrupts(unittest.TestCase):
    def test_what_is_done_is_printed(self):
        child = start("bench", "kernels", *map(str, TINY), "--repetitions", "1000", "--json",
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("bench kernels", child.stderr.readline())  # it runs, and says so
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=program.SECONDS)
        self.assertEqual(child.returncode, 0)
        found = json.loads(out)
        check(found, "bench_kernels.schema.json", "interrupted")
        self.assertTrue(found["interrupted"])
        self.assertLess(len(found["rows"][0]["rounds"]), 1000)


class Words(unittest.TestCase):
    def refused(self, *args, says):
        program.assert_refused(self, bench(*args, returncode=2), says)

    def test_what_is_wrong_is_named(self):
        self.refused("--lenght", 64, says=["--lenght", "did you mean '--length'"])
        for flag in ["--length", "--threads", "--rows", "--num-q-heads", "--num-kv-heads",
                     "--head-dim", "--v-head-dim", "--repetitions", "--min-time-ms", "--row-seconds"]:
            for value in ["0", "-1", "1e3", "ten", ""]:
                self.refused(f"{flag}={value}", says=[flag, "allowed"])
        self.refused(*TINY, "--rows", 65, says=["rows is 65", "0..64"])
        self.refused(*TINY, "--dtype", "bf15", says=["bf15", "did you mean 'bf16'"])
        self.refused(*TINY, "--num-q-heads", 8, "--num-kv-heads", 3, says=["num_q_heads is 8"])
        self.refused(*TINY, "--isa", "avx1024", says=["avx1024", "portable"])
        self.refused(*TINY, "--cpu-time", "--threads", 2, says=["threads is 2"])
        self.refused("--list", "sped", says=["did you mean 'speed'"])
        self.refused("--scan", "8..4", says=["8..4"])

    def test_the_verb_and_what_it_lacks(self):
        result = run("bench")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no verb is given; allowed: ", result.stderr)
        result = run("bench", "kernls")
        self.assertIn("did you mean 'kernels'?", result.stderr)

    def test_help_has_examples_whose_flags_exist(self):
        words = run("bench", "kernels", "--help").stdout
        self.assertIn("Examples:", words)
        examples = re.sub(r"\\\n\s*", " ", words[words.index("Examples:"):])
        lines = [shlex.split(line) for line in examples.splitlines() if " lacuna " in line]
        self.assertGreaterEqual(len(lines), 2)
        for line in lines:  # they take too long to run here: these two are refused, and no other
            self.assertEqual(line[:3], ["lacuna", "bench", "kernels"])
            self.refused(*line[3:], "--on-request", "--dump-dir", "x",
                         says=["--on-request and --dump-dir are both given"])

    def test_text_says_machine_limit_and_rows(self):
        words = bench(*TINY, *QUICK, "--attend", "window(8)").stdout
        self.assertRegex(words, r"probed beside the rows, 1 thread\(s\): f32 [\d.]+")
        self.assertRegex(words, r"window\(8\) n64 h8/2 d32 f32 t1 +\w+ +[\d.]+")
        self.assertNotIn("NOT AS PREDICTED", words)


if __name__ == "__main__":
    main()
