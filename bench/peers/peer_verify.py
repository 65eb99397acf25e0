"""Random problems, computed by `lacuna bench kernels --dump-dir` and by PyTorch in double."""

import json
import math
import pathlib
import random
import subprocess
import tempfile

import torch
import torch.nn.functional as F

from random_problems import draw_problem, flags_of
from topology_mask import mask_of

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

# Of out and lse, for values of unit variance. f32 and f16 inputs: sums of some hundred terms in f32.
# bf16: weights may be rounded to 8 bits before the second product. 16-bit results are rounded once.
TOLERANCE = {"f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}


def read(folder, tensor):
    data = bytearray((folder / tensor["file"]).read_bytes())
    return torch.frombuffer(data, dtype=DTYPES[tensor["dtype"]]).reshape(tensor["shape"]).double()


def scores_and_mask(problem, q, k):
    """Scores [heads, rows, keys] of masked pairs -inf, and the mask [rows, keys]."""
    length, rows = problem["length"], problem["rows"]
    positions = torch.arange(length)
    reads = mask_of(problem["attend"], problem["causal"])
    mask = reads(positions[length - rows:, None], positions[None, :], length).expand(rows, length)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(problem["head_dim"])
    return scores.masked_fill(~mask, -math.inf), mask


def expected(problem, tensors):
    """out [rows, heads, dims] and lse [rows, heads] of the definition."""
    group = problem["num_q_heads"] // problem["num_kv_heads"]
    q = tensors["q"]
    k, v = (tensors[name].repeat_interleave(group, dim=1) for name in ("k", "v"))
    scores, mask = scores_and_mask(problem, q, k)
    if "sinks" in tensors:
        sinks = tensors["sinks"].reshape(-1, 1, 1).expand(-1, scores.shape[1], 1)
        with_sinks = torch.cat([scores, sinks], dim=2)
        out = torch.einsum("hqk,khd->qhd", torch.softmax(with_sinks, 2)[:, :, :-1], v)
        return out, torch.logsumexp(with_sinks, 2).T, mask
    out = F.scaled_dot_product_attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1),
                                         attn_mask=mask).transpose(0, 1)
    empty = ~mask.any(dim=1)
    out = out.masked_fill(empty[:, None, None], 0.0)  # by our contract; PyTorch's is its own
    return out, torch.logsumexp(scores, 2).T, mask


def largest_error(ours, theirs):
    """Equal infinities do not differ; anything else that is not finite does, without bound."""
    differ = (ours - theirs).abs()
    differ = torch.where(ours == theirs, torch.zeros_like(differ), differ)
    return torch.nan_to_num(differ, nan=math.inf).max().item() if differ.numel() else 0.0


def judge(folder):
    """What is wrong with the problem in the folder, or "" — and a line that says what it was."""
    problem = json.loads((folder / "problem.json").read_text(encoding="utf-8"))
    tensors = {name: read(folder, tensor) for name, tensor in problem["tensors"].items()}
    out, lse, mask = expected(problem, tensors)
    errors = largest_error(tensors["out"], out), largest_error(tensors["lse"], lse)
    needed = int(mask.sum()) * problem["num_q_heads"]
    line = f"{problem['name']}: out off by {errors[0]:.1e}, lse by {errors[1]:.1e}, {needed} pairs"
    tolerance = TOLERANCE[problem["tensors"]["q"]["dtype"]]
    if max(errors) > tolerance:
        return f"off by more than {tolerance}", line
    if needed != problem["needed_pairs"]:
        return f"the program counts {problem['needed_pairs']} pairs", line
    return "", line


def verify(program, num_problems):
    """0 where all agree."""
    numbers = random.Random(20)
    num_wrong = 0
    for idx in range(num_problems):
        with tempfile.TemporaryDirectory(prefix="lacuna-peers-") as name:
            command = [program, "bench", "kernels", "--dump-dir", name, "--seed", str(idx),
                       *flags_of(draw_problem(numbers))]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=300)
            problem, line = judge(pathlib.Path(name))
        num_wrong += problem != ""
        print(f"{'WRONG, ' + problem if problem else 'agrees'}: {line}", flush=True)
    print(f"{num_problems - num_wrong} of {num_problems} problems agree with PyTorch "
          f"{torch.__version__} in double")
    return 1 if num_wrong else 0
