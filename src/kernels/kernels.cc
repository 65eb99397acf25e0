#include "lacuna/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"
#include "lacuna/cpu_features.h"
#include "lacuna/error.h"
#include "lacuna/product_rates.h"

namespace lacuna {
namespace {

static_assert(static_cast<int>(ElementType::kF32) == static_cast<int>(DType::kF32));
static_assert(static_cast<int>(ElementType::kBf16) == static_cast<int>(DType::kBf16));
static_assert(static_cast<int>(ElementType::kF16) == static_cast<int>(DType::kF16));
static_assert(static_cast<int>(ElementType::kInt8) == static_cast<int>(DType::kInt8));
static_assert(static_cast<int>(ElementType::kInt4) == static_cast<int>(DType::kInt4));

// The ordered list, best first, of what this machine can run.
std::vector<const KernelTable*> make_tables() {
  std::vector<const KernelTable*> tables;
#if defined(LACUNA_KERNELS_X86)
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512 && cpu.avx512_vnni && cpu.avx512_bf16) tables.push_back(&kKernelTableAvx512Bf16);
  if (cpu.avx512 && cpu.avx512_vnni) tables.push_back(&kKernelTableAvx512Vnni);
  if (cpu.avx512) tables.push_back(&kKernelTableAvx512);
  if (cpu.avx2_fma_f16c) tables.push_back(&kKernelTableAvx2);
#endif
  tables.push_back(&kKernelTablePortable);
  return tables;
}

const std::vector<const KernelTable*>& tables() {
  static const std::vector<const KernelTable*> all = make_tables();
  return all;
}

std::vector<const KernelTable*>& added_tables() {
  static std::vector<const KernelTable*> added;
  return added;
}

const TileKernel* kernel_of(const KernelTable& table, ElementType q, ElementType kv) {
  if (kv == ElementType::kInt8) return table.int8;
  if (kv == ElementType::kInt4) return table.int4;
  const bool pairs = q == ElementType::kBf16 && kv == ElementType::kBf16;
  return pairs && table.bf16 != nullptr ? table.bf16 : table.f32;
}

const KernelTable& table_named(const std::string& isa, const char* source) {
  for (const KernelTable* table : tables()) {
    if (isa == table->isa) return *table;
  }
  for (const KernelTable* table : added_tables()) {
    if (isa == table->isa) return *table;
  }
  throw Error(fmt::format("{} is '{}'; this machine has {}{}", source, isa,
                          fmt::join(kernel_isas(), ", "), did_you_mean(isa, kernel_isas())));
}

std::string_view product_of(const TileKernel& kernel) {
  if (kernel.lanes == ElementType::kF32) return "f32";
  return kernel.lanes == ElementType::kBf16 ? "bf16" : "int8";
}

// The set whose probe stands for a set's product: those above avx512 have its f32 product, and the
// last has the int8 product of the one before.
std::string_view probed_isa(std::string_view isa, std::string_view product) {
  if (product == "f32" && isa.starts_with("avx512")) return "avx512";
  return product == "int8" && isa == "avx512_bf16" ? "avx512_vnni" : isa;
}

// What one thread does a second with a kernel's product; 0: not measured.
double measured_rate(const TileKernel& kernel) {
  const std::string_view product = product_of(kernel);
  const std::string_view isa = probed_isa(kernel.isa, product);
  for (const ProductRate& rate : product_rates()) {
    if (rate.product == product && rate.isa == isa) return rate.flops_per_s;
  }
  return 0;
}

// The first of the list, unless another's product is more than 1.3 times as fast here.
const TileKernel& choose(ElementType q, ElementType kv) {
  constexpr double kClearlyFaster = 1.3;
  const TileKernel* chosen = kernel_of(*tables().front(), q, kv);
  double chosen_rate = measured_rate(*chosen);
  for (const KernelTable* table : tables()) {
    const TileKernel* other = kernel_of(*table, q, kv);
    const double rate = measured_rate(*other);
    if (chosen_rate > 0 && rate > kClearlyFaster * chosen_rate) {
      chosen = other;
      chosen_rate = rate;
    }
  }
  return *chosen;
}

const TileKernel& choose_once(ElementType q, ElementType kv) {
  const char* const forced = std::getenv("LACUNA_ISA");
  if (forced != nullptr && *forced != '\0') {
    return *kernel_of(table_named(forced, "LACUNA_ISA"), q, kv);
  }
  // Only these have a product of their own.
  static const TileKernel& wide = choose(ElementType::kF32, ElementType::kF32);
  static const TileKernel& pairs = choose(ElementType::kBf16, ElementType::kBf16);
  static const TileKernel& int8 = choose(ElementType::kF32, ElementType::kInt8);
  static const TileKernel& int4 = choose(ElementType::kF32, ElementType::kInt4);
  if (kv == ElementType::kInt8) return int8;
  if (kv == ElementType::kInt4) return int4;
  return q == ElementType::kBf16 && kv == ElementType::kBf16 ? pairs : wide;
}

ElementType element(DType dtype) { return static_cast<ElementType>(dtype); }

}  // namespace

std::vector<std::string> kernel_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : tables()) names.emplace_back(table->isa);
  return names;
}

const PanelPacker& panel_packer(const char* isa) {
  return (*isa == '\0' ? *tables().front() : table_named(isa, "isa")).packer;
}

void add_kernel_table(const KernelTable& table) { added_tables().push_back(&table); }

std::string kernel_isa(DType q, DType kv) { return choose_once(element(q), element(kv)).isa; }

const TileKernel& tile_kernel(const char* isa, ElementType q, ElementType kv) {
  if (*isa == '\0') return choose_once(q, kv);
  return *kernel_of(table_named(isa, "isa"), q, kv);
}

std::int64_t executed_dims(std::string_view isa, DType q, DType kv, std::int64_t head_dim,
                           std::int64_t v_head_dim) {
  const TileKernel& kernel = tile_kernel(std::string(isa).c_str(), element(q), element(kv));
  return kernel.k_dims(head_dim) + packed_v_dims(v_head_dim);
}

}  // namespace lacuna
