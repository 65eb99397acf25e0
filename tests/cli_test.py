"""The command line from outside: known numbers, errors, help, and streams that end.

    cli_test.py PROGRAM
"""

import json
import os
import re
import shlex
import signal
import subprocess
import unittest
import xml.etree.ElementTree

import program
from program import (FOLDER, MODELS, cached_gemma, document, main, number, run, start, text)

MIB, GIB = 2**20, 2**30


def phase(found, name="prefill"):
    return found["phases"][name]


def held(model, prompt, policy, *flags):
    """KV bytes that a policy holds for a prefilled prompt."""
    found = document("cost", *model, "--prompt", prompt, "--policy", policy, *flags)
    name = policy.split("(")[0]
    return number(phase(found)["policies"][name]["kv_held_bytes"])


def total(model, prompt, key, *flags):
    return number(phase(document("cost", *model, "--prompt", prompt, *flags))["total"][key])


def model(name, **changes):
    return ["--model", FOLDER.model(name, **changes)]


class NumbersOfEngines(unittest.TestCase):
    """What logs of real engines and public issues say; model-configs.md names the sources."""

    def test_gemma_3_4b_in_llama_cpp(self):
        gemma = model("Gemma-3-4b")
        self.assertEqual(held(gemma, 131072, "iswa(ubatch=512)", "--kv-dtype", "f16"),
                         (2560 + 174) * MIB)
        sizes = ["--num-q-heads", 8, "--num-kv-heads", 4, "--head-dim", 256]
        for table, layers, mib in [("full", 5, 2560), ("window(1024)", 29, 174)]:
            alone = ["--attend", table, "--num-layers", layers, *sizes]
            self.assertEqual(held(alone, 131072, "iswa", "--kv-dtype", "f16"), mib * MIB)

    def test_gemma_3_270m_slots_in_llama_cpp(self):
        for slots, mib in [(3, 27), (4, 18)]:
            policy = f"iswa(seqs={slots}, unified=false)"
            self.assertEqual(held(model("Gemma-3-270m"), 1024, policy, "--kv-dtype", "f16"),
                             mib * MIB)

    def test_gpt_oss_with_windows_off(self):
        small = model("gpt-oss-20b")
        layers = MODELS["gpt-oss-20b"]["config"]["layer_types"]
        large = model("gpt-oss-20b", num_hidden_layers=36, layer_types=layers + layers[:12])
        self.assertEqual(total(small, 1, "kv_bytes_per_token"), 49152)
        self.assertEqual(total(large, 1, "kv_bytes_per_token"), 73728)
        for gpt, slope in [(small, 49152), (large, 73728)]:
            self.assertEqual(held(gpt, 5000, "full") - held(gpt, 4999, "full"), slope)
        self.assertAlmostEqual(held(large, 78384, "full") / GIB, 5.38, places=2)

    def test_gemma_4_31b_without_the_hybrid_manager(self):
        gemma = model("Gemma-4-31B")
        self.assertEqual(held(gemma, 26800, "uniform"), 26800 * 983040)
        self.assertAlmostEqual(held(gemma, 26800, "uniform") / GIB, 24.54, places=2)

    def test_gemma_3_27b_ideal_and_in_llama_cpp(self):
        gemma = model("Gemma-3-27b")
        self.assertAlmostEqual(total(gemma, 131072, "kv_held_bytes") / GIB, 10.41, places=2)
        self.assertAlmostEqual(held(gemma, 131072, "exact") / GIB, 10.41, places=2)
        self.assertAlmostEqual(held(gemma, 131072, "iswa") / GIB, 10.61, places=2)

    def test_qwen(self):
        small = total(model("Qwen3-0.6B"), 40960, "kv_held_bytes")
        self.assertEqual(small, 40960 * 114688)
        self.assertEqual(round(small / GIB + 1e-9, 2), 4.38)
        self.assertEqual(total(model("Qwen3.5-27B"), 262144, "kv_held_bytes"), 16 * GIB)

    def test_windowed_pairs(self):
        windowed = total(["--attend", "window(1024)"], 32768, "edges")
        full = total(["--attend", "full"], 32768, "edges")
        self.assertEqual((windowed, full), (33_030_656, 536_887_296))
        self.assertAlmostEqual(full / windowed, 16.25, places=2)

    def test_llama_2_7b_utilisation(self):
        sizes = ["--attend", "full", "--num-layers", 32, "--num-q-heads", 32, "--num-kv-heads", 32,
                 "--head-dim", 128, "--phase", "train", "--batch", 4]
        for length, full_tera, halved_tera in [(8192, 422.21, 211.11), (129024, 104735, 52367)]:
            for flags, tera in [(["--bidirectional"], full_tera), ([], halved_tera)]:
                found = document("cost", *sizes, *flags, "--prompt", length)
                flops = number(phase(found, "train")["total"]["pair_flops"]) / 1e12
                # Half of the square leaves out half of the diagonal.
                self.assertAlmostEqual(flops / tera, 1, delta=1 / length + 1e-4)

    def test_pool_worked_example(self):
        gemma = model("Gemma-3-27b")
        self.assertEqual(held(gemma, 131072, "pool(P=16, batched=8192)"), 15_275_130_880)
        self.assertEqual(held(gemma, 131072, "pool"), 15_275_130_880)

    def test_derived_numbers_of_the_57_configs(self):
        for name, entry in MODELS.items():
            derived = entry.get("derived", {})
            for length, ideal in derived.get("ideal_kv_bytes_bf16", {}).items():
                with self.subTest(name, length=length):
                    self.assertEqual(total(model(name), length, "kv_held_bytes"), ideal)
            wanted = derived.get("kv_bytes_per_token_bf16_all_layers")
            if wanted is not None:
                with self.subTest(name):
                    self.assertEqual(total(model(name), 10, "kv_bytes_per_token"), wanted)


