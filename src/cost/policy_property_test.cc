#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cost/test_models.h"
#include "lacuna/cost.h"
#include "lacuna/policy.h"
#include "lacuna/topology.h"

// What holds for every policy, topology and length.

namespace lacuna {
namespace {

const std::vector<std::string>& tables() {
  static const std::vector<std::string> kTables = {
      "full",
      "window(37)",
      "window(64)*2, full",
      "window(16)+sink(3)",
      "chunk(48), full",
      "dilated(5,7)",
      "strided(9), window(20)",
      "fixed(16,3)",
      "window_blocks(1,0,24)",
      "window(12)+global(5,70)",
      "window(12)+global(first=7)",
      "window(30)+global(every=50)",
      "topk(16)",
      "heads(0-1: full; 2-3: window(25))",
  };
  return kTables;
}

TEST(PolicyProperty, LayersAndPaddingAddUpToTheBytes) {
  for (const std::string& layers : tables()) {
    const Model made = model(layers, 7, heads(4, 2, 64));
    for (const std::string& name : policy_names()) {
      for (const std::int64_t length : {0, 1, 15, 16, 17, 64, 333}) {
        const Held held = held_of(name, made, length);
        Int128 sum = held.padding_bytes;
        for (const LayerHeld& layer : held.layers) sum += layer.bytes;
        EXPECT_EQ(to_string(sum), to_string(held.bytes.value())) << name << " of " << layers;
      }
    }
  }
}

TEST(PolicyProperty, NoPolicyHoldsLessThanIsNeeded) {
  for (const std::string& layers : tables()) {
    const Model made = model(layers, 7, heads(4, 2, 64));
    for (const std::int64_t length : {1, 2, 16, 47, 48, 49, 63, 64, 65, 100, 333, 1000}) {
      const std::int64_t needed = bytes_of("exact", made, length);
      for (const std::string& name : policy_names()) {
        if (name == "hf_dynamic") continue;  // between steps, one token less is enough
        EXPECT_GE(bytes_of(name, made, length), needed) << name << " of " << layers;
      }
    }
  }
}

TEST(PolicyProperty, HfDynamicHoldsWhatTheNextStepReadsOfThePast) {
  for (const std::int64_t window : {2, 5, 64}) {
    const Union attend = {Window{window - 1, 0}};
    const Model made{parse_layers("window(" + std::to_string(window) + ")", 1, true),
                     uniform_shape(1, heads(1, 1, 64))};
    for (std::int64_t length = 1; length < 150; ++length) {
      EXPECT_EQ(held_of("hf_dynamic", made, length).layers[0].tokens,
                Topology(attend, true).retained(length, length).size());
    }
  }
}

TEST(PolicyProperty, PagesOfOneTokenAreExact) {
  for (const std::string& layers : tables()) {
    const Model made = model(layers, 3, heads(4, 2, 64));
    for (std::int64_t length = 0; length < 200; ++length) {
      EXPECT_EQ(bytes_of("paged(P=1)", made, length), bytes_of("exact", made, length)) << layers;
    }
  }
}

TEST(PolicyProperty, PagesAreCountedOneByOne) {
  for (const std::string& layers : tables()) {
    const Model made = model(layers, 1, heads(4, 2, 64));
    const LayerTopology topology(made.table.layers[0], true, 0, 4, 2);
    for (const std::int64_t length : {1, 8, 63, 64, 65, 200}) {
      std::int64_t slots = 0;  // of all KV heads, by asking for every key whether it may be read
      for (const LayerTopology::Class& kv_heads : topology.kv_heads()) {
        for (std::int64_t page = 0; page * 8 < length; ++page) {
          bool live = false;
          for (std::int64_t query = length - 1; query < length + 400 && !live; ++query) {
            const Ranges row = kv_heads.topology.may_read(query, query + 1, query + 1);
            live = !clip(row, {page * 8, std::min(page * 8 + 8, length)}).empty();
          }
          slots += live ? std::int64_t{8} * kv_heads.count : 0;
        }
      }
      EXPECT_EQ(bytes_of("paged(P=8)", made, length), slots * 2 * 64 * 2)
          << layers << " at " << length;
    }
  }
}

TEST(PolicyProperty, MoreRowsInFlightNeverHoldLess) {
  for (const std::string& layers : tables()) {
    const Model made = model(layers, 2, heads(4, 2, 64));
    for (const std::int64_t length : {1, 50, 64, 200}) {
      std::int64_t before = 0;
      for (const std::string rows : {"1", "2", "16", "64", "1000"}) {
        const std::int64_t bytes = bytes_of("paged(in_flight=" + rows + ")", made, length);
        EXPECT_GE(bytes, before) << layers;
        before = bytes;
      }
    }
  }
}

TEST(PolicyProperty, WithoutEvictionHeldBytesNeverFall) {
  for (const std::string name :
       {"full", "uniform", "pool", "iswa", "hf_dynamic", "hf_static", "rolling"}) {
    for (const std::string& layers : tables()) {
      const Model made = model(layers, 3, heads(4, 2, 64));
      std::int64_t before = 0;
      for (std::int64_t length = 0; length < 300; length += 7) {
        const std::int64_t bytes = bytes_of(name, made, length);
        EXPECT_GE(bytes, before) << name << " of " << layers << " at " << length;
        before = bytes;
      }
    }
  }
}

TEST(PolicyProperty, ExactIsWhatCostCallsNeeded) {
  std::vector<Model> models;
  for (const std::string& layers : tables()) models.push_back(model(layers, 7, heads(4, 2, 64)));
  Model shared = model("window(64), full", 6, heads(4, 2, 64));
  shared.table.layers[4].kv_from = 0;
  shared.table.layers[5].kv_from = 0;
  models.push_back(shared);
  Model split = model("heads(0-1: window(8); 2-3: window(16))", 2, heads(4, 2, 64));
  split.table.layers[1].attend = parse_attend("heads(0-1: window(32); 2-3: window(4))", true);
  split.table.layers[1].kv_from = 0;
  models.push_back(split);
  for (const Model& made : models) {
    for (const std::int64_t length : {1, 47, 64, 333}) {
      CostQuery query;
      query.phase = Phase::kDecode;
      query.lengths = {length};
      query.kv_dtype = kv_dtype("q8_0");
      EXPECT_EQ(bytes_of("exact", made, length, "q8_0"),
                to_int64(cost(made.table, made.shape, query).total.kv_held_bytes.value(), "held"));
    }
  }
}

}  // namespace
}  // namespace lacuna
