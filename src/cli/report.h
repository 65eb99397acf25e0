#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/json.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lacuna::cli {

// Of a document that is an audit's own, or that parse_audit() has checked.

// One page in HTML with its pictures inline; nothing in it is loaded from elsewhere.
std::string audit_page(const Json& document);
// Two runs side by side: what is unlike, then the figures of each table that stands in both.
std::string compare_audits(const Json& a, const Json& b);

struct ReportFlags {
  std::string file;
  std::string html;
  std::vector<std::string> compare;  // two files
};
void add_report_flags(CLI::App& app, ReportFlags& flags);
void report(const ReportFlags& flags, const std::function<void(const std::string&)>& print);

}  // namespace lacuna::cli
