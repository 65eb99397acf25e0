#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lacuna/config.h"
#include "lacuna/cost.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/layer_table.h"
#include "lacuna/machine.h"
#include "lacuna/policy.h"
#include "lacuna/shape.h"

#include "lacuna/tensor.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lacuna::cli {

// The flags as they were typed: text where the library parses it. Defaults stand here once, for
// every verb.
struct ModelFlags {
  std::string model;
  std::string attend;
  std::string layers;
  std::vector<std::string> assume;
  bool bidirectional = false;
  std::int64_t num_layers = 1;
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 64;
  std::optional<std::int64_t> v_head_dim;
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> intermediate_size;
  std::optional<std::int64_t> vocab_size;
  std::string mlp;
  std::vector<std::string> size_flags_given;  // of the size flags above: not with --model
};

struct WorkFlags {
  std::string phase;
  std::optional<std::int64_t> prompt;
  std::optional<std::int64_t> generate;
  std::int64_t batch = 1;
  std::string lengths;
  std::int64_t chunk = 0;
  std::int64_t verify_rows = 1;
  std::string tile;
  std::string kv_dtype = "bf16";
  std::int64_t page_size = 64;
  std::int64_t threads = 0;
  bool mac = false;
};

void add_model_flags(CLI::App& app, ModelFlags& flags);
void add_work_flags(CLI::App& app, WorkFlags& flags);
void add_json_flag(CLI::App& app, bool& json);
// --evidence and --query, 0 and the last position by default.
void add_path_flags(CLI::App& app, std::optional<std::int64_t>& evidence,
                    std::optional<std::int64_t>& query);
// Throws Error where a position that a flag names is not inside 0..length-1.
void require_inside(std::int64_t position, const char* flag, std::int64_t length);
// A whole number in [min, max], refused in one line that says so.
CLI::Option* add_number(CLI::App& app, const std::string& name, std::int64_t& value,
                        std::int64_t min, std::int64_t max, const std::string& help);
CLI::Option* add_number(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                        std::int64_t min, std::int64_t max, const std::string& help);
// The same for an option that may be repeated.
CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                         std::int64_t min, std::int64_t max, const std::string& help);
// "FROM..TO", both in 1..most. Throws Error naming the flag.
std::pair<std::int64_t, std::int64_t> parse_span(const std::string& text, const std::string& flag,
                                                 std::int64_t most);
inline constexpr std::int64_t kLongest = std::int64_t{1} << 40;  // tokens
// --kv-dtype of a cache. Throws Error with all names and a near miss.
DType parse_kv_dtype(const std::string& name);
void add_policy_flag(CLI::App& app, std::vector<std::string>& policies);
void add_hardware_flag(CLI::App& app, std::string& hardware);

// What the figures are about: a table and its sizes, and what is to be said of them.
struct Subject {
  LayerTable table;
  ModelShape shape;
  std::string source;  // the file, or the expression
  std::string window_convention;
  std::vector<ConfigNote> notes;
  std::vector<std::string> ignored_keys;
  bool table_replaced = false;  // the model's own table was replaced by --attend or --layers
};

// Of texts KEY=VALUE. Throws Error naming one that is none.
Assumptions assumptions_of(const std::vector<std::string>& texts);
// Throws Error as the readers do, and where flags exclude each other.
Subject make_subject(const ModelFlags& flags);

// Lengths of the batch's sequences, from --prompt and --batch or from --lengths. Throws Error where
// neither or both are given. `max_sequences` bounds the file.
std::vector<std::int64_t> lengths_of(const WorkFlags& flags);
// Whole numbers from a text file (separated by white space or commas, or as a JSON list).
std::vector<std::int64_t> read_lengths(const std::string& path);

Tile tile_of(const std::string& text, const LayerTable& table);
std::vector<Phase> phases_of(const WorkFlags& flags);
// The named policies, or all. Lacuna's own (paged) takes its page size and the rows of a step from
// the flags where its text does not say them.
std::vector<Policy> policies_of(const std::vector<std::string>& texts, std::int64_t page_size,
                                std::int64_t rows_in_flight);
// A device by name, from a file, or measured ("probe", with so many threads); nullopt where none is
// asked for. Progress of the probe goes to the standard error stream.
std::optional<Device> hardware_of(const std::string& text, std::int64_t threads);

}  // namespace lacuna::cli
