#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lacuna {

// What vLLM and llama.cpp (also inside ollama and others) print about their KV cache when they
// start, read out of a log among any other lines. It knows lines and numbers, and nothing of
// models; engine_account.h says which policy accounts for them.
enum class Engine { kLlamaCpp, kVllm };
std::string_view to_string(Engine engine);

// What a printed figure is about.
enum class LogFigureKind {
  // llama.cpp, of one cache.
  kCells,        // of a stream
  kLayers,       // that the cache stores
  kCacheBytes,   // K and V
  kKeyBytes,     // K alone
  kValueBytes,   // V alone
  kBufferBytes,  // sum over the devices
  // vLLM, of one worker.
  kAvailableBytes,  // memory for KV
  kBlocks,          // pages of the pool
  kCapacityTokens,  // "GPU KV cache size"
  kStoredTokens,    // all blocks times their size, in an older refusal
  kConcurrency,     // requests of `length` tokens that fit, in thousandths
  kNeededBytes,     // of one request of `length` tokens, in a refusal
  kLongestTokens,   // the longest request that would fit, in a refusal
};
std::string_view to_string(LogFigureKind kind);
// "bytes", "tokens", "cells", "layers", "blocks" or "thousandths".
std::string_view unit_of(LogFigureKind kind);

struct LogFigure {
  LogFigureKind kind = LogFigureKind::kCells;
  std::int64_t line = 0;  // from 1
  std::string text;       // as it stands there: "174.00 MiB"
  // Every whole number that prints so, in the figure's unit: a size has two decimals, so many byte
  // counts print alike.
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t parts = 1;   // printed numbers in the sum: buffers of devices
  std::int64_t length = 0;  // tokens of the request that the line speaks of, 0 where it names none
  int cache = -1;           // llama.cpp: index into `caches`
};

// A parameter as the log states it.
struct LogSetting {
  std::int64_t line = 0;
  std::string text;        // of kv_cache_dtype
  std::int64_t value = 0;  // of all others; flags are 0 and 1
};

// One cache that llama.cpp created.
struct LogCache {
  enum class Role { kUnnamed, kFull, kWindow };  // "non-SWA" is kFull
  Role role = Role::kUnnamed;
  std::string k_type;  // as ggml names it; empty where the log does not say
  std::string v_type;
  std::int64_t num_seqs = 0;  // 0 where the log does not say
  std::int64_t streams = 0;
};

// One start of an engine: of one context of llama.cpp, of one data-parallel rank of vLLM.
struct EngineStart {
  Engine engine = Engine::kLlamaCpp;
  // llama.cpp: n_ctx, n_batch, n_ubatch, n_seq_max, kv_unified, swa_full. vLLM: block_size,
  // max_num_batched_tokens, max_model_len, tensor_parallel_size, pipeline_parallel_size,
  // num_gpu_blocks_override, hybrid_disabled, kv_cache_dtype.
  std::map<std::string, LogSetting> settings;
  std::vector<LogCache> caches;
  std::vector<LogFigure> figures;  // never empty, in the order of their lines
};

// The starts in the order of their first figures. Colour codes, carriage returns, time stamps and
// the prefixes of workers do not matter; other lines are passed over. Throws Error naming the line
// where a line that is known holds no readable number, and where there are more than 256 starts or
// 10000 figures.
std::vector<EngineStart> read_engine_log(std::string_view text);

}  // namespace lacuna
