"""The parts of the scripts beside whole models that need no engine."""

import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import llama_opinion
import model_goals
import model_peers
from model_goals import FIRST, STEP, WINDOW, fastest, goals_of, over_peer, times_text

PARTS = ("scheduling", "embedding", "projection", "rotary", "append", "attention",
         "output_projection", "mlp", "logits", "unattributed")


def spread(value):
    return {"p10": value, "p50": value, "p90": value}


def our_row(length, table="own", first=1.0, step=0.01, **changes):
    parts = {part: 0.1 for part in PARTS}
    return {"table": table, "length_tokens": length, FIRST: spread(first), STEP: spread(step),
            "prefill_parts_seconds": parts, "step_parts_seconds": {**parts, "sampling": 0.1},
            "held_bytes": 4096, "predicted_held_bytes": 4096, "predicted_executed_pairs": 1000,
            "executed_pairs": 1000, "needed_pairs": 900, "kinds": [], "bound_seconds": spread(0.008),
            "generate_tokens": 33, "as_predicted": True, "predicted_read_bytes": 640,
            "read_bytes": 640, **changes}


def bench_model(rows, version=1, kv_dtype="bf16"):
    return {"format": "lacuna-bench-model", "format_version": version, "load_seconds": 0.25,
            "weight_bytes": 20, "file_weight_bytes": 10, "products": "int8", "kv_dtype": kv_dtype,
            "isa": "avx2", "peak_memory_bytes": 1 << 20, "rows": rows, "more": 1}


def peer(name, kind="dense"):
    engine, _, form = name.partition(", ")
    return {"name": name, "engine": engine, "form": form, "kind": kind, "settings": {},
            "version": "1", "load_seconds": 1.0}


def result(name, rounds, peers=()):
    """rounds: pairs of our rows and {peer: (seconds to the first token, of a step)}."""
    model, length = name.split()
    return {"name": name, "model": model, "length_tokens": int(length), "num_steps": 32,
            "predicted": [{"table": "full", "paged_held_bytes": 16384}], "peers": list(peers),
            "rounds": [{"ours": model_peers.our_round([bench_model(rows)],
                                                      model_peers.Case(model, "", int(length), (),
                                                                       (WINDOW,) * (len(rows) - 1))),
                        "peers": {peer: {FIRST: spread(first), STEP: spread(step)}
                                  for peer, (first, step) in theirs.items()}}
                       for rows, theirs in rounds]}


OV, OV_BF16, SPARSE = "OpenVINO GenAI, a", "OpenVINO GenAI, b", "OpenVINO GenAI, TRISHAPE"
FLASH, NO_FLASH = "llama.cpp, flash", "llama.cpp, no flash"
PEERS = [peer(OV), peer(OV_BF16), peer(SPARSE, "sparse"), peer(FLASH), peer(NO_FLASH)]


def long_smollm2():
    rows = [[our_row(8128, first=first), our_row(8128, WINDOW, first=first / 2, executed_pairs=250,
                                                 prefill_parts_seconds={"attention": 0.03})]
            for first in (10.0, 20.0)]
    return result("smollm2-135m 8128", [
        (rows[0], {OV: (25, .05), OV_BF16: (20, .04), SPARSE: (8, .01), FLASH: (60, .2),
                   NO_FLASH: (80, .05)}),
        (rows[1], {OV: (25, .05), OV_BF16: (50, .04), SPARSE: (20, .01), FLASH: (90, .2),
                   NO_FLASH: (80, .05)})], PEERS)


