#include <fmt/format.h>

#include "cli/audit_document.h"
#include "cli/report.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

const Json* table_named(const Json& document, const std::string& name) {
  for (const Json& table : document.at("tables")) {
    if (table.at("table") == name) return &table;
  }
  return nullptr;
}

std::string shown(const Json& value) {
  return value.is_string() ? printable(value.get<std::string>()) : value.dump();
}

// What makes two runs hard to hold against each other is said before any figure.
std::string unlike_text(const Json& a, const Json& b) {
  std::string text;
  const auto look = [&](const char* group, const char* key) {
    const Json& left = *group == '\0' ? a.at(key) : a.at(group).at(key);
    const Json& right = *group == '\0' ? b.at(key) : b.at(group).at(key);
    if (left != right)
      text += fmt::format("differs: {}: {} | {}\n", key, shown(left), shown(right));
  };
  look("model", "source");
  look("model", "name");
  for (const char* key : {"prompt_tokens", "generate_tokens", "chunk_tokens", "page_size"}) {
    look("request", key);
  }
  look("model_file", "sha256");
  look("text", "files");
  look("machine", "cpu");
  for (const char* key : {"threads", "products", "kv_dtype", "isa"}) look("", key);
  const auto alone = [&](const Json& one, const Json& other, const char* name) {
    for (const Json& table : one.at("tables")) {
      if (table_named(other, table.at("table").get<std::string>()) != nullptr) continue;
      text += fmt::format("only in {}: {}\n", name, shown(table.at("table")));
    }
  };
  alone(a, b, "A");
  alone(b, a, "B");
  return text;
}

void add_exact(Table& rows, const std::string& name, const Json& a, const Json& b) {
  for (const char* key :
       {"executed_pairs", "needed_pairs", "step_executed_pairs", "held_bytes", "read_bytes"}) {
    const auto left = a.at(key).get<std::int64_t>();
    const auto right = b.at(key).get<std::int64_t>();
    rows.add_row({name, key, fmt::format("{}", left), fmt::format("{}", right),
                  left == right ? "none" : fmt::format("{:+}", right - left)});
  }
}

// Spreads that overlap are no difference.
void add_time(Table& rows, const std::string& name, const char* key, const Json& a, const Json& b) {
  const auto at = [key](const Json& table, const char* part) {
    return table.at(key).at(part).get<double>();
  };
  const auto spread = [&](const Json& table) {
    return fmt::format("{:.3f} ms ({:.3f}..{:.3f})", 1e3 * at(table, "p50"), 1e3 * at(table, "p10"),
                       1e3 * at(table, "p90"));
  };
  const bool overlap = at(a, "p10") <= at(b, "p90") && at(b, "p10") <= at(a, "p90");
  const auto is_single = [key](const Json& table) {
    return count_at(table.at(key), "num_runs") < 2;
  };
  std::string difference = "none";
  if (is_single(a) || is_single(b)) {
    difference = "not known, one run";
  } else if (!overlap && at(a, "p50") > 0) {
    difference = fmt::format("{:.3f} of A's", at(b, "p50") / at(a, "p50"));
  } else if (!overlap) {
    difference = "A has no time";
  }
  rows.add_row({name, key, spread(a), spread(b), difference});
}

void add_quality(Table& rows, const std::string& name, const Json& a, const Json& b) {
  if (a.at("quality").is_null() || b.at("quality").is_null()) return;
  const double left = a.at("quality").at("nll").get<double>();
  const double right = b.at("quality").at("nll").get<double>();
  rows.add_row({name, "nats a token", fmt::format("{:.4f}", left), fmt::format("{:.4f}", right),
                left == right ? "none" : fmt::format("{:+.4f}", right - left)});
}

}  // namespace

std::string compare_audits(const Json& a, const Json& b) {
  Table rows({{"layers", Align::kLeft},
              {"figure", Align::kLeft},
              {"A", Align::kRight},
              {"B", Align::kRight},
              {"difference", Align::kRight}});
  for (const Json& left : a.at("tables")) {
    const std::string name = left.at("table").get<std::string>();
    const Json* right = table_named(b, name);
    if (right == nullptr) continue;
    add_exact(rows, name, left, *right);
    add_time(rows, name, "first_token_seconds", left, *right);
    add_time(rows, name, "step_seconds", left, *right);
    add_quality(rows, name, left, *right);
  }
  const std::string unlike = unlike_text(a, b);
  const std::string head = unlike + (unlike.empty() ? "" : "\n");
  if (rows.num_rows() == 0) return head + "no layer table stands in both\n";
  return head + rows.text() +
         "times: none where p10..p90 of the two overlap, else B's median over A's; of one run the "
         "noise is not known\n";
}

}  // namespace lacuna::cli
