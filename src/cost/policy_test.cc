#include "lacuna/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cost/test_models.h"
#include "lacuna/error.h"
#include "lacuna/topology.h"

namespace lacuna {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Model gemma3_27b() { return model("window(1024)*5, full", 62, heads(32, 16, 128)); }
Model gemma3_4b() { return model("window(1024)*5, full", 34, heads(8, 4, 256)); }
Model gemma3_1b() { return model("window(512)*5, full", 26, heads(4, 1, 256)); }
Model gpt_oss_20b() { return model("window(128), full", 24, heads(64, 8, 64)); }
Model gpt_oss_120b() { return model("window(128), full", 36, heads(64, 8, 64)); }

Model gemma4_31b() {
  Model made = model("window(1024)*5, full", 60, heads(32, 16, 256));
  for (std::size_t idx = 5; idx < made.shape.layers.size(); idx += 6) {
    made.shape.layers[idx] = heads(32, 4, 512);
  }
  return made;
}

// --- names and text ---

TEST(PolicyText, DefaultsAreFilledIn) {
  EXPECT_EQ(to_text(parse_policy("paged")), "paged(P=64, in_flight=1, rollback=0)");
  EXPECT_EQ(to_text(parse_policy("uniform")), "uniform(P=16)");
  EXPECT_EQ(to_text(parse_policy("pool")), "pool(P=16, batched=8192)");
  EXPECT_EQ(to_text(parse_policy("iswa")), "iswa(ubatch=512, pad=256, seqs=1, unified=1)");
  EXPECT_EQ(to_text(parse_policy("exact")), "exact");
}

TEST(PolicyText, ReadsWhatItWrites) {
  for (const std::string& name : policy_names()) {
    const Policy policy = parse_policy(name);
    EXPECT_EQ(parse_policy(to_text(policy)), policy) << name;
  }
  EXPECT_EQ(parse_policy(" iswa ( seqs = 4 ,unified=false)").params.at("unified"), 0);
  EXPECT_EQ(parse_policy("iswa(unified=true)").params.at("unified"), 1);
  EXPECT_EQ(parse_policy("full()"), parse_policy("full"));
}

std::string error_of(const std::string& text) {
  try {
    parse_policy(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PolicyText, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("pagd"),
            "policy is 'pagd'; allowed: exact, paged, full, uniform, pool, iswa, hf_dynamic, "
            "hf_static, rolling; did you mean 'paged'?");
  EXPECT_EQ(error_of("pool(bached=3)"),
            "parameter of policy pool is 'bached'; allowed: P, batched; did you mean 'batched'?");
  EXPECT_EQ(error_of("full(P=3)"), "parameter of policy full is 'P'; allowed: none");
  EXPECT_NE(error_of("paged(P=0)").find("P of policy paged"), std::string::npos);
  EXPECT_NE(error_of("paged(P=sixty)").find("sixty"), std::string::npos);
  EXPECT_EQ(error_of("paged(P=1, P=2)"), "P of policy paged is given twice; allowed: once");
  EXPECT_EQ(error_of("paged(P=1"), "policy is 'paged(P=1'; allowed: a ')' at its end");
  EXPECT_EQ(error_of("pool(16)"), "policy pool is given '16'; allowed: name=value with P, batched");
}

TEST(PolicyText, HandMadePoliciesAreChecked) {
  const Model one = model("full", 1, heads(1, 1, 64));
  EXPECT_THROW(held({"paged", {}}, one.table, one.shape, {1, 1, kv_dtype("bf16")}), Error);
  EXPECT_THROW(held({"uniform", {{"P", 0}}}, one.table, one.shape, {1, 1, kv_dtype("bf16")}),
               Error);
  EXPECT_THROW(held(parse_policy("full"), one.table, one.shape, {-1, 0, kv_dtype("bf16")}), Error);
  EXPECT_THROW(held(parse_policy("full"), one.table, one.shape, {8, 7, kv_dtype("bf16")}), Error);
}

// --- numbers of real engines ---

TEST(Exact, Gemma3At131072HoldsItsWindowsAndItsFullLayers) {
  EXPECT_EQ(bytes_of("exact", gemma3_27b(), 131072),
            std::int64_t{10} * 8192 * 131072 + std::int64_t{52} * 8192 * 1024);
  EXPECT_NEAR(static_cast<double>(bytes_of("exact", gemma3_27b(), 131072)) / kGiB, 10.41, 0.005);
}

TEST(Exact, EvictionSavesHalfOfGptOss) {
  // O-63: 32 requests of 8192 tokens.
  EXPECT_EQ(32 * bytes_of("full", gpt_oss_20b(), 8192), 12 * 1024 * kMiB);
  EXPECT_NEAR(32.0 * static_cast<double>(bytes_of("exact", gpt_oss_20b(), 8192)) / kGiB, 6.09,
              0.005);
  EXPECT_EQ(bytes_of("full", gemma3_1b(), 32768, "f16"), 832 * kMiB);
  EXPECT_EQ(bytes_of("exact", gemma3_1b(), 32768, "f16"), 139 * kMiB);
}

TEST(Uniform, BytesATokenOfGptOssWithWindowsOff) {
  EXPECT_EQ(bytes_of("uniform(P=1)", gpt_oss_20b(), 1), 49152);
  EXPECT_EQ(bytes_of("uniform(P=1)", gpt_oss_120b(), 1), 73728);
  // 5.38 GiB hold 78,384 tokens at the slope of 120b: pages × page size, 4899 pages of 16.
  EXPECT_NEAR(static_cast<double>(bytes_of("uniform", gpt_oss_120b(), 78384)) / kGiB, 5.38, 0.005);
}

TEST(Uniform, PadsEveryPageToTheLargestLayersPage) {
  const Held held = held_of("uniform", gemma4_31b(), 26800);
  EXPECT_EQ(held.bytes.value(), Int128{26800} * 983040);
  EXPECT_NEAR(static_cast<double>(held.bytes.value()) / kGiB, 24.54, 0.005);
  EXPECT_EQ(held.layers[5].bytes, held.layers[0].bytes);
  ASSERT_EQ(held.notes.size(), 1U);
  EXPECT_EQ(held.notes[0],
            "pages of layers 5, 11, 17, 23, 29, 35, 41, 47, 53, 59 are padded to the largest page, "
            "262144 bytes");
}

TEST(Pool, WorkedExampleOf62Layers) {
  const Held held = held_of("pool", gemma3_27b(), 131072);
  EXPECT_EQ(held.bytes.value(), Int128{15275130880});
  EXPECT_EQ(held.chosen.at("group_size"), 10);
  EXPECT_EQ(held.chosen.at("num_groups"), 7);
  EXPECT_EQ(held.chosen.at("padding_layers"), 8);
  EXPECT_EQ(held.layers[0].tokens, 577 * 16);
  EXPECT_EQ(held.padding_bytes, std::int64_t{8} * 577 * 16 * 8192);
  EXPECT_EQ(held.notes[0],
            "window(1024): 52 layers of 8192 bytes a token in 6 group(s) of 10, 8 of them padding "
            "that is charged");
}

TEST(Pool, ReservesForTheLongestLengthWhateverIsHeldNow) {
  EXPECT_EQ(bytes_of("pool", gemma3_27b(), 5, "bf16", 131072), 15275130880);
}

TEST(Pool, EvenKindsMakeGroupsOfTheLargerCount) {
  // 10 full and 12 windows: 12 < 1.5 · 10, so groups of 12 with two empty full layers.
  Model made = model("full", 22, heads(1, 1, 64));
  for (std::size_t idx = 10; idx < 22; ++idx) {
    made.table.layers[idx].attend = parse_attend("window(64)", true);
  }
  const Held held = held_of("pool", made, 4096);
  EXPECT_EQ(held.chosen.at("group_size"), 12);
  EXPECT_EQ(held.chosen.at("padding_layers"), 2);
  // 15 windows are 1.5 times: the smaller count rules.
  Model wider = model("full", 25, heads(1, 1, 64));
  for (std::size_t idx = 10; idx < 25; ++idx) {
    wider.table.layers[idx].attend = parse_attend("window(64)", true);
  }
  EXPECT_EQ(held_of("pool", wider, 4096).chosen.at("group_size"), 10);
}

TEST(Pool, SmallerPagesTakeMoreTokensWhereThatMakesThemEqual) {
  const Held held = held_of("pool", gemma4_31b(), 4096);
  EXPECT_EQ(held.chosen.at("group_size"), 10);
  EXPECT_EQ(held.chosen.at("page_bytes"), 16 * 16384);
  EXPECT_EQ(held.layers[5].tokens, 4096);
  EXPECT_EQ(held.layers[5].bytes, std::int64_t{128} * 16 * 16384);  // 128 pages of 32 tokens
  EXPECT_EQ(held.notes[0],
            "pages of layers 5, 11, 17, 23, 29, 35, 41, 47, 53, 59 take 32 tokens, for equal pages "
            "of 262144 bytes");
}

TEST(Pool, PagesThatCannotBeMadeEqualArePadded) {
  Model made = model("full", 2, heads(3, 3, 64));
  made.shape.layers[1] = heads(2, 2, 64);
  const Held held = held_of("pool", made, 32);
  EXPECT_EQ(held.layers[1].bytes, held.layers[0].bytes);
  EXPECT_EQ(held.notes[0], "pages of layers 1 are padded from 8192 to 12288 bytes");
}

TEST(Pool, ChunkedLayersNeedNoExtraPage) {
  const Held held = held_of("pool(P=16, batched=64)", model("chunk(100)", 3, heads(1, 1, 64)), 999);
  EXPECT_EQ(held.layers[0].tokens, 16 * 11);  // ceil(164/16), no + 1
}

TEST(Iswa, CellsOfSlotsThatAreNotUnified) {
  const Model gemma3_270m = model("window(512)*5, full", 18, heads(4, 1, 256));
  EXPECT_EQ(bytes_of("iswa(seqs=3, unified=0)", gemma3_270m, 1024, "f16"), 27 * kMiB);
  EXPECT_EQ(bytes_of("iswa(seqs=4, unified=0)", gemma3_270m, 1024, "f16"), 18 * kMiB);
}

TEST(Iswa, UnifiedSequencesShareOneWindowCache) {
  const Model made = model("window(512), full", 2, heads(1, 1, 64));
  const Held apart = held_of("iswa(seqs=3, unified=0)", made, 12288);
  EXPECT_EQ(apart.layers[0].tokens, 3 * 1024);  // 3 · pad(512 + 512)
  EXPECT_EQ(apart.layers[1].tokens, 3 * 4096);
  const Held unified = held_of("iswa(seqs=3)", made, 12288);
  EXPECT_EQ(unified.layers[0].tokens, 2048);  // pad(3 · 512 + 512)
  EXPECT_EQ(unified.layers[1].tokens, 12288);
  EXPECT_EQ(held_of("iswa(seqs=3)", made, 12289).layers[1].tokens, 12288 + 256);
}

TEST(Iswa, Gemma3OfRealLogs) {
  const Held small = held_of("iswa", gemma3_4b(), 131072, "f16");
  EXPECT_EQ(small.bytes.value(), Int128{(2560 + 174) * kMiB});
  EXPECT_EQ(small.chosen.at("window_cells"), 1536);
  std::int64_t window_bytes = 0;
  for (const LayerHeld& layer : small.layers) {
    if (layer.tokens == 1536) window_bytes += layer.bytes;
  }
  EXPECT_EQ(window_bytes, 174 * kMiB);
  EXPECT_NEAR(static_cast<double>(bytes_of("iswa", gemma3_27b(), 131072)) / kGiB, 10.61, 0.005);
}

TEST(Iswa, RefusesMoreSequencesThanItHasCells) {
  try {
    held_of("iswa(seqs=2000, unified=0)", gemma3_1b(), 1024);
    FAIL() << "a context without a cell a sequence was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "1024 cells are too few for 2000 streams under policy iswa; allowed: at least one "
                 "cell a sequence");
  }
}

TEST(Iswa, RefusesTwoWindowSizesByLayer) {
  try {
    held_of("iswa", model("window(8), window(16)", 2, heads(1, 1, 64)), 64);
    FAIL() << "two window sizes were accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "layers 0 and 1 are window(8) and window(16) under policy iswa; allowed: one "
                 "window size for all");
  }
}

