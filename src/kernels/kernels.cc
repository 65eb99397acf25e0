#include "lacuna/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
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

// What one thread does a second with a kernel's product; 0: not measured. The sets above avx512
// have its f32 product.
double measured_rate(const TileKernel& kernel) {
  const std::string product = kernel.bf16_products ? "bf16" : "f32";
  const std::string isa = kernel.isa;
  double widest = 0;
  for (const ProductRate& rate : product_rates()) {
    if (rate.product != product) continue;
    if (rate.isa == isa) return rate.flops_per_s;
    if (isa.starts_with("avx512") && rate.isa == "avx512") widest = rate.flops_per_s;
  }
  return widest;
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
  // Only pairs of bfloat16 have a product of their own.
  static const TileKernel& wide = choose(ElementType::kF32, ElementType::kF32);
  static const TileKernel& pairs = choose(ElementType::kBf16, ElementType::kBf16);
  return q == ElementType::kBf16 && kv == ElementType::kBf16 ? pairs : wide;
}

ElementType element(DType dtype) { return static_cast<ElementType>(dtype); }

}  // namespace

std::vector<std::string> kernel_isas() {
  std::vector<std::string> names;
  for (const KernelTable* table : tables()) names.emplace_back(table->isa);
  return names;
}

const PanelPacker& panel_packer(ElementType type) {
  const KernelTable& best = *tables().front();
  return type == ElementType::kF32 ? best.f32_packer : best.pair_packer;
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
  const std::int64_t of_q = kernel.k_steps(head_dim) * (kernel.bf16_products ? 2 : 1);
  return of_q + (v_head_dim + kDimBlock - 1) / kDimBlock * kDimBlock;
}

}  // namespace lacuna