class CostModelBugsOfOthers(unittest.TestCase):
    """O-61 to O-64."""

    def test_head_dim_is_read_and_not_derived(self):
        twelve = {"text_config": {**MODELS["Gemma-3-4b-multimodal"]["config"]["text_config"],
                                  "hidden_size": 3840, "num_hidden_layers": 48,
                                  "num_attention_heads": 16, "num_key_value_heads": 8}}
        mistral = {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "head_dim": 128, "sliding_window": None}
        for gpt, layers, heads, width in [
                (model("gpt-oss-20b"), 24, 8, 64), (model("Gemma-3-1b"), 26, 1, 256),
                (model("Gemma-3-4b-multimodal", **twelve), 48, 8, 256),
                (model("Mistral-7B-v0.3", **mistral), 40, 8, 128)]:
            self.assertEqual(total(gpt, 1, "kv_bytes_per_token"), 2 * layers * heads * width * 2)

    def test_kv_heads_and_not_query_heads(self):
        self.assertEqual(total(model("Llama-3.1-8B"), 1, "kv_bytes_per_token"), 2 * 32 * 8 * 128 * 2)

    def test_full_and_window_layers_say_which(self):
        gpt = model("gpt-oss-20b")
        self.assertEqual(held(gpt, 8192, "full", "--batch", 32), 12 * GIB)
        ideal = total(gpt, 8192, "kv_held_bytes", "--batch", 32)
        self.assertAlmostEqual(ideal / GIB, 6.09, places=2)
        gemma = model("Gemma-3-1b")
        self.assertEqual(held(gemma, 32768, "full", "--kv-dtype", "f16"), 832 * MIB)
        self.assertEqual(total(gemma, 32768, "kv_held_bytes", "--kv-dtype", "f16"), 139 * MIB)

    def test_a_latent_is_one_vector_with_its_rope_part(self):
        for name in ["DeepSeek-V3", "DeepSeek-V3.2", "Kimi-K2-Instruct"]:
            found = phase(document("cost", *model(name), "--prompt", 100))
            for layer in found["layers"]:
                self.assertEqual(layer["kv_bytes_per_token"], (512 + 64) * 2)
            indexed = 132 * 61 * 100 if name == "DeepSeek-V3.2" else 0
            self.assertEqual(found["total"]["index_held_bytes"], indexed)


