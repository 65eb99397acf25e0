"""Tables of stored measurements for the documents: docs/data holds what `lacuna bench kernels --json`,
`lacuna bench decode --json` (its list of speeds, and Gemma 3 270M at 32k) and the scripts of
bench/peers wrote. Nothing is measured here.
"""

import json
import pathlib

import model_table

DATA = pathlib.Path(__file__).resolve().parents[1] / "docs" / "data"
KERNELS, PEERS = DATA / "bench_kernels.json", DATA / "attention_peers.json"
DECODE, GEMMA = DATA / "bench_decode.json", DATA / "bench_decode_gemma.json"
DECODE_PEERS = DATA / "decode_peers.json"
MODEL_PEERS = DATA / "model_peers.json"
OPINION = DATA / "llama_opinion.json"


def load(path, format_name):
    document = json.loads(path.read_text(encoding="utf-8"))
    if (document.get("format"), document.get("format_version")) != (format_name, 1):
        raise ValueError(f"{path.name} is no {format_name} of version 1")
    return document


def value_text(unit, value):
    if value is None:
        return "–"
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "MiB":
        return f"{value:.1f} MiB"
    if unit == "ms":
        return f"{value:.3f} ms"
    return f"{value:.2f}×" if unit == "times" else f"{value:.3f}"


def goal_row(what, unit, bound, at_most, value, met):
    wanted = f"{'≤' if at_most else '≥'} {value_text(unit, bound)}"
    measured = value_text(unit, value)
    return f"| {what} | {wanted} | {measured if met or value is None else f'**{measured}**'} |\n"


def machine_line(kernels):
    """What all figures of a run share."""
    machine, request = kernels["machine"], kernels["request"]
    limits = []
    for key in ("f32", "bf16"):
        rates = [one[f"{key}_flops_per_s"] for row in kernels["rows"] if row["threads"] == 1
                 for one in row["rounds"] if one[f"{key}_flops_per_s"] > 0]
        if rates:
            limits.append(f"{key} {sorted(rates)[len(rates) // 2] / 1e9:.0f} GFLOP/s")
    return (f"{machine['cpu']}, {machine['num_allowed_cpus']} CPUs, kernels `{machine['isas'][0]}`; "
            f"one thread's probe beside the rows: {', '.join(limits)}; medians of "
            f"{request['repetitions']} rounds over all rows.\n\n")


def speed(kernels, peers=None):
    """What is wanted and what was measured; a value that misses its bound is bold."""
    text = machine_line(kernels) + "| what | wanted | measured |\n| --- | ---: | ---: |\n"
    for goal in kernels["goals"]:
        text += goal_row(goal["what"], goal["unit"], goal["bound"], goal["at_most"], goal["value"],
                         goal["met"])
    for goal in (peers or {"goals": []})["goals"]:
        value = goal["value"] and goal["value"]["p50"]
        text += goal_row(goal["what"], "times", goal["bound"], False, value, goal["met"])
    return text


def row_text(row):
    whole = row["whole"]
    return (f"| {row['name']} | {row['isa']} | {1e3 * whole['seconds']['p50']:.3g} "
            f"| {1e3 * whole['seconds']['p10']:.3g}..{1e3 * whole['seconds']['p90']:.3g} "
            f"| {whole['useful_flops_per_s'] / 1e9:.1f} "
            f"| {100 * whole['share_of_limit']['p50']:.1f} % "
            f"| {100 * row['planned']['share_of_limit']['p50']:.1f} % "
            f"| {row['executed_per_needed']:.3f} "
            f"| {whole['loaded_bytes_per_s'] / 1e9:.1f} |\n")


