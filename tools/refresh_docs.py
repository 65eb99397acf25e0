"""Puts today's output of the program, and tables of stored measurements, into the documents.

    refresh_docs.py PROGRAM [--check]

A block begins with `<!-- output: NAME -->`, NAME being one of OUTPUTS, or with `<!-- table: NAME -->`,
NAME being a table of
speed_table or model_table, and ends with `<!-- end -->`. Measurements are read, never made. With
--check nothing is written and a stale block is an error; exit code 77 where the model is not there
and nothing else is stale.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import demo
import speed_table
from fetch_models import GEMMA, default_cache_dir

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = default_cache_dir() / "models" / GEMMA.file_name
BLOCK = re.compile(r"(<!-- output: (?P<name>[^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- table: (?P<name>[^\n]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def equations(program):
    """Some of a layer's equations, as --explain prints them."""
    text = subprocess.run([program, "cost", "--attend", "window(1024)", "--num-q-heads", "32",
                           "--num-kv-heads", "8", "--head-dim", "128", "--prompt", "8192", "--explain"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    of_a_layer = text.split("equations of the total")[0].splitlines()
    shown = re.compile(r"  (edges|pairs|pair_flops|kv_held_bytes) = ")
    return "\n".join(line for line in of_a_layer if shown.match(line))


# What llama.cpp prints for Gemma 3 4B at 131072 tokens, as ollama's pull request 17037 quotes it.
LOG = """llama_context: n_ctx                 = 131072
llama_context: n_ubatch              = 512
llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache:      CUDA0 KV buffer size =  2560.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells
llama_kv_cache:      CUDA0 KV buffer size =   {window} MiB
"""


def accounts(program):
    """`lacuna explain` of that log, and of the same with a figure that is wrong."""
    models = json.loads((ROOT / "tests/data/configs/model-configs.json").read_text(encoding="utf-8"))
    text = ""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "config.json").write_text(json.dumps(models["Gemma-3-4b"]["config"]))
        for name, window in [("server.log", "174.00"), ("other.log", "203.00")]:
            (path / name).write_text(LOG.format(window=window))
            out = subprocess.run([program, "explain", name, "--model", "config.json"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 check=False, cwd=folder).stdout
            # The model's own lines stand elsewhere; of the second one the verdict is enough.
            text += out[out.index(f"\n{name}: start"):] if not text else out[out.index("\ndiffers:"):]
    return text.strip("\n")


def stored_audit(program):
    """The audit that the demo ends with, as tools/store_audit.py has stored it."""
    return subprocess.run([program, "report", ROOT / "docs/data/audit.json"],
                          stdout=subprocess.PIPE, text=True, check=True).stdout


OUTPUTS = {"./dev demo": lambda program: demo.demo(program, MODEL), "explain": equations,
           "lacuna explain": accounts, "lacuna report": stored_audit}


def refreshed(text, program):
    def block(found):
        return f"{found[1]}```\n{OUTPUTS[found['name']](program).rstrip()}\n```\n{found[4]}"
    return BLOCK.sub(block, text)


def with_tables(text, table=speed_table.table):
    return TABLE.sub(lambda found: f"{found[1]}{table(found['name'])}{found[4]}", text)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    check = "--check" in sys.argv[2:]
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        new = with_tables(text)
        if MODEL.exists():
            new = refreshed(new, program)
        if new == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(new)
    if check and stale:
        sys.exit(f"stale output in {', '.join(stale)}; run tools/refresh_docs.py build/lacuna")
    if not MODEL.exists():
        print(f"no {MODEL.name} in the cache; ./dev model fetches it")
        sys.exit(77)


if __name__ == "__main__":
    main()
