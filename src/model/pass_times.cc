#include "lacuna/pass_times.h"

#include <array>

namespace lacuna {

std::span<const PassPart> pass_parts() {
  static constexpr std::array<PassPart, 9> kParts = {{
      {"scheduling", &PassTimes::scheduling},
      {"embedding", &PassTimes::embedding},
      {"projection", &PassTimes::projection},
      {"rotary", &PassTimes::rotary},
      {"append", &PassTimes::append},
      {"attention", &PassTimes::attention},
      {"output_projection", &PassTimes::output_projection},
      {"mlp", &PassTimes::mlp},
      {"logits", &PassTimes::logits},
  }};
  return kParts;
}

double PassTimes::sum() const {
  double all = 0;
  for (const PassPart& part : pass_parts()) all += this->*part.seconds;
  return all;
}

PassTimes& PassTimes::operator+=(const PassTimes& other) {
  for (const PassPart& part : pass_parts()) this->*part.seconds += other.*part.seconds;
  return *this;
}

}  // namespace lacuna
