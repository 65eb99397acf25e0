#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
#include "lacuna/table.h"

namespace lacuna::cli {

// The tables of figures that an audit's text and its page share, from a checked document.

// What ran: a layer table with its keys and values in one dtype.
struct AuditRun {
  std::string name;
  const Json& table;
  std::string kv_dtype;
};
// The tables, and last the first one again with int8 keys and values where it ran.
std::vector<AuditRun> runs_of(const Json& document);

// The probe's, of all rounds; and the bytes that the prediction of a step divides by it: weights,
// and keys and values.
double best_bandwidth(const Json& table);
double step_bytes(const Json& table);

struct Grid {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::vector<std::string>> equations = {};  // [rows] lines that end in its figures
  bool is_grouped = false;  // the first column is the title of the rows from there on
  std::vector<std::vector<double>> shares = {};  // [rows][runs] of the largest number
};

// Needed, executed or held, measured, and their difference.
Grid quantities_grid(const Json& document);
Grid times_grid(const Json& document);
// Attention of layers that read alike: kernel (a pair, a byte), layers, and their share of a step.
Grid layers_grid(const Json& document);
// `key`: step_parts_seconds or prefill_parts_seconds.
Grid parts_grid(const Json& document, const char* key, const char* title);
// No rows where the first table has no quality.
Grid quality_grid(const Json& document);

}  // namespace lacuna::cli
