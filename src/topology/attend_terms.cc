#include "topology/attend_terms.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace lacuna::attend_text {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

using Values = std::span<const Value>;

Parameter number(std::string_view name, std::int64_t min = 1) {
  return {name, Kind::kNumber, min, std::nullopt};
}
Parameter optional(std::string_view name, Kind kind, std::int64_t fallback) {
  return {name, kind, 0, fallback};
}
Parameter seed() { return {"seed", Kind::kSeed, 0, std::nullopt}; }

std::int64_t int_of(const Value& value) { return static_cast<std::int64_t>(value.number); }
std::uint64_t seed_of(const Value& value) { return static_cast<std::uint64_t>(value.number); }

// A term whose members are its form's numbers, in order.
template <class T, std::size_t... kSlots>
Term from_slots(Values values, std::index_sequence<kSlots...>) {
  return T{int_of(values[kSlots])...};
}
template <class T, std::size_t kNumbers>
Term from_numbers(Values values) {
  return from_slots<T>(values, std::make_index_sequence<kNumbers>());
}

// In the order of FormId.
std::vector<Form> make_forms() {
  return {
      {FormId::kFull, "full", {}, [](Values) -> Term { return Full{}; }},
      {FormId::kWindow,
       "window",
       {number("w")},
       [](Values v) -> Term {
         return Window{int_of(v[0]) - 1, 0};
       }},
      {FormId::kWindowBothSides,
       "window",
       {number("l", 0), number("r", 0)},
       from_numbers<Window, 2>},
      {FormId::kDilated, "dilated", {number("w"), number("d")}, from_numbers<Dilated, 2>},
      {FormId::kSink, "sink", {number("s")}, from_numbers<Sink, 1>},
      {FormId::kGlobalFirst, "global", {number("first")}, from_numbers<GlobalFirst, 1>},
      {FormId::kGlobalLast, "global", {number("last")}, from_numbers<GlobalLast, 1>},
      {FormId::kGlobalEvery,
       "global",
       {number("every"), optional("offset", Kind::kNumber, 0)},
       from_numbers<GlobalEvery, 2>},
      {FormId::kChunk, "chunk", {number("c")}, from_numbers<Chunk, 1>},
      {FormId::kStrided, "strided", {number("l")}, from_numbers<Strided, 1>},
      {FormId::kFixed, "fixed", {number("l"), number("c")}, from_numbers<Fixed, 2>},
      {FormId::kWindowBlocks,
       "window_blocks",
       {number("before", 0), number("after", 0), number("block")},
       from_numbers<WindowBlocks, 3>},
      {FormId::kVerticalBlocks,
       "vertical_blocks",
       {number("block"), number("local"), number("stride"), optional("offset", Kind::kOffset, 0)},
       [](Values v) -> Term {
         return VerticalBlocks{int_of(v[0]), int_of(v[1]), int_of(v[2]), int_of(v[3]), v[3].word};
       }},
      {FormId::kTopK, "topk", {number("k")}, from_numbers<TopK, 1>},
      {FormId::kTopKBlocks,
       "topk_blocks",
       {number("k"), number("block"), optional("init", Kind::kNumber, 0),
        optional("local", Kind::kNumber, 1)},
       from_numbers<TopKBlocks, 4>},
      {FormId::kRandom,
       "random",
       {number("r"), seed()},
       [](Values v) -> Term {
         return Random{int_of(v[0]), seed_of(v[1])};
       }},
      {FormId::kRandomBlocks,
       "random_blocks",
       {number("r"), number("block"), seed(), optional("outside", Kind::kOutside, 0)},
       [](Values v) -> Term {
         return RandomBlocks{int_of(v[0]), int_of(v[1]), seed_of(v[2]), v[3].word};
       }},
  };
}

