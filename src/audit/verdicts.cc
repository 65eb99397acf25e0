#include "lacuna/verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "audit/causes.h"
#include "lacuna/estimate.h"
#include "lacuna/kernels.h"

namespace lacuna {
namespace {

// Tiles of 16 keys round a window of a few hundred up by a few per cent; half as much again is a
// pattern that the tiles do not fit.
constexpr double kMostTileWaste = 1.5;
// How far a step may be from its bytes over the probe's bandwidth, and a gain from its prediction.
constexpr double kTimeTolerance = 0.15;
// Parts are timed one after another; what lies between them is a few clock reads.
constexpr double kMostUnattributed = 0.03;
// Waiting in small steps takes some of the CPU; one thread of two would leave a half.
constexpr double kLeastCpuShare = 0.7;
// Of two threads that share the work each has about a half of the CPU time, whoever else wants the
// CPUs; of one alone all but the others' waking up.
constexpr double kOneThread = 0.9;
// Standard errors of a mean of paired differences that are more than chance.
constexpr double kErrors = 3;

std::string name_of(const AuditedTable& table) { return to_text(table.row.problem.table); }

double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b);
}

using audit::Cause;

class Judge {
 public:
  explicit Judge(const Audit& audit) : audit_(audit) {}

  std::vector<Verdict> all() {
    const auto each = [&](void (Judge::*judge)(const AuditedTable&)) {
      for (const AuditedTable& table : audit_.tables) (this->*judge)(table);
    };
    each(&Judge::pairs);
    each(&Judge::state);
    each(&Judge::bytes);
    each(&Judge::hops);
    each(&Judge::dense_mask);
    each(&Judge::full_keys);
    each(&Judge::tile_waste);
    each(&Judge::utilisation);
    for (std::size_t idx = 1; idx < audit_.tables.size(); ++idx) amdahl(audit_.tables[idx]);
    if (audit_.int8_kv) int8_kv(*audit_.int8_kv);
    each(&Judge::unattributed);
    each(&Judge::threads);
    quality();
    if (audit_.rotary) rotary(*audit_.rotary);
    return std::move(verdicts_);
  }

 private:
  void add(std::string name, VerdictKind kind, bool holds, std::string table, std::string says,
           std::string next) {
    if (holds) next.clear();
    verdicts_.push_back(
        {std::move(name), kind, holds, std::move(table), std::move(says), "", std::move(next)});
  }

  // Of the verdict that was just added.
  void because(const std::optional<Cause>& cause) {
    Verdict& verdict = verdicts_.back();
    if (verdict.holds || !cause) return;
    verdict.cause = cause->name;
    if (!cause->says.empty()) verdict.says += ": " + cause->says;
    if (!cause->next.empty()) verdict.next = cause->next;
  }

  void pairs(const AuditedTable& table) {
    const ModelLayer sum = table.row.sum();
    exact_figure(table, "pairs", Quantity::kPairs,
                 fmt::format("{} pairs executed for the prompt and {} in the steps, {} and {} of "
                             "them needed: each layer as predicted",
                             sum.pairs, sum.step_pairs, sum.needed_pairs, sum.step_needed_pairs),
                 "hold the layer's table against the one that is claimed (lacuna show)");
    because(audit::cause_of_pairs(table.row));
  }

  void state(const AuditedTable& table) {
    exact_figure(table, "state", Quantity::kState,
                 fmt::format("{} bytes held after the prompt, {} after the last step: each layer "
                             "as predicted at every step, and nothing else lives in the pool",
                             table.row.live_bytes.front(), table.row.live_bytes.back()),
                 "pages that the table no longer reads are still referenced, or pages carry more "
                 "than keys and values");
    because(audit::cause_of_state(table.row));
  }

  void bytes(const AuditedTable& table) {
    if (table.row.problem.num_steps() == 0) return;
    exact_figure(
        table, "bytes", Quantity::kBytes,
        fmt::format("{} bytes of keys and values read in {} steps, in tiles of {} keys, as "
                    "predicted; the pages that they lie on have {}",
                    table.row.sum().read_bytes, table.row.problem.num_steps(), kernel_tile().k,
                    table.row.sum().page_bytes),
        "a kernel visits pages that the table does not read, or skips some that it does");
    because(audit::cause_of_pairs(table.row));
  }

  // The quantity's first fault, or what holds.
  void exact_figure(const AuditedTable& table, std::string name, Quantity quantity,
                    std::string holds, std::string next) {
    const std::vector<ModelFault> faults = table.row.faults();
    const auto first = std::ranges::find(faults, quantity, &ModelFault::quantity);
    const bool is_as_predicted = first == faults.end();
    add(std::move(name), VerdictKind::kExact, is_as_predicted, name_of(table),
        is_as_predicted ? std::move(holds) : first->text, std::move(next));
  }

