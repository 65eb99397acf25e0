#include "bench/decode_check.h"

#include <cstring>

#include "lacuna/error.h"
#include "lacuna/kv_pack.h"

namespace lacuna::bench {
namespace {

Tensor make_tensor(DType dtype, std::array<std::int64_t, 3> shape) {
  return {dtype, shape, AlignedBytes(shape[0] * shape[1] * shape[2] * size_bytes(dtype))};
}

// As the checked problem holds numbers: in the stored dtype, or what quantized ones stand for.
DType checked_dtype(DType kv_dtype) { return is_quantized(kv_dtype) ? DType::kF32 : kv_dtype; }

void put(Tensor& tensor, std::int64_t idx, float value) {
  put_element(tensor.bytes.data(), tensor.dtype, idx, value);
}

// One head of one page.
PackedHead first_head(const KvCache& cache, int layer, PageId page, std::size_t table) {
  const CacheLayer& sizes = cache.shape().layers[static_cast<std::size_t>(layer)];
  const HeadLayout layout = head_layout(cache.shape(), sizes);
  std::int64_t slot = 0;
  while (cache.tables()[table].kv_heads[static_cast<std::size_t>(slot)] != 0) ++slot;
  auto* const base = const_cast<std::byte*>(cache.pool().bytes(page)) + slot * layout.size_bytes;
  return {base,
          base + layout.v,
          base + layout.k_scales,
          base + layout.v_scales,
          cache.shape().dtype,
          sizes.head_dim,
          sizes.v_head_dim};
}

// The table of the layer's first KV head.
std::size_t first_table(const KvCache& cache, int layer) {
  const auto& from = cache.shape().layers[static_cast<std::size_t>(layer)].kv_from;
  for (std::size_t table = 0; table < cache.tables().size(); ++table) {
    const CacheTable& kind = cache.tables()[table];
    if (kind.layer_idx != from.value_or(layer)) continue;
    for (const int head : kind.kv_heads) {
      if (head == 0) return table;
    }
  }
  throw Error("layer " + std::to_string(layer) + " has no table");
}

// K and V of the first KV head as held; positions whose page is not are never looked at.
void read_pages(Inputs& inputs, const KvCache& cache, SequenceId sequence, int layer) {
  const std::int64_t page_size = cache.shape().page_size;
  const std::size_t table = first_table(cache, layer);
  const std::span<const PageId> pages = cache.block_table(sequence, table);
  std::vector<float> key(static_cast<std::size_t>(inputs.k.shape[2]));
  std::vector<float> value(static_cast<std::size_t>(inputs.v.shape[2]));
  for (std::int64_t position = 0; position < inputs.k.shape[0]; ++position) {
    const PageId page = pages[static_cast<std::size_t>(position / page_size)];
    if (page == KvView::kNullPage) continue;
    const PackedHead head = first_head(cache, layer, page, table);
    read_k(key, head, position % page_size);
    read_v(value, head, position % page_size);
    for (std::int64_t dim = 0; dim < std::ssize(key); ++dim) {
      put(inputs.k, position * std::ssize(key) + dim, key[static_cast<std::size_t>(dim)]);
    }
    for (std::int64_t dim = 0; dim < std::ssize(value); ++dim) {
      put(inputs.v, position * std::ssize(value) + dim, value[static_cast<std::size_t>(dim)]);
    }
  }
}

}  // namespace

SpotCheck check_decode(const DecodeAnswer& answer, const KvCache& cache, SequenceId sequence,
                       std::int64_t first_row) {
  const DecodeProblem& decode = answer.problem;
  const std::int64_t length = cache.length(sequence) + decode.rows;
  KernelProblem problem;
  problem.length = length;
  problem.rows = decode.rows;
  problem.heads = {static_cast<int>(answer.q.shape[1] / answer.kv_heads), 1};
  problem.head_dim = answer.q.shape[2];
  problem.v_head_dim = answer.out.shape[2];
  problem.dtype = checked_dtype(decode.kv_dtype);
  const std::int64_t heads = problem.heads.num_q_heads;
  Inputs inputs;
  inputs.q = make_tensor(problem.dtype, {length, heads, problem.head_dim});
  inputs.k = make_tensor(problem.dtype, {length, 1, problem.head_dim});
  inputs.v = make_tensor(problem.dtype, {length, 1, problem.v_head_dim});
  read_pages(inputs, cache, sequence, answer.layer);

  Tensor out = make_tensor(answer.out.dtype, {decode.rows, heads, problem.v_head_dim});
  std::vector<float> lse;
  for (std::int64_t row = 0; row < decode.rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t from = answer.q.offset(first_row + row, head);
      const std::int64_t to = ((length - decode.rows + row) * heads + head) * problem.head_dim;
      for (std::int64_t dim = 0; dim < problem.head_dim; ++dim) {
        put(inputs.q, to + dim,
            static_cast<float>(element(answer.q.data, answer.q.dtype, from + dim)));
      }
      const std::int64_t size = problem.v_head_dim * size_bytes(out.dtype);
      std::memcpy(out.bytes.data() + (row * heads + head) * size,
                  static_cast<const std::byte*>(answer.out.data) +
                      answer.out.offset(first_row + row, head) * size_bytes(out.dtype),
                  static_cast<std::size_t>(size));
      lse.push_back(
          answer.lse[static_cast<std::size_t>((first_row + row) * answer.q.shape[1] + head)]);
    }
  }
  return spot_check(problem,
                    std::span(answer.topologies)
                        .first(answer.topologies.size() == 1 ? 1 : static_cast<std::size_t>(heads)),
                    inputs, {out.view(), lse, is_quantized(decode.kv_dtype) && !decode.exact_kv},
                    answer.isa);
}

}  // namespace lacuna::bench
