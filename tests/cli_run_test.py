"""`lacuna run` from outside, on tiny models; on real ones where they are in the cache.

    cli_run_test.py PROGRAM
"""

import json
import os
import re
import signal
import struct
import subprocess
import unittest

import program
from program import FOLDER, ROOT, cached_gemma, cached_smollm2, check, document, main, run, start

TINY = ROOT / "tests/data/models"
MODELS = ["tiny-gemma2", "tiny-gemma3", "tiny-llama-5-on-1", "tiny-llama-6-on-3", "tiny-mistral"]
CONTEXT = 128  # of all of them


def tiny(name="tiny-mistral"):
    return ["--model", TINY / f"{name}.gguf", "--threads", 1]


def raw(*args, text=None):
    """Like program.run, with an input, and with the standard output in bytes."""
    call = start("run", *map(str, args), stdin=subprocess.PIPE if text is not None
                 else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = call.communicate(text, timeout=program.SECONDS)
    if call.returncode != 0:
        raise AssertionError(f"exit {call.returncode}: {args}: {err.decode(errors='replace')}")
    return out, err.decode("utf-8")


def without_pattern():
    """A tiny model whose file has a window and does not say which layers it is for."""
    content = (TINY / "tiny-mistral.gguf").read_bytes()
    key = b"llama.attention.sliding_window_pattern"
    assert content.count(key) == 1
    return FOLDER.write("no-pattern.gguf", content.replace(key, b"other" + key[5:]))


def long_model():
    """A tiny model whose file says a context that no test comes to the end of."""
    content = (TINY / "tiny-mistral.gguf").read_bytes()
    key = b"llama.context_length" + struct.pack("<II", 4, CONTEXT)
    assert content.count(key) == 1
    return FOLDER.write("long.gguf", content.replace(key, key[:-4] + struct.pack("<I", 1 << 24)))


class Figures(unittest.TestCase):
    def test_an_answer_of_one_token_has_no_time_of_later_ones(self):
        for more in [["--max-tokens", 1], ["--max-tokens", 5, "--stop", "e", "--stop", "a"]]:
            out, err = raw(*tiny("tiny-gemma3"), "--prompt", "a", "--ignore-end", *more)
            self.assertIn("first token", err)
            self.assertTrue(out.endswith(b"\n"))

    def test_an_input_that_cannot_be_read_is_no_empty_prompt(self):
        folder = os.open(TINY, os.O_RDONLY)
        call = start("run", *map(str, tiny()), "--file", "-", stdin=folder, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE)
        err = call.communicate(timeout=program.SECONDS)[1]
        os.close(folder)
        self.assertEqual(call.returncode, 2)
        self.assertIn(b"standard input", err)


class Documents(unittest.TestCase):
    def test_every_kind_of_model(self):
        for name in MODELS:
            found = document("run", *tiny(name), "--prompt", "hello, κόσμε", "--max-tokens", 9,
                             "--ignore-end")
            self.assertEqual(len(found["tokens"]), 9)
            self.assertEqual(len(found["step_seconds"]), 8)
            self.assertEqual(found["held_tokens"], found["prompt_tokens"] + 8)
            self.assertEqual(found["held_bytes"], found["predicted_held_bytes"])
            self.assertEqual((found["ended"], found["interrupted"]), ("max tokens", False))
            self.assertFalse(found["model"]["table_replaced"])
            self.assertEqual((found["products"], found["kv_dtype"]), ("int8", "bf16"))

    def test_held_bytes_are_those_that_cost_prints_for_paged(self):
        for attend, length in [("full", 40), ("window(8)", 40), ("window(20)+sink(3)", 90)]:
            found = document("run", *tiny(), "--prompt", "a" * (length - 2), "--max-tokens", 5,
                             "--ignore-end", "--attend", attend, "--page-size", 16)
            cost = document("cost", "--model", TINY / "tiny-mistral.gguf", "--attend", attend,
                            "--prompt", found["held_tokens"], "--kv-dtype", "bf16", "--phase",
                            "decode", "--policy", "paged(P=16,in_flight=0)")
            policies = cost["phases"]["decode"]["policies"]
            self.assertEqual(found["held_bytes"],
                             program.number(policies["paged"]["kv_held_bytes"]))

    def test_exact_answers_depend_on_no_chunk_page_or_thread(self):
        call = ["--prompt", "any text of some length", "--max-tokens", 20, "--ignore-end",
                "--exact", "--temperature", 3]
        seeded = [*call, "--seed", 5]
        wanted = document("run", *tiny(), *seeded)
        self.assertEqual((wanted["products"], wanted["kv_dtype"]), ("f32", "f32"))
        for more in [["--chunk", 1], ["--chunk", 5], ["--page-size", 16], ["--page-size", 128]]:
            self.assertEqual(document("run", *tiny(), *seeded, *more)["tokens"], wanted["tokens"])
        found = document("run", "--model", TINY / "tiny-mistral.gguf", "--threads", 3, *seeded)
        self.assertEqual(found["tokens"], wanted["tokens"])
        other = document("run", *tiny(), *call, "--seed", 6)
        self.assertNotEqual(other["tokens"], wanted["tokens"])

    def test_every_kv_dtype(self):
        for dtype in ["f32", "bf16", "f16", "int8"]:
            for exact in [[], ["--exact-kv"]] if dtype == "int8" else [[]]:
                found = document("run", *tiny("tiny-gemma2"), "--prompt", "text", "--max-tokens", 4,
                                 "--ignore-end", "--kv-dtype", dtype, *exact)
                self.assertEqual(found["kv_dtype"], dtype)
                self.assertEqual(found["held_bytes"], found["predicted_held_bytes"])

    def test_the_context_ends_an_answer_only_where_it_may(self):
        call = [*tiny(), "--prompt", "abc", "--ignore-end"]
        found = document("run", *call, "--max-tokens", 1 << 24, "--overflow", "stop")
        self.assertEqual(found["ended"], "context")
        self.assertEqual(found["prompt_tokens"] + len(found["tokens"]), CONTEXT)
        program.assert_refused(self, run("run", *call, "--max-tokens", 1 << 24),
                               ["4 tokens", "16777216", "context of 128"])

    def test_a_window_without_layers_takes_an_assumption(self):
        call = ["--threads", 1, "--prompt", "a text of some length", "--max-tokens", 9,
                "--ignore-end", "--exact"]
        key = "llama.attention.sliding_window_pattern"
        program.assert_refused(self, run("run", "--model", without_pattern(), *call),
                               ["llama.attention.sliding_window", f"--assume {key}=N"])
        found = {at: document("run", "--model", without_pattern(), "--assume", f"{key}={at}", *call)
                 for at in [0, 2]}
        self.assertEqual((found[0]["layers"], found[2]["layers"]),
                         ("window(8)", "window(8), full"))
        wanted = document("run", "--model", TINY / "tiny-mistral.gguf", *call)
        self.assertEqual(found[0]["tokens"], wanted["tokens"])
        self.assertNotEqual(found[2]["tokens"], wanted["tokens"])
        self.assertIn(key, [note["key"] for note in found[0]["model"]["notes"]])

    def test_global_tokens_are_positions_of_the_prompt(self):
        call = [*tiny(), "--prompt", "aXbXc", "--max-tokens", 9, "--ignore-end"]
        mark = document("run", *tiny(), "--prompt", "X", "--max-tokens", 1)
        self.assertEqual(mark["prompt_tokens"], 2)
        token = ord("X") + 3  # <unk>, <s> and </s>, then the bytes
        found = document("run", *call, "--attend", f"window(2)+global(token={token})")
        self.assertEqual(found["layers"], "window(2)+global(2,4)")
        wanted = document("run", *call, "--attend", "window(2)+global(2,4)")
        self.assertEqual(found["tokens"], wanted["tokens"])
        program.assert_refused(
            self, run("run", *call, "--attend", f"window(2)+global(token={token})", "--overflow",
                      "evict"), ["global(token=", "--overflow evict"])

    def test_keys_that_a_run_reads_are_not_ignored_ones(self):
        for name in MODELS:
            found = document("run", *tiny(name), "--prompt", "a", "--max-tokens", 1)
            for key in found["model"]["ignored_keys"]:
                self.assertTrue(key.startswith("general."), key)

    def test_an_answer_may_go_on_behind_the_context(self):
        call = [*tiny("tiny-gemma2"), "--prompt", "abc", "--ignore-end", "--max-tokens", 300,
                "--overflow", "evict"]
        found = document("run", *call)
        self.assertEqual((len(found["tokens"]), found["ended"]), (300, "max tokens"))
        # Half of the context at a time, which fills to one token that is not read any more.
        self.assertEqual([(at["position"], at["kept_tokens"]) for at in found["evictions"]],
                         [(CONTEXT + 1 + CONTEXT // 2 * i + i, CONTEXT // 2) for i in range(3)])
        self.assertEqual(found["held_bytes"], found["predicted_held_bytes"])
        self.assertLessEqual(found["held_tokens"], CONTEXT)
        words = raw(*call)[1]
        self.assertEqual(words.count("the context was full"), 3)
        self.assertIn(f"after token {CONTEXT + 1}: went on with {CONTEXT // 2} of them", words)
        few = document("run", *call[:-3], 20, *call[-2:])
        self.assertEqual(few["evictions"], [])

    def test_a_table_that_the_model_was_not_trained_with_is_named(self):
        table = FOLDER.write("layers.txt", "window(3)*3, full")
        for flags, layers in [(["--attend", "window(4)"], "window(4)"),
                              (["--layers", table], "window(3)*3, full")]:
            found = document("run", *tiny(), "--prompt", "x", "--max-tokens", 2, *flags)
            self.assertTrue(found["model"]["table_replaced"])
            self.assertEqual(found["model"]["trained"], "false")
            self.assertEqual(found["layers"], layers)
            words = raw(*tiny(), "--prompt", "x", "--max-tokens", 2, *flags)[1]
            self.assertIn("not trained with this table", words)
        own = raw(*tiny(), "--prompt", "x", "--max-tokens", 2)[1]
        self.assertNotIn("not trained", own)


class Text(unittest.TestCase):
    def test_the_answer_alone_is_on_standard_output_and_is_the_documents(self):
        for name in MODELS:
            call = [*tiny(name), "--prompt", "some words", "--max-tokens", 40, "--ignore-end",
                    "--temperature", 5, "--seed", 3]
            out, words = raw(*call)
            found = document("run", *call)
            self.assertEqual(out.decode("utf-8"), found["text"] + "\n")
            self.assertIn(f"prompt {found['prompt_tokens']} tokens, generated 40 (max tokens)",
                          words)
            held = found["held_bytes"]
            self.assertIn(f"held {held} bytes, predicted {held};", words)

    def test_the_prompt_may_come_from_a_file_or_the_input(self):
        prompt = "a prompt\nof two lines, ὦ\n"
        path = FOLDER.write("prompt.txt", prompt)
        call = [*tiny(), "--max-tokens", 12, "--ignore-end"]
        wanted = raw(*call, "--prompt", prompt)[0]
        self.assertEqual(raw(*call, "--file", path)[0], wanted)
        self.assertEqual(raw(*call, "--file", "-", text=prompt.encode())[0], wanted)
        self.assertNotEqual(raw(*call, "--file", "-", text=b"another")[0], wanted)

    def test_stop_texts_end_it_and_are_not_printed(self):
        call = [*tiny(), "--prompt", "q", "--max-tokens", 40, "--ignore-end", "--temperature", 5]
        whole = document("run", *call)["text"]
        for begin in [3, 7, 11]:
            stop = whole[begin:begin + 2]
            found = document("run", *call, "--stop", stop, "--stop", "not in there")
            self.assertEqual(found["text"], whole[:whole.index(stop)])
            self.assertEqual(found["ended"], "stop text")
            self.assertEqual(found["request"]["stop_texts"], [stop, "not in there"])
            self.assertEqual(raw(*call, "--stop", stop)[0].decode(), found["text"] + "\n")

    def test_texts_of_special_tokens_may_be_plain_text(self):
        call = [*tiny(), "--prompt", "</s></s>", "--max-tokens", 1]
        self.assertEqual(document("run", *call)["prompt_tokens"], 3)
        self.assertEqual(document("run", *call, "--no-special")["prompt_tokens"], 9)

    def test_help_has_examples(self):
        words = run("run", "--help").stdout
        self.assertGreaterEqual(len(re.findall(r"\n  lacuna run ", words)), 3)
        self.assertIn("Ctrl-C", words)


class RealModels(unittest.TestCase):
    def smollm2(self):
        model = cached_smollm2()
        if model is None:
            self.skipTest("no model in the cache; ./dev model fetches it")
        return ["--model", model]

    def test_a_chat_model_answers_a_chat(self):
        call = [*self.smollm2(), "--prompt", "What is the capital of France?", "--exact"]
        plain = document("run", *call, "--max-tokens", 1)
        chat = document("run", *call, "--max-tokens", 24, "--chat")
        self.assertIn("Paris", chat["text"])
        self.assertTrue(chat["request"]["chat"])
        # The template's own system message and the marks of three turns.
        self.assertGreater(chat["prompt_tokens"], plain["prompt_tokens"] + 20)
        brief = document("run", *call, "--chat", "--system", "Be brief.",
                         "--max-tokens", 1)
        self.assertLess(brief["prompt_tokens"], chat["prompt_tokens"])
        self.assertEqual(chat["held_bytes"], chat["predicted_held_bytes"])

    def test_a_base_model_is_no_chat_model(self):
        model = cached_gemma()
        if model is None:
            self.skipTest("no model in the cache; ./dev model fetches it")
        call = ["run", "--model", model, "--prompt", "The capital of France is"]
        program.assert_refused(self, run(*call, "--chat"), ["chat template", str(model)])
        found = document(*call, "--max-tokens", 8)
        self.assertIn("France", found["text"])
        self.assertEqual(found["layers"], "window(512)*5, full")
        self.assertEqual(found["held_bytes"], found["predicted_held_bytes"])


class Interrupts(unittest.TestCase):
    """Ctrl-C ends the answer and not the report, as for the other long verbs: exit code 0."""

    CALL = ["--threads", "1", "--prompt", "go on", "--ignore-end", "--max-tokens", "10000000"]

    def interrupted(self, *more, wait):
        child = start("run", "--model", str(long_model()), *self.CALL, *more,
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait(child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=program.SECONDS)
        self.assertEqual(child.returncode, 0, err)
        return out, err.decode("utf-8")

    def test_what_was_generated_is_printed_with_its_figures(self):
        out, words = self.interrupted(wait=lambda child: child.stdout.read(50))
        self.assertTrue(out.endswith(b"\n"))
        self.assertIn("(interrupted)", words)
        held = re.search(r"held (\d+) bytes, predicted (\d+);", words)
        self.assertEqual(held[1], held[2])
        self.assertGreater(int(held[1]), 0)

    def test_the_document_says_so(self):
        # Nothing is printed before the end: the document is whole whenever the signal comes.
        out, _ = self.interrupted("--json", wait=lambda child: self.until_it_works(child))
        found = json.loads(out)
        check(found, "run.schema.json", "interrupted")
        self.assertTrue(found["interrupted"])
        self.assertEqual(found["ended"], "interrupted")
        self.assertEqual(found["held_bytes"], found["predicted_held_bytes"])

    def until_it_works(self, child):
        """The handler is there once the pool's and the watcher's threads are."""
        tasks = program.pathlib.Path(f"/proc/{child.pid}/task")
        while len(list(tasks.iterdir())) < 2:
            self.assertIsNone(child.poll())


class Words(unittest.TestCase):
    def refused(self, *args, says):
        program.assert_refused(self, run("run", *args), says)

    def test_what_is_wrong_is_named(self):
        full = [*tiny(), "--prompt", "a"]
        self.refused(*tiny(), says=["no prompt", "--prompt TEXT", "--file"])
        self.refused(*full, "--file", "x", says=["--prompt and --file"])
        self.refused(*tiny(), "--file", "/no/such.txt", says=["/no/such.txt"])
        self.refused("--prompt", "a", says=["--model"])
        self.refused("--model", "/no/such.gguf", "--prompt", "a", says=["/no/such.gguf"])
        self.refused("--model", FOLDER.model("Qwen2.5-0.5B"), "--prompt", "a", says=["GGUF"])
        self.refused(*full, "--kv-dtype", "int9", says=["int9", "did you mean 'int8'"])
        self.refused(*full, "--kv-dtype", "int4", says=["head_dim is 8", "32"])
        self.refused(*full, "--exact-kv", says=["--exact-kv is given with bf16", "int8"])
        self.refused(*full, "--page-size", 40, says=["page_size is 40", "16, 32"])
        self.refused(*full, "--overflow", "wrap", says=["wrap", "error", "stop", "evict"])
        self.refused(*full, "--system", "x", says=["--system is given without --chat"])
        self.refused(*full, "--chat", says=["chat template"])
        self.refused(*full, "--stop", "", says=["stop text is empty"])
        self.refused(*full, "--chat", "--no-special", says=["--no-special is given with --chat"])
        self.refused(*full, "--decode-only", says=["--decode-only is given without a table"])
        for flag in ["--attend", "--layers", "--kv-dtype", "--prompt", "--file"]:
            self.refused(*tiny(), flag, "", says=[flag, "empty"])
        self.refused(*tiny("tiny-gemma3"), "--prompt", "a" * 60, "--max-tokens", 5,
                     "--decode-only", "--attend", "full", says=["table of the answer", "0.."])
        self.refused(*full, "--max-tokens", CONTEXT, says=["2 tokens", "context of 128"])
        self.refused(*tiny(), "--prompt", "a" * 200, "--overflow", "stop", says=["201 tokens"])

    def test_numbers_out_of_range_are_named(self):
        full = [*tiny(), "--prompt", "a"]
        for flag, value in [("--temperature", "-1"), ("--temperature", "nan"), ("--top-p", "0"),
                            ("--top-p", "1.5"), ("--min-p", "-0.5"), ("--min-p", "2")]:
            name = flag.removeprefix("--").replace("-", "_")
            self.refused(*full, flag, value, says=[f"{name} is", "allowed"])
        for flag in ["--max-tokens", "--chunk", "--page-size", "--threads", "--top-k", "--seed"]:
            for value in ["-1", "1e3", "ten", ""]:
                self.refused(*full, f"{flag}={value}", says=[flag, "allowed"])

    def test_tables_that_do_not_fit_are_named(self):
        full = [*tiny(), "--prompt", "a"]
        self.refused(*full, "--attend", "full", "--layers", "x", says=["--attend and --layers"])
        self.refused(*full, "--attend", "window(0)", says=["window"])
        self.refused(*full, "--attend", "window(2,2)", says=["r of window is 2", "causal"])
        self.refused(*full, "--layers", "/no/such.txt", says=["/no/such.txt"])


if __name__ == "__main__":
    main()
