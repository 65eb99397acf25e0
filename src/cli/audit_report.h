#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/audit_source.h"
#include "cli/json.h"
#include "cli/runner.h"
#include "lacuna/audit.h"
#include "lacuna/verdicts.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed.
struct AuditFlags {
  RunnerFlags runner;
  std::vector<std::string> against;  // further tables, as text
  std::string claim;                 // file with the table that is said to run
  std::string file;                  // the text; "": licences of Debian's base-files
  std::int64_t prompt = 1024;
  std::int64_t generate = 64;
  bool full = false;  // all distances, and the likelihood of all positions
  std::int64_t repetitions = 3;
  std::string html;   // file for the page; "": none
  std::string plant;  // a fault on purpose, by name
  bool strict = false;
  bool json = false;
};

void add_audit_flags(CLI::App& app, AuditFlags& flags);

struct AuditReport {
  AuditFlags flags;
  RunnerReport runner;
  SourceFile model_file;
  AuditSource source;
  Audit audit;
};

// With the keys of docs/schema/audit.schema.json: all that a report is made of.
Json audit_document(const AuditReport& report);
// A report for people, from such a document alone.
std::string audit_text(const Json& document);
// What is predicted before anything runs.
std::string predictions_text(const std::vector<ModelRow>& predicted);

// Predicts, measures, judges and prints; returns the faults: each exact verdict that does not hold,
// and with --strict the others too. Progress goes to the standard error stream.
std::vector<std::string> audit(const AuditFlags& flags,
                               const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli
