#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/error.h"
#include "lacuna/layer_table.h"

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

std::string refusal(const std::string& json) {
  return message_of([&] { layers_from_json(json); });
}

const std::string kHead =
    R"({"format": "lacuna-layer-table", "format_version": 1, "causal": true, )";

// A table whose layers are this JSON.
std::string with_layers(const std::string& layers) {
  return kHead + R"("layers": [)" + layers + "]}";
}

TEST(LayerTableJson, HasOneFormByteForByte) {
  LayerTable table = parse_layers("window(512)*2, heads(0-2: topk(8); 3: full)", 6, true);
  table.trained = Trained::kTrue;
  table.tile = Tile{64, 128};
  table.layers[3].kv_from = 0;
  table.layers[3].rope = "local";
  table.layers[5].index_from = 2;
  table.layers[4] = Layer{{}, Mixer::kSsm, {}, {}, ""};
  const std::string json = R"json({
  "format": "lacuna-layer-table",
  "format_version": 1,
  "causal": true,
  "trained": true,
  "tile": {
    "q": 64,
    "k": 128
  },
  "layers": [
    {
      "count": 2,
      "attend": "window(512)"
    },
    {
      "count": 1,
      "heads": [
        {
          "heads": "0-2",
          "attend": "topk(8)"
        },
        {
          "heads": "3",
          "attend": "full"
        }
      ]
    },
    {
      "count": 1,
      "attend": "window(512)",
      "kv_from": 0,
      "rope": "local"
    },
    {
      "count": 1,
      "mixer": "ssm"
    },
    {
      "count": 1,
      "heads": [
        {
          "heads": "0-2",
          "attend": "topk(8)"
        },
        {
          "heads": "3",
          "attend": "full"
        }
      ],
      "index_from": 2
    }
  ]
}
)json";
  EXPECT_EQ(to_json(table), json);
  EXPECT_EQ(layers_from_json(json), table);
}

TEST(LayerTableJson, FillsInWhatIsLeftOut) {
  const LayerTable table = layers_from_json(with_layers(R"({"attend": "full"})"));
  EXPECT_EQ(table, parse_layers("full", 1, true));
  EXPECT_EQ(table.trained, Trained::kUnknown);
  EXPECT_FALSE(table.tile);
}

TEST(LayerTableJson, ReadsSplitHeadsInEitherForm) {
  const std::string text = R"json({"attend": "heads(0: full; 1: sink(2))"})json";
  const std::string list = R"json({"heads": [{"heads": "0", "attend": "full"},
                                             {"heads": "1", "attend": "sink(2)"}]})json";
  EXPECT_EQ(layers_from_json(with_layers(text)), layers_from_json(with_layers(list)));
}

