#include "lacuna/engine_log.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "cost/log_cursor.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

constexpr std::size_t kMostStarts = 256;
constexpr std::size_t kMostFigures = 10000;

// What a line of vLLM must hold somewhere for its settings to be read: the keys are ordinary words.
constexpr std::string_view kVllmMarks[] = {
    "LLM engine",  "non-default args", "vllm serve",         "Chunked prefill",
    "EngineArgs(", "max model len",    "api_server --model", "engine args"};

// Where vLLM spells one parameter in several ways.
struct Spelling {
  std::string_view written;
  std::string_view name;
};
constexpr Spelling kVllmSettings[] = {
    {"block_size", "block_size"},
    {"max_num_batched_tokens", "max_num_batched_tokens"},
    {"max_model_len", "max_model_len"},
    {"max_seq_len", "max_model_len"},
    {"max model len", "max_model_len"},
    {"tensor_parallel_size", "tensor_parallel_size"},
    {"pipeline_parallel_size", "pipeline_parallel_size"},
};
constexpr std::string_view kLlamaSettings[] = {"n_ctx", "n_batch", "n_ubatch", "n_seq_max",
                                               "kv_unified"};

class Reader {
 public:
  void read_line(std::string_view line, std::int64_t number) {
    const LogCursor cursor(line, number);
    llama_settings(cursor);
    llama_caches(cursor);
    vllm_settings(cursor);
    vllm_memory(cursor);
    vllm_counts(cursor);
    vllm_refusals(cursor);
  }

  std::vector<EngineStart> starts() && {
    std::erase_if(starts_, [](const EngineStart& start) { return start.figures.empty(); });
    std::ranges::stable_sort(starts_, {},
                             [](const EngineStart& start) { return start.figures.front().line; });
    return std::move(starts_);
  }

 private:
  // --- starts ---

  EngineStart& begin(Engine engine, std::size_t& current) {
    if (starts_.size() >= kMostStarts) {
      throw Error(fmt::format("the log has more than {} engine starts; allowed: up to {}, in parts",
                              kMostStarts, kMostStarts));
    }
    current = starts_.size();
    starts_.push_back({engine, {}, {}, {}});
    return starts_.back();
  }

  EngineStart& llama() {
    return llama_ < starts_.size() ? starts_[llama_] : begin(Engine::kLlamaCpp, llama_);
  }
  // Parameters are printed before the caches: after these they are of another context.
  EngineStart& fresh_llama() {
    return llama_ < starts_.size() && starts_[llama_].caches.empty()
               ? starts_[llama_]
               : begin(Engine::kLlamaCpp, llama_);
  }

  std::size_t& rank_slot(const LogCursor& line) {
    const std::int64_t rank = line.data_parallel_rank();
    return vllm_.try_emplace(rank, static_cast<std::size_t>(-1)).first->second;
  }
  EngineStart& vllm(const LogCursor& line) {
    std::size_t& current = rank_slot(line);
    return current < starts_.size() ? starts_[current] : begin_vllm(line);
  }
  EngineStart& fresh_vllm(const LogCursor& line) {
    EngineStart& start = vllm(line);
    return start.figures.empty() ? start : begin_vllm(line);
  }
  EngineStart& begin_vllm(const LogCursor& line) {
    std::size_t& current = rank_slot(line);
    EngineStart& start = begin(Engine::kVllm, current);
    // One process prints the parameters of all ranks.
    const auto first = vllm_.find(0);
    if (line.data_parallel_rank() != 0 && first != vllm_.end() && first->second < current) {
      start.settings = starts_[first->second].settings;
    }
    return start;
  }

  LogFigure& add(EngineStart& start, LogFigureKind kind, const LogNumber& number, int cache = -1) {
    if (++num_figures_ > kMostFigures) {
      throw Error(fmt::format("the log has more than {} figures of KV caches; allowed: up to {}",
                              kMostFigures, kMostFigures));
    }
    start.figures.push_back({kind, number.line, number.text, number.low, number.high, 1, 0, cache});
    return start.figures.back();
  }

