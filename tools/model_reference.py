"""What transformers answers to prompts, as tools/make_model_reference.py stores it.

NAME.reference, all numbers little-endian:
    8 bytes   "LACREF01"
    uint32    bytes of the header
    header    JSON: model, file, sha256 (of the file), vocab_size, top (K below), made_by
              (versions), texts (package and version), prompts: a list of
                tokens     N, the prompt's length
                text       file of the package, text_sha256
                offset     of the section from the header's end; bytes: its length
                nll        mean of lse - target over the N positions
    sections  each a zlib stream of
                int32  ids[N + 1]         the prompt, and the token behind its end
                f32    lse[N]
                f32    target[N]          logit of ids[i + 1] at position i
                int32  top_ids[N][K]      by falling logit, of equal ones the lower id first
                f32    top_logits[N][K]
"""

import json
import struct
import zlib

import numpy as np

MAGIC = b"LACREF01"


def write_reference(path, facts, prompts):
    """prompts: pairs of what the header says and the section."""
    offset, entries = 0, []
    for entry, section in prompts:
        entries.append({**entry, "offset": offset, "bytes": len(section)})
        offset += len(section)
    header = json.dumps({**facts, "prompts": entries}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MAGIC + struct.pack("<I", len(header)) + header
                     + b"".join(section for _, section in prompts))


def read_reference(path):
    """The header, and for each prompt ids, lse, target, top_ids, top_logits."""
    data = path.read_bytes()
    if data[:8] != MAGIC:
        raise ValueError(f"{path}: it begins with {data[:8]!r}, wanted {MAGIC!r}")
    behind = 12 + struct.unpack("<I", data[8:12])[0]
    header = json.loads(data[12:behind])
    answers_of = []
    for entry in header["prompts"]:
        start, count, top = behind + entry["offset"], entry["tokens"], header["top"]
        raw, parts = zlib.decompress(data[start:start + entry["bytes"]]), []
        for shape, kind in (((count + 1,), "<i4"), ((count,), "<f4"), ((count,), "<f4"),
                            ((count, top), "<i4"), ((count, top), "<f4")):
            part = np.frombuffer(raw, kind, int(np.prod(shape))).reshape(shape)
            parts.append(part)
            raw = raw[part.nbytes:]
        answers_of.append(parts)
    return header, answers_of


def log_sum_exp(logits):
    """Of each row, summed in double."""
    most = logits.max(1, keepdims=True)
    return most[:, 0] + np.log(np.exp(logits - most, dtype=np.float64).sum(1))


def divergence(lse, top_logits, own_lse, own_logits):
    """KL of one's own classes (the top ids, whose logits are given, and all others as one) from the
    reference's, per position."""
    theirs, ours = (logits.astype(np.float64) - sums.astype(np.float64)[:, None]
                    for logits, sums in ((top_logits, lse), (own_logits, own_lse)))
    p, q = np.exp(theirs), np.exp(ours)
    rest_p, rest_q = (np.maximum(1 - part.sum(1), 1e-12) for part in (p, q))
    return (p * (theirs - ours)).sum(1) + rest_p * np.log(rest_p / rest_q)