TEST(HfDynamic, KeepsOneLessThanTheWindowBetweenSteps) {
  const Model made = model("window(8), full", 2, heads(1, 1, 64));
  const Held held = held_of("hf_dynamic", made, 100);
  EXPECT_EQ(held.layers[0].tokens, 7);
  EXPECT_EQ(held.layers[1].tokens, 100);
  EXPECT_EQ(held_of("hf_dynamic", made, 5).layers[0].tokens, 5);
}

TEST(HfDynamic, SaysThatAWindowOfOneKeyIsKeptDifferently) {
  const Held held = held_of("hf_dynamic", model("window(1)", 1, heads(1, 1, 64)), 100);
  EXPECT_EQ(held.layers[0].tokens, 0);
  ASSERT_EQ(held.notes.size(), 1U);
}

TEST(HfStatic, ReservesTheWindowOrTheLongestLength) {
  const Model made = model("window(8), full", 2, heads(1, 1, 64));
  EXPECT_EQ(held_of("hf_static", made, 3, "bf16", 100).layers[0].tokens, 8);
  EXPECT_EQ(held_of("hf_static", made, 3, "bf16", 100).layers[1].tokens, 100);
  EXPECT_EQ(held_of("hf_static", made, 3, "bf16", 6).layers[0].tokens, 6);
}

