#include "cli/audit_report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>

#include "cli/bench_figures.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/system_memory.h"

namespace lacuna::cli {
namespace {

// Its window or its full layer is not where the table has it.
LayerTable claim_of_narrower_windows(LayerTable table) {
  return with_wider_windows(std::move(table), -1);
}
LayerTable claim_of_another_full_layer(LayerTable table) {
  std::vector<Layer>& layers = table.layers;
  const Attend full = parse_attend("full", true);
  for (std::size_t idx = 1; idx < layers.size(); ++idx) {
    if ((layers[idx].attend == full) == (layers[idx - 1].attend == full)) continue;
    std::swap(layers[idx].attend, layers[idx - 1].attend);
    break;
  }
  return table;
}

struct Plant {
  const char* name;
  PlantedFaults faults;
  LayerTable (*claim)(LayerTable) = nullptr;  // the fault is what is said of the table
};
constexpr std::array<Plant, 10> kPlants = {{
    {"window-off-by-one", {}, claim_of_narrower_windows},
    {"wrong-layer", {}, claim_of_another_full_layer},
    {"masked-dense", {.masked_dense = true}},
    {"keep-all", {.keep_all = true}},
    {"leak", {.leak = true}},
    {"count-twice", {.count_twice = true}},
    {"summaries", {.summaries = true}},
    {"local-rotary", {.local_rotary = true}},
    {"one-thread", {.one_thread = true}},
    {"hidden-time", {.hidden_seconds = 2e-3}},
}};

const Plant& planted(const std::string& name) {
  std::string allowed;
  for (const Plant& plant : kPlants) {
    if (plant.name == name) return plant;
    allowed += (allowed.empty() ? "" : ", ") + std::string(plant.name);
  }
  throw Error("--plant is '" + name + "'; allowed: " + allowed);
}

void plant(AuditOptions& options, const AuditFlags& flags, const LayerTable& table) {
  if (flags.plant.empty()) return;
  const Plant& of = planted(flags.plant);
  options.bench.transformer.planted = of.faults;
  if (of.claim == nullptr) return;
  if (!flags.claim.empty()) {
    throw Error("--plant '" + flags.plant + "' makes a claim; allowed: no --claim beside it");
  }
  options.claim = of.claim(table);
  if (*options.claim != table) return;
  throw Error("--plant '" + flags.plant + "' has nothing to move in '" + to_text(table) +
              "'; allowed: a table with windows of 2 and more, or with a full layer among others");
}

LayerTable claimed_table(const AuditFlags& flags) {
  ModelFlags model = flags.runner.model;
  model.attend.clear();
  model.layers = flags.claim;
  return make_subject(model).table;
}

AuditOptions audit_options(const AuditFlags& flags) {
  AuditOptions options;
  options.prompt_tokens = flags.prompt;
  options.generate_tokens = flags.generate;
  options.quality_positions = flags.full ? flags.prompt : 1024;
  options.all_distances = flags.full;
  options.bench.transformer = transformer_options(flags.runner);
  options.bench.chunk = flags.runner.chunk;
  options.bench.repetitions = flags.repetitions;
  if (!flags.claim.empty()) options.claim = claimed_table(flags);
  return options;
}

std::vector<ModelProblem> problems_of(const std::vector<LayerTable>& tables,
                                      const AuditOptions& options) {
  std::vector<ModelProblem> problems;
  for (const LayerTable& table : tables) {
    problems.push_back({table, options.prompt_tokens, options.generate_tokens, {}});
  }
  problems.front().claim = options.claim;
  return problems;
}

std::vector<std::string> faults_of(const Audit& audit, bool strict) {
  std::vector<std::string> faults;
  for (const Verdict& verdict : verdicts_of(audit)) {
    if (verdict.holds || (verdict.kind != VerdictKind::kExact && !strict)) continue;
    faults.push_back(fmt::format("{}, {}: {}", verdict.name, verdict.table, verdict.says));
  }
  return faults;
}

}  // namespace

std::vector<std::string> audit(const AuditFlags& flags,
                               const std::function<void(const std::string&)>& print) {
  const Interrupt interrupt;
  AuditReport report;
  report.flags = flags;
  AuditOptions options = audit_options(flags);
  const ModelFlags& model_flags = flags.runner.model;
  report.runner.subject = make_subject(model_flags);
  const std::vector<LayerTable> tables =
      tables_of(report.runner.subject, model_flags, flags.against);
  plant(options, flags, tables.front());
  ThreadPool pool(flags.runner.threads);
  const Model model = load_model(report.runner, flags.runner, pool);
  report.model_file = source_file(model_flags.model);
  report.source = read_source(flags.file, flags.prompt + 1, model.tokenizer());
  options.bench.text = report.source.tokens;
  if (!flags.json) {
    print(predictions_text(
        predict_model_bench(model, problems_of(tables, options), pool, options.bench)));
  }
  ModelOptions exact_options;
  exact_options.products = DenseType::kF32;
  const Model exact(model_flags.model, exact_options, &pool);
  options.bench.stop = interrupt.token();
  options.bench.progress = Progress("audit");
  options.stage = [](const std::string& stage) {
    std::fprintf(stderr, "audit: %s\n", stage.c_str());
  };
  report.audit = run_audit(model, exact, tables, pool, options);
  report.runner.peak_memory_bytes = peak_memory_bytes();
  const Json document = audit_document(report);
  print(flags.json ? document_text(document) : audit_text(document));
  if (!flags.html.empty() && !report.audit.tables.empty()) {
    write_file(flags.html, audit_page(document));
    std::fprintf(stderr, "audit: page in %s\n", flags.html.c_str());
  }
  return faults_of(report.audit, flags.strict);
}

void add_audit_flags(CLI::App& app, AuditFlags& flags) {
  add_table_flags(app, flags.runner.model);
  add_against_flag(app, flags.against);
  app.add_option("--claim", flags.claim,
                 "file with the layer table that is said to run: what is predicted");
  add_number(app, "--prompt", flags.prompt, 2, 1 << 24, "tokens of the prompt (1024)");
  add_number(app, "--generate", flags.generate, 2, 1 << 20, "tokens of the answer (64)");
  app.add_option("--file", flags.file,
                 "text, repeated where it is short (licences of Debian's base-files)");
  app.add_flag("--full", flags.full,
               "change a token at every telling distance, likelihood of all positions");
  add_runner_flags(app, flags.runner);
  add_number(app, "--repetitions", flags.repetitions, 1, 1000, "rounds over all tables (3)");
  app.add_option("--html", flags.html, "file to write a page with pictures into");
  app.add_option("--plant", flags.plant, "run with a fault on purpose, to see it found");
  app.add_flag("--strict", flags.strict, "every verdict that does not hold ends with exit code 1");
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli
