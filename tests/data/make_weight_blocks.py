"""Writes blocks of every type that weights.h reads: weight_blocks.gguf for the tests, with what they
mean, and corpus/weight_file/every_type.gguf as the fuzzer's seed.

    make_weight_blocks.py [FOLDER]        in FOLDER instead of tests/

Needs the Python packages gguf and numpy; the files in the tree are those of gguf 0.19.0 and numpy
2.4.6. For each type there are two tensors of one size: `q4_k` with blocks of random bits whose
scales are the hard ones, and `expected.q4_k` with the same numbers in f32 as gguf dequantizes them.
"""

import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Where the halves stand in a block: scales, and minimums where there are any.
HALVES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
          Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
# Zeros, the smallest and the largest subnormal, the smallest normal, one and the largest number.
HARD_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF]
# In numbers without scales infinity may stand, too; NaN only where no one converts its bits.
PLAIN = {Type.F16: (np.uint16, HARD_HALVES + [0x7C00, 0xFC00]),
         Type.BF16: (np.uint16, HARD_HALVES + [0x7F80, 0xFF80, 0x7FC0, 0xFFC1]),
         Type.F32: (np.uint32, [0, 1 << 31, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF800000, 0x7FC00001])}


def plain_rows(random, kind, rows, cols):
    """Bits of numbers with the hard ones first; exponents of random ones stay below infinity's."""
    number, hard = PLAIN[kind]
    bits = random.integers(0, np.iinfo(number).max, rows * cols, number)
    bits &= number(~(1 << {Type.F16: 14, Type.BF16: 14, Type.F32: 30}[kind]) & np.iinfo(number).max)
    bits[:len(hard)] = hard
    return bits.reshape(rows, cols)


def block_rows(random, kind, rows, blocks_per_row):
    """Blocks of random bits; two are all ones and all zeros but for the halves."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * blocks_per_row, size), np.uint8)
    blocks[0], blocks[1] = 255, 0
    halves = random.normal(0, 0.01, (len(blocks), len(HALVES[kind]))).astype(np.float16).view(np.uint16)
    hard = min(len(HARD_HALVES), len(blocks) - 1)
    halves[1:1 + hard, 0] = HARD_HALVES[:hard]
    halves[1:1 + hard, -1] = HARD_HALVES[:hard] if len(HALVES[kind]) == 1 else HARD_HALVES[hard - 1::-1]
    for column, offset in enumerate(HALVES[kind]):
        blocks[:, offset:offset + 2] = halves[:, column:column + 1].view(np.uint8)
    return blocks.reshape(rows, -1)


def write(path, kinds, rows, with_expected):
    random = np.random.default_rng(6)
    writer = gguf.GGUFWriter(path, "llama")
    for kind in kinds:
        name, (block, _) = kind.name.lower(), gguf.GGML_QUANT_SIZES[kind]
        if kind in PLAIN:
            stored = plain_rows(random, kind, rows, 75)
            raw = stored.view(np.uint8)
        else:
            raw = block_rows(random, kind, rows, 3 if block == 256 else 7)
        writer.add_tensor(name, raw, raw_dtype=kind)
        if with_expected:
            plain = raw.view(np.float32) if kind == Type.F32 else gguf.dequantize(raw, kind)
            writer.add_tensor("expected." + name, np.ascontiguousarray(plain, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    tests = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    kinds = list(PLAIN) + list(HALVES)
    for name, rows, with_expected in (("data/weight_blocks.gguf", 4, True),
                                      ("corpus/weight_file/every_type.gguf", 1, False)):
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        write(tests / name, kinds, rows, with_expected)


if __name__ == "__main__":
    main()