TEST(Rolling, HoldsTheWholeRingFromTheFirstToken) {
  const Model made = model("window(8), full", 2, heads(1, 1, 64));
  EXPECT_EQ(held_of("rolling", made, 3).layers[0].tokens, 8);
  EXPECT_EQ(held_of("rolling", made, 3).layers[1].tokens, 3);
  EXPECT_EQ(held_of("rolling", made, 300).layers[0].tokens, 8);
}

// --- Lacuna's own cache and what is needed ---

TEST(Paged, HoldsWholePagesOfTheWindow) {
  const Model made = model("window(100)", 1, heads(2, 2, 64));
  // Token 163 is the last: the window starts at 64, a page's begin.
  EXPECT_EQ(held_of("paged", made, 164).layers[0].tokens, 128);
  EXPECT_EQ(held_of("paged", made, 163).layers[0].tokens, 192);
  EXPECT_EQ(held_of("paged(in_flight=5, rollback=3)", made, 171).layers[0].tokens, 128);
  EXPECT_EQ(held_of("paged(in_flight=5, rollback=3)", made, 170).layers[0].tokens, 192);
}

TEST(Paged, SinksAndGlobalsAreUnitedWithTheWindow) {
  EXPECT_EQ(
      held_of("exact", model("window(4096)+sink(4)", 1, heads(1, 1, 64)), 4098).layers[0].tokens,
      4098);
  EXPECT_EQ(
      held_of("paged", model("window(64)+sink(4)", 1, heads(1, 1, 64)), 6400).layers[0].tokens,
      128);
  EXPECT_EQ(
      held_of("paged", model("window(64)+global(700)", 1, heads(1, 1, 64)), 6400).layers[0].tokens,
      128);
}

