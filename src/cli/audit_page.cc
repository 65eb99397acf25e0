#include <fmt/format.h>

#include <algorithm>

#include "cli/audit_page_charts.h"
#include "cli/report.h"
#include "lacuna/quantity.h"
#include "lacuna/svg.h"

namespace lacuna::cli {
namespace {

// Charts carry their colours as attributes, which rules override: one place for both modes.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--grid:#ddd;--axis:#444;--good:#0a6b3d;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--paper:#16181b;--grid:#3a3d42;--axis:#9aa0a6;--good:#6fd49b;--bad:#ff8a80}
svg [fill="#0072b2"]{fill:#2f8fd8}svg [stroke="#0072b2"]{stroke:#2f8fd8}
svg [fill="#56b4e9"]{fill:#a6dcff}svg [stroke="#56b4e9"]{stroke:#a6dcff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;font:16px/1.5 sans-serif;color:var(--ink);background:var(--paper);overflow-wrap:anywhere}
.box{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--grid);text-align:left;vertical-align:top;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.wide{white-space:normal;min-width:18rem}
.good{color:var(--good);font-weight:bold}.bad{color:var(--bad);font-weight:bold}
.bar{height:.4rem;background:#2f8fd8}
summary{cursor:pointer}
@media(max-width:40rem){.v thead{display:none}.v tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--grid)}
.v td,.v th{display:inline-block;border:0;padding:0 .6rem 0 0}.v td.wide{display:block;min-width:0}}
svg{max-width:100%;min-width:34rem;height:auto;color:var(--ink)}
svg text{fill:currentColor}svg>rect:first-of-type{fill:transparent}
svg [stroke="#ddd"]{stroke:var(--grid)}svg [stroke="#444"]{stroke:var(--axis)}svg [fill="#444"]{fill:var(--axis)}
svg [fill="#000000"]{fill:currentColor}svg [stroke="#000000"]{stroke:currentColor}
)";

std::string escaped_at(const Json& json, const char* key) {
  return xml_escaped(json.at(key).get<std::string>());
}
std::int64_t count_at(const Json& json, const char* key) {
  return json.at(key).get<std::int64_t>();
}
double number_at(const Json& json, const char* key) { return json.at(key).get<double>(); }

std::string section(const char* title, const std::string& body) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", title, body);
}
std::string heading(const std::string& text, bool is_number) {
  return fmt::format("<th scope=\"col\"{}>{}</th>", is_number ? " class=\"n\"" : "", text);
}
std::string number_cell(const std::string& text) { return "<td class=\"n\">" + text + "</td>"; }
std::string boxed_table(const std::string& head, const std::string& rows) {
  return "<div class=\"box\"><table>\n<thead><tr>" + head + "</tr></thead>\n<tbody>\n" + rows +
         "</tbody>\n</table></div>\n";
}

std::string verdicts_html(const Json& verdicts) {
  std::string failing;
  std::string holding;
  for (const Json& one : verdicts) {
    const bool holds = one.at("holds").get<bool>();
    std::string row = fmt::format(
        "<tr><td class=\"{}\">{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td>"
        "<td class=\"wide\">{}</td><td class=\"wide\">{}</td></tr>\n",
        holds ? "good" : "bad", holds ? "holds" : "FAILS", escaped_at(one, "name"),
        escaped_at(one, "kind"), escaped_at(one, "table"), escaped_at(one, "says"),
        escaped_at(one, "next"));
    (holds ? holding : failing) += row;
  }
  const std::string head = heading("", false) + heading("verdict", false) + heading("kind", false) +
                           heading("layers", false) + heading("what decided it", false) +
                           heading("next to try", false);
  return "<div class=\"v\">" + boxed_table(head, failing + holding) + "</div>\n";
}

// A figure's derivation: what is predicted from the layers alone, and what was counted.
std::string derivation(const Json& table, const char* predicted, const char* measured) {
  std::string terms;
  std::int64_t sum = 0;
  for (const Json& kind : table.at("kinds")) {
    terms += fmt::format("{}{} ({} × {})", terms.empty() ? "" : " + ", count_at(kind, predicted),
                         count_at(kind, "num_layers"), escaped_at(kind, "attend"));
    sum += count_at(kind, predicted);
  }
  return fmt::format(
      "<p><code>{} = Σ over kinds of layer = {} = {}</code></p>"
      "<p><code>difference = {} - {} = {} - {} = {}</code></p>",
      predicted, terms, sum, measured, predicted, count_at(table, measured),
      count_at(table, predicted), count_at(table, measured) - count_at(table, predicted));
}

struct Quantity {
  const char* name;
  const char* needed;  // key, or null where the document has none
  const char* predicted;
  const char* measured;
};
constexpr Quantity kQuantities[] = {
    {"pairs, prompt", "predicted_needed_pairs", "predicted_executed_pairs", "executed_pairs"},
    {"pairs, steps", "predicted_step_needed_pairs", "predicted_step_executed_pairs",
     "step_executed_pairs"},
    {"bytes held at the end", nullptr, "predicted_held_bytes", "held_bytes"},
    {"bytes read, steps", nullptr, "predicted_read_bytes", "read_bytes"}};

std::string quantity_row(const Json& table, const Quantity& quantity) {
  const std::int64_t predicted = count_at(table, quantity.predicted);
  const std::int64_t measured = count_at(table, quantity.measured);
  return "<tr><td>" + escaped_at(table, "table") + "</td><th scope=\"row\"><details><summary>" +
         quantity.name + "</summary>" + derivation(table, quantity.predicted, quantity.measured) +
         "</details></th>" +
         number_cell(quantity.needed ? fmt::format("{}", count_at(table, quantity.needed))
                                     : std::string(kNoFigure)) +
         number_cell(fmt::format("{}", predicted)) + number_cell(fmt::format("{}", measured)) +
         number_cell(fmt::format("{}", measured - predicted)) + "</tr>\n";
}

std::string optional_text(const Json& value) {
  return value.is_null() ? "none" : fmt::format("{}", value.get<std::int64_t>());
}

std::string hops_rows(const Json& table) {
  std::string rows;
  for (const Json& one : table.at("interventions")) {
    rows +=
        fmt::format("<tr><td>{}</td><th scope=\"row\">first layer, {} → {}</th>{}{}{}{}</tr>\n",
                    escaped_at(table, "table"), count_at(one, "evidence"), count_at(one, "query"),
                    number_cell(optional_text(one.at("hops")) + " hop(s)"),
                    number_cell(optional_text(one.at("first_layer"))),
                    number_cell(optional_text(one.at("first_change_layer"))),
                    number_cell(one.at("early").get<bool>()
                                    ? "EARLY"
                                    : fmt::format("{:.2e} left", number_at(one, "last_change"))));
  }
  return rows;
}

std::string quantities_html(const Json& tables) {
  std::string rows;
  for (const Json& table : tables) {
    for (const Quantity& quantity : kQuantities) rows += quantity_row(table, quantity);
    rows += hops_rows(table);
  }
  return boxed_table(heading("layers", false) + heading("quantity", false) +
                         heading("needed", true) + heading("predicted", true) +
                         heading("measured", true) + heading("difference", true),
                     rows);
}

std::string names_head(const Json& tables, const char* first) {
  std::string head = heading(first, false);
  for (const Json& table : tables) head += heading(escaped_at(table, "table"), true);
  return head;
}

std::string parts_html(const Json& tables, const char* key, const char* title) {
  double longest = 0;
  for (const Json& table : tables) {
    for (const auto& [part, seconds] : table.at(key).items()) {
      longest = std::max(longest, seconds.get<double>());
    }
  }
  std::string rows;
  for (const auto& [part, first] : tables.front().at(key).items()) {
    rows += "<tr><th scope=\"row\">" + xml_escaped(part) + "</th>";
    for (const Json& table : tables) {
      const double seconds = table.at(key).at(part).get<double>();
      const double share = longest > 0 ? std::clamp(seconds / longest, 0.0, 1.0) : 0;
      rows += number_cell(fmt::format("{:.3f}<div class=\"bar\" style=\"width:{:.1f}%\"></div>",
                                      1e3 * seconds, 100 * share));
    }
    rows += "</tr>\n";
  }
  return fmt::format("<h3>{}</h3>\n", title) + boxed_table(names_head(tables, "ms"), rows);
}

std::string quality_html(const Json& tables) {
  if (tables.front().at("quality").is_null()) return "<p>not measured</p>\n";
  std::string rows;
  for (const char* kind : {"by_position", "by_distance"}) {
    const Json& buckets = tables.front().at("quality").at(kind);
    for (std::size_t idx = 0; idx < buckets.size(); ++idx) {
      rows += fmt::format("<tr><th scope=\"row\">{} {} ({} positions)</th>",
                          kind == std::string("by_position") ? "positions" : "pair last seen:",
                          escaped_at(buckets[idx], "name"), count_at(buckets[idx], "positions"));
      for (const Json& table : tables) {
        const Json& quality = table.at("quality");
        const bool has = !quality.is_null() && idx < quality.at(kind).size();
        rows += number_cell(has ? fmt::format("{:.4f}", number_at(quality.at(kind)[idx], "nll"))
                                : std::string(kNoFigure));
      }
      rows += "</tr>\n";
    }
  }
  return boxed_table(names_head(tables, "nats a token"), rows);
}

std::string facts_html(const Json& document) {
  const Json& model = document.at("model");
  const Json& request = document.at("request");
  const Json& machine = document.at("machine");
  std::string rows;
  const auto add = [&](const char* name, const std::string& value) {
    rows +=
        fmt::format("<tr><th scope=\"row\">{}</th><td class=\"wide\">{}</td></tr>\n", name, value);
  };
  add("model", escaped_at(model, "source") + ", " + escaped_at(model, "name"));
  add("layers", fmt::format("{}", count_at(model, "num_layers")));
  add("machine", fmt::format("{}, {} CPU(s), {} thread(s)", escaped_at(machine, "cpu"),
                             count_at(machine, "num_allowed_cpus"), count_at(document, "threads")));
  add("arithmetic", escaped_at(document, "products") + " products, keys " +
                        escaped_at(document, "kv_dtype") + ", kernels " +
                        escaped_at(document, "isa"));
  add("request", fmt::format("{} tokens, {} generated, {} rounds, chunks of {}, pages of {}",
                             count_at(request, "prompt_tokens"),
                             count_at(request, "generate_tokens"), count_at(request, "repetitions"),
                             count_at(request, "chunk_tokens"), count_at(request, "page_size")));
  add("text", fmt::format("{} ({} bytes)", escaped_at(document.at("text"), "source"),
                          count_at(document.at("text"), "size_bytes")));
  add("peak memory", bytes_text(count_at(document, "peak_memory_bytes")));
  return boxed_table(heading("what", false) + heading("value", false), rows);
}

std::string body_html(const Json& document) {
  const Json& tables = document.at("tables");
  if (tables.empty()) return "<p>nothing was measured</p>\n";
  return section("Verdicts", verdicts_html(document.at("verdicts"))) +
         section("What each layer reads", masks_html(document)) +
         section("Predicted and measured", quantities_html(tables)) +
         section("Steps", steps_html(tables)) + section("Roofline", roof_html(tables)) +
         section("Parts", parts_html(tables, "prefill_parts_seconds", "Prompt") +
                              parts_html(tables, "step_parts_seconds", "A step")) +
         section("Likelihood", quality_html(tables));
}

}  // namespace

std::string audit_page(const Json& document) {
  const std::string name = escaped_at(document.at("model"), "source");
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>Audit "
         "of " +
         name + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>Audit of " + name +
         "</h1>\n" +
         (document.at("interrupted").get<bool>() ? "<p>Interrupted: what was done until then.</p>\n"
                                                 : "") +
         body_html(document) + section("Model, machine and request", facts_html(document)) +
         "</body>\n</html>\n";
}

}  // namespace lacuna::cli
