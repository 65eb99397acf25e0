#include "cli/capacity_report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "cli/json.h"
#include "cli/text.h"
#include "lacuna/capacity.h"
#include "lacuna/error.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

// Digits with an optional fraction and nothing else.
std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (status != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

double parse_number(std::string_view text, std::string_view what, double min, double max) {
  const std::optional<double> value = read_number(text);
  if (!value || *value < min || *value > max) {
    throw Error(fmt::format("{} is '{}'; allowed: numbers {}..{}", what, text, min, max));
  }
  return *value;
}

// "48GiB", "1.5e…" not: digits, an optional fraction, and a unit.
std::int64_t parse_bytes(const std::string& text, const std::string& what) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr double kKi = 1024;
  static constexpr Unit kUnits[] = {{"KiB", kKi},
                                    {"MiB", kKi * kKi},
                                    {"GiB", kKi * kKi * kKi},
                                    {"TiB", kKi * kKi * kKi * kKi},
                                    {"kB", 1e3},
                                    {"MB", 1e6},
                                    {"GB", 1e9},
                                    {"TB", 1e12},
                                    {"B", 1}};
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::string_view number =
        std::string_view(text).substr(0, text.size() - unit.name.size());
    const std::optional<double> value = read_number(number);
    if (value && *value >= 0 && *value * unit.bytes < 0x1p62) {
      return static_cast<std::int64_t>(*value * unit.bytes);
    }
    break;
  }
  throw Error(what + " is '" + text +
              "'; allowed: a number below 2^62 bytes with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB");
}

struct CapacityReport {
  Subject subject;
  std::int64_t budget_bytes = 0;
  std::int64_t requests = 1;
  std::vector<std::int64_t> lengths;
  KvDtype kv_dtype;
  std::optional<Device> hardware;
  std::vector<Capacity> policies;
  std::optional<LargestWindow> window;
  std::vector<Lever> levers;
  Policy planned;  // of the window and the levers
  std::vector<std::string> notes;
};

std::vector<std::int64_t> observed_lengths(const CapacityFlags& flags) {
  if (!flags.lengths.empty() && flags.prompt) {
    throw Error("--lengths is given beside --prompt; allowed: one way to say lengths");
  }
  if (!flags.lengths.empty()) return read_lengths(flags.lengths);
  if (flags.prompt) return {*flags.prompt};
  return {};
}

std::optional<std::int64_t> weight_bytes_of(const CapacityFlags& flags) {
  if (!flags.weight_bytes.empty()) return parse_bytes(flags.weight_bytes, "--weight-bytes");
  // A GGUF file is its weights, but for a small header.
  if (flags.model.model.ends_with(".gguf")) {
    return static_cast<std::int64_t>(std::filesystem::file_size(flags.model.model));
  }
  return std::nullopt;
}

std::optional<double> seconds_of(const std::string& text, const std::string& what) {
  if (text.empty()) return std::nullopt;
  return parse_number(text, what, 1e-9, 1e9);
}

WindowQuery window_query(const CapacityFlags& flags, const CapacityReport& report,
                         CapacityQuery query) {
  WindowQuery window;
  window.capacity = std::move(query);
  window.ttft_seconds = seconds_of(flags.ttft, "--ttft");
  window.tpot_seconds = seconds_of(flags.tpot, "--tpot");
  if ((window.ttft_seconds || window.tpot_seconds) && !report.hardware) {
    throw Error("--ttft and --tpot are times on a device; --hardware is missing");
  }
  if (report.hardware) {
    window.flops_per_s = peak_flops_per_s(*report.hardware);
    window.bandwidth_bytes_per_s = report.hardware->bandwidth_bytes_per_s;
  }
  window.weight_bytes = weight_bytes_of(flags);
  return window;
}

CapacityReport make_report(const CapacityFlags& flags) {
  CapacityReport report;
  report.subject = make_subject(flags.model);
  if (flags.memory_budget.empty()) {
    throw Error("--memory-budget is missing; allowed: a size such as 48GiB");
  }
  report.budget_bytes = parse_bytes(flags.memory_budget, "--memory-budget");
  report.requests = flags.requests;
  report.lengths = observed_lengths(flags);
  report.kv_dtype = kv_dtype(flags.kv_dtype);
  report.hardware = hardware_of(flags.hardware, flags.threads);
  CapacityQuery query{.budget_bytes = report.budget_bytes,
                      .requests = flags.requests,
                      .lengths = report.lengths,
                      .kv_dtype = report.kv_dtype,
                      .policy = {}};
  if (!flags.margin.empty()) query.margin_share = parse_number(flags.margin, "--margin", 0, 0.99);
  for (const Policy& policy : policies_of(flags.policies, flags.page_size, 1)) {
    query.policy = policy;
    try {
      report.policies.push_back(
          lacuna::capacity(report.subject.table, report.subject.shape, query));
    } catch (const Error& error) {  // a policy that cannot serve this table is an answer
      report.notes.push_back(error.what());
    }
    if (report.planned.name.empty() || policy.name == "paged") report.planned = policy;
  }
  query.policy = report.planned;
  if (report.subject.table.causal) {
    report.levers = levers(report.subject.table, report.subject.shape, query);
  }
  const WindowQuery window = window_query(flags, report, query);
  if (report.lengths.empty()) {
    report.notes.push_back(
        "the largest window depends on the requests' lengths: give --lengths FILE "
        "or --prompt N");
  } else if (report.subject.table.causal) {
    try {
      report.window = largest_window(report.subject.table, report.subject.shape, window);
    } catch (const Error& error) {  // a table whose layers take no window is an answer
      report.notes.push_back(std::string("largest window: ") + error.what());
    }
  }
  return report;
}

