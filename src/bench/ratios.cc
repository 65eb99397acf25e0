#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "lacuna/attend.h"
#include "lacuna/kernel_bench.h"

namespace lacuna {
namespace {

constexpr std::int64_t kManyRows = 64;

// The problem with one thing changed: what a row is compared with has to equal it.
template <typename Change>
KernelProblem changed(KernelProblem problem, const Change& change) {
  change(problem);
  return problem;
}

bool has_full(const std::string& attend, bool causal) {
  const Attend parsed = parse_attend(attend, causal);
  return std::ranges::any_of(parsed.groups.front().attend,
                             [](const Term& term) { return std::holds_alternative<Full>(term); });
}

// "window(512)" of "window(512)+sink(4)"; "" where there is one term alone, or split heads.
std::string first_term(const std::string& attend, bool causal) {
  const Attend parsed = parse_attend(attend, causal);
  if (parsed.groups.size() != 1 || parsed.groups.front().attend.size() < 2) return "";
  return to_text(parsed.groups.front().attend.front(), causal);
}

class Ratios {
 public:
  explicit Ratios(std::span<const KernelRow> rows) : rows_(rows) {}

  std::vector<KernelRatio> all() && {
    for (const KernelRow& row : rows_) {
      const KernelProblem& problem = row.problem;
      if (problem.path == KernelPath::kMaskedDense) {
        add_time_of_mask(row);
        continue;
      }
      if (!has_full(problem.attend, problem.causal)) add_over_dense(row);
      add_over_first_term(row);
      if (problem.threads > 1) add_over_one_thread(row);
      if (problem.rows > 0 && problem.rows != kManyRows) add_time_of_few_rows(row);
    }
    return std::move(found_);
  }

 private:
  using Value = std::function<double(const KernelRow&, const KernelRound&)>;

  const KernelRow* row_of(const KernelProblem& problem) const {
    const auto found = std::ranges::find(rows_, problem, &KernelRow::problem);
    return found == rows_.end() ? nullptr : &*found;
  }

  void add(const char* what, const KernelRow& row, const KernelProblem& base_problem,
           const Value& value) {
    const KernelRow* const base = row_of(base_problem);
    if (base == nullptr) return;
    std::vector<double> ratios;
    for (const KernelRound& round : row.rounds) {
      const auto same = std::ranges::find(base->rounds, round.round, &KernelRound::round);
      if (same != base->rounds.end()) ratios.push_back(value(row, round) / value(*base, *same));
    }
    if (ratios.empty()) return;
    found_.push_back({what, row.problem.name(), base->problem.name(), statistics_of(ratios)});
  }

  static double useful_rate(const KernelRow& row, const KernelRound& round) {
    return row.useful_flops() / round.whole_seconds;
  }

  static double seconds_a_row(const KernelRow& row, const KernelRound& round) {
    return round.whole_seconds / static_cast<double>(row.problem.num_rows());
  }

  void add_over_dense(const KernelRow& row) {
    const auto dense = changed(row.problem, [](KernelProblem& p) { p.attend = "full"; });
    add("useful rate over the dense rate", row, dense, useful_rate);
  }

  void add_over_first_term(const KernelRow& row) {
    const std::string first = first_term(row.problem.attend, row.problem.causal);
    if (first.empty()) return;
    const auto alone = changed(row.problem, [&](KernelProblem& p) { p.attend = first; });
    add("useful rate over its first term's", row, alone, useful_rate);
  }

  void add_over_one_thread(const KernelRow& row) {
    const auto one = changed(row.problem, [](KernelProblem& p) { p.threads = 1; });
    add("rate over one thread's", row, one, useful_rate);
    add("gain by threads over the probe's own", row, one,
        [](const KernelRow& of, const KernelRound& round) {
          KernelRow single = of;
          single.rounds = {round};
          return single.share_of_limit(&KernelRound::whole_seconds).p50;
        });
  }

  void add_time_of_few_rows(const KernelRow& row) {
    const auto many = changed(row.problem, [](KernelProblem& p) { p.rows = kManyRows; });
    add("time a row over that of 64 rows", row, many, seconds_a_row);
  }

  void add_time_of_mask(const KernelRow& row) {
    const auto skipping = changed(row.problem, [](KernelProblem& p) { p.path = KernelPath::kRun; });
    add("time of a mask without skipping over run's", row, skipping,
        [](const KernelRow&, const KernelRound& round) { return round.whole_seconds; });
  }

  std::span<const KernelRow> rows_;
  std::vector<KernelRatio> found_;
};

}  // namespace

std::vector<KernelRatio> kernel_ratios(std::span<const KernelRow> rows) {
  return Ratios(rows).all();
}

}  // namespace lacuna
