"""Tables of a made comparison of whole models."""

import unittest

import model_table
import speed_table

PARTS = {"scheduling": 0.001, "embedding": 0.002, "projection": 0.5, "rotary": 0.01, "append": 0.02,
         "attention": 1.25, "output_projection": 0.1, "mlp": 0.7, "logits": 0.003,
         "unattributed": 0.004}


def spread(value):
    return {"p10": value * 0.9, "p50": value, "p90": value * 1.1}


def our_row(table, first, step, keys=""):
    return {"form": f"{table}{keys}", "table": table, "length_tokens": 8128, "generate_tokens": 33,
            "first_token_seconds": spread(first), "step_seconds": spread(step),
            "prefill_parts_seconds": {key: first * value for key, value in PARTS.items()},
            "step_parts_seconds": {**{key: step * value for key, value in PARTS.items()},
                                   "sampling": 0.0005},
            "needed_pairs": 900, "predicted_executed_pairs": 1000, "executed_pairs": 1003,
            "predicted_held_bytes": 5000000, "held_bytes": 5000000, "predicted_read_bytes": 700,
            "read_bytes": 640}


def one_round(first, peers):
    return {"ours": {"load_seconds": 0.25, "isa": "avx2", "products": "int8", "kv_dtype": "bf16",
                     "rows": [our_row("full*30", first, 0.004),
                              our_row("window(1024)+sink(4)*30", first / 2, 0.002, ", int8 KV")]},
            "peers": {name: {"first_token_seconds": spread(seconds), "step_seconds": spread(0.05)}
                      for name, seconds in peers.items()}}


def peer(name, settings):
    engine, _, form = name.partition(", ")
    return {"name": name, "engine": engine, "form": form, "kind": "dense", "settings": settings,
            "version": "7.1", "load_seconds": 3.5}


def goal(unit, bound, value, met):
    return {"what": f"a goal in {unit}", "unit": unit, "bound": bound, "at_most": True,
            "ours": "full, int8 KV",
            "peer": "llama.cpp, flash" if unit == "times" else None,
            "value": None if value is None else spread(value), "met": met}


RESULT = {"name": "smollm2-135m 8128", "model": "smollm2-135m", "length_tokens": 8128,
          "num_steps": 32,
          "predicted": [{"table": "own", "kv_held_bytes": 4900000, "kv_read_bytes": 600,
                         "paged_held_bytes": 5000000, "hops": 1},
                        {"table": "window(1024)+sink(4)", "kv_held_bytes": 1, "kv_read_bytes": 2,
                         "paged_held_bytes": 3, "hops": None}],
          "peers": [peer("llama.cpp, flash", {"flash_attn": True}),
                    peer("OpenVINO GenAI, x", {"batched": 256, "properties": {},
                                               "sparse": {"mode": "TRISHAPE"}}),
                    peer("OpenVINO GenAI, failed", {})],
          "rounds": [one_round(4.0, {"llama.cpp, flash": 8.128, "OpenVINO GenAI, x": 16}),
                     one_round(6.0, {"llama.cpp, flash": 8.128})]}
NOT_DONE = {**RESULT, "name": "gemma-3-270m 32512", "peers": [], "rounds": [], "predicted": []}
DOCUMENT = {"machine": {"cpu": "A CPU", "num_allowed_cpus": 2}, "threads": 2, "num_rounds": 2,
            "formats": {"Lacuna": {"weights": "w", "activations": "a", "kv": "k"}},
            "results": [RESULT, NOT_DONE],
            "goals": [goal("times", 0.5, 0.25, True), goal("times", 0.1, 0.25, False),
                      goal("share", 0.05, 0.021, True), goal("bytes", 0, 0.0, True),
                      goal("seconds", 1.5, None, False), goal("share", None, 0.18, True)]}


class Goals(unittest.TestCase):
    def test_a_line_a_goal_and_a_missed_one_is_bold(self):
        text = model_table.goals(DOCUMENT)
        self.assertIn("A CPU, 2 CPUs, 2 threads, kernels `avx2`; 2 round(s)", text)
        for line in ("| a goal in times | full, int8 KV | llama.cpp, flash | ≤ 0.50× | 0.25× | 0.23×..0.28× |",
                     "| a goal in times | full, int8 KV | llama.cpp, flash | ≤ 0.10× | **0.25×** | 0.23×..0.28× |",
                     "| a goal in share | full, int8 KV | – | ≤ 5.0 % | 2.1 % | 1.9 %..2.3 % |",
                     "| a goal in seconds | full, int8 KV | – | ≤ 1.50 s | – | – |",
                     "| a goal in share | full, int8 KV | – | – | 18.0 % | 16.2 %..19.8 % |"):
            self.assertIn(line + "\n", text)

    def test_no_byte_too_much_is_not_taken_for_not_timed(self):
        document = {**DOCUMENT, "goals": [{**goal("bytes", 0, None, True), "value": spread(0)}]}
        self.assertIn("| ≤ 0 B | 0 B | 0 B..0 B |", model_table.goals(document))