def kernels_rows(kernels, _peers=None):
    """Every row of the run."""
    text = machine_line(kernels)
    text += ("| row | kernels | ms | p10..p90 | useful GFLOP/s | of the limit | with the plan made "
             "before | executed/needed | K/V GB/s |\n"
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
    return text + "".join(row_text(row) for row in kernels["rows"])


def peers_rows(_kernels, peers=None):
    """Every peer of the run beside ours."""
    if peers is None:
        raise ValueError(f"{PEERS.name} is not there")
    text = ("| row | peer | its form | ours, GFLOP/s | the peer's | times faster | p10..p90 |\n"
            "| --- | --- | --- | ---: | ---: | ---: | ---: |\n")
    for one in peers["results"]:
        speedup = one["speedup"]
        text += (f"| {one['row']} | {one['peer']} | {one['peer_is']['form']} "
                 f"| {one['ours_useful_flops_per_s'] / 1e9:.1f} "
                 f"| {one['peer_useful_flops_per_s'] / 1e9:.1f} | {speedup['p50']:.2f}× "
                 f"| {speedup['p10']:.2f}..{speedup['p90']:.2f} |\n")
    return text


def decode_machine(document):
    """What all figures of a decode run share."""
    machine, request = document["machine"], document["request"]
    return (f"{machine['cpu']}, {document['rows'][0]['threads']} threads, kernels "
            f"`{document['rows'][0]['isa']}`; medians of {request['repetitions']} rounds over all "
            "rows, the probe's read bandwidth beside each.\n\n")


def decode(document, peers):
    """What is wanted of decode and what was measured."""
    text = decode_machine(document) + "| what | wanted | measured |\n| --- | ---: | ---: |\n"
    for goal in document["goals"]:
        text += goal_row(goal["what"], goal["unit"], goal["bound"], goal["at_most"], goal["value"],
                         goal["met"])
    for goal in peers["goals"]:
        text += goal_row(goal["what"], "times", goal["bound"], False, goal["value"], goal["met"])
    return text


def decode_rows(document, _peers):
    """Every row of the run."""
    text = decode_machine(document)
    text += ("| row | step ms | p10..p90 | bound ms | plan µs | pages µs | append µs | read GB/s "
             "| of the probe's | held as predicted | largest error |\n"
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |\n")
    for row in document["rows"]:
        step = row["step_seconds"]

        def median(key, row=row):
            values = sorted(one[key] for one in row["rounds"])
            return 1e6 * values[len(values) // 2]
        read = sum(kind["read_bytes"] for kind in row["kinds"])
        text += (f"| {row['name']} | {1e3 * step['p50']:.3g} "
                 f"| {1e3 * step['p10']:.3g}..{1e3 * step['p90']:.3g} "
                 f"| {1e3 * row['bound_seconds']['p50']:.3g} | {median('plan_seconds'):.3g} "
                 f"| {median('cache_seconds'):.3g} | {median('append_seconds'):.3g} "
                 f"| {read / step['p50'] / 1e9:.1f} "
                 f"| {100 * row['share_of_bandwidth']['p50']:.1f} % "
                 f"| {'yes' if row['as_predicted'] else '**no**'} "
                 f"| {row['check']['max_error']:.2g} |\n")
    return text


def decode_model(document, _peers):
    """The layers of one model: held and read beside predicted, time beside the bound."""
    (row,) = document["rows"]
    text = ("| layers | held, predicted | held | read a step, predicted | read | ms |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: |\n")
    for idx, kind in enumerate(row["kinds"]):
        seconds = sorted(one["kind_seconds"][idx] for one in row["rounds"])[len(row["rounds"]) // 2]
        text += (f"| {kind['num_layers']} × {kind['attend']} | {kind['predicted_held_bytes']:,} "
                 f"| {kind['held_bytes']:,} | {kind['predicted_read_bytes']:,} "
                 f"| {kind['read_bytes']:,} | {1e3 * seconds:.3f} |\n")
    step, bound = row["step_seconds"]["p50"], row["bound_seconds"]["p50"]
    return text + (f"\nA step takes {1e3 * step:.2f} ms, plans, pages and appending "
                   f"({100 * row['overhead']['p50']:.1f} %) included; the bytes it reads over the "
                   f"probe's bandwidth at a working set of {row['bandwidth_set_bytes']:,} bytes "
                   f"are {1e3 * bound:.2f} ms.\n")


TABLES = {"speed": speed, "kernels": kernels_rows, "peers": peers_rows}
DECODE_TABLES = {"decode": (decode, DECODE), "decode rows": (decode_rows, DECODE),
                 "decode gemma": (decode_model, GEMMA)}


def table(name):
    """The named table from the stored files."""
    if name in DECODE_TABLES:
        function, path = DECODE_TABLES[name]
        return function(load(path, "lacuna-bench-decode"), load(DECODE_PEERS, "lacuna-decode-peers"))
    if name in model_table.TABLES:
        path, format_name = (OPINION, "lacuna-llama-opinion") if name == "second opinion" else (
            MODEL_PEERS, "lacuna-model-peers")
        if not path.exists():
            return "Nothing is stored yet; `./dev bench --results` measures it.\n"
        return model_table.TABLES[name](load(path, format_name))
    peers = load(PEERS, "lacuna-attention-peers") if PEERS.exists() else None
    return TABLES[name](load(KERNELS, "lacuna-bench-kernels"), peers)
