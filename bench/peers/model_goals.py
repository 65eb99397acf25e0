"""What is wanted of whole models beside their peers: figures, round by round, of the results of
model_peers.py, and the bounds that stand beside them. Nothing is measured here.
"""

import statistics

from attention_peers import percentiles

WINDOW = "window(1024)+sink(4)"
LLAMA, OPENVINO = "llama.cpp", "OpenVINO GenAI"
FIRST, STEP = "first_token_seconds", "step_seconds"


def median_of_ours(one, key, idx=0):
    return one["ours"]["rows"][idx][key]["p50"]


def fastest_of_ours(result, key, table):
    """The row of the table'th layer table whose keys make it the fastest."""
    rows = result["rounds"][0]["ours"]["rows"]
    return min((idx for idx, row in enumerate(rows) if row["table"] == rows[table]["table"]),
               key=lambda idx: statistics.median(median_of_ours(one, key, idx)
                                                 for one in result["rounds"]))


def seconds_of_peer(result, name, key):
    """Of every round; None where the peer did not run."""
    return [one["peers"][name][key]["p50"] if name in one["peers"] else None
            for one in result["rounds"]]


def fastest(result, key, engine=None, kind="dense"):
    """The name of the fastest form among those that ran in the most rounds, or None."""
    times = {}
    for peer in result["peers"]:
        if peer["kind"] == kind and engine in (None, peer["engine"]):
            ran = [one for one in seconds_of_peer(result, peer["name"], key) if one is not None]
            if ran:
                times[peer["name"]] = (-len(ran), statistics.median(ran))
    return min(times, key=times.get) if times else None


def over_peer(key, engine=None, kind="dense", table=0):
    """The seconds of our fastest form over those of the peer's."""
    def values(result):
        idx = fastest_of_ours(result, key, table)
        name = fastest(result, key, engine, kind)
        theirs = seconds_of_peer(result, name, key) if name else []
        return result["rounds"][0]["ours"]["rows"][idx]["form"], name, [
            median_of_ours(one, key, idx) / seconds
            for one, seconds in zip(result["rounds"], theirs) if seconds is not None]
    return values


def of_ours(function):
    """A figure of a round of ours with bf16 keys, beside which there is no peer."""
    return lambda result: (result["rounds"][0]["ours"]["rows"][0]["form"], None,
                           [function(one["ours"], result) for one in result["rounds"]])


def over_bound(one, _result):
    row = one["rows"][0]
    return row[STEP]["p50"] / row["bound_seconds"]["p50"]


def seconds_over_pairs(one, _result):
    own, window = one["rows"][:2]
    seconds = (window["prefill_parts_seconds"]["attention"]
               / own["prefill_parts_seconds"]["attention"])
    return seconds / (window["executed_pairs"] / own["executed_pairs"])


def held_off(one, _result):
    row = one["rows"][0]
    return row["held_bytes"] - row["predicted_held_bytes"]


def held_over_full(one, result):
    full = next(table for table in result["predicted"] if table["table"] == "full")
    return one["rows"][0]["held_bytes"] / full["paged_held_bytes"]


def upkeep_share(one, _result):
    parts = one["rows"][0]["step_parts_seconds"]
    return (parts["scheduling"] + parts["append"]) / sum(parts.values())


def load_seconds(one, _result):
    return one["load_seconds"]


