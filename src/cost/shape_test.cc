#include "lacuna/shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

LayerTable full_layers(int num_layers) { return parse_layers("full", num_layers, true); }

// The message of check() after `spoil` has changed a good shape or table.
std::string message_after(const std::function<void(ModelShape&, LayerTable&)>& spoil) {
  ModelShape shape = uniform_shape(2, LayerShape{.num_q_heads = 8, .num_kv_heads = 2});
  LayerTable table = full_layers(2);
  spoil(shape, table);
  try {
    check(shape, table);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string message_after_layer(const std::function<void(LayerShape&)>& spoil) {
  return message_after([&](ModelShape& shape, LayerTable&) { spoil(shape.layers[1]); });
}

TEST(UniformShape, RepeatsOneLayer) {
  const ModelShape shape = uniform_shape(3, LayerShape{.num_q_heads = 4, .num_kv_heads = 2});
  EXPECT_EQ(num_q_heads(shape), (std::vector<int>{4, 4, 4}));
  EXPECT_EQ(shape.layers[2].num_kv_heads, 2);
  EXPECT_FALSE(shape.hidden_size.has_value());
  EXPECT_THROW(uniform_shape(0, {}), Error);
}

TEST(CheckShape, AcceptsWhatFitsTheTable) {
  EXPECT_EQ(message_after([](ModelShape&, LayerTable&) {}), "no error");
}

TEST(CheckShape, RefusesAnotherNumberOfLayers) {
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable&) { shape.layers.pop_back(); }),
            "the shape has 1 layers; allowed: 2, as the layer table");
}

TEST(CheckShape, NamesTheLayerAndTheSize) {
  EXPECT_EQ(message_after_layer([](LayerShape& layer) { layer.head_dim = 0; }),
            "layer 1: head_dim is 0; allowed: 1..1099511627776");
  EXPECT_EQ(message_after_layer([](LayerShape& layer) { layer.v_head_dim = -1; }),
            "layer 1: v_head_dim is -1; allowed: 1..1099511627776");
  EXPECT_EQ(message_after_layer([](LayerShape& layer) { layer.num_q_heads = 0; }),
            "layer 1: num_q_heads is 0; allowed: 1..1099511627776");
  EXPECT_EQ(message_after_layer([](LayerShape& layer) { layer.num_kv_heads = 3; }),
            "layer 1: num_kv_heads is 3 with 8 query heads; allowed: a divisor");
  EXPECT_EQ(
      message_after_layer([](LayerShape& layer) { layer.mlp = MlpShape{.intermediate_size = 0}; }),
      "layer 1: intermediate_size is 0; allowed: 1..1099511627776");
  EXPECT_EQ(message_after_layer([](LayerShape& layer) {
              layer.mlp = MlpShape{.kind = MlpKind::kMixture,
                                   .intermediate_size = 8,
                                   .num_experts = 4,
                                   .experts_per_token = 5};
            }),
            "layer 1: experts_per_token is 5; allowed: 1..4, the number of experts");
  EXPECT_EQ(message_after_layer([](LayerShape& layer) { layer.index = IndexShape{}; }),
            "layer 1: index num_heads is 0; allowed: 1..1099511627776");
}

TEST(CheckShape, RefusesModelSizesOutOfRange) {
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable&) { shape.hidden_size = 0; }),
            "hidden_size is 0; allowed: 1..1099511627776");
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable&) { shape.vocab_size = -1; }),
            "vocab_size is -1; allowed: 1..1099511627776");
}

TEST(CheckShape, AsksEachMixerForTheShapeItNeeds) {
  EXPECT_EQ(
      message_after([](ModelShape&, LayerTable& table) { table.layers[1].mixer = Mixer::kMla; }),
      "layer 1: mixer is mla without latent sizes; allowed: with kv_lora_rank and head dims");
  EXPECT_EQ(
      message_after([](ModelShape&, LayerTable& table) { table.layers[0].mixer = Mixer::kSsm; }),
      "layer 0: mixer is ssm without state sizes; allowed: with heads and dims of its state");
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable& table) {
              table.layers[1].mixer = Mixer::kMla;
              shape.layers[1].latent = LatentShape{0, 0, 128, 64, 128};
            }),
            "layer 1: kv_lora_rank is 0; allowed: 1..1099511627776");
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable& table) {
              table.layers[1].mixer = Mixer::kLinear;
              shape.layers[1].state = StateShape{};
            }),
            "layer 1: state num_value_heads is 0; allowed: 1..1099511627776");
}

TEST(CheckShape, RefusesKvOfOtherSizesThanItsOwner) {
  EXPECT_EQ(message_after([](ModelShape& shape, LayerTable& table) {
              table.layers[1].kv_from = 0;
              shape.layers[1].num_kv_heads = 4;
            }),
            "layer 1: 4 KV heads of 64+64 elements with kv_from 0; allowed: 2 of 64+64, as there");
  EXPECT_EQ(message_after([](ModelShape&, LayerTable& table) { table.layers[1].kv_from = 0; }),
            "no error");
}

}  // namespace
}  // namespace lacuna
