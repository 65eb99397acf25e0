#pragma once

#include <string>

#include "cli/json.h"

namespace lacuna::cli {

// Pictures of a checked document, as HTML with SVG inline.
std::string masks_html(const Json& document);  // one for each kind of layer
std::string steps_html(const Json& document);  // TPOT over the answer's positions
std::string roof_html(const Json& document);   // bytes of a step, time, and the probe's bandwidth

}  // namespace lacuna::cli
