#include "cli/audit_document.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kLongestFile = std::int64_t{64} << 20;  // bytes
constexpr int kMaxDepth = 32;                                  // an audit's own are 6 deep
constexpr std::int64_t kMostCount = std::int64_t{1} << 61;     // differences of two stay in range
constexpr std::size_t kMostTables = 64;
constexpr std::size_t kMostItems = 1 << 20;

using Keys = std::initializer_list<const char*>;

// One value and where it stands: "tables[0].step_seconds".
class Place {
 public:
  Place(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& allowed) const {
    throw Error(fmt::format("{} is {}; allowed: {}", path_, shown(), allowed));
  }

  Place at(const std::string& key) const {
    if (!json_.is_object()) fail("an object");
    const auto found = json_.find(key);
    if (found == json_.end()) throw Error(fmt::format("{} has no key '{}'", path_, key));
    return {*found, path_ + "." + key};
  }
  bool is_null() const { return json_.is_null(); }
  const Json& json() const { return json_; }

  void texts(Keys keys) const {
    for (const char* key : keys) {
      if (!at(key).json_.is_string()) at(key).fail("a string");
    }
  }
  void flags(Keys keys) const {
    for (const char* key : keys) {
      if (!at(key).json_.is_boolean()) at(key).fail("true or false");
    }
  }
  void counts(Keys keys) const {
    for (const char* key : keys) at(key).count();
  }
  void numbers(Keys keys) const {
    for (const char* key : keys) at(key).number();
  }
  void count() const {
    // Checked as an unsigned number: get<int64_t> would wrap what is above 2^63.
    const bool fits = json_.is_number_unsigned() &&
                      json_.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostCount);
    if (!fits) fail(fmt::format("a whole number in 0..{}", kMostCount));
  }
  void number() const {
    if (!json_.is_number() || !(std::abs(json_.get<double>()) <= 1e18)) {
      fail("a number in -1e18..1e18");
    }
  }
  template <typename Check>
  void list(std::size_t most, const Check& check) const {
    if (!json_.is_array() || json_.size() > most) {
      fail(fmt::format("a list of at most {}", most));
    }
    for (std::size_t idx = 0; idx < json_.size(); ++idx) {
      check(Place(json_[idx], fmt::format("{}[{}]", path_, idx)));
    }
  }
  template <typename Check>
  void each_member(const Check& check) const {
    if (!json_.is_object()) fail("an object");
    for (const auto& [key, value] : json_.items()) check(Place(value, path_ + "." + key));
  }

 private:
  std::string shown() const {
    if (json_.is_structured()) return fmt::format("{} of {}", json_.type_name(), json_.size());
    return json_.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
  }

  const Json& json_;
  std::string path_;
};

void check_statistics(const Place& place) {
  place.numbers({"p10", "p50", "p90", "min", "max"});
  place.counts({"num_runs"});
}

void check_pairs(const Place& place) {
  place.counts({"predicted_executed_pairs", "executed_pairs", "predicted_needed_pairs",
                "needed_pairs", "predicted_step_executed_pairs", "step_executed_pairs",
                "predicted_step_needed_pairs", "step_needed_pairs", "predicted_held_bytes",
                "held_bytes", "predicted_read_bytes", "read_bytes"});
}

void check_intervention(const Place& place) {
  place.counts({"evidence", "query"});
  for (const char* key : {"hops", "first_layer", "first_change_layer"}) {
    if (!place.at(key).is_null()) place.at(key).count();
  }
  place.texts({"bucket"});
  place.numbers({"last_change"});
  place.flags({"early"});
}

void check_quality(const Place& place) {
  if (place.is_null()) return;
  place.numbers({"nll"});
  for (const char* kind : {"by_position", "by_distance"}) {
    place.at(kind).list(kMostItems, [](const Place& bucket) {
      bucket.texts({"name"});
      bucket.counts({"positions"});
      bucket.numbers({"nll"});
    });
  }
}

void check_table(const Place& place) {
  place.texts({"table"});
  place.counts({"length_tokens", "generate_tokens", "bandwidth_set_bytes"});
  check_pairs(place);
  for (const char* key : {"first_token_seconds", "step_seconds", "predicted_step_seconds"}) {
    check_statistics(place.at(key));
    if (key != std::string("predicted_step_seconds")) place.at(key).numbers({"p99"});
  }
  for (const char* key : {"prefill_parts_seconds", "step_parts_seconds"}) {
    place.at(key).each_member([](const Place& part) { part.number(); });
  }
  place.at("step_parts_seconds").numbers({"attention"});
  place.at("kinds").list(kMostItems, [](const Place& kind) {
    kind.texts({"attend"});
    kind.counts({"num_layers"});
    kind.numbers({"prefill_seconds", "step_seconds"});
    check_pairs(kind);
  });
  place.at("rounds").list(kMostItems, [](const Place& round) {
    round.numbers({"read_bytes_per_s", "cpu_share"});
    round.at("step_seconds").list(kMostItems, [](const Place& step) { step.number(); });
  });
  place.at("layers").list(kMostItems, [](const Place& layer) {
    layer.counts({"layer"});
    layer.texts({"attend"});
  });
  place.at("interventions").list(kMostItems, check_intervention);
  check_quality(place.at("quality"));
}

void check_tables(const Place& root) {
  root.at("tables").list(kMostTables, check_table);
  const Json& tables = root.at("tables").json();
  // Rows of the parts are those of the first table: the others need the same.
  for (std::size_t idx = 1; idx < tables.size(); ++idx) {
    const Place other(tables[idx], fmt::format("tables[{}]", idx));
    for (const char* key : {"prefill_parts_seconds", "step_parts_seconds"}) {
      for (const auto& [part, seconds] : tables.front().at(key).items()) other.at(key).at(part);
    }
  }
}

void check_document(const Place& root) {
  root.texts({"products", "kv_dtype", "isa"});
  root.flags({"interrupted"});
  root.at("model").texts({"source", "name"});
  root.at("model").counts({"num_layers"});
  root.at("model").flags({"causal"});
  root.at("machine").texts({"cpu"});
  root.at("machine").counts({"num_allowed_cpus"});
  root.at("request").counts(
      {"prompt_tokens", "generate_tokens", "repetitions", "chunk_tokens", "page_size"});
  root.at("text").texts({"source"});
  root.at("text").counts({"size_bytes"});
  root.counts({"threads", "peak_memory_bytes"});
  root.numbers({"load_seconds"});
  root.at("verdicts").list(kMostItems, [](const Place& verdict) {
    verdict.texts({"name", "kind", "table", "says", "next"});
    verdict.flags({"holds"});
  });
  check_tables(root);
}

Json parsed(std::string_view text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) throw Error(fmt::format("nested deeper than {}", kMaxDepth));
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), shallow);
  } catch (const Json::exception& error) {
    throw Error(fmt::format("not JSON: {}", std::string(error.what()).substr(0, 160)));
  }
}

}  // namespace

Json parse_audit(std::string_view text, const std::string& name) {
  try {
    Json document = parsed(text);
    const Place root(document, "document");
    if (root.at("format").json() != "lacuna-audit") root.at("format").fail("\"lacuna-audit\"");
    if (root.at("format_version").json() != 1) root.at("format_version").fail("1");
    check_document(root);
    return document;
  } catch (const Error& error) {
    throw Error("'" + name + "': " + error.what());
  }
}

Json read_audit(const std::string& path) {
  return parse_audit(read_file(path, kLongestFile), path);
}

}  // namespace lacuna::cli
