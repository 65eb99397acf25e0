#include "lacuna/audit.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "lacuna/error.h"
#include "lacuna/verdicts.h"

namespace lacuna {
namespace {

// gemma3's own table: window(8) in five layers of six, 7 keys farther with each.
const std::string kFile = std::string(LACUNA_TEST_DATA) + "/models/tiny-gemma3.gguf";

class AuditTest : public testing::Test {
 protected:
  AuditTest()
      : pool_(2), model_(kFile, {}, &pool_), exact_(kFile, {.products = DenseType::kF32}, &pool_) {
    options_.prompt_tokens = 60;
    options_.generate_tokens = 9;
    options_.quality_positions = 40;
    options_.bench.chunk = 16;
    options_.bench.repetitions = 1;
    options_.bench.transformer.page_size = 16;
    options_.int8_kv = false;
    std::mt19937 random(1);
    for (int i = 0; i < 61; ++i) {
      options_.bench.text.push_back(static_cast<TokenId>(random() % 60));
    }
  }

  LayerTable table(const std::string& layers) {
    if (layers.empty()) return model_.config().table;
    return parse_layers(layers, static_cast<int>(model_.config().table.layers.size()), true);
  }
  Audit audit(const std::vector<std::string>& layers) {
    std::vector<LayerTable> tables;
    for (const std::string& text : layers) tables.push_back(table(text));
    return run_audit(model_, exact_, tables, pool_, options_);
  }
  static std::vector<std::string> failed(const Audit& audit, VerdictKind kind) {
    std::vector<std::string> names;
    for (const Verdict& verdict : verdicts_of(audit)) {
      if (verdict.kind == kind && !verdict.holds) names.push_back(verdict.name);
    }
    return names;
  }

  ThreadPool pool_;
  Model model_;
  Model exact_;
  AuditOptions options_;
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
