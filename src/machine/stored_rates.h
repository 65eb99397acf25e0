#pragma once

#include <string>
#include <vector>

#include "lacuna/product_rates.h"

namespace lacuna {

// What rates are valid for: they are measured again where any of it differs.
struct RatesKey {
  std::string cpu;    // its model name
  std::string build;  // compiler and version of the library

  friend bool operator==(const RatesKey&, const RatesKey&) = default;
};
RatesKey rates_key();

// One JSON object: "format": "lacuna-product-rates", "format_version": 1, the key, and "rates".
std::string rates_to_json_text(const RatesKey& key, const std::vector<ProductRate>& rates);

// The rates in `text`; none where it is no such object, is of another key, or has not exactly one
// plausible rate for each instruction set that this machine runs, in their order.
std::vector<ProductRate> rates_from_json_text(const std::string& text, const RatesKey& key);

// As product_rates(), with any file.
std::vector<ProductRate> load_or_measure_rates(const std::string& path);

}  // namespace lacuna
