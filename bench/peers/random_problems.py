"""Problems drawn over everything that `lacuna bench kernels` takes, small enough for a dense mask."""

CAUSAL_TERMS = [
    lambda r: f"window({r.randint(1, 80)})",
    lambda r: f"sink({r.randint(1, 9)})",
    lambda r: f"global(every={r.randint(2, 40)},offset=1)",
    lambda r: f"global({r.randint(0, 9)},{r.randint(10, 99)})",
    lambda r: f"global(first={r.randint(1, 5)})",
    lambda r: f"chunk({r.randint(1, 90)})",
    lambda r: f"dilated({r.randint(1, 9)},{r.randint(2, 7)})",
    lambda r: f"strided({r.randint(2, 30)})",
    lambda r: f"fixed({r.randint(8, 40)},{r.randint(1, 8)})",
    lambda r: f"window_blocks({r.randint(0, 3)},0,{r.randint(1, 33)})",
    lambda r: "full",
]
BIDIRECTIONAL_TERMS = [
    lambda r: f"window({r.randint(0, 40)},{r.randint(0, 40)})",
    lambda r: f"sink({r.randint(1, 9)})",
    lambda r: f"global(first={r.randint(1, 5)})",
    lambda r: f"global(last={r.randint(1, 5)})",
    lambda r: f"chunk({r.randint(1, 90)})",
    lambda r: f"dilated({r.randint(1, 9)},{r.randint(2, 7)})",
    lambda r: f"window_blocks({r.randint(0, 2)},{r.randint(0, 2)},{r.randint(1, 33)})",
    lambda r: "full",
]
RATIOS = ((1, 1), (3, 1), (7, 1), (8, 1), (4, 1), (9, 3), (28, 4), (8, 2))


def draw_problem(numbers):
    """A problem as a dict of the flags that say it."""
    causal = numbers.random() < 0.75
    terms = CAUSAL_TERMS if causal else BIDIRECTIONAL_TERMS
    chosen = numbers.sample(terms, numbers.randint(1, 3))
    length = numbers.choice([1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 331, 512])
    num_q_heads, num_kv_heads = numbers.choice(RATIOS)
    head_dim = numbers.choice([1, 7, 16, 40, 64, 80, 96, 128, 192, 256])
    return {"attend": "+".join(term(numbers) for term in chosen),
            "bidirectional": not causal,
            "length": length,
            "rows": numbers.randint(1, length) if numbers.random() < 0.5 else None,
            "num_q_heads": num_q_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "v_head_dim": head_dim if numbers.random() < 0.7 else numbers.randint(1, 130),
            "dtype": numbers.choice(["f32", "f32", "bf16", "f16"]),
            "learned_sinks": numbers.random() < 0.3,
            "threads": numbers.choice([1, 2])}


def flags_of(problem):
    flags = []
    for name, value in problem.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags += [flag, str(value)]
    return flags
