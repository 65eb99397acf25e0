"""Whole models: `lacuna bench model` beside llama.cpp and OpenVINO GenAI, in one run.

    model_peers.py PROGRAM [--rounds N] [--threads N] [--json FILE] [--only TEXT] [--quick]

PROGRAM is build/lacuna. A case is a model and a prompt's length: the time to the first token, then
that of each of STEPS tokens after it. Each engine stands in every form of FORMS that its users would
try; in the first round all of them run, later only those that were fastest there, for the first
token or for the later ones. Within a round ours and theirs take turns, and ratios are taken round by
round. Peers read a real text, at another place in every round; ours draws its tokens, which its
times do not depend on. Ctrl-C keeps the rounds that are done. This script runs in the environment
that `./dev bench --results` makes.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from attention_peers import Process, percentiles, say
from model_goals import FIRST, LLAMA, OPENVINO, STEP, WINDOW, goal_text, goals_of, times_text

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
from fetch_models import default_cache_dir  # noqa: E402

MODELS = default_cache_dir() / "models"
TEXTS = pathlib.Path("/usr/share/common-licenses")  # of Debian's base-files, on every Debian
STEPS = 32


@dataclass(frozen=True, eq=False)
class Form:
    """A way to ask an engine. `kind`: "dense", or "sparse" where the prompt's attention is."""
    engine: str
    name: str
    settings: dict
    kind: str = "dense"

    def __str__(self):
        return f"{self.engine}, {self.name}"


def llama(name, **settings):
    return Form(LLAMA, name, settings)


def openvino(name, batched, sparse=None, **properties):
    settings = {"batched": batched, "properties": properties}
    return Form(OPENVINO, name, {**settings, "sparse": sparse} if sparse else settings,
                "sparse" if sparse else "dense")


@dataclass(frozen=True)
class Case:
    model: str
    file: str
    length_tokens: int
    forms: tuple
    against: tuple = ()  # layer tables of ours beside the model's own

    @property
    def name(self):
        return f"{self.model} {self.length_tokens}"


LLAMA_FORMS = (llama("no flash", flash_attn=False), llama("flash", flash_attn=True),
               llama("flash, q8_0 KV", flash_attn=True, kv="q8_0"))
# Gemma's window layers hold the whole context unless one asks for less.
LLAMA_WINDOW_FORMS = (
    llama("no flash, window cache", flash_attn=False, swa_full=False),
    llama("flash, window cache", flash_attn=True, swa_full=False),
    llama("no flash, full cache", flash_attn=False, swa_full=True))
OPENVINO_FORMS = (openvino("256 a pass", 256), openvino("8192 a pass", 8192),
                  openvino("256 a pass, bf16 KV", 256, KV_CACHE_PRECISION="bf16"))
SPARSE_FORMS = (
    openvino("TRISHAPE", 256, {"mode": "TRISHAPE"}),
    openvino("TRISHAPE, 1024 recent", 256,
             {"mode": "TRISHAPE", "num_retained_recent_tokens_in_cache": 1024}),
    openvino("XATTENTION", 256, {"mode": "XATTENTION"}))
SMOLLM2 = ("smollm2-135m", "smollm2-135m-q4_1.gguf")
GEMMA = ("gemma-3-270m", "gemma-3-270m-q4_k_m.gguf")
CASES = (Case(*SMOLLM2, 960, OPENVINO_FORMS + LLAMA_FORMS),
         Case(*GEMMA, 1024, LLAMA_WINDOW_FORMS),
         Case(*SMOLLM2, 8128, OPENVINO_FORMS + SPARSE_FORMS + LLAMA_FORMS, (WINDOW,)),
         Case(*GEMMA, 32512, LLAMA_WINDOW_FORMS))
OUR_KV = ("bf16", "int8")
SHORT_TOKENS = 1024  # the lengths of --quick

FORMATS = {
    "Lacuna": {"weights": "as the file stores them where in 4 or 5 bits with a scale for each 32 "
                          "inputs; 8 bits with such scales where not",
               "kv": "bf16, unless the form says so",
               "activations": "f32, in products 8 bits with a scale for each 32 inputs"},
    LLAMA: {"weights": "as the file stores them", "kv": "f16, unless the form says so",
            "activations": "f32, in products 8 bits with a scale for each 32 inputs or 256"},
    OPENVINO: {"weights": "4 and 8 bits, as its reader makes them from the file",
               "kv": "8 bits, unless the form says so",
               "activations": "bf16, in products 8 bits with a scale for each 32 inputs"}}


