#include "lacuna/engine_account.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "cost/account_case.h"
#include "lacuna/capacity.h"
#include "lacuna/error.h"
#include "lacuna/kv_dtype.h"

namespace lacuna {
namespace {

AccountAttempts attempts(const AccountCase& about) {
  return about.start->engine == Engine::kLlamaCpp ? llama_attempts(about) : vllm_attempts(about);
}

Int128 size_of(Int128 value) { return value < 0 ? -value : value; }

bool same_lines(const AccountPolicy& a, const AccountPolicy& b) {
  return a.bytes.value() == b.bytes.value() &&
         std::ranges::equal(a.lines, b.lines, [](const AccountLine& x, const AccountLine& y) {
           return x.low == y.low && x.high == y.high && x.stated == y.stated;
         });
}

std::string name_of(const AccountPolicy& policy) {
  return to_text(policy.policy) + (policy.reading.empty() ? "" : ", " + policy.reading);
}

std::string request_text(const Equation& request) {
  return fmt::format("{} = {}", request.symbols(), to_string(request.value()));
}

std::vector<AccountPolicy> those_that_fit(std::vector<AccountPolicy> policies) {
  std::vector<AccountPolicy> fitting;
  for (AccountPolicy& policy : policies) {
    if (first_difference(policy) != nullptr) continue;
    const auto known = std::ranges::find_if(
        fitting, [&](const AccountPolicy& other) { return same_lines(policy, other); });
    if (known == fitting.end()) {
      fitting.push_back(std::move(policy));
      continue;
    }
    std::string name = name_of(policy);
    if (policy.request) name += fmt::format("; {}", request_text(*policy.request));
    const bool said = name == name_of(*known) || std::ranges::count(known->alike, name) > 0;
    if (!said) known->alike.push_back(std::move(name));
  }
  return fitting;
}

// Fewest differences, the latest first one, the smallest first one.
auto distance(const AccountPolicy& policy) {
  const AccountLine* first = first_difference(policy);
  const std::int64_t place = first == nullptr ? 0 : first - policy.lines.data();
  return std::tuple(num_differing(policy), -place,
                    first == nullptr ? Int128{0} : size_of(first->difference));
}

// --- causes: one change each ---

struct Suspect {
  std::string what;
  std::string value;  // of a parameter, which may be tried with several
  AccountCase changed;
};

bool states(const AccountCase& about, const char* name) {
  return about.start->settings.contains(name);
}

void suspect_values(const AccountCase& about, std::vector<Suspect>& suspects, const char* name,
                    std::optional<std::int64_t> AccountFlags::*flag,
                    std::initializer_list<std::int64_t> values) {
  if (states(about, name)) return;
  for (const std::int64_t value : values) {
    if (about.flags.*flag == value) continue;
    Suspect suspect{fmt::format("{}, which the log does not state,", name), std::to_string(value),
                    about};
    suspect.changed.flags.*flag = value;
    suspects.push_back(std::move(suspect));
  }
}

void suspect_windows(const AccountCase& about, std::vector<Suspect>& suspects) {
  std::int64_t keys = 0;
  for (const Layer& layer : about.table.layers) {
    for (const HeadGroup& group : layer.attend.groups) {
      for (const Term& term : group.attend) {
        const auto* window = std::get_if<Window>(&term);
        if (window != nullptr && window->left < (std::int64_t{1} << 40)) keys = window->left + 1;
      }
    }
  }
  for (const std::int64_t other : {keys + 1, keys - 1}) {
    if (keys == 0 || other < 1 || !about.table.causal) continue;
    suspects.push_back({fmt::format("windows of {} keys instead of {}", other, keys), "", about});
    suspects.back().changed.table = with_window(about.table, other);
  }
}

void suspect_layers(const AccountCase& about, std::vector<Suspect>& suspects) {
  const LayerTable& table = about.table;
  std::vector<std::string> seen;
  for (std::size_t idx = 0; idx < table.layers.size(); ++idx) {
    const Layer& layer = table.layers[idx];
    if (!attends(layer.mixer) || layer.kv_from || layer.attend.groups.empty()) continue;
    const std::string kind = to_text(layer.attend, table.causal);
    if (std::ranges::find(seen, kind) != seen.end() || seen.size() >= 4) continue;
    seen.push_back(kind);
    suspects.push_back(
        {fmt::format("one more layer of {}, such as a draft layer", kind), "", about});
    suspects.back().changed.table.layers.push_back(layer);
    suspects.back().changed.shape.layers.push_back(about.shape.layers[idx]);
    suspects.push_back({fmt::format("a layer of {} less", kind), "", about});
    Layer& left_out = suspects.back().changed.table.layers[idx];
    left_out = Layer{};
    left_out.mixer = Mixer::kNone;
  }
  const auto shares = [](const Layer& layer) { return layer.kv_from.has_value(); };
  if (std::ranges::none_of(table.layers, shares)) return;
  suspects.push_back({"KV of its own in every layer that shares another's", "", about});
  for (Layer& layer : suspects.back().changed.table.layers) layer.kv_from.reset();
}

void suspect_types(const AccountCase& about, std::vector<Suspect>& suspects) {
  const bool named = std::ranges::all_of(
      about.start->caches, [](const LogCache& cache) { return !cache.k_type.empty(); });
  const bool llama = about.start->engine == Engine::kLlamaCpp;
  if ((llama && named) || states(about, "kv_cache_dtype")) return;
  for (const std::string& name : kv_dtype_names()) {
    if (name == about.flags.kv_dtype) continue;
    suspects.push_back({"K and V stored", name, about});
    suspects.back().changed.flags.kv_dtype = name;
  }
}

std::vector<Suspect> suspects_of(const AccountCase& about) {
  std::vector<Suspect> suspects;
  suspect_windows(about, suspects);
  suspect_types(about, suspects);
  if (about.start->engine == Engine::kLlamaCpp) {
    suspect_values(about, suspects, "n_ubatch", &AccountFlags::n_ubatch,
                   {32, 64, 128, 256, 1024, 2048, 4096, 8192});
    suspect_values(about, suspects, "n_seq_max", &AccountFlags::n_seq_max, {2, 3, 4, 8, 16});
  } else {
    suspect_values(about, suspects, "tensor_parallel_size", &AccountFlags::tensor_parallel_size,
                   {2, 4, 8, 16});
    suspect_values(about, suspects, "block_size", &AccountFlags::block_size,
                   {1, 8, 32, 64, 128, 256});
    suspect_values(about, suspects, "max_num_batched_tokens", &AccountFlags::max_num_batched_tokens,
                   {512, 1024, 4096, 32768, 65536, 131072});
  }
  suspect_layers(about, suspects);
  return suspects;
}

bool fits(const AccountCase& changed) {
  try {
    return std::ranges::any_of(attempts(changed).policies, [](const AccountPolicy& policy) {
      return first_difference(policy) == nullptr;
    });
  } catch (const Error&) {  // a change that makes no model, such as heads that cannot be shared
    return false;
  }
}

// "32, 64 or 128"
std::string choices(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t idx = 0; idx < values.size(); ++idx) {
    const bool last = idx + 1 == values.size();
    text += (idx == 0 ? "" : last ? " or " : ", ") + values[idx];
  }
  return text;
}

std::vector<std::string> causes_of(const AccountCase& about) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
  for (const Suspect& suspect : suspects_of(about)) {
    if (!fits(suspect.changed)) continue;
    if (found.empty() || found.back().first != suspect.what) found.push_back({suspect.what, {}});
    if (!suspect.value.empty()) found.back().second.push_back(suspect.value);
  }
  std::vector<std::string> causes;
  for (const auto& [what, values] : found) {
    causes.push_back(what + (values.empty() ? "" : " as " + choices(values)) +
                     ": every line would fit");
  }
  return causes;
}

