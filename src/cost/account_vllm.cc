#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "cost/account_case.h"
#include "cost/held_model.h"
#include "lacuna/error.h"

// vLLM cuts the memory it has for KV into blocks of one size and prints what they hold. Every
// figure narrows the number of blocks; a policy fits where one number is left for all of them.

namespace lacuna {
namespace {

constexpr std::int64_t kUnbounded = std::int64_t{1} << 62;

struct Range {
  Int128 low = 0;
  Int128 high = kUnbounded;
  bool empty() const { return low > high; }
};
Range common(const Range& a, const Range& b) {
  return {std::max(a.low, b.low), std::min(a.high, b.high)};
}

Int128 up(Int128 a, Int128 b) { return (a + b - 1) / b; }

// What a token count of the log means.
enum class Reading { kGroup, kRequests };

struct Inputs {
  std::int64_t block_size = 16;
  std::vector<std::int64_t> batched;
  std::optional<std::int64_t> max_model_len;
};

// How a policy cuts memory up for one table.
class Pool {
 public:
  Pool(const HeldModel& model, Policy policy) : model_(model, std::move(policy)) {
    const std::vector<StoredKv>& stored = model_.stored();
    if (stored.empty()) throw Error("no layer of the table stores KV; allowed: at least one");
    std::int64_t widest = 0;
    for (const StoredKv& entry : stored) widest = std::max(widest, entry.token_bytes);
    layers_ = static_cast<std::int64_t>(stored.size());
    page_bytes_ = checked_mul64(block_size(), widest);
    if (model_.policy().name != "pool") return;
    const Held some = held_at(1);
    layers_ = some.chosen.at("group_size");
    groups_ = some.chosen.at("num_groups");
    page_bytes_ = some.chosen.at("page_bytes");
  }

  const Policy& policy() const { return model_.policy(); }
  std::int64_t block_size() const { return policy().params.at("P"); }
  std::int64_t groups() const { return groups_; }
  Int128 block_bytes() const { return checked_mul(layers_, page_bytes_); }
  Held held_at(std::int64_t length) const { return model_.held(length, length); }
  Int128 blocks_of_request(std::int64_t length) const {
    return up(held_at(length).bytes.value(), block_bytes());
  }
  Equation bytes_of(Int128 blocks) const {
    return Equation("blocks", blocks) * Equation("layers", layers_) *
           Equation("page_bytes", page_bytes_);
  }
  // The longest request of up to `most` tokens whose KV fits.
  std::int64_t longest(Int128 bytes, std::int64_t most) const {
    std::int64_t good = 0;
    std::int64_t bad = most + 1;
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      (held_at(middle).bytes.value() <= bytes ? good : bad) = middle;
    }
    return good;
  }

 private:
  HeldModel model_;
  std::int64_t layers_ = 0;  // that one block has a page in
  std::int64_t groups_ = 1;
  std::int64_t page_bytes_ = 0;
};

// Figures that narrow the number of blocks.
bool counts_blocks(LogFigureKind kind) {
  return kind != LogFigureKind::kNeededBytes && kind != LogFigureKind::kLongestTokens;
}

class Attempt {
 public:
  Attempt(const AccountCase& about, const Pool& pool, Reading reading,
          std::optional<std::int64_t> max_model_len)
      : about_(about), pool_(pool), reading_(reading), max_model_len_(max_model_len) {}

  AccountPolicy result() {
    AccountPolicy result;
    result.policy = pool_.policy();
    const std::vector<LogFigure>& figures = about_.start->figures;
    if (std::ranges::any_of(figures, [](const LogFigure& figure) {
          return figure.kind == LogFigureKind::kCapacityTokens;
        })) {
      result.reading = reading_ == Reading::kGroup ? "tokens = blocks of one group x block size"
                                                   : "tokens = concurrency x longest request";
    }
    find_lanes(figures);
    for (std::size_t idx = 0; idx < figures.size(); ++idx) {
      result.lines.push_back(counts_blocks(figures[idx].kind)
                                 ? line_of_blocks(figures[idx], lanes_[idx])
                                 : line_of_request(figures[idx]));
    }
    if (max_model_len_) {
      result.request =
          pool_.held_at(*max_model_len_)
              .bytes.named(fmt::format("bytes of a request of {} tokens", *max_model_len_));
    }
    const Range& first = ranges_[0];
    result.bytes = pool_.bytes_of(first.high >= kUnbounded ? Int128{0} : first.low);
    return result;
  }