# --- ours ------------------------------------------------------------------------------------------

ROW_KEYS = ("table", "length_tokens", "generate_tokens", "as_predicted", "first_token_seconds",
            "step_seconds", "bound_seconds", "prefill_parts_seconds", "step_parts_seconds", "kinds",
            "needed_pairs", "predicted_executed_pairs", "executed_pairs", "predicted_held_bytes",
            "held_bytes", "predicted_read_bytes", "read_bytes")
DOCUMENT_KEYS = ("load_seconds", "weight_bytes", "file_weight_bytes", "products", "kv_dtype", "isa",
                 "peak_memory_bytes")


def answer_of(command, format_name):
    """The document that a program prints."""
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    document = json.loads(result.stdout)
    if (document.get("format"), document.get("format_version")) != (format_name, 1):
        raise ValueError(f"{command[1]} gave {document.get('format')!r}, wanted {format_name} of "
                         "version 1")
    return document


def our_rows(document, case):
    """A row of a lacuna-bench-model document for each table, the model's own first."""
    kv_dtype = document["kv_dtype"]
    keys = "" if kv_dtype == OUR_KV[0] else f", {kv_dtype} KV"
    rows = [{"form": row["table"] + keys, **{key: row[key] for key in ROW_KEYS}}
            for row in document["rows"] if row["length_tokens"] == case.length_tokens]
    if len(rows) != 1 + len(case.against):
        raise ValueError(f"{case.name}: {len(rows)} rows came, wanted {1 + len(case.against)}")
    return rows


def our_round(documents, case):
    """What is kept of the documents, one for each type of keys."""
    return {**{key: documents[0][key] for key in DOCUMENT_KEYS},
            "rows": [row for document in documents for row in our_rows(document, case)]}


def ours(options, case):
    documents = []
    for kv_dtype in OUR_KV:
        command = [options.program, "bench", "model", "--model", MODELS / case.file, "--length",
                   case.length_tokens, "--generate", STEPS + 1, "--repetitions", 1, "--threads",
                   options.threads, "--kv-dtype", kv_dtype, "--json"]
        for table in case.against:
            command += ["--against", table]
        documents.append(answer_of(command, "lacuna-bench-model"))
    return our_round(documents, case)


def prediction(document):
    """What `lacuna cost` says of a table: what is needed, and what pages of it hold."""
    decode = document["phases"]["decode"]
    return {"kv_held_bytes": decode["total"]["kv_held_bytes"],
            # Over all steps: each key that a query reads costs its token's K and V once.
            "kv_read_bytes": sum(layer["edges"] * layer["kv_bytes_per_token"]
                                 for layer in decode["layers"]),
            "paged_held_bytes": decode["policies"]["paged"]["kv_held_bytes"],
            "hops": document["hops"]}


def predictions(options, case):
    """For each row of ours, and for all layers full."""
    found = []
    rows = [(table, kv_dtype) for kv_dtype in OUR_KV for table in (None, *case.against)]
    for table, kv_dtype in [*rows, ("full", OUR_KV[0])]:
        command = [options.program, "cost", "--model", MODELS / case.file, "--prompt",
                   case.length_tokens, "--generate", STEPS, "--kv-dtype", kv_dtype, "--json"]
        command += ["--attend", table] if table else []
        found.append({"table": table or "own", **prediction(answer_of(command, "lacuna-cost"))})
    return found


# --- the run ---------------------------------------------------------------------------------------


def text_ids(model, count):
    """Token ids of a real text, as many as `count` or more."""
    import llama_cpp
    reader = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    text = b"\n".join(path.read_bytes() for path in sorted(TEXTS.iterdir()) if not path.is_symlink())
    ids = reader.tokenize(text, add_bos=False)
    if len(ids) < count:
        raise ValueError(f"{TEXTS} has {len(ids)} tokens, wanted {count}")
    return ids


