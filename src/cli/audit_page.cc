#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "cli/audit_document.h"
#include "cli/audit_page_charts.h"
#include "cli/audit_tables.h"
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
.sum span{display:inline-block;margin-right:1.5rem}.group{padding-top:.8rem}
details p{margin:.3rem 0;white-space:normal;width:min(34rem,75vw)}td p{margin:0}
th details{font-weight:normal}
.masks{display:flex;flex-wrap:wrap;gap:1rem}.masks>*{flex:1 1 30rem;min-width:0}.masks svg{min-width:22rem}
.bars{width:6rem;margin-left:auto}.bars div{height:.4rem;background:#2f8fd8}
summary{cursor:pointer}
@media(max-width:40rem){table{font-size:.85rem}td.wide{min-width:0}th,td{padding:.2rem .3rem}.v thead{display:none}.v tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--grid)}
.v td,.v th{display:inline-block;border:0;padding:0 .6rem 0 0}.v td.wide{display:block;min-width:0}.v td.wide:last-child:not(:empty)::before{content:"next: "}}
svg{max-width:100%;min-width:30rem;height:auto;color:var(--ink)}
svg text{fill:currentColor}svg>rect:first-of-type{fill:transparent}
svg [stroke="#ddd"]{stroke:var(--grid)}svg [stroke="#444"]{stroke:var(--axis)}svg [fill="#444"]{fill:var(--axis)}
svg [fill="#000000"]{fill:currentColor}svg [stroke="#000000"]{stroke:currentColor}
)";

std::string escaped_at(const Json& json, const char* key) {
  return xml_escaped(json.at(key).get<std::string>());
}

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

// What a row's figures come from opens under its name.
std::string name_cell(const std::string& name, const std::vector<std::string>& equations) {
  std::string cell = "<th scope=\"row\"><details><summary>" + name + "</summary>";
  for (const std::string& line : equations) {
    cell += "<p><code>" + xml_escaped(line) + "</code></p>";
  }
  return cell + "</details></th>";
}

std::string row_html(const Grid& grid, std::size_t row) {
  const std::size_t first = grid.is_grouped ? 1 : 0;
  std::string html = "<tr>";
  for (std::size_t idx = first; idx < grid.columns.size(); ++idx) {
    std::string cell = xml_escaped(grid.rows[row][idx]);
    if (!grid.shares.empty() && idx > 0) {
      cell += fmt::format("<div class=\"bars\"><div style=\"width:{:.1f}%\"></div></div>",
                          100 * grid.shares[row][idx - 1]);
    }
    if (idx == first && !grid.equations.empty()) {
      html += name_cell(cell, grid.equations[row]);
    } else if (grid.columns[idx].align == Align::kRight) {
      html += number_cell(cell);
    } else {
      html += "<th scope=\"row\">" + cell + "</th>";
    }
  }
  return html + "</tr>\n";
}

std::string grid_html(const Grid& grid) {
  const std::size_t first = grid.is_grouped ? 1 : 0;
  std::string head;
  for (std::size_t idx = first; idx < grid.columns.size(); ++idx) {
    head +=
        heading(xml_escaped(grid.columns[idx].header), grid.columns[idx].align == Align::kRight);
  }
  std::string rows;
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    if (grid.is_grouped && !grid.rows[row].front().empty()) {
      rows += fmt::format("<tr><th class=\"group\" colspan=\"{}\">{}</th></tr>\n",
                          grid.columns.size() - 1, xml_escaped(grid.rows[row].front()));
    }
    rows += row_html(grid, row);
  }
  return boxed_table(head, rows);
}

std::string verdict_row(const Json& one) {
  const bool holds = one.at("holds").get<bool>();
  std::string next = escaped_at(one, "next");
  if (!one.at("cause").is_null()) {
    next = "<p>likely cause: <b>" + escaped_at(one, "cause") + "</b></p>" + next;
  }
  return fmt::format(
      "<tr><td class=\"{}\">{}</td><th scope=\"row\">{}</th><td>{}</td><td>{}</td>"
      "<td class=\"wide\">{}</td><td class=\"wide\">{}</td></tr>\n",
      holds ? "good" : "bad", holds ? "holds" : "FAILS", escaped_at(one, "name"),
      escaped_at(one, "kind"), escaped_at(one, "table"), escaped_at(one, "says"), next);
}

