"""Every JSON document of the program against the schemas of docs/schema.

    schema_test.py PROGRAM
"""

import itertools
import json
import re
import subprocess
import sys
import unittest

import jsonschema

from program import (DECODERS, ENCODERS, FOLDER, MODELS, REFUSED, ROOT, SCHEMAS, check, document,
                     main, run)

ATTENDS = [
    "full", "window(7)", "window(64)+sink(4)", "dilated(8,3)", "global(first=2)+window(16)",
    "global(every=32,offset=3)+window(8)", "global(3,40)+window(5)", "chunk(50)", "strided(16)",
    "fixed(32,4)", "window_blocks(2,0,16)", "vertical_blocks(16,2,4,head)", "topk(32)",
    "topk_blocks(4,16,1,1)", "random(5,11)", "random_blocks(2,16,3)",
    "heads(0-3: full; 4-7: window(32)+sink(2))", "window(64)*5, full",
    "window(16); layers 0,3-4: chunk(8); last: full",
]
ENCODER_ATTENDS = ["full", "window(8,4)", "chunk(32)", "global(first=1)+window(2,2)",
                   "window_blocks(1,1,16)+random_blocks(3,16,5,outside=window)", "sink(3)",
                   "dilated(4,2)"]
SIZES = ["--num-layers", "6", "--num-q-heads", "8", "--num-kv-heads", "4", "--head-dim", "32"]
MORE_SIZES = ["--hidden-size", "256", "--intermediate-size", "1024", "--vocab-size", "1000"]
WORK = ["--prompt", "200", "--generate", "20"]


def devices():
    """Names of the table, as the program lists them for a name that it does not know."""
    words = run("cost", "--attend", "full", "--prompt", "1", "--hardware", "none-such").stderr
    return re.search(r"allowed: ([^;\n]+)", words)[1].split(", ")


