#pragma once

#include <string>
#include <string_view>

#include "cli/json.h"

namespace lacuna::cli {

// An audit's document from a file that anyone may have written. Throws Error naming the file and
// the key: text that is no JSON or nested too deep, another format or version, a key that is
// missing, has another type, or a number out of range. What is returned has all that audit_text(),
// audit_page() and compare_audits() look at.
Json parse_audit(std::string_view text, const std::string& name);
Json read_audit(const std::string& path);

// Of a checked document.
std::int64_t count_at(const Json& json, const char* key);
double number_at(const Json& json, const char* key);

}  // namespace lacuna::cli
