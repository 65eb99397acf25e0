"""Between GGUF files and models of `transformers`: the reference that the forward pass is held to.

`load_model` dequantises a file's tensors to f32 with the `gguf` package and builds the model of
`transformers` that its metadata describe; `save_model` writes one the other way. What llama.cpp's
files store differently is undone and done here:
- architecture "llama": rows of q and k are permuted, for a rotary position that turns neighbours
  (2i, 2i+1) where `transformers` turns halves (i, i+d/2);
- Gemma's norm weights have the 1 of (1 + w) added;
- an output matrix that is the embedding is not stored.
Needs the packages torch, transformers, gguf and numpy.
"""

import gguf
import numpy as np
import torch
import transformers

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "gemma2": gguf.MODEL_ARCH.GEMMA2,
                 "gemma3": gguf.MODEL_ARCH.GEMMA3}
LOCAL_BASE = 10000.0  # of Gemma 3's window layers: the architecture's, the file does not say it
PERIOD = {"gemma2": 2, "gemma3": 6}  # the last of each group reads every key


class Metadata:
    """A file's keys; those of the architecture by their suffix."""

    def __init__(self, reader):
        self.reader = reader
        self.arch = self.get("general.architecture")

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def own(self, suffix, default=None):
        return self.get(f"{self.arch}.{suffix}", default)


