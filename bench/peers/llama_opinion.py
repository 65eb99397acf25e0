"""llama.cpp as a second opinion on the forward pass: where its likeliest token is that of the reference.

    llama_opinion.py PROGRAM [--model NAME]… [--threads N] [--json FILE]

The reference is what transformers answers in f32 on the dequantized weights, to prompts of 1 to 4096
tokens (tools/make_model_reference.py). llama.cpp gets the same token ids in several forms: it reads
the same file, and rounds the inputs of its products to 8 bits; or it reads the file's numbers written
as f32, and rounds none. What it answers then with keys and values in f32 is its opinion of what the
model computes, the other forms show what its rounding costs. PROGRAM is
build/benchmarks/model_reference, whose figures of ours, by the same definitions, stand beside. This
script runs in the environment that `./dev bench --results` makes.
"""

import argparse
import contextlib
import importlib.metadata
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from attention_peers import percentiles

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from fetch_models import default_cache_dir  # noqa: E402

CACHE = default_cache_dir()
MODELS = {"smollm2-135m": "smollm2", "gemma-3-270m": "gemma3"}  # what PROGRAM calls them
OURS = {"exact": "f32", "int8_bf16": "int8 products, bf16 keys", "int8_int8": "int8 products, int8 keys"}
WANTED = 0.98
SLICE = 64  # positions whose logits are held in double at once


@dataclass(frozen=True)
class Form:
    """How llama.cpp is asked. `weights`: "file", or "f32", the same numbers written so."""
    weights: str
    kv: str
    flash: bool

    def __str__(self):
        return (f"{'the file' if self.weights == 'file' else 'f32 weights'}, {self.kv} keys"
                f"{', flash' if self.flash else ''}")


FORMS = (Form("file", "f16", False), Form("file", "f16", True), Form("f32", "f16", False),
         Form("f32", "f32", False))


@dataclass(frozen=True)
class Position:
    same: bool         # the likeliest token is the reference's
    lead: float        # of the reference's best logit over its second
    divergence: float  # KL from the reference, the ids below its top as one class
    nll: float         # of the token that follows
    reference_nll: float


# --- llama.cpp -------------------------------------------------------------------------------------


def write_f32(source, target):
    """The file's model with its numbers as f32; all else as it stands there."""
    import gguf
    import numpy as np
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer has them
        value = (gguf.LlamaFileType.ALL_F32 if field.name == "general.file_type"
                 else field.contents())
        is_list = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, value, field.types[0], field.types[-1] if is_list else None)
    for tensor in reader.tensors:
        shape = [int(extent) for extent in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), 4 * int(tensor.n_elements))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.close()


def positions_of(llama, prompts):
    """Each position of each prompt of the reference."""
    import numpy as np
    from model_reference import divergence, log_sum_exp
    found = []
    for ids, *of_prompt in prompts:
        llama.reset()
        llama.eval(ids[:-1].tolist())
        for start in range(0, len(ids) - 1, SLICE):
            lse, target, top_ids, top_logits = (part[start:start + SLICE] for part in of_prompt)
            logits = llama.scores[start:start + len(lse)]
            sums = log_sum_exp(logits)
            kl = divergence(lse, top_logits, sums, np.take_along_axis(logits, top_ids, 1))
            following = ids[start + 1:start + 1 + len(lse), None]
            columns = (logits.argmax(1) == top_ids[:, 0], top_logits[:, 0] - top_logits[:, 1], kl,
                       sums - np.take_along_axis(logits, following, 1)[:, 0],
                       lse.astype(np.float64) - target)
            found += [Position(*row) for row in zip(*(column.tolist() for column in columns))]
    return found


