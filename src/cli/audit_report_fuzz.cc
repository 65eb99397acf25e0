// libFuzzer: any bytes as an audit's document end in a text, a page and a comparison, or in one
// Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/audit_document.h"
#include "cli/audit_report.h"
#include "cli/report.h"
#include "lacuna/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lacuna::cli::Json document =
        lacuna::cli::parse_audit({reinterpret_cast<const char*>(data), size}, "fuzz");
    lacuna::cli::audit_text(document);
    lacuna::cli::compare_audits(document, document);
    if (lacuna::cli::audit_page(document).find("<script") != std::string::npos) std::abort();
  } catch (const lacuna::Error&) {
  }
  return 0;
}
