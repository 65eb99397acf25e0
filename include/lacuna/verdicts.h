#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lacuna/audit.h"

namespace lacuna {

enum class VerdictKind {
  kExact,  // counted on both sides: a difference is a fault
  kTime,   // a bound or an estimate that may fail
  kQuality,
};
std::string_view to_string(VerdictKind kind);

struct Verdict {
  std::string name;  // one word, the same in every report
  VerdictKind kind = VerdictKind::kExact;
  bool holds = true;
  std::string table;  // which it is about; empty: all
  std::string says;   // what decided it, with its numbers
  std::string cause;  // what would give just these numbers, as --plant names it; empty: not known
  std::string next;   // the next thing to try; empty where it holds
};

// What an audit shows, in the order of diagnosis: the exact figures; then what keeps speed from
// coming: a dense mask, full keys read, tile waste, kernels below the machine's limit, the share
// that attention has (Amdahl), time in no part, threads that wait; then quality. Tables follow one
// another in each. Where the numbers allow it a cause is named. Thresholds stand in verdicts.cc,
// each with its reason.
std::vector<Verdict> verdicts_of(const Audit& audit);

}  // namespace lacuna
