#include "cli/explain.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/json.h"
#include "cli/text.h"
#include "lacuna/engine_log.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kMostLogBytes = std::int64_t{64} << 20;

struct ExplainedStart {
  std::int64_t number = 0;  // from 1
  EngineStart start;
  Account account;
};

struct ExplainReport {
  Subject subject;
  std::string log;
  std::size_t num_starts = 0;  // of the log
  std::vector<ExplainedStart> starts;
};

ExplainReport make_report(const ExplainFlags& flags) {
  ExplainReport report;
  report.subject = make_subject(flags.model);
  report.log = flags.log;
  std::vector<EngineStart> starts = read_engine_log(read_file(flags.log, kMostLogBytes));
  if (starts.empty()) {
    throw Error("'" + flags.log +
                "' has no line about a KV cache; allowed: a log of llama.cpp or vLLM from its "
                "start, such as 'KV buffer size =' or 'GPU KV cache size:'");
  }
  report.num_starts = starts.size();
  const auto count = static_cast<std::int64_t>(starts.size());
  if (flags.start && *flags.start > count) {
    throw Error(fmt::format("--start is {}; allowed: 1..{}, the starts in '{}'", *flags.start,
                            count, flags.log));
  }
  for (std::int64_t number = 1; number <= count; ++number) {
    if (flags.start && *flags.start != number) continue;
    EngineStart& start = starts[static_cast<std::size_t>(number - 1)];
    Account found = account(start, report.subject.table, report.subject.shape, flags.account);
    report.starts.push_back({number, std::move(start), std::move(found)});
  }
  return report;
}

// Whose figure it is: "window layers: K and V".
std::string figure_text(const EngineStart& start, const LogFigure& figure) {
  std::string text;
  if (figure.cache >= 0) {
    switch (start.caches[static_cast<std::size_t>(figure.cache)].role) {
      case LogCache::Role::kFull:
        text = "full layers: ";
        break;
      case LogCache::Role::kWindow:
        text = "window layers: ";
        break;
      case LogCache::Role::kUnnamed:
        if (start.caches.size() > 1) text = fmt::format("cache {}: ", figure.cache + 1);
        break;
    }
  }
  text += to_string(figure.kind);
  return figure.length > 0 ? fmt::format("{} of {} tokens", text, figure.length) : text;
}

std::string range_text(Int128 low, Int128 high) {
  return low == high ? count_text(low, Grouping::kThousands)
                     : count_text(low, Grouping::kThousands) + ".." +
                           count_text(high, Grouping::kThousands);
}

std::string policy_text(const AccountPolicy& policy) {
  return to_text(policy.policy) + (policy.reading.empty() ? "" : ", " + policy.reading);
}

std::string equation_text(const AccountLine& line) {
  if (line.stated && line.equation.value() == 0) return "";  // no number rests on it
  return line.equation.text(unit_of(line.figure.kind));
}

// What a start's first differing line says, in one sentence; "" where every line is accounted for.
std::string fault_of(const ExplainReport& report, const ExplainedStart& one) {
  const AccountPolicy& nearest = one.account.policies.front();
  const AccountLine* line = first_difference(nearest);
  if (line == nullptr) return "";
  const LogFigure& figure = line->figure;
  const Int128 size = line->difference < 0 ? -line->difference : line->difference;
  return fmt::format("'{}' line {} prints {} ({}), {} {} {} than the nearest policy predicts: {}",
                     report.log, figure.line, figure.text, figure_text(one.start, figure),
                     count_text(size, Grouping::kThousands), unit_of(figure.kind),
                     line->difference > 0 ? "more" : "less", policy_text(nearest));
}

// --- text ---

std::string lines_text(const ExplainedStart& one, const AccountPolicy& policy) {
  Table table({{"line", Align::kRight},
               {"figure", Align::kLeft},
               {"printed", Align::kRight},
               {"predicted", Align::kRight},
               {"unit", Align::kLeft},
               {"difference", Align::kRight},
               {"equation", Align::kLeft}});
  for (const AccountLine& line : policy.lines) {
    const LogFigure& figure = line.figure;
    table.add_row(
        {std::to_string(figure.line), figure_text(one.start, figure), figure.text,
         line.stated ? "taken from here" : range_text(line.low, line.high),
         std::string(unit_of(figure.kind)),
         line.stated ? std::string(kNoFigure) : count_text(line.difference, Grouping::kThousands),
         equation_text(line)});
  }
  return table.text();
}

std::string verdict_text(const ExplainReport& report, const ExplainedStart& one) {
  const Account& found = one.account;
  std::string text;
  for (const AccountPolicy& policy : found.policies) {
    if (!found.accounted) break;
    text += fmt::format("accounted for: every line fits {}: {}\n", policy_text(policy),
                        policy.bytes.text("bytes"));
    if (policy.request) {
      text += fmt::format("{} = {}\n", policy.request->symbols(),
                          count_text(policy.request->value(), Grouping::kThousands));
    }
    for (const std::string& other : policy.alike) {
      text += "the very same lines and bytes: " + other + "\n";
    }
  }
  if (!found.accounted) text += "differs: " + printable(fault_of(report, one)) + "\n";
  for (const std::string& cause : found.causes) text += "possible cause: " + cause + "\n";
  for (const std::string& note : found.notes) text += "note: " + printable(note) + "\n";
  return text;
}

