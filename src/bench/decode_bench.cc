#include "lacuna/decode_bench.h"

#include <algorithm>
#include <deque>

#include "bench/decode_row.h"
#include "bench/problem.h"
#include "bench/timed_row.h"

namespace lacuna {
namespace {

using bench::DecodeTimer;
using bench::Stopped;

// f32 work stands between bf16 products, as in `bench kernels`.
double flop_limit(const DecodeRound& round) {
  constexpr double kReachedByBf16 = 0.95;
  return std::max(round.f32_flops_per_s, kReachedByBf16 * round.bf16_flops_per_s);
}

template <typename Figure>
Statistics over_rounds(const std::vector<DecodeRound>& rounds, const Figure& figure) {
  std::vector<double> samples;
  for (const DecodeRound& round : rounds) samples.push_back(figure(round));
  return statistics_of(samples);
}

void announce(const DecodeBenchOptions& options, std::int64_t done, std::int64_t total,
              const std::string& next) {
  if (options.progress) options.progress(done, total, next);
}

}  // namespace

std::int64_t DecodeRow::sum(std::int64_t DecodeKind::*figure) const {
  std::int64_t total = 0;
  for (const DecodeKind& kind : kinds) total += kind.*figure;
  return total;
}

bool DecodeRow::as_predicted() const {
  for (const DecodeKind& kind : kinds) {
    if (kind.held_bytes != kind.predicted_held_bytes) return false;
    if (kind.read_bytes != kind.predicted_read_bytes) return false;
  }
  return live_bytes == sum(&DecodeKind::predicted_held_bytes);
}

double DecodeRow::flops() const {
  double flops = 0;
  for (const DecodeKind& kind : kinds) flops += kind.pair_flops;
  return flops;
}

double DecodeRow::total_bytes() const { return static_cast<double>(sum(&DecodeKind::read_bytes)); }

Statistics DecodeRow::seconds(DecodeStage stage) const {
  return over_rounds(rounds, [&](const DecodeRound& round) { return round.*stage; });
}

Statistics DecodeRow::share_of_bandwidth(DecodeStage stage) const {
  return over_rounds(rounds, [&](const DecodeRound& round) {
    return total_bytes() / (round.*stage) / round.read_bytes_per_s;
  });
}

Statistics DecodeRow::overhead() const {
  return over_rounds(rounds, [&](const DecodeRound& round) {
    return (round.plan_seconds + round.cache_seconds + round.append_seconds) / round.step_seconds;
  });
}

Statistics DecodeRow::bound() const {
  return over_rounds(rounds, [&](const DecodeRound& round) {
    return std::max(total_bytes() / round.read_bytes_per_s, flops() / flop_limit(round));
  });
}

DecodeBenchResult run_decode_bench(std::span<const DecodeProblem> problems,
                                   const DecodeBenchOptions& options) {
  bench::require("repetitions", options.repetitions, 1, 1000);
  bench::require("run_ns", options.run_ns, 1, 10'000'000'000);
  DecodeBenchResult result;
  std::deque<DecodeTimer> timers;  // which never moves its rows
  const auto num_rows = static_cast<std::int64_t>(problems.size());
  try {
    for (const DecodeProblem& problem : problems) {
      announce(options, std::ssize(timers), num_rows, "filling and checking " + problem.name);
      timers.emplace_back(problem, options);
    }
    for (std::int64_t round = 0; round < options.repetitions; ++round) {
      for (std::size_t idx = 0; idx < timers.size(); ++idx) {
        announce(options, round * num_rows + static_cast<std::int64_t>(idx),
                 num_rows * options.repetitions, timers[idx].row().problem.name);
        timers[idx].time_once(round);
      }
    }
  } catch (const Stopped&) {
    result.interrupted = true;
  }
  for (const DecodeTimer& timer : timers) {
    if (!timer.row().rounds.empty()) result.rows.push_back(timer.row());
  }
  return result;
}

}  // namespace lacuna
