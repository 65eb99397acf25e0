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
import pathlib
import sys

from attention_peers import percentiles

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from fetch_models import default_cache_dir  # noqa: E402

CACHE = default_cache_dir()
MODELS = ("smollm2-135m", "gemma-3-270m")
WANTED = 0.98


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
        found.append([int(row.argmax()) for row in llama.scores[:len(ids)]])
    return found


def read(path):
    """The model's file, and for each prompt its ids, the best token at each position and its lead."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
    from model_reference import read_reference  # needs numpy
    header, prompts = read_reference(path)
    return header["file"], [
        (ids[:-1].tolist(), top_ids[:, 0].tolist(), (top_logits[:, 0] - top_logits[:, 1]).tolist())
        for ids, _, _, top_ids, top_logits in prompts]


def spread(values):
    return {**percentiles(values), "max": max(values)} if values else None


def opinion(found, best, leads):
    """How far `found` agrees with the reference, whose best tokens lead by `leads`; each by prompt."""
    pairs = [(ours == theirs, lead) for of_prompt in zip(found, best, leads)
             for ours, theirs, lead in zip(*of_prompt, strict=True)]
    off = [lead for same, lead in pairs if not same]
    agreement = 1 - len(off) / len(pairs)
    no_greater = [lead for _, lead in pairs if off and lead <= max(off)]
    return {"positions": len(pairs), "agreeing": len(pairs) - len(off), "agreement": agreement,
            "met": agreement >= WANTED, "leads": spread([lead for _, lead in pairs]),
            "leads_where_off": spread(off), "positions_with_no_greater_lead": len(no_greater)}


def opinion_text(name, result):
    def line(values):
        return ", ".join(f"{key} {value:.3f}" for key, value in values.items())
    text = (f"{name}: {result['agreeing']} of {result['positions']} positions, "
            f"{100 * result['agreement']:.2f} % (wanted {100 * WANTED:.0f} %"
            f"{'' if result['met'] else ', not reached'})\n"
            f"    lead of the reference's best token, all positions: {line(result['leads'])}\n")
    if result["leads_where_off"]:
        text += (f"    where llama.cpp disagrees: {line(result['leads_where_off'])}; no greater at "
                 f"{result['positions_with_no_greater_lead']} positions\n")
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
        file, prompts = read(options.reference / f"{name}.reference")
        ids, reference, leads = zip(*prompts)
        for flash in (False, True):
            best = llama_best(CACHE / "models" / file, ids, options.threads, flash)
            title = f"{name}, {'flash' if flash else 'no flash'}"
            results[title] = opinion(best, reference, leads)
            print(opinion_text(title, results[title]), end="", flush=True)
    if options.json:
        document = {"format": "lacuna-llama-opinion", "format_version": 1, "kind": "measured",
                    "wanted": WANTED, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")
    return 0 if all(result["met"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