def asked(form, path, prompts, threads):
    import llama_cpp
    kind = getattr(llama_cpp, f"GGML_TYPE_{form.kv.upper()}")
    longest = max(len(ids) - 1 for ids, *_ in prompts)
    with contextlib.closing(llama_cpp.Llama(
            str(path), n_ctx=-(-longest // 256) * 256, n_threads=threads, n_threads_batch=threads,
            flash_attn=form.flash, type_k=kind, type_v=kind, logits_all=True,
            verbose=False)) as llama:
        return positions_of(llama, prompts)


# --- figures ---------------------------------------------------------------------------------------


def spread(values):
    return {**percentiles(values), "max": max(values)} if values else None


def sure_positions(positions):
    """The least lead from which on as many agree as wanted; None where there is none."""
    ordered = sorted(positions, key=lambda one: -one.lead)
    found, agreeing = None, 0
    for count, one in enumerate(ordered, start=1):
        agreeing += one.same
        if count < len(ordered) and ordered[count].lead == one.lead:
            continue  # of equal leads all count
        if agreeing / count >= WANTED:
            found = {"least_lead": one.lead, "positions": count, "agreeing": agreeing}
    return found


def opinion(positions):
    """How far the positions agree with the reference; NLL as a share of the reference's."""
    count = len(positions)
    off = [one.lead for one in positions if not one.same]
    differences = [one.nll - one.reference_nll for one in positions]
    nll, mean = sum(one.reference_nll for one in positions) / count, sum(differences) / count
    return {"positions": count, "agreeing": count - len(off), "agreement": 1 - len(off) / count,
            "met": 1 - len(off) / count >= WANTED,
            "leads": spread([one.lead for one in positions]), "leads_where_off": spread(off),
            "positions_with_no_greater_lead": sum(one.lead <= max(off) for one in positions if off),
            "sure": sure_positions(positions),
            "divergence": sum(one.divergence for one in positions) / count,
            "largest_divergence": max(one.divergence for one in positions),
            "reference_nll": nll, "nll_off": mean / nll,
            "nll_off_error": math.hypot(*(one - mean for one in differences)) / count / nll}


def opinion_text(title, result):
    def line(values):
        return ", ".join(f"{key} {value:.3f}" for key, value in values.items())
    text = (f"{title}: {result['agreeing']} of {result['positions']} positions, "
            f"{100 * result['agreement']:.2f} % (wanted {100 * WANTED:.0f} %"
            f"{'' if result['met'] else ', not reached'}); KL {result['divergence']:.2g}, at most "
            f"{result['largest_divergence']:.2g}; NLL {100 * result['nll_off']:+.2g} % ± "
            f"{100 * result['nll_off_error']:.1g}\n"
            f"    lead of the reference's best token, all positions: {line(result['leads'])}\n")
    if result["leads_where_off"]:
        text += (f"    where llama.cpp disagrees: {line(result['leads_where_off'])}; no greater at "
                 f"{result['positions_with_no_greater_lead']} positions\n")
    if result["sure"] and not result["met"]:
        text += (f"    with a lead of {result['sure']['least_lead']:.3f} or more: "
                 f"{result['sure']['agreeing']} of {result['sure']['positions']}\n")
    return text


def ours(program, name):
    """What Lacuna's own test program counts, in the words of opinion(); the bound is not for it."""
    command = [program, f"--benchmark_filter=/{MODELS[name]}_", "--benchmark_format=json"]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = []
    for one in json.loads(text)["benchmarks"]:
        if "error_message" in one:
            raise ValueError(f"{program}: {one['error_message']}")
        numbers = one["name"].split("/")[1].removeprefix(f"{MODELS[name]}_")
        count, off = round(one["positions"]), round(one["off"])
        found.append({"model": name, "engine": "Lacuna", "form": OURS[numbers], "positions": count,
                      "agreeing": count - off, "agreement": 1 - off / count,
                      "met": None, "leads_where_off": None, "sure": None,
                      "divergence": one["kl"], "largest_divergence": one["kl_most"],
                      "nll_off": one["nll_off"] / 100,
                      "nll_off_error": one["nll_off_error"] / 100})
    if len(found) != len(OURS):
        raise ValueError(f"{program}: {len(found)} forms of {name}, wanted {len(OURS)}")
    return found


def opinions(name, options):
    """Ours, and llama.cpp's of each form."""
    from model_reference import read_reference
    header, prompts = read_reference(CACHE / "reference" / f"{name}.reference")
    found = ours(options.program, name)
    with tempfile.TemporaryDirectory() as folder:
        paths = {"file": CACHE / "models" / header["file"],
                 "f32": pathlib.Path(folder) / header["file"]}
        write_f32(paths["file"], paths["f32"])
        for form in FORMS:
            positions = asked(form, paths[form.weights], prompts, options.threads)
            found.append({"model": name, "engine": "llama.cpp", "form": str(form),
                          **opinion(positions)})
            print(opinion_text(f"{name}, {form}", found[-1]), end="", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="build/benchmarks/model_reference")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="file to write the result into")
    options = parser.parse_args()
    results = [one for name in options.model or MODELS for one in opinions(name, options)]
    if options.json:
        document = {"format": "lacuna-llama-opinion", "format_version": 1, "kind": "measured",
                    "version": importlib.metadata.version("llama-cpp-python"), "wanted": WANTED,
                    "results": results}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n",
                                              encoding="utf-8")


if __name__ == "__main__":
    main()
