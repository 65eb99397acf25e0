#include "lacuna/layer_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/error.h"

namespace lacuna {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string refusal(const std::string& text, int num_layers = 6) {
  return message_of([&] { parse_layers(text, num_layers, true); });
}

Attend attend(const std::string& text) { return parse_attend(text, true); }

// One letter a layer: w for window(4), f for full, s for sink(1), h for split heads, '?' for
// others.
std::string picture(const LayerTable& table) {
  const std::vector<std::pair<char, Attend>> known = {{'w', attend("window(4)")},
                                                      {'f', attend("full")},
                                                      {'s', attend("sink(1)")},
                                                      {'h', attend("heads(0: full; 1: chunk(2))")}};
  std::string letters;
  for (const Layer& layer : table.layers) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& each) { return each.second == layer.attend; });
    letters += found == known.end() ? '?' : found->first;
  }
  return letters;
}

TEST(LayerTableText, RepeatsThePatternAndCutsItAtTheEnd) {
  const auto layers = [](const std::string& text, int num_layers) {
    return picture(parse_layers(text, num_layers, true));
  };
  EXPECT_EQ(layers("full", 3), "fff");
  EXPECT_EQ(layers("window(4)*5, full", 18), "wwwwwfwwwwwfwwwwwf");
  EXPECT_EQ(layers("window(4)*5, full", 8), "wwwwwfww");
  EXPECT_EQ(layers("window(4) * 1099511627776, full", 3), "www");
  EXPECT_EQ(layers("heads(0:full;1:chunk(2))*2,full", 4), "hhfh");
}

TEST(LayerTableText, LaterOverridesWin) {
  const auto layers = [](const std::string& text) { return picture(parse_layers(text, 6, true)); };
  EXPECT_EQ(layers("window(4); first: full"), "fwwwww");
  EXPECT_EQ(layers("window(4); last: full"), "wwwwwf");
  EXPECT_EQ(layers("window(4); layers 0,2-4: full; last : sink(1)"), "fwfffs");
  EXPECT_EQ(layers("window(4); layers 0-5: full; layers 2 , 2 - 3: sink(1); first: window(4)"),
            "wfssff");
  EXPECT_EQ(layers("window(4); last: heads(0: full; 1: chunk(2)); first: full"), "fwwwwh");
}

TEST(LayerTableText, PointsAtWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"full*", "column 6: the end stands here; allowed: a count, in 1..1099511627776"},
      {"full*0", "column 6: count 0 is out of range; allowed: 1..1099511627776"},
      {"full full", "column 6: 'full' stands here; allowed: '+', '*', ',', ';' or the end"},
      {"full;", "column 6: the end stands here; allowed: an override: first, last, layers"},
      {"full; lst: full",
       "column 7: 'lst' is not an override; allowed: first, last, layers; did you mean 'last'?"},
      {"full; first full", "column 13: 'full' stands here; allowed: ':' and a union"},
      {"full; layers 1 full",
       "column 16: 'full' stands here; allowed: ',', '-' or ':' and a union"},
      {"full; layers 0,6: full", "column 16: layer 6 is out of range; allowed: 0..5"},
      {"full; layers 0-47: full", "column 16: layer 47 is out of range; allowed: 0..5"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(refusal(text), "layers " + message) << text;
  }
  // The parser names near misses through the whole table.
  EXPECT_EQ(refusal("full, windw(3)").substr(0, 39), "layers column 7: 'windw' is not a term;");
}

TEST(LayerTableText, AllowsOnlyAUnionInAnOverride) {
  EXPECT_EQ(refusal("full; last: full*2"),
            "layers column 17: '*' stands here; allowed: '+', ';' or the end");
  EXPECT_EQ(refusal("full; last: full, full"),
            "layers column 17: ',' stands here; allowed: '+', ';' or the end");
}