  static std::string layer_text(const std::optional<int>& layer) {
    return layer ? fmt::format("layer {}", *layer) : "no layer";
  }

  void hops(const AuditedTable& table) {
    if (table.interventions.empty()) return;
    const auto early = std::ranges::find_if(table.interventions, &Intervention::is_early);
    if (early != table.interventions.end()) {
      add("hops", VerdictKind::kExact, false, name_of(table),
          fmt::format("token {} changes the state of {} in layer {}, possible from {}",
                      early->evidence, early->query, *early->first_change,
                      layer_text(early->first_layer)),
          "a layer reads farther than its table says: find it by the layer's number");
      return because(audit::cause_of_pairs(table.row));
    }
    std::string text;
    for (const Intervention& one : table.interventions) {
      text += fmt::format("{}token {} reaches {} in {}, possible from {}{}{}",
                          text.empty() ? "" : "; ", one.evidence, one.query,
                          layer_text(one.first_change), layer_text(one.first_layer),
                          one.first_layer && one.first_change != one.first_layer
                              ? " (the change was too small to see before)"
                              : "",
                          one.best_path ? fmt::format(", best path {:.2g} over {} hop(s)",
                                                      one.best_path->weight, one.best_path->hops)
                                        : "");
    }
    add("hops", VerdictKind::kExact, true, name_of(table), text, "");
  }

  // ---- Speed --------------------------------------------------------------------------------

  void dense_mask(const AuditedTable& table) {
    const ModelLayer sum = table.row.sum();
    const double measured = ratio(sum.pairs, sum.needed_pairs);
    const double predicted = ratio(sum.predicted_pairs, sum.predicted_needed_pairs);
    add("dense_mask", VerdictKind::kTime, measured <= predicted * 1.01, name_of(table),
        fmt::format("{:.3f} pairs executed for a needed one, predicted {:.3f}", measured,
                    predicted),
        "scores of masked keys are computed: run the tiles of a plan in place of a mask");
    because(audit::cause_of_pairs(table.row));
  }

  void full_keys(const AuditedTable& table) {
    const ModelLayer sum = table.row.sum();
    if (sum.predicted_read_bytes == 0) return;
    const double read = ratio(sum.read_bytes, sum.predicted_read_bytes);
    const double held = ratio(sum.held_bytes.back(), sum.predicted_held_bytes.back());
    add("full_keys", VerdictKind::kTime, read <= 1.01 && held <= 1.01, name_of(table),
        fmt::format("{:.3f} of the predicted bytes read, {:.3f} of them held", read, held),
        "evict what no later query reads (retain), or read only what is kept");
    because(read > 1.01 ? audit::cause_of_pairs(table.row) : audit::cause_of_state(table.row));
  }

  void tile_waste(const AuditedTable& table) {
    const ModelLayer sum = table.row.sum();
    // What is executed beyond that is no tile's: dense_mask.
    const double waste = ratio(sum.predicted_pairs, sum.predicted_needed_pairs);
    add("tile_waste", VerdictKind::kTime, waste <= kMostTileWaste, name_of(table),
        fmt::format("{:.3f} pairs in the tiles for a needed one", waste),
        "choose windows and blocks that are multiples of a tile");
  }

  void utilisation(const AuditedTable& table) {
    if (table.row.problem.num_steps() == 0) return;
    const double measured = table.row.step_seconds().p50;
    const double predicted = table.row.predicted_step_seconds().p50;
    const double error = measured / predicted - 1;
    add("step_time", VerdictKind::kTime, std::abs(error) <= kTimeTolerance, name_of(table),
        fmt::format(
            "a step takes {:.2f} ms, its bytes over the probe's bandwidth {:.2f} ms: {:+.0f} "
            "% ({:.0f} % of the limit)",
            1e3 * measured, 1e3 * predicted, 100 * error, 100 * predicted / measured),
        "look at the parts of a step: one that does not read its bytes at the probe's rate is "
        "bound by something else");
  }

  // What this table's step gains over the audited one's, and what attention's share allows.
  void amdahl(const AuditedTable& table) {
    const ModelRow& own = audit_.tables.front().row;
    if (own.problem.num_steps() == 0) return;
    const double share = attention_seconds(own) / own.step_seconds().p50;
    const double reads = table.row.step_read_bytes() / own.step_read_bytes();
    const double bound = amdahl_speedup(std::min(share, 1.0), reads);
    const double gain = own.step_seconds().p50 / table.row.step_seconds().p50;
    add("amdahl", VerdictKind::kTime, std::abs(gain / bound - 1) <= kTimeTolerance, name_of(table),
        fmt::format("attention is {:.0f} % of a step and reads {:.3f} of the bytes: at most {:.2f} "
                    "times as fast, measured {:.2f}",
                    100 * share, reads, bound, gain),
        gain < bound ? "attention's time does not follow its bytes: see step_time by part"
                     : "more got faster than attention: caches hold more of the weights");
  }

