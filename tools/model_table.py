"""Tables of docs/data/model_peers.json, which bench/peers/model_peers.py wrote: whole models beside
llama.cpp and OpenVINO GenAI; and of llama_opinion.json beside it, which llama_opinion.py wrote. Nothing
is measured here.
"""

import statistics

PARTS = ("scheduling", "embedding", "projection", "rotary", "append", "attention",
         "output_projection", "mlp", "logits", "sampling", "unattributed")
FIRST, STEP = "first_token_seconds", "step_seconds"


def number(unit, value):
    """A goal's value in its unit."""
    scale, after = {"share": (100, " %"), "times": (1, "×"), "seconds": (1, " s"),
                    "bytes": (1, " B")}[unit]
    return f"{scale * value:.{0 if unit == 'bytes' else 1 if unit == 'share' else 2}f}{after}"


def machine_line(document):
    machine = document["machine"]
    isas = sorted({one["ours"]["isa"] for result in document["results"]
                   for one in result["rounds"]})
    return (f"{machine['cpu']}, {machine['num_allowed_cpus']} CPUs, {document['threads']} threads, "
            f"kernels {', '.join(f'`{isa}`' for isa in isas)}; {document['num_rounds']} round(s), all "
            "engines in turns within each.\n\n")


def goals(document):
    """Every line that is wanted; one that is not reached is bold."""
    text = machine_line(document)
    text += ("| what | Lacuna's form | beside | wanted | measured | p10..p90 |\n"
             "| --- | --- | --- | ---: | ---: | ---: |\n")
    for goal in document["goals"]:
        unit, value = goal["unit"], goal["value"]
        wanted = "–" if goal["bound"] is None else f"≤ {number(unit, goal['bound'])}"
        measured = "–" if value is None else number(unit, value["p50"])
        spread = "–" if value is None else f"{number(unit, value['p10'])}..{number(unit, value['p90'])}"
        measured = measured if goal["met"] or value is None else f"**{measured}**"
        text += (f"| {goal['what']} | {goal['ours'] or '–'} | {goal['peer'] or '–'} | {wanted} "
                 f"| {measured} | {spread} |\n")
    return text


def settings_text(settings):
    """`a=1, b.c=2` of nested settings."""
    parts = []
    for key, value in settings.items():
        if isinstance(value, dict):
            parts += [f"{key}.{name}={one}" for name, one in value.items()]
        else:
            parts.append(f"{key}={value}")
    return ", ".join(parts)


def engines(document):
    """Numeric formats of each engine, then every form that ran."""
    text = "| engine | weights | activations | keys and values |\n| --- | --- | --- | --- |\n"
    for engine, formats in document["formats"].items():
        text += (f"| {engine} | {formats['weights']} | {formats['activations']} "
                 f"| {formats['kv']} |\n")
    text += ("\n| form | version | settings | model and prompt |\n| --- | --- | --- | --- |\n")
    where = {}
    for result in document["results"]:
        for peer in result["peers"]:
            key = (peer["name"], peer["version"], settings_text(peer["settings"]))
            where.setdefault(key, []).append(result["name"])
    for (name, version, settings), cases in where.items():
        text += f"| {name} | {version} | `{settings}` | {', '.join(cases)} |\n"
    return text


def our_median(result, table, key):
    return statistics.median(one["ours"]["rows"][table][key]["p50"] for one in result["rounds"])


