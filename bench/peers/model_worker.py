"""One engine with one model, context and settings, in a process of its own: threads, precisions and
caches are a process's own.

    model_worker.py JOB    JOB is JSON: engine ("llama.cpp", "OpenVINO GenAI"), model (a GGUF file),
                           context_tokens, threads, settings (see the engines below), warm_ids

Prints one JSON line when the model is loaded and has answered warm_ids once, then one for every line
of standard input, {"ids": […], "generate": M}: first_token_seconds, from the call with these token
ids to its first greedy token, and step_seconds, of each of the M tokens after it. No tokenizer is in
the times. Only public interfaces are used.
"""

import importlib.metadata
import json
import os
import signal
import sys
import time


class LlamaCpp:
    """settings: llama_cpp.Llama's own arguments, flash_attn, swa_full, n_batch, n_ubatch, and kv,
    the type of keys and values ("f16", "q8_0")."""

    PACKAGE = "llama-cpp-python"

    def __init__(self, job):
        import llama_cpp
        settings = dict(job["settings"])
        kind = getattr(llama_cpp, f"GGML_TYPE_{settings.pop('kv', 'f16').upper()}")
        self._llama = llama_cpp.Llama(
            job["model"], n_ctx=job["context_tokens"], n_threads=job["threads"],
            n_threads_batch=job["threads"], type_k=kind, type_v=kind, verbose=False, **settings)

    def tokens(self, ids, count):
        """A time stamp for each of `count` tokens."""
        stamps = []
        self._llama.reset()  # nothing of an earlier prompt may be reused
        for _ in self._llama.generate(ids, temp=0.0, repeat_penalty=1.0, reset=True):
            stamps.append(time.perf_counter())
            if len(stamps) == count:
                return stamps
        raise RuntimeError(f"ended after {len(stamps)} of {count} tokens")


class OpenVino:
    """settings: batched (tokens of a prompt in one pass), properties (of the device), and sparse,
    the arguments of SparseAttentionConfig with the name of its mode."""

    PACKAGE = "openvino-genai"

    def __init__(self, job):
        import openvino_genai
        self._genai = openvino_genai
        settings = job["settings"]
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = settings["batched"]
        if "sparse" in settings:
            sparse = dict(settings["sparse"])
            sparse["mode"] = getattr(openvino_genai.SparseAttentionMode, sparse["mode"])
            scheduler.use_sparse_attention = True
            scheduler.sparse_attention_config = openvino_genai.SparseAttentionConfig(**sparse)
        self._pipeline = openvino_genai.LLMPipeline(
            job["model"], "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=job["threads"],
            **settings.get("properties", {}))

    def tokens(self, ids, count):
        """A time stamp for each of `count` tokens."""
        import numpy as np
        import openvino
        genai, stamps = self._genai, []

        class Stamps(genai.StreamerBase):
            def write(self, tokens):
                now = time.perf_counter()
                stamps.extend([now] * (1 if isinstance(tokens, int) else len(tokens)))
                return genai.StreamingStatus.RUNNING

            def end(self):
                pass

        wanted = genai.GenerationConfig()
        wanted.max_new_tokens, wanted.ignore_eos, wanted.do_sample = count, True, False
        row = np.array([ids], np.int64)
        self._pipeline.generate(
            genai.TokenizedInputs(openvino.Tensor(row), openvino.Tensor(np.ones_like(row))), wanted,
            Stamps())
        if len(stamps) != count:
            raise RuntimeError(f"{len(stamps)} tokens came, wanted {count}")
        return stamps


ENGINES = {"llama.cpp": LlamaCpp, "OpenVINO GenAI": OpenVino}


def figures(engine, ids, generate):
    begin = time.perf_counter()
    stamps = engine.tokens(ids, generate + 1)
    return {"first_token_seconds": stamps[0] - begin,
            "step_seconds": [later - one for one, later in zip(stamps, stamps[1:])]}


def main():
    job = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, in the middle of an engine's work
    answers = os.fdopen(os.dup(1), "w")  # an engine that prints must not be read as an answer
    os.dup2(2, 1)
    kind = ENGINES[job["engine"]]
    begin = time.perf_counter()
    engine = kind(job)
    ready = {"version": importlib.metadata.version(kind.PACKAGE),
             "load_seconds": time.perf_counter() - begin,
             "warm_up": figures(engine, job["warm_ids"], 2)}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(figures(engine, **json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
