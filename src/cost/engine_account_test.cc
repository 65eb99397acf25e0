// Logs that an oracle of its own arithmetic writes for random models must be accounted for, and a
// figure that is changed beyond its rounding must not.
#include "lacuna/engine_account.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <map>

#include "lacuna/error.h"

namespace lacuna {
namespace {

// Layers of two kinds with the same heads, as most real models have.
struct Model {
  int full = 1;    // layers
  int window = 0;  // likewise
  std::int64_t keys = 1;
  int kv_heads = 1;
  std::int64_t dim = 64;
};

LayerTable table_of(const Model& model) {
  std::string text;
  for (int idx = 0; idx < model.full + model.window; ++idx) {
    const bool full =
        idx % 2 == 1 ? idx / 2 < model.full : idx - std::min(idx / 2, model.full) >= model.window;
    text += (idx == 0 ? "" : ", ") +
            (full ? std::string("full") : "window(" + std::to_string(model.keys) + ")");
  }
  return parse_layers(text, model.full + model.window, true);
}

ModelShape shape_of(const Model& model) {
  LayerShape layer;
  layer.num_q_heads = 2 * model.kv_heads;
  layer.num_kv_heads = model.kv_heads;
  layer.head_dim = layer.v_head_dim = model.dim;
  return uniform_shape(model.full + model.window, layer);
}

// The table must have as many layers of each kind as the oracle counts.
int windows_in(const LayerTable& table) {
  int count = 0;
  for (const Layer& layer : table.layers) {
    count += std::holds_alternative<Window>(layer.attend.groups.at(0).attend.at(0)) ? 1 : 0;
  }
  return count;
}

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string with_commas(std::int64_t value) {
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

rc::Gen<Model> any_model() {
  return rc::gen::build<Model>(
      rc::gen::set(&Model::full, rc::gen::inRange(1, 9)),
      rc::gen::set(&Model::window, rc::gen::inRange(0, 9)),
      rc::gen::set(&Model::keys, rc::gen::inRange<std::int64_t>(1, 3000)),
      rc::gen::set(&Model::kv_heads, rc::gen::inRange(1, 9)),
      rc::gen::set(&Model::dim, rc::gen::element<std::int64_t>(32, 64, 128, 256)));
}

// --- llama.cpp ---

struct LlamaRun {
  std::int64_t n_ctx = 256;
  std::int64_t ubatch = 512;
  std::int64_t seqs = 1;
  bool unified = false;
  bool swa_full = false;
  int type = 0;  // f16, q8_0, q4_0
};

rc::Gen<LlamaRun> any_llama_run() {
  return rc::gen::build<LlamaRun>(
      rc::gen::set(&LlamaRun::n_ctx, rc::gen::inRange<std::int64_t>(2000, 40000)),
      rc::gen::set(&LlamaRun::ubatch, rc::gen::element<std::int64_t>(1, 128, 512, 2048)),
      rc::gen::set(&LlamaRun::seqs, rc::gen::inRange<std::int64_t>(1, 5)),
      rc::gen::set(&LlamaRun::unified), rc::gen::set(&LlamaRun::swa_full),
      rc::gen::set(&LlamaRun::type, rc::gen::inRange(0, 3)));
}

// A number of the log that can be changed: bytes are printed as MiB, all others as they are.
struct Printed {
  bool mib = false;
  std::int64_t value = 0;
};
using Numbers = std::vector<Printed>;

// `changed` of the numbers that print takes is another than it is, clearly; -1: none.
class Writer {
 public:
  explicit Writer(int changed) : changed_(changed) {}
  std::string count(std::int64_t value) {
    return std::to_string(value + (count_++ == changed_ ? 256 : 0));
  }
  std::string mib(std::int64_t bytes) {
    const double more = count_++ == changed_ ? 0.03 : 0;
    return printed("%.2f", static_cast<double>(bytes) / 1048576.0 + more) + " MiB";
  }
  int numbers() const { return count_; }

 private:
  int changed_;
  int count_ = 0;
};

void write_cache(std::string& log, Writer& write, const Model& model, const LlamaRun& run,
                 int layers, std::int64_t cells) {
  const char* name[] = {"f16", "q8_0", "q4_0"};
  const std::int64_t of_32[] = {64, 34, 18};  // bytes of 32 elements
  const std::int64_t streams = run.unified ? 1 : run.seqs;
  const std::int64_t half =
      layers * streams * cells * model.kv_heads * model.dim / 32 * of_32[run.type];
  log += "llama_kv_cache:      CUDA0 KV buffer size = " + write.mib(half) + "\r\n";
  log += "\x1b[0msrv  unrelated: size = 12 things\n";
  log += "llama_kv_cache:        CPU KV buffer size = " + write.mib(half) + "\n";
  log += "llama_kv_cache: size = " + write.mib(2 * half) + " ( " + write.count(cells) +
         " cells,  " + write.count(layers) + " layers,  " + std::to_string(run.seqs) + "/" +
         std::to_string(streams) + " seqs), K (" + name[run.type] + "): " + write.mib(half) +
         ", V (" + name[run.type] + "): " + write.mib(half) + "\n";
}

std::string llama_log(const Model& model, const LlamaRun& run, Writer& write) {
  std::string log = "llama_context: n_seq_max = " + std::to_string(run.seqs) +
                    "\nllama_context: n_ctx = " + std::to_string(run.n_ctx) +
                    "\nllama_context: n_ubatch = " + std::to_string(run.ubatch) +
                    "\nllama_context: kv_unified = " + (run.unified ? "true" : "false") + "\n";
  const std::int64_t whole = rounded_up(run.n_ctx, 256);
  const std::int64_t base = run.unified ? whole : rounded_up(whole / run.seqs, 256);
  if (model.window == 0) {
    write_cache(log, write, model, run, model.full, base);
    return log;
  }
  const std::int64_t live = model.keys * (run.unified ? run.seqs : 1) + run.ubatch;
  const std::int64_t swa = run.swa_full ? base : rounded_up(std::min(base, live), 256);
  if (run.swa_full) log += "llama_kv_cache_iswa: using full-size SWA cache (ref: …)\n";
  log += "llama_kv_cache_iswa: creating non-SWA KV cache, size = " + write.count(base) + " cells\n";
  write_cache(log, write, model, run, model.full, base);
  log += "llama_kv_cache_iswa: creating     SWA KV cache, size = " + write.count(swa) + " cells\n";
  write_cache(log, write, model, run, model.window, swa);
  return log;
}

Account account_of(const std::string& log, const Model& model, const AccountFlags& flags = {}) {
  const std::vector<EngineStart> starts = read_engine_log(log);
  RC_ASSERT(starts.size() == 1u);
  const LayerTable table = table_of(model);
  RC_ASSERT(windows_in(table) == model.window);
  return account(starts[0], table, shape_of(model), flags);
}

RC_GTEST_PROP(EngineAccount, WhatLlamaCppPrintsIsAccountedFor, ()) {
  const Model model = *any_model();
  const LlamaRun run = *any_llama_run();
  Writer write(-1);
  const std::string log = llama_log(model, run, write);
  RC_LOG(log);
  const Account found = account_of(log, model);
  RC_ASSERT(found.accounted);
  RC_ASSERT(found.policies.size() == 1u);
}

RC_GTEST_PROP(EngineAccount, AChangedFigureOfLlamaCppIsCaught, ()) {
  const Model model = *any_model();
  const LlamaRun run = *any_llama_run();
  Writer count(-1);
  llama_log(model, run, count);
  Writer write(*rc::gen::inRange(0, count.numbers()));
  const std::string log = llama_log(model, run, write);
  RC_LOG(log);
  const Account found = account_of(log, model);
  RC_ASSERT(!found.accounted);
  RC_ASSERT(num_differing(found.policies.at(0)) >= 1);
}

// --- vLLM ---

struct VllmRun {
  std::int64_t hundredths = 100;  // of a GiB
  std::int64_t rest = 0;          // of the memory above it, in parts of 1000 of the rounding
  std::int64_t block = 16;
  std::int64_t length = 1000;
  std::int64_t batched = 8192;
  bool hybrid = true;
};

rc::Gen<VllmRun> any_vllm_run() {
  return rc::gen::build<VllmRun>(
      rc::gen::set(&VllmRun::hundredths, rc::gen::inRange<std::int64_t>(100, 9000)),
      rc::gen::set(&VllmRun::rest, rc::gen::inRange<std::int64_t>(-499, 500)),
      rc::gen::set(&VllmRun::block, rc::gen::element<std::int64_t>(16, 32, 64)),
      rc::gen::set(&VllmRun::length, rc::gen::inRange<std::int64_t>(1, 200000)),
      rc::gen::set(&VllmRun::batched, rc::gen::element<std::int64_t>(512, 2048, 8192)),
      rc::gen::set(&VllmRun::hybrid));
}

struct Pool {
  std::int64_t groups = 1;
  std::int64_t layers = 1;  // of a group
  std::int64_t request = 1;
};

Pool pool_of(const Model& model, const VllmRun& run) {
  const std::int64_t whole = (run.length + run.block - 1) / run.block;
  if (!run.hybrid || model.window == 0) return {1, model.full + model.window, whole};
  const std::int64_t small = std::min(model.full, model.window);
  const std::int64_t large = std::max(model.full, model.window);
  const std::int64_t layers = 2 * large < 3 * small ? large : small;
  const std::int64_t full_groups = (model.full + layers - 1) / layers;
  const std::int64_t window_groups = (model.window + layers - 1) / layers;
  const std::int64_t live = std::min(model.keys - 1 + run.batched, run.length);
  return {full_groups + window_groups, layers,
          full_groups * whole + window_groups * ((live + run.block - 1) / run.block + 1)};
}

std::string vllm_log(const Model& model, const VllmRun& run, std::int64_t more_blocks) {
  const Pool pool = pool_of(model, run);
  const std::int64_t block_bytes = pool.layers * run.block * model.kv_heads * model.dim * 4;
  const std::int64_t memory = run.hundredths * 10737418 + run.rest * 10737;
  const std::int64_t blocks = memory / block_bytes + more_blocks * pool.groups;
  const std::string core = "(EngineCore_DP0 pid=17) INFO 08-20 18:04:22 ";
  std::string log = core +
                    "non-default args: {'max_num_batched_tokens': " + std::to_string(run.batched) +
                    ", 'block_size': " + std::to_string(run.block) + "}\n";
  if (!run.hybrid) log += core + "Hybrid KV cache manager is disabled for this hybrid model\n";
  log += core + "[gpu_worker.py:276] Available KV cache memory: " +
         printed("%.2f", static_cast<double>(memory) / 1073741824.0) + " GiB\n" + core +
         "[kv_cache_utils.py:849] GPU KV cache size: " +
         with_commas(blocks / pool.groups * run.block) + " tokens\n" + core +
         "[kv_cache_utils.py:853] Maximum concurrency for " + with_commas(run.length) +
         " tokens per request: " +
         printed("%.2f", static_cast<double>(blocks) / static_cast<double>(pool.request)) + "x\n";
  return log;
}

RC_GTEST_PROP(EngineAccount, WhatVllmPrintsIsAccountedFor, ()) {
  const Model model = *any_model();
  const VllmRun run = *any_vllm_run();
  const std::string log = vllm_log(model, run, 0);
  RC_LOG(log);
  const Account found = account_of(log, model);
  RC_ASSERT(found.accounted);
}

// More blocks than the memory's rounding allows.
RC_GTEST_PROP(EngineAccount, MoreTokensOfVllmThanMemoryHoldsAreCaught, ()) {
  const Model model = *any_model();
  const VllmRun run = *any_vllm_run();
  const Pool pool = pool_of(model, run);
  const std::int64_t block_bytes = pool.layers * run.block * model.kv_heads * model.dim * 4;
  const std::int64_t sign = *rc::gen::element<std::int64_t>(-1, 1);
  const std::int64_t blocks = sign * (10737420 / block_bytes / pool.groups + 3);
  RC_PRE(run.hundredths * 10000000 / block_bytes > 3 * pool.groups - blocks * pool.groups);
  const std::string log = vllm_log(model, run, blocks);
  RC_LOG(log);
  const Account found = account_of(log, model);
  // Another policy may hold so many, or another meaning of the count; those that wrote it do not.
  for (const AccountPolicy& policy : found.policies) {
    if (num_differing(policy) > 0 || policy.reading.starts_with("tokens = concurrency")) continue;
    const bool pooled = run.hybrid && model.window > 0;
    RC_ASSERT(policy.policy.name == (pooled ? "uniform" : "pool"));
  }
}

// --- fixed examples ---

const EngineStart& start_of(const std::string& log) {
  static std::vector<EngineStart> starts;
  starts = read_engine_log(log);
  return starts.at(0);
}

TEST(EngineAccount, DefaultsAreNamed) {
  const Model model{2, 0, 1, 4, 64};
  const Account found =
      account(start_of("GPU KV cache size: 160 tokens\n"), table_of(model), shape_of(model), {});
  std::map<std::string, std::string> sources;
  for (const AccountParameter& parameter : found.parameters) {
    sources[parameter.name] = parameter.source;
  }
  EXPECT_EQ(sources.at("block_size"), "default of vLLM");
  EXPECT_EQ(sources.at("kv_dtype"), "default: two bytes, as most weights");
}

TEST(EngineAccount, TokensThatAreNoWholeBlocksDiffer) {
  const Model model{2, 0, 1, 4, 64};
  const Account found =
      account(start_of("GPU KV cache size: 167 tokens\n"), table_of(model), shape_of(model), {});
  EXPECT_FALSE(found.accounted);
  EXPECT_EQ(first_difference(found.policies.at(0))->difference, 7);
}

TEST(EngineAccount, AnOverriddenNumberOfBlocksRulesOverMemory) {
  const Model model{2, 0, 1, 4, 64};
  const std::string log =
      "Available KV cache memory: 10.00 GiB\n"
      "Overriding num_gpu_blocks=2170 with num_gpu_blocks_override=512\n";
  const Account good = account(start_of(log + "GPU KV cache size: 8,192 tokens\n"), table_of(model),
                               shape_of(model), {});
  EXPECT_TRUE(good.accounted);
  const Account bad = account(start_of(log + "GPU KV cache size: 8,208 tokens\n"), table_of(model),
                              shape_of(model), {});
  EXPECT_EQ(first_difference(bad.policies.at(0))->difference, 16);
}

TEST(EngineAccount, AWindowOfOneKeyMoreIsACause) {
  // 513 keys and a batch of 512 need 1280 cells, 512 keys 1024.
  const std::string log =
      "llama_context: n_ctx = 8192\nllama_context: n_ubatch = 512\n"
      "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells\n"
      "llama_kv_cache_iswa: creating     SWA KV cache, size = 1280 cells\n";
  const Model model{1, 1, 512, 1, 64};
  const Account found = account(start_of(log), table_of(model), shape_of(model), {});
  ASSERT_FALSE(found.accounted);
  EXPECT_EQ(first_difference(found.policies.at(0))->difference, 256);
  EXPECT_EQ(found.causes.at(0), "windows of 513 keys instead of 512: every line would fit");
}

TEST(EngineAccount, ALatentIsOneKeyWithoutValues) {
  LayerTable table = parse_layers("full", 3, true);
  LayerShape layer;
  layer.num_q_heads = layer.num_kv_heads = 16;
  layer.latent = LatentShape{512, 0, 128, 64, 128};
  for (Layer& row : table.layers) row.mixer = Mixer::kMla;
  const std::string log =
      "llama_context: n_ctx = 4096\n"
      "llama_kv_cache: size =   13.50 MiB (  4096 cells,   3 layers,  1/1 seqs), K (f16):   13.50 "
      "MiB, V (f16):    0.00 MiB\n";
  EXPECT_TRUE(account(start_of(log), table, uniform_shape(3, layer), {}).accounted);
}

TEST(EngineAccount, ATableThatNoPolicyServesIsRefused) {
  const LayerTable table = parse_layers("window(5), window(9)", 2, true);
  const std::string log =
      "llama_kv_cache_iswa: creating non-SWA KV cache, size = 256 cells\n"
      "llama_kv_cache_iswa: creating     SWA KV cache, size = 256 cells\n";
  const Account found = account(start_of(log), table, uniform_shape(2, {}), {});
  // Kept in full, two windows are no obstacle; as iswa they are, and a note says so.
  ASSERT_FALSE(found.notes.empty());
  EXPECT_NE(found.notes[0].find("one window size for all"), std::string::npos);
}

}  // namespace
}  // namespace lacuna
