"""Lays made reports side by side."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import demo


def report(pairs, hops):
    total = {key: pairs for _, _, key in demo.ROWS}
    phases = {"prefill": {"total": total},
              "decode": {"total": total, "policies": {"paged": {"kv_held_bytes": 64}}}}
    return {"phases": phases, "hops": hops, "first_layer": 5, "reach_tokens": 7}


class Demo(unittest.TestCase):
    def rows(self):
        reports = {"own table": report(1234567, 1), "window only": report("18446744073709551616", None)}
        return {row[0]: row[1:] for row in demo.side_by_side(reports)}

    def test_counts_of_any_size_stand_under_their_table(self):
        rows = self.rows()
        self.assertEqual(rows[""], ["own table", "window only"])
        self.assertEqual(rows["prefill: pairs"], ["1,234,567", "18,446,744,073,709,551,616"])

    def test_every_policy_has_a_row(self):
        self.assertEqual(self.rows()["decode: KV that paged holds, bytes"], ["64", "64"])

    def test_unreachable_is_a_dash(self):
        self.assertEqual(self.rows()["hops, first token to last"], ["1", "–"])


def kernel_row(attend, executed):
    return {"attend": attend, "predicted_pairs": 1000, "useful_flops": 3e9,
            "ledger": {"executed_pairs": executed, "distinct_bytes": 4e6},
            "rounds": [{"f32_flops_per_s": 1e11, "bf16_flops_per_s": 2e11}],
            "whole": {"seconds": {"p50": 0.1}}}


class Generation(unittest.TestCase):
    def rows(self, held):
        report = {"prompt_tokens": 1500, "first_token_seconds": 1.5, "held_bytes": held,
                  "predicted_held_bytes": 4096, "step_seconds": [0.03, 0.01, 0.02]}
        return demo.generation_table({"own table": report}).splitlines()[1].split()

    def test_held_bytes_stand_beside_what_was_predicted(self):
        self.assertEqual(self.rows(4096), "own table 1,500 1.50 20.0 4,096 4,096 equal".split())
        self.assertEqual(self.rows(8192)[-1], "DIFFERENT")


class Kernels(unittest.TestCase):
    def rows(self, bandwidth=1e10):
        report_ = {"bandwidth": [{"bytes_per_s": bandwidth}],
                   "rows": [kernel_row("window(512)", 1000), kernel_row("full", 1001)]}
        return demo.kernels_table(report_).splitlines()

    def test_executed_pairs_that_were_not_predicted_stand_out(self):
        _, window, full = self.rows()
        self.assertIn("equal", window)
        self.assertIn("DIFFERENT", full)

    def test_the_roofline_is_whichever_takes_longer(self):
        self.assertIn("15.8 (products)", self.rows()[1])  # 3e9 of 0.95 x 2e11 a second
        self.assertIn("40.0 (bytes)", self.rows(bandwidth=1e8)[1])

    def test_layers_of_a_kind_add_up(self):
        self.assertTrue(self.rows()[1].endswith("1500"), self.rows()[1])


class Audit(unittest.TestCase):
    def output(self, exit_code):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            program = folder / "program"
            program.write_text(f'#!/bin/sh\necho "arguments: $*"\nexit {exit_code}\n')
            program.chmod(0o755)
            return demo.audit_demo(str(program), folder / "model.gguf", folder), folder

    def test_the_page_lies_in_the_folder_and_its_path_comes_last(self):
        output, folder = self.output(0)
        self.assertIn(f"--model model.gguf --prompt 8192 --against full --against window(512) "
                      f"--repetitions 1 --html {folder}/audit.html\n", output)
        self.assertTrue(output.endswith(f" {folder}/audit.html\n"), output)

    def test_an_audit_that_finds_a_fault_is_shown_and_fails(self):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), self.assertRaises(SystemExit):
            self.output(1)
        self.assertIn("arguments: audit", shown.getvalue())


if __name__ == "__main__":
    unittest.main()
