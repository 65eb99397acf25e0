#include "lacuna/kv_dtype.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "cost/kv_bytes.h"
#include "lacuna/error.h"

namespace lacuna {
namespace {

// 656 bytes hold 512 fp8 elements of the latent, their 4 f32 scales, and 64 rope elements in bf16.
constexpr const char* kFp8DsMla = "fp8_ds_mla";
constexpr std::int64_t kFp8DsMlaLatent = 512;
constexpr std::int64_t kFp8DsMlaRope = 64;

struct Row {
  const char* name;
  std::int64_t group;
  std::int64_t group_bytes;
  std::int64_t vector_bytes;
};

// Engines' own layouts (GGML's block types with their scales), then Lacuna's int8 and int4.
constexpr Row kRows[] = {
    {"f32", 1, 4, 0},       {"f16", 1, 2, 0},
    {"bf16", 1, 2, 0},      {"fp8", 1, 1, 0},
    {"q8_0", 32, 34, 0},    {"q5_1", 32, 24, 0},
    {"q5_0", 32, 22, 0},    {"q4_1", 32, 20, 0},
    {"q4_0", 32, 18, 0},    {"iq4_nl", 32, 18, 0},
    {"mxfp4", 32, 17, 0},   {"nvfp4", 16, 9, 0},  // 16 halves of a byte and one fp8 scale
    {"int8", 1, 1, 2},                            // one f16 scale a vector
    {"int4", 32, 18, 0},                          // one f16 scale a group
    {kFp8DsMla, 0, 656, 0},
};

// Every element has its own bytes and nothing stands beside it: `b` bytes an element.
bool is_plain(const KvDtype& dtype) { return dtype.group == 1 && dtype.vector_bytes == 0; }

void require_group(const KvDtype& dtype, const Equation& dim) {
  if (dtype.group < 1 || dim.value() % dtype.group == 0) return;
  throw Error(fmt::format("head_dim is {} with KV dtype {}; allowed: multiples of its group of {}",
                          to_string(dim.value()), dtype.name, dtype.group));
}

}  // namespace

KvDtype kv_dtype(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return {row.name, row.group, row.group_bytes, row.vector_bytes};
  }
  throw Error(fmt::format("KV dtype is '{}'; allowed: {}{}", name,
                          fmt::join(kv_dtype_names(), ", "), did_you_mean(name, kv_dtype_names())));
}

std::vector<std::string> kv_dtype_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

Equation vector_bytes(const KvDtype& dtype, const std::string& dim_symbol, std::int64_t dim) {
  return vector_bytes(dtype, Equation(dim_symbol, dim));
}

Equation vector_bytes(const KvDtype& dtype, const Equation& dim) {
  if (dtype.group == 0) {
    throw Error(
        fmt::format("KV dtype {} stores one latent of {}+{} elements; allowed: only in mla layers",
                    dtype.name, kFp8DsMlaLatent, kFp8DsMlaRope));
  }
  if (is_plain(dtype)) return dim * Equation("b", dtype.group_bytes);
  require_group(dtype, dim);
  return exact_div(Equation(dtype.group_bytes) * dim, dtype.group) + Equation(dtype.vector_bytes);
}

Equation kv_head_bytes(const LayerShape& shape, Mixer mixer, const KvDtype& dtype) {
  if (mixer == Mixer::kMla) {
    if (!shape.latent) throw Error("an mla layer has no latent sizes; allowed: with its latent");
    const LatentShape& latent = *shape.latent;
    if (dtype.group == 0) {
      if (latent.kv_lora_rank == kFp8DsMlaLatent && latent.qk_rope_head_dim == kFp8DsMlaRope) {
        return Equation(dtype.group_bytes);
      }
      throw Error(fmt::format("the latent is {}+{} elements with KV dtype {}; allowed: {}+{}",
                              latent.kv_lora_rank, latent.qk_rope_head_dim, dtype.name,
                              kFp8DsMlaLatent, kFp8DsMlaRope));
    }
    return vector_bytes(
        dtype, Equation("c", latent.kv_lora_rank) + Equation("d_r", latent.qk_rope_head_dim));
  }
  if (mixer != Mixer::kSoftmax) return 0;
  const Equation key("d_h", shape.head_dim);
  const Equation value("d_v", shape.v_head_dim);
  if (is_plain(dtype)) return (key + value) * Equation("b", dtype.group_bytes);
  return vector_bytes(dtype, key) + vector_bytes(dtype, value);
}

Equation kv_bytes_per_token(const LayerShape& shape, Mixer mixer, const KvDtype& dtype) {
  if (mixer == Mixer::kMla) return kv_head_bytes(shape, mixer, dtype);
  if (mixer != Mixer::kSoftmax) return 0;
  return Equation("H_kv", shape.num_kv_heads) * kv_head_bytes(shape, mixer, dtype);
}

}  // namespace lacuna
