"""Writes expected.json: ids of hard texts by the reference tokenizers, and how they were made.

    make_expected.py MODELS_FOLDER

Needs the packages tokenizers, sentencepiece, protobuf and gguf. For a byte-level file the reference
is Hugging Face's `tokenizers`, built from the file's pieces and merges with the pre-tokenizer of
the model's own tokenizer.json: `transformers` itself does not know "smollm" and would leave digits
in runs. For a SentencePiece file it is the `sentencepiece` package, fed with the file's pieces,
scores and types; Hugging Face's BPE over merges derived from the pieces is the second opinion, and
a text on which the two differ is listed in `differs`: long runs of spaces, which Hugging Face merges
to 16 at most while SentencePiece takes its longest piece.
"""

import json
import pathlib
import sys

import gguf
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

CONTROL, USER_DEFINED, UNKNOWN = 3, 4, 2
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

# Every text is one that a tokenizer got wrong somewhere, or a border of a pattern.
TEXTS = [
    "", " ", "  ", "   ", "    a", "a    ", "a  b   c    d", " " * 15, " " * 16, " " * 17, " " * 31,
    " " * 40, " " * 100, "\n", "\n\n", "\n" * 31, "\n" * 40, "\r\n", "\r\n\r\n", "a\r\nb\rc\nd\n\re",
    " \n \n  \n", "\t", "\t\t\t", "\t \t \n\t", "\u00a0", "a\u00a0b \u00a0 c", "\u0085x\u0085",
    "\u180ea \u180e b", "\u2003x\u2003 \u2003y", "\u3000全角\u3000空白", "\u200b\u200bzero\u200bwidth",
    "\ufeffbyte order mark",
    "Hello, world!", "Hello World", " Hello", "HELLO", "hello world's end, it's they'll I'd WE'VE 'S",
    "don't 'tis ''s 'ſ 'LL'll'Ll x'", "?!?!... --- *** ///", "a.b.c,d;e:f", "$1,234.56 <=> ^~|`",
    "0", "1", "12", "123", "1234", "12345678901234567890", "3.14159e-10", " 7 77  777   7777", "v1.2.3-rc4",
    "½ ⅓ ² ³ ① Ⅷ 四 १२३ ١٢٣٤ 𝟘𝟙𝟚", "1st2nd3rd", "x1y22z333",
    "int main(void) {\n\tfor (int i = 0; i < 10; ++i) {\n\t\tprintf(\"%d\\n\", i);\n\t}\n\treturn 0;\n}\n",
    "def f(x):\n    if x:\n        return  x   # two\n\n\n    return None\n",
    "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}", "<html><body class=\"x\">&nbsp;</body></html>",
    "https://example.com/a_b-c?d=e&f=%20#g", "SELECT * FROM t WHERE a >= 1;", "x+=1;y--;z**2//3%4",
    "日本語のテキスト、漢字とかな。", "中文文本没有空格,标点符号。", "한국어 텍스트 띄어쓰기", "ไทยไม่มีช่องว่าง",
    "हिन्दी में पाठ", "العربية من اليمين", "עברית עם נִקּוּד", "Ελληνικά Русский Українська", "ქართული አማርኛ",
    "ﬁ ﬂ ℌ Å ﹏ ｆｕｌｌ", "naïve café Zürich Ångström", "e\u0301 vs \u00e9 a\u0308\u0323", "Z\u0351\u036ba\u0323l\u0334g\u0359o",
    "ÀÉÎÕÜ ß ẞ ĳ ŉ", "İstanbul ıI", "ẹ̀ ọ́ Việt Nam",
    "🙂", "🙂🙂🙂", " 🙂 ", "👩‍👩‍👧‍👦", "👍🏽👍🏿", "🏳️‍🌈 🇩🇪🇯🇵", "a🙂b", "𝒜𝓁𝓅𝒽𝒶 𐍈 𓀀 🀄", "☃ ♥ ★ → ∑ ∫ √",
    "\u0000", "a\u0000b", "\u0001\u0002\u007f", "th\u0004e \u0013\u0014 \U00050000x", "\u001b[31mred\u001b[0m", "\ufffd", "\ufffe\uffff", "\U0010ffff",
    "\u2581", "a\u2581b", "\u2581\u2581 \u2581", "Ġ Ċ ĠĠa Ā", "<0x0A>", "<0x41><0xFF>",
    "<|im_start|>user\nHi<|im_end|>\n", "x<|endoftext|>y", "<|im_start|><|im_end|>", "<|im_start", "<<|im_end|>>",
    "<bos>text<eos>", "<pad>text<eos>", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<unk>", " <eos> ", "<mask>[multimodal]<start_of_image>", "<unused1><unused10><unused100>", "<eos", "<td>x</td>",
    "<h1>T</h1>\n\n<ul>\n<li>a</li></ul>", "  <b>  </b>  ", "\n\n\n<td>\t\t\t</td>",
    "a" * 1000, "ab" * 500, "the " * 300, " a" * 500, "!" * 200, "é" * 200, "語" * 100, "🙂" * 50,
    "aaaaaaaaabaaaaaaab", "zzzzzzzzzzzzyzzzzzz", "internationalization antidisestablishmentarianism",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "\n \n\n  \n\n\n   x", "a\n\n b \t\n c \u00a0\n d", "   \u00a0  x", "end with spaces   \n   ", "x \r\n  y",
]