  // vLLM repeats a line for workers and in tracebacks; once is enough.
  void add_once(EngineStart& start, LogFigureKind kind, const LogNumber& number,
                std::int64_t length = 0) {
    const bool known = std::ranges::any_of(start.figures, [&](const LogFigure& figure) {
      return figure.kind == kind && figure.low == number.low && figure.high == number.high &&
             figure.length == length;
    });
    if (!known) add(start, kind, number).length = length;
  }

  // --- llama.cpp ---

  void llama_settings(const LogCursor& line) {
    for (const std::string_view name : kLlamaSettings) {
      const std::optional<LogNumber> value = line.llama_setting(name);
      if (value) {
        fresh_llama().settings[std::string(name)] = {value->line, value->text, value->low};
        return;
      }
    }
    if (line.has("using full-size SWA cache")) {
      fresh_llama().settings["swa_full"] = {line.number(), "full-size SWA cache", 1};
    }
  }

  LogCache& begin_cache(EngineStart& start, LogCache::Role role) {
    start.caches.emplace_back().role = role;
    return start.caches.back();
  }

  bool has_figure(const EngineStart& start, LogFigureKind kind) const {
    const int last = static_cast<int>(start.caches.size()) - 1;
    return std::ranges::any_of(start.figures, [&](const LogFigure& figure) {
      return figure.cache == last && figure.kind == kind;
    });
  }

  // The cache that a line without a name speaks of: sizes come last, so what follows is the next.
  int cache_of_line(EngineStart& start) {
    if (start.caches.empty() || has_figure(start, LogFigureKind::kCacheBytes)) {
      begin_cache(start, LogCache::Role::kUnnamed);
    }
    return static_cast<int>(start.caches.size()) - 1;
  }

  void created(const LogCursor& line, LogCache::Role role) {
    // Every context creates its non-SWA cache first.
    EngineStart& start = role == LogCache::Role::kFull ? fresh_llama() : llama();
    begin_cache(start, role);
    add(start, LogFigureKind::kCells, line.count_after("KV cache, size =", "cells"),
        static_cast<int>(start.caches.size()) - 1);
  }

  void llama_caches(const LogCursor& line) {
    if (line.has("creating non-SWA KV cache, size =")) {
      created(line, LogCache::Role::kFull);
    } else if (line.has(" SWA KV cache, size =") && line.has("creating ")) {
      created(line, LogCache::Role::kWindow);
    } else if (line.has("KV buffer size =")) {
      add_buffer(line);
    } else if (line.has("kv_size =") && line.has("type_k =")) {
      EngineStart& start = llama();
      const int cache = cache_of_line(start);
      add(start, LogFigureKind::kCells, line.count_after("kv_size =", ""), cache);
      start.caches.back().k_type = line.quoted_after("type_k =");
      start.caches.back().v_type = line.quoted_after("type_v =");
    } else if ((line.has("size =") || line.has("size  =")) && line.has(", K (") &&
               line.has(", V (") && line.has("MiB")) {
      add_sizes(line);
    }
  }

  void add_buffer(const LogCursor& line) {
    EngineStart& start = llama();
    const int cache = cache_of_line(start);
    const LogNumber number = line.size_after("KV buffer size =", "MiB");
    for (LogFigure& figure : start.figures) {
      if (figure.cache != cache || figure.kind != LogFigureKind::kBufferBytes) continue;
      // Sums are of at most kMostFigures numbers below 2^60 / kMostFigures.
      figure.low += number.low;
      figure.high += number.high;
      figure.text += " + " + number.text;
      if (++figure.parts > 4) figure.text = fmt::format("sum of {} buffers", figure.parts);
      count_part();
      return;
    }
    add(start, LogFigureKind::kBufferBytes, number, cache);
  }