class Comparing(unittest.TestCase):
    def test_a_peer_stands_with_its_fastest_form_for_each_figure(self):
        found = long_smollm2()
        self.assertEqual(fastest(found, FIRST, "llama.cpp"), FLASH)
        self.assertEqual(fastest(found, STEP, "llama.cpp"), NO_FLASH)
        self.assertEqual(fastest(found, FIRST), OV)
        self.assertEqual(fastest(found, STEP), OV_BF16)
        self.assertEqual(fastest(found, FIRST, "OpenVINO GenAI", "sparse"), SPARSE)

    def test_a_sparse_form_does_not_pass_for_a_dense_one(self):
        self.assertNotEqual(fastest(long_smollm2(), STEP, "OpenVINO GenAI"), SPARSE)

    def test_a_form_that_left_after_a_round_is_not_the_fastest(self):
        found = long_smollm2()
        del found["rounds"][1]["peers"][OV]
        self.assertEqual(fastest(found, FIRST, "OpenVINO GenAI"), OV_BF16)

    def test_ratios_are_taken_round_by_round(self):
        self.assertEqual(over_peer(FIRST, "OpenVINO GenAI")(long_smollm2()), ("own", OV, [0.4, 0.8]))
        self.assertEqual(over_peer(FIRST, "OpenVINO GenAI", "sparse", 1)(long_smollm2()),
                         (WINDOW, SPARSE, [0.625, 0.5]))

    def test_ours_stands_with_its_fastest_keys_for_each_figure(self):
        case = model_peers.Case("smollm2-135m", "", 8128, (), ())
        found = {**long_smollm2(), "rounds": [
            {"ours": model_peers.our_round([bench_model([our_row(8128, first=10.0, step=0.03)]),
                                            bench_model([our_row(8128, first=12.0, step=0.02)],
                                                        kv_dtype="int8")], case),
             "peers": {OV: {FIRST: spread(20.0), STEP: spread(0.04)}}}]}
        self.assertEqual(over_peer(FIRST)(found), ("own", OV, [0.5]))
        self.assertEqual(over_peer(STEP)(found), ("own, int8 KV", OV, [0.5]))

    def test_only_the_fastest_forms_are_timed_again(self):
        forms = [model_peers.llama("slow"), model_peers.llama("first"), model_peers.llama("step"),
                 model_peers.openvino("alone", 256), model_peers.openvino("gone", 256),
                 model_peers.openvino("sparse", 256, {"mode": "TRISHAPE"})]
        seconds = dict(zip(map(str, forms), [(3, 3), (1, 3), (3, 1), (9, 9), None, (5, 5)]))
        first = {name: {FIRST: spread(pair[0]), STEP: spread(pair[1])}
                 for name, pair in seconds.items() if pair}
        self.assertEqual([form.name for form in model_peers.worth_another(forms, first)],
                         ["first", "step", "alone", "sparse"])


class Goals(unittest.TestCase):
    def by_what(self, results, text):
        found = [goal for goal in goals_of(results) if text in goal["what"]]
        self.assertEqual(len(found), 1, text)
        return found[0]

    def test_every_goal_has_a_case_and_its_forms(self):
        cases = {case.name: case for case in model_peers.CASES}
        for what, case, *_ in model_goals.GOALS:
            self.assertIn(case, cases, what)
        self.assertIn(WINDOW, cases["smollm2-135m 8128"].against)
        self.assertIn("sparse", {form.kind for form in cases["smollm2-135m 8128"].forms})

    def test_goals_without_their_cases_are_not_met(self):
        for goal in goals_of([]):
            self.assertIsNone(goal["value"])
            self.assertFalse(goal["met"])

    def test_first_tokens_and_later_ones(self):
        results = [long_smollm2()]
        dense = self.by_what(results, "first token: over OpenVINO GenAI, dense")
        self.assertEqual((dense["value"]["p50"], dense["peer"]), (0.6000000000000001, OV))
        self.assertTrue(dense["met"])
        step = self.by_what(results, "over the better peer")
        self.assertEqual((step["value"]["p50"], step["peer"], step["met"]), (0.25, OV_BF16, True))
        self.assertEqual(self.by_what(results, "at the probe's bandwidth")["value"]["p50"], 1.25)

    def test_attention_is_held_against_executed_pairs(self):
        goal = self.by_what([long_smollm2()], "attention seconds over executed pairs")
        self.assertAlmostEqual(goal["value"]["p50"], 0.3 / 0.25)
        self.assertFalse(goal["met"])

    def test_upkeep_is_scheduling_and_appending(self):
        row = our_row(1024)
        row["step_parts_seconds"].update(scheduling=0.03, append=0.01, attention=0.16)
        goal = self.by_what([result("gemma-3-270m 1024", [([row], {})])], "share of plans")
        self.assertAlmostEqual(goal["value"]["p50"], 0.04)
        self.assertTrue(goal["met"])

    def test_one_byte_too_much_or_too_little_in_one_round_is_seen(self):
        for off in (-1, 1):
            rows = [[our_row(32512, held_bytes=4096 + extra)] for extra in (0, 0, off)]
            found = result("gemma-3-270m 32512", [(row, {}) for row in rows])
            self.assertFalse(self.by_what([found], "less those predicted")["met"])
            self.assertAlmostEqual(self.by_what([found], "full layers only")["value"]["p50"], 0.25)
        same = result("gemma-3-270m 32512", [([our_row(32512)], {})])
        self.assertTrue(self.by_what([same], "less those predicted")["met"])

    def test_load_times_of_both_models(self):
        for name in ("smollm2-135m 960", "gemma-3-270m 1024"):
            goals = goals_of([result(name, [([our_row(int(name.split()[1]))], {})])])
            found = [goal["value"]["p50"] for goal in goals
                     if "load time" in goal["what"] and goal["value"]]
            self.assertEqual(found, [0.25])

    def test_text_names_peer_bound_and_value(self):
        texts = "".join(map(model_goals.goal_text, goals_of([long_smollm2()])))
        self.assertIn(f"over OpenVINO GenAI, dense (own; {OV}): wanted ≤ 0.75×, measured 0.6× (0.44×..",
                      texts)
        self.assertIn("executed pairs (own): wanted ≤ 1.18×, measured 1.2× (1.2×..1.2×)  (not reached)",
                      texts)
        self.assertIn("load time: wanted ≤ 1.5 s, not timed", texts)

    def test_times_of_all_forms(self):
        text = times_text(long_smollm2())
        self.assertRegex(text, r"Lacuna, window\(1024\)\+sink\(4\) +7\.50 +10\.00  2 round\(s\)")
        self.assertRegex(text, r"llama.cpp, no flash +80\.00 +50\.00  2 round\(s\)")
        self.assertIn("no round is done", times_text({"name": "a", "rounds": []}))


