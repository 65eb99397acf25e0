#pragma once

#include <string>
#include <vector>

namespace lacuna {

// How fast one instruction set multiplies on one thread of this machine.
struct ProductRate {
  std::string isa;         // "avx512_bf16", "avx512_vnni", "avx512", "avx2", "portable"
  std::string product;     // "f32", "bf16" or "int8"
  double flops_per_s = 0;  // two for each multiply-add; > 0 and finite

  friend bool operator==(const ProductRate&, const ProductRate&) = default;
};

// A short probe, a few milliseconds for each row: one for every instruction set of this build that
// this machine runs, the widest first, "portable" last. Each is the best of many short bursts in
// turns, so that other work on the machine hardly changes it. It orders kernels; it is not the
// figure that a limit is computed from (lacuna/probe.h has those).
std::vector<ProductRate> measure_product_rates();

// The rates of this machine, from product_rates_path() where that file is of the same CPU model,
// instruction sets and build, else measured and written there. A file that is anything else is
// ignored and replaced; where none can be read or written the measured rates serve all the same.
// Read or measured once a process; thread-safe; throws nothing but std::bad_alloc.
const std::vector<ProductRate>& product_rates();

// default_cache_dir() + "/product_rates.json". Removing the file has the machine measured again.
std::string product_rates_path();

}  // namespace lacuna