  void count_part() {
    if (++num_figures_ > kMostFigures) {
      throw Error(fmt::format("the log has more than {} figures of KV caches; allowed: up to {}",
                              kMostFigures, kMostFigures));
    }
  }

  void add_sizes(const LogCursor& line) {
    EngineStart& start = llama();
    const int cache = cache_of_line(start);
    LogCache& entry = start.caches.back();
    const bool counted = line.has(" cells");
    const LogNumber bytes = line.size_after(line.has("size =") ? "size =" : "size  =", "MiB");
    if (counted) {
      add(start, LogFigureKind::kCells, line.count_after("MiB (", "cells"), cache);
      if (line.has(" layers")) {
        add(start, LogFigureKind::kLayers, line.count_after(" cells,", "layers"), cache);
      }
      if (line.has(" seqs)")) line.sequences_after(" layers,", entry.num_seqs, entry.streams);
    }
    add(start, LogFigureKind::kCacheBytes, bytes, cache);
    entry.k_type = line.bracketed_after(", K (");
    entry.v_type = line.bracketed_after(", V (");
    add(start, LogFigureKind::kKeyBytes, line.size_after(", K (" + entry.k_type + "):", "MiB"),
        cache);
    add(start, LogFigureKind::kValueBytes, line.size_after(", V (" + entry.v_type + "):", "MiB"),
        cache);
  }

  // --- vLLM ---

  void vllm_settings(const LogCursor& line) {
    const bool begins = line.has("non-default args") || line.has("Initializing a");
    const bool marked =
        std::ranges::any_of(kVllmMarks, [&](std::string_view mark) { return line.has(mark); });
    if (marked && (begins || vllm(line).figures.empty())) {
      EngineStart& start = fresh_vllm(line);
      for (const Spelling& spelling : kVllmSettings) {
        const std::optional<LogNumber> value = line.vllm_setting(spelling.written);
        if (!value) continue;
        start.settings[std::string(spelling.name)] = {value->line, value->text, value->low};
      }
      const std::string dtype = line.vllm_word("kv_cache_dtype");
      if (!dtype.empty()) start.settings["kv_cache_dtype"] = {line.number(), dtype, 0};
    }
    if (line.has("Hybrid KV cache manager is disabled")) {
      vllm(line).settings["hybrid_disabled"] = {line.number(), "disabled", 1};
    }
    if (line.has("Setting attention block size to")) {
      const LogNumber tokens = line.count_after("Setting attention block size to", "tokens");
      vllm(line).settings["block_size"] = {tokens.line, tokens.text, tokens.low};
    }
    if (line.has("num_gpu_blocks_override=")) {
      const LogNumber blocks = line.count_after("num_gpu_blocks_override=", "");
      vllm(line).settings["num_gpu_blocks_override"] = {blocks.line, blocks.text, blocks.low};
    }
  }

  void vllm_memory(const LogCursor& line) {
    constexpr std::string_view kBefore[] = {"Available KV cache memory:", "kv_cache_size=",
                                            "reserved for KV Cache is", "GiB, reserved"};
    for (const std::string_view before : kBefore) {
      if (!line.has(before)) continue;
      if (before == "GiB, reserved" && !line.has("memory for KV Cache")) continue;
      // Less than nothing is left: the engine gives up, and there is no cache.
      if (line.is_negative_after(before)) return;
      EngineStart* start = &vllm(line);
      const bool counted = std::ranges::any_of(start->figures, [](const LogFigure& figure) {
        return figure.kind == LogFigureKind::kCapacityTokens ||
               figure.kind == LogFigureKind::kBlocks;
      });
      if (counted) start = &fresh_vllm(line);
      add_once(*start, LogFigureKind::kAvailableBytes, line.size_after(before, "GiB"));
      return;
    }
  }