class Rows(unittest.TestCase):
    def test_times_of_ours_and_of_every_form_that_ran(self):
        text = model_table.times(DOCUMENT)
        for line in (
                "| smollm2-135m 8128 | **Lacuna**, full*30 | 5 | 1626 | 4.00 | 0.25 | 2 |",
                "| smollm2-135m 8128 | **Lacuna**, window(1024)+sink(4)*30, int8 KV | 2.5 | 3251 | 2.00 | 0.25 "
                "| 2 |",
                "| smollm2-135m 8128 | llama.cpp, flash | 8.13 | 1000 | 50.00 | 3.50 | 2 |",
                "| smollm2-135m 8128 | OpenVINO GenAI, x | 16 | 508 | 50.00 | 3.50 | 1 |"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("failed", text)
        self.assertNotIn("gemma", text)

    def test_engines_with_formats_versions_and_settings(self):
        text = model_table.engines(DOCUMENT)
        self.assertIn("| Lacuna | w | a | k |\n", text)
        self.assertIn("| llama.cpp, flash | 7.1 | `flash_attn=True` | smollm2-135m 8128 |\n", text)
        self.assertIn("`batched=256, sparse.mode=TRISHAPE`", text)

    def test_parts_of_prompt_and_step_end_with_the_whole(self):
        lines = model_table.parts(DOCUMENT).splitlines()
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertEqual(len(lines), 2 + 4)
        names = [name.strip() for name in lines[0].split("|")]

        def cells(form, of):
            found = [line for line in lines if f"| {form} | {of} |" in line]
            self.assertEqual(len(found), 1)
            return dict(zip(names, (cell.strip() for cell in found[0].split("|"))))
        prompt = cells("full*30", "prompt, s")
        self.assertEqual((prompt["attention"], prompt["sampling"], prompt["**all**"]),
                         ("6.250", "–", "5.000"))
        step = cells("window(1024)+sink(4)*30, int8 KV", "a step, ms")
        self.assertEqual((step["attention"], step["sampling"], step["**all**"]),
                         ("2.500", "0.500", "5.680"))

    def test_the_four_quantities_show_where_prediction_and_measurement_part(self):
        text = model_table.quantities(DOCUMENT)
        for words in ("pairs executed, prompt | 900 | 1,000 | 1,003 | 3 |",
                      "bytes held after the last step | 4,900,000 | 5,000,000 | 5,000,000 | 0 |",
                      "bytes of K and V read, all steps | 600 | 700 | 640 | -60 |",
                      "hops from the first token to the last | 1 | 1 | – | – |",
                      "sink(4)*30, int8 KV | hops from the first token to the last | – | – | – | – |"):
            self.assertIn(words, text)


class SecondOpinion(unittest.TestCase):
    ONE = {"model": "m", "engine": "llama.cpp", "form": "the file, f16 keys", "positions": 200,
           "agreeing": 190, "agreement": 0.95, "met": False, "divergence": 0.00312,
           "largest_divergence": 0.25, "nll_off": -0.00071, "nll_off_error": 0.00042,
           "leads_where_off": {"p10": 0.01, "p50": 0.056, "p90": 0.175, "max": 1.207},
           "sure": {"least_lead": 0.125, "positions": 150, "agreeing": 148}}
    DOCUMENT = {"version": "7.1", "wanted": 0.98, "results": [
        ONE, {**ONE, "agreeing": 200, "agreement": 1.0, "met": True},
        {**ONE, "met": None, "leads_where_off": None, "sure": None}]}

    def test_an_agreement_that_is_missed_is_bold_and_says_from_what_lead_it_would_hold(self):
        lines = model_table.second_opinion(self.DOCUMENT).splitlines()
        self.assertIn("llama-cpp-python 7.1; wanted of it is the same likeliest token at 98 %", lines[0])
        self.assertEqual(lines[-3:], [
            "| m | llama.cpp, the file, f16 keys | **95.00 %** | 10 of 200 | 0.056, 0.17, 1.2 | 0.125 "
            "| 75.0 % | 3.1e-03 | 2.5e-01 | -0.071 % ± 0.04 |",
            "| m | llama.cpp, the file, f16 keys | 100.00 % | 0 of 200 | 0.056, 0.17, 1.2 | – | – "
            "| 3.1e-03 | 2.5e-01 | -0.071 % ± 0.04 |",
            "| m | llama.cpp, the file, f16 keys | 95.00 % | 10 of 200 | – | – | – | 3.1e-03 "
            "| 2.5e-01 | -0.071 % ± 0.04 |"])


class Stored(unittest.TestCase):
    def test_names_belong_to_one_table(self):
        self.assertFalse(set(model_table.TABLES) & {*speed_table.TABLES, *speed_table.DECODE_TABLES})

    def test_a_stored_comparison_fits_every_table(self):
        if not (speed_table.MODEL_PEERS.exists() and speed_table.OPINION.exists()):
            self.skipTest("no comparison is stored")
        for name in model_table.TABLES:
            self.assertIn("| --- |", speed_table.table(name))


if __name__ == "__main__":
    unittest.main()
