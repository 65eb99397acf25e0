#include "lacuna/audit.h"

#include <gtest/gtest.h>

#include <string>

#include "audit/audit_rig.h"
#include "lacuna/error.h"
#include "lacuna/verdicts.h"

namespace lacuna {
namespace {

class AuditTest : public rig::TinyAudit {
 protected:
  static std::vector<std::string> failed(const Audit& audit, VerdictKind kind) {
    std::vector<std::string> names;
    for (const Verdict& verdict : verdicts_of(audit)) {
      if (verdict.kind == kind && !verdict.holds) names.push_back(verdict.name);
    }
    return names;
  }
};

TEST_F(AuditTest, FindsNoExactFaultWhereThereIsNone) {
  options_.all_distances = true;
  const Audit found = audit({"", "full", "window(8)", "window(5)+sink(2)"});
  EXPECT_TRUE(failed(found, VerdictKind::kExact).empty());
  for (const AuditedTable& table : found.tables) {
    EXPECT_EQ(table.quality->nll.size(), 40U);
    for (const Intervention& one : table.interventions) {
      EXPECT_FALSE(one.is_early());
      // Random weights carry a change along every path.
      EXPECT_EQ(one.first_change, one.first_layer) << to_text(table.row.problem.table);
    }
  }
}

TEST_F(AuditTest, AClaimOfAnotherTableIsCaught) {
  options_.claim = table("window(7)");
  EXPECT_FALSE(failed(audit({"window(8)"}), VerdictKind::kExact).empty());
}

}  // namespace
}  // namespace lacuna