  static double attention_seconds(const ModelRow& row) {
    return row.over_rounds([](const ModelRound& one) { return one.step.attention; }).p50;
  }

  void int8_kv(const AuditedTable& table) {
    const ModelRow& own = audit_.tables.front().row;
    if (own.problem.num_steps() == 0) return;
    const double reads = table.row.step_read_bytes() / own.step_read_bytes();
    const double time = attention_seconds(table.row) / attention_seconds(own);
    add("int8_kv", VerdictKind::kTime, time <= reads + kTimeTolerance, name_of(table),
        fmt::format(
            "keys and values in int8 are {:.3f} of the bytes, attention takes {:.3f} of the "
            "time",
            reads, time),
        "attention is not bound by its bytes there: short reads, or arithmetic of a row");
  }

  void unattributed(const AuditedTable& table) {
    if (table.row.problem.num_steps() == 0) return;
    const double share = table.row.unattributed_share();
    add("hidden_time", VerdictKind::kTime, share <= kMostUnattributed, name_of(table),
        fmt::format("{:.1f} % of a step is in no part", 100 * share),
        "time an index or a selection as a part of its own");
    because(Cause{"hidden-time", "", ""});
  }

  void threads(const AuditedTable& table) {
    if (table.row.problem.num_steps() == 0) return;
    const double share =
        table.row.over_rounds([](const ModelRound& one) { return one.cpu_share; }).p50;
    add("threads", VerdictKind::kTime, share >= kLeastCpuShare, name_of(table),
        fmt::format("threads had a CPU in {:.0f} % of the steps' time", 100 * share),
        "work is not spread over the threads, or others share the machine: look at cpu_share of "
        "each round");
    const double callers =
        table.row.over_rounds([](const ModelRound& one) { return one.caller_cpu_share; }).p50;
    if (audit_.num_threads < 2 || callers < kOneThread) return;
    because(Cause{"one-thread",
                  fmt::format("{:.0f} % of their CPU time is one thread's, of {}", 100 * callers,
                              audit_.num_threads),
                  "spread the work over the pool's threads: as it is, the others wait"});
  }

  // ---- Quality ------------------------------------------------------------------------------

  // Of paired differences, so that the text's own spread is not in it.
  struct Difference {
    double mean = 0;
    double error = 0;  // standard
  };
  static Difference more_in(const Quality& other, const Quality& own) {
    Difference more;
    double squares = 0;
    const auto count = static_cast<double>(own.nll.size());
    for (std::size_t i = 0; i < own.nll.size(); ++i) {
      const double one = double{other.nll[i]} - own.nll[i];
      more.mean += one / count;
      squares += one * one / count;
    }
    more.error = std::sqrt(std::max(squares - more.mean * more.mean, 0.0) / count);
    return more;
  }

  void quality() {
    if (audit_.tables.empty() || !audit_.tables.front().quality) return;
    const Quality& own = *audit_.tables.front().quality;
    const bool trained = audit_.tables.front().row.problem.table.trained != Trained::kFalse;
    for (std::size_t idx = 1; idx < audit_.tables.size(); ++idx) {
      const AuditedTable& table = audit_.tables[idx];
      if (!table.quality) continue;
      const Difference more = more_in(*table.quality, own);
      add("quality", VerdictKind::kQuality, !trained || more.mean >= -kErrors * more.error,
          name_of(table),
          fmt::format("{:.4f} nats a token, {:+.4f} ± {:.4f} against the {:.4f} of the table under "
                      "audit",
                      table.quality->mean, more.mean, more.error, own.mean),
          "the model's own table should read best: see whether each layer reads its own keys");
    }
  }

  void rotary(const RotaryTrial& trial) {
    const Difference more = more_in(trial.as_first, trial.own);
    const bool changes = trial.own.nll != trial.as_first.nll;
    add("rotary", VerdictKind::kQuality, changes && more.mean >= -kErrors * more.error,
        name_of(audit_.tables.front()),
        fmt::format("with the rotary base of the first layer in all {:+.4f} ± {:.4f} nats a token "
                    "against {:.4f}, over {} tokens",
                    more.mean, more.error, trial.own.mean, trial.own.nll.size()),
        "see which base each layer of the model has, and which one it rotates with");
    if (changes) return;
    because(
        Cause{"local-rotary",
              "no bit changes, so every layer rotates with that base, though the model has more "
              "than one",
              ""});
  }

  const Audit& audit_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

std::string_view to_string(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::kExact:
      return "exact";
    case VerdictKind::kTime:
      return "time";
    case VerdictKind::kQuality:
      return "quality";
  }
  return "";
}

std::vector<Verdict> verdicts_of(const Audit& audit) { return Judge(audit).all(); }

}  // namespace lacuna
