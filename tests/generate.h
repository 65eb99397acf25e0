#pragma once

// Topologies for rapidcheck, small enough for the oracle, and their text in failure messages. The
// seed is fixed and printed; RC_PARAMS in the environment overrides it and any other setting of
// rapidcheck.

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lacuna/attend.h"

namespace lacuna::generate {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// rapidcheck reads its configuration once, at the first property; this runs before main.
inline const int kFixedSeed = setenv(
    "RC_PARAMS", kSanitized ? "seed=20250117 max_success=25" : "seed=20250117 max_success=300", 0);

// ---- Text ---------------------------------------------------------------------------------------

inline std::string call(const std::string& name, const std::vector<std::int64_t>& arguments) {
  std::string out = name + "(";
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    out += (a == 0 ? "" : ",") + std::to_string(arguments[a]);
  }
  return out + ")";
}

inline std::string call(const std::string& name, const EdgeList& list) {
  std::string out = name + "(";
  for (const auto& [query, key] : list.pairs) {
    out += " " + std::to_string(query) + "<-" + std::to_string(key);
  }
  return out + " )";
}

struct Describe {
  std::string operator()(const Full&) const { return "full"; }
  std::string operator()(const Window& t) const {
    return call("window left,right", {t.left, t.right});
  }
  std::string operator()(const Dilated& t) const { return call("dilated w,d", {t.w, t.d}); }
  std::string operator()(const Sink& t) const { return call("sink", {t.s}); }
  std::string operator()(const GlobalPositions& t) const { return call("global", t.positions); }
  std::string operator()(const GlobalFirst& t) const { return call("global first", {t.g}); }
  std::string operator()(const GlobalLast& t) const { return call("global last", {t.g}); }
  std::string operator()(const GlobalEvery& t) const {
    return call("global every,offset", {t.k, t.offset});
  }
  std::string operator()(const GlobalTokens& t) const { return call("global token", t.tokens); }
  std::string operator()(const Chunk& t) const { return call("chunk", {t.c}); }
  std::string operator()(const Strided& t) const { return call("strided", {t.l}); }
  std::string operator()(const Fixed& t) const { return call("fixed l,c", {t.l, t.c}); }
  std::string operator()(const WindowBlocks& t) const {
    return call("window_blocks before,after,block", {t.before, t.after, t.block});
  }
  std::string operator()(const VerticalBlocks& t) const {
    return call(t.offset_is_head ? "vertical_blocks block,local,stride by head"
                                 : "vertical_blocks block,local,stride,offset",
                {t.block, t.local, t.stride, t.offset});
  }
  std::string operator()(const TopK& t) const { return call("topk", {t.k}); }
  std::string operator()(const TopKBlocks& t) const {
    return call("topk_blocks k,block,init,local", {t.k, t.block, t.init, t.local});
  }
  std::string operator()(const Random& t) const {
    return call("random", {t.r}) + " seed " + std::to_string(t.seed);
  }
  std::string operator()(const RandomBlocks& t) const {
    return call(t.outside_window ? "random_blocks outside r,block" : "random_blocks r,block",
                {t.r, t.block}) +
           " seed " + std::to_string(t.seed);
  }
  std::string operator()(const ExplicitBlocks& t) const {
    return call("blocks of " + std::to_string(t.block), *t.list);
  }
  std::string operator()(const ExplicitEdges& t) const { return call("edges", *t.list); }
};

inline std::string describe(const Union& attend) {
  std::string out;
  for (const Term& term : attend) {
    out += (out.empty() ? "" : " + ") + std::visit(Describe{}, term);
  }
  return out;
}

// A union with what its meaning depends on besides the length.
struct Case {
  Union attend;
  bool causal = true;
  int layer = 0;
  int head = 0;
};

inline std::string describe(const Case& c) {
  return describe(c.attend) + (c.causal ? ", causal" : ", bidirectional") + ", layer " +
         std::to_string(c.layer) + ", head " + std::to_string(c.head);
}

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << describe(c); }

// ---- Generators ---------------------------------------------------------------------------------

inline rc::Gen<std::int64_t> between(std::int64_t low, std::int64_t high) {
  return rc::gen::inRange<std::int64_t>(low, high + 1);
}
inline rc::Gen<std::int64_t> size() { return between(1, 40); }
inline rc::Gen<std::uint64_t> seed() { return rc::gen::arbitrary<std::uint64_t>(); }

inline rc::Gen<std::shared_ptr<const EdgeList>> edge_list(bool causal, std::int64_t largest) {
  auto pairs = rc::gen::container<std::set<std::pair<std::int64_t, std::int64_t>>>(
      rc::gen::map(rc::gen::pair(between(0, largest), between(0, largest)),
                   [causal](std::pair<std::int64_t, std::int64_t> pair) {
                     if (causal && pair.second > pair.first) std::swap(pair.first, pair.second);
                     return pair;
                   }));
  return rc::gen::map(std::move(pairs), [](const auto& sorted) {
    return std::make_shared<const EdgeList>(EdgeList{{sorted.begin(), sorted.end()}});
  });
}