std::vector<std::string> notes_of(const LayerTable& table, const ModelShape& shape) {
  std::vector<std::string> notes;
  const auto keeps_state = [](const Layer& layer) {
    return layer.mixer == Mixer::kLinear || layer.mixer == Mixer::kSsm;
  };
  if (const auto layers = std::ranges::count_if(table.layers, keeps_state); layers > 0) {
    notes.push_back(fmt::format(
        "{} layers keep a finite state, which no policy here accounts for; vLLM takes it out of "
        "the same memory, llama.cpp prints it apart",
        layers));
  }
  const auto keeps_index = [](const LayerShape& layer) { return layer.index.has_value(); };
  if (const auto layers = std::ranges::count_if(shape.layers, keeps_index); layers > 0) {
    notes.push_back(
        fmt::format("{} layers keep an index of keys, which no policy here accounts for", layers));
  }
  return notes;
}

}  // namespace

std::int64_t num_differing(const AccountPolicy& policy) {
  return std::ranges::count_if(policy.lines,
                               [](const AccountLine& line) { return line.difference != 0; });
}

const AccountLine* first_difference(const AccountPolicy& policy) {
  const auto found = std::ranges::find_if(
      policy.lines, [](const AccountLine& line) { return line.difference != 0; });
  return found == policy.lines.end() ? nullptr : &*found;
}

