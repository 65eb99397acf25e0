#pragma once

#include <string>

#include "lacuna/config.h"

namespace lacuna::config {

// What a reader hands out must be fit for topology and cost: throws Error naming the file
// otherwise.
void check_model(const ModelConfig& model, const std::string& file);

}  // namespace lacuna::config
