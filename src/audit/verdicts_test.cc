#include "lacuna/verdicts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "audit/audit_rig.h"

namespace lacuna {
namespace {

class VerdictsTest : public rig::TinyAudit {
 protected:
  // Planted, the verdicts but those of time, which a tiny model's steps say nothing about: those
  // that fail, each with its cause.
  std::vector<std::string> failed_with(const PlantedFaults& planted) {
    options_.bench.transformer.planted = planted;
    return failed(audit());
  }
  static std::vector<std::string> failed(const Audit& audit) {
    std::vector<std::string> failed;
    for (const Verdict& verdict : verdicts_of(audit)) {
      EXPECT_EQ(verdict.next.empty(), verdict.holds) << verdict.name;
      EXPECT_TRUE(!verdict.holds || verdict.cause.empty()) << verdict.name;
      if (verdict.holds || verdict.kind == VerdictKind::kTime) continue;
      failed.push_back(verdict.name + ": " + verdict.cause);
    }
    return failed;
  }
  static Verdict verdict(const Audit& audit, const std::string& name) {
    for (const Verdict& one : verdicts_of(audit)) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no verdict " << name;
    return {};
  }
  using Words = std::vector<std::string>;
};

// ---- Faults that figures tell apart -------------------------------------------------------------

TEST_F(VerdictsTest, FindNothingWhereNothingIsPlanted) {
  EXPECT_EQ(failed(audit({"", "full", "window(8)"})), Words());
}

TEST_F(VerdictsTest, AMaskOverAllKeysIsTold) {
  EXPECT_EQ(failed_with({.masked_dense = true}),
            (Words{"pairs: masked-dense", "bytes: masked-dense"}));
}

TEST_F(VerdictsTest, KeysThatAreNeverFreedAreTold) {
  EXPECT_EQ(failed_with({.keep_all = true}), Words{"state: keep-all"});
}

TEST_F(VerdictsTest, ALeakedPageIsTold) {
  EXPECT_EQ(failed_with({.leak = true}), Words{"state: leak"});
}

TEST_F(VerdictsTest, SummariesThatNobodyCountedAreTold) {
  EXPECT_EQ(failed_with({.summaries = true}), Words{"state: summaries"});
}

// No step takes a page, so that only the number of bytes tells the two apart.
TEST_F(VerdictsTest, ALeakAndSummariesAreToldApartWherePagesStayAsTheyAre) {
  options_.prompt_tokens = 50;
  EXPECT_EQ(failed_with({.leak = true}), Words{"state: leak"});
  EXPECT_EQ(failed_with({.summaries = true}), Words{"state: summaries"});
}

TEST_F(VerdictsTest, AKeyThatIsCountedTwiceIsTold) {
  EXPECT_EQ(failed_with({.count_twice = true}), Words{"pairs: count-twice"});
}

TEST_F(VerdictsTest, LayersThatAllRotateAlikeAreTold) {
  EXPECT_EQ(failed_with({.local_rotary = true}), Words{"rotary: local-rotary"});
}

TEST_F(VerdictsTest, FaultsOfTimeMoveNoExactFigure) {
  EXPECT_EQ(failed_with({.one_thread = true, .hidden_seconds = 2e-3}), Words());
}

// ---- Claims -------------------------------------------------------------------------------------

TEST_F(VerdictsTest, AWindowOfOneKeyMoreOrLessIsTold) {
  for (const char* said : {"window(7)*5, full", "window(9)*5, full"}) {
    options_.claim = table(said);
    const Audit found = audit();
    EXPECT_EQ(verdict(found, "pairs").cause, "window-off-by-one") << said;
    EXPECT_NE(verdict(found, "pairs").says.find("window(8) in place of window("),
              std::string::npos);
  }
  options_.claim = table("window(7)+sink(2)");
  EXPECT_EQ(verdict(audit({"window(8)+sink(2)"}), "pairs").cause, "window-off-by-one");
}

TEST_F(VerdictsTest, AWindowOfTwoKeysMoreIsNoWindowOffByOne) {
  options_.claim = table("window(6)*5, full");
  const Verdict pairs = verdict(audit(), "pairs");
  EXPECT_FALSE(pairs.holds);
  EXPECT_EQ(pairs.cause, "");
}

TEST_F(VerdictsTest, AFullLayerInAnotherPlaceIsTold) {
  options_.claim = table("window(8)*4, full, window(8)");
  const Audit found = audit();
  for (const char* name : {"pairs", "state", "bytes"}) {
    EXPECT_EQ(verdict(found, name).cause, "wrong-layer") << name;
  }
  EXPECT_NE(verdict(found, "pairs").says.find("layer 5 needs just the pairs of full"),
            std::string::npos);
  options_.claim = table("window(8)");
  EXPECT_EQ(verdict(audit(), "pairs").cause, "wrong-layer");
}

// From token 29 to the query at 59: 3 keys farther with each of 7 layers do not do, 7 in 5 do.
TEST_F(VerdictsTest, AChangeThatTheClaimHasNoPathForIsAnError) {
  options_.claim = table("window(4)");
  const Audit found = audit();
  EXPECT_FALSE(verdict(found, "hops").holds);
  EXPECT_EQ(verdict(found, "hops").kind, VerdictKind::kExact);
  EXPECT_EQ(found.tables[0].interventions.at(0).first_layer, std::nullopt);
  EXPECT_EQ(found.tables[0].interventions.at(0).first_change, 4);
}

// 5 keys farther with each layer would take 6 of them.
TEST_F(VerdictsTest, AChangeInALayerBeforeTheClaimsIsAnError) {
  options_.claim = table("window(6)*6, full");
  const Audit found = audit({"window(8)"});
  EXPECT_FALSE(verdict(found, "hops").holds);
  EXPECT_EQ(found.tables[0].interventions.at(0).first_layer, 5);
  EXPECT_EQ(found.tables[0].interventions.at(0).first_change, 4);
}

// ---- Times, set by hand -------------------------------------------------------------------------

// A table against the first, in a step of 10 ms of which attention takes 4.
class TimeVerdictsTest : public VerdictsTest {
 protected:
  TimeVerdictsTest() {
    options_.int8_kv = true;
    audit_ = audit({"full", "window(8)"});
    set(audit_.tables[0], 10e-3, 4e-3);
    set(audit_.tables[1], 10e-3, 4e-3);
    set(*audit_.int8_kv, 10e-3, 4e-3);
  }
  // As predicted, and all of it in its parts.
  static void set(AuditedTable& table, double step, double attention) {
    const double bytes = static_cast<double>(table.row.weight_bytes) + table.row.step_read_bytes();
    for (ModelRound& round : table.row.rounds) {
      std::ranges::fill(round.step_seconds, step);
      round.step = {};
      round.step.attention = attention;
      round.step.mlp = step - attention;
      round.sampling_seconds = 0;
      round.cpu_share = 0.95;
      round.caller_cpu_share = 0.5;
      round.read_bytes_per_s = bytes / step;
    }
  }
  double reads() const {
    return audit_.tables[1].row.step_read_bytes() / audit_.tables[0].row.step_read_bytes();
  }
  bool holds(const std::string& name) const { return verdict(audit_, name).holds; }