std::string report_text(const ExplainReport& report) {
  std::string text = subject_text(report.subject);
  for (const ExplainedStart& one : report.starts) {
    text += fmt::format("\n{}: start {} of {}, {}\n", printable(report.log), one.number,
                        report.num_starts, to_string(one.start.engine));
    for (const AccountParameter& parameter : one.account.parameters) {
      text += fmt::format("{} = {} ({})\n", parameter.name, printable(parameter.value),
                          parameter.source);
    }
    text += "\n" + lines_text(one, one.account.policies.front()) + "\n" + verdict_text(report, one);
  }
  return text;
}

// --- JSON ---

Json line_json(const EngineStart& start, const AccountLine& line) {
  const LogFigure& figure = line.figure;
  return {{"line", figure.line},
          {"figure", figure_text(start, figure)},
          {"unit", unit_of(figure.kind)},
          {"printed", figure.text},
          {"printed_low", figure.low},
          {"printed_high", figure.high},
          {"predicted_low", line.stated ? Json(nullptr) : json_of(line.low)},
          {"predicted_high", line.stated ? Json(nullptr) : json_of(line.high)},
          {"difference", line.stated ? Json(nullptr) : json_of(line.difference)},
          {"equation", equation_text(line)}};
}

Json policy_json(const EngineStart& start, const AccountPolicy& policy) {
  Json lines = Json::array();
  for (const AccountLine& line : policy.lines) lines.push_back(line_json(start, line));
  return {{"policy", policy.policy.name},
          {"params", policy.policy.params},
          {"reading", policy.reading},
          {"bytes", json_of(policy.bytes.value())},
          {"equation", policy.bytes.text("bytes")},
          {"request_bytes", policy.request ? json_of(policy.request->value()) : Json(nullptr)},
          {"alike", policy.alike},
          {"lines", std::move(lines)}};
}

Json start_json(const ExplainReport& report, const ExplainedStart& one) {
  Json policies = Json::array();
  for (const AccountPolicy& policy : one.account.policies) {
    policies.push_back(policy_json(one.start, policy));
  }
  Json parameters = Json::array();
  for (const AccountParameter& parameter : one.account.parameters) {
    parameters.push_back(
        {{"name", parameter.name}, {"value", parameter.value}, {"source", parameter.source}});
  }
  const AccountLine* first = first_difference(one.account.policies.front());
  return {{"start", one.number},
          {"engine", to_string(one.start.engine)},
          {"accounted", one.account.accounted},
          {"first_difference_line", first == nullptr ? Json(nullptr) : Json(first->figure.line)},
          {"verdict", first == nullptr ? "every line is accounted for" : fault_of(report, one)},
          {"parameters", std::move(parameters)},
          {"policies", std::move(policies)},
          {"causes", one.account.causes},
          {"notes", one.account.notes}};
}

std::string report_json(const ExplainReport& report) {
  Json starts = Json::array();
  for (const ExplainedStart& one : report.starts) starts.push_back(start_json(report, one));
  const Json document = {{"format", "lacuna-explain"},
                         {"format_version", 1},
                         {"kind", "exact"},
                         {"model", subject_json(report.subject)},
                         {"log", report.log},
                         {"num_starts", report.num_starts},
                         {"starts", std::move(starts)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void add_explain_flags(CLI::App& app, ExplainFlags& flags) {
  constexpr std::int64_t kMostSequences = 1 << 20;
  app.add_option("log", flags.log, "file with what the engine printed at its start")->required();
  add_model_flags(app, flags.model);
  add_number(app, "--start", flags.start, 1, 256, "only the N-th start of the log");
  app.add_option("--kv-dtype", flags.account.kv_dtype, "where the log does not say it");
  add_number(app, "--n-ctx", flags.account.n_ctx, 1, kLongest, "llama.cpp, likewise");
  add_number(app, "--ubatch-size", flags.account.n_ubatch, 1, kLongest, "llama.cpp, likewise");
  add_number(app, "--parallel", flags.account.n_seq_max, 1, kMostSequences,
             "llama.cpp, likewise: sequences");
  add_number(app, "--block-size", flags.account.block_size, 1, kLongest, "vLLM, likewise");
  add_number(app, "--max-model-len", flags.account.max_model_len, 1, kLongest, "vLLM, likewise");
  add_number(app, "--max-num-batched-tokens", flags.account.max_num_batched_tokens, 1, kLongest,
             "vLLM, likewise");
  add_number(app, "--tensor-parallel-size", flags.account.tensor_parallel_size, 1, 65536,
             "vLLM, likewise");
  add_json_flag(app, flags.json);
}

std::vector<std::string> explain(const ExplainFlags& flags,
                                 const std::function<void(const std::string&)>& print) {
  const ExplainReport report = make_report(flags);
  print(flags.json ? report_json(report) : report_text(report));
  std::vector<std::string> faults;
  for (const ExplainedStart& one : report.starts) {
    if (!one.account.accounted) faults.push_back(fault_of(report, one));
  }
  return faults;
}

}  // namespace lacuna::cli