def permute(weight, heads):
    """Rows of halves to rows of neighbours, as llama.cpp's converter does."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


def unpermute(weight, heads):
    neighbours = weight.reshape(heads, weight.shape[0] // heads // 2, 2, -1)
    return neighbours.swapaxes(1, 2).reshape(weight.shape)


def to_file(arch, config, name, weight):
    """A parameter of transformers, by its name there, as the file stores it."""
    if arch == "llama" and name.endswith("q_proj.weight"):
        return permute(weight, config.num_attention_heads)
    if arch == "llama" and name.endswith("k_proj.weight"):
        return permute(weight, config.num_key_value_heads)
    return weight + np.float32(1) if arch != "llama" and name.endswith("norm.weight") else weight


def from_file(arch, config, name, weight):
    if arch == "llama" and name.endswith("q_proj.weight"):
        return unpermute(weight, config.num_attention_heads)
    if arch == "llama" and name.endswith("k_proj.weight"):
        return unpermute(weight, config.num_key_value_heads)
    return weight - np.float32(1) if arch != "llama" and name.endswith("norm.weight") else weight


def layer_types(arch, layers):
    period = PERIOD[arch]
    return ["full_attention" if (layer + 1) % period == 0 else "sliding_attention"
            for layer in range(layers)]


def config_of(metadata):
    """transformers' config from the file's keys."""
    arch, own = metadata.arch, metadata.own
    heads, hidden = own("attention.head_count"), own("embedding_length")
    layers = own("block_count")
    base = own("rope.freq_base", 10000.0)
    shape = {"hidden_size": hidden, "num_hidden_layers": layers,
             "intermediate_size": own("feed_forward_length"), "num_attention_heads": heads,
             "num_key_value_heads": own("attention.head_count_kv", heads),
             "head_dim": own("attention.key_length", hidden // heads),
             "rms_norm_eps": own("attention.layer_norm_rms_epsilon"),
             "max_position_embeddings": own("context_length"),
             "vocab_size": len(metadata.reader.fields["tokenizer.ggml.tokens"].data),
             "tie_word_embeddings": not any(tensor.name == "output.weight"
                                            for tensor in metadata.reader.tensors),
             "sliding_window": own("attention.sliding_window")}
    one_base = {"rope_type": "default", "rope_theta": base}
    if arch == "llama":
        kind = transformers.MistralConfig if shape["sliding_window"] else transformers.LlamaConfig
        if not shape["sliding_window"]:
            del shape["sliding_window"]
        return kind(**shape, rope_parameters=one_base)
    gemma = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": shape["head_dim"],
             "layer_types": layer_types(arch, layers),
             "attn_logit_softcapping": own("attn_logit_softcapping"),
             "final_logit_softcapping": own("final_logit_softcapping")}
    if arch == "gemma2":
        return transformers.Gemma2Config(**shape, **gemma, rope_parameters=one_base)
    bases = {"full_attention": one_base,
             "sliding_attention": {"rope_type": "default", "rope_theta": LOCAL_BASE}}
    return transformers.Gemma3TextConfig(**shape, **gemma, rope_parameters=bases)


def new_model(config):
    """The model in f32, with eager attention (the plain products and softmax)."""
    kinds = {"llama": transformers.LlamaForCausalLM, "mistral": transformers.MistralForCausalLM,
             "gemma2": transformers.Gemma2ForCausalLM,
             "gemma3_text": transformers.Gemma3ForCausalLM}
    config._attn_implementation = "eager"
    return kinds[config.model_type](config).to(torch.float32).eval()


def file_names(arch, layers):
    """A function from transformers' names of parameters to the file's names of tensors."""
    table = gguf.get_tensor_name_map(ARCHITECTURES[arch], layers)

    def name_of(parameter):
        name = table.get_name(parameter, try_suffixes=(".weight",))
        if name is None:
            raise KeyError(f"{parameter}: no tensor of {arch} has this name")
        return name

    return name_of


def load_model(path):
    """The model of transformers that the file describes, and the file's metadata."""
    reader = gguf.GGUFReader(path)
    metadata = Metadata(reader)
    config = config_of(metadata)
    model = new_model(config)
    name_of = file_names(metadata.arch, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            tensor = tensors.pop(name_of(name))
            weight = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            weight = from_file(metadata.arch, config, name, weight)
            if tuple(weight.shape) != tuple(parameter.shape):
                raise ValueError(f"{tensor.name}: {weight.shape}, wanted {tuple(parameter.shape)}")
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
    if tensors:
        raise ValueError(f"{path}: the model has no place for {sorted(tensors)}")
    return model, metadata


def write_metadata(writer, arch, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if arch == "llama":
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(config.head_dim)
    window = getattr(config, "sliding_window", None)
    if window:
        writer.add_sliding_window(window)
    if window and arch == "llama":  # the architecture has no window of its own: all layers slide
        writer.add_sliding_window_pattern([True] * config.num_hidden_layers)
    if getattr(config, "attn_logit_softcapping", None):
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if getattr(config, "final_logit_softcapping", None):
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def write_vocabulary(writer, size):
    """SentencePiece without merges: three control pieces, all bytes, then letters of no use."""
    types = gguf.TokenType
    pieces = [("<unk>", types.UNKNOWN), ("<s>", types.CONTROL), ("</s>", types.CONTROL)]
    pieces += [(f"<0x{byte:02X}>", types.BYTE) for byte in range(256)]
    pieces += [(chr(0x3B1 + letter), types.NORMAL) for letter in range(size - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_scores([0.0 if kind != types.NORMAL else -float(place)
                             for place, (_, kind) in enumerate(pieces)])
    writer.add_token_types([int(kind) for _, kind in pieces])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def save_model(path, arch, model, matrix_type):
    """The model as a file of `arch`; matrices in `matrix_type`, which must hold them exactly."""
    config = model.config
    writer = gguf.GGUFWriter(path, arch)
    write_metadata(writer, arch, config)
    write_vocabulary(writer, config.vocab_size)
    name_of = file_names(arch, config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        weight = to_file(arch, config, name, parameter.detach().numpy())
        stored = np.ascontiguousarray(weight.astype(matrix_type if weight.ndim > 1 else np.float32))
        if not np.array_equal(stored.astype(np.float32), weight):
            raise ValueError(f"{name}: {matrix_type.__name__} does not hold it exactly")
        writer.add_tensor(name_of(name), stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