@unittest.skipUnless(cached_gemma(), "the model is not in the cache; ./dev model fetches it")
class GemmaFile(unittest.TestCase):
    def test_layers_of_the_gguf(self):
        found = document("cost", "--model", cached_gemma(), "--prompt", 32512, "--generate", 256)
        self.assertEqual(found["model"]["num_layers"], 18)
        layers = phase(found)["layers"]
        self.assertEqual([row["layer"] for row in layers if row["attend"] == "full"], [5, 11, 17])
        self.assertEqual({row["attend"] for row in layers}, {"full", "window(512)"})
        self.assertEqual({row["kv_bytes_per_token"] for row in layers}, {2 * 256 * 2})
        self.assertEqual(found["model"]["context_length"], 32768)
        self.assertEqual((found["hops"], found["first_layer"]), (1, 5))
        self.assertEqual(found["warnings"], [])

    def test_the_gguf_equals_the_config(self):
        work = ["--prompt", 9000, "--generate", 5]
        gguf = document("cost", "--model", cached_gemma(), *work)
        config = document("cost", *model("Gemma-3-270m"), *work)
        for name in ["prefill", "decode"]:
            for key, value in phase(config, name)["total"].items():
                if value is not None:
                    self.assertEqual(phase(gguf, name)["total"][key], value, key)

    def test_past_the_context_there_is_a_warning(self):
        flags = ["--model", cached_gemma(), "--prompt", 32512, "--generate", 257]
        self.assertEqual(len(document("cost", *flags)["warnings"]), 1)
        self.assertRegex(text("cost", *flags), r"warning: .*32769.*32768")


class Warnings(unittest.TestCase):
    def test_past_the_context_and_a_replaced_table(self):
        gemma = model("Gemma-3-1b")
        self.assertEqual(document("cost", *gemma, "--prompt", 32768)["warnings"], [])
        self.assertRegex(document("cost", *gemma, "--prompt", 32769)["warnings"][0], "32768")
        replaced = document("cost", *gemma, "--prompt", 10, "--attend", "full")
        self.assertIn("not trained", replaced["warnings"][0])
        self.assertIn("warning: ", text("cost", *gemma, "--prompt", 10, "--attend", "full"))


