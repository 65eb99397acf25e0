#include "cli/mask.h"

#include <algorithm>

namespace lacuna::cli {
namespace {

constexpr std::int64_t kExactRows = 64;        // rows that a cell looks at
constexpr std::int64_t kMostRanges = 1 << 22;  // that all cells together look at

// Border `index` of `cells` equal parts of 0..length.
std::int64_t border(std::int64_t index, std::int64_t cells, std::int64_t length) {
  return static_cast<std::int64_t>(Int128{index} * length / cells);
}

std::vector<std::int64_t> sampled_rows(std::int64_t begin, std::int64_t end, std::int64_t most) {
  std::vector<std::int64_t> rows;
  const std::int64_t step = std::max<std::int64_t>(1, (end - begin) / most);
  for (std::int64_t row = begin; row < end; row += step) rows.push_back(row);
  return rows;
}

// Adds the share of each cell that a row's keys cover, over the number of rows a cell looks at.
void add_row(const Ranges& keys, std::int64_t cells, std::int64_t length, double num_rows,
             float* density) {
  std::int64_t k = 0;
  for (const Range& part : keys) {
    while (border(k + 1, cells, length) <= part.begin) ++k;
    for (std::int64_t cell = k; cell < cells && border(cell, cells, length) < part.end; ++cell) {
      const std::int64_t begin = border(cell, cells, length);
      const std::int64_t end = border(cell + 1, cells, length);
      const std::int64_t common = std::min(end, part.end) - std::max(begin, part.begin);
      density[cell] += static_cast<float>(static_cast<double>(common) /
                                          static_cast<double>(end - begin) / num_rows);
    }
  }
}

}  // namespace

MaskPicture Mask::picture(std::string title) const {
  MaskPicture picture;
  picture.title = std::move(title);
  picture.rows = picture.cols = cells;
  picture.density = density;
  picture.num_queries = picture.num_keys = length;
  return picture;
}

Mask mask_of(const Topology& topology, std::int64_t length, std::int64_t cells) {
  Mask mask{std::min(cells, length), length, {}};
  mask.density.assign(static_cast<std::size_t>(mask.cells * mask.cells), 0.0F);
  // Rows of very many ranges (strides over long segments) are looked at more sparsely.
  const auto longest = static_cast<std::int64_t>(topology.row(length - 1, length).parts().size());
  const std::int64_t most =
      std::clamp<std::int64_t>(kMostRanges / (mask.cells * (longest + 1)), 1, kExactRows);
  for (std::int64_t q = 0; q < mask.cells; ++q) {
    const auto rows =
        sampled_rows(border(q, mask.cells, length), border(q + 1, mask.cells, length), most);
    float* const density = &mask.density[static_cast<std::size_t>(q * mask.cells)];
    for (const std::int64_t row : rows) {
      add_row(topology.row(row, length), mask.cells, length, static_cast<double>(rows.size()),
              density);
    }
  }
  // Sums of shares may pass 1 by a rounding.
  for (float& density : mask.density) density = std::min(density, 1.0F);
  return mask;
}

}  // namespace lacuna::cli