def corpus_text(size):
    """A text of `size` bytes from a fixed generator, which the test repeats in C++."""
    parts = [text for text in TEXTS if text and "\0" not in text and "\u2581" not in text
             and "<" not in text]
    state, out, length = 1, [], 0
    while length < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        part = parts[(state >> 33) % len(parts)]
        out.append(part)
        length += len(part.encode())
    return "".join(out)


# Texts of 1 MB, whose ids are kept as their number and a checksum.
LONG_TEXTS = {
    "one letter": "a" * (1 << 20),
    "spaces": " " * (1 << 20),
    "a letter after spaces": " " * (1 << 20) + "x",
    "newlines": "\n" * (1 << 20),
    "words": "the quick brown fox " * 52429,
    "all texts": corpus_text(1 << 20),
}


def checksum(ids):
    """FNV-1a over the ids as 32-bit numbers."""
    value = 0xcbf29ce484222325
    for token in ids:
        value = (value ^ token) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def bytes_to_unicode():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return table


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields

        def get(key):
            field = fields.get("tokenizer.ggml." + key)
            return field.contents() if field else None

        self.tokens, self.scores = get("tokens"), get("scores")
        self.types, self.merges = get("token_type"), get("merges")
        self.bos = get("bos_token_id") if get("add_bos_token") else None
        self.unknown = get("unknown_token_id")

    def of_type(self, *types):
        return [t for t, kind in zip(self.tokens, self.types) if kind in types]


def byte_level(vocabulary, pre, special=True):
    """Hugging Face's tokenizer with the pre-tokenizer `pre` over the file's pieces and merges."""
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    out = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=pre == "llama-bpe"))
    byte_level_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    out.pre_tokenizer = {
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "default": gpt2,
        "llama-bpe": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"), byte_level_only]),
        "qwen2": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"), byte_level_only]),
    }[pre]
    out.decoder = decoders.ByteLevel()
    if special:
        out.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                for t in vocabulary.of_type(CONTROL)])
    return lambda text: out.encode(text, add_special_tokens=False).ids


def control_cut(text, control):
    """The text around control pieces, the leftmost and then longest first."""
    lengths = sorted({len(piece) for piece in control}, reverse=True)
    begin = at = 0
    while at < len(text):
        length = next((n for n in lengths if text[at:at + n] in control), 0) if text[at] == "<" else 0
        if length:
            yield text[begin:at], None
            yield None, text[at:at + length]
            at += length
            begin = at
        else:
            at += 1
    yield text[begin:], None