def times(document):
    """Absolute times of all engines; the fastest of a column is not marked, the goals say it."""
    text = ("| model and prompt | engine | first token, s | prompt tokens/s | a later token, ms "
            "| load, s | rounds |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
    for result in document["results"]:
        rounds = result["rounds"]
        lines = []
        for idx, row in enumerate(rounds[0]["ours"]["rows"] if rounds else []):
            load = statistics.median(one["ours"]["load_seconds"] for one in rounds)
            lines.append((f"**Lacuna**, {row['form']}", our_median(result, idx, FIRST),
                          our_median(result, idx, STEP), load, len(rounds)))
        for peer in result["peers"]:
            ran = [one["peers"][peer["name"]] for one in rounds if peer["name"] in one["peers"]]
            if ran:
                first, step = (statistics.median(one[key]["p50"] for one in ran)
                               for key in (FIRST, STEP))
                lines.append((peer["name"], first, step, peer["load_seconds"], len(ran)))
        for name, first, step, load, count in lines:
            text += (f"| {result['name']} | {name} | {first:.3g} "
                     f"| {result['length_tokens'] / first:.0f} | {1e3 * step:.2f} | {load:.2f} "
                     f"| {count} |\n")
    return text


def parts(document):
    """Where our time goes: a line for each form's prompt and one for its step."""
    text = "| model and prompt | form | of |" + "".join(f" {part.replace('_', ' ')} |" for part in PARTS)
    text += " **all** |\n| --- | --- | --- |" + " ---: |" * (1 + len(PARTS)) + "\n"
    for result in document["results"]:
        for idx, row in enumerate(result["rounds"][0]["ours"]["rows"] if result["rounds"] else []):
            rows = [one["ours"]["rows"][idx] for one in result["rounds"]]
            step = statistics.median(sum(one["step_parts_seconds"].values()) for one in rows)
            for of, key, scale, whole in (
                    ("prompt, s", "prefill_parts_seconds", 1, our_median(result, idx, FIRST)),
                    ("a step, ms", "step_parts_seconds", 1e3, step)):
                text += f"| {result['name']} | {row['form']} | {of} |"
                for part in PARTS:
                    found = [one[key].get(part) for one in rows]
                    text += " – |" if None in found else f" {scale * statistics.median(found):.3f} |"
                text += f" {scale * whole:.3f} |\n"
    return text


def quantities(document):
    """The four quantities, needed, predicted with tiles and pages, and measured."""
    text = ("| model and prompt | table | quantity | needed | predicted | measured | difference |\n"
            "| --- | --- | --- | ---: | ---: | ---: | ---: |\n")
    for result in document["results"]:
        for idx, row in enumerate(result["rounds"][0]["ours"]["rows"] if result["rounds"] else []):
            said = result["predicted"][idx]
            lines = [("pairs executed, prompt", row["needed_pairs"],
                      row["predicted_executed_pairs"], row["executed_pairs"]),
                     ("bytes held after the last step", said["kv_held_bytes"],
                      row["predicted_held_bytes"], row["held_bytes"]),
                     ("bytes of K and V read, all steps", said["kv_read_bytes"],
                      row["predicted_read_bytes"], row["read_bytes"])]
            for what, needed, predicted, measured in lines:
                text += (f"| {result['name']} | {row['form']} | {what} | {needed:,} | {predicted:,} "
                         f"| {measured:,} | {measured - predicted:,} |\n")
            hops = "–" if said["hops"] is None else said["hops"]
            text += (f"| {result['name']} | {row['form']} | hops from the first token to the last "
                     f"| {hops} | {hops} | – | – |\n")
    return text


def second_opinion(document):
    """How near llama.cpp and ours come to the reference; an agreement that misses its bound is bold."""
    text = (f"llama.cpp is that of llama-cpp-python {document['version']}; wanted of it is the same "
            f"likeliest token at {100 * document['wanted']:.0f} % of all positions.\n\n"
            "| model | engine and its numbers | same likeliest token | positions with another | lead there, "
            "p50, p90, largest | as wanted from a lead of | positions with that lead | KL, mean "
            "| KL, largest | NLL off by |\n"
            f"| --- | --- |{' ---: |' * 8}\n")
    for one in document["results"]:
        count, sure, off = one["positions"], one["sure"], one["leads_where_off"]
        leads = ", ".join(f"{off[key]:.2g}" for key in ("p50", "p90", "max")) if off else "–"
        agreement = f"{100 * one['agreement']:.2f} %"
        text += (f"| {one['model']} | {one['engine']}, {one['form']} "
                 f"| {f'**{agreement}**' if one['met'] is False else agreement} "
                 f"| {count - one['agreeing']} of {count} | {leads} ")
        text += (f"| {sure['least_lead']:.3f} | {100 * sure['positions'] / count:.1f} % "
                 if sure and not one["met"] else "| – | – ")
        text += (f"| {one['divergence']:.1e} | {one['largest_divergence']:.1e} "
                 f"| {100 * one['nll_off']:.2g} % ± {100 * one['nll_off_error']:.1g} |\n")
    return text


TABLES = {"model goals": goals, "model engines": engines, "model times": times,
          "model parts": parts, "model quantities": quantities, "second opinion": second_opinion}
