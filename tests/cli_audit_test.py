"""`lacuna audit` from outside, on tiny models; a real one where it is in the cache.

    cli_audit_test.py PROGRAM
"""

import hashlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

from program import (FOLDER, ROOT, SECONDS, assert_refused, cached_gemma, check, document, main,
                     number, run, start)

GEMMA3 = ROOT / "tests/data/models/tiny-gemma3.gguf"  # 7 layers, each sixth of them full
QUICK = ["--model", GEMMA3, "--threads", 2, "--repetitions", 1, "--chunk", 16]
TINY = [*QUICK, "--page-size", 16]
LENGTHS = ["--prompt", 60, "--generate", 9]
SHORT = [*TINY, *LENGTHS]
KEY_BYTES = 128  # a token's keys and values of a layer: 2 heads of 16 in bf16
WINDOWS = "window(8)*5, full"
# The verdict that names each fault on purpose: where a figure is exact, and where none is.
EXACT = {"window-off-by-one": "pairs", "wrong-layer": "pairs", "masked-dense": "pairs",
         "keep-all": "state", "leak": "state", "count-twice": "pairs", "summaries": "state"}
OTHERS = {"local-rotary": "rotary", "one-thread": "threads", "hidden-time": "hidden_time"}


def audit(*args, code=0):
    """The document of a call, and what it says on the standard error stream."""
    result = run("audit", *args, "--json")
    if result.returncode != code:
        raise AssertionError(f"exit {result.returncode}: {args}: {result.stderr}")
    found = json.loads(result.stdout)
    check(found, "audit.schema.json", args)
    return found, result.stderr


def table_file(attend):
    shown = document("show", "--model", GEMMA3, "--attend", attend, "--length", 16)
    return FOLDER.write(f"{attend}.json", shown["layer_table"])


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bytes_of_blocks(attend, block):
    """Of keys and values on blocks that 8 steps after 60 tokens touch, of a layer."""
    blocks = 0
    for position in range(60, 68):
        first = 0 if attend == "full" else position - 7
        blocks += position // block - first // block + 1
    return blocks * block * KEY_BYTES


def failed(found, kind="exact"):
    return [verdict["name"] for verdict in found["verdicts"]
            if verdict["kind"] == kind and not verdict["holds"]]


