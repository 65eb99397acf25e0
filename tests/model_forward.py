"""The forward pass of a GGUF file by the definition, in double: a cross-check of the reference.

    model_forward.py MODEL.gguf ID...

prints the logits of the last position. It reads the file's own tensors and shares no code with what
wrote them: neighbours turn in architecture "llama", halves in Gemma, norms multiply by what is
stored. One query at a time would be the definition; here all queries of a layer are one product.
Needs the packages gguf and numpy.
"""

import sys

import gguf
import numpy as np


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rotate(x, base, neighbours):
    """x [tokens, heads, dim], position = row."""
    tokens, _, dim = x.shape
    angles = np.arange(tokens)[:, None] * base ** (-2.0 * np.arange(dim // 2) / dim)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = ((np.s_[..., 0::2], np.s_[..., 1::2]) if neighbours
                     else (np.s_[..., : dim // 2], np.s_[..., dim // 2:]))
    turned = np.empty_like(x)
    turned[first] = x[first] * cos - x[second] * sin
    turned[second] = x[second] * cos + x[first] * sin
    return turned


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def attend(q, k, v, scale, cap, window):
    """q [tokens, heads, dim], k and v [tokens, kv_heads, dim]; window 0 reads every key."""
    tokens, heads, dim = q.shape
    group = heads // k.shape[1]
    distance = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
    seen = (distance >= 0) & ((distance < window) if window else True)
    out = np.empty_like(q)
    for head in range(heads):
        scores = softcap(q[:, head] @ k[:, head // group].T * scale, cap)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, head // group]
    return out.reshape(tokens, heads * dim)


class Model:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = self.reader.fields["general.architecture"].contents()
        self.gemma = self.arch.startswith("gemma")
        self.heads = self.own("attention.head_count")
        self.dim = self.own("attention.key_length", self.own("embedding_length") // self.heads)
        self.eps = self.own("attention.layer_norm_rms_epsilon")

    def own(self, suffix, default=None):
        field = self.reader.fields.get(f"{self.arch}.{suffix}")
        return default if field is None else field.contents()

    def tensor(self, name):
        tensor = self.tensors[f"{name}.weight"]
        return gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def slides(self, layer):
        if not self.own("attention.sliding_window"):
            return False
        pattern = self.own("attention.sliding_window_pattern")
        period = {"gemma2": 2, "gemma3": 6}.get(self.arch)
        return pattern[layer] if isinstance(pattern, list) else layer % period != period - 1

    def base(self, layer):
        if self.arch == "gemma3" and self.slides(layer):
            return 10000.0
        return self.own("rope.freq_base", 10000.0)

    def attention(self, layer, x):
        block, tokens = f"blk.{layer}", len(x)
        q, k, v = ((x @ self.tensor(f"{block}.attn_{part}").T).reshape(tokens, -1, self.dim)
                   for part in "qkv")
        if f"{block}.attn_q_norm.weight" in self.tensors:
            q = rms_norm(q, self.tensor(f"{block}.attn_q_norm"), self.eps)
            k = rms_norm(k, self.tensor(f"{block}.attn_k_norm"), self.eps)
        q, k = (rotate(part, self.base(layer), not self.gemma) for part in (q, k))
        window = self.own("attention.sliding_window") if self.slides(layer) else 0
        cap = self.own("attn_logit_softcapping", 0)
        mixed = attend(q, k, v, self.dim**-0.5, cap, window)
        return mixed @ self.tensor(f"{block}.attn_output").T

    def mlp(self, layer, x):
        block = f"blk.{layer}"
        gate = (gelu_tanh if self.gemma else silu)(x @ self.tensor(f"{block}.ffn_gate").T)
        return (gate * (x @ self.tensor(f"{block}.ffn_up").T)) @ self.tensor(f"{block}.ffn_down").T

    def add(self, layer, x, part, norms):
        """x + part(norm(x)), in Gemma with a norm behind the part too."""
        before, after = (f"blk.{layer}.{name}" for name in norms)
        y = part(layer, rms_norm(x, self.tensor(before), self.eps))
        return x + (rms_norm(y, self.tensor(after), self.eps) if self.gemma else y)

    def hidden(self, ids):
        embedding = self.tensor("token_embd")
        x = embedding[ids] * (np.sqrt(embedding.shape[1]) if self.gemma else 1)
        for layer in range(self.own("block_count")):
            x = self.add(layer, x, self.attention, ("attn_norm", "post_attention_norm"))
            x = self.add(layer, x, self.mlp, ("ffn_norm", "post_ffw_norm"))
        return rms_norm(x, self.tensor("output_norm"), self.eps)

    def logits(self, ids, rows=None):
        """Of all positions; with `rows`, arrays of the logits of so many positions each."""
        hidden = self.hidden(ids)
        output = self.tensor("output" if "output.weight" in self.tensors else "token_embd")
        cap = self.own("final_logit_softcapping", 0)
        if rows is None:
            return softcap(hidden @ output.T, cap)
        return (softcap(hidden[start:start + rows] @ output.T, cap)
                for start in range(0, len(hidden), rows))


if __name__ == "__main__":
    print(*Model(sys.argv[1]).logits([int(word) for word in sys.argv[2:]])[-1])
