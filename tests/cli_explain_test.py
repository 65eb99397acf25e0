"""`lacuna explain`: real lines of llama.cpp and vLLM, each with its source, and what it must refuse.

    cli_explain_test.py PROGRAM
"""

import json
import unittest

from program import FOLDER, MODELS, assert_refused, check, main, run


def llama_cache(mib, cells, layers, seqs="1/1", k="f16", v="f16", name="llama_kv_cache"):
    """The line of a cache whose keys and values take the same bytes."""
    return (f"{name}: size = {mib:7.2f} MiB ({cells:6d} cells, {layers:3d} layers, {seqs} seqs), "
            f"K ({k}): {mib / 2:7.2f} MiB, V ({v}): {mib / 2:7.2f} MiB\n")


def iswa(base, swa, context=""):
    """Both caches of a model with windows: (cells, layers, MiB) each."""
    return (context + f"llama_kv_cache_iswa: creating non-SWA KV cache, size = {base[0]} cells\n"
            + llama_cache(base[2], base[0], base[1])
            + f"llama_kv_cache_iswa: creating     SWA KV cache, size = {swa[0]} cells\n"
            + llama_cache(swa[2], swa[0], swa[1]))


def context(**settings):
    return "".join(f"llama_context: {name:21} = {value}\n" for name, value in settings.items())


def gpt_oss_120b():
    return FOLDER.model("gpt-oss-20b", num_hidden_layers=36,
                        layer_types=["sliding_attention", "full_attention"] * 18)


def gemma_4_26b():
    text = dict(MODELS["Gemma-4-31B"]["config"]["text_config"])
    text.update(hidden_size=2816, num_hidden_layers=30, num_attention_heads=16,
                num_key_value_heads=8, num_global_key_value_heads=2,
                layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 5)
    return FOLDER.model("Gemma-4-31B", text_config=text)


class Explained(unittest.TestCase):
    def explained(self, log, model, *flags, code=0):
        """The document of the log's starts, whose exit code is `code`."""
        path = FOLDER.write(f"log-{abs(hash(log))}.txt", log)
        model = FOLDER.model(model) if isinstance(model, str) else model
        result = run("explain", path, "--model", model, *flags, "--json")
        self.assertEqual(result.returncode, code, result.stderr + result.stdout[-4000:])
        self.assertEqual(result.stderr == "", code == 0)
        found = json.loads(result.stdout)
        check(found, "explain.schema.json", log[:200])
        words = run("explain", path, "--model", model, *flags)
        self.assertEqual(words.returncode, code)
        self.assertIn("accounted for" if code == 0 else "differs", words.stdout)
        return found["starts"]

    def fits(self, log, model, policy, bytes_held, *flags):
        start, = self.explained(log, model, *flags)
        self.assertTrue(start["accounted"])
        self.assertEqual([start["policies"][0]["policy"], start["policies"][0]["bytes"]],
                         [policy, bytes_held])
        return start