class Input(unittest.TestCase):
    CASE = model_peers.Case("m", "m.gguf", 8128, (), (WINDOW,))

    def test_a_row_for_each_table_is_kept_with_what_is_used(self):
        rows = [{**our_row(8128), "other": 1}, our_row(8128, WINDOW), our_row(960)]
        kept = model_peers.our_round([bench_model(rows)], self.CASE)
        self.assertEqual([row["table"] for row in kept["rows"]], ["own", WINDOW])
        self.assertNotIn("other", kept["rows"][0])
        self.assertEqual((kept["load_seconds"], kept["file_weight_bytes"]), (0.25, 10))

    def test_a_missing_table_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "m 8128: 1 rows came, wanted 2"):
            model_peers.our_round([bench_model([our_row(8128)])], self.CASE)

    def test_another_format_is_refused(self):
        for document in (bench_model([], version=2), {"format": "x", "format_version": 1}, {}):
            command = [sys.executable, "-c", f"print({json.dumps(json.dumps(document))})"]
            with self.assertRaisesRegex(ValueError, "wanted lacuna-bench-model of version 1"):
                model_peers.answer_of(command, "lacuna-bench-model")

    def test_forms_are_chosen_by_name_and_length(self):
        def names(**options):
            found = model_peers.chosen(argparse.Namespace(**{"only": "", "quick": False, **options}))
            return {(case.name, str(form)) for case, forms in found for form in forms}
        self.assertEqual({name for name, _ in names(quick=True)},
                         {"smollm2-135m 960", "gemma-3-270m 1024"})
        self.assertEqual({name for name, _ in names(only="gemma")},
                         {"gemma-3-270m 1024", "gemma-3-270m 32512"})
        self.assertEqual({form for _, form in names(only="TRISHAPE")},
                         {"OpenVINO GenAI, TRISHAPE", "OpenVINO GenAI, TRISHAPE, 1024 recent"})
        self.assertEqual(names(only="nothing"), set())

    def test_names_of_forms_are_unique(self):
        for case in model_peers.CASES:
            names = list(map(str, case.forms))
            self.assertEqual(len(names), len(set(names)))


