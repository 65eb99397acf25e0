#pragma once

#include <cstdint>

#include "lacuna/plan.h"

namespace lacuna {

// Pieces for each of several threads, so that all find work to the end.
constexpr std::int64_t kPiecesOfThread = 8;

// Rows × query heads of an item that may be cut: a split's state, about the size of one key for
// each of them, then stays below a sixteenth of the split's keys. 0: none may be.
std::int64_t most_rows_of_cut(const PlanOptions& options);

// Hands out the plan's items, cutting those of few rows that weigh more than a thread's piece.
void append_pieces(Plan& plan, const PlanOptions& options);

}  // namespace lacuna
