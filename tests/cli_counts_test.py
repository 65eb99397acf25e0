"""Do the program's numbers agree with each other, with their equations, and with an adjacency?

    cli_counts_test.py PROGRAM
"""

import math
import re
import unittest
from fractions import Fraction

from program import DECODERS, FOLDER, document, main, number, text

SIZES = ["--num-layers", 6, "--num-q-heads", 8, "--num-kv-heads", 4, "--head-dim", 32,
         "--hidden-size", 256, "--intermediate-size", 512, "--vocab-size", 999]
TABLES = [
    "full", "window(16)*2, full", "window(33)+sink(4)", "chunk(20), dilated(4,3)",
    "global(every=16)+window(5)", "topk(24)", "topk_blocks(2,16)",
    "heads(0-3: full; 4-7: window(12)+sink(1))", "random(4,9)+window(3)", "fixed(16,2)*2, strided(8)",
    "vertical_blocks(8,2,3,head), window_blocks(1,0,8)",
]
PHASES = ("train", "prefill", "decode")
FIGURES = [
    "edges", "pairs", "executed_pairs", "legal_pairs", "pair_flops", "recompute_flops",
    "exponentials", "executed_exponentials", "index_flops", "projection_flops", "mlp_flops",
    "logits_flops",
    "kv_bytes_per_token", "kv_held_bytes", "kv_peak_bytes", "state_held_bytes", "index_held_bytes",
    "kv_written_bytes_per_step", "kv_read_bytes_per_step", "index_read_bytes_per_step",
    "kv_loaded_bytes", "compulsory_bytes",
]
COUNTS = [name for name in FIGURES if name.endswith(("edges", "pairs", "flops", "exponentials"))]
LAST_STEP = [name for name in FIGURES if name not in COUNTS]
FLOPS = [name for name in FIGURES if name.endswith("flops")]


def figures(found, phase, layer=None):
    rows = found["phases"][phase]
    row = rows["total"] if layer is None else rows["layers"][layer]
    return {name: number(row[name]) for name in FIGURES}


def added(rows):
    return {name: None if any(row[name] is None for row in rows) else sum(row[name] for row in rows)
            for name in FIGURES}


