#include "cli/report.h"

#include <CLI/CLI.hpp>

#include "cli/audit_document.h"
#include "cli/audit_report.h"
#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna::cli {

void add_report_flags(CLI::App& app, ReportFlags& flags) {
  app.add_option("FILE", flags.file, "what `lacuna audit --json` printed");
  app.add_option("--html", flags.html, "file to write the page into");
  app.add_option("--compare", flags.compare, "two such files, set side by side")->expected(2);
}

void report(const ReportFlags& flags, const std::function<void(const std::string&)>& print) {
  if (!flags.compare.empty()) {
    if (!flags.file.empty() || !flags.html.empty()) {
      throw Error("--compare stands beside FILE or --html; allowed: --compare A B alone");
    }
    return print(compare_audits(read_audit(flags.compare[0]), read_audit(flags.compare[1])));
  }
  if (flags.file.empty()) throw Error("FILE is missing; allowed: FILE, or --compare A B");
  const Json document = read_audit(flags.file);
  const std::string text = audit_text(document);
  if (!flags.html.empty()) write_file(flags.html, audit_page(document));
  print(text);
}

}  // namespace lacuna::cli