// --- text ---

std::string tokens_text(const TokensKept& kept) {
  return kept.unbounded ? "any length" : count_text(kept.tokens, Grouping::kThousands);
}

std::string fit_text(const std::optional<Capacity::Fit>& fit) {
  if (!fit) return std::string(kNoFigure);
  if (fit->unbounded) return "any number";
  return fmt::format("{} / {}", fit->mean, fit->worst);
}

std::string pair_text(const std::optional<Combination>& bytes) {
  if (!bytes) return std::string(kNoFigure);
  return bytes_text(bytes->mean) + " / " + bytes_text(bytes->worst);
}

std::string policies_text(const CapacityReport& report) {
  Table table({{"allocator policy", Align::kLeft},
               {"tokens a request, whole budget", Align::kRight},
               {"with margin and page tables", Align::kRight},
               {"requests x tokens", Align::kRight},
               {"pages x page size of a group", Align::kRight},
               {"requests that fit, mean / worst", Align::kRight},
               {"budget they need, mean / worst", Align::kRight}});
  for (const Capacity& one : report.policies) {
    table.add_row({to_text(one.policy), tokens_text(one.limit), tokens_text(one.kept),
                   one.kept.unbounded
                       ? std::string(kNoFigure)
                       : count_text(one.requests_times_length_tokens, Grouping::kThousands),
                   one.group_tokens ? count_text(*one.group_tokens, Grouping::kThousands)
                                    : std::string(kNoFigure),
                   fit_text(one.requests_fit), pair_text(one.budget_bytes)});
  }
  return table.text();
}

std::string window_text(const CapacityReport& report) {
  if (!report.window) return "";
  Table table({{"the largest window that meets", Align::kLeft},
               {"window", Align::kRight},
               {"used", Align::kRight},
               {"allowed", Align::kRight}});
  const auto amount = [](Bound bound, double value) {
    return bound == Bound::kPrefill ? flops_text(static_cast<Int128>(value))
                                    : bytes_text(static_cast<Int128>(value));
  };
  for (const WindowBound& bound : report.window->bounds) {
    table.add_row({std::string(to_string(bound.bound)),
                   !bound.window  ? "none"
                   : bound.limits ? std::to_string(*bound.window)
                                  : "any",
                   amount(bound.bound, bound.used), amount(bound.bound, bound.allowed)});
  }
  std::string text = "\n" + table.text();
  std::string binding;
  for (const Bound bound : report.window->binds) {
    binding += (binding.empty() ? "" : ", ") + std::string(to_string(bound));
  }
  text += fmt::format("largest window: {}, bound by {}\n",
                      report.window->window ? std::to_string(*report.window->window) : "none",
                      binding.empty() ? "nothing" : binding);
  for (const std::string& note : report.window->notes) text += "note: " + printable(note) + "\n";
  return text;
}

std::string levers_text(const CapacityReport& report) {
  if (report.levers.empty()) return "";
  Table table({{"each lever alone, " + to_text(report.planned), Align::kLeft},
               {"tokens a request", Align::kRight},
               {"requests that fit, mean / worst", Align::kRight},
               {"what it changes", Align::kLeft}});
  for (const Lever& lever : report.levers) {
    table.add_row({lever.name,
                   lever.capacity ? tokens_text(lever.capacity->kept) : std::string(kNoFigure),
                   lever.capacity ? fit_text(lever.capacity->requests_fit) : std::string(kNoFigure),
                   lever.capacity ? lever.changes : lever.why});
  }
  return "\n" + table.text();
}

std::string report_text(const CapacityReport& report) {
  std::string text = subject_text(report.subject);
  text += fmt::format("{} for KV as {}, {} request(s) at the same time",
                      bytes_text(report.budget_bytes), report.kv_dtype.name, report.requests);
  if (!report.policies.empty()) {
    text += fmt::format("; the margin leaves {}", bytes_text(report.policies.front().usable_bytes));
  }
  text += "\n\n" + policies_text(report) + window_text(report) + levers_text(report);
  for (const Capacity& one : report.policies) {
    for (const std::string& note : one.notes) {
      const bool named = note.starts_with(one.policy.name);
      text += "note: " + (named ? "" : one.policy.name + ": ") + printable(note) + "\n";
    }
  }
  for (const std::string& note : report.notes) text += "note: " + printable(note) + "\n";
  return text;
}