class Errors(unittest.TestCase):
    """Exit code 2 and one line: what, the value, what was allowed, a near miss."""

    def refused(self, *args, says=(), allowed=True, **options):
        with self.subTest(args):
            result = run(*args, **options)
            program.assert_refused(self, result, [*says, *(["allowed"] if allowed else [])])
            self.assertTrue(result.stderr[:-1].isprintable(), repr(result.stderr))

    def test_flags_and_verbs(self):
        cost = ["cost", "--attend", "full", "--prompt", "8"]
        self.refused(*cost, "--evidenc", "3", says=["--evidenc", "did you mean '--evidence'"])
        self.refused(*cost, "--kv-dtpye=bf16", says=["--kv-dtpye", "did you mean '--kv-dtype'"])
        self.refused("cst", says=["'cst'", "did you mean 'cost'"])
        for verb, flag, meant in [("show", "--lenght", "--length"),
                                  ("capacity", "--memory-budge", "--memory-budget")]:
            self.refused(verb, "--attend", "full", flag, "8", says=[f"did you mean '{meant}'"])
        self.refused(*cost, "stray", says=["stray"])
        self.refused("--jsno", says=["--jsno"], allowed=True)
        self.refused(says=["cost", "show", "capacity", "bench"], allowed=False)
        self.refused(*cost, "--policy", says=["--policy"], allowed=False)
        self.refused(*cost, "--prompt", "9", says=["--prompt"], allowed=False)

    def test_numbers(self):
        for flag in ["--prompt", "--generate", "--batch", "--chunk", "--verify-rows", "--evidence",
                     "--query", "--page-size", "--threads", "--num-layers", "--num-q-heads",
                     "--num-kv-heads", "--head-dim", "--hidden-size", "--intermediate-size",
                     "--vocab-size"]:
            for value in ["-1", "1e3", "99999999999999999999", "", "nan", "0x10", "1.5", " 4",
                          "4 ", "+4", "1_000", "18446744073709551617", "ten"]:
                args = ["--attend", "full", f"{flag}={value}"]
                args += [] if flag == "--prompt" else ["--prompt", "8"]
                self.refused("cost", *args, says=[flag, f"'{value}'" if value else flag])

    def test_choices(self):
        cost = ["cost", "--attend", "full", "--prompt", "8"]
        self.refused(*cost, "--phase", "decoed",
                     says=["--phase", "decoed", "train", "prefill", "did you mean 'decode'"])
        self.refused(*cost, "--mlp", "gate", says=["--mlp", "gate", "did you mean 'gated'"])
        self.refused(*cost, "--kv-dtype", "bf15", says=["bf15", "did you mean 'bf16'"])
        self.refused(*cost, "--policy", "pagd", says=["pagd", "did you mean 'paged'"])
        self.refused(*cost, "--policy", "paged(Q=3)", says=["paged", "Q", "in_flight"])
        self.refused(*cost, "--policy", "paged(P=0)", says=["P of policy paged", "'0'"])
        self.refused(*cost, "--policy", "paged(P=3", says=["paged(P=3"])
        self.refused(*cost, "--policy", "full(P=3)", says=["full"])
        self.refused(*cost, "--policy", "", says=["policy"])
        # In JSON a policy's key is its name: there is no room for two.
        self.refused(*cost, "--policy", "pool(P=16)", "--policy", "pool(P=32)", says=["pool"],
                     allowed=False)
        self.refused(*cost, "--hardware", "h100-sxn", says=["h100-sxn", "did you mean 'h100-sxm'"])
        for tile in ["64", "64,", ",64", "0,64", "64,-1", "a,b", "64,64,64", "1e2,64"]:
            self.refused(*cost, "--tile", tile, says=["--tile"])
        for flag in ["--attend", "--model", "--layers", "--lengths", "--tile", "--hardware"]:
            args = [arg for arg in cost if flag != "--attend" or arg not in cost[1:3]]
            self.refused(*args, f"{flag}=", says=[flag])

    def test_expressions_name_the_column(self):
        for attend, says in [("windw(8)", ["'windw'", "did you mean 'window'", "column 1"]),
                             ("full, window(0)", ["column 14"]), ("window(8", ["column 9"]),
                             ("full*0", ["column 6"]), ("full; lst: full", ["column 7"]),
                             ("heads(0: full)", ["heads"]), ("sink(8)+", ["column 9"]),
                             ("edges(nowhere.txt)", ["nowhere.txt"])]:
            allowed = "nowhere" not in attend and "heads" not in attend
            self.refused("cost", "--attend", attend, "--num-q-heads", "2", "--prompt", "8",
                         says=says, allowed=allowed)

    def test_what_excludes_each_other(self):
        table = FOLDER.write("layers.txt", "full")
        lengths = FOLDER.write("two.txt", "3 4")
        gemma = model("Gemma-3-1b")
        self.refused("cost", "--attend", "full", "--layers", table, "--prompt", "8",
                     says=["--attend", "--layers"])
        self.refused("cost", "--attend", "full", "--lengths", lengths, "--prompt", "8",
                     says=["--lengths", "--prompt"])
        self.refused("cost", "--attend", "full", "--lengths", lengths, "--batch", "2",
                     says=["--lengths", "--batch"])
        self.refused("cost", *gemma, "--head-dim", "64", "--prompt", "8", says=["--head-dim"])
        self.refused("cost", *gemma, "--bidirectional", "--prompt", "8", says=["--bidirectional"])
        self.refused("cost", "--attend", "full", "--assume", "a=1", "--prompt", "8",
                     says=["--assume"], allowed=False)
        self.refused("cost", "--prompt", "8", says=["--model", "--attend", "--layers"])

    def test_directions(self):
        encoder = ["--bidirectional", "--prompt", "8"]
        self.refused("cost", "--attend", "full", *encoder, "--phase", "decode",
                     says=["bidirectional", "decode"])
        self.refused("cost", "--attend", "full", *encoder, "--generate", "4",
                     says=["bidirectional"])
        self.refused("cost", "--attend", "window(4)", *encoder, says=["window(l,r)", "column"],
                     allowed=False)
        self.refused("cost", "--attend", "window(4,4)", "--prompt", "8", says=["column"],
                     allowed=False)
        self.refused("cost", "--attend", "topk(4)", *encoder, says=["topk"], allowed=False)

    def test_what_is_missing(self):
        self.refused("cost", "--attend", "full", says=["--prompt", "--lengths"])
        self.refused("show", "--attend", "full", says=["--length"])
        self.refused("capacity", "--attend", "full", says=["--memory-budget"])
        self.refused("cost", "--attend", "full", "--prompt", "0", "--phase", "decode", says=["0"],
                     allowed=False)
        self.refused("capacity", "--attend", "full", "--memory-budget", "1GiB", "--prompt", "10",
                     "--ttft", "1", says=["--hardware"], allowed=False)

    def test_heads(self):
        self.refused("cost", "--attend", "full", "--num-q-heads", "8", "--num-kv-heads", "3",
                     "--prompt", "8", says=["8", "3"])
        self.refused("cost", "--attend", "full", "--num-kv-heads", "3", "--prompt", "8", says=["3"])

    def test_positions(self):
        cost = ["cost", "--attend", "full", "--prompt", "8"]
        self.refused(*cost, "--evidence", "8", says=["evidence", "8", "7"])
        self.refused(*cost, "--query", "8", says=["query", "8", "7"])
        self.refused("show", "--attend", "full", "--length", "8", "--query", "9", says=["9", "7"])
        self.refused("show", "--attend", "full", "--length", "8", "--layer", "1", says=["--layer"])

    def test_budgets(self):
        for value in ["48", "48gib", "GiB", "-1GiB", "1e3GiB", "nanGiB", "infGiB", "99999999TiB",
                      "", "4 8GiB", "0x1GiB"]:
            self.refused("capacity", "--attend", "full", f"--memory-budget={value}",
                         says=["--memory-budget"])
        capacity = ["capacity", "--attend", "full", "--memory-budget", "1GiB", "--prompt", "10"]
        times = ["--hardware", "h100-sxm"]
        for flag in ["--ttft", "--tpot"]:
            for value in ["0", "-1", "nan", "inf", "1s", "1e-3"]:
                self.refused(*capacity, *times, f"{flag}={value}", says=[flag, f"'{value}'"])
        self.refused(*capacity, "--margin", "1", says=["--margin", "'1'"])
        self.refused(*capacity, "--requests", "0", says=["--requests", "'0'"])

    def test_files_that_are_not_there_or_hold_nothing(self):
        empty = FOLDER.write("empty.txt", "")
        blank = FOLDER.write("blank.txt", " \n,\n")
        folder = FOLDER.path / "empty-folder"
        folder.mkdir(exist_ok=True)
        for flag in ["--model", "--layers", "--lengths", "--hardware"]:
            rest = [] if flag in ("--model", "--layers") else ["--attend", "full"]
            rest += [] if flag == "--lengths" else ["--prompt", "8"]
            for value in [FOLDER.path / "none.json", folder, "/dev/null/x", "a\nb", "\x1b[31m"]:
                self.refused("cost", *rest, flag, value, allowed=False)
        for file in [empty, blank]:
            self.refused("cost", "--attend", "full", "--lengths", file, says=[str(file)])
        for words in ["3 x", "3 -1", "1e3", "3;4", "99999999999999999999", "3 \x00", "{}"]:
            file = FOLDER.write("bad.txt", words)
            self.refused("cost", "--attend", "full", "--lengths", file, says=["length", "bad.txt"])
        self.refused("cost", "--layers", empty, "--prompt", "8", allowed=False)

    def test_junk_as_a_model(self):
        junk = bytes(range(256)) * 16
        for name, content in [("junk.gguf", junk), ("junk.json", junk), ("junk", junk),
                              ("cut.gguf", b"GGUF\x03\x00\x00\x00"), ("empty.json", b""),
                              ("list.json", b"[]"), ("deep.json", b"[" * 100000),
                              ("object.json", b"{}"), ("old.gguf", b"GGML" + junk),
                              ("huge.gguf", b"GGUF\x03\0\0\0" + b"\xff" * 16)]:
            file = FOLDER.write(name, content)
            self.refused("cost", "--model", file, "--prompt", "8", says=[name], allowed=False)
        for content in [b"{", b"{}", junk, b'{"format": "lacuna-layer-table"}']:
            file = FOLDER.write("layers.json", content)
            self.refused("cost", "--layers", file, "--prompt", "8", allowed=False)
        for content in [b"{", b"{}", junk, b'{"format": "lacuna-device", "format_version": 1}']:
            file = FOLDER.write("bad-device.json", content)
            self.refused("cost", "--attend", "full", "--prompt", "8", "--hardware", file,
                         says=["bad-device.json"], allowed=False)

    def test_assumptions(self):
        llama = model("Llama-3.1-8B")
        self.refused("cost", *llama, "--prompt", "8", "--assume", "head_dim",
                     says=["--assume", "KEY=VALUE"])
        self.refused("cost", *llama, "--prompt", "8", "--assume", "=3", says=["--assume"])
        self.refused("cost", *llama, "--prompt", "8", "--assume", "hed_dim=128", says=["hed_dim"],
                     allowed=False)
        self.assertEqual(total(llama, 1, "kv_bytes_per_token", "--assume", "head_dim=64"),
                         2 * 32 * 8 * 64 * 2)

    def test_files_that_cannot_be_written(self):
        self.refused("show", "--attend", "full", "--length", "8", "--svg", FOLDER.path / "no/x.svg",
                     says=["x.svg"], allowed=False)
        self.refused("show", "--attend", "full", "--length", "0", "--svg", FOLDER.path / "x.svg",
                     says=["--svg"], allowed=False)

    def test_lengths_that_cannot_be_counted(self):
        for attend in ["random(5,1)", "random_blocks(2,64,1)"]:
            self.refused("cost", "--attend", attend, "--prompt", 2**40, allowed=False, seconds=30)