TEST(LayerTableText, BoundsTheTable) {
  EXPECT_EQ(refusal("full", 0), "num_layers is 0; allowed: 1..65536");
  EXPECT_EQ(refusal("full", 65537), "num_layers is 65537; allowed: 1..65536");
  EXPECT_EQ(parse_layers("full", 65536, true).layers.size(), 65536u);
  EXPECT_EQ(refusal("heads(0-999: full)", 65536),
            "layers: the table holds more than 16777216 numbers");
  std::string runs = "full";
  for (int i = 0; i < 65536; ++i) runs += ",full";
  EXPECT_EQ(refusal(runs), "layers column 327681: a pattern has more than 65536 runs");
}

TEST(LayerTableText, FindsTheShortestPattern) {
  const auto said = [](const std::string& text, int num_layers) {
    return to_text(parse_layers(text, num_layers, true));
  };
  EXPECT_EQ(said("full,full,full", 5), "full");
  EXPECT_EQ(said("window(4)*5, full", 18), "window(4)*5, full");
  EXPECT_EQ(said("window(4)*5, full", 62), "window(4)*5, full");
  EXPECT_EQ(said("full, window(4), full, window(4)", 9), "full, window(4)");
  EXPECT_EQ(said("full*3, window(4)*58", 61), "full*3, window(4)*58");
  EXPECT_EQ(said("window(4); last: full", 40), "window(4)*39, full");
  EXPECT_EQ(said("window(4)*5, full; last: full", 26), "window(4)*5, full; last: full");
  EXPECT_EQ(said("window(4), full; first: sink(1)", 40), "window(4), full; first: sink(1)");
  EXPECT_EQ(said("window(4); layers 0,5,11-12: full", 40), "window(4); layers 0,5,11-12: full");
}

TEST(LayerTableText, RefusesWhatOnlyJsonSays) {
  const auto saying = [](const std::function<void(Layer&)>& change) {
    LayerTable table = parse_layers("topk(4)", 3, true);
    change(table.layers[2]);
    return message_of([&] { to_text(table); });
  };
  EXPECT_EQ(saying([](Layer& layer) { layer.mixer = Mixer::kMla; }),
            "layer 2 has mixer, which text cannot say; allowed: the JSON form");
  EXPECT_EQ(saying([](Layer& layer) { layer.kv_from = 0; }),
            "layer 2 has kv_from, which text cannot say; allowed: the JSON form");
  EXPECT_EQ(saying([](Layer& layer) { layer.index_from = 0; }),
            "layer 2 has index_from, which text cannot say; allowed: the JSON form");
  EXPECT_EQ(saying([](Layer& layer) { layer.rope = "local"; }),
            "layer 2 has rope, which text cannot say; allowed: the JSON form");
}

// What check() says once `change` has been made to a table of four layers with 8 heads.
std::string checked(const std::function<void(LayerTable&)>& change) {
  LayerTable table = parse_layers("topk(4)+sink(1)", 4, true);
  change(table);
  return message_of([&] { check(table, std::vector<int>(table.layers.size(), 8)); });
}

TEST(LayerTableCheck, AcceptsSharedKvAndChoices) {
  EXPECT_EQ(checked([](LayerTable& table) {
              table.layers[2].kv_from = 1;
              table.layers[3].kv_from = 1;
              table.layers[3].index_from = 0;
              table.layers[0].attend = attend("heads(0-3,7: topk(4); 4-6: full)");
            }),
            "no error");
  EXPECT_EQ(checked([](LayerTable& table) {
              table.layers[1] = Layer{{}, Mixer::kSsm, {}, {}, ""};
            }),
            "no error");
}