 private:
  // Workers print their own figures, in any order; the one with least memory has the fewest blocks.
  void find_lanes(const std::vector<LogFigure>& figures) {
    std::map<LogFigureKind, std::vector<std::int64_t>> sorted;
    for (const LogFigure& figure : figures) sorted[figure.kind].push_back(figure.low);
    std::int64_t lanes = 1;
    for (auto& [kind, lows] : sorted) {
      std::ranges::sort(lows);
      const bool counted = kind == LogFigureKind::kCapacityTokens || kind == LogFigureKind::kBlocks;
      if (counted) lanes = std::max(lanes, static_cast<std::int64_t>(lows.size()));
    }
    for (const LogFigure& figure : figures) {
      const std::vector<std::int64_t>& lows = sorted[figure.kind];
      const std::int64_t rank = std::ranges::lower_bound(lows, figure.low) - lows.begin();
      // Memory of further workers decides nothing.
      const bool spare = figure.kind == LogFigureKind::kAvailableBytes && rank >= lanes;
      lanes_.push_back(spare ? -1 : std::min(rank, lanes - 1));
    }
    ranges_.assign(static_cast<std::size_t>(lanes), {});
  }

  AccountLine stated(const LogFigure& figure, Equation equation = {}) const {
    AccountLine line = judged(figure, figure.low, figure.high, std::move(equation));
    line.stated = true;
    return line;
  }

  bool overridden(const LogFigure& figure) const {
    return figure.kind == LogFigureKind::kAvailableBytes &&
           about_.start->settings.contains("num_gpu_blocks_override");
  }

  AccountLine line_of_blocks(const LogFigure& figure, std::int64_t lane) {
    if (lane < 0 || overridden(figure)) return stated(figure);
    Range& known = ranges_[static_cast<std::size_t>(lane)];
    const auto given = about_.start->settings.find("num_gpu_blocks_override");
    if (given != about_.start->settings.end()) known = {given->second.value, given->second.value};
    const Range own = blocks_that_print(figure);
    if (known.high >= kUnbounded) {
      if (own.empty()) return off_the_grid(figure, own.high);
      known = own;
      return stated(figure, value_at(figure, own.low));
    }
    const Range both = common(known, own);
    if (both.empty()) {
      const Range said = printed_by(figure, known);
      AccountLine line = judged(figure, said.low, said.high, value_at(figure, known.low));
      return line.difference == 0 ? off_the_grid(figure, known.low) : line;
    }
    const Range said = printed_by(figure, known);
    known = both;
    AccountLine line = judged(figure, said.low, said.high, value_at(figure, both.low));
    line.difference = 0;
    return line;
  }

  // No whole number of blocks prints this figure.
  AccountLine off_the_grid(const LogFigure& figure, Int128 nearest) const {
    const Equation value = value_at(figure, nearest);
    AccountLine line = judged(figure, value.value(), value.value(), value);
    if (line.difference == 0) line.difference = 1;
    return line;
  }

  // Every number of blocks at which the engine prints this figure.
  Range blocks_that_print(const LogFigure& figure) const {
    const Int128 size = pool_.block_size();
    switch (figure.kind) {
      case LogFigureKind::kAvailableBytes:
        return {figure.low / pool_.block_bytes(), figure.high / pool_.block_bytes()};
      case LogFigureKind::kBlocks:
        return {figure.low, figure.high};
      case LogFigureKind::kStoredTokens:
        return {up(figure.low, size), figure.high / size};
      case LogFigureKind::kConcurrency: {
        const auto [fewest, most] = blocks_a_request(figure.length);
        return {up(figure.low * fewest, 1000 * size), figure.high * most / (1000 * size)};
      }
      default:
        break;
    }
    if (reading_ == Reading::kGroup) {
      return {up(figure.low, size) * pool_.groups(),
              figure.high / size * pool_.groups() + pool_.groups() - 1};
    }
    const Int128 request = pool_.blocks_of_request(*max_model_len_);
    // The product is rounded down in floating point, which may fall just short of a whole number.
    return {up(figure.low * request, *max_model_len_),
            (figure.high + 1) * request / *max_model_len_};
  }

