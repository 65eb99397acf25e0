#include "machine/stored_rates.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lacuna/cpu.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "machine/probe_dispatch.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "lacuna-product-rates";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kLongestFileBytes = 64 << 10;

// A file is not believed beyond what one thread can be: from a slow emulator to 1000 times today's.
constexpr double kLeastFlops = 1e5;
constexpr double kMostFlops = 1e15;

bool has_text(const Json& object, const char* key, const std::string& text) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() &&
         member->get_ref<const std::string&>() == text;
}

bool is_of(const Json& json, const RatesKey& key) {
  if (!json.is_object() || !has_text(json, "format", kFormat)) return false;
  const auto version = json.find("format_version");
  return version != json.end() && version->is_number_integer() && *version == kFormatVersion &&
         has_text(json, "cpu", key.cpu) && has_text(json, "build", key.build);
}

// A rate of this kernel, or 0.
double rate_in(const Json& row, const ProbeKernel& kernel) {
  if (!row.is_object() || !has_text(row, "isa", kernel.isa) ||
      !has_text(row, "product", kernel.product)) {
    return 0;
  }
  const auto rate = row.find("flops_per_s");
  if (rate == row.end() || !rate->is_number()) return 0;
  const auto flops = rate->get<double>();
  return flops >= kLeastFlops && flops <= kMostFlops ? flops : 0;
}

std::vector<ProductRate> load(const std::string& path, const RatesKey& key) {
  try {
    return rates_from_json_text(read_file(path, kLongestFileBytes), key);
  } catch (const Error&) {  // none yet, or none that can be read
    return {};
  }
}

void store(const std::string& path, const std::string& text) {
  std::error_code ignored;  // write_file meets the same obstacle
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  try {
    write_file(path, text);
  } catch (const Error&) {  // the next process measures again
  }
}

}  // namespace

RatesKey rates_key() {
#if defined(__clang__)
  const std::string compiler = "clang++ " __VERSION__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return {read_cpu_info().model_name, "lacuna " LACUNA_VERSION ", " + compiler};
}

std::string rates_to_json_text(const RatesKey& key, const std::vector<ProductRate>& rates) {
  Json json;
  json["format"] = kFormat;
  json["format_version"] = kFormatVersion;
  json["cpu"] = key.cpu;
  json["build"] = key.build;
  json["rates"] = Json::array();
  for (const ProductRate& rate : rates) {
    json["rates"].push_back(
        {{"isa", rate.isa}, {"product", rate.product}, {"flops_per_s", rate.flops_per_s}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<ProductRate> rates_from_json_text(const std::string& text, const RatesKey& key) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!is_of(json, key)) return {};
  const auto rows = json.find("rates");
  const std::vector<const ProbeKernel*> kernels = supported_probe_kernels();
  if (rows == json.end() || !rows->is_array() || rows->size() != kernels.size()) return {};
  std::vector<ProductRate> rates;
  for (std::size_t idx = 0; idx < kernels.size(); ++idx) {
    const double flops_per_s = rate_in((*rows)[idx], *kernels[idx]);
    if (flops_per_s == 0) return {};
    rates.push_back({kernels[idx]->isa, kernels[idx]->product, flops_per_s});
  }
  return rates;
}

std::vector<ProductRate> load_or_measure_rates(const std::string& path) {
  const RatesKey key = rates_key();
  std::vector<ProductRate> rates = load(path, key);
  if (rates.empty()) {
    rates = measure_product_rates();
    store(path, rates_to_json_text(key, rates));
  }
  return rates;
}

}  // namespace lacuna