  Audit audit_;
};

TEST_F(TimeVerdictsTest, AStepIsHeldAgainstItsBytes) {
  EXPECT_TRUE(holds("step_time"));
  for (ModelRound& round : audit_.tables[0].row.rounds) round.read_bytes_per_s *= 1.25;
  EXPECT_FALSE(holds("step_time"));
}

TEST_F(TimeVerdictsTest, AGainIsHeldAgainstAmdahlsBound) {
  const double bound = 1 / (0.6 + 0.4 * reads());
  ASSERT_GT(bound, 1.2);
  EXPECT_FALSE(holds("amdahl"));  // no gain
  set(audit_.tables[1], 10e-3 / bound, 4e-3 * reads());
  EXPECT_TRUE(holds("amdahl"));
}

TEST_F(TimeVerdictsTest, Int8HasToCutAttentionAsItCutsBytes) {
  EXPECT_FALSE(holds("int8_kv"));
  set(*audit_.int8_kv, 8.4e-3, 2.4e-3);
  EXPECT_TRUE(holds("int8_kv"));
}

TEST_F(TimeVerdictsTest, TimeInNoPartIsHidden) {
  EXPECT_TRUE(holds("hidden_time"));
  for (ModelRound& round : audit_.tables[0].row.rounds) round.step.mlp -= 2e-3;
  EXPECT_EQ(verdict(audit_, "hidden_time").cause, "hidden-time");
}

TEST_F(TimeVerdictsTest, OneThreadAloneIsToldFromABusyMachine) {
  EXPECT_TRUE(holds("threads"));
  ModelRound& round = audit_.tables[0].row.rounds.front();
  round.cpu_share = 0.5;
  EXPECT_FALSE(holds("threads"));
  EXPECT_EQ(verdict(audit_, "threads").cause, "");
  round.caller_cpu_share = 0.99;
  EXPECT_EQ(verdict(audit_, "threads").cause, "one-thread");
  audit_.num_threads = 1;
  EXPECT_EQ(verdict(audit_, "threads").cause, "");
}

TEST_F(TimeVerdictsTest, AllWorkOnOneThreadIsInTheCpuTimeOfTheCaller) {
  options_.bench.transformer.planted.one_thread = true;
  EXPECT_GT(audit().tables[0].row.rounds.front().caller_cpu_share, 0.9);
}

// ---- Quality, set by hand -----------------------------------------------------------------------

TEST_F(VerdictsTest, ATableThatReadsBetterThanTheTrainedOneIsAFault) {
  Audit found = audit({"", "window(8)"});
  ASSERT_EQ(found.tables[0].row.problem.table.trained, Trained::kTrue);
  const auto alternate = [&](float even, float odd) {
    for (std::size_t i = 0; i < found.tables[1].quality->nll.size(); ++i) {
      found.tables[1].quality->nll[i] = found.tables[0].quality->nll[i] + (i % 2 ? odd : even);
    }
    return verdict(found, "quality").holds;
  };
  EXPECT_TRUE(alternate(0.2F, 0.4F));
  EXPECT_TRUE(alternate(-1.0F, 0.9F));  // inside the noise
  EXPECT_FALSE(alternate(-0.2F, -0.4F));
}

TEST_F(VerdictsTest, ABaseThatReadsBetterThanTheLayersOwnIsAFault) {
  Audit found = audit();
  ASSERT_TRUE(found.rotary);
  for (std::size_t i = 0; i < found.rotary->own.nll.size(); ++i) {
    found.rotary->as_first.nll[i] = found.rotary->own.nll[i] - (i % 2 ? 0.1F : 0.2F);
  }
  const Verdict rotary = verdict(found, "rotary");
  EXPECT_FALSE(rotary.holds);
  EXPECT_EQ(rotary.cause, "");
}

TEST_F(VerdictsTest, AModelOfOneBaseIsNotTriedWithAnother) {
  EXPECT_FALSE(model_.rotates_alike());
  const Model mistral(std::string(LACUNA_TEST_DATA) + "/models/tiny-mistral.gguf", {}, &pool_);
  EXPECT_TRUE(mistral.rotates_alike());
  const LayerTable own = mistral.config().table;
  EXPECT_FALSE(run_audit(mistral, mistral, {&own, 1}, pool_, options_).rotary);
}

}  // namespace
}  // namespace lacuna