class LlamaCpp(Explained):
    def test_gemma_3_4b_at_131072(self):  # ollama PR #17037
        log = iswa((131072, 5, 2560.0), (1536, 29, 174.0), context(n_ctx=131072, n_ubatch=512))
        self.fits(log, "Gemma-3-4b", "iswa", 5 * 131072 * 4096 + 29 * 1536 * 4096)
        self.fits(log, "Gemma-3-4b-multimodal", "iswa", 2560 * 2**20 + 174 * 2**20)

    def test_gemma_3_4b_without_the_lines_that_name_the_caches(self):  # a log of b8500, Metal
        log = ("llama_kv_cache: size =  160.00 MiB (  8192 cells,   5 layers), K (f16):   80.00 MiB, "
               "V (f16):   80.00 MiB\n"
               "llama_kv_cache: size =  174.00 MiB (  1536 cells,  29 layers), K (f16):   87.00 MiB, "
               "V (f16):   87.00 MiB\n")
        start = self.fits(log, "Gemma-3-4b", "iswa", 334 * 2**20)
        self.assertIn({"name": "n_ctx", "value": "8192", "source": "the cells of the first cache"},
                      start["parameters"])

    def test_gemma_3_270m_with_3_and_4_slots(self):  # unsloth PR #7530
        for seqs, cells, mib in [(3, 512, 27.0), (4, 256, 18.0)]:
            log = context(n_seq_max=seqs, n_ctx=1024, n_ubatch=512, kv_unified="false")
            log += f"llama_kv_cache_iswa: creating non-SWA KV cache, size = {cells} cells\n"
            log += llama_cache(mib * 3 / 18, cells, 3, f"{seqs}/{seqs}")
            log += f"llama_kv_cache_iswa: creating     SWA KV cache, size = {cells} cells\n"
            log += llama_cache(mib * 15 / 18, cells, 15, f"{seqs}/{seqs}")
            self.fits(log, "Gemma-3-270m", "iswa", int(mib * 2**20))

    def test_gemma_3_27b_at_131072(self):  # 10.61 GiB with llama.cpp's cells: unsloth PR #4757
        log = iswa((131072, 10, 10240.0), (1536, 52, 624.0), context(n_ctx=131072))
        start = self.fits(log, "Gemma-3-27b", "iswa", 10864 * 2**20)
        self.assertIn({"name": "n_ubatch", "value": "512", "source": "default of llama.cpp"},
                      start["parameters"])

    def test_models_without_windows(self):  # unsloth PR #4757
        for model, cells, layers, mib in [("Qwen3-0.6B", 40960, 28, 4480.0),
                                          ("Qwen3.5-27B", 262144, 16, 16384.0)]:
            self.fits(context(n_ctx=cells) + llama_cache(mib, cells, layers), model, "full",
                      int(mib * 2**20))

    def test_gpt_oss_20b_over_eight_devices(self):  # a CANN log of August 2025
        log = context(n_seq_max=1, n_ctx=131072, n_ctx_per_seq=131072, n_batch=2048, n_ubatch=512,
                      flash_attn=1, kv_unified="false")
        log += "llama_kv_cache_unified_iswa: creating non-SWA KV cache, size = 131072 cells\n"
        for device in range(8):
            log += (f"llama_kv_cache_unified:      CANN{device} KV buffer size = "
                    f"{(512, 256)[device % 2]:8.2f} MiB\n")
        log += llama_cache(3072.0, 131072, 12, name="llama_kv_cache_unified")
        log += "llama_kv_cache_unified_iswa: creating     SWA KV cache, size = 768 cells\n"
        for device, mib in enumerate([3, 3, 1.5, 3, 1.5, 3, 1.5, 1.5]):
            log += f"llama_kv_cache_unified:      CANN{device} KV buffer size = {mib:8.2f} MiB\n"
        log += llama_cache(18.0, 768, 12, name="llama_kv_cache_unified")
        log += "llama_context:      CANN0 compute buffer size =   396.27 MiB\n"
        log += "srv          init: initializing slots, n_slots = 1\n"
        log += "slot         init: id  0 | task -1 | new slot n_ctx_slot = 131072\n"
        start = self.fits(log, "gpt-oss-20b", "iswa", 3090 * 2**20)
        figures = [line["figure"] for line in start["policies"][0]["lines"]]
        self.assertEqual(figures.count("full layers: buffers"), 1)

    def test_gpt_oss_20b_with_keys_and_values_as_q8_0(self):  # llama.cpp on Snapdragon, ubatch 128
        log = "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
        log += "llama_kv_cache:     HTP0:1 KV buffer size =    25.50 MiB\n" * 4
        log += llama_cache(102.0, 8192, 12, k="q8_0", v="q8_0")
        log += "llama_kv_cache_iswa: creating     SWA KV cache, size = 256 cells\n"
        log += "".join(f"llama_kv_cache: HTP KV buffer size = {mib:8.2f} MiB\n"
                       for mib in (0.80, 0.53, 1.06, 0.80))
        log += ("llama_kv_cache: size =    3.19 MiB (   256 cells,  12 layers,  1/1 seqs), "
                "K (q8_0):    1.59 MiB, V (q8_0):    1.59 MiB\n")
        self.fits(log, "gpt-oss-20b", "iswa", 12 * (8192 + 256) * 1088, "--ubatch-size", 128)
        start, = self.explained(log, "gpt-oss-20b", code=1)
        self.assertEqual(start["causes"], ["n_ubatch, which the log does not state, as 32, 64 or 128: "
                                           "every line would fit"])

    def test_gemma_2_with_the_window_cache_in_full_size(self):  # ollama on ROCm, May 2026
        log = context(n_seq_max=2, n_ctx=16384, n_ctx_seq=8192, n_batch=512, n_ubatch=256,
                      kv_unified="false")
        log += ("llama_kv_cache_iswa: using full-size SWA cache (ref: "
                "https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)\n")
        for words in ("non-SWA", "    SWA"):
            log += f"llama_kv_cache_iswa: creating {words} KV cache, size = 8192 cells\n"
            log += "llama_kv_cache:      ROCm0 KV buffer size =   832.00 MiB\n"
            log += llama_cache(832.0, 8192, 13, "2/2")
        self.fits(log, "Gemma-2-2b", "full", 1664 * 2**20)

    def test_gemma_4_26b_whose_log_has_buffers_only(self):  # llama.cpp on Vulkan, time stamps
        log = ("0.06.511.228 I llama_context: n_ctx         = 8192\n"
               "0.06.511.228 I llama_context: n_ctx_seq     = 8192\n"
               "0.06.511.229 I llama_context: kv_unified    = false\n"
               "0.06.511.234 I llama_context: n_ctx_seq (8192) < n_ctx_train (262144) -- the full "
               "capacity of the model will not be utilized\n"
               "0.06.512.839 I llama_context: Vulkan_Host  output buffer size =     1.00 MiB\n"
               "0.06.512.843 I llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
               "0.06.515.839 I llama_kv_cache:    Vulkan0 KV buffer size =   160.00 MiB\n"
               "0.06.522.038 I llama_kv_cache_iswa: creating     SWA KV cache, size = 3072 cells\n"
               "0.06.534.168 I llama_kv_cache:    Vulkan0 KV buffer size =   600.00 MiB\n"
               "0.06.606.520 I sched_reserve:    Vulkan0 compute buffer size =   428.07 MiB\n"
               "0.06.726.103 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 8192, "
               "kv_unified = 'false'\n")
        self.fits(log, gemma_4_26b(), "iswa", 760 * 2**20, "--ubatch-size", 2048)

    def test_gemma_3_1b_before_windows_had_a_cache(self):  # ipex-llm #13038
        log = ("llama_kv_cache_init: kv_size = 2048, offload = 1, type_k = 'f16', type_v = 'f16', "
               "n_layer = 26, can_shift = 1\n"
               "llama_kv_cache_init:      SYCL0 KV buffer size =    52.00 MiB\n"
               "llama_new_context_with_model: KV self size  =   52.00 MiB, K (f16):   26.00 MiB, "
               "V (f16):   26.00 MiB\n")
        self.fits(log, "Gemma-3-1b", "full", 52 * 2**20)

    def test_the_first_line_that_differs_is_named_with_its_bytes(self):
        log = iswa((131072, 5, 2560.0), (1536, 29, 180.0), context(n_ctx=131072, n_ubatch=512))
        start, = self.explained(log, "Gemma-3-4b", code=1)
        self.assertEqual(start["first_difference_line"], 6)
        line = next(line for line in start["policies"][0]["lines"] if line["difference"])
        self.assertEqual([line["figure"], line["predicted_low"]],
                         ["window layers: K and V", 174 * 2**20])
        self.assertAlmostEqual(line["difference"], 6 * 2**20, delta=6000)  # half of 0.01 MiB
        self.assertIn("more than the nearest policy", start["verdict"])
        self.assertEqual(start["causes"], ["line 6 prints the bytes of 30 layers instead of 29"])

    def test_bytes_of_other_cells_are_told(self):
        for mib, hint in [(203.0, "the bytes of 1792 cells a layer instead of 1536"),
                          (290.0, "the bytes of 2560 cells a layer instead of 1536"),
                          (175.0, None)]:
            log = iswa((131072, 5, 2560.0), (1536, 29, mib), context(n_ctx=131072, n_ubatch=512))
            start, = self.explained(log, "Gemma-3-4b", code=1)
            self.assertEqual(start["causes"], [f"line 6 prints {hint}"] if hint else [])

    def test_another_model_differs(self):
        log = iswa((131072, 5, 2560.0), (1536, 29, 174.0), context(n_ctx=131072, n_ubatch=512))
        start, = self.explained(log, "Gemma-3-1b", code=1)
        self.assertEqual(start["first_difference_line"], 4)

    def test_a_draft_layer_is_found(self):
        log = context(n_ctx=4096) + llama_cache(4096 * 29 * 4096 / 2**20, 4096, 29)
        start, = self.explained(log, "Qwen3-0.6B", code=1)
        self.assertIn("one more layer of full, such as a draft layer", start["causes"][0])


