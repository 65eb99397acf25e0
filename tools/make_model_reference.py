"""Writes what `transformers` answers on the dequantised weights of a GGUF file, in f32.

    make_model_reference.py [--model NAME] [--small-out FOLDER] [--cache FOLDER] [--check]

For each model NAME (smollm2-135m, gemma-3-270m), whose file tools/fetch_models.py brings, and each
prompt of PROMPTS it stores per position the largest logits with their ids, the natural log of the
sum of exp over the whole vocabulary, and the logit of the token that follows. All prompts go to
CACHE/NAME.reference (CACHE: ${XDG_CACHE_HOME:-~/.cache}/lacuna/reference), the small ones to
FOLDER/NAME.reference (FOLDER: tests/data/reference). Texts are those of Debian's base-files; ids
are those of the tokenizer that transformers makes from the file, and stored, so that a comparison
needs no tokenizer. tools/model_reference.py says how the file lies.

--check compares FOLDER's files (CACHE may be named) with tests/model_forward.py, which computes in
double, and writes nothing. Needs the packages torch, transformers, gguf and numpy; a model takes
minutes and 12 GB.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import zlib

import numpy as np
import torch
import transformers

import gguf_transformers
from fetch_models import default_cache_dir
from model_reference import divergence, log_sum_exp, read_reference, write_reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import model_forward  # noqa: E402

CACHE = default_cache_dir()
MODELS = {"smollm2-135m": "smollm2-135m-q4_1.gguf", "gemma-3-270m": "gemma-3-270m-q4_k_m.gguf"}
PACKAGE, TEXTS = "base-files", pathlib.Path("/usr/share/common-licenses")
# The prompt's length and the text that it begins; around a window of 512, and far beyond it.
PROMPTS = [(1, "Artistic"), (2, "Artistic"), (17, "Artistic"), (511, "Apache-2.0"),
           (512, "MPL-1.1"), (513, "MPL-2.0"), (1024, "GFDL-1.3"), (4096, "GPL-3")]
SMALL = {1, 2, 17, 513}
TOP = 64
SLICE = 128  # positions whose logits are held at once
MOST_DIFFERENCE, MOST_DIVERGENCE = 5e-3, 1e-7  # of f32 to double, in --check


def sha256_of(data):
    return hashlib.sha256(data).hexdigest()


def package_version():
    answer = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], text=True,
                            capture_output=True, check=True)
    return f"{PACKAGE} {answer.stdout}"


def best(logits):
    """Ids and logits of the TOP largest of each row."""
    values, ids = (part.numpy() for part in torch.topk(logits, TOP, dim=-1))
    order = np.lexsort((ids, -values), axis=-1)
    return np.take_along_axis(ids, order, -1), np.take_along_axis(values, order, -1)


def answers(model, ids):
    """lse, target, top_ids, top_logits of a prompt; `ids` has one more than the prompt."""
    rows = []
    cap = getattr(model.config, "final_logit_softcapping", None)
    with torch.no_grad():
        hidden = model.model(torch.tensor([ids[:-1]]), use_cache=False).last_hidden_state[0]
        for start in range(0, len(hidden), SLICE):
            logits = model.lm_head(hidden[start:start + SLICE])
            logits = torch.tanh(logits / cap) * cap if cap else logits
            following = torch.tensor(ids[start + 1:start + 1 + len(logits)])
            rows.append((torch.logsumexp(logits.double(), -1).numpy(),
                         logits.gather(1, following[:, None])[:, 0].numpy(), *best(logits)))
    return [np.concatenate(part) for part in zip(*rows)]


def same_as_forward(model, ids):
    """That the slices above are what the model's own forward gives."""
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0]
    top_ids, top_logits = best(logits)
    _, _, ids_of_slices, logits_of_slices = answers(model, ids)
    return (np.array_equal(top_ids, ids_of_slices)
            and np.allclose(top_logits, logits_of_slices, rtol=1e-5, atol=1e-4))


