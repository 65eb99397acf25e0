#include "cli/audit_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/audit_document.h"
#include "lacuna/cost.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"
#include "lacuna/policy.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 18;  // of a prompt, whose tiles are counted row by row
// Of a prompt whose rows leave many single keys, which are looked at one by one.
constexpr std::int64_t kMostTokensOfKeys = 1 << 13;
constexpr std::int64_t kMostSteps = 1 << 14;  // each is looked at
constexpr std::size_t kMostKinds = 8;         // that have equations

// How long a prompt may be for what is computed of a layer to take no time to speak of.
std::int64_t most_tokens(const Attend& attend) {
  std::int64_t most = attend.groups.empty() ? 0 : kMostTokens;
  for (const HeadGroup& group : attend.groups) {
    for (const Term& term : group.attend) {
      if (std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term) ||
          std::holds_alternative<GlobalTokens>(term)) {
        return 0;
      }
      const bool is_range =
          std::holds_alternative<Full>(term) || std::holds_alternative<Window>(term) ||
          std::holds_alternative<Sink>(term) || std::holds_alternative<Chunk>(term);
      if (!is_range) most = kMostTokensOfKeys;
    }
  }
  return most;
}

ModelShape shape_of(const Json& layer) {
  LayerShape shape;
  shape.num_q_heads = static_cast<int>(count_at(layer, "num_q_heads"));
  shape.num_kv_heads = static_cast<int>(count_at(layer, "num_kv_heads"));
  shape.head_dim = count_at(layer, "head_dim");
  shape.v_head_dim = count_at(layer, "v_head_dim");
  ModelShape model;
  model.layers = {shape};
  return model;
}

// The equations that end in one layer's figure, each in its own line; empty: not known.
class LayerEquations {
 public:
  LayerEquations(const Json& document, const Json& table, const Json& layer,
                 const std::string& kv_dtype)
      : request_(document.at("request")),
        layer_(layer),
        dtype_(lacuna::kv_dtype(kv_dtype)),
        table_(layer_of(layer.at("attend").get<std::string>(),
                        document.at("model").at("causal").get<bool>(),
                        count_at(table, "length_tokens"))),
        shape_(shape_of(layer)),
        prompt_(count_at(table, "length_tokens")),
        steps_(count_at(table, "generate_tokens") - 1) {
    if (steps_ < 0 || steps_ > kMostSteps) throw Error("its steps are too many");
  }

  std::vector<std::string> of(const std::string& key) const {
    if (key == "predicted_held_bytes") return held_bytes();
    if (key == "predicted_read_bytes") return read_bytes();
    const bool is_step = key.starts_with("predicted_step_");
    if (is_step && steps_ == 0) return {};
    return pairs(is_step, key.ends_with("needed_pairs"), key);
  }

 private:
  std::vector<std::string> known(const char* name, const Equation& equation,
                                 const std::string& key) const {
    if (equation.value() != count_at(layer_, key.c_str())) return {};
    return {equation.text(name)};
  }

  std::vector<std::string> pairs(bool is_step, bool is_needed, const std::string& key) const {
    CostQuery query;
    query.phase = is_step ? Phase::kDecode : Phase::kPrefill;
    query.lengths = {is_step ? prompt_ + 1 : prompt_};  // a step reads its own token's key, too
    query.generate = is_step ? steps_ : 0;
    query.tile = kernel_tile();
    query.kv_dtype = dtype_;
    const LayerCost cost = lacuna::cost(table_, shape_, query).layers.front();
    const Figure128& figure = is_needed ? cost.pairs : cost.executed_pairs;
    if (!figure.has_value()) return {};
    std::vector<std::string> lines =
        known(is_needed ? "needed" : "executed in tiles", *figure.known, key);
    if (is_needed && !lines.empty() && cost.edges.has_value()) {
      lines.insert(lines.begin(), cost.edges.known->text("edges E"));
    }
    return lines;
  }

  std::vector<std::string> held_bytes() const {
    const Policy pages =
        parse_policy(fmt::format("paged(P={}, in_flight=0)", count_at(request_, "page_size")));
    const HeldQuery query = {prompt_ + steps_, 0, dtype_};
    return known("held", held(pages, table_, shape_, query).bytes, "predicted_held_bytes");
  }

  // A step's row reads whole tiles, and all query heads of a KV head read them once.
  std::vector<std::string> read_bytes() const {
    const std::int64_t keys =
        count_at(layer_, "predicted_step_executed_pairs") / count_at(layer_, "num_q_heads");
    const Equation bytes =
        kv_bytes_per_token(shape_.layers.front(), table_.layers.front().mixer, dtype_);
    return known("read", Equation("X", keys) * bytes, "predicted_read_bytes");
  }

  const Json& request_;
  const Json& layer_;
  KvDtype dtype_;
  LayerTable table_;
  ModelShape shape_;
  std::int64_t prompt_;
  std::int64_t steps_;
};

// Layers that read alike and have the same figure.
struct Alike {
  const Json& first;
  std::int64_t count;
};
std::vector<Alike> kinds_of(const Json& table, const std::string& key) {
  std::vector<Alike> kinds;
  for (const Json& layer : table.at("layers")) {
    const auto same = std::ranges::find_if(kinds, [&](const Alike& kind) {
      return kind.first.at("attend") == layer.at("attend") && kind.first.at(key) == layer.at(key);
    });
    if (same == kinds.end()) {
      kinds.push_back({layer, 1});
    } else {
      ++same->count;
    }
  }
  return kinds;
}

}  // namespace

LayerTable layer_of(const std::string& attend, bool causal, std::int64_t length) {
  if (attend.find("file") != std::string::npos) throw Error("its keys are in a file");
  LayerTable table = parse_layers(attend, 1, causal);
  const std::int64_t most = most_tokens(table.layers.front().attend);
  if (most == 0) throw Error("its keys depend on more than the length");
  if (length < 1 || length > most) throw Error(fmt::format("the prompt is not of 1..{}", most));
  return table;
}

std::vector<std::string> equations_of(const Json& document, const Json& table,
                                      const std::string& kv_dtype, const std::string& key) {
  std::vector<std::string> lines;
  std::string terms;
  Int128 sum = 0;
  const std::vector<Alike> kinds = kinds_of(table, key);
  for (std::size_t idx = 0; idx < kinds.size(); ++idx) {
    const auto& [layer, count] = kinds[idx];
    const std::int64_t figure = count_at(layer, key.c_str());
    sum += Int128{count} * figure;
    terms += fmt::format("{}{}·{}", idx == 0 ? "" : " + ", count, figure);
    if (idx >= kMostKinds) continue;
    try {
      for (const std::string& line : LayerEquations(document, table, layer, kv_dtype).of(key)) {
        lines.push_back(layer.at("attend").get<std::string>() + ": " + line);
      }
    } catch (const Error&) {  // the layers' figures still add up
    }
  }
  lines.push_back(fmt::format("{} = Σ over layers = {} = {}", key, terms, to_string(sum)));
  return lines;
}

}  // namespace lacuna::cli
