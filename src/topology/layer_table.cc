#include "lacuna/layer_table.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "topology/attend_terms.h"
#include "topology/terms.h"

namespace lacuna {
namespace {

// What a selector chooses in this layer, in the order of its groups.
std::vector<Term> dynamic_terms(const Attend& attend) {
  std::vector<Term> found;
  for (const HeadGroup& group : attend.groups) {
    for (const Term& term : group.attend) {
      if (is_dynamic(term)) found.push_back(term);
    }
  }
  return found;
}

bool is_dynamic(const Attend& attend) { return !dynamic_terms(attend).empty(); }

// One pass over a table; a list that many layers share is read once.
class Checker {
 public:
  explicit Checker(const LayerTable& table) : table_(table) {}

  void check(const std::vector<int>& num_q_heads) {
    const std::size_t num_layers = table_.layers.size();
    if (num_layers < 1 || std::ssize(table_.layers) > attend_text::kMaxLayers) {
      throw Error(fmt::format("the table has {} layers; allowed: 1..{}", num_layers,
                              attend_text::kMaxLayers));
    }
    if (!num_q_heads.empty() && num_q_heads.size() != num_layers) {
      throw Error(fmt::format("{} numbers of query heads for {} layers; allowed: one for each",
                              num_q_heads.size(), num_layers));
    }
    if (table_.tile && (!in_range(table_.tile->q) || !in_range(table_.tile->k))) {
      throw Error(fmt::format("tile is {},{}; allowed: 1..{}", table_.tile->q, table_.tile->k,
                              attend_text::kMaxNumber));
    }
    for (layer_idx_ = 0; layer_idx_ < num_layers; ++layer_idx_) {
      std::optional<std::int64_t> heads;
      if (!num_q_heads.empty()) heads = num_q_heads[layer_idx_];
      check_attend(heads);
      check_kv_from();
      check_index_from();
    }
  }

 private:
  static bool in_range(std::int64_t tile) { return tile >= 1 && tile <= attend_text::kMaxNumber; }
  const Layer& layer() const { return table_.layers[layer_idx_]; }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(fmt::format("layer {}: {}", layer_idx_, message));
  }

  void check_attend(std::optional<std::int64_t> num_q_heads) {
    if (!attends(layer().mixer)) {
      if (layer().attend.groups.empty()) return;
      fail(fmt::format("mixer {} has a topology; allowed: none", to_string(layer().mixer)));
    }
    if (std::string problem = attend_text::heads_problem(layer().attend, num_q_heads);
        !problem.empty()) {
      fail(problem);
    }
    for (const HeadGroup& group : layer().attend.groups) {
      for (const Term& term : group.attend) check_term(term);
    }
  }

  void check_term(const Term& term) {
    if (const auto problem = attend_text::problem_of(term, table_.causal)) fail(problem->message);
    const auto* blocks = std::get_if<ExplicitBlocks>(&term);
    const auto* edges = std::get_if<ExplicitEdges>(&term);
    const EdgeList* list = blocks != nullptr  ? blocks->list.get()
                           : edges != nullptr ? edges->list.get()
                                              : nullptr;
    if (list == nullptr || !lists_seen_.insert(list).second) return;
    const std::string problem = attend_text::pairs_problem(term, table_.causal);
    if (!problem.empty()) fail(problem);
  }

  const Layer& earlier(const char* key, int other) const {
    if (other >= 0 && std::cmp_less(other, layer_idx_)) {
      return table_.layers[static_cast<std::size_t>(other)];
    }
    fail(fmt::format("{} is {}; allowed: {}", key, other,
                     layer_idx_ == 0 ? "none in the first layer"
                                     : fmt::format("0..{}, an earlier layer", layer_idx_ - 1)));
  }

  void check_kv_from() const {
    if (!layer().kv_from) return;
    const int from = *layer().kv_from;
    const Layer& owner = earlier("kv_from", from);
    if (!attends(layer().mixer)) {
      fail(fmt::format("kv_from is {}; allowed: none where the mixer is {}", from,
                       to_string(layer().mixer)));
    }
    if (owner.kv_from) {
      fail(
          fmt::format("kv_from is {}, which has none of its own but that of layer {}; allowed: a "
                      "layer that stores KV",
                      from, *owner.kv_from));
    }
    if (owner.mixer != layer().mixer) {
      fail(fmt::format("kv_from is {}, whose mixer is {}; allowed: a layer with mixer {}", from,
                       to_string(owner.mixer), to_string(layer().mixer)));
    }
  }

