#pragma once

#include <span>
#include <string_view>

namespace lacuna {

// Seconds of a pass on the caller's thread, by part.
struct PassTimes {
  double scheduling = 0;  // pages taken, committed and freed; plans
  double embedding = 0;
  double projection = 0;         // to queries, keys and values, with the norm before it
  double rotary = 0;             // with the norms of heads
  double append = 0;             // keys and values into pages
  double attention = 0;          // with the queries' rounding
  double output_projection = 0;  // with what goes back into the residual stream, as in mlp
  double mlp = 0;                // with the norm before it
  double logits = 0;             // with the norm before them

  double sum() const;
  PassTimes& operator+=(const PassTimes& other);
};
// A part by its name in JSON.
struct PassPart {
  std::string_view name;
  double PassTimes::*seconds;
};
std::span<const PassPart> pass_parts();  // in the order above

}  // namespace lacuna