TEST(Paged, HeadsOfALayerHaveTablesOfTheirOwn) {
  const Model made = model("heads(0-1: full; 2-7: window(64))", 1, heads(8, 4, 64));
  const Held held = held_of("paged", made, 6400);
  const std::int64_t head_bytes = 2 * 64 * 2;
  EXPECT_EQ(held.bytes.value(), Int128{(6400 + 3 * 64) * head_bytes});
  EXPECT_EQ(held.layers[0].tokens, 6400);
}

TEST(Paged, PadsWidthsAsItsPagesDo) {
  Model made = model("full, window(8)", 2, heads(1, 1, 100));
  made.shape.layers[1].head_dim = 35;
  made.shape.layers[1].v_head_dim = 72;
  const auto a_token = [&](const std::string& dtype) {
    return bytes_of("paged", made, 64, dtype) / 64;
  };
  EXPECT_EQ(a_token("f32"), (100 + 112 + 35 + 80) * 4);
  EXPECT_EQ(a_token("bf16"), (100 + 112 + 36 + 80) * 2);
  EXPECT_EQ(a_token("int8"), 100 + 112 + 36 + 80 + 4 * 2);
  EXPECT_EQ(a_token("fp8"), 100 + 100 + 35 + 72);
  EXPECT_EQ(bytes_of("full", made, 64), (100 + 100 + 35 + 72) * 2 * 64);
  EXPECT_EQ(held_of("paged", made, 64).notes,
            std::vector<std::string>{
                "pages of layers 0-1 pad keys to whole lanes and values to 16 dims"});
  EXPECT_EQ(held_of("full", made, 64).notes, std::vector<std::string>{});
}