  // Blocks a request takes, times the block size: whole ones, and in older versions without a rest.
  std::pair<Int128, Int128> blocks_a_request(std::int64_t length) const {
    const Int128 whole = pool_.blocks_of_request(length) * pool_.block_size();
    return {
        pool_.groups() == 1 ? std::min<Int128>(whole, std::max<std::int64_t>(length, 1)) : whole,
        whole};
  }

  Range printed_by(const LogFigure& figure, const Range& blocks) const {
    const Range found = {value_at(figure, blocks.low).value(),
                         value_at(figure, blocks.high).value()};
    switch (figure.kind) {
      case LogFigureKind::kAvailableBytes:
        return {found.low, found.high + pool_.block_bytes() - 1};
      case LogFigureKind::kConcurrency: {
        const auto [fewest, most] = blocks_a_request(figure.length);
        const Int128 size = pool_.block_size() * Int128{1000};
        return {blocks.low * size / std::max<Int128>(most, 1),
                up(blocks.high * size, std::max<Int128>(fewest, 1))};
      }
      default:
        return found;
    }
  }

  Equation value_at(const LogFigure& figure, Int128 blocks) const {
    const Equation count("blocks", blocks);
    const Equation size("P", pool_.block_size());
    switch (figure.kind) {
      case LogFigureKind::kAvailableBytes:
        return pool_.bytes_of(blocks);
      case LogFigureKind::kBlocks:
        return count;
      case LogFigureKind::kStoredTokens:
        return count * size;
      case LogFigureKind::kConcurrency:
        return floor_div(1000 * count, request_blocks(figure.length));
      default:
        break;
    }
    if (reading_ == Reading::kGroup) {
      return size * floor_div(count, Equation("groups", pool_.groups()));
    }
    return floor_div(count * Equation("M", *max_model_len_), request_blocks(*max_model_len_));
  }

  Equation request_blocks(std::int64_t length) const {
    return Equation("blocks_of_request", std::max<Int128>(pool_.blocks_of_request(length), 1));
  }

  AccountLine line_of_request(const LogFigure& figure) const {
    if (figure.kind == LogFigureKind::kNeededBytes) {
      const Equation needed = pool_.held_at(figure.length).bytes;
      return judged(figure, needed.value(), needed.value(), needed);
    }
    const std::vector<LogFigure>& figures = about_.start->figures;
    const LogFigure* memory = nullptr;
    for (const LogFigure& other : figures) {
      const bool less = memory == nullptr || other.low < memory->low;
      if (other.kind == LogFigureKind::kAvailableBytes && less) memory = &other;
    }
    if (memory == nullptr) return stated(figure);
    const std::int64_t most = max_model_len_.value_or(std::int64_t{1} << 40);
    const std::int64_t low = pool_.longest(memory->low, most);
    const std::int64_t high = pool_.longest(memory->high, most);
    return judged(figure, low, high, Equation("most M with held(M) ≤ memory", high));
  }