std::optional<Problem> range_problem(const Call& call) {
  if (call.form == FormId::kList) return std::nullopt;
  const Form& called = form(call.form);
  for (std::size_t i = 0; i < called.parameters.size(); ++i) {
    const Parameter& parameter = called.parameters[i];
    const Int128 max = parameter.kind == Kind::kSeed
                           ? Int128{std::numeric_limits<std::uint64_t>::max()}
                           : Int128{kMaxNumber};
    if (call.values[i].word || parameter.kind == Kind::kOutside) continue;
    if (call.values[i].number >= parameter.min && call.values[i].number <= max) continue;
    return Problem{fmt::format("{} of {} is {}; allowed: {}", parameter.name, called.term,
                               to_string(call.values[i].number), range_of(parameter)),
                   static_cast<int>(i)};
  }
  return std::nullopt;
}

std::string direction_problem(const Term& term, bool causal) {
  const auto causal_only = [causal](const char* name) {
    return causal ? std::string()
                  : fmt::format(
                        "{} does not exist in a bidirectional table; allowed: causal tables", name);
  };
  return std::visit(
      Overloaded{
          [&](const Window& t) {
            return causal && t.right > 0
                       ? fmt::format("r of window is {}; allowed in a causal table: 0", t.right)
                       : std::string();
          },
          [&](const GlobalLast&) {
            return causal ? std::string(
                                "global(last=g) does not exist in a causal table; allowed: "
                                "bidirectional tables")
                          : std::string();
          },
          [&](const Strided&) { return causal_only("strided"); },
          [&](const Fixed&) { return causal_only("fixed"); },
          [&](const VerticalBlocks&) { return causal_only("vertical_blocks"); },
          [&](const TopK&) { return causal_only("topk"); },
          [&](const TopKBlocks&) { return causal_only("topk_blocks"); },
          [](const auto&) { return std::string(); },
      },
      term);
}

Problem above(int parameter, const char* what, std::int64_t value, std::int64_t max,
              const char* why) {
  return {fmt::format("{} is {}; allowed: up to {} ({})", what, value, max, why), parameter};
}

// Numbers that are in range each but not together.
std::optional<Problem> relation_problem(const Term& term) {
  if (const auto* t = std::get_if<Fixed>(&term); t != nullptr && t->c > t->l) {
    return above(1, "c of fixed", t->c, t->l, "l");
  }
  if (const auto* t = std::get_if<GlobalEvery>(&term); t != nullptr && t->offset >= t->k) {
    return above(1, "offset of global", t->offset, t->k - 1, "every - 1");
  }
  if (const auto* t = std::get_if<VerticalBlocks>(&term); t != nullptr && t->offset >= t->stride) {
    return above(3, "offset of vertical_blocks", t->offset, t->stride - 1, "stride - 1, or head");
  }
  if (const auto* t = std::get_if<TopKBlocks>(&term); t != nullptr && t->init + t->local > t->k) {
    return above(t->init > t->k ? 2 : 3, "init + local of topk_blocks", t->init + t->local, t->k,
                 "k");
  }
  return std::nullopt;
}

std::string order_problem(const char* what, const std::vector<std::int64_t>& numbers) {
  if (!numbers.empty() && (numbers.front() < 0 || numbers.back() > kMaxNumber)) {
    const std::int64_t wrong = numbers.front() < 0 ? numbers.front() : numbers.back();
    return fmt::format("{} {} of global is out of range; allowed: 0..{}", what, wrong, kMaxNumber);
  }
  const auto wrong = std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>());
  if (wrong == numbers.end()) return "";
  return fmt::format("{} {} of global stands before {}; allowed: rising numbers", what, *wrong,
                     *(wrong + 1));
}

std::string list_problem(const Term& term) {
  if (const auto* t = std::get_if<GlobalPositions>(&term)) {
    return order_problem("position", t->positions);
  }
  if (const auto* t = std::get_if<GlobalTokens>(&term)) return order_problem("token", t->tokens);
  if (const auto* t = std::get_if<ExplicitBlocks>(&term)) {
    if (t->list == nullptr) return "blocks has no list; allowed: one that was read";
    if (t->block < 1 || t->block > kMaxNumber) {
      return fmt::format("block of blocks is {}; allowed: 1..{}", t->block, kMaxNumber);
    }
  }
  const auto* t = std::get_if<ExplicitEdges>(&term);
  return t != nullptr && t->list == nullptr ? "edges has no list; allowed: one that was read" : "";
}

