"""Tables of made measurements."""

import json
import pathlib
import tempfile
import unittest

import refresh_docs
import speed_table


def statistics(value):
    return {"p10": value * 0.9, "p50": value, "p90": value * 1.1}


def row(name, seconds):
    rate = {"seconds": statistics(seconds), "useful_flops_per_s": 5e10,
            "share_of_limit": statistics(0.8), "loaded_bytes_per_s": 2e9}
    return {"name": name, "isa": "avx512", "threads": 1, "executed_per_needed": 1.031,
            "whole": rate, "planned": rate,
            "rounds": [{"f32_flops_per_s": 1e11, "bf16_flops_per_s": 0}]}


def goal(what, unit, bound, value, at_most=False):
    met = value is not None and (value <= bound if at_most else value >= bound)
    return {"what": what, "unit": unit, "bound": bound, "at_most": at_most, "value": value,
            "met": met}


KERNELS = {"machine": {"cpu": "A CPU", "num_allowed_cpus": 2, "isas": ["avx512", "portable"]},
           "request": {"repetitions": 7}, "rows": [row("full n4096", 0.25)],
           "goals": [goal("dense", "share", 0.82, 0.853), goal("sinks", "share", 0.45, 0.41),
                     goal("workspace", "MiB", 64, 12.5, at_most=True),
                     goal("pairs", "ratio", 1.08, 1.031, at_most=True),
                     goal("untimed", "share", 0.5, None)]}
PEERS = {"results": [{"row": "full n4096", "peer": "sdpa", "peer_is": {"form": "enable_gqa"},
                      "ours_useful_flops_per_s": 9e10, "peer_useful_flops_per_s": 3e10,
                      "speedup": statistics(3)}],
         "goals": [{"what": "over SDPA", "bound": 1.25, "value": statistics(3), "met": True},
                   {"what": "over flex", "bound": 3, "value": None, "met": False}]}


DECODE = {"machine": {"cpu": "A CPU"}, "request": {"repetitions": 7},
          "rows": [{"name": "kv 32768", "threads": 2, "isa": "avx2", "step_seconds": statistics(0.004),
                    "bound_seconds": statistics(0.003), "overhead": statistics(0.01),
                    "share_of_bandwidth": statistics(0.9), "as_predicted": False,
                    "bandwidth_set_bytes": 5000, "check": {"max_error": 0.0123},
                    "kinds": [{"attend": "full", "num_layers": 3, "predicted_held_bytes": 1000,
                               "held_bytes": 1064, "predicted_read_bytes": 900,
                               "read_bytes": 8000000}],
                    "rounds": [{"plan_seconds": 2e-6, "cache_seconds": 3e-6, "append_seconds": 4e-6,
                                "kind_seconds": [0.0035]}]}],
          "goals": [goal("hit", "ms", 1, 0.5, at_most=True)]}
DECODE_PEERS = {"goals": [{"what": "over PyTorch", "bound": 3, "value": 2.5, "met": False}]}


class DecodeTable(unittest.TestCase):
    def test_goals_of_the_run_and_of_the_peer(self):
        text = speed_table.decode(DECODE, DECODE_PEERS)
        self.assertIn("A CPU, 2 threads, kernels `avx2`; medians of 7 rounds", text)
        self.assertIn("| hit | ≤ 1.000 ms | 0.500 ms |\n", text)
        self.assertIn("| over PyTorch | ≥ 3.00× | **2.50×** |\n", text)

    def test_a_row_that_is_not_as_predicted_says_so(self):
        self.assertIn("| kv 32768 | 4 | 3.6..4.4 | 3 | 2 | 3 | 4 | 2.0 | 90.0 % | **no** | 0.012 |",
                      speed_table.decode_rows(DECODE, None))

    def test_a_model_by_its_kinds_of_layers(self):
        text = speed_table.decode_model(DECODE, None)
        self.assertIn("| 3 × full | 1,000 | 1,064 | 900 | 8,000,000 | 3.500 |", text)
        self.assertIn("A step takes 4.00 ms", text)


class SpeedTable(unittest.TestCase):
    def test_one_line_a_goal_and_a_missed_one_is_bold(self):
        text = speed_table.speed(KERNELS, PEERS)
        self.assertIn("| dense | ≥ 82.0 % | 85.3 % |\n", text)
        self.assertIn("| sinks | ≥ 45.0 % | **41.0 %** |\n", text)
        self.assertIn("| workspace | ≤ 64.0 MiB | 12.5 MiB |\n", text)
        self.assertIn("| pairs | ≤ 1.080 | 1.031 |\n", text)
        self.assertIn("| untimed | ≥ 50.0 % | – |\n", text)
        self.assertIn("| over SDPA | ≥ 1.25× | 3.00× |\n", text)
        self.assertIn("| over flex | ≥ 3.00× | – |\n", text)

    def test_without_peers_their_lines_are_left_out(self):
        self.assertNotIn("SDPA", speed_table.speed(KERNELS))
        with self.assertRaisesRegex(ValueError, "attention_peers"):
            speed_table.peers_rows(KERNELS)

    def test_rows_carry_machine_time_and_share(self):
        text = speed_table.kernels_rows(KERNELS)
        self.assertIn("A CPU, 2 CPUs, kernels `avx512`; one thread's probe beside the rows: f32 100 "
                      "GFLOP/s; medians of 7 rounds", text)
        self.assertIn("| full n4096 | avx512 | 250 | 225..275 | 50.0 | 80.0 % | 80.0 % | 1.031 | 2.0 |",
                      text)
        self.assertIn("| full n4096 | sdpa | enable_gqa | 90.0 | 30.0 | 3.00× | 2.70..3.30 |",
                      speed_table.peers_rows(KERNELS, PEERS))

    def test_another_format_is_refused(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name, "bench_kernels.json")
            path.write_text(json.dumps({"format": "lacuna-cost", "format_version": 1}))
            with self.assertRaisesRegex(ValueError, "no lacuna-bench-kernels"):
                speed_table.load(path, "lacuna-bench-kernels")


class RefreshDocs(unittest.TestCase):
    PAGE = "head\n<!-- table: speed -->\nold\n<!-- end -->\ntail\n<!-- output: x -->\no\n<!-- end -->\n"

    def test_a_table_is_replaced_between_its_marks_and_outputs_are_left_alone(self):
        page = refresh_docs.with_tables(self.PAGE, lambda name: f"the {name} table\n")
        self.assertEqual(page, self.PAGE.replace("old\n", "the speed table\n"))

    def test_stored_measurements_fit_the_tables(self):
        if not speed_table.KERNELS.exists():
            self.skipTest("no measurement is stored")
        self.assertIn("| what | wanted | measured |", speed_table.table("speed"))


if __name__ == "__main__":
    unittest.main()
