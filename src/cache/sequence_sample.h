#pragma once

// A small sequence that fills every field of a sequence file: the stored file in tests/corpus,
// which the loader's fuzzer starts from, and the example of docs/kv_layout.md.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lacuna/kv_cache.h"

namespace lacuna::sample {

inline constexpr std::string_view kIdentity = "sample";
inline constexpr const char* kFile = "tests/corpus/sequence_file/sample";
inline constexpr std::int64_t kLength = 37;

// Two heads in tables of their own, one layer of other sizes, and one that reads it.
inline CacheShape shape() {
  CacheShape shape;
  shape.layers = {{2, 6, 16, {{1}, {0}}, {}}, {1, 16, 32, {}, {}}, {1, 16, 32, {}, 1}};
  shape.page_size = 16;
  shape.dtype = DType::kBf16;
  shape.summaries = true;
  return shape;
}

inline std::vector<std::int32_t> tokens() {
  std::vector<std::int32_t> all;
  for (std::int32_t token = 0; token < kLength; ++token) all.push_back(1000 - 7 * token);
  return all;
}

// Eighths below 8, which every dtype holds exactly; [kLength, num_heads, dims].
inline std::vector<float> numbers(std::int64_t num_heads, std::int64_t dims, std::int64_t kind) {
  std::vector<float> all;
  for (std::int64_t idx = 0; idx < kLength * num_heads * dims; ++idx) {
    all.push_back(static_cast<float>((idx * 29 + kind) % 128 - 64) / 8);
  }
  return all;
}

// The sequence in a cache of shape(): a sink and a window, a window, and all keys.
inline SequenceId make(KvCache& cache) {
  const SequenceId id = cache.create();
  const StepRows rows = {id, kLength};
  KvCache::Step step = *cache.begin({{rows}});
  for (int layer = 0; layer < 2; ++layer) {
    const CacheLayer& sizes = cache.shape().layers[static_cast<std::size_t>(layer)];
    const auto k = numbers(sizes.num_kv_heads, sizes.head_dim, layer);
    const auto v = numbers(sizes.num_kv_heads, sizes.v_head_dim, layer + 2);
    step.append(
        layer, tensor_view(k.data(), DType::kF32, {kLength, sizes.num_kv_heads, sizes.head_dim}),
        tensor_view(v.data(), DType::kF32, {kLength, sizes.num_kv_heads, sizes.v_head_dim}));
  }
  step.commit();
  const std::vector<Ranges> kept = {Ranges(std::vector<Range>{{0, 4}, {33, kLength}}),
                                    Ranges(std::vector<Range>{{20, kLength}}),
                                    Ranges(std::vector<Range>{{0, kLength}})};
  cache.retain(id, kept);
  return id;
}

}  // namespace lacuna::sample