TEST(LayerTableJson, NamesKeyAndPlaceOfWhatIsWrong) {
  const std::string keys = "count, attend, heads, kv_from, index_from, rope, mixer";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"attend": "full"}, {"atend": "full"})",
       "'layers[1].atend' is not a known key; allowed: " + keys + "; did you mean 'attend'?"},
      {"3", "layers[0] is a number; allowed: an object"},
      {R"({"attend": 3})", "layers[0].attend is a number; allowed: a string"},
      {R"({"attend": null})", "layers[0].attend is null; allowed: a string"},
      {R"({"attend": "full", "count": "3"})",
       "layers[0].count is a string; allowed: a whole number"},
      {R"({"attend": "full", "count": 0})",
       "layers[0].count is 0; allowed: whole numbers 1..65536"},
      {R"({"attend": "full", "count": 2.5})",
       "layers[0].count is 2.5; allowed: whole numbers 1..65536"},
      {R"({"attend": "full", "count": 18446744073709551616})",
       "layers[0].count is 1.8446744073709552e+19; allowed: whole numbers 1..65536"},
      {R"({"attend": "full", "count": 18446744073709551615})",
       "layers[0].count is 18446744073709551615; allowed: whole numbers 1..65536"},
      {R"({"attend": "full", "kv_from": -1})",
       "layers[0].kv_from is -1; allowed: whole numbers 0..65535"},
      {R"({"attend": "full", "index_from": 65536})",
       "layers[0].index_from is 65536; allowed: whole numbers 0..65535"},
      {R"({"attend": "full", "rope": true})", "layers[0].rope is true or false; allowed: a string"},
      {R"({"attend": "full", "mixer": "sofmax"})",
       "layers[0].mixer is 'sofmax'; allowed: softmax, mla, linear, ssm, none; did you mean "
       "'softmax'?"},
      {R"({"attend": "full", "heads": []})",
       "layers[0].heads stands beside attend; allowed: one of them"},
      {R"({"heads": {}})", "layers[0].heads is an object; allowed: a list"},
      {R"({"heads": [{"heads": "0"}]})", "layers[0].heads[0].attend is missing"},
      {R"({"heads": [{"attend": "full"}]})", "layers[0].heads[0].heads is missing"},
      {R"({"heads": [{"heads": "0", "attend": "full", "x": 1}]})",
       "'layers[0].heads[0].x' is not a known key; allowed: heads, attend"},
      {R"({"heads": [{"heads": "0;", "attend": "full"}]})",
       "layers[0].heads[0].heads column 2: ';' stands here; allowed: ',', '-' or the end"},
      {R"({"heads": [{"heads": "0", "attend": "full,"}]})",
       "layers[0].heads[0].attend column 5: ',' stands here; allowed: '+' or the end"},
      {R"({"heads": [{"heads": "1", "attend": "full"}]})",
       "layers[0].heads: head 0 is in no group; allowed: each of heads 0..1 in one group"},
      {R"json({"attend": "window(0)"})json",
       "layers[0].attend column 8: w of window is 0; allowed: 1..1099511627776"},
      {R"({"attend": "full;"})",
       "layers[0].attend column 5: ';' stands here; allowed: '+' or the end"},
      {R"({"mixer": "mla"})", "layer 0: no topology; allowed: at least one term"},
      {R"({"attend": "full", "kv_from": 0})",
       "layer 0: kv_from is 0; allowed: none in the first layer"},
      {"", "the table has 0 layers; allowed: 1..65536"},
      {R"({"attend": "full", "count": 65536}, {"attend": "full"})",
       "layers[1]: the table has more than 65536 layers"},
      {R"json({"count": 65536, "attend": "heads(0-999: full)"})json",
       "layers[0]: the table holds more than 16777216 numbers"},
  };
  for (const auto& [layers, message] : cases) EXPECT_EQ(refusal(with_layers(layers)), message);
}

TEST(LayerTableJson, NamesWhatIsWrongAboveTheLayers) {
  const std::string rest = R"("layers": [{"attend": "full"}]})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "the layer table is a list; allowed: an object"},
      {"{}", "format is missing"},
      {R"({"format": "lacuna-plan"})", "format is 'lacuna-plan'; allowed: 'lacuna-layer-table'"},
      {R"({"format": "lacuna-layer-table"})", "format_version is missing"},
      {R"({"format": "lacuna-layer-table", "format_version": 2})",
       "format_version is 2; allowed: whole numbers 1..1"},
      {R"({"format": "lacuna-layer-table", "format_version": 1})", "causal is missing"},
      {R"({"format": "lacuna-layer-table", "format_version": 1, "causal": 1})",
       "causal is a number; allowed: true or false"},
      {kHead + R"("trained": "yes", )" + rest,
       "trained is 'yes'; allowed: true, false or \"unknown\""},
      {kHead + R"("trained": 1, )" + rest,
       "trained is a number; allowed: true, false or \"unknown\""},
      {kHead + R"("tile": [64, 64], )" + rest, "tile is a list; allowed: an object"},
      {kHead + R"("tile": {"q": 64}, )" + rest, "tile.k is missing"},
      {kHead + R"("tile": {"q": 0, "k": 1}, )" + rest,
       "tile.q is 0; allowed: whole numbers 1..1099511627776"},
      {kHead + R"("layer": 1, )" + rest,
       "'layer' is not a known key; allowed: format, format_version, causal, trained, tile, "
       "layers; "
       "did you mean 'layers'?"},
      {kHead + R"("layers": 3})", "layers is a number; allowed: a list"},
      {kHead + R"("tile": null})", "tile is null; allowed: an object"},
  };
  for (const auto& [json, message] : cases) EXPECT_EQ(refusal(json), message);
  EXPECT_EQ(refusal(kHead.substr(0, kHead.size() - 2) + "}"), "layers is missing");
}

