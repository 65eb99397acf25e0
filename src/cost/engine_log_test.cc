#include "lacuna/engine_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lacuna/error.h"

namespace lacuna {
namespace {

std::vector<LogFigure> figures(std::string_view log) {
  const std::vector<EngineStart> starts = read_engine_log(log);
  return starts.empty() ? std::vector<LogFigure>{} : starts.front().figures;
}

LogFigure only_figure(std::string_view log) {
  const std::vector<LogFigure> found = figures(log);
  EXPECT_EQ(found.size(), 1u) << log;
  return found.empty() ? LogFigure{} : found.front();
}

std::string error_of(std::string_view log) {
  try {
    read_engine_log(log);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EngineLog, ASizeIsEveryByteCountThatPrintsSo) {
  const LogFigure figure = only_figure("llama_kv_cache:   CUDA0 KV buffer size =     0.80 MiB");
  // 0.795 and 0.805 MiB, and one part in 2^24 for the single precision in which it was divided.
  EXPECT_EQ(figure.low, 833618);
  EXPECT_EQ(figure.high, 844103);
  EXPECT_EQ(figure.text, "0.80 MiB");
  EXPECT_EQ(figure.line, 1);
}

TEST(EngineLog, VllmLeavesZerosAtTheEndAway) {
  for (const char* text : {"Available KV cache memory: 24.5 GiB", "kv_cache_size=24.50GiB",
                           "rest of the memory reserved for KV Cache is 24.50GiB.",
                           "free memory 93.88 GiB, reserved 24.5 GiB memory for KV Cache as"}) {
    const LogFigure figure = only_figure(text);
    EXPECT_EQ(figure.kind, LogFigureKind::kAvailableBytes);
    EXPECT_EQ(figure.low, 26301305979) << text;   // 24.495 GiB, rounded up
    EXPECT_EQ(figure.high, 26312043397) << text;  // 24.505 GiB, rounded down
  }
}

TEST(EngineLog, MemoryBelowNothingIsNoFigure) {
  EXPECT_TRUE(read_engine_log("Available KV cache memory: -2.14 GiB").empty());
}

TEST(EngineLog, ConcurrencyIsInThousandths) {
  const LogFigure figure = only_figure("Maximum concurrency for 131,072 tokens per request: 3.13x");
  EXPECT_EQ(figure.low, 3125);
  EXPECT_EQ(figure.high, 3135);
  EXPECT_EQ(figure.length, 131072);
}

TEST(EngineLog, OneLineMayHoldTwoFigures) {
  const std::vector<LogFigure> found = figures(
      "GPU KV cache size: 268,560 tokens, Maximum concurrency for 2,048 tokens per request: "
      "131.13x");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].low, 268560);
  EXPECT_EQ(found[1].length, 2048);
}

TEST(EngineLog, BuffersOfDevicesAreOneFigure) {
  const std::vector<LogFigure> found = figures(
      "llama_kv_cache: CUDA0 KV buffer size = 1.00 MiB\n"
      "llama_kv_cache: CUDA1 KV buffer size = 2.00 MiB\n"
      "llama_kv_cache: size = 3.00 MiB (  256 cells,   2 layers,  4/2 seqs), K (f16): 1.50 MiB, "
      "V (q8_0): 1.50 MiB\n");
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0].kind, LogFigureKind::kBufferBytes);
  EXPECT_EQ(found[0].parts, 2);
  EXPECT_EQ(found[0].text, "1.00 MiB + 2.00 MiB");
  EXPECT_LE(found[0].low, 3 << 20);
  EXPECT_GE(found[0].high, 3 << 20);
}

TEST(EngineLog, ACacheHasItsTypesAndSequences) {
  const std::vector<EngineStart> starts = read_engine_log(
      "llama_kv_cache: size = 3.00 MiB (  256 cells,   2 layers,  4/2 seqs), K (f16): 1.50 MiB, "
      "V (q8_0): 1.50 MiB\n");
  ASSERT_EQ(starts.size(), 1u);
  const LogCache& cache = starts[0].caches.at(0);
  EXPECT_EQ(cache.k_type + " " + cache.v_type, "f16 q8_0");
  EXPECT_EQ(cache.num_seqs, 4);
  EXPECT_EQ(cache.streams, 2);
}

TEST(EngineLog, ParametersBeforeNewCachesBeginANewStart) {
  const std::string once =
      "llama_context: n_ctx         = 4096\n"
      "llama_context: n_ctx_per_seq = 2048\n"
      "llama_context: kv_unified    = true\n"
      "llama_kv_cache_unified: CPU KV buffer size = 1.00 MiB\n"
      "slot   load_model: id  0 | task -1 | new slot, n_ctx = 8192\n"
      "main: n_ctx = 9, n_batch = 7\n";
  const std::vector<EngineStart> starts = read_engine_log(once + once);
  ASSERT_EQ(starts.size(), 2u);
  for (const EngineStart& start : starts) {
    EXPECT_EQ(start.settings.at("n_ctx").value, 4096);
    EXPECT_EQ(start.settings.at("kv_unified").value, 1);
    EXPECT_EQ(start.settings.size(), 2u);
  }
}