std::optional<std::int64_t> ParameterList::find(const std::string& name, const std::string& flag,
                                                const std::optional<std::int64_t>& given) {
  const auto stated = start_.settings.find(name);
  if (stated != start_.settings.end()) {
    add(name, std::to_string(stated->second.value), fmt::format("line {}", stated->second.line));
    return stated->second.value;
  }
  if (given) add(name, std::to_string(*given), flag);
  return given;
}

std::int64_t ParameterList::get(const std::string& name, const std::string& flag,
                                const std::optional<std::int64_t>& given, std::int64_t otherwise) {
  const std::optional<std::int64_t> found = find(name, flag, given);
  if (found) return *found;
  add(name, std::to_string(otherwise),
      fmt::format("default of {}", lacuna::to_string(start_.engine)));
  return otherwise;
}

void ParameterList::add(const std::string& name, const std::string& value,
                        const std::string& source) {
  list_.push_back({name, value, source});
}

AccountLine judged(const LogFigure& figure, Int128 low, Int128 high, Equation equation) {
  AccountLine line{figure, low, high, 0, std::move(equation), false, ""};
  if (figure.low > high) line.difference = figure.low - high;
  if (figure.high < low) line.difference = figure.high - low;
  return line;
}

Account account(const EngineStart& start, const LayerTable& table, const ModelShape& shape,
                const AccountFlags& flags) {
  const AccountCase about{&start, table, shape, flags};
  AccountAttempts tried = attempts(about);
  if (tried.policies.empty()) {
    throw Error(
        fmt::format("no allocator policy serves this table: {}", fmt::join(tried.notes, "; ")));
  }
  Account result;
  result.parameters = std::move(tried.parameters);
  result.notes = notes_of(table, shape);
  result.notes.insert(result.notes.end(), tried.notes.begin(), tried.notes.end());
  const auto nearest_one = std::ranges::min_element(tried.policies, {}, distance);
  result.accounted = first_difference(*nearest_one) == nullptr;
  if (result.accounted) {
    result.policies = those_that_fit(std::move(tried.policies));
  } else {
    result.policies.push_back(*nearest_one);
    result.causes = causes_of(about);
    const AccountLine* first = first_difference(*nearest_one);
    if (!first->hint.empty()) {
      result.causes.push_back(fmt::format("line {} prints {}", first->figure.line, first->hint));
    }
  }
  return result;
}

}  // namespace lacuna
