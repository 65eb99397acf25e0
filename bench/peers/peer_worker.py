"""One peer on one problem, in a process of its own: compiled FlexAttention falls back to eager code
once a process has compiled too often, and the number of threads is a process's own.

    peer_worker.py JOB    JOB is JSON: row (of `lacuna bench kernels`), peer: "sdpa", "flex" (blocks
                          of 128, its default) or "flex_tuned" (the fastest smaller block);
                          cpu_time: seconds are those in which the process had a CPU

Prints one JSON line when it is ready, then one for every line of standard input: the mean seconds of
a call. What is prepared outside the timed calls (block masks, expanded keys and values, compilation)
is reported beside them.
"""

import json
import math
import sys
import time

import torch
import torch.nn.functional as F

from topology_mask import mask_of

SHORT_SECONDS = 1.0
SAMPLE_SECONDS = 0.01  # calls are repeated until a timed figure takes so long, as ours are


def tensors_of(row):
    """q, k, v [1, heads, tokens, dims], contiguous."""
    torch.manual_seed(1)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[row["dtype"]]

    def draw(heads, dims):
        return torch.randn(1, heads, row["length_tokens"], dims).to(dtype)

    return (draw(row["num_q_heads"], row["head_dim"]), draw(row["num_kv_heads"], row["head_dim"]),
            draw(row["num_kv_heads"], row["v_head_dim"]))


def expanded(row, tensor):
    return tensor.repeat_interleave(row["num_q_heads"] // row["num_kv_heads"], dim=1).contiguous()


def dense_mask(row):
    positions = torch.arange(row["length_tokens"])
    reads = mask_of(row["attend"], row["causal"])
    length = row["length_tokens"]
    return reads(positions[:, None], positions[None, :], length).expand(length, length)


def sdpa_forms(row):
    """name -> call, every way to ask that a user would try."""
    q, k, v = tensors_of(row)
    options = {"is_causal": True}
    if row["attend"] != "full" or not row["causal"]:
        options = {"attn_mask": dense_mask(row)}
    wide_k, wide_v = expanded(row, k), expanded(row, v)
    forms = {"expanded K and V": lambda: F.scaled_dot_product_attention(q, wide_k, wide_v, **options)}
    if row["num_q_heads"] != row["num_kv_heads"]:
        forms["enable_gqa"] = lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True,
                                                                     **options)
    return forms, {}


def flex_forms(row, blocks):
    """Compiled FlexAttention over block masks of these sizes."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    # An eager fallback must not pass for the compiled peer.
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # pylint: disable=protected-access
    q, k, v = tensors_of(row)
    wide_k, wide_v = expanded(row, k), expanded(row, v)
    length = row["length_tokens"]
    reads = mask_of(row["attend"], row["causal"])
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    forms, facts = {}, {"block_mask_seconds": {}}
    for size in blocks:
        begin = time.perf_counter()
        mask = create_block_mask(lambda b, h, i, j: reads(i, j, length), None, None, length, length,
                                 device="cpu", BLOCK_SIZE=size)
        facts["block_mask_seconds"][str(size)] = time.perf_counter() - begin
        forms[f"enable_gqa, blocks of {size}"] = (
            lambda mask=mask: compiled(q, k, v, block_mask=mask, enable_gqa=True))
        forms[f"expanded K and V, blocks of {size}"] = (
            lambda mask=mask: compiled(q, wide_k, wide_v, block_mask=mask))
    return forms, facts


FORMS = {"sdpa": sdpa_forms,
         "flex": lambda row: flex_forms(row, (128,)),  # its default
         "flex_tuned": lambda row: flex_forms(row, (64, 32, 16))}


def error_of(row, out):
    """Largest error of some rows and heads against the definition in double."""
    q, k, v = (tensor.double() for tensor in tensors_of(row))
    reads = mask_of(row["attend"], row["causal"])
    keys = torch.arange(row["length_tokens"])
    group = row["num_q_heads"] // row["num_kv_heads"]
    worst = 0.0
    for step in range(8):
        i = step * (row["length_tokens"] - 1) // 7
        head = (step * 3) % row["num_q_heads"]
        scores = k[0, head // group] @ q[0, head, i] / math.sqrt(row["head_dim"])
        mask = reads(torch.tensor(i), keys, row["length_tokens"])
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), 0)
        worst = max(worst, (weights @ v[0, head // group] - out[0, head, i].double()).abs().max().item())
    return worst


def seconds_of(call, calls, clock=time.perf_counter):
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls


def fastest(forms, clock):
    """(name, call, first seconds, steady seconds, what failed) of the best form."""
    best, failed = None, {}
    for name, call in forms.items():
        try:
            first = seconds_of(call, 1)  # compiles
            steady = min(seconds_of(call, 1, clock) for _ in range(3))
        except Exception as error:  # pylint: disable=broad-except
            failed[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        if best is None or steady < best[3]:
            best = (name, call, first, steady)
    if best is None:
        raise RuntimeError(f"no form runs: {failed}")
    return (*best, failed)


def main():
    job = json.loads(sys.argv[1])
    row = job["row"]
    clock = time.process_time if job["cpu_time"] else time.perf_counter
    torch.set_num_threads(row["threads"])
    with torch.inference_mode():
        forms, facts = FORMS[job["peer"]](row)
        name, call, first, steady, failed = fastest(forms, clock)
        calls = max(1, math.ceil(SAMPLE_SECONDS / steady))
        ready = {"form": name, "first_seconds": first, "calls_per_run": calls,
                 "max_error": error_of(row, call()), "torch": torch.__version__,
                 "threads": torch.get_num_threads(), "failed_forms": failed, **facts}
        print(json.dumps(ready), flush=True)
        for _ in sys.stdin:
            if steady < SHORT_SECONDS:
                call()  # other processes ran since: bring the tensors back, as our rows do
            print(json.dumps({"seconds": seconds_of(call, calls, clock)}), flush=True)


if __name__ == "__main__":
    main()