  const AccountCase& about_;
  const Pool& pool_;
  Reading reading_;
  std::optional<std::int64_t> max_model_len_;
  std::vector<std::int64_t> lanes_;  // of each figure; -1: decides nothing
  std::vector<Range> ranges_;        // blocks of each lane, as far as its lines have narrowed them
};

// --- inputs ---

KvDtype dtype_of(const AccountCase& about, ParameterList& list) {
  const auto stated = about.start->settings.find("kv_cache_dtype");
  std::string name = about.flags.kv_dtype;
  std::string source = "--kv-dtype";
  if (stated != about.start->settings.end() && stated->second.text != "auto") {
    name = stated->second.text;
    source = fmt::format("line {}", stated->second.line);
    if (name.starts_with("fp8_e")) name = "fp8";
    if (name == "bfloat16") name = "bf16";
    if (name == "float16" || name == "half") name = "f16";
  } else if (name.empty()) {
    name = "bf16";
    source = "default: two bytes, as most weights";
  }
  list.add("kv_dtype", name, source);
  return kv_dtype(name);
}

// A worker has its share of the KV heads, and at least one.
ModelShape shape_of_worker(const ModelShape& shape, std::int64_t workers) {
  ModelShape result = shape;
  for (LayerShape& layer : result.layers) {
    const std::int64_t heads = layer.num_kv_heads;
    if (heads % workers != 0 && workers % heads != 0) {
      throw Error(
          fmt::format("tensor_parallel_size is {} with {} KV heads; allowed: a divisor or "
                      "multiple of them",
                      workers, heads));
    }
    layer.num_kv_heads = static_cast<int>(std::max<std::int64_t>(heads / workers, 1));
  }
  return result;
}

std::optional<std::int64_t> length_of(const AccountCase& about, ParameterList& list) {
  for (const LogFigure& figure : about.start->figures) {
    if (figure.length == 0) continue;
    list.add("max_model_len", std::to_string(figure.length), fmt::format("line {}", figure.line));
    return figure.length;
  }
  return list.find("max_model_len", "--max-model-len", about.flags.max_model_len);
}

Inputs inputs_of(const AccountCase& about, bool windows, ParameterList& list) {
  Inputs inputs;
  inputs.block_size = list.get("block_size", "--block-size", about.flags.block_size, 16);
  inputs.max_model_len = length_of(about, list);
  if (!windows) {
    inputs.batched = {1};
    return inputs;
  }
  const auto batched = list.find("max_num_batched_tokens", "--max-num-batched-tokens",
                                 about.flags.max_num_batched_tokens);
  if (batched) {
    inputs.batched = {*batched};
  } else {
    inputs.batched = {8192, 2048, 16384};
    list.add("max_num_batched_tokens", "8192, 2048 or 16384",
             "not stated: the defaults of vLLM are tried");
  }
  return inputs;
}

void attempt(const AccountCase& about, const HeldModel& model, const Inputs& inputs,
             const Policy& policy, AccountAttempts& tried) {
  try {
    const Pool pool(model, policy);
    tried.policies.push_back(Attempt(about, pool, Reading::kGroup, inputs.max_model_len).result());
    const bool counted = !tried.policies.back().reading.empty();
    if (!counted || !inputs.max_model_len) return;
    tried.policies.push_back(
        Attempt(about, pool, Reading::kRequests, inputs.max_model_len).result());
  } catch (const Error& error) {
    if (std::ranges::find(tried.notes, error.what()) == tried.notes.end()) {
      tried.notes.emplace_back(error.what());
    }
  }
}

}  // namespace

AccountAttempts vllm_attempts(const AccountCase& about) {
  const EngineStart& start = *about.start;
  ParameterList list(start);
  const std::int64_t workers = list.get("tensor_parallel_size", "--tensor-parallel-size",
                                        about.flags.tensor_parallel_size, 1);
  const ModelShape shape = shape_of_worker(about.shape, workers);
  const KvDtype dtype = dtype_of(about, list);
  const HeldModel model(parse_policy("uniform"), about.table, shape, dtype);
  const bool windows = std::ranges::any_of(
      model.stored(), [](const StoredKv& entry) { return entry.kind != EngineKind::kFull; });
  const bool hybrid = windows && !start.settings.contains("hybrid_disabled");
  const Inputs inputs = inputs_of(about, hybrid, list);
  AccountAttempts tried;
  const auto stages = list.find("pipeline_parallel_size", "", std::nullopt);
  if (stages && *stages > 1) {
    tried.notes.push_back(fmt::format(
        "{} pipeline stages: a worker holds a part of the layers, which the log does not name",
        *stages));
  }
  tried.parameters = list.take();
  Policy uniform = model.policy();
  uniform.params["P"] = inputs.block_size;
  if (hybrid) {
    for (const std::int64_t batched : inputs.batched) {
      Policy pool = parse_policy("pool");
      pool.params["P"] = inputs.block_size;
      pool.params["batched"] = batched;
      attempt(about, model, inputs, pool, tried);
    }
  }
  attempt(about, model, inputs, uniform, tried);
  return tried;
}

}  // namespace lacuna