def sentence_piece(vocabulary, special=True, space_prefix=False):
    """The sentencepiece package over the file's pieces, scores and types."""
    model = sentencepiece_model_pb2.ModelProto()
    for index, (token, score, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.scores, vocabulary.types)):
        piece = model.pieces.add()
        piece.piece = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
        piece.score = score
        piece.type = UNKNOWN if index == vocabulary.unknown else kind
    model.trainer_spec.model_type = 2
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.add_dummy_prefix = space_prefix
    model.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    control = set(vocabulary.of_type(CONTROL, UNKNOWN)) if special else set()

    def encode(text):
        out = [] if vocabulary.bos is None or not special else [vocabulary.bos]
        for plain, piece in control_cut(text, control):
            out += processor.encode(plain) if piece is None else [ids[piece]]
        return out

    return encode


def hugging_face_gemma(vocabulary):
    """BPE over the merges that the pieces imply, in the order of the pieces."""
    names = [t.replace(" ", "\u2581") if k == USER_DEFINED and not t.strip(" ") else t
             for t, k in zip(vocabulary.tokens, vocabulary.types)]
    ids = {token: index for index, token in enumerate(names)}
    merges = []
    for token, index in ids.items():
        cuts = ((token[:at], token[at:]) for at in range(1, len(token)))
        merges += sorted(((index, ids[a], ids[b], a, b) for a, b in cuts if a in ids and b in ids))
    merges.sort()
    out = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=[(a, b) for *_, a, b in merges],
                                          byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    out.normalizer = normalizers.Replace(" ", "\u2581")
    out.add_special_tokens([AddedToken(t, special=True, normalized=False)
                            for t in vocabulary.of_type(CONTROL)])
    out.add_tokens([AddedToken(t, special=False, normalized=False)
                    for t in vocabulary.of_type(USER_DEFINED) if t in ids])
    return lambda text: [vocabulary.bos] + out.encode(text, add_special_tokens=False).ids


def answers(encode, long_texts):
    long = {}
    for name in long_texts:
        ids = encode(LONG_TEXTS[name])
        long[name] = [len(ids), checksum(ids)]
    # An id list of a long run is mostly one id: [id, times] for repeated ones.
    return {"ids": [packed(encode(text)) for text in TEXTS], "long": long}


def packed(ids):
    out = []
    for token in ids:
        if out and out[-1][0] == token:
            out[-1][1] += 1
        else:
            out.append([token, 1])
    return [token if times == 1 else [token, times] for token, times in out]


def main():
    folder = pathlib.Path(sys.argv[1])
    smollm = Vocabulary(folder / "smollm2-135m-q4_1.gguf")
    gemma = Vocabulary(folder / "gemma-3-270m-q4_k_m.gguf")
    cases = []

    def add(file, pre, special, encode, long_texts=("all texts",), space_prefix=False):
        cases.append({"file": file, "pre": pre, "special": special, "space_prefix": space_prefix,
                      **answers(encode, long_texts)})
        print(file, pre, special, flush=True)

    for pre in ("smollm", "default", "llama-bpe", "qwen2"):
        add("smollm2-135m-q4_1.gguf", pre, True, byte_level(smollm, pre), LONG_TEXTS)
    add("smollm2-135m-q4_1.gguf", "smollm", False, byte_level(smollm, "smollm", special=False))
    gemma_reference = sentence_piece(gemma)
    add("gemma-3-270m-q4_k_m.gguf", "default", True, gemma_reference, LONG_TEXTS)
    add("gemma-3-270m-q4_k_m.gguf", "default", False, sentence_piece(gemma, special=False))
    # As Llama 2 and Mistral have it; the package adds the space before each text it is given.
    add("gemma-3-270m-q4_k_m.gguf", "default", False,
        sentence_piece(gemma, special=False, space_prefix=True), space_prefix=True)
    second = hugging_face_gemma(gemma)
    differs = [text for text in TEXTS if second(text) != gemma_reference(text)]
    for text in differs:
        print("differs", repr(text)[:60], second(text)[:20], gemma_reference(text)[:20])
    made = {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__}
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    texts = ",\n".join(json.dumps(text) for text in TEXTS)
    (pathlib.Path(__file__).parent / "expected.json").write_text(
        f'{{"made_with":{json.dumps(made)},\n"differs":{json.dumps(differs)},\n'
        f'"texts":[\n{texts}],\n"cases":[\n{lines}]}}\n')


if __name__ == "__main__":
    main()
