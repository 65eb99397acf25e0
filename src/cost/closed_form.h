#pragma once

#include <optional>

#include "cost/workload.h"
#include "lacuna/attend.h"
#include "lacuna/equation.h"

namespace lacuna {

// How the edges of one head and sequence can be written down: the textbook formula of a union that
// has one, or the union's own text over its rows. The number is `edges` either way: a formula that
// gave another would not be shown.
Equation edges_equation(const Union& attend, bool causal, const Workload& work,
                        const Workload::Sequence& sequence, Int128 edges);

}  // namespace lacuna