class Sums(unittest.TestCase):
    maxDiff = None

    def cost(self, table, *flags):
        return document("cost", "--attend", table, *SIZES, *flags)

    def same(self, left, right, names):
        self.assertEqual({name: left[name] for name in names},
                         {name: right[name] for name in names})

    def test_total_is_the_sum_of_the_layers(self):
        for table in TABLES:
            for phase in PHASES:
                with self.subTest(table, phase=phase):
                    found = self.cost(table, "--phase", phase, "--prompt", 100, "--generate", 9)
                    layers = [figures(found, phase, idx) for idx in range(6)]
                    names = [name for name in FIGURES if name != "logits_flops"]
                    self.same(figures(found, phase), added(layers), names)

    def test_total_is_the_sum_of_the_layers_of_real_models(self):
        for name in DECODERS:
            with self.subTest(name):
                found = document("cost", "--model", FOLDER.model(name), "--prompt", 3000,
                                 "--generate", 7)
                for phase in found["phases"]:
                    layers = [figures(found, phase, idx)
                              for idx in range(found["model"]["num_layers"])]
                    names = [key for key in FIGURES if key != "logits_flops"]
                    self.same(figures(found, phase), added(layers), names)

    def test_decode_is_the_sum_of_its_steps(self):
        steps = 5
        for table in TABLES:
            with self.subTest(table):
                whole = figures(self.cost(table, "--phase", "decode", "--prompt", 30, "--generate",
                                          steps), "decode")
                single = [figures(self.cost(table, "--phase", "decode", "--prompt", 30 + step),
                                  "decode") for step in range(steps)]
                self.same(whole, added(single), COUNTS)
                self.same(whole, single[-1], LAST_STEP)

    def test_a_batch_is_its_sequences(self):
        for table in TABLES:
            for phase in PHASES:
                with self.subTest(table, phase=phase):
                    flags = ["--phase", phase, "--generate", 3]
                    one = figures(self.cost(table, *flags, "--prompt", 70), phase)
                    three = figures(self.cost(table, *flags, "--prompt", 70, "--batch", 3), phase)
                    names = [name for name in FIGURES if name != "kv_bytes_per_token"]
                    self.same(three, added([one] * 3), names)
                    self.same(three, one, ["kv_bytes_per_token"])

    def test_lengths_are_summed_and_never_averaged(self):
        lengths = [1, 17, 64, 65, 200, 17]
        file = FOLDER.write("lengths.txt", "\n".join(map(str, lengths)))
        for table in TABLES:
            for phase in PHASES:
                with self.subTest(table, phase=phase):
                    flags = ["--phase", phase, "--generate", 3]
                    whole = self.cost(table, *flags, "--lengths", file)
                    single = [self.cost(table, *flags, "--prompt", each) for each in lengths]
                    names = [name for name in FIGURES if name != "kv_bytes_per_token"]
                    self.same(figures(whole, phase), added([figures(each, phase)
                                                           for each in single]), names)
                    policies = whole["phases"][phase]["policies"]
                    for name, row in policies.items():
                        held = [each["phases"][phase]["policies"][name]["kv_held_bytes"]
                                for each in single]
                        wanted = None if None in held else sum(held)
                        self.assertEqual(row["kv_held_bytes"], wanted, name)

    def test_lists_of_lengths_read_alike(self):
        files = [FOLDER.write(f"form{idx}.txt", form)
                 for idx, form in enumerate(["3 40 7", "3,40,7\n", "[3, 40, 7]", "3\r\n40\r\n7"])]
        found = [self.cost("window(9)", "--lengths", file) for file in files]
        self.assertEqual([each["phases"] for each in found], [found[0]["phases"]] * 4)

    def test_chunks_change_no_count(self):
        for table in TABLES:
            with self.subTest(table):
                whole = figures(self.cost(table, "--prompt", 200), "prefill")
                for chunk in [1, 7, 64, 200, 999]:
                    parts = figures(self.cost(table, "--prompt", 200, "--chunk", chunk), "prefill")
                    names = [name for name in FIGURES if name != "kv_peak_bytes"]
                    self.same(parts, whole, names)
                    self.assertLessEqual(parts["kv_peak_bytes"], whole["kv_peak_bytes"])
                    self.assertGreaterEqual(parts["kv_peak_bytes"], parts["kv_held_bytes"])

    def test_mac_halves_flops(self):
        for table in TABLES:
            for phase in PHASES:
                with self.subTest(table, phase=phase):
                    flags = ["--phase", phase, "--prompt", 50]
                    two = figures(self.cost(table, *flags), phase)
                    one = figures(self.cost(table, *flags, "--mac"), phase)
                    rest = [name for name in FIGURES if name not in FLOPS]
                    self.same(one, two, rest)
                    known = [name for name in FLOPS if two[name] is not None]
                    self.assertEqual([2 * one[name] for name in known],
                                     [two[name] for name in known])
                    unknown = {name for name in FLOPS if one[name] is None}
                    self.assertLessEqual(unknown, set() if phase == "train" else {"recompute_flops"})

    def test_training_is_three_times_the_forward(self):
        for table in TABLES:
            train = figures(self.cost(table, "--phase", "train", "--prompt", 90), "train")
            forward = figures(self.cost(table, "--prompt", 90), "prefill")
            for name in ["pair_flops", "projection_flops", "mlp_flops"]:
                self.assertEqual(train[name], 3 * forward[name], name)
            # A prefill needs the last position's logits, a training step those of all.
            self.assertEqual(train["logits_flops"], 3 * 90 * forward["logits_flops"])
            self.same(train, forward, ["edges", "pairs", "executed_pairs", "exponentials"])

    def test_missing_sizes_are_null_and_not_zero(self):
        bare = figures(document("cost", "--attend", "full", "--prompt", 9), "prefill")
        for name in ["projection_flops", "mlp_flops", "logits_flops"]:
            self.assertIsNone(bare[name], name)
        for flag, name in [("--vocab-size", "logits_flops"), ("--intermediate-size", "mlp_flops")]:
            alone = document("cost", "--attend", "full", "--prompt", 9, flag, 100)
            self.assertIsNone(figures(alone, "prefill")[name], flag)