class Schemas(unittest.TestCase):
    def test_are_schemas(self):
        for name, schema in SCHEMAS.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertEqual(schema["$id"], name)

    def test_are_strict_and_describe_every_key_in_one_sentence(self):
        for name, schema in SCHEMAS.items():
            for place, node in self.objects(schema, name):
                closed = [node.get("additionalProperties"), node.get("unevaluatedProperties")]
                if "figures" not in place:  # whoever uses the figures closes them
                    self.assertTrue(closed != [None, None] or "$ref" in node, place)
                for key, child in node["properties"].items():
                    words = child.get("description", "")
                    self.assertRegex(words, r"^([A-Z]|vLLM|llama)[^\n]*\.$", f"{place}.{key}")
                    self.assertNotIn(". ", words, f"{place}.{key}")
                    self.assertTrue(self.has_unit(child), f"{place}.{key} has no unit")

    def objects(self, node, place):
        if isinstance(node, dict):
            if "properties" in node and not place.endswith("properties"):
                yield place, node
            for key, child in node.items():
                yield from self.objects(child, f"{place}.{key}")
        elif isinstance(node, list):
            for idx, child in enumerate(node):
                yield from self.objects(child, f"{place}[{idx}]")

    def has_unit(self, node):
        kinds = node.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        counts = node.get("$ref", "").startswith("#/$defs/count")
        return "unit" in node or not (counts or "integer" in kinds or "number" in kinds)

    def test_refuse_what_is_not_described(self):
        good = document("cost", "--attend", "full", "--prompt", "4")
        for change in [lambda d: d.update(extra=1), lambda d: d.pop("hops"),
                       lambda d: d["phases"]["prefill"]["total"].update(pair_flop=1),
                       lambda d: d["phases"]["prefill"]["total"].pop("pairs"),
                       lambda d: d["phases"]["prefill"]["layers"][0].update(edges=-1),
                       lambda d: d["phases"]["prefill"]["layers"][0].update(edges=2**63),
                       lambda d: d["phases"]["prefill"]["layers"][0].update(edges="12"),
                       lambda d: d["phases"]["prefill"]["policies"]["paged"]["params"].pop("P"),
                       lambda d: d["phases"]["prefill"]["policies"]["full"]["params"].update(P=1),
                       lambda d: d["phases"].update(serve={})]:
            bad = json.loads(json.dumps(good))
            change(bad)
            with self.assertRaises(AssertionError):
                check(bad, "cost.schema.json", "changed")

    def test_docs_list_the_keys_that_the_schemas_have(self):
        result = subprocess.run([sys.executable, "-B", str(ROOT / "tools/json_docs.py"), "--check"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)


class RealModels(unittest.TestCase):
    def test_every_verb_prints_valid_documents(self):
        self.assertEqual(len(MODELS), 57)
        for name in DECODERS:
            with self.subTest(name):
                model = ["--model", FOLDER.model(name)]
                found = document("cost", *model, "--prompt", 4096, "--generate", 16)
                self.assertEqual(list(found["phases"]), ["prefill", "decode"])
                self.assertEqual(found["model"]["num_layers"],
                                 len(found["phases"]["prefill"]["layers"]))
                document("show", *model, "--length", 4096)
                document("capacity", *model, "--memory-budget", "48GiB", "--requests", 4,
                         "--prompt", 32768)

    def test_train_with_equations(self):
        for name in DECODERS:
            with self.subTest(name):
                document("cost", "--model", FOLDER.model(name), "--phase", "train", "--prompt",
                         1024, "--explain")

    def test_encoders_have_a_table_and_no_cache(self):
        for name in ENCODERS:
            with self.subTest(name):
                model = ["--model", FOLDER.model(name)]
                found = document("cost", *model, "--prompt", 4096)
                total = found["phases"]["prefill"]["total"]
                self.assertEqual(total["kv_held_bytes"], 0)
                self.assertGreater(total["pairs"], 0)
                self.assertFalse(found["model"]["causal"])
                document("show", *model, "--length", 1024)
                document("capacity", *model, "--memory-budget", "1GiB")

    def test_refused_models_name_the_key(self):
        for name, key in REFUSED.items():
            result = run("cost", "--model", FOLDER.model(name), "--prompt", 10)
            self.assertEqual(result.returncode, 2, name)
            self.assertIn(key, result.stderr)


class Calls(unittest.TestCase):
    def test_topologies_in_every_phase(self):
        for attend, sizes in itertools.product(ATTENDS, [SIZES, SIZES + MORE_SIZES]):
            with self.subTest(attend):
                table = ["--attend", attend, *sizes]
                document("cost", *table, *WORK, "--explain")
                document("cost", *table, "--phase", "train", "--prompt", 100, "--explain")
                document("show", *table, "--length", 200)
                document("show", *table, "--length", 16)

    def test_encoder_topologies(self):
        for attend in ENCODER_ATTENDS:
            with self.subTest(attend):
                table = ["--attend", attend, "--bidirectional", *SIZES]
                document("cost", *table, "--prompt", 200, "--explain")
                document("cost", *table, "--prompt", 200, "--phase", "train")
                document("show", *table, "--length", 100)
                document("capacity", *table, "--memory-budget", "1GiB", "--prompt", 100)

    def test_flags(self):
        lengths = FOLDER.write("lengths.txt", "100 7, 1\n300\n")
        for flags in [["--batch", 3], ["--chunk", 64], ["--verify-rows", 5], ["--tile", "16,128"],
                      ["--page-size", 16], ["--mac"], ["--evidence", 3, "--query", 150],
                      ["--evidence", 7, "--query", 7], ["--evidence", 9, "--query", 3],
                      ["--policy", "pool(P=32, batched=256)"], ["--mlp", "plain", "--intermediate-size", "64"],
                      ["--v-head-dim", 16], ["--phase", "decode"], ["--phase", "prefill"],
                      ["--policy", "iswa", "--policy", "rolling", "--policy", "exact"]]:
            with self.subTest(flags):
                document("cost", "--attend", "window(64)*2, full", *SIZES, *WORK, *flags)
        table = ["--attend", "window(64)+sink(1)", *SIZES]
        found = document("cost", *table, "--lengths", lengths, "--generate", 3)
        self.assertEqual(found["request"]["lengths_tokens"], [100, 7, 1, 300])
        self.assertIn("padding", found)
        document("capacity", *table, "--lengths", lengths, "--memory-budget", "1MiB")
        document("cost", *table, "--prompt", 0)
        document("show", *table, "--length", 0)

    def test_kv_dtypes(self):
        words = run("cost", "--attend", "full", "--prompt", "1", "--kv-dtype", "none").stderr
        names = re.search(r"allowed: ([^;\n]+)", words)[1].split(", ")
        self.assertGreaterEqual(len(names), 14)
        for name in set(names) - {"fp8_ds_mla"}:
            with self.subTest(name):
                document("cost", "--attend", "full", "--head-dim", 128, *WORK, "--kv-dtype", name)
        mla = FOLDER.model("DeepSeek-V3.2")
        document("cost", "--model", mla, *WORK, "--kv-dtype", "fp8_ds_mla")

    def test_devices(self):
        names = devices()
        self.assertGreaterEqual(len(names), 15)
        for name in names:
            with self.subTest(name):
                found = document("cost", "--attend", "full", *SIZES, *WORK, "--hardware", name)
                self.assertEqual(found["hardware"]["name"], name)
                # A device that a report shows is a device file.
                again = document("cost", "--attend", "full", *SIZES, *WORK, "--hardware",
                                 FOLDER.write("device.json", found["hardware"]))
                self.assertEqual(again["hardware"], found["hardware"])
                self.assertEqual(again["rooflines"], found["rooflines"])

    def test_capacity_with_times(self):
        document("capacity", "--attend", "window(64)*5, full", *SIZES, *MORE_SIZES, "--requests", 8,
                 "--memory-budget", "1GiB", "--prompt", 5000, "--ttft", "2", "--tpot", "0.03",
                 "--hardware", "h100-sxm", "--weight-bytes", "1GB", "--margin", "0.1")

    def test_a_shown_table_is_read_back(self):
        for name in ["Gemma-3-1b", "gpt-oss-20b", "Gemma-3n-E4B", "DeepSeek-V3.2", "MiniMax-M3",
                     "Qwen3-Next-80B-A3B", "Nemotron-3-Nano-30B-A3B", "Phi-3-small-8k-instruct"]:
            with self.subTest(name):
                model = ["--model", FOLDER.model(name)]
                table = document("show", *model, "--length", 64)["layer_table"]
                file = FOLDER.write("table.json", table)
                found = document("show", *model, "--length", 64, "--layers", file)
                self.assertEqual(found["layer_table"]["layers"], table["layers"])
                self.assertTrue(found["model"]["table_replaced"])
                self.assertEqual(found["layer_table"]["trained"], False)

    def test_names_that_are_no_utf8_do_not_break_the_document(self):
        path = FOLDER.path / "name\udcff.json"
        path.write_text(json.dumps(MODELS["Qwen2.5-0.5B"]["config"]), encoding="utf-8")
        document("cost", "--model", path, "--prompt", 10)


if __name__ == "__main__":
    main()
