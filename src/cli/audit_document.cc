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
constexpr std::int64_t kMostSize = 1 << 16;                    // heads, and elements of one
constexpr std::size_t kMostTables = 64;
constexpr std::size_t kMostLayers = 1 << 12;
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
    for (const char* key : keys) at(key).text();
  }
  void flags(Keys keys) const {
    for (const char* key : keys) {
      if (!at(key).json_.is_boolean()) at(key).fail("true or false");
    }
  }
  void counts(Keys keys) const {
    for (const char* key : keys) at(key).count();
  }
  void sizes(Keys keys) const {
    for (const char* key : keys) {
      at(key).count();
      const auto value = at(key).json_.get<std::int64_t>();
      if (value < 1 || value > kMostSize) at(key).fail(fmt::format("1..{}", kMostSize));
    }
  }
  // Null, or as `check` wants it.
  template <typename Check>
  void optional(Keys keys, const Check& check) const {
    for (const char* key : keys) {
      if (!at(key).is_null()) check(at(key));
    }
  }
  void numbers(Keys keys) const {
    for (const char* key : keys) at(key).number();
  }
  void text() const {
    if (!json_.is_string()) fail("a string");
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
  place.optional({"hops", "first_layer", "first_change_layer", "best_path_hops"},
                 [](const Place& count) { count.count(); });
  place.optional({"best_path_weight"}, [](const Place& weight) { weight.number(); });
  place.texts({"bucket"});
  place.numbers({"last_change"});
  place.flags({"early"});
}

void check_quality(const Place& place) {
  place.counts({"positions"});
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
  place.at("layers").list(kMostLayers, [](const Place& layer) {
    layer.texts({"attend"});
    layer.sizes({"num_q_heads", "num_kv_heads", "head_dim", "v_head_dim"});
    check_pairs(layer);
  });
  place.at("interventions").list(kMostItems, check_intervention);
  place.optional({"quality"}, check_quality);
}

void check_tables(const Place& root) {
  root.at("tables").list(kMostTables, check_table);
  root.optional({"int8_kv"}, check_table);
  const Json& tables = root.at("tables").json();
  if (tables.empty()) return;
  // Rows of the parts are those of the first table: the others need the same.
  const auto has_parts = [&](const Place& other) {
    for (const char* key : {"prefill_parts_seconds", "step_parts_seconds"}) {
      for (const auto& [part, seconds] : tables.front().at(key).items()) other.at(key).at(part);
    }
  };
  root.at("tables").list(kMostTables, has_parts);
  root.optional({"int8_kv"}, has_parts);
}

void check_sources(const Place& root) {
  root.at("model_file").counts({"size_bytes"});
  root.at("model_file").texts({"sha256"});
  const Place text = root.at("text");
  text.flags({"repeated"});
  text.optional({"package"}, [](const Place& package) { package.text(); });
  text.at("files").list(kMostItems, [](const Place& file) {
    file.texts({"path", "sha256"});
    file.counts({"size_bytes"});
  });
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
  check_sources(root);
  root.counts({"threads", "peak_memory_bytes"});
  root.numbers({"load_seconds"});
  root.at("verdicts").list(kMostItems, [](const Place& verdict) {
    verdict.texts({"name", "kind", "table", "says", "next"});
    verdict.optional({"cause"}, [](const Place& cause) { cause.text(); });
    verdict.flags({"holds"});
  });
  check_tables(root);
  root.optional({"rotary"}, [](const Place& rotary) {
    rotary.counts({"positions"});
    rotary.numbers({"nll", "as_first_layer_nll"});
  });
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

std::int64_t count_at(const Json& json, const char* key) {
  return json.at(key).get<std::int64_t>();
}
double number_at(const Json& json, const char* key) { return json.at(key).get<double>(); }

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
