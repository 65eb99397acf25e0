#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"
#include "lacuna/probe.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kMostHeads = 65536;
constexpr std::int64_t kMostSequences = 1 << 20;

// CLI11's own reading of numbers takes more than digits.
template <typename Value>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Value& value, std::int64_t min,
                        std::int64_t max, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name, min, max](const std::string& text) {
            value = parse_int64(text, name, min, max);
          },
          help)
      ->type_name("N");
}

// As CLI::IsMember, with what was allowed and a near miss in the message.
CLI::Validator one_of(std::vector<std::string> words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  const auto refuse = [words, all](std::string& text) {
    if (std::ranges::find(words, text) != words.end()) return std::string();
    return "'" + text + "' is not allowed here; allowed: " + all + did_you_mean(text, words);
  };
  return CLI::Validator(refuse, all);
}

void replace_attend(Subject& subject, const LayerTable& wanted) {
  for (std::size_t l = 0; l < subject.table.layers.size(); ++l) {
    Layer& layer = subject.table.layers[l];
    // A layer that keeps a state, or that does not mix tokens, has no keys to choose.
    if (!attends(layer.mixer)) continue;
    layer.attend = wanted.layers[l].attend;
    layer.index_from.reset();
  }
}

LayerTable read_layers_file(const std::string& path, int num_layers, bool causal) {
  constexpr std::int64_t kLargest = 16 << 20;
  const std::string text = read_file(path, kLargest);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::string base_dir = folder.empty() ? "." : folder;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return layers_from_json(text, base_dir);
  return parse_layers(text, num_layers, causal, base_dir);
}

ModelShape shape_from_flags(const ModelFlags& flags) {
  LayerShape layer;
  layer.num_q_heads = static_cast<int>(flags.num_q_heads);
  layer.num_kv_heads = static_cast<int>(flags.num_kv_heads);
  layer.head_dim = flags.head_dim;
  layer.v_head_dim = flags.v_head_dim.value_or(flags.head_dim);
  if (!flags.mlp.empty() && !flags.intermediate_size) {
    throw Error("--mlp is given without --intermediate-size, which it is for");
  }
  if (flags.intermediate_size) {
    layer.mlp = MlpShape{.kind = flags.mlp == "plain" ? MlpKind::kPlain : MlpKind::kGated,
                         .intermediate_size = *flags.intermediate_size};
  }
  ModelShape shape = uniform_shape(static_cast<int>(flags.num_layers), layer);
  shape.name = "from flags";
  shape.hidden_size = flags.hidden_size;
  shape.vocab_size = flags.vocab_size;
  return shape;
}

// Which keys a window names in Lacuna's own text.
std::string convention_of(bool causal) {
  return causal
             ? "window(w) counts the query itself: query i reads keys i-w+1 .. i"
             : "window(l,r) reads l keys before the query, itself, and r keys after it: i-l .. i+r";
}

Subject subject_of_model(const ModelFlags& flags) {
  if (!flags.size_flags_given.empty()) {
    throw Error(flags.size_flags_given.front() +
                " is given beside --model, whose config says it; allowed: --assume KEY=VALUE");
  }
  ModelConfig config = read_model(flags.model, assumptions_of(flags.assume));
  Subject subject{std::move(config.table),
                  std::move(config.shape),
                  flags.model,
                  std::move(config.window_convention),
                  std::move(config.notes),
                  std::move(config.ignored_keys),
                  false};
  const int num_layers = static_cast<int>(subject.table.layers.size());
  if (!flags.attend.empty()) {
    replace_attend(subject, parse_layers(flags.attend, num_layers, subject.table.causal));
  } else if (!flags.layers.empty()) {
    LayerTable table = read_layers_file(flags.layers, num_layers, subject.table.causal);
    if (table.layers.size() != subject.table.layers.size()) {
      throw Error("'" + flags.layers + "' has " + std::to_string(table.layers.size()) +
                  " layers; allowed: the model's " + std::to_string(num_layers));
    }
    subject.table = std::move(table);
  } else {
    return subject;
  }
  subject.table_replaced = true;
  subject.window_convention = convention_of(subject.table.causal);
  subject.table.trained = Trained::kFalse;
  return subject;
}

// A table in JSON says its own number of layers and direction; flags may repeat but not contradict
// it.
void adopt_file(const ModelFlags& flags, Subject& subject) {
  const auto num_layers = static_cast<std::int64_t>(subject.table.layers.size());
  const bool counted =
      std::ranges::find(flags.size_flags_given, "--num-layers") != flags.size_flags_given.end();
  if (counted && num_layers != flags.num_layers) {
    throw Error("--num-layers is " + std::to_string(flags.num_layers) + "; allowed: the " +
                std::to_string(num_layers) + " layers of '" + flags.layers + "'");
  }
  if (flags.bidirectional && subject.table.causal) {
    throw Error("--bidirectional is given; allowed: the direction of '" + flags.layers +
                "', which is causal");
  }
  subject.shape.layers.resize(subject.table.layers.size(), subject.shape.layers.front());
}

Subject subject_of_flags(const ModelFlags& flags) {
  if (!flags.assume.empty()) throw Error("--assume is given without --model, which it is for");
  Subject subject;
  subject.shape = shape_from_flags(flags);
  const bool causal = !flags.bidirectional;
  if (!flags.attend.empty()) {
    subject.table = parse_layers(flags.attend, static_cast<int>(flags.num_layers), causal);
    subject.source = flags.attend;
  } else {
    subject.table = read_layers_file(flags.layers, static_cast<int>(flags.num_layers), causal);
    subject.source = flags.layers;
    adopt_file(flags, subject);
  }
  subject.window_convention = convention_of(subject.table.causal);
  return subject;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> parse_span(const std::string& text, const std::string& flag,
                                                 std::int64_t most) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) throw Error(flag + " is '" + text + "'; allowed: FROM..TO");
  const std::string_view all = text;
  return {parse_int64(all.substr(0, dots), flag + "'s FROM", 1, most),
          parse_int64(all.substr(dots + 2), flag + "'s TO", 1, most)};
}

void require_inside(std::int64_t position, const char* flag, std::int64_t length) {
  if (position >= length) {
    throw Error(std::string(flag) + " is " + std::to_string(position) + "; allowed: 0.." +
                std::to_string(length - 1));
  }
}

CLI::Option* add_number(CLI::App& app, const std::string& name, std::int64_t& value,
                        std::int64_t min, std::int64_t max, const std::string& help) {
  return add_parsed(app, name, value, min, max, help);
}

CLI::Option* add_number(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                        std::int64_t min, std::int64_t max, const std::string& help) {
  return add_parsed(app, name, value, min, max, help);
}

CLI::Option* add_numbers(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                         std::int64_t min, std::int64_t max, const std::string& help) {
  const auto parse = [&values, name, min, max](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) values.push_back(parse_int64(text, name, min, max));
  };
  return app.add_option_function<std::vector<std::string>>(name, parse, help + "; may be repeated")
      ->allow_extra_args(false)
      ->type_name("N");
}

DType parse_kv_dtype(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4}) {
    if (to_string(dtype) == name) return dtype;
  }
  throw Error("--kv-dtype is '" + name + "'; allowed: f32, bf16, f16, int8, int4" +
              did_you_mean(name, {"f32", "bf16", "f16", "int8", "int4"}));
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("--model", flags.model, "config.json, a folder that holds one, or a .gguf file");
  app.add_option("--attend", flags.attend,
                 "layer table as text, e.g. 'window(512)*5, full'; beside --model it replaces the "
                 "model's own");
  app.add_option("--layers", flags.layers, "layer table from a file, text or JSON");
  app.add_option("--assume", flags.assume,
                 "KEY=VALUE: value of a config key that is absent or not understood")
      ->allow_extra_args(false);
  app.add_flag("--bidirectional", flags.bidirectional, "with --attend: an encoder, not causal");
  const auto size = [&](CLI::Option* option) {
    option->each([&flags, name = "--" + option->get_lnames().front()](const std::string&) {
      flags.size_flags_given.push_back(name);
    });
  };
  size(add_number(app, "--num-layers", flags.num_layers, 1, 65536, "layers (1)"));
  size(add_number(app, "--num-q-heads", flags.num_q_heads, 1, kMostHeads, "query heads (1)"));
  size(add_number(app, "--num-kv-heads", flags.num_kv_heads, 1, kMostHeads, "KV heads (1)"));
  size(add_number(app, "--head-dim", flags.head_dim, 1, 65536, "width of a head (64)"));
  size(add_number(app, "--v-head-dim", flags.v_head_dim, 1, 65536,
                  "width of a value head (as --head-dim)"));
  size(add_number(app, "--hidden-size", flags.hidden_size, 1, 1 << 24, "model width"));
  size(add_number(app, "--intermediate-size", flags.intermediate_size, 1, 1 << 24, "MLP width"));
  size(add_number(app, "--vocab-size", flags.vocab_size, 1, 1 << 28, "vocabulary"));
  size(app.add_option("--mlp", flags.mlp, "gated (default) or plain")
           ->check(one_of({"gated", "plain"})));
}

void add_work_flags(CLI::App& app, WorkFlags& flags) {
  app.add_option("--phase", flags.phase,
                 "train, prefill or decode (default: prefill, and decode with --generate)")
      ->check(one_of({"train", "prefill", "decode"}));
  add_number(app, "--prompt", flags.prompt, 0, kLongest, "tokens of each prompt");
  add_number(app, "--generate", flags.generate, 0, kLongest, "tokens to generate after the prompt");
  add_number(app, "--batch", flags.batch, 1, kMostSequences, "sequences of --prompt tokens (1)");
  app.add_option("--lengths", flags.lengths,
                 "file of prompt lengths, one sequence each, instead of --prompt and --batch");
  add_number(app, "--chunk", flags.chunk, 0, kLongest,
             "prefill: queries in flight at a time; 0: the whole prompt (0)");
  add_number(app, "--verify-rows", flags.verify_rows, 1, 4096,
             "decode: rows a step computes, drafts and one (1)");
  app.add_option("--tile", flags.tile,
                 "Q,K: smallest executed unit in tokens (16,16: the kernels')");
  app.add_option("--kv-dtype", flags.kv_dtype, "how K and V are stored (bf16)");
  add_number(app, "--page-size", flags.page_size, 1, 1 << 20, "tokens of a page (64)");
  add_number(app, "--threads", flags.threads, 0, 4096, "threads of a measurement; 0: all (0)");
  app.add_flag("--mac", flags.mac, "count a multiply-add as one FLOP instead of two");
}

void add_json_flag(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "one JSON document instead of text");
}

void add_path_flags(CLI::App& app, std::optional<std::int64_t>& evidence,
                    std::optional<std::int64_t>& query) {
  add_number(app, "--evidence", evidence, 0, kLongest, "token whose influence is asked for (0)");
  add_number(app, "--query", query, 0, kLongest, "position that is to depend on it (the last)");
}

void add_policy_flag(CLI::App& app, std::vector<std::string>& policies) {
  app.add_option("--policy", policies,
                 "allocator policy, e.g. 'pool(P=16)'; may be repeated (default: all)")
      ->allow_extra_args(false);
}

void add_hardware_flag(CLI::App& app, std::string& hardware) {
  app.add_option("--hardware", hardware,
                 "a device of the table, a device file, or 'probe': measure this machine");
}

