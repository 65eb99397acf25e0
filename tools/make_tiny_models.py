"""Writes tiny random models and their reference logits, for which no real file can be had.

    make_tiny_models.py [--out FOLDER] [--check]

Each model is made by `transformers` from its config class with a fixed seed and written as GGUF;
its logits are those of `transformers` in f32. The folder (tests/data/models) then holds
    tiny-NAME.gguf    F32 tensors, or F16 matrices where their values were rounded to F16 first
    tiny-NAME.logits  f32, little-endian, [tokens, vocab_size], no header
    tiny-models.json  for each model its name, vocab_size, the prompt's ids, the lengths to test
                      (a shorter prompt's logits are the first rows) and `double_difference`: the
                      largest difference to tests/model_forward.py, which computes in double, over
                      the largest logit
--check compares the files that are there with transformers and with the forward in double, and
writes nothing. Needs the packages torch, transformers, gguf and numpy.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

import gguf_transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import model_forward  # noqa: E402

TOKENS = 40
LENGTHS = [1, 7, 8, 9, TOKENS]  # around the windows of 8
VOCAB = 288
MOST_DIFFERENCE = 5e-5  # of f32 to double, of the largest logit


def rope(base):
    return {"rope_type": "default", "rope_theta": base}


def configs():
    """name: (architecture of the file, config, type of the matrices)."""
    # An epsilon that no model has: a usual one would not show in the logits.
    same = {"vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-3}
    gemma = {**same, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16,
             "sliding_window": 8}
    return {
        "gemma2": ("gemma2", transformers.Gemma2Config(
            **gemma, num_hidden_layers=6, attn_logit_softcapping=10.0, final_logit_softcapping=12.0,
            rope_parameters=rope(10000.0)), np.float32),
        "gemma3": ("gemma3", transformers.Gemma3TextConfig(
            **gemma, num_hidden_layers=7,
            rope_parameters={"sliding_attention": rope(10000.0),
                             "full_attention": rope(1000000.0)}), np.float16),
        "mistral": ("llama", transformers.MistralConfig(
            **same, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=8,
            tie_word_embeddings=False, rope_parameters=rope(10000.0)), np.float32),
        "llama-6-on-3": ("llama", transformers.LlamaConfig(
            **same, hidden_size=36, intermediate_size=40, num_hidden_layers=4,
            num_attention_heads=6, num_key_value_heads=3, head_dim=16, tie_word_embeddings=True,
            rope_parameters=rope(100000.0)), np.float16),
        "llama-5-on-1": ("llama", transformers.LlamaConfig(
            **same, hidden_size=40, intermediate_size=36, num_hidden_layers=4,
            num_attention_heads=5, num_key_value_heads=1, head_dim=8, tie_word_embeddings=False,
            rope_parameters=rope(10000.0)), np.float16)}


def draw_weights(model, seed, matrix_type):
    """Scores of several units, so that softcaps and windows matter; norms that are not all 1."""
    draw = np.random.default_rng(seed)
    gemma = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = draw.standard_normal(tuple(parameter.shape))
            if parameter.ndim == 1:
                middle = 0.0 if gemma else 1.0
                middle += 1.0 if name.endswith(("q_norm.weight", "k_norm.weight")) else 0.0
                values = middle + 0.25 * noise
                # As the file stores it, 1 + w: what transformers adds again must be the same f32.
                values = np.float32(np.float32(values + 1) - np.float32(1)) if gemma else values
            else:
                gain = 2.0 if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
                gain = 3.0 if "embed" in name or "lm_head" in name else gain
                values = (gain / np.sqrt(parameter.shape[1]) * noise).astype(matrix_type)
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def prompt_of(seed):
    """The beginning of text, then any ids, some of them twice."""
    return [1] + np.random.default_rng(seed).integers(3, VOCAB, TOKENS - 1).tolist()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def difference(logits, wanted):
    return float(np.abs(logits - wanted).max() / np.abs(wanted).max())


def make(folder):
    entries = []
    for place, (name, (arch, config, matrix_type)) in enumerate(configs().items()):
        model = gguf_transformers.new_model(config)
        draw_weights(model, 100 + place, matrix_type)
        ids = prompt_of(200 + place)
        logits = logits_of(model, ids)
        path = folder / f"tiny-{name}.gguf"
        gguf_transformers.save_model(path, arch, model, matrix_type)
        (folder / f"tiny-{name}.logits").write_bytes(logits.astype("<f4").tobytes())
        double = difference(logits, model_forward.Model(path).logits(ids))
        entries.append({"name": f"tiny-{name}", "vocab_size": VOCAB, "prompt": ids,
                        "lengths": LENGTHS, "double_difference": float(f"{double:.2g}")})
    made_by = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    text = json.dumps({"made_by": made_by, "models": entries})
    (folder / "tiny-models.json").write_text(text.replace(', {"name"', ',\n{"name"') + "\n")


def check(folder):
    """Prints what differs in one line a model; False where it is too much."""
    good = True
    for entry in json.loads((folder / "tiny-models.json").read_text())["models"]:
        path = folder / f"{entry['name']}.gguf"
        stored = np.fromfile(path.with_suffix(".logits"), "<f4").reshape(TOKENS, VOCAB)
        read_back = logits_of(gguf_transformers.load_model(path)[0], entry["prompt"])
        shorter = max(difference(logits_of(gguf_transformers.load_model(path)[0],
                                           entry["prompt"][:length]), stored[:length])
                      for length in LENGTHS)
        double = difference(stored, model_forward.Model(path).logits(entry["prompt"]))
        print(f"{entry['name']}: logits to {np.abs(stored).max():.2f}; difference to the file read "
              f"back {difference(read_back, stored):.2g}, shorter prompts {shorter:.2g}, "
              f"double {double:.2g}")
        good = good and max(double, shorter, difference(read_back, stored)) <= MOST_DIFFERENCE
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "data" / "models")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.check:
        options.out.mkdir(parents=True, exist_ok=True)
        make(options.out)
    return 0 if check(options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