class Bounds(unittest.TestCase):
    def test_what_is_read_is_held_and_what_is_needed_is_executed(self):
        for table in TABLES + ["window(1)", "window(700)"]:
            for length in [1, 15, 64, 300]:
                with self.subTest(table, length=length):
                    found = document("cost", "--attend", table, *SIZES, "--prompt", length,
                                     "--generate", 4)
                    for phase in found["phases"]:
                        row = figures(found, phase)
                        self.assertLessEqual(row["kv_read_bytes_per_step"], row["kv_held_bytes"])
                        self.assertLessEqual(row["kv_held_bytes"], row["kv_peak_bytes"])
                        self.assertLessEqual(row["pairs"], row["legal_pairs"])
                        self.assertLessEqual(row["pairs"], row["executed_pairs"])
                        policies = found["phases"][phase]["policies"]
                        self.assertEqual(policies["exact"]["kv_held_bytes"], row["kv_held_bytes"])
                        for name in ["paged", "full", "uniform", "pool"]:
                            held = policies[name]["kv_held_bytes"]
                            self.assertGreaterEqual(held, row["kv_held_bytes"], name)

    def test_windows_read_all_that_they_hold(self):
        for window in [1, 2, 63, 64, 65]:
            for length in [1, 50, 64, 200]:
                row = figures(document("cost", "--attend", f"window({window})", "--prompt", length),
                              "prefill")
                self.assertEqual(row["kv_held_bytes"], min(window, length) * 2 * 64 * 2)
                self.assertEqual(row["kv_read_bytes_per_step"], row["kv_held_bytes"])

    def test_pages_of_the_flag_are_those_of_paged_alone(self):
        found = document("cost", "--attend", "full", "--prompt", 100, "--page-size", 32)
        policies = found["phases"]["prefill"]["policies"]
        self.assertEqual(policies["paged"]["params"]["P"], 32)
        self.assertEqual(policies["paged"]["kv_held_bytes"], 128 * 256)
        self.assertEqual(policies["pool"]["params"]["P"], 16)
        default = document("cost", "--attend", "full", "--prompt", 100)["phases"]["prefill"]
        self.assertEqual(default["policies"]["paged"]["params"]["P"], 64)
        self.assertEqual(list(default["policies"]),
                         ["exact", "paged", "full", "uniform", "pool", "iswa", "hf_dynamic",
                          "hf_static", "rolling"])

    def test_hops_of_a_window_table(self):
        for layers, window, length in [(4, 8, 100), (7, 3, 15), (1, 5, 5)]:
            found = document("cost", "--attend", f"window({window})", "--num-layers", layers,
                             "--prompt", length)
            reach = min(layers * (window - 1), length - 1)
            self.assertEqual(found["reach_tokens"], reach)
            self.assertEqual((found["evidence"], found["query"]), (0, length - 1))
            steps = -(-(length - 1) // (window - 1))
            self.assertEqual(found["hops"], steps if steps <= layers else None)
            self.assertEqual(found["first_layer"], steps - 1 if steps <= layers else None)


def value_of(numbers):
    """The value of an equation's right side, by Python's fractions."""
    code = re.sub(r"\d+", lambda match: f"F({match[0]})", numbers)
    for sign, call in [("·", "*"), ("⌈", "ceil("), ("⌉", ")"), ("⌊", "floor("), ("⌋", ")")]:
        code = code.replace(sign, call)
    names = {"F": Fraction, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max}
    return eval(code, {"__builtins__": {}}, names)  # pylint: disable=eval-used


class Equations(unittest.TestCase):
    """--explain: each equation is right, and ends in the figure."""

    def right(self, found, seen):
        for phase, rows in found["phases"].items():
            pairs = list(zip(rows["layers"], found["equations"][phase]["layers"]))
            pairs.append((rows["total"], found["equations"][phase]["total"]))
            self.assertEqual(len(rows["layers"]), len(found["equations"][phase]["layers"]))
            for row, equations in pairs:
                for name in FIGURES:
                    if (row[name], equations[name]) not in seen:
                        seen.add((row[name], equations[name]))
                        self.one(name, row[name], equations[name])

    def one(self, name, value, equation):
        if value is None:
            self.assertGreater(len(equation), 10, name)
            return
        parts = equation.split(" = ")
        self.assertEqual(parts[0], name)
        self.assertEqual(parts[-1], str(value), equation)
        if len(parts) > 2:
            numbers = parts[-2]
            if re.fullmatch(r"[\d\s()+\-·/,⌈⌉⌊⌋minax]+", numbers):
                self.assertEqual(value_of(numbers), int(value), equation)
            else:
                self.assertEqual(len(parts), 3, equation)  # a name alone

    def test_of_real_models(self):
        seen = set()
        for name in DECODERS:
            with self.subTest(name):
                model = ["--model", FOLDER.model(name), "--explain"]
                self.right(document("cost", *model, "--prompt", 5000, "--generate", 33), seen)
                self.right(document("cost", *model, "--prompt", 700, "--phase", "train"), seen)
        self.assertGreater(len(seen), 500)

    def test_of_topologies(self):
        lengths = FOLDER.write("equations.txt", "5 900 5 31")
        seen = set()
        for table in TABLES:
            for flags in [["--prompt", 77], ["--prompt", 77, "--batch", 3], ["--lengths", lengths],
                          ["--prompt", 90, "--verify-rows", 4], ["--prompt", 90, "--chunk", 32],
                          ["--prompt", 64, "--kv-dtype", "q4_0"], ["--prompt", 3, "--mac"],
                          ["--prompt", 1]]:
                with self.subTest(table, flags=flags):
                    args = ["--attend", table, *SIZES, "--explain", *flags]
                    self.right(document("cost", *args, "--generate", 6), seen)
                    self.right(document("cost", *args, "--phase", "train"), seen)

    def test_of_counts_beyond_64_bits(self):
        for table in ["full", "window(16)*2, full", "window(33)+sink(4)", "chunk(20), dilated(4,3)",
                      "topk_blocks(2,16)"]:
            with self.subTest(table):
                args = ["--attend", table, *SIZES, "--explain", "--prompt", 2**40]
                self.right(document("cost", *args, "--generate", 2**40), set())

    def test_stand_in_the_text_too(self):
        words = text("cost", "--attend", "full", "--head-dim", 2, "--prompt", 4, "--explain")
        self.assertIn("pair_flops = ", words)
        for name in FIGURES:
            self.assertRegex(words, rf"(?m)^  {name}(?: = .*|: .+)$")
        self.assertRegex(words, r"(?m)^  pair_flops = .* = 80$")


# Does query i read key j? The specification's table again, for one segment of n tokens.
CAUSAL = {
    "full": lambda i, j, n: True,
    "window(3)": lambda i, j, n: i - j < 3,
    "window(1)": lambda i, j, n: i == j,
    "window(2,0)": lambda i, j, n: i - j <= 2,
    "dilated(3,2)": lambda i, j, n: (i - j) % 2 == 0 and i - j <= 4,
    "sink(2)": lambda i, j, n: j < 2,
    "global(first=2)": lambda i, j, n: i < 2 or j < 2,
    "global(3,7)": lambda i, j, n: i in (3, 7) or j in (3, 7),
    "global(every=4,offset=1)": lambda i, j, n: i % 4 == 1 or j % 4 == 1,
    "chunk(4)": lambda i, j, n: i // 4 == j // 4,
    "strided(3)": lambda i, j, n: (i - j) % 3 == 0,
    "fixed(4,1)": lambda i, j, n: i // 4 == j // 4 or j % 4 == 3,
    "window_blocks(1,0,4)": lambda i, j, n: i // 4 - j // 4 <= 1,
    "vertical_blocks(2,1,2,0)": lambda i, j, n: i // 2 == j // 2 or (j // 2) % 2 == 0,
    "topk(3)": lambda i, j, n: i - j < 3,
    "window(2)+sink(1)": lambda i, j, n: i - j < 2 or j < 1,
    "window(2)+global(5)": lambda i, j, n: i - j < 2 or i == 5 or j == 5,
    "chunk(5)+dilated(2,4)": lambda i, j, n: i // 5 == j // 5 or i - j in (0, 4),
}
BOTH_WAYS = {
    "full": lambda i, j, n: True,
    "window(2,1)": lambda i, j, n: i - 2 <= j <= i + 1,
    "global(first=1)": lambda i, j, n: i < 1 or j < 1,
    "global(last=2)": lambda i, j, n: i >= n - 2 or j >= n - 2,
    "chunk(4)": lambda i, j, n: i // 4 == j // 4,
    "sink(2)": lambda i, j, n: j < 2,
    "dilated(2,3)": lambda i, j, n: abs(i - j) in (0, 3),
    "window_blocks(1,1,4)": lambda i, j, n: abs(i // 4 - j // 4) <= 1,
    "window(1,1)+global(every=6)": lambda i, j, n: abs(i - j) <= 1 or i % 6 == 0 or j % 6 == 0,
}


class Adjacency(unittest.TestCase):
    """`show` of up to 16 tokens lists every row."""

    def rows(self, attend, reads, length, causal):
        flags = [] if causal else ["--bidirectional"]
        wanted = [[j for j in range(length) if (j <= i or not causal) and reads(i, j, length)]
                  for i in range(length)]
        args = ["--attend", attend, "--length", length, *flags]
        found = document("show", *args)
        topology = found["topologies"][0]
        self.assertEqual(topology["rows"], wanted)
        edges = sum(map(len, wanted))
        legal = length * (length + 1) // 2 if causal else length**2
        self.assertEqual((topology["edges"], topology["legal_pairs"], topology["square_pairs"]),
                         (edges, legal, length**2))
        self.assertEqual(topology["largest_row"], max(map(len, wanted)))
        self.assertAlmostEqual(topology["density_legal"], edges / legal)
        self.assertAlmostEqual(topology["density_square"], edges / length**2)
        executed = topology["executed_pairs"]
        self.assertAlmostEqual(topology["density_executed"], edges / executed if edges else 0)
        lines = re.findall(r"(?m)^ *(\d+) reads +(\d+):((?: \d+)*)$", text("show", *args))
        self.assertEqual([[int(key) for key in keys.split()] for _, _, keys in lines], wanted)
        self.assertEqual([(int(row), int(size)) for row, size, _ in lines],
                         [(row, len(keys)) for row, keys in enumerate(wanted)])
        cost = document("cost", "--attend", attend, "--prompt", length, *flags)
        self.assertEqual(figures(cost, "prefill")["edges"], edges)

    def test_causal_terms(self):
        for attend, reads in CAUSAL.items():
            for length in [1, 2, 7, 16]:
                with self.subTest(attend, length=length):
                    self.rows(attend, reads, length, True)

    def test_bidirectional_terms(self):
        for attend, reads in BOTH_WAYS.items():
            for length in [1, 5, 16]:
                with self.subTest(attend, length=length):
                    self.rows(attend, reads, length, False)

    def test_longer_segments_are_not_listed(self):
        flags = ["--attend", "full", "--length", 17]
        self.assertNotIn("rows", document("show", *flags)["topologies"][0])
        self.assertNotRegex(text("show", *flags), r"(?m)^ *\d+ reads ")

    def test_split_heads_are_shown_apart(self):
        found = document("show", "--attend", "heads(0-1: full; 2-3: window(2))", "--num-q-heads", 4,
                         "--num-kv-heads", 2, "--length", 5)
        self.assertEqual([(row["num_q_heads"], row["edges"]) for row in found["topologies"]],
                         [(2, 15), (2, 9)])

    def test_layers_of_one_topology_stand_together(self):
        found = document("show", "--attend", "window(2)*2, full", "--num-layers", 7, "--length", 5)
        self.assertEqual([row["layers"] for row in found["topologies"]], [[0, 1, 3, 4, 6], [2, 5]])


if __name__ == "__main__":
    main()