class Help(unittest.TestCase):
    VERBS = ("show", "cost", "capacity", "explain")

    def test_lists_the_verbs(self):
        for flag in ["--help", "-h"]:
            for verb in [*self.VERBS, "bench"]:
                self.assertIn(verb, text(flag))
        self.assertRegex(text("--version"), r"\Alacuna \d+\.\d+\.\d+\n\Z")

    def test_every_verb_has_examples_and_every_example_runs(self):
        FOLDER.write("config.json", MODELS["Gemma-3-270m"]["config"])
        FOLDER.write("lengths.txt", "1000 30000 512")
        FOLDER.write("gemma-3-270m/config.json", MODELS["Gemma-3-270m"]["config"])
        FOLDER.write("server.log", "llama_context: n_ctx = 32768\nllama_context: n_ubatch = 512\n"
                     "llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells\n"
                     "llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells\n")
        FOLDER.write("vllm.log", "GPU KV cache size: 3,200 tokens\n")
        for verb in self.VERBS:
            words = text(verb, "--help")
            self.assertIn("Examples:", words)
            examples = re.sub(r"\\\n\s*", " ", words[words.index("Examples:"):])
            lines = [line.strip() for line in examples.splitlines() if " lacuna " in line]
            self.assertGreaterEqual(len(lines), 2, verb)
            for line in lines:
                with self.subTest(line):
                    args = shlex.split(line)
                    self.assertEqual(args[:2], ["lacuna", verb])
                    gguf = cached_gemma() or FOLDER.path / "config.json"
                    args = [str(gguf) if arg.endswith(".gguf") else arg for arg in args[1:]]
                    self.assertTrue(text(*args, cwd=FOLDER.path))