class Documents(unittest.TestCase):
    def test_every_table_does_as_predicted(self):
        found, _ = audit(*SHORT, "--against", "full", "--against", "window(8)")
        self.assertEqual([table["table"] for table in found["tables"]],
                         [WINDOWS, "full", "window(8)"])
        self.assertEqual(failed(found), [])
        self.assertEqual(found["int8_kv"]["table"], WINDOWS)
        for table in found["tables"]:
            self.assertTrue(table["as_predicted"])
            self.assertEqual(table["live_bytes_by_step"], table["predicted_live_bytes_by_step"])
            self.assertEqual(len(table["live_bytes_by_step"]), 9)
            self.assertEqual(len(table["layers"]), 7)
            for layer in table["layers"]:
                self.assertEqual(layer["held_bytes_by_step"],
                                 layer["predicted_held_bytes_by_step"])
                self.assertEqual(layer["held_bytes_by_step"][-1], layer["held_bytes"])
            for key in ["executed_pairs", "held_bytes", "read_bytes"]:
                self.assertEqual(table[key], sum(layer[key] for layer in table["layers"]))
            (change,) = table["interventions"]
            self.assertFalse(change["early"])

    def test_what_is_read_stands_beside_the_pages_that_it_lies_on(self):
        for page in [16, 32, 64]:
            (table,) = audit(*QUICK, *LENGTHS, "--page-size", page)[0]["tables"]
            for layer in table["layers"]:
                self.assertEqual(layer["page_bytes"], bytes_of_blocks(layer["attend"], page))
                self.assertLessEqual(layer["read_bytes"], bytes_of_blocks(layer["attend"], 16))
            self.assertEqual(table["page_bytes"], sum(one["page_bytes"] for one in table["layers"]))

    def test_figures_are_those_that_cost_prints(self):
        for attend in ["full", "window(20)+sink(3)", WINDOWS]:
            found, _ = audit(*TINY, "--attend", attend, "--prompt", 48, "--generate", 5)
            table = found["tables"][0]
            asked = ["cost", "--model", GEMMA3, "--attend", attend]
            prefill = document(*asked, "--prompt", 48, "--phase", "prefill", "--tile", "16,16")
            pages = "paged(P=16,in_flight=0)"
            decode = document(*asked, "--prompt", 52, "--phase", "decode", "--policy", pages)
            layers = zip(table["layers"][:-1], prefill["phases"]["prefill"]["layers"])
            for layer, costed in layers:
                self.assertEqual(layer["executed_pairs"], number(costed["executed_pairs"]))
                self.assertEqual(layer["needed_pairs"], number(costed["pairs"]))
            last = table["layers"][-1]
            self.assertEqual([layer["prompt_rows"] for layer in table["layers"]], [48] * 6 + [1])
            keys = {"full": 48, "window(20)+sink(3)": 23, "window(8)": 8}[last["attend"]]
            self.assertEqual(last["needed_pairs"], keys * last["num_q_heads"])
            held = decode["phases"]["decode"]["policies"]["paged"]["kv_held_bytes"]
            self.assertEqual(table["held_bytes"], number(held))
            paths = document(*asked, "--prompt", 48, "--evidence", 23, "--query", 47)
            (change,) = table["interventions"]
            self.assertEqual((change["evidence"], change["query"]), (23, 47))
            for key in ["hops", "first_layer"]:
                self.assertEqual(change[key], paths[key])

    def test_model_and_text_are_named_with_their_hashes(self):
        found, _ = audit(*SHORT)
        self.assertEqual(found["model_file"], {"size_bytes": GEMMA3.stat().st_size,
                                               "sha256": sha256_of(GEMMA3)})
        (file,) = found["text"]["files"]
        self.assertEqual(file["sha256"], sha256_of(pathlib.Path(file["path"])))
        asked = ["dpkg-query", "-W", "-f", "${Package} ${Version}", "base-files"]
        known = shutil.which("dpkg-query") and subprocess.run(asked, text=True, check=True,
                                                              capture_output=True).stdout
        self.assertEqual(found["text"]["package"], known)
        self.assertFalse(found["text"]["repeated"])
        text = FOLDER.write("short.txt", "a few words")
        found, _ = audit(*SHORT, "--file", text)
        self.assertEqual(found["text"], {"source": str(text), "size_bytes": 11, "package": None,
                                         "files": [{"path": str(text), "size_bytes": 11,
                                                    "sha256": sha256_of(text)}],
                                         "repeated": True})

    def test_full_looks_at_every_border_and_all_positions(self):
        found, _ = audit(*SHORT, "--full", "--attend", "window(4)")
        (table,) = found["tables"]
        self.assertEqual(table["quality"]["positions"], 60)
        # 3 keys farther with each of 7 layers: what lies 22 back cannot change anything.
        layers = {59 - one["evidence"]: one["first_layer"] for one in table["interventions"]}
        self.assertEqual(layers[21], 6)
        self.assertIsNone(layers[22])
        for one in table["interventions"]:
            self.assertEqual(one["first_change_layer"], one["first_layer"])
            self.assertEqual(one["best_path_weight"] is None, one["hops"] is None)
            if one["hops"] is not None:
                self.assertGreaterEqual(one["best_path_hops"], one["hops"])

    def test_a_real_model_is_audited(self):
        path = cached_gemma()
        if path is None:
            self.skipTest("the model is not in the cache")
        found, _ = audit("--model", path, "--repetitions", 1, "--prompt", 256, "--generate", 4,
                         "--against", "window(64)")
        self.assertEqual(failed(found), [])
        self.assertEqual([table["as_predicted"] for table in found["tables"]], [True] * 2)