class Vllm(Explained):
    WORKER = "(EngineCore pid=86) level=INFO name=vllm.v1.worker.gpu_worker "
    UTILS = "(EngineCore pid=86) level=INFO name=vllm.v1.core.kv_cache_utils "

    def test_gpt_oss_120b(self):  # hf-mem #60
        log = (self.WORKER + 'msg="Available KV cache memory: 5.38 GiB"\n'
               + self.UTILS + 'msg="GPU KV cache size: 78,384 tokens"\n')
        start = self.fits(log, gpt_oss_120b(), "pool", 78384 * 73728)
        # Two groups of one size hold what layers in full hold: a request tells them apart.
        self.assertTrue(any(text.startswith("uniform(P=16)")
                            for text in start["policies"][0]["alike"]))

    def test_gemma_4_31b(self):  # hf-mem PR #61
        log = (self.WORKER + 'msg="Available KV cache memory: 24.54 GiB"\n'
               + self.UTILS + 'msg="GPU KV cache size: 26,800 tokens"\n')
        off = ("(EngineCore pid=118) WARNING [kv_cache_utils.py:1339] Hybrid KV cache manager is "
               "disabled for this hybrid model, This means we do not enable any optimizations\n")
        self.fits(off + log, "Gemma-4-31B", "uniform", 26800 * 983040)
        self.fits(log, "Gemma-4-31B", "pool", 26800 * 983040)

    def test_gemma_4_31b_without_the_hybrid_manager(self):  # tenstorrent/tt-xla #5727
        log = ("(EngineCore pid=7) WARNING [kv_cache_utils.py:1339] Hybrid KV cache manager is "
               "disabled for this hybrid model\n"
               "(EngineCore pid=7) INFO [kv_cache_utils.py:1733] GPU KV cache size: 7,584 tokens\n"
               "(EngineCore pid=7) INFO [kv_cache_utils.py:1734] Maximum concurrency for 128 tokens "
               "per request: 59.25x\n")
        self.fits(log, "Gemma-4-31B", "uniform", 7584 * 983040)

    def test_llama_3_1_8b_in_two_starts(self):  # vllm #10517
        log = ("Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB "
               "kv_cache_size=3.81GiB gpu_memory_utilization=0.90\n"
               "# GPU blocks: 1952, # CPU blocks: 2048\n"
               "Maximum concurrency for 20000 tokens per request: 1.56x\n"
               "Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB "
               "kv_cache_size=2.89GiB gpu_memory_utilization=0.90\n"
               "# GPU blocks: 1478, # CPU blocks: 2048\n"
               "Maximum concurrency for 29000 tokens per request: 0.82x\n"
               "The model's max seq len (29000) is larger than the maximum number of tokens that can "
               "be stored in KV cache (23648). Try increasing `gpu_memory_utilization`\n")
        starts = self.explained(log, "Llama-3.1-8B")
        self.assertEqual([start["policies"][0]["bytes"] for start in starts],
                         [1952 * 16 * 131072, 1478 * 16 * 131072])
        second, = self.explained(log, "Llama-3.1-8B", "--start", 2)
        self.assertEqual(second, starts[1])

    def test_qwen3_1_7b(self):  # vllm #33263; its KV is that of Qwen3-0.6B
        log = ("INFO 01-28 16:08:46 [gpu_worker.py:358] Available KV cache memory: 18.78 GiB\n"
               "INFO 01-28 16:08:46 [kv_cache_utils.py:1305] GPU KV cache size: 175,856 tokens\n")
        self.fits(log, "Qwen3-0.6B", "uniform", 175856 * 114688)

    def test_a_request_that_does_not_fit(self):  # vllm #27508
        log = ("INFO non-default args: {'model': 'openai/gpt-oss-120b', 'gpu_memory_utilization': "
               "0.95, 'max_num_batched_tokens': 1024}\n"
               "(EngineCore_DP0 pid=6880) INFO 10-31 15:07:49 [gpu_worker.py:298] Available KV cache "
               "memory: 1.71 GiB\n"
               "(EngineCore_DP0 pid=6880) ValueError: To serve at least one request with the models's "
               "max seq len (131072), (4.54 GiB KV cache is needed, which is larger than the "
               "available KV cache memory (1.71 GiB). Based on\n")
        start, = self.explained(log, gpt_oss_120b())
        self.assertEqual(start["policies"][0]["params"], {"P": 16, "batched": 1024})
        self.assertEqual(len(start["policies"]), 1)

    def test_the_longest_request_that_would_fit(self):  # vllm #34076
        log = ("(EngineCore_DP0 pid=1094) ValueError: To serve at least one request with the models's "
               "max seq len (262144), (24.0 GiB KV cache is needed, which is larger than the "
               "available KV cache memory (3.18 GiB). Based on the available memory, the estimated "
               "maximum model length is 34736. Try increasing `gpu_memory_utilization`\n")
        start, = self.explained(log, "Qwen3-30B-A3B")
        self.assertEqual(len(start["policies"][0]["lines"]), 3)

    def test_a_draft_model_takes_its_share(self):  # Llama 3.1 8B with EAGLE, June 2025
        log = ("INFO 06-23 14:21:48 [gpu_worker.py:232] Available KV cache memory: 51.63 GiB\n"
               "INFO 06-23 14:21:48 [kv_cache_utils.py:716] GPU KV cache size: 410,128 tokens\n"
               "INFO 06-23 14:21:48 [kv_cache_utils.py:720] Maximum concurrency for 131,072 tokens "
               "per request: 3.13x\n")
        start, = self.explained(log, "Llama-3.1-8B", code=1)
        self.assertEqual(start["first_difference_line"], 2)
        self.assertEqual(start["causes"],
                         ["one more layer of full, such as a draft layer: every line would fit"])

    def test_flags_stand_in_for_what_the_log_does_not_say(self):
        log = ("INFO Available KV cache memory: 10.00 GiB\n"
               f"INFO GPU KV cache size: {10 * 2**30 // (57344 // 2) // 32 * 32:,} tokens\n")
        start, = self.explained(log, "Qwen2.5-7B-Instruct", "--tensor-parallel-size", 2,
                                "--block-size", 32)
        self.assertIn({"name": "block_size", "value": "32", "source": "--block-size"},
                      start["parameters"])
        start, = self.explained(log, "Qwen2.5-7B-Instruct", code=1)
        self.assertIn("tensor_parallel_size, which the log does not state, as 2: every line would fit",
                      start["causes"])

    def test_workers_and_ranks(self):
        """Four workers of one engine, two engines of data parallelism, colours, Windows' line ends."""
        def tokens(gib):
            return int(gib * 2**30) // (16 * 131072 // 4) * 16
        log = ""
        for rank, gibs in [(0, (8.0, 7.5, 8.25, 7.75)), (1, (9.0, 9.5, 9.25, 9.75))]:
            for worker, gib in enumerate(gibs):
                log += (f"\x1b[1;36m(Worker_DP{rank}_TP{worker} pid={worker})\x1b[0;0m INFO "
                        f"Available KV cache memory: {gib:.2f} GiB\r\n")
        for rank, gib in [(1, 9.0), (0, 7.5)]:
            log += (f"\x1b[1;36m(EngineCore_DP{rank} pid=9)\x1b[0;0m INFO GPU KV cache size: "
                    f"{tokens(gib):,} tokens\r\n")
        starts = self.explained(log, "Llama-3.1-8B", "--tensor-parallel-size", 4)
        self.assertEqual([start["policies"][0]["bytes"] for start in starts],
                         [tokens(7.5) * 32768, tokens(9.0) * 32768])


