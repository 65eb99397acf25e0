"""The main job once: what Gemma 3 270M costs with its own layer table, all full, and window only;
then its two kinds of layers with the real kernels, what they execute beside what was predicted;
then the model itself, which generates text through its own table and through windows alone; then
its audit: every prediction beside what this machine did, as text and as a page.

    demo.py PROGRAM [FOLDER]

FOLDER is where the page goes; without it, the folder of the program.
"""

import json
import pathlib
import subprocess
import sys

from fetch_models import GEMMA, default_cache_dir

PROMPT, GENERATE = 32512, 256  # together the model's whole context

TABLES = {"own table": [], "all full": ["--attend", "full"], "window only": ["--attend", "window(512)"]}

# What the rows are called, and where they stand in `cost --json`.
ROWS = [
    ("prefill: pairs", "prefill", "pairs"),
    ("prefill: attention FLOPs", "prefill", "pair_flops"),
    ("prefill: projection FLOPs", "prefill", "projection_flops"),
    ("prefill: MLP FLOPs", "prefill", "mlp_flops"),
    ("decode: attention FLOPs, all steps", "decode", "pair_flops"),
    ("decode: KV read, last step, bytes", "decode", "kv_read_bytes_per_step"),
    ("decode: KV needed, last step, bytes", "decode", "kv_held_bytes"),
]


def cost(program, model, *options):
    """What `lacuna cost` prints for the demo's prompt; the model by its name alone, wherever it lies."""
    command = [program, "cost", "--model", model.name, "--prompt", str(PROMPT),
               "--generate", str(GENERATE), *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=model.parent)
    if result.returncode != 0:
        sys.exit(f"demo: failed: {' '.join(command)}")
    return result.stdout


def number(value):
    """With thousands apart; counts above 63 bits come as strings, unknown ones as null."""
    return "–" if value is None else f"{int(value):,}"


def side_by_side(reports):
    rows = [["", *reports]]
    for title, phase, key in ROWS:
        rows.append([title] + [number(report["phases"][phase]["total"][key])
                               for report in reports.values()])
    policies = next(iter(reports.values()))["phases"]["decode"]["policies"]
    for policy in policies:
        rows.append([f"decode: KV that {policy} holds, bytes"]
                    + [number(report["phases"]["decode"]["policies"].get(policy, {})
                              .get("kv_held_bytes")) for report in reports.values()])
    for key in ("hops", "first_layer", "reach_tokens"):
        rows.append([f"{key}, first token to last"] + [number(report[key])
                                                       for report in reports.values()])
    return rows


def table(rows):
    text = ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def demo(program, model):
    """The whole output of the demo."""
    reports = {name: json.loads(cost(program, model, "--json", *options))
               for name, options in TABLES.items()}
    return (f"{cost(program, model)}\n"
            f"The same model side by side (prompt {PROMPT}, generate {GENERATE}):\n\n"
            f"{table(side_by_side(reports))}")


# The heads of Gemma 3 270M, and how many of its layers are of each kind.
HEADS = ["--num-q-heads", "4", "--num-kv-heads", "1", "--head-dim", "256"]
KINDS = {"window(512)": 15, "full": 3}
TOKENS = 8192


def bench(program):
    """`lacuna bench kernels` for one layer of each kind; its progress goes to the terminal."""
    command = [program, "bench", "kernels", *HEADS, "--length", str(TOKENS), "--dtype", "bf16",
               "--repetitions", "3", "--json"]
    for attend in KINDS:
        command += ["--attend", attend]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"demo: failed: {' '.join(command)}")
    return json.loads(result.stdout)


def roofline(row, bandwidth):
    """Seconds below which the row cannot be, and what binds: products, or bytes of K and V once."""
    peak = max(max(round_["f32_flops_per_s"], 0.95 * round_["bf16_flops_per_s"])
               for round_ in row["rounds"])
    by_products = row["useful_flops"] / peak
    by_bytes = row["ledger"]["distinct_bytes"] / max(point["bytes_per_s"] for point in bandwidth)
    return max((by_products, "products"), (by_bytes, "bytes"))