TEST(LayerTableCheck, NamesEveryHeadOnce) {
  const auto heads = [](const std::string& text) {
    return checked([&](LayerTable& table) { table.layers[1].attend = attend(text); });
  };
  EXPECT_EQ(heads("heads(0-3: full; 4-6: sink(1))"),
            "layer 1: head 7 is in no group; allowed: each of heads 0..7 in one group");
  EXPECT_EQ(heads("heads(0-3: full; 4-8: sink(1))"),
            "layer 1: head 8 does not exist; the layer has 8 query heads");
  const auto groups = [](std::vector<std::vector<std::int64_t>> lists) {
    return checked([&](LayerTable& table) {
      table.layers[1].attend.groups.clear();
      for (auto& list : lists) table.layers[1].attend.groups.push_back({list, {Full{}}});
    });
  };
  EXPECT_EQ(groups({{0, 1, 2, 3, 4}, {4, 5, 6, 7}}), "layer 1: head 4 is named twice");
  EXPECT_EQ(groups({{1, 0, 2, 3, 4, 5, 6, 7}}),
            "layer 1: head 0 stands after 1; allowed: rising numbers");
  EXPECT_EQ(groups({{-1, 0}}), "layer 1: head -1 is out of range; allowed: 0..65535");
  EXPECT_EQ(groups({{0, 1}, {}}), "layer 1: a group of split heads names no head");
}

TEST(LayerTableCheck, NamesTheLayerOfABadUnion) {
  EXPECT_EQ(checked([](LayerTable& table) { table.layers[3].attend.groups.clear(); }),
            "layer 3: no topology; allowed: at least one term");
  EXPECT_EQ(checked([](LayerTable& table) { table.layers[3].attend.groups[0].attend.clear(); }),
            "layer 3: an empty union; allowed: at least one term");
  EXPECT_EQ(checked([](LayerTable& table) { table.layers[2].mixer = Mixer::kLinear; }),
            "layer 2: mixer linear has a topology; allowed: none");
  EXPECT_EQ(checked([](LayerTable& table) { table.causal = false; }),
            "layer 0: topk does not exist in a bidirectional table; allowed: causal tables");
  EXPECT_EQ(checked([](LayerTable& table) {
              table.layers[1].attend.groups[0].attend = {Fixed{3, 4}};
            }),
            "layer 1: c of fixed is 4; allowed: up to 3 (l)");
  const auto list = std::make_shared<const EdgeList>(EdgeList{{{3, 9}}});
  EXPECT_EQ(
      checked([&](LayerTable& table) {
        table.layers[1].attend.groups[0].attend = {ExplicitEdges{"a", list}};
      }),
      "layer 1: 'a' names query 3 and key 9; allowed in a causal table: keys up to the query");
}

TEST(LayerTableCheck, RefusesToShareWhatIsNotThere) {
  const auto kv = [](int layer_idx, int from) {
    return checked([&](LayerTable& table) {
      table.layers[1].mixer = Mixer::kMla;
      table.layers[2].kv_from = 0;
      table.layers[static_cast<std::size_t>(layer_idx)].kv_from = from;
    });
  };
  EXPECT_EQ(kv(0, 0), "layer 0: kv_from is 0; allowed: none in the first layer");
  EXPECT_EQ(kv(3, 3), "layer 3: kv_from is 3; allowed: 0..2, an earlier layer");
  EXPECT_EQ(kv(3, -1), "layer 3: kv_from is -1; allowed: 0..2, an earlier layer");
  EXPECT_EQ(
      kv(3, 2),
      "layer 3: kv_from is 2, which has none of its own but that of layer 0; allowed: a layer "
      "that stores KV");
  EXPECT_EQ(kv(3, 1),
            "layer 3: kv_from is 1, whose mixer is mla; allowed: a layer with mixer softmax");
  EXPECT_EQ(checked([](LayerTable& table) {
              table.layers[1] = Layer{{}, Mixer::kNone, 0, {}, ""};
            }),
            "layer 1: kv_from is 0; allowed: none where the mixer is none");

  const auto choice = [](int layer_idx, int from) {
    return checked([&](LayerTable& table) {
      table.layers[1].attend = attend("full");
      table.layers[2].index_from = 0;
      table.layers[static_cast<std::size_t>(layer_idx)].index_from = from;
    });
  };
  EXPECT_EQ(choice(3, 5), "layer 3: index_from is 5; allowed: 0..2, an earlier layer");
  EXPECT_EQ(choice(3, 2),
            "layer 3: index_from is 2, which uses the choice of layer 0; allowed: a layer that "
            "chooses");
  EXPECT_EQ(choice(3, 1),
            "layer 3: index_from is 1, which has no topk or topk_blocks; allowed: a layer that "
            "chooses");
  EXPECT_EQ(choice(1, 0), "layer 1: index_from is 0; allowed: none without topk or topk_blocks");
  EXPECT_EQ(
      checked([](LayerTable& table) {
        table.layers[3].attend = attend("topk(8)");
        table.layers[3].index_from = 0;
      }),
      "layer 3: index_from is 0, which does not choose topk(8); allowed: a layer with the same "
      "choice");
}

