"""llama.cpp as a second opinion on the forward pass: where its likeliest token is that of the reference.

    llama_opinion.py [--model NAME]… [--reference FOLDER] [--threads N] [--json FILE]

The reference is what transformers answers in f32 on the dequantized weights, to prompts of 1 to 4096
tokens (tools/make_model_reference.py). llama.cpp reads the same file and the same token ids, with
flash attention and without, and rounds the inputs of its products to 8 bits. For positions where it
disagrees the text says how far the reference's best token led its second. This script runs in the
environment that `./dev bench --results` makes.
"""

import argparse
import json
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from model_reference import read_reference  # noqa: E402  pylint: disable=wrong-import-position

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lacuna"
MODELS = ("smollm2-135m", "gemma-3-270m")
WANTED = 0.98
PERCENTS = (10, 50, 90, 100)


def llama_best(path, prompts, threads, flash):
    """For each prompt the likeliest token at each position."""
    import llama_cpp
    longest = max(len(ids) for ids in prompts)
    llama = llama_cpp.Llama(str(path), n_ctx=-(-longest // 256) * 256, n_threads=threads,
                            n_threads_batch=threads, flash_attn=flash, logits_all=True, verbose=False)
    found = []
    for ids in prompts:
        llama.reset()
        llama.eval(ids)
        found.append(np.array([row.argmax() for row in llama.scores[:len(ids)]]))
    return found


def margins_of(top_logits):
    """By how much the reference's best token leads its second, at each position."""
    return top_logits[:, 0] - top_logits[:, 1]


def spread(values):
    return {f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTS}


def opinion(best, prompts):
    """How far `best`, [prompt][position], agrees with the reference."""
    theirs = np.concatenate([top_ids[:, 0] for _, _, _, top_ids, _ in prompts])
    margins = np.concatenate([margins_of(top_logits) for *_, top_logits in prompts])
    same = np.concatenate(best) == theirs
    off = margins[~same]
    result = {"positions": len(same), "agreeing": int(same.sum()), "agreement": float(same.mean()),
              "met": bool(same.mean() >= WANTED), "margins": spread(margins),
              "margins_where_off": spread(off) if len(off) else None,
              "by_prompt": []}
    for found, (_, _, _, top_ids, _) in zip(best, prompts):
        result["by_prompt"].append({"tokens": len(found),
                                    "agreeing": int((found == top_ids[:, 0]).sum())})
    return result


def opinion_text(name, result):
    def line(values):
        return ", ".join(f"{key} {value:.3f}" for key, value in values.items())
    text = (f"{name}: {result['agreeing']} of {result['positions']} positions, "
            f"{100 * result['agreement']:.2f} % (wanted {100 * WANTED:.0f} %"
            f"{'' if result['met'] else ', not reached'})\n"
            f"    reference's lead of its best token, all positions: {line(result['margins'])}\n")
    if result["margins_where_off"]:
        text += f"    the same where llama.cpp disagrees: {line(result['margins_where_off'])}\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", action="append", choices=MODELS, help="only this one")
    parser.add_argument("--reference", type=pathlib.Path, default=CACHE / "reference")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="file to write the result into")
    options = parser.parse_args()
    results = {}
    for name in options.model or MODELS:
        header, prompts = read_reference(options.reference / f"{name}.reference")
        ids = [prompt[0][:-1].tolist() for prompt in prompts]
        for flash in (False, True):
            best = llama_best(CACHE / "models" / header["file"], ids, options.threads, flash)
            title = f"{name}, {'flash' if flash else 'no flash'}"
            results[title] = opinion(best, prompts)
            print(opinion_text(title, results[title]), end="", flush=True)
    if options.json:
        document = {"format": "lacuna-llama-opinion", "format_version": 1, "kind": "measured",
                    "wanted": WANTED, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")
    return 0 if all(result["met"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