def kernels_table(report):
    """One line for each kind of layer."""
    rows = [["", "predicted pairs", "executed pairs", "", "a layer, ms", "roofline, ms", "reached",
             "all such layers, ms"]]
    for row in report["rows"]:
        seconds = row["whole"]["seconds"]["p50"]
        bound, binds = roofline(row, report["bandwidth"])
        executed = row["ledger"]["executed_pairs"]
        count = KINDS[row["attend"]]
        rows.append([f"{count} x {row['attend']}", number(row["predicted_pairs"]), number(executed),
                     "equal" if executed == row["predicted_pairs"] else "DIFFERENT",
                     f"{1e3 * seconds:.1f}", f"{1e3 * bound:.1f} ({binds})",
                     f"{100 * bound / seconds:.0f} %", f"{1e3 * seconds * count:.0f}"])
    return table(rows)


def kernels_demo(program):
    """The second step: real kernels. Its times are this machine's, at this moment."""
    report = bench(program)
    return (f"\nThe attention of its layers, computed: {TOKENS} tokens, one thread, "
            f"{report['rows'][0]['isa']} kernels\n\n{kernels_table(report)}")


TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")  # of Debian's base-files
WORDS, NEW_TOKENS = 1100, 48
OWN_AND_WINDOW = {"own table": [], "window only": ["--attend", "window(512)"]}


def run_model(program, model, text, options):
    """What `lacuna run --json` says of the model that goes on with the text."""
    command = [program, "run", "--model", str(model), "--file", "-", "--max-tokens", str(NEW_TOKENS),
               "--ignore-end", "--json", *options]
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"demo: failed: {' '.join(command)}")
    return json.loads(result.stdout)


def generation_table(reports):
    """One line for each layer table that generated."""
    rows = [["", "prompt tokens", "TTFT, s", "TPOT, ms", "KV held, bytes", "predicted", ""]]
    for name, report in reports.items():
        steps = report["step_seconds"]
        held, predicted = report["held_bytes"], report["predicted_held_bytes"]
        rows.append([name, number(report["prompt_tokens"]), f"{report['first_token_seconds']:.2f}",
                     f"{1e3 * sorted(steps)[len(steps) // 2]:.1f}", number(held), number(predicted),
                     "equal" if held == predicted else "DIFFERENT"])
    return table(rows)


def generation_demo(program, model):
    """The third step: the model runs, once with each table."""
    text = " ".join(TEXT.read_text(encoding="utf-8").split()[:WORDS])
    reports = {name: run_model(program, model, text, options)
               for name, options in OWN_AND_WINDOW.items()}
    answers = "".join(f"{name}: …{' '.join(report['text'].split())}\n"
                      for name, report in reports.items())
    return (f"\nThe model goes on with the first {WORDS} words of {TEXT.name}, int8 products, bf16 keys:"
            f"\n\n{generation_table(reports)}\n{answers}")


AUDITED = ["--prompt", str(TOKENS), "--against", "full", "--against", "window(512)"]


def audit(program, model, *options):
    """What `lacuna audit` prints of the model's own table beside all full and window only; its
    progress goes to the terminal."""
    command = [program, "audit", "--model", model.name, *AUDITED, *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=model.parent)
    if result.returncode != 0:
        print(result.stdout, end="")
        sys.exit(f"demo: failed: {' '.join(command)}")
    return result.stdout


def audit_demo(program, model, folder):
    """The last step: what was predicted, and what this machine did."""
    page = folder / "audit.html"
    # One round: exact figures need no more, and the steps of a round are many.
    text = audit(program, model, "--repetitions", "1", "--html", str(page))
    return (f"\nThe audit, {TOKENS} tokens: own table, all full, and window only\n\n{text}\n"
            f"The same with pictures: {page}\n")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(program).parent
    model = default_cache_dir() / "models" / GEMMA.file_name
    print(demo(program, model), end="", flush=True)
    print(kernels_demo(program), end="", flush=True)
    print(generation_demo(program, model), end="", flush=True)
    print(audit_demo(program, model, folder.resolve()), end="")


if __name__ == "__main__":
    main()