# What is wanted, and never asserted: (what, case, unit, at most, values); a bound of None is shown.
GOALS = (
    ("SmolLM2, 8128 tokens, first token: over OpenVINO GenAI, dense", "smollm2-135m 8128", "times",
     0.75, over_peer(FIRST, OPENVINO)),
    ("SmolLM2, 8128 tokens, first token: over llama.cpp", "smollm2-135m 8128", "times", 0.25,
     over_peer(FIRST, LLAMA)),
    (f"SmolLM2, 8128 tokens, {WINDOW}, first token: over OpenVINO GenAI's sparse prefill",
     "smollm2-135m 8128", "times", 0.75, over_peer(FIRST, OPENVINO, "sparse", table=1)),
    # A window of 512 may cost 1/0.85 as much a pair as dense attention does: the kernels' own goal.
    (f"SmolLM2, 8128 tokens, {WINDOW} over dense: attention seconds over executed pairs",
     "smollm2-135m 8128", "times", 1.18, of_ours(seconds_over_pairs)),
    ("SmolLM2, a token after 8128: over the better peer", "smollm2-135m 8128", "times", 0.4,
     over_peer(STEP)),
    ("SmolLM2, a token after 8128: over its bytes, as the file stores them, at the probe's bandwidth",
     "smollm2-135m 8128", "times", 1.5, of_ours(over_bound)),
    ("SmolLM2, a token after 960: over OpenVINO GenAI", "smollm2-135m 960", "times", 0.6,
     over_peer(STEP, OPENVINO)),
    ("Gemma 3, 32512 tokens, first token: over llama.cpp", "gemma-3-270m 32512", "times", 0.45,
     over_peer(FIRST, LLAMA)),
    ("Gemma 3, 32512 tokens, first token: over llama.cpp, with products of 8 bits",
     "gemma-3-270m 32512", "times", 0.35, over_peer(FIRST, LLAMA)),
    ("Gemma 3, a token after 32512: over llama.cpp", "gemma-3-270m 32512", "times", 0.45,
     over_peer(STEP, LLAMA)),
    ("Gemma 3, 32512 tokens: K and V held, less those predicted", "gemma-3-270m 32512", "bytes", 0,
     of_ours(held_off)),
    ("Gemma 3, 32512 tokens: K and V held, over those of full layers only", "gemma-3-270m 32512",
     "share", None, of_ours(held_over_full)),
    ("Gemma 3, a token after 1024: share of plans, pages and appending", "gemma-3-270m 1024", "share",
     0.05, of_ours(upkeep_share)),
    ("SmolLM2: load time", "smollm2-135m 960", "seconds", 1.5, of_ours(load_seconds)),
    ("Gemma 3: load time", "gemma-3-270m 1024", "seconds", 1.5, of_ours(load_seconds)))


def goal_of(what, result, unit, bound, values):
    ours, peer, found = values(result) if result and result["rounds"] else (None, None, [])
    value = percentiles(found) if found else None
    worst = value and (max(found, key=abs) if unit == "bytes" else value["p50"])
    met = value is not None and (bound is None or abs(worst) <= bound)
    return {"what": what, "unit": unit, "bound": bound, "at_most": True, "ours": ours, "peer": peer,
            "value": value, "met": met}


def goals_of(results):
    by_name = {result["name"]: result for result in results}
    return [goal_of(what, by_name.get(case), unit, bound, values)
            for what, case, unit, bound, values in GOALS]


def goal_text(goal):
    scale, unit = {"share": (100, " %"), "times": (1, "×"), "seconds": (1, " s"),
                   "bytes": (1, " bytes")}[goal["unit"]]

    def number(value):
        return f"{scale * value:.3g}{unit}"
    forms = [form for form in (goal["ours"], goal["peer"]) if form]
    text = goal["what"] + (f" ({'; '.join(forms)})" if forms else "")
    if goal["bound"] is not None:
        text += f": wanted ≤ {number(goal['bound'])}"
    if goal["value"] is None:
        return f"{text}, not timed\n"
    return (f"{text}, measured {number(goal['value']['p50'])} ({number(goal['value']['p10'])}.."
            f"{number(goal['value']['p90'])}){'' if goal['met'] else '  (not reached)'}\n")


def times_text(result):
    rounds = result["rounds"]
    if not rounds:
        return f"{result['name']}: no round is done\n"
    text = f"{result['name']}: seconds to the first token, ms of a later one\n"
    lines = [(f"Lacuna, {row['form']}", *([median_of_ours(one, key, idx) for one in rounds]
                                           for key in (FIRST, STEP)))
             for idx, row in enumerate(rounds[0]["ours"]["rows"])]
    lines += [(peer["name"], *([one for one in seconds_of_peer(result, peer["name"], key)
                                if one is not None] for key in (FIRST, STEP)))
              for peer in result["peers"]]
    for name, first, step in lines:
        if first:
            text += (f"    {name:<42} {statistics.median(first):8.2f} "
                     f"{1e3 * statistics.median(step):8.2f}  {len(first)} round(s)\n")
    return text
