"""Lacuna's attention kernels beside PyTorch's, in one run on this machine.

    attention_peers.py PROGRAM [--rounds N] [--threads N]… [--only TEXT] [--cpu-time] [--json FILE]
    attention_peers.py PROGRAM --verify N

PROGRAM is build/lacuna. Rows are dense and windowed attention over 4096 tokens in f32 and bf16. Every
peer is in the form that is fastest here, and starts as we do from contiguous tensors; its block masks
and compilation are outside its times. FlexAttention stands twice: with its default blocks of 128, and
with the fastest of smaller ones. Rounds go over all rows, ours and theirs in turns, and ratios
are taken round by round. --verify instead compares results: N random problems, computed by PyTorch in
double with a dense mask. This script runs in the environment that `./dev bench --peers` makes.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

ATTENDS = ("full", "window(512)", "window(128)")
DTYPES = ("f32", "bf16")
PEERS = {"full": ("sdpa", "flex"), "window": ("sdpa", "flex", "flex_tuned")}
LARGEST_ERROR = {"f32": 1e-4, "bf16": 0.05}  # of a peer's own result: it must compute the same thing

# What is wanted, and never asserted: (what, attend, our dtype, peer, dtypes of which its best, bound).
GOALS = [("dense causal f32, D 128, over SDPA f32", "full", "f32", "sdpa", ("f32",), 1.25),
         ("dense causal bf16, D 128, over SDPA bf16", "full", "bf16", "sdpa", ("bf16",), 2.0)]
GOALS += [(f"window {width} {dtype}, over compiled FlexAttention in its best dtype{words}",
           f"window({width})", dtype, peer, DTYPES, bound)
          for peer, words in (("flex", ""), ("flex_tuned", " and block size"))
          for width, bound in ((512, 2.7), (128, 3.0)) for dtype in DTYPES]


class Process:
    """A program that says one JSON line when it is ready, and one for each line it is sent."""

    def __init__(self, command, threads=None):
        env = dict(os.environ)
        for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
            env.pop(name, None)  # set on some machines for old builds; they slow a current one
        if threads is not None:
            env.update(OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_COMPILE_THREADS="1")
        self._command = command
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True, env=env)
        try:
            self.ready = self._answer()
        except ValueError:
            self.end()
            raise

    def _answer(self):
        line = self._child.stdout.readline()
        if not line:
            raise ValueError(f"ended without an answer: {' '.join(map(str, self._command))[:200]}")
        return json.loads(line)

    def ask(self, line):
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()
        return self._answer()

    def end(self):
        try:
            self._child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()


# --- figures ---------------------------------------------------------------------------------------


def percentiles(samples):
    """p10, p50 and p90 at the place (n-1)·p/100, linear between neighbours."""
    ordered = sorted(samples)

    def at(percent):
        place = (len(ordered) - 1) * percent / 100
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return {"p10": at(10), "p50": at(50), "p90": at(90)}


def compared(row, peer, ready, rounds):
    """One line of the result: rounds are {"ours_seconds", "peer_seconds"}."""
    ours = statistics.median(one["ours_seconds"] for one in rounds)
    theirs = statistics.median(one["peer_seconds"] for one in rounds)
    return {"row": row["name"], "attend": row["attend"], "dtype": row["dtype"],
            "threads": row["threads"], "isa": row["isa"], "peer": peer, "peer_is": ready,
            "ours_useful_flops_per_s": row["useful_flops"] / ours,
            "peer_useful_flops_per_s": row["useful_flops"] / theirs,
            "speedup": percentiles([one["peer_seconds"] / one["ours_seconds"] for one in rounds]),
            "rounds": rounds}


def goal_value(results, attend, dtype, peer, peer_dtypes, threads):
    """Our rate over the peer's in its best dtype, round by round; None where a row is missing."""
    def found(one_dtype):
        for one in results:
            if (one["attend"], one["dtype"], one["peer"], one["threads"]) == (
                    attend, one_dtype, peer, threads):
                return one["rounds"]
        return None

    ours = found(dtype)
    theirs = [rounds for rounds in map(found, peer_dtypes) if rounds]
    if ours is None or not theirs:
        return None
    return percentiles([min(rounds[idx]["peer_seconds"] for rounds in theirs)
                        / one["ours_seconds"] for idx, one in enumerate(ours)])


