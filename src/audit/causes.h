#pragma once

#include <optional>
#include <string>

#include "lacuna/model_bench.h"

namespace lacuna::audit {

// What would give just the figures that were measured, by arithmetic on them.
struct Cause {
  std::string name;  // as --plant has it
  std::string says;
  std::string next;
};

// nullopt: all is as predicted, or nothing known gives these figures.
std::optional<Cause> cause_of_pairs(const ModelRow& row);
std::optional<Cause> cause_of_state(const ModelRow& row);

}  // namespace lacuna::audit