std::string verdicts_table(const std::string& rows) {
  return "<div class=\"v\">" +
         boxed_table(heading("", false) + heading("verdict", false) + heading("kind", false) +
                         heading("layers", false) + heading("what decided it", false) +
                         heading("next to try", false),
                     rows) +
         "</div>\n";
}

std::string verdicts_html(const Json& verdicts) {
  std::string failing;
  std::string holding;
  std::map<std::string, std::pair<int, int>> kinds;  // how many there are, and hold
  for (const Json& one : verdicts) {
    const bool holds = one.at("holds").get<bool>();
    (holds ? holding : failing) += verdict_row(one);
    auto& [all, held] = kinds[escaped_at(one, "kind")];
    ++all;
    held += holds ? 1 : 0;
  }
  std::string html = "<p class=\"sum\">";
  for (const auto& [kind, count] : kinds) {
    html +=
        fmt::format("<span class=\"{}\">{} of {} {} verdicts hold</span> ",
                    count.first == count.second ? "good" : "bad", count.second, count.first, kind);
  }
  html += "</p>\n";
  if (!failing.empty()) html += verdicts_table(failing);
  if (holding.empty()) return html;
  return html + "<details><summary>what holds, and by which number</summary>\n" +
         verdicts_table(holding) + "</details>\n";
}

std::string rotary_html(const Json& rotary) {
  if (rotary.is_null()) return "";
  return fmt::format(
      "<p>Every layer with the rotary base of the first: {:.4f} nats a token against {:.4f}, over "
      "{} tokens.</p>\n",
      number_at(rotary, "as_first_layer_nll"), number_at(rotary, "nll"),
      count_at(rotary, "positions"));
}

std::string quality_html(const Json& document) {
  const Grid grid = quality_grid(document);
  return (grid.rows.empty() ? "<p>not measured</p>\n" : grid_html(grid)) +
         rotary_html(document.at("rotary"));
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
  add("model", escaped_at(model, "name"));
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
  const auto file = [](const std::string& path, const Json& of) {
    return fmt::format("{} ({} bytes, SHA-256 <code>{}</code>)", path, count_at(of, "size_bytes"),
                       escaped_at(of, "sha256"));
  };
  add("model file", file(escaped_at(model, "source"), document.at("model_file")));
  const Json& text = document.at("text");
  if (!text.at("package").is_null()) add("text of", escaped_at(text, "package"));
  for (const Json& one : text.at("files")) {
    add(text.at("repeated").get<bool>() ? "text, repeated" : "text",
        file(escaped_at(one, "path"), one));
  }
  add("peak memory", bytes_text(count_at(document, "peak_memory_bytes")));
  return boxed_table(heading("what", false) + heading("value", false), rows);
}

std::string body_html(const Json& document) {
  if (document.at("tables").empty()) return "<p>nothing was measured</p>\n";
  const auto parts = [&](const char* key, const char* title) {
    return grid_html(parts_grid(document, key, title));
  };
  return section("Verdicts", verdicts_html(document.at("verdicts"))) +
         section("What each layer reads", masks_html(document)) +
         section("Predicted and measured", grid_html(quantities_grid(document))) +
         section("Times", grid_html(times_grid(document)) + steps_html(document)) +
         section("Attention by kind of layer", grid_html(layers_grid(document))) +
         section("Roofline", roof_html(document)) +
         section("Parts", parts("prefill_parts_seconds", "the prompt, ms") +
                              parts("step_parts_seconds", "a step, ms")) +
         section("Likelihood", quality_html(document));
}

}  // namespace

std::string audit_page(const Json& document) {
  const std::string name =
      xml_escaped(std::filesystem::path(document.at("model").at("source").get<std::string>())
                      .filename()
                      .string());
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
