#include <fmt/format.h>

#include "cli/audit_document.h"
#include "cli/audit_report.h"
#include "cli/audit_tables.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

// Documents may come from a file: audit_document.h checks their keys, names are made printable
// here and in tables.
const Json& at(const Json& json, const char* key) { return json.at(key); }
std::string text_at(const Json& json, const char* key) {
  return printable(at(json, key).get<std::string>());
}

std::string verdicts_text(const Json& verdicts) {
  std::string text;
  for (const Json& verdict : verdicts) {
    const bool holds = at(verdict, "holds").get<bool>();
    text +=
        fmt::format("{} {} ({}), {}: {}\n", holds ? "holds" : "FAILS", text_at(verdict, "name"),
                    text_at(verdict, "kind"), text_at(verdict, "table"), text_at(verdict, "says"));
    if (holds) continue;
    if (!at(verdict, "cause").is_null()) {
      text += fmt::format("      likely cause: {}\n", text_at(verdict, "cause"));
    }
    text += fmt::format("      next: {}\n", text_at(verdict, "next"));
  }
  return text;
}

std::string grid_text(const Grid& grid) {
  std::vector<Column> columns = grid.columns;
  for (Column& column : columns) column.header = printable(column.header);
  Table table(std::move(columns));
  for (const std::vector<std::string>& row : grid.rows) table.add_row(row);
  return table.text();
}

std::string head_text(const Json& document) {
  const Json& text = at(document, "text");
  std::string head = fmt::format(
      "{} ({} bytes, SHA-256 {})\n{}, {} threads, products {}, keys {}, kernels {}\n",
      text_at(at(document, "model"), "source"), count_at(at(document, "model_file"), "size_bytes"),
      text_at(at(document, "model_file"), "sha256"), text_at(at(document, "machine"), "cpu"),
      count_at(document, "threads"), text_at(document, "products"), text_at(document, "kv_dtype"),
      text_at(document, "isa"));
  head += fmt::format("loaded in {:.2f} s; peak memory of the process {} bytes\n",
                      number_at(document, "load_seconds"), count_at(document, "peak_memory_bytes"));
  head += "text" + std::string(at(text, "repeated").get<bool>() ? ", repeated" : "");
  if (!at(text, "package").is_null()) head += " of " + text_at(text, "package");
  head += ":\n";
  for (const Json& file : at(text, "files")) {
    head += fmt::format("  {} ({} bytes, SHA-256 {})\n", text_at(file, "path"),
                        count_at(file, "size_bytes"), text_at(file, "sha256"));
  }
  return head;
}

}  // namespace

std::string predictions_text(const std::vector<ModelRow>& predicted) {
  std::string text = "predicted, before anything runs:\n";
  for (const ModelRow& row : predicted) {
    const ModelLayer sum = row.sum();
    text += fmt::format(
        "  {}{}\n    {} pairs executed for {} tokens, in the last layer for the last one alone, {} "
        "of them needed;\n    {} bytes held after the prompt, {} at the end;\n    {} bytes of keys "
        "and values read in {} steps beside {} bytes of weights in each\n",
        to_text(row.problem.claim.value_or(row.problem.table)),
        row.problem.claim ? " (the claim)" : "", sum.predicted_pairs, row.problem.prompt_tokens,
        sum.predicted_needed_pairs, sum.predicted_held_bytes.front(),
        sum.predicted_held_bytes.back(), sum.predicted_read_bytes, row.problem.num_steps(),
        row.weight_bytes);
  }
  return text + "\n";
}

std::string audit_text(const Json& document) {
  std::string text = head_text(document);
  if (at(document, "interrupted").get<bool>()) text += "interrupted: what was done until then\n";
  if (at(document, "tables").empty()) return text + "nothing was measured\n";
  text += "\n" + verdicts_text(at(document, "verdicts")) + "\n" +
          grid_text(quantities_grid(document)) + "\n" + grid_text(times_grid(document)) + "\n" +
          grid_text(layers_grid(document)) + "\n" +
          grid_text(parts_grid(document, "step_parts_seconds", "a step, ms"));
  const Grid quality = quality_grid(document);
  return quality.rows.empty() ? text : text + "\n" + grid_text(quality);
}

}  // namespace lacuna::cli