TEST(LayerTableCheck, BoundsTheTable) {
  EXPECT_EQ(message_of([] { check(LayerTable{}, {}); }),
            "the table has 0 layers; allowed: 1..65536");
  EXPECT_EQ(message_of([] {
              check(parse_layers("full", 3, true), {8, 8});
            }),
            "2 numbers of query heads for 3 layers; allowed: one for each");
  EXPECT_EQ(checked([](LayerTable& table) {
              table.tile = Tile{0, 64};
            }),
            "tile is 0,64; allowed: 1..1099511627776");
}

TEST(ResolveTokens, PutsPositionsInThePlaceOfTokens) {
  const LayerTable table = parse_layers(
      "window(4)+global(token=7,9), heads(0: global(token=5); 1: full+global(token=5)), "
      "global(token=9)",
      4, true);
  const LayerTable resolved = resolve_tokens(table, {9, 1, 7, 9});
  const LayerTable expected = [] {
    LayerTable made =
        parse_layers("window(4)+global(0,2,3), heads(0: global(1); 1: full), global(0,3)", 4, true);
    // A lone global without a position stays, and no query reads anything through it.
    made.layers[1].attend.groups[0].attend = {GlobalPositions{}};
    return made;
  }();
  EXPECT_EQ(resolved, expected);
  EXPECT_EQ(message_of([&] { check(resolved, {}); }), "no error");
  EXPECT_EQ(resolve_tokens(resolved, {7}), resolved);
}

// Random tables
// -------------------------------------------------------------------------------------

std::int64_t pick(std::int64_t min, std::int64_t max) {
  return *rc::gen::inRange<std::int64_t>(min, max + 1);
}
// Small and large numbers alike.
std::int64_t size() { return pick(0, 1) == 0 ? pick(1, 9) : std::int64_t{1} << pick(0, 40); }

std::vector<std::int64_t> positions() {
  auto numbers = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 1000)));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

Term either_way_term(std::uint64_t seed, bool causal) {
  switch (pick(0, 11)) {
    case 0:
      return Window{size() - 1, causal ? 0 : pick(0, 9)};
    case 1:
      return Dilated{size(), size()};
    case 2:
      return Sink{size()};
    case 3:
      return GlobalPositions{positions()};
    case 4:
      return GlobalFirst{size()};
    case 5: {
      const std::int64_t k = size();
      return GlobalEvery{k, pick(0, k - 1)};
    }
    case 6:
      return GlobalTokens{positions()};
    case 7:
      return Chunk{size()};
    case 8:
      return WindowBlocks{pick(0, 5), pick(0, 5), size()};
    case 9:
      return Random{size(), seed};
    case 10:
      return RandomBlocks{size(), size(), seed, pick(0, 1) == 1};
    default:
      return Full{};
  }
}

Term causal_term() {
  switch (pick(0, 4)) {
    case 0:
      return Strided{size()};
    case 1: {
      const std::int64_t l = size();
      return Fixed{l, pick(1, l)};
    }
    case 2: {
      const std::int64_t stride = size();
      const bool is_head = pick(0, 1) == 1;
      return VerticalBlocks{size(), size(), stride, is_head ? 0 : pick(0, stride - 1), is_head};
    }
    case 3:
      return TopK{size()};
    default: {
      const std::int64_t k = size();
      const std::int64_t init = pick(0, k);
      return TopKBlocks{k, size(), init, pick(0, k - init)};
    }
  }
}