class Faults(unittest.TestCase):
    def test_a_claim_of_another_table_ends_with_1_and_names_the_figure(self):
        found, errors = audit(*SHORT, "--attend", "window(8)", "--claim", table_file("window(7)"),
                              code=1)
        self.assertEqual(found["tables"][0]["claim"], "window(7)")
        self.assertIn("pairs", failed(found))
        self.assertRegex(errors, r"lacuna: [^\n]*layer 0: needed_pairs is \d+, predicted \d+")

    def test_what_is_planted_is_named(self):
        words = run("audit", *SHORT, "--plant", "none-such").stderr
        names = re.search(r"allowed: ([^\n]+)", words)[1].split(", ")
        self.assertEqual(set(names), set(EXACT) | set(OTHERS))
        for name, verdict in [*EXACT.items(), *OTHERS.items()]:
            with self.subTest(name):
                found, errors = audit(*SHORT, "--plant", name, code=int(name in EXACT))
                self.assertEqual(found["request"]["planted"], name)
                causes = {one["name"]: one["cause"] for one in found["verdicts"]}
                self.assertEqual(causes[verdict], name)
                if name in EXACT:
                    self.assertRegex(errors, f"lacuna: {verdict}, ")

    def test_layers_of_a_real_model_that_rotate_alike_are_told(self):
        path = cached_gemma()
        if path is None:
            self.skipTest("the model is not in the cache")
        asked = ["--model", path, "--repetitions", 1, "--prompt", 1024, "--generate", 2]
        sound, _ = audit(*asked)
        self.assertEqual(failed(sound) + failed(sound, "quality"), [])
        faulty, _ = audit(*asked, "--plant", "local-rotary")
        self.assertEqual(failed(faulty) + failed(faulty, "quality"), ["rotary"])
        # What the fault costs is what the sound run foresaw, in the same numbers.
        self.assertTrue(sound["rotary"]["changes"])
        self.assertFalse(faulty["rotary"]["changes"])
        self.assertGreater(sound["rotary"]["as_first_layer_nll"], sound["rotary"]["nll"] + 0.02)
        self.assertEqual(faulty["rotary"]["nll"], sound["rotary"]["as_first_layer_nll"])

    def test_a_time_that_fails_ends_with_1_only_where_that_is_asked_for(self):
        found, _ = audit(*SHORT, "--plant", "hidden-time")
        self.assertEqual(failed(found), [])
        self.assertIn("hidden_time", failed(found, "time"))
        _, errors = audit(*SHORT, "--plant", "hidden-time", "--strict", code=1)
        self.assertIn("hidden_time", errors)


class Texts(unittest.TestCase):
    def test_predictions_stand_before_anything_else(self):
        result = run("audit", *SHORT, "--against", "full")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("predicted, before anything runs:\n"))
        for words in ["pairs, prompt", "bytes held at the end", "nats a token", "holds pairs"]:
            self.assertIn(words, result.stdout)
        self.assertLess(result.stdout.index("bytes of keys and values read in 8 steps"),
                        result.stdout.index("holds pairs"))


class Refusals(unittest.TestCase):
    def test_what_is_out_of_range_is_named(self):
        claim = FOLDER.write("other.json", {"format": "lacuna-layer-table", "format_version": 1})
        for more, says in [(["--prompt", 1], ["--prompt", "1"]),
                           (["--prompt", 125, "--generate", 4], ["125", "128"]),
                           (["--generate", 1], ["--generate"]),
                           (["--layers", ""], ["--layers", "empty"]),
                           (["--against", "windo(3)"], ["windo"]),
                           (["--plant", "nothing"], ["--plant", "nothing", "keep-all"]),
                           (["--prompt", 60, "--generate", 4, "--attend", "full", "--plant",
                             "wrong-layer"], ["wrong-layer", "full"]),
                           (["--plant", "wrong-layer", "--claim", table_file("full")],
                            ["wrong-layer", "--claim"]),
                           (["--claim", claim], ["causal"]),
                           (["--claim", "missing.json"], ["missing.json"]),
                           (["--prompt", 60, "--file", FOLDER.write("empty.txt", "")], ["empty.txt"]),
                           (["--file", "missing.txt"], ["missing.txt"]),
                           (["--attend", "full", "--layers", "x.json"], ["--layers"])]:
            with self.subTest(more):
                assert_refused(self, run("audit", *TINY, *more), says)


class Interrupts(unittest.TestCase):
    def test_ctrl_c_keeps_what_is_done(self):
        call = start("audit", "--model", str(GEMMA3), "--repetitions", "1000", "--prompt", "119",
                     "--generate", "8", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2):  # the stage, and after two seconds progress
            call.stderr.readline()
        call.send_signal(signal.SIGINT)
        out, _ = call.communicate(timeout=SECONDS)
        self.assertEqual(call.returncode, 0)
        found = json.loads(out)
        check(found, "audit.schema.json", "interrupted")
        self.assertTrue(found["interrupted"])
        self.assertGreaterEqual(len(found["tables"]), 1)


if __name__ == "__main__":
    main()