  void check_index_from() const {
    if (!layer().index_from) return;
    const int from = *layer().index_from;
    const Layer& owner = earlier("index_from", from);
    if (!is_dynamic(layer().attend)) {
      fail(fmt::format("index_from is {}; allowed: none without topk or topk_blocks", from));
    }
    if (owner.index_from) {
      fail(
          fmt::format("index_from is {}, which uses the choice of layer {}; allowed: a layer that "
                      "chooses",
                      from, *owner.index_from));
    }
    if (!is_dynamic(owner.attend)) {
      fail(
          fmt::format("index_from is {}, which has no topk or topk_blocks; allowed: a layer that "
                      "chooses",
                      from));
    }
    const std::vector<Term> choices = dynamic_terms(owner.attend);
    for (const Term& used : dynamic_terms(layer().attend)) {
      if (std::ranges::find(choices, used) != choices.end()) continue;
      fail(fmt::format(
          "index_from is {}, which does not choose {}; allowed: a layer with the same choice", from,
          to_text(used, true)));
    }
  }

  const LayerTable& table_;
  std::size_t layer_idx_ = 0;
  std::set<const EdgeList*> lists_seen_;
};

// Replaces tokens by positions; layers that name the same tokens are searched once.
class TokenResolver {
 public:
  explicit TokenResolver(const std::vector<std::int64_t>& tokens) : tokens_(tokens) {}

  void resolve(Union& terms) {
    for (Term& term : terms) {
      if (const auto* named = std::get_if<GlobalTokens>(&term)) {
        term = GlobalPositions{positions_of(named->tokens)};
      }
    }
    // Tokens without such an id give no global; only a lone term stays, for a layer that attends
    // has one.
    for (auto term = terms.begin(); term != terms.end() && terms.size() > 1;) {
      const auto* global = std::get_if<GlobalPositions>(&*term);
      term = global != nullptr && global->positions.empty() ? terms.erase(term) : term + 1;
    }
  }

 private:
  const std::vector<std::int64_t>& positions_of(const std::vector<std::int64_t>& named) {
    const auto [found, is_new] = known_.try_emplace(named);
    if (!is_new) return found->second;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (std::binary_search(named.begin(), named.end(), tokens_[i])) {
        found->second.push_back(static_cast<std::int64_t>(i));
      }
    }
    return found->second;
  }

  const std::vector<std::int64_t>& tokens_;
  std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> known_;
};

}  // namespace

bool attends(Mixer mixer) { return mixer == Mixer::kSoftmax || mixer == Mixer::kMla; }

std::string_view to_string(Mixer mixer) {
  switch (mixer) {
    case Mixer::kSoftmax:
      return "softmax";
    case Mixer::kMla:
      return "mla";
    case Mixer::kLinear:
      return "linear";
    case Mixer::kSsm:
      return "ssm";
    case Mixer::kNone:
      return "none";
  }
  throw Error(fmt::format("mixer is {}; allowed: softmax, mla, linear, ssm, none",
                          static_cast<int>(mixer)));
}

std::string_view to_string(Trained trained) {
  switch (trained) {
    case Trained::kTrue:
      return "true";
    case Trained::kFalse:
      return "false";
    case Trained::kUnknown:
      return "unknown";
  }
  throw Error(
      fmt::format("trained is {}; allowed: true, false, unknown", static_cast<int>(trained)));
}

void check(const LayerTable& table, const std::vector<int>& num_q_heads) {
  Checker(table).check(num_q_heads);
}

LayerTable resolve_tokens(const LayerTable& table, const std::vector<std::int64_t>& tokens) {
  LayerTable resolved = table;
  TokenResolver resolver(tokens);
  for (Layer& layer : resolved.layers) {
    for (HeadGroup& group : layer.attend.groups) resolver.resolve(group.attend);
  }
  return resolved;
}

}  // namespace lacuna