// Names each head of a group in `seen`; what is wrong, or "".
std::string mark_heads(std::vector<bool>& seen, const HeadGroup& group) {
  for (std::size_t i = 0; i < group.heads.size(); ++i) {
    const std::int64_t head = group.heads[i];
    if (head < 0 || head >= kMaxHeads) {
      return fmt::format("head {} is out of range; allowed: 0..{}", head, kMaxHeads - 1);
    }
    const auto slot = static_cast<std::size_t>(head);
    if (slot < seen.size() && seen[slot]) return fmt::format("head {} is named twice", head);
    if (i > 0 && group.heads[i - 1] > head) {
      return fmt::format("head {} stands after {}; allowed: rising numbers", head,
                         group.heads[i - 1]);
    }
    if (slot >= seen.size()) seen.resize(slot + 1);
    seen[slot] = true;
  }
  return "";
}

}  // namespace

std::span<const Form> forms() {
  static const std::vector<Form> all = make_forms();
  return all;
}

const Form& form(FormId id) { return forms()[static_cast<std::size_t>(id)]; }

const std::vector<std::string>& term_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Form& each : forms()) {
      if (all.empty() || all.back() != each.term) all.emplace_back(each.term);
    }
    all.insert(all.end(), {"blocks", "edges"});
    return all;
  }();
  return names;
}

Call call_of(const Term& term, bool causal) {
  const auto call = [](FormId id, std::initializer_list<Int128> numbers) {
    Call made{id, {}};
    for (const Int128 each : numbers) made.values.push_back({each, false});
    return made;
  };
  return std::visit(
      Overloaded{
          [&](const Full&) { return call(FormId::kFull, {}); },
          [&](const Window& t) {
            // The widest causal window has no w: its w would exceed the largest number.
            return causal && t.right == 0 && t.left < kMaxNumber
                       ? call(FormId::kWindow, {Int128{t.left} + 1})
                       : call(FormId::kWindowBothSides, {t.left, t.right});
          },
          [&](const Dilated& t) {
            return call(FormId::kDilated, {t.w, t.d});
          },
          [&](const Sink& t) { return call(FormId::kSink, {t.s}); },
          [&](const GlobalFirst& t) { return call(FormId::kGlobalFirst, {t.g}); },
          [&](const GlobalLast& t) { return call(FormId::kGlobalLast, {t.g}); },
          [&](const GlobalEvery& t) {
            return call(FormId::kGlobalEvery, {t.k, t.offset});
          },
          [&](const Chunk& t) { return call(FormId::kChunk, {t.c}); },
          [&](const Strided& t) { return call(FormId::kStrided, {t.l}); },
          [&](const Fixed& t) {
            return call(FormId::kFixed, {t.l, t.c});
          },
          [&](const WindowBlocks& t) {
            return call(FormId::kWindowBlocks, {t.before, t.after, t.block});
          },
          [&](const VerticalBlocks& t) {
            Call made = call(FormId::kVerticalBlocks, {t.block, t.local, t.stride, t.offset});
            made.values[3].word = t.offset_is_head;
            return made;
          },
          [&](const TopK& t) { return call(FormId::kTopK, {t.k}); },
          [&](const TopKBlocks& t) {
            return call(FormId::kTopKBlocks, {t.k, t.block, t.init, t.local});
          },
          [&](const Random& t) {
            return call(FormId::kRandom, {t.r, t.seed});
          },
          [&](const RandomBlocks& t) {
            Call made = call(FormId::kRandomBlocks, {t.r, t.block, t.seed, 0});
            made.values[3].word = t.outside_window;
            return made;
          },
          [](const auto&) { return Call{}; },
      },
      term);
}

std::string_view word_of(Kind kind) {
  return kind == Kind::kOffset ? "head" : kind == Kind::kOutside ? "window" : "";
}

std::string range_of(const Parameter& parameter) {
  if (parameter.kind == Kind::kOutside) return "window";
  if (parameter.kind == Kind::kSeed) {
    return fmt::format("0..{}", std::numeric_limits<std::uint64_t>::max());
  }
  return fmt::format("{}..{}{}", parameter.min, kMaxNumber,
                     parameter.kind == Kind::kOffset ? " or head" : "");
}