TEST(Paged, EmptyAndOneToken) {
  const Model made = gemma3_1b();
  for (const std::string& name : policy_names()) {
    if (name == "rolling" || name == "pool") continue;  // reserved before the first token
    EXPECT_EQ(bytes_of(name, made, 0), 0) << name;
  }
  EXPECT_EQ(bytes_of("paged", made, 1), 26 * 64 * 1024);
}

TEST(Exact, SharedLayersStoreNothingAndTheirSourceIsKeptForAll) {
  Model made = model("window(64)", 4, heads(2, 1, 64));
  made.table.layers[2].attend = parse_attend("full", true);
  made.table.layers[2].kv_from = 1;
  made.table.layers[3].kv_from = 0;
  const Held held = held_of("exact", made, 1000);
  EXPECT_EQ(held.layers[0].tokens, 64);
  EXPECT_EQ(held.layers[1].tokens, 1000);
  EXPECT_EQ(held.layers[2].bytes + held.layers[3].bytes, 0);
  EXPECT_EQ(held.notes[0], "layers 2-3 store no KV: they read that of layers 0-1");
  EXPECT_EQ(held_of("hf_static", made, 1000).layers[1].tokens, 1000);
}

TEST(Exact, SharedHeadsMeetTheHeadTheyRead) {
  Model made = model("heads(0: window(8); 1: window(16))", 2, heads(2, 2, 64));
  made.table.layers[1].attend = parse_attend("heads(0: window(32); 1: window(4))", true);
  made.table.layers[1].kv_from = 0;
  EXPECT_EQ(bytes_of("exact", made, 1000), (32 + 16) * 2 * 64 * 2);
}

TEST(Exact, LatentsAreOneForAllHeads) {
  Model made = model("full", 61, heads(128, 128, 192));
  for (std::size_t idx = 0; idx < 61; ++idx) {
    made.table.layers[idx].mixer = Mixer::kMla;
    made.shape.layers[idx].latent = LatentShape{512, 1536, 128, 64, 128};
  }
  EXPECT_EQ(bytes_of("exact", made, 1), 70272);
  EXPECT_EQ(bytes_of("uniform(P=1)", made, 1), 70272);
}

TEST(Exact, FiniteStatesAndEncodersHoldNoKv) {
  Model made = model("full", 4, heads(2, 1, 64));
  made.table.layers[0].mixer = Mixer::kLinear;
  made.table.layers[0].attend = {};
  made.shape.layers[0].state = StateShape{1, 1, 8, 8, 4, 16};
  const Held held = held_of("pool", made, 64);
  EXPECT_EQ(held.layers[0].bytes, 0);
  EXPECT_EQ(held.notes[0], "layers 0 keep a finite state, counted as state_held_bytes");
  made.shape.has_cache = false;
  EXPECT_EQ(bytes_of("pool", made, 64), 0);
  Model both_ways{parse_layers("window(2,2)", 2, false), uniform_shape(2, heads(1, 1, 64))};
  EXPECT_EQ(bytes_of("exact", both_ways, 64), 0);
}

TEST(Engines, WhatTheyDoNotKnowIsHeldInFull) {
  const Model made = model("window(64)+sink(4), window(64)", 4, heads(1, 1, 64));
  for (const std::string name : {"pool", "hf_static", "iswa", "rolling", "hf_dynamic"}) {
    const Held held = held_of(name, made, 1024);
    EXPECT_EQ(held.layers[0].tokens, 1024) << name;
    EXPECT_EQ(std::ranges::count(held.notes,
                                 "the modelled engine has no window(64)+sink(4): layers 0, 2 are "
                                 "held in full"),
              1)
        << name;
  }
}

TEST(HeldEquation, PrintsTheFormulaWithItsNumbers) {
  EXPECT_EQ(held_of("pool", gemma3_27b(), 131072).bytes.text("kv_held_bytes"),
            "kv_held_bytes = N_1·(⌈min(W - 1 + batched, M)/P⌉ + 1)·P·c + N_2·⌈M/P⌉·P·c"
            " = 60·(⌈min(1024 - 1 + 8192, 131072)/16⌉ + 1)·16·8192 + 10·⌈131072/16⌉·16·8192"
            " = 15275130880");
  EXPECT_EQ(held_of("exact", gemma3_1b(), 1000).bytes.text("kv_held_bytes"),
            "kv_held_bytes = N_1·S(window(512))·c + N_2·S(full)·c"
            " = 22·512·1024 + 4·1000·1024 = 15630336");
}

}  // namespace
}  // namespace lacuna