class Peer:
    """An engine whose answers are given, and which may end."""

    def __init__(self, seconds):
        self.ready = {"version": "7", "load_seconds": 0.5}
        self._seconds, self.asked, self.ended = seconds, [], False

    def ask(self, line):
        self.asked.append(json.loads(line))
        if not self._seconds:
            raise ValueError("ended without an answer")
        first = self._seconds.pop(0)
        return {FIRST: first, STEP: [first / 100] * 3}

    def end(self):
        self.ended = True


class Runs(unittest.TestCase):
    FORMS = [model_peers.llama("one"), model_peers.llama("two")]
    CASE = model_peers.Case("m", "m.gguf", 64, tuple(FORMS))

    def run_with(self, peers, ours, rounds=3):
        options = argparse.Namespace(threads=2, rounds=rounds)
        run = model_peers.CaseRun(options, self.CASE, self.FORMS)
        with mock.patch.object(model_peers, "predictions", lambda *_: []), \
                mock.patch.object(model_peers, "text_ids", lambda *_: list(range(999))), \
                mock.patch.object(model_peers, "start",
                                  lambda form, *_: peers[self.FORMS.index(form)]), \
                mock.patch.object(model_peers, "ours", ours), \
                contextlib.redirect_stderr(io.StringIO()):
            try:
                run.run()
            finally:
                self.assertTrue(all(peer.ended for peer in peers if peer))
        return run.result

    @staticmethod
    def answer(*_):
        return model_peers.our_round([bench_model([our_row(64)])], Runs.CASE)

    def test_all_forms_run_once_and_the_fastest_in_every_round(self):
        peers = [Peer([1, 2, 3]), Peer([9, 9, 9])]
        found = self.run_with(peers, self.answer)
        self.assertEqual([sorted(one["peers"]) for one in found["rounds"]],
                         [["llama.cpp, one", "llama.cpp, two"], ["llama.cpp, one"],
                          ["llama.cpp, one"]])
        self.assertEqual([len(peer.asked) for peer in peers], [3, 1])
        prompts = [asked["ids"] for asked in peers[0].asked]
        self.assertEqual([len(ids) for ids in prompts], [64] * 3)
        self.assertEqual(len(set(map(tuple, prompts))), 3)

    def test_an_engine_that_ends_or_never_starts_is_left_out(self):
        found = self.run_with([Peer([1]), None], self.answer)
        self.assertEqual([sorted(one["peers"]) for one in found["rounds"]],
                         [["llama.cpp, one"], [], []])
        self.assertEqual([peer["name"] for peer in found["peers"]], ["llama.cpp, one"])

    def test_what_is_done_is_kept_when_stopped(self):
        left = [1, 1]

        def ours(*_):
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return self.answer()
        with mock.patch.object(model_peers, "chosen", lambda _: [(self.CASE, self.FORMS)] * 2), \
                tempfile.TemporaryDirectory() as folder, \
                contextlib.redirect_stdout(io.StringIO()):
            path = pathlib.Path(folder, "out.json")
            options = argparse.Namespace(threads=2, rounds=3, json=str(path))
            peers = [Peer([1, 2, 3]), Peer([1, 2, 3])]
            with mock.patch.object(model_peers, "predictions", lambda *_: []), \
                    mock.patch.object(model_peers, "text_ids", lambda *_: list(range(999))), \
                    mock.patch.object(model_peers, "start",
                                      lambda form, *_: peers[self.FORMS.index(form)]), \
                    mock.patch.object(model_peers, "ours", ours), \
                    contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(model_peers.run(options), 1)
            document = json.loads(path.read_text(encoding="utf-8"))
        self.assertTrue(document["interrupted"])
        self.assertEqual([len(one["rounds"]) for one in document["results"]], [2])
        self.assertEqual(document["format"], "lacuna-model-peers")
        self.assertEqual(len(document["goals"]), len(model_goals.GOALS))

    def test_a_program_that_fails_ends_the_case(self):
        def ours(*_):
            raise subprocess.CalledProcessError(2, "lacuna")
        with self.assertRaises(subprocess.CalledProcessError):
            self.run_with([Peer([1]), Peer([1])], ours)