class Refused(unittest.TestCase):
    def refused(self, log, *says, flags=(), model="Llama-3.1-8B"):
        path = FOLDER.write("refused.txt", log)
        assert_refused(self, run("explain", path, "--model", FOLDER.model(model), *flags), says)

    def test_what_is_no_log_of_a_cache(self):
        for log in ("", "hello\n", "\0\1\2", "llama_context: n_ctx = 4096\n"):
            self.refused(log, "has no line about a KV cache", "allowed")

    def test_broken_numbers_name_the_line(self):
        for number in ("x", "1.2.3 MiB", "1e3 MiB", "99999999999999999999 MiB", "12.00 MB", "",
                       "99999999999999.00 MiB"):
            log = f"first\nllama_kv_cache:      CUDA0 KV buffer size =   {number}\n"
            self.refused(log, "line 2 of the log", "KV buffer size =", "allowed")
        self.refused("GPU KV cache size: 12,34 tokens\n", "line 1", "whole number")
        self.refused("Maximum concurrency for 10 tokens per request: 1.5\n", "line 1", "'x'")

    def test_types_contexts_and_starts_that_are_not_known(self):
        self.refused(llama_cache(1.0, 256, 1, k="turbo3"), "turbo3", "allowed")
        self.refused("llama_new_context_with_model: KV self size  =   52.00 MiB, K (f16):   26.00 "
                     "MiB, V (f16):   26.00 MiB\n", "n_ctx", "--n-ctx")
        self.refused(llama_cache(1.0, 256, 1), "--start", "1..1", flags=("--start", 2))
        self.refused("GPU KV cache size: 160 tokens\n", "tensor_parallel_size is 3", "8 KV heads",
                     flags=("--tensor-parallel-size", 3))

    def test_too_many_starts(self):
        self.refused("llama_context: n_ctx = 256\n" + llama_cache(1.0, 256, 1) + "".join(
            "llama_context: n_ctx = 256\n" + llama_cache(1.0, 256, 1) for _ in range(257)),
                     "more than 256 engine starts")

    def test_a_file_that_is_too_large(self):
        path = FOLDER.path / "large.txt"
        with open(path, "wb") as file:
            file.truncate((64 << 20) + 1)
        result = run("explain", path, "--model", FOLDER.model("Llama-3.1-8B"))
        assert_refused(self, result, ["large.txt", "allowed"])


if __name__ == "__main__":
    main()