def goals_of(results, threads):
    goals = []
    for what, attend, dtype, peer, peer_dtypes, bound in GOALS:
        value = goal_value(results, attend, dtype, peer, peer_dtypes, threads)
        goals.append({"what": what + (f", {threads} threads" if threads > 1 else ""),
                      "bound": bound, "value": value,
                      "met": value is not None and value["p50"] >= bound})
    return goals


def table_text(results, goals):
    text = f"{'row':<40} {'peer':<10} {'ours':>8} {'peer':>8}  GFLOP/s   times faster (p10..p90)\n"
    for one in results:
        speedup = one["speedup"]
        text += (f"{one['row']:<40} {one['peer']:<10} {one['ours_useful_flops_per_s'] * 1e-9:8.1f} "
                 f"{one['peer_useful_flops_per_s'] * 1e-9:8.1f}            {speedup['p50']:6.2f} "
                 f"({speedup['p10']:.2f}..{speedup['p90']:.2f})  {one['peer_is']['form']}\n")
    text += "\n"
    for goal in goals:
        value = "not timed" if goal["value"] is None else f"{goal['value']['p50']:.2f}"
        text += f"{goal['what']}: wanted {goal['bound']}, measured {value}"
        text += "\n" if goal["met"] or goal["value"] is None else "  (not reached)\n"
    return text


# --- the run ---------------------------------------------------------------------------------------


def our_command(options):
    command = [options.program, "bench", "kernels", "--on-request"]
    for flag, values in (("--attend", ATTENDS), ("--dtype", DTYPES), ("--threads", options.threads)):
        for value in values:
            command += [flag, str(value)]
    command += ["--cpu-time"] if options.cpu_time else []
    return command + (["--only", options.only] if options.only else [])


def say(words):
    print(words, file=sys.stderr, flush=True)


def start_peers(rows, cpu_time):
    """[(row index, peer, process)]; a peer that cannot run, or computes something else, is left out."""
    peers = []
    for idx, row in enumerate(rows):
        for peer in PEERS[row["attend"].partition("(")[0]]:
            say(f"making ready: {peer}, {row['name']}")
            job = json.dumps({"peer": peer, "row": row, "cpu_time": cpu_time})
            try:
                process = Process([sys.executable, "-B", HERE / "peer_worker.py", job],
                                  row["threads"])
            except ValueError as error:
                say(f"left out: {error}")
                continue
            error = process.ready["max_error"]
            if not error <= LARGEST_ERROR[row["dtype"]]:
                say(f"left out: {peer}, {row['name']} is off by {error}")
                process.end()
                continue
            peers.append((idx, peer, process))
    return peers


def timed(ours, peers, num_rounds):
    """Rounds over all rows, ours before its peers."""
    rounds = {(idx, peer): [] for idx, peer, _ in peers}
    for number in range(num_rounds):
        say(f"round {number + 1} of {num_rounds}")
        for idx in sorted({idx for idx, _, _ in peers}):
            our_seconds = ours.ask(idx)["whole_seconds"]
            for of_idx, peer, process in peers:
                if of_idx == idx:
                    rounds[idx, peer].append({"ours_seconds": our_seconds,
                                              "peer_seconds": process.ask("go")["seconds"]})
    return rounds


def run(options):
    ours = Process(our_command(options))
    rows = ours.ready["rows"]
    peers = start_peers(rows, options.cpu_time)
    try:
        rounds = timed(ours, peers, options.rounds)
    finally:
        for process in [ours, *(process for _, _, process in peers)]:
            process.end()
    results = [compared(rows[idx], peer, process.ready, rounds[idx, peer])
               for idx, peer, process in peers]
    goals = [goal for threads in options.threads for goal in goals_of(results, threads)]
    document = {"format": "lacuna-attention-peers", "format_version": 1, "kind": "measured",
                "clock": "cpu" if options.cpu_time else "wall",
                "num_rounds": options.rounds, "results": results, "goals": goals}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")
    print(table_text(results, goals), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--cpu-time", action="store_true",
                        help="times are CPU time: one thread on a machine that other work shares")
    parser.add_argument("--json", help="file to write the result into")
    parser.add_argument("--verify", type=int, help="compare the results of so many random problems")
    options = parser.parse_args()
    options.threads = options.threads or [1]
    options.program = str(pathlib.Path(options.program).resolve())
    if options.verify is None:
        run(options)
        return
    import peer_verify  # needs torch
    sys.exit(peer_verify.verify(options.program, options.verify))


if __name__ == "__main__":
    main()