Union random_union(bool causal) {
  Union terms;
  const std::int64_t num_terms = pick(1, 4);
  for (std::int64_t i = 0; i < num_terms; ++i) {
    if (pick(0, 2) > 0) {
      terms.push_back(either_way_term(*rc::gen::arbitrary<std::uint64_t>(), causal));
    } else {
      terms.push_back(causal ? causal_term() : Term{GlobalLast{size()}});
    }
  }
  return terms;
}

Attend random_attend(bool causal) {
  if (pick(0, 3) > 0) return Attend{{HeadGroup{{}, random_union(causal)}}};
  Attend attend;
  const std::int64_t num_groups = pick(1, 3);
  for (std::int64_t i = 0; i < num_groups; ++i)
    attend.groups.push_back({{i}, random_union(causal)});
  for (std::int64_t head = num_groups; head < 8; ++head) {
    attend.groups[static_cast<std::size_t>(pick(0, num_groups - 1))].heads.push_back(head);
  }
  return attend;
}

// Layers that repeat few topologies, as models do.
LayerTable random_table(bool causal) {
  std::vector<Attend> known;
  const std::int64_t num_known = pick(1, 3);
  for (std::int64_t i = 0; i < num_known; ++i) known.push_back(random_attend(causal));
  LayerTable table;
  table.causal = causal;
  const std::int64_t period = pick(1, 7);
  const std::int64_t num_layers = pick(1, 40);
  for (std::int64_t i = 0; i < num_layers; ++i) {
    const bool repeats = i >= period && pick(0, 9) > 0;
    table.layers.push_back(repeats ? table.layers[static_cast<std::size_t>(i - period)] : Layer{});
    if (!repeats)
      table.layers.back().attend = known[static_cast<std::size_t>(pick(0, num_known - 1))];
  }
  return table;
}

// What text cannot say.
void add_json_only(LayerTable& table) {
  table.trained = static_cast<Trained>(pick(0, 2));
  if (pick(0, 1) == 1) table.tile = Tile{size(), size()};
  for (std::size_t i = 0; i < table.layers.size(); ++i) {
    Layer& layer = table.layers[i];
    if (pick(0, 3) == 0) layer.mixer = static_cast<Mixer>(pick(0, 4));
    if (layer.mixer != Mixer::kSoftmax && layer.mixer != Mixer::kMla) layer.attend = {};
    if (pick(0, 2) == 0) layer.rope = *rc::gen::element<std::string>("local", "global", "é\"\n");
    if (i == 0 || layer.mixer == Mixer::kNone) continue;
    const auto from = static_cast<int>(pick(0, static_cast<std::int64_t>(i) - 1));
    const Layer& owner = table.layers[static_cast<std::size_t>(from)];
    if (!layer.attend.groups.empty() && !owner.kv_from && owner.mixer == layer.mixer) {
      layer.kv_from = from;
    }
  }
}

TEST(LayerTableProperty, TextReadsBackToTheSameTable) {
  EXPECT_TRUE(rc::check("table -> text -> table", [] {
    const LayerTable table = random_table(pick(0, 1) == 1);
    const std::string text = to_text(table);
    RC_LOG() << text;
    const auto num_layers = static_cast<int>(table.layers.size());
    const LayerTable again = parse_layers(text, num_layers, table.causal);
    RC_ASSERT(again == table);
    RC_ASSERT(to_text(again) == text);
  }));
}

TEST(LayerTableProperty, JsonReadsBackToTheSameTable) {
  EXPECT_TRUE(rc::check("table -> JSON -> table", [] {
    LayerTable table = random_table(pick(0, 1) == 1);
    add_json_only(table);
    const std::string json = to_json(table);
    RC_LOG() << json;
    const LayerTable again = layers_from_json(json);
    RC_ASSERT(again == table);
    RC_ASSERT(to_json(again) == json);
  }));
}

TEST(LayerTableProperty, TextSurvivesJson) {
  EXPECT_TRUE(rc::check("text -> JSON -> text", [] {
    const LayerTable table = parse_layers(to_text(random_table(true)), 40, true);
    RC_ASSERT(to_text(layers_from_json(to_json(table))) == to_text(table));
  }));
}

}  // namespace
}  // namespace lacuna
