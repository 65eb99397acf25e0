"""The parts of the peers' scripts that need no PyTorch."""

import random
import sys
import unittest

import attention_peers
import decode_peers
from attention_peers import compared, goal_value, goals_of, percentiles, table_text
from random_problems import draw_problem, flags_of
from topology_mask import mask_of, terms_of


def keys(attend, query, length=12, causal=True):
    reads = mask_of(attend, causal)
    return [key for key in range(length) if reads(query, key, length)]


class Masks(unittest.TestCase):
    def test_a_causal_window_counts_the_query_itself(self):
        self.assertEqual(keys("window(3)", 5), [3, 4, 5])
        self.assertEqual(keys("window(3)", 1), [0, 1])

    def test_a_two_sided_window_does_not_count_it(self):
        self.assertEqual(keys("window(2,1)", 5, causal=False), [3, 4, 5, 6])

    def test_nothing_of_the_future_in_a_causal_table(self):
        for attend in ["full", "sink(9)", "chunk(6)", "global(first=8)", "window_blocks(1,0,4)"]:
            self.assertLessEqual(max(keys(attend, 5)), 5, attend)

    def test_every_term(self):
        for attend, causal, wanted in [
                ("full", True, [0, 1, 2, 3, 4, 5, 6, 7]), ("sink(2)", True, [0, 1]),
                ("dilated(3,2)", True, [3, 5, 7]), ("dilated(2,3)", False, [4, 7, 10]),
                ("chunk(5)", True, [5, 6, 7]), ("chunk(5)", False, [5, 6, 7, 8, 9]),
                ("strided(3)", True, [1, 4, 7]), ("fixed(4,1)", True, [3, 4, 5, 6, 7]),
                ("window_blocks(1,0,3)", True, [3, 4, 5, 6, 7]),
                ("window_blocks(0,1,4)", False, [4, 5, 6, 7, 8, 9, 10, 11]),
                ("global(every=4,offset=1)", True, [1, 5]), ("global(2,3)", True, [2, 3]),
                ("global(first=2)", True, [0, 1]), ("global(last=2)", False, [10, 11]),
                ("window(2)+sink(1)", True, [0, 6, 7])]:
            self.assertEqual(keys(attend, 7, causal=causal), wanted, attend)

    def test_a_global_reads_all_it_may(self):
        self.assertEqual(keys("window(1)+global(4)", 4), [0, 1, 2, 3, 4])
        self.assertEqual(len(keys("window(0,0)+global(last=1)", 11, causal=False)), 12)

    def test_what_is_not_transcribed_is_refused(self):
        for attend in ["random(3,5)", "topk(4)", "window(3", "heads(0: full)"]:
            with self.assertRaises(ValueError):
                terms_of(attend)


class Problems(unittest.TestCase):
    def test_every_drawn_problem_has_a_mask(self):
        numbers = random.Random(3)
        for _ in range(300):
            problem = draw_problem(numbers)
            reads = mask_of(problem["attend"], not problem["bidirectional"])
            last = problem["length"] - 1
            self.assertIn(reads(last, 0, problem["length"]), (True, False))
            self.assertEqual(problem["num_q_heads"] % problem["num_kv_heads"], 0)

    def test_the_same_numbers_draw_the_same_problems(self):
        draws = [[draw_problem(numbers) for _ in range(9)]
                 for numbers in (random.Random(5), random.Random(5))]
        self.assertEqual(*draws)

    def test_flags_say_the_problem(self):
        self.assertEqual(flags_of({"attend": "full", "num_q_heads": 4, "rows": None,
                                   "learned_sinks": True, "bidirectional": False}),
                         ["--attend", "full", "--num-q-heads", "4", "--learned-sinks"])


def result(attend, dtype, peer, ours, theirs, threads=1):
    row = {"name": f"{attend} {dtype}", "attend": attend, "dtype": dtype, "threads": threads,
           "isa": "portable", "useful_flops": 4e9}
    rounds = [{"ours_seconds": a, "peer_seconds": b} for a, b in zip(ours, theirs)]
    return compared(row, peer, {"form": "one"}, rounds)


class Figures(unittest.TestCase):
    def test_percentiles_lie_between_neighbours(self):
        self.assertEqual(percentiles([4, 1, 3, 2, 5]), {"p10": 1.4, "p50": 3, "p90": 4.6})
        self.assertEqual(percentiles([7])["p90"], 7)

    def test_a_speedup_is_taken_round_by_round(self):
        one = result("full", "f32", "sdpa", [1, 10, 100], [2, 20, 200])
        self.assertEqual(one["speedup"], {"p10": 2, "p50": 2, "p90": 2})
        self.assertEqual(one["ours_useful_flops_per_s"], 4e8)
        self.assertEqual(one["peer_useful_flops_per_s"], 2e8)

    def test_the_best_dtype_of_a_peer_is_chosen_in_every_round(self):
        results = [result("window(512)", "f32", "flex", [1, 1], [3, 5]),
                   result("window(512)", "bf16", "flex", [1, 1], [4, 4])]
        value = goal_value(results, "window(512)", "f32", "flex", ("f32", "bf16"), 1)
        self.assertEqual((value["p10"], value["p90"]), (3.1, 3.9))

    def test_goals_without_their_rows_are_not_met(self):
        for goal in goals_of([], 1):
            self.assertIsNone(goal["value"])
            self.assertFalse(goal["met"])

    def test_a_goal_is_met_by_its_median(self):
        goals = goals_of([result("full", "f32", "sdpa", [1, 1, 1], [1.0, 1.3, 1.4])], 1)
        self.assertTrue(goals[0]["met"])
        self.assertFalse(goals[1]["met"])
        self.assertIn("measured 1.30\n", table_text([], goals[:1]))

    def test_every_peer_of_a_goal_is_started(self):
        for _, attend, _, peer, _, _ in attention_peers.GOALS:
            self.assertIn(peer, attention_peers.PEERS[attend.partition("(")[0]])


class Decode(unittest.TestCase):
    def test_the_bound_is_against_the_form_that_is_fastest(self):
        rounds = [{"ours": 1.0, "share": 0.9, "peers": {"slow": 9.0, "fast": 4.0}},
                  {"ours": 2.0, "share": 0.8, "peers": {"slow": 3.0, "fast": 4.0}},
                  {"ours": 1.0, "share": 0.7, "peers": {"slow": 9.0, "fast": 2.0}}]
        found = decode_peers.compared("bf16", rounds)
        self.assertEqual(found["best_peer"], "fast")
        self.assertEqual(found["speedup"]["p50"], 2.0)
        self.assertEqual((found["ours_seconds"], found["share_of_bandwidth"]), (1.0, 0.8))
        self.assertIn("2.00 times faster than fast", decode_peers.table_text([found]))


class Processes(unittest.TestCase):
    ECHO = [sys.executable, "-c", "import sys\nprint('{\"ready\": 1}', flush=True)\n"
            "for line in sys.stdin: print('{\"line\": %s}' % line.strip(), flush=True)"]

    def test_answers_line_by_line(self):
        process = attention_peers.Process(self.ECHO, 2)
        self.assertEqual(process.ready, {"ready": 1})
        self.assertEqual([process.ask(4), process.ask(5)], [{"line": 4}, {"line": 5}])
        process.end()

    def test_one_that_ends_early_is_an_error_that_names_it(self):
        with self.assertRaisesRegex(ValueError, "ended without an answer.*silent"):
            attention_peers.Process([sys.executable, "-c", "'silent'"])


if __name__ == "__main__":
    unittest.main()
