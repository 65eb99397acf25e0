"""Which keys a query reads, from a topology's text: this folder's own transcription of the table in
docs/topology_text.md, for judging the program from outside. No code is shared with it.

Positions may be Python integers or PyTorch tensors: only arithmetic, comparisons, & and | are used.
"""

import re

TERM = re.compile(r"\s*(\w+)\s*(?:\(([^)]*)\))?\s*")


def arguments_of(text):
    """([positional], {named}) of `first=2` or `3, 40`."""
    positional, named = [], {}
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        key, equals, value = part.partition("=")
        if equals:
            named[key.strip()] = int(value)
        else:
            positional.append(int(part))
    return positional, named


def any_of(conditions):
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result


def is_global(positional, named, position, length):
    if "first" in named:
        return position < named["first"]
    if "last" in named:
        return position >= length - named["last"]
    if "every" in named:
        return position % named["every"] == named.get("offset", 0)
    return any_of([position == one for one in positional])


def window_reads(args, causal, q, k, _length):
    if causal:
        (width,) = args
        return q - k < width
    left, right = args
    return (k >= q - left) & (k <= q + right)


def dilated_reads(args, causal, q, k, _length):
    width, step = args
    after = ((q - k) % step == 0) & (q - k < width * step)
    return after if causal else after & (k - q < width * step)


def fixed_reads(args, _causal, q, k, _length):
    block, last = args
    return (q // block == k // block) | (k % block >= block - last)


def window_blocks_reads(args, _causal, q, k, _length):
    before, after, block = args
    return (k // block >= q // block - before) & (k // block <= q // block + after)


READS = {
    "full": lambda args, causal, q, k, length: k >= 0,
    "window": window_reads,
    "dilated": dilated_reads,
    "sink": lambda args, causal, q, k, length: k < args[0],
    "chunk": lambda args, causal, q, k, length: q // args[0] == k // args[0],
    "strided": lambda args, causal, q, k, length: (q - k) % args[0] == 0,
    "fixed": fixed_reads,
    "window_blocks": window_blocks_reads,
}


def terms_of(attend):
    """[(name, positional, named)] of a union."""
    terms = []
    for part in attend.split("+"):
        match = TERM.fullmatch(part)
        if match is None or match[1] not in {*READS, "global"}:
            raise ValueError(f"the term '{part}' is not transcribed here; allowed: "
                             f"{', '.join([*READS, 'global'])}")
        terms.append((match[1], *arguments_of(match[2])))
    return terms


def mask_of(attend, causal):
    """reads(q, k, length): whether query q reads key k."""
    terms = terms_of(attend)

    def reads(q, k, length):
        conditions = []
        for name, positional, named in terms:
            if name == "global":
                conditions.append(is_global(positional, named, q, length)
                                  | is_global(positional, named, k, length))
            else:
                conditions.append(READS[name](positional, causal, q, k, length))
        condition = any_of(conditions)
        return condition & (k <= q) if causal else condition

    return reads