TEST(LayerTableJson, RefusesHostileJson) {
  EXPECT_EQ(refusal(""), "the layer table is not JSON: byte 1 does not fit there");
  EXPECT_EQ(refusal("{\"a\": \x01}"), "the layer table is not JSON: byte 7 does not fit there");
  EXPECT_EQ(refusal("{} {}"), "the layer table is not JSON: byte 4 does not fit there");
  EXPECT_EQ(refusal("{\"a\": 1e999}"),
            "the layer table is not JSON: a number in it is out of range");
  EXPECT_EQ(refusal(with_layers(R"({"attend": "full", "count": 1, "attend": "full"})")),
            "'layers[0].attend' stands twice; allowed: once");
  EXPECT_EQ(refusal(kHead + R"("causal": false})"), "'causal' stands twice; allowed: once");
  EXPECT_EQ(refusal(with_layers(R"({}, {"heads": [{}, {"heads": "0", "heads": "0"}]})")),
            "'layers[1].heads[1].heads' stands twice; allowed: once");
  EXPECT_EQ(refusal(with_layers("[[[[[[[[[]]]]]]]]]")),
            "layers[0][0][0][0][0][0][0] is nested too deeply; allowed: 8 levels");
  EXPECT_EQ(refusal(std::string(1000000, '[')),
            "[0][0][0][0][0][0][0][0] is nested too deeply; allowed: 8 levels");
  EXPECT_EQ(refusal(std::string((16 << 20) + 1, ' ')),
            "the layer table has 16777217 bytes; allowed: up to 16777216");
  const std::string rope(1 << 20, 'x');
  EXPECT_EQ(refusal(with_layers(R"({"attend": "full", "rope": ")" + rope + R"(x"})")),
            "layers[0].rope has 1048577 bytes; allowed: up to 1048576");
  EXPECT_EQ(
      refusal(with_layers(R"({"attend": "full", "count": 65536, "rope": ")" + rope + R"("})")),
      "layers[0]: the table holds more than 16777216 numbers");
}

TEST(LayerTableJson, WritesOnlyWhatItReads) {
  LayerTable table = parse_layers("full", 2, true);
  table.layers[1].rope = "\xff";
  EXPECT_EQ(message_of([&] { to_json(table); }),
            "a file name or rope is not UTF-8; allowed in JSON: UTF-8");
  table.layers[1] = Layer{};
  EXPECT_EQ(message_of([&] { to_json(table); }),
            "layer 1: no topology; allowed: at least one term");
}

TEST(LayerTableJson, SpellsEveryMixerAndTrained) {
  EXPECT_EQ(to_string(Mixer::kSoftmax), "softmax");
  EXPECT_EQ(to_string(Mixer::kMla), "mla");
  EXPECT_EQ(to_string(Mixer::kLinear), "linear");
  EXPECT_EQ(to_string(Mixer::kSsm), "ssm");
  EXPECT_EQ(to_string(Mixer::kNone), "none");
  EXPECT_EQ(to_string(Trained::kTrue), "true");
  EXPECT_EQ(to_string(Trained::kFalse), "false");
  EXPECT_EQ(to_string(Trained::kUnknown), "unknown");
  EXPECT_EQ(message_of([] { to_string(static_cast<Mixer>(9)); }),
            "mixer is 9; allowed: softmax, mla, linear, ssm, none");
  EXPECT_EQ(message_of([] { to_string(static_cast<Trained>(9)); }),
            "trained is 9; allowed: true, false, unknown");
}

}  // namespace
}  // namespace lacuna