class Opinion(unittest.TestCase):
    """Positions of a made model: whether the same, and the reference's lead."""
    MADE = [(True, 0.5), (True, 4.0), (False, 0.25), (True, 2.0)]

    @staticmethod
    def opinion(pairs, nll_off=0.0):
        return llama_opinion.opinion([
            llama_opinion.Position(same, lead, divergence=lead / 10, nll=2 + nll_off * (-1) ** place,
                                   reference_nll=2)
            for place, (same, lead) in enumerate(pairs)])

    def test_all_positions_count_alike(self):
        found = self.opinion(self.MADE)
        self.assertEqual((found["positions"], found["agreeing"], found["agreement"], found["met"]),
                         (4, 3, 0.75, False))
        self.assertEqual(found["leads_where_off"], {"p10": 0.25, "p50": 0.25, "p90": 0.25, "max": 0.25})
        self.assertEqual(found["leads"]["max"], 4.0)
        self.assertEqual(found["positions_with_no_greater_lead"], 1)
        self.assertAlmostEqual(found["divergence"], 0.16875)
        self.assertEqual(found["largest_divergence"], 0.4)
        text = llama_opinion.opinion_text("m", found)
        self.assertIn("m: 3 of 4 positions, 75.00 % (wanted 98 %, not reached)", text)
        self.assertIn("where llama.cpp disagrees: p10 0.250", text)
        self.assertIn("with a lead of 0.500 or more: 3 of 3", text)

    def test_a_lead_that_was_lost_counts_those_below_it(self):
        found = self.opinion([(True, 0.5), (True, 4.0), (True, 0.25), (False, 2.0)])
        self.assertEqual(found["positions_with_no_greater_lead"], 3)

    def test_the_least_lead_from_which_on_enough_agree(self):
        sure = self.opinion([(True, 9.0)] * 98 + [(False, 3.0)] * 2 + [(False, 1.0)])["sure"]
        self.assertEqual(sure, {"least_lead": 3.0, "positions": 100, "agreeing": 98})

    def test_of_equal_leads_all_count(self):
        sure = self.opinion([(True, 9.0), (True, 3.0), (False, 3.0)])["sure"]
        self.assertEqual(sure, {"least_lead": 9.0, "positions": 1, "agreeing": 1})

    def test_disagreement_at_the_greatest_lead_leaves_none(self):
        found = self.opinion([(False, 9.0), (True, 3.0)])
        self.assertIsNone(found["sure"])
        self.assertNotIn("with a lead", llama_opinion.opinion_text("m", found))

    def test_nll_is_off_by_a_share_with_its_error(self):
        found = self.opinion(self.MADE, nll_off=0.5)
        self.assertEqual((found["nll_off"], found["nll_off_error"]), (0.0, 0.125))
        self.assertEqual(self.opinion(self.MADE[:1], nll_off=0.5)["nll_off"], 0.25)

    def test_full_agreement(self):
        found = self.opinion([(True, lead) for _, lead in self.MADE])
        self.assertEqual((found["agreement"], found["met"], found["leads_where_off"]),
                         (1.0, True, None))
        self.assertNotIn("disagrees", llama_opinion.opinion_text("m", found))


class OursBesideIt(unittest.TestCase):
    BENCHMARK = {"positions": 6676.0, "off": 212.0, "kl": 0.003, "kl_most": 0.2, "nll_off": 0.07,
                 "nll_off_error": 0.04}

    def ours(self, *ends, **changes):
        text = json.dumps({"benchmarks": [
            {"name": f"BM_ModelReference/gemma3_{end}/iterations:1", **self.BENCHMARK, **changes}
            for end in ends]})
        with mock.patch.object(subprocess, "run", lambda *_, **__: mock.Mock(stdout=text)):
            return llama_opinion.ours("program", "gemma-3-270m")

    def test_every_form_in_the_same_words(self):
        found = self.ours(*llama_opinion.OURS)
        self.assertEqual([one["form"] for one in found], list(llama_opinion.OURS.values()))
        self.assertEqual((found[0]["agreeing"], found[0]["met"]), (6464, None))
        self.assertAlmostEqual(found[0]["nll_off"], 0.0007)

    def test_what_did_not_run_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "1 forms of gemma-3-270m, wanted 3"):
            self.ours("exact")
        with self.assertRaisesRegex(ValueError, "is absent"):
            self.ours(*llama_opinion.OURS, error_message="the reference is absent")


if __name__ == "__main__":
    unittest.main()