def section_of(ids, parts):
    types = ("<i4", "<f4", "<f4", "<i4", "<f4")
    return zlib.compress(b"".join(np.asarray(part).astype(kind).tobytes()
                                  for part, kind in zip((ids, *parts), types)), 9)


def prompt_ids(tokenizer, text, tokens):
    ids = tokenizer(text)["input_ids"][:tokens + 1]
    if len(ids) != tokens + 1:
        raise ValueError(f"a text has {len(ids)} tokens, wanted {tokens + 1}")
    return ids


def make(name, options):
    path = options.models / MODELS[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(options.models),
                                                           gguf_file=MODELS[name])
    model, _ = gguf_transformers.load_model(path)
    prompts = []
    for tokens, text_name in PROMPTS:
        text, begun = (TEXTS / text_name).read_bytes(), time.monotonic()
        ids = prompt_ids(tokenizer, text.decode(), tokens)
        if tokens == 17 and not same_as_forward(model, ids):
            raise ValueError(f"{name}: logits by slices are not those of the model's forward")
        parts = answers(model, ids)
        nll = float(np.mean(parts[0] - parts[1].astype(np.float64)))
        prompts.append(({"tokens": tokens, "text": text_name, "text_sha256": sha256_of(text),
                         "nll": nll}, section_of(ids, parts)))
        print(f"{name}: {tokens} tokens of {text_name}: nll {nll:.6f}, "
              f"{time.monotonic() - begun:.1f} s", flush=True)
    facts = {"model": name, "file": MODELS[name], "sha256": sha256_of(path.read_bytes()),
             "vocab_size": model.config.vocab_size, "top": TOP, "texts": package_version(),
             "made_by": {"transformers": transformers.__version__,
                         "torch": torch.__version__.split("+")[0]}}
    write_reference(options.cache / f"{name}.reference", facts, prompts)
    write_reference(options.small_out / f"{name}.reference", facts,
                    [prompt for prompt in prompts if prompt[0]["tokens"] in SMALL])


def check(name, options):
    """Prints the difference to the forward in double in one line a prompt; False if too much."""
    forward = model_forward.Model(options.models / MODELS[name])
    header, prompts = read_reference(options.small_out / f"{name}.reference")
    good = True
    for entry, (ids, lse, target, top_ids, top_logits) in zip(header["prompts"], prompts):
        largest, kl, same, nll, start = 0.0, [], [], [], 0
        for logits in forward.logits(ids[:-1], rows=SLICE):
            rows = slice(start, start + len(logits))
            start += len(logits)
            at_top = np.take_along_axis(logits, top_ids[rows], 1)
            largest = max(largest, np.abs(at_top - top_logits[rows]).max())
            sums = log_sum_exp(logits)
            kl.append(divergence(lse[rows], top_logits[rows], sums, at_top))
            same.append(logits.argmax(1) == top_ids[rows, 0])
            chosen = np.take_along_axis(logits, ids[1:][rows][:, None], 1)[:, 0]
            nll.append(sums - chosen)
        kl, same, nll = (np.concatenate(part) for part in (kl, same, nll))
        print(f"{name}: {entry['tokens']} tokens: in double, top logits differ by at most "
              f"{largest:.2g}, KL {kl.mean():.2g} on average, top-1 differs at {(~same).sum()}, "
              f"nll {nll.mean():.6f} for {entry['nll']:.6f}", flush=True)
        good = good and largest < MOST_DIFFERENCE and kl.mean() < MOST_DIVERGENCE
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), help="only this one")
    parser.add_argument("--models", type=pathlib.Path, default=CACHE / "models",
                        help="the folder of the GGUF files")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE / "reference")
    parser.add_argument("--small-out", type=pathlib.Path,
                        default=ROOT / "tests" / "data" / "reference")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    good = True
    for name in [options.model] if options.model else MODELS:
        if options.check:
            good = check(name, options) and good
        else:
            make(name, options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
