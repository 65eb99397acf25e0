#include <fmt/format.h>

#include "cli/audit_report.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

// Documents may come from a file: audit_document.h checks their keys, names are made printable
// here.
const Json& at(const Json& json, const char* key) { return json.at(key); }
std::string text_at(const Json& json, const char* key) {
  return printable(at(json, key).get<std::string>());
}
std::int64_t count_at(const Json& json, const char* key) {
  return at(json, key).get<std::int64_t>();
}
double number_at(const Json& json, const char* key) { return at(json, key).get<double>(); }

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

// The four quantities: needed, executed or held, measured, difference.
void add_quantities(Table& table, const Json& audited) {
  const auto add = [&](const char* what, const std::string& needed, std::int64_t predicted,
                       std::int64_t measured) {
    table.add_row({what == std::string("pairs, prompt") ? text_at(audited, "table") : "", what,
                   needed, fmt::format("{}", predicted), fmt::format("{}", measured),
                   fmt::format("{}", measured - predicted)});
  };
  const auto needed = [&](const char* key) { return fmt::format("{}", count_at(audited, key)); };
  add("pairs, prompt", needed("predicted_needed_pairs"),
      count_at(audited, "predicted_executed_pairs"), count_at(audited, "executed_pairs"));
  add("pairs, steps", needed("predicted_step_needed_pairs"),
      count_at(audited, "predicted_step_executed_pairs"), count_at(audited, "step_executed_pairs"));
  add("bytes held at the end", "", count_at(audited, "predicted_held_bytes"),
      count_at(audited, "held_bytes"));
  add("bytes read, steps", "", count_at(audited, "predicted_read_bytes"),
      count_at(audited, "read_bytes"));
  for (const Json& one : at(audited, "interventions")) {
    const auto layer = [&](const char* key) {
      return at(one, key).is_null() ? "none" : fmt::format("{}", count_at(one, key));
    };
    table.add_row(
        {"",
         fmt::format("first layer, {} -> {}", count_at(one, "evidence"), count_at(one, "query")),
         at(one, "hops").is_null() ? "no path" : fmt::format("{} hop(s)", count_at(one, "hops")),
         layer("first_layer"), layer("first_change_layer"),
         at(one, "early").get<bool>() ? "EARLY" : ""});
  }
}

std::string quantities_text(const Json& tables) {
  Table table({{"layers", Align::kLeft},
               {"quantity", Align::kLeft},
               {"needed", Align::kRight},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"difference", Align::kRight}});
  for (const Json& audited : tables) add_quantities(table, audited);
  return table.text();
}

std::string times_text(const Json& tables) {
  Table table({{"layers", Align::kLeft},
               {"first token s", Align::kRight},
               {"step ms p50", Align::kRight},
               {"p90", Align::kRight},
               {"p99", Align::kRight},
               {"predicted ms", Align::kRight},
               {"attention ms", Align::kRight},
               {"nats a token", Align::kRight}});
  for (const Json& audited : tables) {
    const Json& step = at(audited, "step_seconds");
    const Json& quality = at(audited, "quality");
    const auto milli = [](double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); };
    table.add_row({text_at(audited, "table"),
                   fmt::format("{:.3f}", number_at(at(audited, "first_token_seconds"), "p50")),
                   milli(number_at(step, "p50")), milli(number_at(step, "p90")),
                   milli(number_at(step, "p99")),
                   milli(number_at(at(audited, "predicted_step_seconds"), "p50")),
                   milli(number_at(at(audited, "step_parts_seconds"), "attention")),
                   quality.is_null() ? "" : fmt::format("{:.4f}", number_at(quality, "nll"))});
  }
  return table.text();
}

std::string parts_text(const Json& tables) {
  std::vector<Column> columns = {{"a step, ms", Align::kLeft}};
  for (const Json& audited : tables) columns.push_back({text_at(audited, "table"), Align::kRight});
  Table table(std::move(columns));
  for (const auto& [part, seconds] : at(tables.front(), "step_parts_seconds").items()) {
    std::vector<std::string> cells = {part};
    for (const Json& audited : tables) {
      cells.push_back(
          fmt::format("{:.3f}", 1e3 * number_at(at(audited, "step_parts_seconds"), part.c_str())));
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string quality_text(const Json& tables) {
  if (at(tables.front(), "quality").is_null()) return "";
  std::vector<Column> columns = {{"nats a token", Align::kLeft}, {"positions", Align::kRight}};
  for (const Json& audited : tables) columns.push_back({text_at(audited, "table"), Align::kRight});
  Table table(std::move(columns));
  for (const char* kind : {"by_position", "by_distance"}) {
    const Json& buckets = at(at(tables.front(), "quality"), kind);
    for (std::size_t idx = 0; idx < buckets.size(); ++idx) {
      std::vector<std::string> cells = {
          (kind == std::string("by_position") ? "positions " : "pair last seen: ") +
              text_at(buckets[idx], "name"),
          fmt::format("{}", count_at(buckets[idx], "positions"))};
      for (const Json& audited : tables) {
        const Json& quality = at(audited, "quality");
        cells.push_back(quality.is_null() || quality.at(kind).size() <= idx
                            ? ""
                            : fmt::format("{:.4f}", number_at(quality.at(kind)[idx], "nll")));
      }
      table.add_row(std::move(cells));
    }
  }
  return "\n" + table.text();
}

}  // namespace

std::string predictions_text(const std::vector<ModelRow>& predicted) {
  std::string text = "predicted, before anything runs:\n";
  for (const ModelRow& row : predicted) {
    const ModelLayer sum = row.sum();
    text += fmt::format(
        "  {}{}\n    {} pairs executed for {} tokens, {} of them needed; {} bytes held after the "
        "prompt, {} at the end;\n    {} bytes of keys and values read in {} steps beside {} bytes "
        "of weights in each\n",
        to_text(row.problem.claim.value_or(row.problem.table)),
        row.problem.claim ? " (the claim)" : "", sum.predicted_pairs, row.problem.prompt_tokens,
        sum.predicted_needed_pairs, sum.predicted_held_bytes.front(),
        sum.predicted_held_bytes.back(), sum.predicted_read_bytes, row.problem.num_steps(),
        row.weight_bytes);
  }
  return text + "\n";
}

std::string audit_text(const Json& document) {
  const Json& tables = at(document, "tables");
  std::string text =
      fmt::format("{}; {}, {} threads, products {}, keys {}, kernels {}; text {} ({} bytes{})\n",
                  printable(text_at(at(document, "model"), "source")),
                  printable(text_at(at(document, "machine"), "cpu")), count_at(document, "threads"),
                  text_at(document, "products"), text_at(document, "kv_dtype"),
                  text_at(document, "isa"), printable(text_at(at(document, "text"), "source")),
                  count_at(at(document, "text"), "size_bytes"),
                  at(at(document, "text"), "repeated").get<bool>() ? ", repeated" : "");
  if (at(document, "interrupted").get<bool>()) text += "interrupted: what was done until then\n";
  if (tables.empty()) return text + "nothing was measured\n";
  text += "\n" + verdicts_text(at(document, "verdicts")) + "\n" + quantities_text(tables) + "\n" +
          times_text(tables) + "\n" + parts_text(tables);
  return text + quality_text(tables);
}

}  // namespace lacuna::cli
