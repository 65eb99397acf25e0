"""Decode steps of Lacuna beside PyTorch's attention, in one run on this machine.

    decode_peers.py PROGRAM [--rounds N] [--threads N] [--length N] [--json FILE]

PROGRAM is build/lacuna. One query token, 32 query heads on 8 KV heads of width 128, over a cache of
--length tokens (32768), layer after layer, so that no layer's keys are still in a cache. PyTorch has its
keys and values where it wants them, contiguous by head, and stands in every form a user would try:
scaled_dot_product_attention with grouped heads and with expanded ones, and the three operations
written out. Rounds take turns, ratios are taken round by round, and the bound is against the form
that is fastest in the median. Appending, pages and planning are inside our step and not in the
peer's. This script runs in the environment that `./dev bench --peers` makes.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

from attention_peers import percentiles

NUM_Q_HEADS, NUM_KV_HEADS, HEAD_DIM, LAYERS = 32, 8, 128, 2
BOUND = 3.0
SECONDS = 0.3  # a timed figure repeats steps for so long


def our_step(program, dtype, length, threads):
    """Seconds of a step and the share of the probed bandwidth, from a cache filled anew."""
    command = [program, "bench", "decode", "--attend", "full", "--num-layers", LAYERS,
               "--num-q-heads", NUM_Q_HEADS, "--num-kv-heads", NUM_KV_HEADS, "--head-dim", HEAD_DIM,
               "--length", length, "--kv-dtype", dtype, "--threads", threads, "--repetitions", 1,
               "--min-time-ms", int(1000 * SECONDS), "--json"]
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True,
                            stderr=subprocess.DEVNULL)
    return json.loads(result.stdout)["rows"][0]


def peer_forms(torch, dtype, length):
    """name -> step(layer)."""
    functional = torch.nn.functional
    torch.manual_seed(1)
    kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    group = NUM_Q_HEADS // NUM_KV_HEADS
    q = torch.randn(1, NUM_Q_HEADS, 1, HEAD_DIM).to(kind)
    layers = [tuple(torch.randn(1, NUM_KV_HEADS, length, HEAD_DIM).to(kind) for _ in "kv")
              for _ in range(LAYERS)]
    wide = [tuple(x.repeat_interleave(group, dim=1).contiguous() for x in layer)
            for layer in layers]
    grouped = q.view(NUM_KV_HEADS, group, HEAD_DIM)

    def sdpa_grouped(layer):
        return functional.scaled_dot_product_attention(q, *layers[layer], enable_gqa=True)

    def sdpa_expanded(layer):
        return functional.scaled_dot_product_attention(q, *wide[layer])

    def written_out(layer):
        k, v = (x[0] for x in layers[layer])
        scores = torch.bmm(grouped, k.transpose(1, 2)) / math.sqrt(HEAD_DIM)
        return torch.bmm(torch.softmax(scores, dim=-1), v).view(1, NUM_Q_HEADS, 1, HEAD_DIM)

    forms = {"sdpa, enable_gqa": sdpa_grouped, "sdpa, expanded K and V": sdpa_expanded,
             "matmul, softmax, matmul": written_out}
    exact = written_out(0).float()
    for name, form in forms.items():
        error = (form(0).float() - exact).abs().max().item()
        if not error < 0.02:
            raise ValueError(f"{name} is off by {error}")
    return forms


def peer_step(form):
    """Seconds of a step over all layers: the mean of as many as fill SECONDS."""
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < SECONDS or steps == 0:
        for layer in range(LAYERS):
            form(layer)
        steps += 1
    return (time.perf_counter() - begin) / steps


def compared(dtype, rounds):
    """The result of one dtype: rounds are {"ours": seconds, form: seconds, …}."""
    peers = {name: statistics.median(one["peers"][name] for one in rounds)
             for name in rounds[0]["peers"]}
    best = min(peers, key=peers.get)
    return {"dtype": dtype, "ours_seconds": statistics.median(one["ours"] for one in rounds),
            "share_of_bandwidth": statistics.median(one["share"] for one in rounds),
            "peers_seconds": peers, "best_peer": best,
            "speedup": percentiles([one["peers"][best] / one["ours"] for one in rounds]),
            "rounds": rounds}


def table_text(results):
    text = ""
    for one in results:
        text += (f"{one['dtype']}: ours {1e3 * one['ours_seconds']:.2f} ms a step, "
                 f"{100 * one['share_of_bandwidth']:.0f} % of the probed bandwidth; "
                 f"{one['speedup']['p50']:.2f} times faster than {one['best_peer']}\n")
        for name, seconds in one["peers_seconds"].items():
            text += f"    {name}: {1e3 * seconds:.2f} ms\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--json", help="file to write the result into")
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    import torch
    torch.set_num_threads(options.threads)
    results = []
    with torch.inference_mode():
        for dtype in ("bf16", "f32"):
            forms = peer_forms(torch, dtype, options.length)
            rounds = []
            for number in range(options.rounds):
                print(f"{dtype}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
                row = our_step(program, dtype, options.length, options.threads)
                rounds.append({"ours": row["step_seconds"]["p50"],
                               "share": row["share_of_bandwidth"]["p50"],
                               "peers": {name: peer_step(form) for name, form in forms.items()}})
            results.append(compared(dtype, rounds))
    bf16 = results[0]["speedup"]["p50"]
    document = {"format": "lacuna-decode-peers", "format_version": 1, "kind": "measured",
                "threads": options.threads, "length_tokens": options.length, "layers": LAYERS,
                "num_rounds": options.rounds, "results": results,
                "goals": [{"what": f"decode of kv {options.length}, bf16, {options.threads} threads,"
                                   " over PyTorch in its best form",
                           "bound": BOUND, "value": bf16, "met": bf16 >= BOUND}]}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")
    print(table_text(results), end="")


if __name__ == "__main__":
    main()