class Streams(unittest.TestCase):
    LONG = ["cost", "--attend", "full", "--num-layers", "2000", "--prompt", "8", "--json"]

    def test_a_closed_pipe_is_no_crash(self):
        child = start(*self.LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child.stdout.read(10)
        child.stdout.close()
        words = child.stderr.read().decode()
        child.stderr.close()
        self.assertIn(child.wait(60), (0, 2, -signal.SIGPIPE))
        self.assertLessEqual(words.count("\n"), 1, words)
        self.assertNotIn("terminate", words)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            child = start(*self.LONG, stdout=full, stderr=subprocess.PIPE)
            words = child.communicate(timeout=60)[1].decode()
        self.assertEqual(child.returncode, 2)
        self.assertRegex(words, r"\Alacuna: [^\n]+\n\Z")

    def test_the_locale_changes_nothing(self):
        args = ["cost", "--attend", "full", "--prompt", "123456"]
        plain = text(*args)
        child = start(*args, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "de_DE.UTF-8"})
        self.assertEqual(child.communicate(timeout=60)[0].decode(), plain)

    def test_the_same_call_prints_the_same(self):
        args = ["cost", "--attend", "random(3,5)+window(4)", "--num-layers", "4", "--prompt", "500",
                "--json"]
        self.assertEqual(text(*args), text(*args))


