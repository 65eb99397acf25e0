#include "cli/audit_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/audit_document.h"
#include "cli/audit_layers.h"

namespace lacuna::cli {

double best_bandwidth(const Json& table) {
  double best = 0;
  for (const Json& round : table.at("rounds")) {
    best = std::max(best, number_at(round, "read_bytes_per_s"));
  }
  return best;
}

double step_bytes(const Json& table) {
  // The shortest prediction is that of the round with the best bandwidth.
  return number_at(table.at("predicted_step_seconds"), "min") * best_bandwidth(table);
}

namespace {

struct Quantity {
  const char* name;
  const char* needed;  // key; null: what is held or read is what is needed, in whole pages or tiles
  const char* predicted;
  const char* measured;
};
constexpr Quantity kQuantities[] = {
    {"pairs, prompt", "predicted_needed_pairs", "predicted_executed_pairs", "executed_pairs"},
    {"pairs, steps", "predicted_step_needed_pairs", "predicted_step_executed_pairs",
     "step_executed_pairs"},
    {"bytes held at the end", nullptr, "predicted_held_bytes", "held_bytes"},
    {"bytes read, steps", nullptr, "predicted_read_bytes", "read_bytes"}};

std::string milli_text(double seconds, int digits) {
  return fmt::format("{:.{}f}", 1e3 * seconds, digits);
}

std::string optional_text(const Json& count) {
  return count.is_null() ? "none" : fmt::format("{}", count.get<std::int64_t>());
}

void add_quantity(Grid& grid, const Json& document, const AuditRun& run, const Quantity& quantity) {
  const std::int64_t predicted = count_at(run.table, quantity.predicted);
  const std::int64_t measured = count_at(run.table, quantity.measured);
  grid.rows.push_back(
      {"", quantity.name,
       quantity.needed ? fmt::format("{}", count_at(run.table, quantity.needed)) : "",
       fmt::format("{}", predicted), fmt::format("{}", measured),
       fmt::format("{}", measured - predicted)});
  std::vector<std::string>& lines = grid.equations.emplace_back();
  for (const char* key : {quantity.needed, quantity.predicted}) {
    if (key == nullptr) continue;
    for (std::string& line : equations_of(document, run.table, run.kv_dtype, key)) {
      lines.push_back(std::move(line));
    }
  }
  lines.push_back(fmt::format("difference = measured - predicted = {} - {} = {}", measured,
                              predicted, measured - predicted));
}

void add_intervention(Grid& grid, const Json& one) {
  const bool has_path = !one.at("best_path_weight").is_null();
  const auto hops = [&](const char* key) {
    return one.at(key).is_null() ? "no path" : fmt::format("{} hop(s)", count_at(one, key));
  };
  const std::string way =
      fmt::format("{} -> {}", count_at(one, "evidence"), count_at(one, "query"));
  grid.rows.push_back(
      {"", "first layer, " + way, hops("hops"), optional_text(one.at("first_layer")),
       optional_text(one.at("first_change_layer")), one.at("early").get<bool>() ? "EARLY" : ""});
  grid.equations.push_back(
      {"predicted = the lowest layer that ends a path of the layer table's edges from the changed "
       "token to the later one; measured = the first layer after which a bit of the later one's "
       "state differs",
       fmt::format("left of the change = max |difference| / max |state| after the last layer = "
                   "{:.3g}",
                   number_at(one, "last_change"))});
  if (!has_path) return;
  grid.rows.push_back({"", "best path's weight", hops("best_path_hops"), "",
                       fmt::format("{:.2g}", number_at(one, "best_path_weight")), ""});
  grid.equations.push_back(
      {"weight = max over paths of Π over a path's edges of the largest weight that a head of the "
       "layer gives the edge"});
}

std::vector<std::string> time_equations(const Json& table) {
  const Json& predicted = table.at("predicted_step_seconds");
  std::vector<std::string> lines = {
      fmt::format(
          "predicted = bytes of weights, keys and values of a step / bandwidth, in the best "
          "round = {:.0f} / {:.4g} = {:.4g} s; median of {} round(s) = {:.4g} s",
          step_bytes(table), best_bandwidth(table), number_at(predicted, "min"),
          count_at(predicted, "num_runs"), number_at(predicted, "p50")),
      fmt::format("step: percentiles of {} steps; first token: median of {}; attention: mean",
                  count_at(table.at("step_seconds"), "num_runs"),
                  count_at(table.at("first_token_seconds"), "num_runs"))};
  const Json& quality = table.at("quality");
  if (!quality.is_null()) {
    lines.push_back(
        fmt::format("nats a token = Σ -ln p(next token) / positions = {:.4f} / {}",
                    number_at(quality, "nll") * static_cast<double>(count_at(quality, "positions")),
                    count_at(quality, "positions")));
  }
  return lines;
}

// One kind of layers; nothing is divided by a time or a count that is 0.
void add_kind(Grid& grid, const Json& table, const Json& kind) {
  const double prompt = number_at(kind, "prefill_seconds");
  const double step = number_at(kind, "step_seconds");
  const auto pairs = static_cast<double>(count_at(kind, "executed_pairs"));
  const auto steps = static_cast<double>(count_at(table, "generate_tokens") - 1);
  const auto read = static_cast<double>(count_at(kind, "read_bytes"));
  const double whole = number_at(table.at("step_seconds"), "p50");
  const auto ratio = [](double a, double b, const char* format) {
    return b > 0 ? fmt::format(fmt::runtime(format), a / b) : std::string();
  };
  grid.rows.push_back(
      {"",
       fmt::format("{} x {}", count_at(kind, "num_layers"), kind.at("attend").get<std::string>()),
       fmt::format("{:.3f}", prompt), ratio(1e9 * prompt, pairs, "{:.3f}"), milli_text(step, 3),
       ratio(1e-9 * read, steps * step, "{:.1f}"), ratio(100 * step, whole, "{:.1f}")});
  grid.equations.push_back(
      {fmt::format("ns a pair = attention of the prompt / pairs executed = {:.4g} s / {}", prompt,
                   count_at(kind, "executed_pairs")),
       fmt::format("GB/s = bytes read / steps / attention of a step = {} / {} / {:.4g} s",
                   count_at(kind, "read_bytes"), steps, step),
       fmt::format("share = attention of a step / the step's median = {:.4g} / {:.4g} s", step,
                   whole)});
}

// A column for each run beside the first ones.
Grid grid_of_runs(std::vector<Column> columns, const std::vector<AuditRun>& runs) {
  Grid grid{std::move(columns), {}};
  for (const AuditRun& run : runs) grid.columns.push_back({run.name, Align::kRight});
  return grid;
}

}  // namespace

std::vector<AuditRun> runs_of(const Json& document) {
  std::vector<AuditRun> runs;
  const auto kv_dtype = document.at("kv_dtype").get<std::string>();
  for (const Json& table : document.at("tables")) {
    runs.push_back({table.at("table").get<std::string>(), table, kv_dtype});
  }
  const Json& int8 = document.at("int8_kv");
  if (!int8.is_null()) {
    runs.push_back({"first with int8 keys", int8, "int8"});
  }
  return runs;
}

Grid quantities_grid(const Json& document) {
  Grid grid{{{"layers", Align::kLeft},
             {"quantity", Align::kLeft},
             {"needed", Align::kRight},
             {"predicted", Align::kRight},
             {"measured", Align::kRight},
             {"difference", Align::kRight}},
            {}};
  for (const AuditRun& run : runs_of(document)) {
    const std::size_t first = grid.rows.size();
    for (const Quantity& quantity : kQuantities) add_quantity(grid, document, run, quantity);
    for (const Json& one : run.table.at("interventions")) add_intervention(grid, one);
    grid.rows[first].front() = run.name;
  }
  grid.is_grouped = true;
  return grid;
}

Grid times_grid(const Json& document) {
  Grid grid{{{"layers", Align::kLeft},
             {"first token s", Align::kRight},
             {"step ms p50", Align::kRight},
             {"p90", Align::kRight},
             {"p99", Align::kRight},
             {"predicted ms", Align::kRight},
             {"attention ms", Align::kRight},
             {"nats a token", Align::kRight}},
            {}};
  for (const AuditRun& run : runs_of(document)) {
    const Json& step = run.table.at("step_seconds");
    const Json& predicted = run.table.at("predicted_step_seconds");
    const Json& quality = run.table.at("quality");
    grid.rows.push_back(
        {run.name, fmt::format("{:.3f}", number_at(run.table.at("first_token_seconds"), "p50")),
         milli_text(number_at(step, "p50"), 2), milli_text(number_at(step, "p90"), 2),
         milli_text(number_at(step, "p99"), 2), milli_text(number_at(predicted, "p50"), 2),
         milli_text(number_at(run.table.at("step_parts_seconds"), "attention"), 2),
         quality.is_null() ? "" : fmt::format("{:.4f}", number_at(quality, "nll"))});
    grid.equations.push_back(time_equations(run.table));
  }
  return grid;
}

Grid layers_grid(const Json& document) {
  Grid grid{{{"layers", Align::kLeft},
             {"attention of", Align::kLeft},
             {"prompt s", Align::kRight},
             {"ns a pair", Align::kRight},
             {"a step ms", Align::kRight},
             {"GB/s", Align::kRight},
             {"% of a step", Align::kRight}},
            {}};
  for (const AuditRun& run : runs_of(document)) {
    const std::size_t first = grid.rows.size();
    for (const Json& kind : run.table.at("kinds")) add_kind(grid, run.table, kind);
    if (grid.rows.size() > first) grid.rows[first].front() = run.name;
  }
  grid.is_grouped = true;
  return grid;
}

Grid parts_grid(const Json& document, const char* key, const char* title) {
  const std::vector<AuditRun> runs = runs_of(document);
  Grid grid = grid_of_runs({{title, Align::kLeft}}, runs);
  double longest = 0;
  for (const auto& [part, first] : runs.front().table.at(key).items()) {
    std::vector<std::string>& cells = grid.rows.emplace_back(std::vector{part});
    std::vector<double>& seconds = grid.shares.emplace_back();
    for (const AuditRun& run : runs) {
      seconds.push_back(number_at(run.table.at(key), part.c_str()));
      longest = std::max(longest, seconds.back());
      cells.push_back(milli_text(seconds.back(), 3));
    }
  }
  for (std::vector<double>& row : grid.shares) {
    for (double& share : row) share = longest > 0 ? std::clamp(share / longest, 0.0, 1.0) : 0;
  }
  return grid;
}

Grid quality_grid(const Json& document) {
  std::vector<AuditRun> runs;
  for (AuditRun& run : runs_of(document)) {
    if (!run.table.at("quality").is_null()) runs.push_back(std::move(run));
  }
  Grid grid = grid_of_runs({{"nats a token", Align::kLeft}, {"positions", Align::kRight}}, runs);
  if (document.at("tables").front().at("quality").is_null()) return grid;
  const Json& own = runs.front().table.at("quality");
  for (const auto& [kind, title] :
       {std::pair("by_position", "positions "), std::pair("by_distance", "pair last seen: ")}) {
    for (std::size_t idx = 0; idx < own.at(kind).size(); ++idx) {
      const Json& bucket = own.at(kind)[idx];
      std::vector<std::string>& cells =
          grid.rows.emplace_back(std::vector{title + bucket.at("name").get<std::string>(),
                                             fmt::format("{}", count_at(bucket, "positions"))});
      for (const AuditRun& run : runs) {
        const Json& buckets = run.table.at("quality").at(kind);
        cells.push_back(idx < buckets.size() ? fmt::format("{:.4f}", number_at(buckets[idx], "nll"))
                                             : "");
      }
    }
  }
  return grid;
}

}  // namespace lacuna::cli