std::optional<Problem> problem_of(const Term& term, bool causal) {
  if (std::string message = direction_problem(term, causal); !message.empty()) {
    return Problem{std::move(message), -1};
  }
  if (auto problem = range_problem(call_of(term, causal))) return problem;
  if (auto problem = relation_problem(term)) return problem;
  if (std::string message = list_problem(term); !message.empty()) {
    return Problem{std::move(message), -1};
  }
  return std::nullopt;
}

std::string heads_problem(const Attend& attend, std::optional<std::int64_t> num_q_heads) {
  if (attend.groups.empty()) return "no topology; allowed: at least one term";
  std::vector<bool> seen;
  for (const HeadGroup& group : attend.groups) {
    if (group.attend.empty()) return "an empty union; allowed: at least one term";
    if (std::ssize(group.attend) > kMaxTerms) {
      return fmt::format("a union has {} terms; allowed: up to {}", group.attend.size(), kMaxTerms);
    }
    if (group.heads.empty() && attend.groups.size() > 1) {
      return "a group of split heads names no head";
    }
    if (std::string problem = mark_heads(seen, group); !problem.empty()) return problem;
  }
  if (seen.empty()) return "";  // one union for all heads
  const std::size_t num_named = seen.size();
  if (num_q_heads && std::cmp_greater(num_named, *num_q_heads)) {
    return fmt::format("head {} does not exist; the layer has {} query heads", num_named - 1,
                       *num_q_heads);
  }
  if (num_q_heads) seen.resize(static_cast<std::size_t>(*num_q_heads));
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing == seen.end()) return "";
  return fmt::format("head {} is in no group; allowed: each of heads 0..{} in one group",
                     missing - seen.begin(), seen.size() - 1);
}

std::string pairs_problem(const Term& term, bool causal) {
  const auto* blocks = std::get_if<ExplicitBlocks>(&term);
  const auto* edges = std::get_if<ExplicitEdges>(&term);
  const EdgeList* list = blocks != nullptr  ? blocks->list.get()
                         : edges != nullptr ? edges->list.get()
                                            : nullptr;
  if (!causal || list == nullptr) return "";
  for (const auto& [query, key] : list->pairs) {
    if (key <= query) continue;
    return fmt::format(
        "{} names query {} and key {}; allowed in a causal table: keys up to the query",
        shown(blocks != nullptr ? blocks->file : edges->file), query, key);
  }
  return "";
}

std::int64_t weight(const Term& term) {
  constexpr std::int64_t kTermNumbers =
      static_cast<std::int64_t>(sizeof(Term) / sizeof(std::int64_t));
  if (const auto* t = std::get_if<GlobalPositions>(&term)) {
    return kTermNumbers + std::ssize(t->positions);
  }
  if (const auto* t = std::get_if<GlobalTokens>(&term)) return kTermNumbers + std::ssize(t->tokens);
  return kTermNumbers;
}

std::int64_t weight(const Attend& attend) {
  std::int64_t total = 0;
  for (const HeadGroup& group : attend.groups) {
    total += std::ssize(group.heads);
    for (const Term& term : group.attend) total += weight(term);
  }
  return total;
}

bool is_bare(char character) {
  const auto byte = static_cast<unsigned char>(character);
  const auto between = [byte](char first, char last) { return byte >= first && byte <= last; };
  return between('a', 'z') || between('A', 'Z') || between('0', '9') || byte >= 0x80 ||
         std::string_view("_-./~").find(character) != std::string_view::npos;
}

std::string shown(std::string_view text) {
  std::size_t length = std::min<std::size_t>(text.size(), 40);
  // A character of several bytes is not cut.
  while (length > 0 && length < text.size() && (text[length] & 0xc0) == 0x80) --length;
  std::string safe = "'";
  for (const char character : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) {
      safe += fmt::format("\\x{:02x}", byte);
    } else {
      safe += character;
    }
  }
  return safe + (text.size() > length ? "…'" : "'");
}

}  // namespace lacuna::attend_text