class Sizes(unittest.TestCase):
    """Huge values answer, and exactly; nothing here is a test of speed but hanging fails."""

    def test_two_to_the_forty(self):
        n = 2**40
        self.assertEqual(total(["--attend", "full"], n, "edges"), n * (n + 1) // 2)
        w = 4096
        windowed = w * (w + 1) // 2 + (n - w) * w
        self.assertEqual(total(["--attend", f"window({w})"], n, "edges"), windowed)
        found = document("cost", "--attend", "window(4096)+sink(4)*5, full", "--num-layers", 64,
                         "--num-q-heads", 32, "--num-kv-heads", 16, "--head-dim", 128,
                         "--hidden-size", 5376, "--intermediate-size", 21504, "--prompt", n,
                         "--generate", n, "--explain")
        self.assertIsInstance(phase(found)["total"]["pair_flops"], str)
        document("show", "--attend", "window(4096)*3, full", "--num-layers", 8, "--length", n)
        document("capacity", "--attend", "window(4096)*3, full", "--num-layers", 8,
                 "--memory-budget", "1000TiB", "--requests", 1000, "--prompt", n)

    def test_many_layers_heads_and_sequences(self):
        # Checked against no schema: documents of 10 to 60 MB.
        for flags in [["--num-layers", 65536], ["--batch", 2**20]]:
            found = json.loads(text("cost", "--attend", "window(8)", "--prompt", 100, "--json", *flags))
            self.assertEqual(phase(found)["total"]["edges"], flags[1] * (36 + 92 * 8))
        document("cost", "--attend", "heads(0-65534: full; 65535: window(4))", "--num-q-heads",
                 65536, "--num-kv-heads", 1, "--prompt", 10)

    def test_memory_does_not_grow_with_the_length(self):
        program = start("--version", stdout=subprocess.DEVNULL)
        program.wait(60)
        with open(program.args[0], "rb") as file:
            if b"__asan_init" in file.read():
                self.skipTest("sanitizers keep shadow memory")
        limited = ["sh", "-c", 'ulimit -v 65536 && exec "$@"', "sh", program.args[0]]  # KiB
        for flags in [["--prompt", "131072"], ["--prompt", "1000000000", "--generate", "1000"]]:
            result = subprocess.run([*limited, "cost", "--attend", "window(1024)*5, full",
                                     "--num-layers", "64", *flags], capture_output=True, timeout=60,
                                    check=False)
            self.assertEqual((result.returncode, result.stderr), (0, b""))


class Pictures(unittest.TestCase):
    def test_svg_is_well_formed(self):
        file = FOLDER.path / "mask.svg"
        for attend, length in [("window(64)+global(every=256)", 2048), ("full", 1),
                               ("heads(0: full; 1: window(3))", 300), ("edges(\"a&<.txt\")", 9)]:
            FOLDER.write("a&<.txt", "3 1\n")
            with self.subTest(attend):
                words = text("show", "--attend", attend, "--num-q-heads", 2, "--length", length,
                             "--svg", file, cwd=FOLDER.path)
                self.assertTrue(words)
                root = xml.etree.ElementTree.parse(file).getroot()
                self.assertTrue(root.tag.endswith("svg"))
                self.assertGreater(len(list(root.iter())), 3)


if __name__ == "__main__":
    main()