def start(form, case, threads, warm_ids):
    """The engine's process, or None where it cannot run."""
    say(f"making ready: {form}, {case.name}")
    context = -(-(case.length_tokens + STEPS + 1) // 256) * 256
    job = {"engine": form.engine, "model": str(MODELS / case.file), "context_tokens": context,
           "threads": threads, "settings": form.settings, "warm_ids": warm_ids}
    try:
        return Process([sys.executable, "-B", HERE / "model_worker.py", json.dumps(job)], threads)
    except ValueError as error:
        say(f"left out: {form}: {error}")
        return None


def peer_round(process, ids):
    answer = process.ask(json.dumps({"ids": ids, "generate": STEPS}))
    return {FIRST: percentiles([answer[FIRST]]), STEP: percentiles(answer[STEP])}


def worth_another(forms, first_round):
    """The forms that were fastest in a round, of their engine and kind, in prefill or in steps."""
    kept = []
    for form in forms:
        rivals = [str(one) for one in forms if (one.engine, one.kind) == (form.engine, form.kind)
                  and str(one) in first_round]
        if any(str(form) == min(rivals, key=lambda name, key=key: first_round[name][key]["p50"])
               for key in (FIRST, STEP) if rivals):
            kept.append(form)
    return kept


class CaseRun:
    """The rounds of one case; what is done is in `result` at any moment."""

    def __init__(self, options, case, forms):
        self._options, self._case, self._forms = options, case, list(forms)
        self._processes = {}
        self.result = {"name": case.name, "model": case.model, "length_tokens": case.length_tokens,
                       "num_steps": STEPS, "predicted": [], "peers": [], "rounds": []}

    def run(self):
        case, options = self._case, self._options
        try:
            self.result["predicted"] = predictions(options, case)
            ids = text_ids(MODELS / case.file, case.length_tokens + 101 * options.rounds)
            self._start(ids)
            for number in range(options.rounds):
                say(f"{case.name}: round {number + 1} of {options.rounds}")
                self._round(number, ids[101 * (number + 1):][:case.length_tokens])
                self._drop_slower()
        finally:
            for process in self._processes.values():
                process.end()

    def _start(self, ids):
        warm = ids[:min(self._case.length_tokens, 1024)]
        for form in self._forms:
            process = start(form, self._case, self._options.threads, warm)
            if process:
                self._processes[form] = process
                self.result["peers"].append(
                    {"name": str(form), "engine": form.engine, "form": form.name, "kind": form.kind,
                     "settings": form.settings, "version": process.ready["version"],
                     "load_seconds": process.ready["load_seconds"]})

    def _round(self, number, ids):
        turns = ["ours", *self._processes]
        one = {"ours": None, "peers": {}}
        for turn in turns if number % 2 == 0 else reversed(turns):
            say(f"  {'Lacuna' if turn == 'ours' else turn}")
            if turn == "ours":
                one["ours"] = ours(self._options, self._case)
                continue
            try:
                one["peers"][str(turn)] = peer_round(self._processes[turn], ids)
            except (ValueError, BrokenPipeError) as error:
                say(f"left out: {turn}: {error}")
        self.result["rounds"].append(one)

    def _drop_slower(self):
        kept = worth_another(list(self._processes), self.result["rounds"][-1]["peers"])
        for form in [form for form in self._processes if form not in kept]:
            self._processes.pop(form).end()


def chosen(options):
    """[(case, forms)] of this run."""
    found = []
    for case in CASES:
        forms = [form for form in case.forms if options.only in f"{case.name} {form}"]
        if forms and not (options.quick and case.length_tokens > SHORT_TOKENS):
            found.append((case, forms))
    return found


def machine():
    cpu = next(line.partition(":")[2].strip() for line in
               pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
               if line.startswith("model name"))
    return {"cpu": cpu, "num_allowed_cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def document_of(options, results, interrupted):
    return {"format": "lacuna-model-peers", "format_version": 1, "kind": "measured",
            "interrupted": interrupted, "machine": machine(), "threads": options.threads,
            "num_rounds": options.rounds, "formats": FORMATS, "results": results,
            "goals": goals_of(results)}


def run(options):
    results, interrupted, failed = [], False, False
    for case, forms in chosen(options):
        one = CaseRun(options, case, forms)
        results.append(one.result)
        try:
            one.run()
        except KeyboardInterrupt:
            say("stopped; what is done is kept")
            interrupted = True
            break
        except (ValueError, KeyError, subprocess.CalledProcessError) as error:
            say(f"{case.name} ended: {type(error).__name__}: {error}")
            failed = True
    document = document_of(options, results, interrupted)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")
    print("".join(map(times_text, results)) + "\n" + "".join(map(goal_text, document["goals"])),
          end="")
    return 1 if failed or interrupted else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="file to write the result into")
    parser.add_argument("--only", default="", help="cases and forms whose name holds this text")
    parser.add_argument("--quick", action="store_true", help="one round of the short lengths")
    options = parser.parse_args()
    options.program = str(pathlib.Path(options.program).resolve())
    options.rounds = 1 if options.quick else options.rounds
    if not chosen(options):
        parser.error(f"--only is {options.only!r}; no case or form holds it")
    sys.exit(run(options))


if __name__ == "__main__":
    main()