TEST(EngineLog, VllmNamesItsParametersInSeveralWays) {
  for (const char* line :
       {"INFO non-default args: {'max_model_len': 4096, 'block_size': 32}",
        "Initializing a V1 LLM engine (v0.10) with config: max_seq_len=4096, block_size=32",
        "vllm serve m --max-model-len 4096 --block-size 32",
        "vllm serve m --max-model-len=4096 --block_size=32"}) {
    const std::vector<EngineStart> starts =
        read_engine_log(std::string(line) + "\nGPU KV cache size: 64 tokens\n");
    ASSERT_EQ(starts.size(), 1u) << line;
    EXPECT_EQ(starts[0].settings.at("max_model_len").value, 4096) << line;
    EXPECT_EQ(starts[0].settings.at("block_size").value, 32) << line;
  }
  const std::vector<EngineStart> none = read_engine_log(
      "INFO non-default args: {'block_size': None}\nGPU KV cache size: 64 tokens\n");
  EXPECT_TRUE(none.at(0).settings.empty());
}

TEST(EngineLog, RepeatedLinesOfVllmCountOnce) {
  EXPECT_EQ(figures("GPU KV cache size: 64 tokens\nGPU KV cache size: 64 tokens\n").size(), 1u);
  EXPECT_EQ(figures("GPU KV cache size: 64 tokens\nGPU KV cache size: 80 tokens\n").size(), 2u);
}

TEST(EngineLog, RanksOfDataParallelismAreStartsOfTheirOwn) {
  const std::vector<EngineStart> starts = read_engine_log(
      "(APIServer pid=1) INFO non-default args: {'block_size': 32}\n"
      "(EngineCore_DP1 pid=3) GPU KV cache size: 64 tokens\n"
      "(EngineCore_DP0 pid=2) GPU KV cache size: 32 tokens\n");
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].figures[0].low, 64);
  EXPECT_EQ(starts[1].figures[0].low, 32);
  EXPECT_EQ(starts[0].settings.at("block_size").value, 32);
}

TEST(EngineLog, ColoursAndWindowsLineEndsDoNotMatter) {
  const LogFigure figure = only_figure(
      "\x1b[1;36mGPU KV \x1b[0mcache size: \x1b[38;5;1m1,2\x1b[0m34,567\x1b[0m "
      "tokens\r\n\x1b[\x1b");
  EXPECT_EQ(figure.low, 1234567);
}

TEST(EngineLog, OtherCachesAreNotRead) {
  EXPECT_TRUE(read_engine_log("llama_memory_recurrent: size = 3216.00 MiB (    64 cells,  32 "
                              "layers, 64 seqs), R (f32): 2.00 MiB, S (f32): 1.00 MiB\n"
                              "llama_context: CUDA0 compute buffer size = 12.00 MiB\n"
                              "INFO Engine 000: GPU KV cache usage: 0.1%\n")
                  .empty());
}

TEST(EngineLog, NumbersThatCannotBeReadNameTheirLine) {
  EXPECT_EQ(error_of("\nllama_kv_cache: CPU KV buffer size = twelve MiB"),
            "line 2 of the log has 'twelve MiB' after 'KV buffer size ='; allowed: a number and "
            "MiB, up to 2^46 bytes");
  EXPECT_EQ(error_of("GPU KV cache size: 1,23 tokens"),
            "line 1 of the log has '1,23 tokens' after 'KV cache size:'; allowed: a whole number "
            "up to 2^46 and tokens");
  for (const char* line :
       {"llama_kv_cache_init: kv_size = , type_k = 'f16', type_v = 'f16'",
        "llama_kv_cache_init: kv_size = 8, type_k = f16, type_v = 'f16'",
        "llama_kv_cache: size = 1.00 MiB (9 cells, 1 layers, 0/0 seqs), K (f16): 1.00 MiB, V (",
        "llama_kv_cache: size = 1.00 MiB (9 cells, 1 layers, 1/2 seqs), K (f16): 1.00 MiB, V (f): "
        "1 "
        "MiB",
        "llama_context: n_ctx = lots", "GPU blocks: many", "kv_cache_size=GiB",
        "Available KV cache memory: 99999999 GiB",
        "Maximum concurrency for 12 tokens per request: 1.2.3x"}) {
    EXPECT_NE(error_of(line).find("line 1 of the log has"), std::string::npos) << line;
  }
}

TEST(EngineLog, MoreFiguresThanAnyEnginePrintsAreRefused) {
  std::string log = "GPU KV cache size: 1 tokens\n";
  for (int count = 2; count <= 10001; ++count) {
    log += "GPU KV cache size: " + std::to_string(count) + " tokens\n";
  }
  EXPECT_NE(error_of(log).find("more than 10000 figures"), std::string::npos);
}

}  // namespace
}  // namespace lacuna
