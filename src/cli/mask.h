#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lacuna/svg.h"
#include "lacuna/topology.h"

namespace lacuna::cli {

// The mask of one head, reduced to at most `cells` x `cells` densities.
struct Mask {
  std::int64_t cells = 0;
  std::int64_t length = 0;
  std::vector<float> density;  // [cells, cells]

  MaskPicture picture(std::string title) const;
};

// Exact up to kExactRows rows a cell; longer cells look at as many evenly spaced rows.
Mask mask_of(const Topology& topology, std::int64_t length, std::int64_t cells);

}  // namespace lacuna::cli
