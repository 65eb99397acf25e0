#include "lacuna/kv_dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "lacuna/error.h"

namespace lacuna {
namespace {

template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::int64_t bytes(const char* name, std::int64_t dim) {
  return static_cast<std::int64_t>(vector_bytes(kv_dtype(name), "d", dim).value());
}

LayerShape heads(int num_kv_heads, std::int64_t head_dim, std::int64_t v_head_dim) {
  LayerShape shape;
  shape.num_q_heads = num_kv_heads;
  shape.num_kv_heads = num_kv_heads;
  shape.head_dim = head_dim;
  shape.v_head_dim = v_head_dim;
  return shape;
}

LayerShape latent(std::int64_t rank, std::int64_t rope) {
  LayerShape shape;
  shape.latent = LatentShape{rank, 0, 128, rope, 128};
  return shape;
}

TEST(KvDtype, TakesTheBytesOfItsGroupsAndScales) {
  // Bytes an element times 64, in the specification's own fractions.
  EXPECT_EQ(bytes("f32", 64), 64 * 4);
  EXPECT_EQ(bytes("f16", 64), 64 * 2);
  EXPECT_EQ(bytes("bf16", 64), 64 * 2);
  EXPECT_EQ(bytes("fp8", 64), 64);
  EXPECT_EQ(bytes("q8_0", 64), 64 * 34 / 32);
  EXPECT_EQ(bytes("q5_1", 64), 64 * 24 / 32);
  EXPECT_EQ(bytes("q5_0", 64), 64 * 22 / 32);
  EXPECT_EQ(bytes("q4_1", 64), 64 * 20 / 32);
  EXPECT_EQ(bytes("q4_0", 64), 64 * 18 / 32);
  EXPECT_EQ(bytes("iq4_nl", 64), 64 * 18 / 32);
  EXPECT_EQ(bytes("mxfp4", 64), 64 * 17 / 32);
  EXPECT_EQ(bytes("nvfp4", 64), 64 / 2 + 64 / 16);
  EXPECT_EQ(bytes("int8", 64), 64 + 2);
  EXPECT_EQ(bytes("int4", 64), 2 * (32 / 2 + 2));
}

TEST(KvDtype, ListsEveryNameItReads) {
  EXPECT_EQ(kv_dtype_names().size(), 15u);
  for (const std::string& name : kv_dtype_names()) EXPECT_EQ(kv_dtype(name).name, name);
}

TEST(KvDtype, RefusesAnotherNameWithANearMiss) {
  EXPECT_EQ(message_of([] { kv_dtype("q8_1"); }),
            "KV dtype is 'q8_1'; allowed: f32, f16, bf16, fp8, q8_0, q5_1, q5_0, q4_1, q4_0, "
            "iq4_nl, mxfp4, nvfp4, int8, int4, fp8_ds_mla; did you mean 'q8_0'?");
}

TEST(KvDtype, RefusesAHeadThatItsGroupDoesNotDivide) {
  EXPECT_EQ(message_of([] { bytes("int4", 80); }),
            "head_dim is 80 with KV dtype int4; allowed: multiples of its group of 32");
  EXPECT_EQ(message_of([] { bytes("nvfp4", 72); }),
            "head_dim is 72 with KV dtype nvfp4; allowed: multiples of its group of 16");
  EXPECT_EQ(bytes("int8", 80), 82);
}

TEST(KvBytesPerToken, AreThoseOfAllKvHeads) {
  const Equation equation =
      kv_bytes_per_token(heads(8, 128, 128), Mixer::kSoftmax, kv_dtype("bf16"));
  EXPECT_EQ(equation.text("c"), "c = H_kv·(d_h + d_v)·b = 8·(128 + 128)·2 = 4096");
  EXPECT_EQ(kv_bytes_per_token(heads(4, 192, 128), Mixer::kSoftmax, kv_dtype("bf16")).value(),
            4 * (192 + 128) * 2);
  EXPECT_EQ(kv_bytes_per_token(heads(4, 192, 128), Mixer::kSoftmax, kv_dtype("int8")).text("c"),
            "c = H_kv·(d_h + 2 + d_v + 2) = 4·(192 + 2 + 128 + 2) = 1296");
  EXPECT_EQ(kv_bytes_per_token(heads(1, 64, 64), Mixer::kSoftmax, kv_dtype("q8_0")).text("c"),
            "c = H_kv·(34·d_h/32 + 34·d_v/32) = 1·(34·64/32 + 34·64/32) = 136");
}

TEST(KvBytesPerToken, AreOneLatentWhateverTheHeads) {
  LayerShape shape = latent(512, 64);
  shape.num_q_heads = shape.num_kv_heads = 128;
  EXPECT_EQ(kv_bytes_per_token(shape, Mixer::kMla, kv_dtype("bf16")).text("c"),
            "c = (c + d_r)·b = (512 + 64)·2 = 1152");
  EXPECT_EQ(kv_bytes_per_token(shape, Mixer::kMla, kv_dtype("q8_0")).value(), 576 * 34 / 32);
  EXPECT_EQ(kv_bytes_per_token(shape, Mixer::kMla, kv_dtype("fp8_ds_mla")).value(), 656);
}

TEST(KvBytesPerToken, AreNoneWhereAStateIsKept) {
  for (const Mixer mixer : {Mixer::kLinear, Mixer::kSsm, Mixer::kNone}) {
    EXPECT_EQ(kv_bytes_per_token(heads(8, 128, 128), mixer, kv_dtype("bf16")).value(), 0);
  }
}

TEST(KvBytesPerToken, RefusesTheLatentsOwnDtypeElsewhere) {
  EXPECT_EQ(
      message_of(
          [] { kv_bytes_per_token(heads(8, 128, 128), Mixer::kSoftmax, kv_dtype("fp8_ds_mla")); }),
      "KV dtype fp8_ds_mla stores one latent of 512+64 elements; allowed: only in mla layers");
  EXPECT_EQ(
      message_of([] { kv_bytes_per_token(latent(256, 64), Mixer::kMla, kv_dtype("fp8_ds_mla")); }),
      "the latent is 256+64 elements with KV dtype fp8_ds_mla; allowed: 512+64");
  EXPECT_EQ(
      message_of([] { kv_bytes_per_token(heads(8, 128, 128), Mixer::kMla, kv_dtype("bf16")); }),
      "an mla layer has no latent sizes; allowed: with its latent");
}

}  // namespace
}  // namespace lacuna