Assumptions assumptions_of(const std::vector<std::string>& texts) {
  Assumptions assume;
  for (const std::string& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error("--assume is '" + text + "'; allowed: KEY=VALUE");
    }
    assume[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return assume;
}

Subject make_subject(const ModelFlags& flags) {
  if (!flags.attend.empty() && !flags.layers.empty()) {
    throw Error("--attend and --layers are both given; allowed: one of them");
  }
  if (flags.model.empty() && flags.attend.empty() && flags.layers.empty()) {
    throw Error(
        "nothing says what to look at; allowed: --model FILE, --attend EXPR or --layers FILE");
  }
  if (!flags.model.empty() && flags.bidirectional) {
    throw Error(
        "--bidirectional is given beside --model; allowed: with --attend or --layers alone");
  }
  Subject subject = flags.model.empty() ? subject_of_flags(flags) : subject_of_model(flags);
  check(subject.shape, subject.table);
  check(subject.table, num_q_heads(subject.shape));
  return subject;
}

std::vector<std::int64_t> read_lengths(const std::string& path) {
  std::string text = read_file(path, 64 << 20);
  for (char& c : text) {
    if (c == ',' || c == '[' || c == ']') c = ' ';
  }
  std::vector<std::int64_t> lengths;
  constexpr std::string_view kBlank = " \t\r\n";
  for (std::size_t at = text.find_first_not_of(kBlank); at != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
    lengths.push_back(parse_int64(
        std::string_view(text).substr(at, end - at),
        "length " + std::to_string(lengths.size() + 1) + " of '" + path + "'", 0, kLongest));
    if (lengths.size() > kMostSequences) {
      throw Error("'" + path + "' has more than " + std::to_string(kMostSequences) + " lengths");
    }
    at = text.find_first_not_of(kBlank, end);
  }
  if (lengths.empty())
    throw Error("'" + path + "' has no length; allowed: one whole number or more");
  return lengths;
}

std::vector<std::int64_t> lengths_of(const WorkFlags& flags) {
  if (!flags.lengths.empty()) {
    if (flags.prompt || flags.batch != 1) {
      throw Error("--lengths is given beside --prompt or --batch; allowed: one way to say lengths");
    }
    return read_lengths(flags.lengths);
  }
  if (!flags.prompt) throw Error("--prompt is missing; allowed: --prompt N or --lengths FILE");
  return std::vector<std::int64_t>(static_cast<std::size_t>(flags.batch), *flags.prompt);
}

Tile tile_of(const std::string& text, const LayerTable& table) {
  if (text.empty()) return table.tile.value_or(kernel_tile());
  const auto comma = text.find(',');
  if (comma == std::string::npos) throw Error("--tile is '" + text + "'; allowed: Q,K");
  const std::string_view all = text;
  return {parse_int64(all.substr(0, comma), "--tile's Q", 1, 1 << 20),
          parse_int64(all.substr(comma + 1), "--tile's K", 1, 1 << 20)};
}

std::vector<Phase> phases_of(const WorkFlags& flags) {
  if (flags.phase == "train") return {Phase::kTrain};
  if (flags.phase == "prefill") return {Phase::kPrefill};
  if (flags.phase == "decode") return {Phase::kDecode};
  if (flags.generate.value_or(0) > 0) return {Phase::kPrefill, Phase::kDecode};
  return {Phase::kPrefill};
}

std::vector<Policy> policies_of(const std::vector<std::string>& texts, std::int64_t page_size,
                                std::int64_t rows_in_flight) {
  const std::vector<std::string> all = policy_names();
  std::vector<Policy> policies;
  for (const std::string& text : texts.empty() ? all : texts) {
    Policy policy = parse_policy(text);
    if (policy.name == "paged") {
      const auto says = [&](const char* param) { return text.find(param) != std::string::npos; };
      if (!says("P=") && !says("P =")) policy.params["P"] = page_size;
      if (!says("in_flight")) policy.params["in_flight"] = rows_in_flight;
    }
    // JSON keys a policy by its name: a second one would hide the first.
    for (const Policy& earlier : policies) {
      if (earlier.name == policy.name) {
        throw Error("--policy names " + policy.name + " twice; allowed: each policy once");
      }
    }
    policies.push_back(std::move(policy));
  }
  return policies;
}

std::optional<Device> hardware_of(const std::string& text, std::int64_t threads) {
  if (text.empty()) return std::nullopt;
  if (text == "probe") {
    ProbeOptions options;
    options.num_threads = threads;
    options.progress = [](std::int64_t done, std::int64_t total, std::string_view next) {
      std::fprintf(stderr, "probe %lld/%lld: %.*s\n", static_cast<long long>(done),
                   static_cast<long long>(total), static_cast<int>(next.size()), next.data());
    };
    return as_device(probe(options).value());
  }
  if (std::filesystem::exists(text)) return read_device_file(text);
  return device(text);
}

}  // namespace lacuna::cli