  void vllm_counts(const LogCursor& line) {
    if (line.has("KV cache size:") && line.has(" tokens")) {
      add_once(vllm(line), LogFigureKind::kCapacityTokens,
               line.count_after("KV cache size:", "tokens"));
    }
    constexpr std::string_view kBlocks[] = {"GPU blocks:", "cuda blocks:", "rocm blocks:"};
    for (const std::string_view before : kBlocks) {
      if (!line.has(before)) continue;
      add_once(vllm(line), LogFigureKind::kBlocks, line.count_after(before, ""));
      break;
    }
    if (line.has("Maximum concurrency for")) {
      const LogNumber length = line.count_after("Maximum concurrency for", "tokens");
      add_once(vllm(line), LogFigureKind::kConcurrency, line.times_after("per request:"),
               length.low);
    }
  }

  void vllm_refusals(const LogCursor& line) {
    if (line.has("KV cache is needed") && line.has("max seq len (")) {
      const LogNumber length = line.count_after("max seq len (", "");
      const std::string_view before = line.has("), (") ? "), (" : "), ";
      EngineStart& start = vllm(line);
      if (line.has("available KV cache memory (")) {
        add_once(start, LogFigureKind::kAvailableBytes,
                 line.size_after("available KV cache memory (", "GiB"));
      }
      add_once(start, LogFigureKind::kNeededBytes, line.size_after(before, "GiB"), length.low);
    }
    if (line.has("estimated maximum model length is")) {
      add_once(vllm(line), LogFigureKind::kLongestTokens,
               line.count_after("estimated maximum model length is", ""));
    }
    if (line.has("can be stored in KV cache (")) {
      add_once(vllm(line), LogFigureKind::kStoredTokens,
               line.count_after("can be stored in KV cache (", ""));
    }
  }

  std::vector<EngineStart> starts_;
  std::size_t llama_ = static_cast<std::size_t>(-1);
  std::map<std::int64_t, std::size_t> vllm_;  // data-parallel rank -> its start
  std::size_t num_figures_ = 0;
};

}  // namespace

std::string_view to_string(Engine engine) {
  return engine == Engine::kLlamaCpp ? "llama.cpp" : "vLLM";
}

std::string_view to_string(LogFigureKind kind) {
  switch (kind) {
    case LogFigureKind::kCells:
      return "cells";
    case LogFigureKind::kLayers:
      return "count";
    case LogFigureKind::kCacheBytes:
      return "K and V";
    case LogFigureKind::kKeyBytes:
      return "K";
    case LogFigureKind::kValueBytes:
      return "V";
    case LogFigureKind::kBufferBytes:
      return "buffers";
    case LogFigureKind::kAvailableBytes:
      return "memory for KV";
    case LogFigureKind::kBlocks:
      return "blocks";
    case LogFigureKind::kCapacityTokens:
      return "cache size";
    case LogFigureKind::kStoredTokens:
      return "tokens of all blocks";
    case LogFigureKind::kConcurrency:
      return "concurrency";
    case LogFigureKind::kNeededBytes:
      return "needed by a request";
    case LogFigureKind::kLongestTokens:
      return "longest request";
  }
  return "";
}

std::string_view unit_of(LogFigureKind kind) {
  switch (kind) {
    case LogFigureKind::kCells:
      return "cells";
    case LogFigureKind::kLayers:
      return "layers";
    case LogFigureKind::kBlocks:
      return "blocks";
    case LogFigureKind::kCapacityTokens:
    case LogFigureKind::kStoredTokens:
    case LogFigureKind::kLongestTokens:
      return "tokens";
    case LogFigureKind::kConcurrency:
      return "thousandths";
    default:
      return "bytes";
  }
}

std::vector<EngineStart> read_engine_log(std::string_view text) {
  Reader reader;
  std::string plain;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    plain_line(text.substr(0, end), plain);
    reader.read_line(plain, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader).starts();
}

}  // namespace lacuna
