#include <fmt/format.h>

#include "cli/bench_figures.h"
#include "cli/bench_model.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

std::string beside(std::int64_t measured, std::int64_t predicted) {
  return measured == predicted ? "as predicted" : fmt::format("predicted {}", predicted);
}

std::string milli_text(double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); }

std::string times_text(std::span<const ModelRow> rows) {
  Table table({{"prompt", Align::kRight},
               {"layers", Align::kLeft},
               {"first token s, p50 (p10..p90)", Align::kRight},
               {"prompt tokens/s", Align::kRight},
               {"step ms p50", Align::kRight},
               {"p90", Align::kRight},
               {"p99", Align::kRight},
               {"bytes' bound ms", Align::kRight},
               {"step over bound", Align::kRight}});
  for (const ModelRow& row : rows) {
    const Statistics first = row.first_token_seconds();
    std::vector<std::string> cells = {
        fmt::format("{}", row.problem.prompt_tokens), to_text(row.problem.table),
        spread_text(first, 1),
        fmt::format("{:.0f}", static_cast<double>(row.problem.prompt_tokens) / first.p50)};
    if (row.problem.num_steps() > 0) {
      const Statistics step = row.step_seconds();
      const double bound = row.bound_seconds().p50;
      for (const double seconds : {step.p50, step.p90, step.p99, bound}) {
        cells.push_back(milli_text(seconds));
      }
      cells.push_back(fmt::format("{:.2f}", step.p50 / bound));
    }
    cells.resize(9);
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string figures_text(std::span<const ModelRow> rows) {
  Table table({{"prompt", Align::kRight},
               {"layers", Align::kLeft},
               {"pairs executed", Align::kRight},
               {"", Align::kLeft},
               {"bytes held at the end", Align::kRight},
               {"", Align::kLeft},
               {"K and V bytes read a step", Align::kRight},
               {"", Align::kLeft},
               {"attention s", Align::kRight},
               {"a step, ms", Align::kRight}});
  for (const ModelRow& row : rows) {
    bool is_first = true;
    const std::int64_t steps = std::max<std::int64_t>(row.problem.num_steps(), 1);
    for (const ModelKind& kind : row.kinds()) {
      const ModelLayer& sum = kind.sum;
      table.add_row(
          {is_first ? fmt::format("{}", row.problem.prompt_tokens) : "",
           fmt::format("{} x {}", kind.layers.size(), sum.attend), fmt::format("{}", sum.pairs),
           beside(sum.pairs, sum.predicted_pairs), fmt::format("{}", sum.held_bytes.back()),
           beside(sum.held_bytes.back(), sum.predicted_held_bytes.back()),
           fmt::format("{}", sum.read_bytes / steps),
           beside(sum.read_bytes, sum.predicted_read_bytes),
           fmt::format("{:.3f}", kind.prefill_seconds.p50), milli_text(kind.step_seconds.p50)});
      is_first = false;
    }
  }
  return table.text() +
         "of a prompt, the last layer attends for the last token alone, whose logits are wanted\n";
}

// One line a row: the medians of its parts, and what no part covers as a share of the whole.
std::string parts_text(std::span<const ModelRow> rows, bool of_steps) {
  std::vector<Column> columns = {{of_steps ? "a step, ms" : "prompt, s", Align::kRight},
                                 {"layers", Align::kLeft}};
  for (const PassPart& part : pass_parts()) {
    columns.push_back({std::string(part.name), Align::kRight});
  }
  if (of_steps) columns.push_back({"sampling", Align::kRight});
  columns.push_back({"not in a part", Align::kRight});
  Table table(std::move(columns));
  for (const ModelRow& row : rows) {
    if (of_steps && row.problem.num_steps() == 0) continue;
    std::vector<std::string> cells = {fmt::format("{}", row.problem.prompt_tokens),
                                      to_text(row.problem.table)};
    const auto times = of_steps ? &ModelRound::step : &ModelRound::prefill;
    const double scale = of_steps ? 1e3 : 1;
    const auto add = [&](const std::function<double(const ModelRound&)>& figure) {
      cells.push_back(fmt::format("{:.3g}", scale * row.over_rounds(figure).p50));
    };
    for (const PassPart& part : pass_parts()) {
      add([&](const ModelRound& one) { return (one.*times).*part.seconds; });
    }
    if (of_steps) add([](const ModelRound& one) { return one.sampling_seconds; });
    const Statistics rest = row.over_rounds([&](const ModelRound& one) {
      const double whole = of_steps ? one.mean_step_seconds() : one.first_token_seconds;
      return 1 - ((one.*times).sum() + (of_steps ? one.sampling_seconds : 0)) / whole;
    });
    cells.push_back(share_text(rest.p50));
    table.add_row(std::move(cells));
  }
  return table.num_rows() == 0 ? "" : "\n" + table.text();
}

}  // namespace

std::string model_text(const ModelReport& report) {
  const std::vector<ModelRow>& rows = report.result.rows;
  const RunnerReport& runner = report.runner;
  std::string text = machine_text(runner.cpu);
  text += fmt::format(
      "{}; products {}, keys {}, kernels {}, {} threads; loaded in {:.2f} s; peak memory {} "
      "bytes\n",
      runner.subject.source, runner.products, runner.kv_dtype, runner.isa, runner.threads,
      runner.load_seconds, runner.peak_memory_bytes);
  if (report.result.interrupted) text += "interrupted: what was timed until then\n";
  if (rows.empty()) return text + "no row was timed\n";
  text += fmt::format("a step reads weights of {} bytes, {} in the file\n\n",
                      rows.front().weight_bytes, rows.front().file_weight_bytes);
  text += times_text(rows) + "\n" + figures_text(rows);
  return text + parts_text(rows, false) + parts_text(rows, true);
}

}  // namespace lacuna::cli
