#include "lacuna/kv_pack.h"

#include <bit>
#include <cstring>

#include "lacuna/kv_view.h"

namespace lacuna {
namespace {
float load(const void* at, DType t) {
  if (t == DType::kF32) { float f; std::memcpy(&f, at, 4); return f; }
  std::uint16_t b; std::memcpy(&b, at, 2);
  return t == DType::kBf16 ? from_bf16(b) : from_f16(b);
}
void put(void* at, DType t, float f) {
  if (t == DType::kF32) { std::memcpy(at, &f, 4); return; }
  std::uint16_t b = t == DType::kBf16 ? to_bf16(f) : to_f16(f);
  std::memcpy(at, &b, 2);
}
std::int64_t koff(DType t, std::int64_t dim, std::int64_t slot, std::int64_t d) {
  std::int64_t panel = slot / 16 * 16 * packed_k_dims(t, dim), key = slot % 16;
  return t == DType::kF32 ? panel + d * 16 + key : panel + (d / 2 * 16 + key) * 2 + d % 2;
}
std::int64_t voff(DType t, std::int64_t dim, std::int64_t slot, std::int64_t d) {
  std::int64_t panel = slot / 16 * 16 * packed_v_dims(dim) + d / 16 * 256, key = slot % 16;
  return t == DType::kF32 ? panel + key * 16 + d % 16 : panel + (key / 2 * 16 + d % 16) * 2 + key % 2;
}
const std::byte* src(const TensorView& x, std::int64_t token, std::int64_t head, std::int64_t d) {
  return static_cast<const std::byte*>(x.data) + (x.offset(token, head) + d * x.strides[2]) * size_bytes(x.dtype);
}
}  // namespace

void append_tokens(const PackedHead& page, std::int64_t first_slot, const TensorView& k,
                   const TensorView& v, std::int64_t head) {
  const std::int64_t size = size_bytes(page.dtype);
  for (std::int64_t t = 0; t < k.shape[0]; ++t) {
    for (std::int64_t d = 0; d < page.head_dim; ++d)
      put(static_cast<std::byte*>(page.k) + koff(page.dtype, page.head_dim, first_slot + t, d) * size, page.dtype, load(src(k, t, head, d), k.dtype));
    for (std::int64_t d = 0; d < page.v_head_dim; ++d)
      put(static_cast<std::byte*>(page.v) + voff(page.dtype, page.v_head_dim, first_slot + t, d) * size, page.dtype, load(src(v, t, head, d), v.dtype));
  }
}
void read_k(std::span<float> key, const PackedHead& page, std::int64_t slot) {
  for (std::int64_t d = 0; d < page.head_dim; ++d)
    key[static_cast<std::size_t>(d)] = load(static_cast<std::byte*>(page.k) + koff(page.dtype, page.head_dim, slot, d) * size_bytes(page.dtype), page.dtype);
}
void read_v(std::span<float> key, const PackedHead& page, std::int64_t slot) {
  for (std::int64_t d = 0; d < page.v_head_dim; ++d)
    key[static_cast<std::size_t>(d)] = load(static_cast<std::byte*>(page.v) + voff(page.dtype, page.v_head_dim, slot, d) * size_bytes(page.dtype), page.dtype);
}
}  // namespace lacuna
