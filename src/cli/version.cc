#include "cli/version.h"

#include <fmt/format.h>

#include <utility>

#include "lacuna/cpu.h"
#include "lacuna/cpu_features.h"
#include "lacuna/kernels.h"
#include "lacuna/product_rates.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

std::string compiler_text() {
#if defined(__clang__)
  return __VERSION__;  // begins with its name
#else
  return "g++ " __VERSION__;
#endif
}

std::string features_text() {
  const CpuFeatures& features = cpu_features();
  std::string text;
  for (const auto& [name, is_there] :
       {std::pair{"avx2_fma_f16c", features.avx2_fma_f16c}, std::pair{"avx512", features.avx512},
        std::pair{"avx512_vnni", features.avx512_vnni},
        std::pair{"avx512_bf16", features.avx512_bf16}}) {
    if (is_there) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "none that a kernel uses" : text;
}

std::string machine_text() {
  const CpuInfo cpu = read_cpu_info();
  return fmt::format("compiler: {}\nCPU: {}\nCPUs allowed: {}\nCPU features: {}\n",
                     printable(compiler_text()), printable(cpu.model_name), cpu.num_allowed_cpus,
                     features_text());
}

std::string rates_text() {
  Table table(
      {{"instructions", Align::kLeft}, {"product", Align::kLeft}, {"one thread", Align::kRight}});
  for (const ProductRate& rate : product_rates()) {
    const char* unit = rate.product == "int8" ? "OP/s" : "FLOP/s";
    table.add_row({rate.isa, rate.product, rate_text(rate.flops_per_s, unit)});
  }
  return fmt::format("product rates: {}\n", printable(product_rates_path())) + table.text();
}

std::string kernels_text() {
  std::string text = "kernels: " + kernel_isa(DType::kF32, DType::kF32) + " for f32 and f16, " +
                     kernel_isa(DType::kBf16, DType::kBf16) + " for bf16; of";
  for (const std::string& isa : kernel_isas()) text += " " + isa;
  return text + "\n";
}

}  // namespace

std::string version_text(bool verbose) {
  const std::string version = "lacuna " LACUNA_VERSION;
  if (!verbose) return version;
  std::string text = version + "\n" + machine_text() + rates_text() + kernels_text();
  text.pop_back();
  return text;
}

}  // namespace lacuna::cli