// --- JSON ---

Json kept_json(const TokensKept& kept) {
  return {{"tokens", kept.unbounded ? Json(nullptr) : Json(kept.tokens)},
          {"unbounded", kept.unbounded},
          {"bytes", json_of(kept.bytes)}};
}

Json combination_json(const std::optional<Combination>& bytes) {
  if (!bytes) return nullptr;
  return {{"mean_bytes", json_of(bytes->mean)}, {"worst_bytes", json_of(bytes->worst)}};
}

Json fit_json(const std::optional<Capacity::Fit>& fit) {
  if (!fit) return nullptr;
  return {{"mean", fit->unbounded ? Json(nullptr) : Json(fit->mean)},
          {"worst", fit->unbounded ? Json(nullptr) : Json(fit->worst)},
          {"unbounded", fit->unbounded}};
}

Json capacity_json(const Capacity& one) {
  return {{"params", one.policy.params},
          {"usable_bytes", one.usable_bytes},
          {"limit", kept_json(one.limit)},
          {"kept", kept_json(one.kept)},
          {"requests_times_length_tokens",
           one.kept.unbounded ? Json(nullptr) : json_of(one.requests_times_length_tokens)},
          {"group_tokens", json_of(one.group_tokens)},
          {"requests_fit", fit_json(one.requests_fit)},
          {"held", combination_json(one.held_bytes)},
          {"budget", combination_json(one.budget_bytes)},
          {"page_table_bytes", json_of(one.page_table_bytes)},
          {"notes", one.notes}};
}

Json window_json(const LargestWindow& largest) {
  Json bounds = Json::array();
  for (const WindowBound& bound : largest.bounds) {
    bounds.push_back({{"bound", to_string(bound.bound)},
                      {"window_tokens", json_of(bound.window)},
                      {"limits", bound.limits},
                      {"used", bound.used},
                      {"allowed", bound.allowed}});
  }
  Json binds = Json::array();
  for (const Bound bound : largest.binds) binds.push_back(to_string(bound));
  return {{"window_tokens", json_of(largest.window)},
          {"binds", std::move(binds)},
          {"bounds", std::move(bounds)},
          {"notes", largest.notes}};
}

std::string report_json(const CapacityReport& report) {
  Json policies = Json::object();
  for (const Capacity& one : report.policies) policies[one.policy.name] = capacity_json(one);
  Json lever_rows = Json::array();
  for (const Lever& lever : report.levers) {
    lever_rows.push_back({{"name", lever.name},
                          {"changes", lever.changes},
                          {"capacity", lever.capacity ? capacity_json(*lever.capacity) : Json()},
                          {"why", lever.why}});
  }
  Json document = {{"format", "lacuna-capacity"},
                   {"format_version", 1},
                   {"kind", "exact"},
                   {"model", subject_json(report.subject)},
                   {"memory_budget_bytes", report.budget_bytes},
                   {"requests", report.requests},
                   {"lengths_tokens", report.lengths},
                   {"kv_dtype", report.kv_dtype.name},
                   {"policies", std::move(policies)},
                   {"largest_window", report.window ? window_json(*report.window) : Json()},
                   {"planned_policy", to_text(report.planned)},
                   {"levers", std::move(lever_rows)},
                   {"notes", report.notes}};
  if (report.hardware) document["hardware"] = Json::parse(device_to_json_text(*report.hardware));
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void add_capacity_flags(CLI::App& app, CapacityFlags& flags) {
  app.add_option("--memory-budget", flags.memory_budget, "bytes for KV, e.g. 48GiB");
  add_number(app, "--requests", flags.requests, 1, 1 << 20, "requests at the same time (1)");
  app.add_option("--lengths", flags.lengths, "file of observed request lengths");
  add_number(app, "--prompt", flags.prompt, 1, kLongest, "one length for all requests");
  app.add_option("--ttft", flags.ttft, "seconds to the first token");
  app.add_option("--tpot", flags.tpot, "seconds for each further token");
  app.add_option("--margin", flags.margin, "share of the budget that is left free (0.05)");
  app.add_option("--weight-bytes", flags.weight_bytes,
                 "weights read in a step, e.g. 16GB (a .gguf file: its size)");
  app.add_option("--kv-dtype", flags.kv_dtype, "how K and V are stored (bf16)");
  add_number(app, "--page-size", flags.page_size, 1, 1 << 20, "tokens of a page (64)");
  add_number(app, "--threads", flags.threads, 0, 4096, "threads of a measurement; 0: all (0)");
}

std::string capacity(const CapacityFlags& flags) {
  const CapacityReport report = make_report(flags);
  return flags.json ? report_json(report) : report_text(report);
}

}  // namespace lacuna::cli