inline rc::Gen<Term> global_term(bool causal) {
  using rc::gen::build;
  using rc::gen::cast;
  using rc::gen::set;
  auto listed = rc::gen::map(rc::gen::container<std::set<std::int64_t>>(between(0, 120)),
                             [](std::set<std::int64_t> positions) {
                               if (positions.empty()) positions.insert(4);
                               return Term(GlobalPositions{{positions.begin(), positions.end()}});
                             });
  auto every = rc::gen::map(rc::gen::pair(size(), between(0, 39)), [](auto pair) {
    return Term(GlobalEvery{pair.first, pair.second % pair.first});
  });
  auto first = cast<Term>(build<GlobalFirst>(set(&GlobalFirst::g, size())));
  auto last = cast<Term>(build<GlobalLast>(set(&GlobalLast::g, size())));
  return causal ? rc::gen::oneOf(listed, every, first) : rc::gen::oneOf(listed, every, first, last);
}

// Terms that exist in one direction only.
inline rc::Gen<Term> causal_only_term() {
  using rc::gen::build;
  using rc::gen::cast;
  using rc::gen::map;
  using rc::gen::set;
  auto fixed = map(rc::gen::pair(size(), between(0, 39)), [](auto pair) {
    return Term(Fixed{pair.first, 1 + pair.second % pair.first});
  });
  auto vertical = map(build<VerticalBlocks>(set(&VerticalBlocks::block, between(1, 20)),
                                            set(&VerticalBlocks::local, between(1, 5)),
                                            set(&VerticalBlocks::stride, between(1, 8)),
                                            set(&VerticalBlocks::offset, between(0, 7)),
                                            set(&VerticalBlocks::offset_is_head)),
                      [](VerticalBlocks t) {
                        t.offset = t.offset_is_head ? 0 : t.offset % t.stride;
                        return Term(t);
                      });
  auto topk_blocks = map(rc::gen::pair(between(1, 8), between(1, 20)), [](auto pair) {
    return Term(TopKBlocks{pair.first, pair.second, pair.first > 1 ? 1 : 0, 1});
  });
  return rc::gen::oneOf(cast<Term>(build<Strided>(set(&Strided::l, size()))), fixed, vertical,
                        cast<Term>(build<TopK>(set(&TopK::k, size()))), topk_blocks);
}

inline rc::Gen<Term> irregular_term(bool causal) {
  using rc::gen::build;
  using rc::gen::cast;
  using rc::gen::map;
  using rc::gen::set;
  auto keys =
      cast<Term>(build<Random>(set(&Random::r, between(1, 12)), set(&Random::seed, seed())));
  auto blocks = cast<Term>(build<RandomBlocks>(
      set(&RandomBlocks::r, between(1, 5)), set(&RandomBlocks::block, between(1, 20)),
      set(&RandomBlocks::seed, seed()), set(&RandomBlocks::outside_window)));
  auto edges = map(edge_list(causal, 100), [](std::shared_ptr<const EdgeList> list) {
    return Term(ExplicitEdges{"memory", std::move(list)});
  });
  auto listed_blocks = map(rc::gen::pair(edge_list(causal, 20), between(1, 20)), [](auto pair) {
    return Term(ExplicitBlocks{"memory", pair.second, pair.first});
  });
  return rc::gen::oneOf(keys, blocks, edges, listed_blocks);
}

inline rc::Gen<Term> regular_term(bool causal) {
  using rc::gen::build;
  using rc::gen::cast;
  using rc::gen::just;
  using rc::gen::set;
  auto nothing = just<std::int64_t>(0);
  return rc::gen::oneOf(
      just(Term(Full{})),
      cast<Term>(build<Window>(set(&Window::left, between(0, 40)),
                               set(&Window::right, causal ? nothing : between(0, 40)))),
      cast<Term>(
          build<Dilated>(set(&Dilated::w, between(1, 12)), set(&Dilated::d, between(1, 12)))),
      cast<Term>(build<Sink>(set(&Sink::s, size()))),
      cast<Term>(build<Chunk>(set(&Chunk::c, size()))),
      cast<Term>(build<WindowBlocks>(set(&WindowBlocks::before, between(0, 4)),
                                     set(&WindowBlocks::after, causal ? nothing : between(0, 4)),
                                     set(&WindowBlocks::block, between(1, 20)))));
}

inline rc::Gen<Term> term(bool causal) {
  if (!causal) {
    return rc::gen::weightedOneOf<Term>(
        {{4, regular_term(causal)}, {2, global_term(causal)}, {2, irregular_term(causal)}});
  }
  return rc::gen::weightedOneOf<Term>({{4, regular_term(causal)},
                                       {3, causal_only_term()},
                                       {2, global_term(causal)},
                                       {2, irregular_term(causal)}});
}

inline rc::Gen<Union> attend(bool causal, int min_terms, int max_terms) {
  return rc::gen::mapcat(rc::gen::inRange(min_terms, max_terms + 1), [causal](int count) {
    return rc::gen::container<Union>(static_cast<std::size_t>(count), term(causal));
  });
}

}  // namespace lacuna::generate
