#include "lacuna/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/kv_dtype.h"
#include "lacuna/retention.h"
#include "lacuna/stopwatch.h"

namespace lacuna {
namespace {

// Holds text back while it may be the beginning of a stop text.
class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>& texts) : texts_(texts) {}

  // What is certain by now; ends() says whether a stop text was met.
  std::string push(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const std::string& stop : texts_) end = std::min(end, held_.find(stop));
    if (end != std::string::npos) {
      met_ = true;
      return take(end);
    }
    std::size_t open = 0;  // characters at the end that begin a stop text
    for (const std::string& stop : texts_) {
      for (std::size_t size = std::min(stop.size() - 1, held_.size()); size > open; --size) {
        if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) open = size;
      }
    }
    return take(held_.size() - open);
  }
  std::string finish() { return met_ ? "" : take(held_.size()); }
  bool met() const { return met_; }

 private:
  std::string take(std::size_t count) {
    std::string taken = held_.substr(0, count);
    held_.erase(0, count);
    return taken;
  }

  const std::vector<std::string>& texts_;
  std::string held_;
  bool met_ = false;
};

std::int64_t context_of(const Model& model) {
  return model.config().shape.context_length.value_or(std::int64_t{1} << 40);
}

// One generation, from its sequence to its statistics.
class Run {
 public:
  Run(Transformer& transformer, const Model& model, const GenerateOptions& options)
      : transformer_(transformer),
        model_(model),
        options_(options),
        sampler_(options.sampler),
        stream_(model.tokenizer()),
        stops_(options.stop_texts),
        sequence_(transformer.cache().create()) {}
  ~Run() {
    transformer_.cache().free(sequence_);
    if (own_table_) transformer_.use(*own_table_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Generated answer(std::span<const TokenId> prompt, std::int64_t most) {
    const Stopwatch watch;
    result_.prompt_tokens = std::ssize(prompt);
    prompt_ = prompt;
    std::optional<TokenId> next = picked(prefill(prompt));
    result_.first_token_seconds = watch.seconds();
    if (!next) result_.first_token_seconds = 0;
    if (options_.decode_table) {
      own_table_ = transformer_.table();
      transformer_.use(*options_.decode_table);
    }
    result_.ended = most < options_.max_tokens ? Ended::kContext : Ended::kMaxTokens;
    while (next && std::ssize(result_.tokens) < most && take(*next)) {
      if (std::ssize(result_.tokens) == most) break;
      const Stopwatch step;
      next = picked(is_full() ? begin_anew() : forward({&*next, 1}));
      if (next) result_.step_seconds.push_back(step.seconds());
    }
    if (!next) result_.ended = Ended::kInterrupted;
    if (!stops_.met()) finish();
    const std::vector<std::int64_t> held = transformer_.cache().held_bytes(sequence_);
    result_.held_tokens = transformer_.cache().length(sequence_);
    result_.held_bytes = std::accumulate(held.begin(), held.end(), std::int64_t{0});
    return std::move(result_);
  }

 private:
  using Logits = std::optional<std::span<const float>>;

  // Of the token after these; nullopt once a stop is asked for.
  Logits forward(std::span<const TokenId> tokens, LogitRows rows = LogitRows::kLast) {
    const NewTokens batch[] = {{sequence_, tokens}};
    auto pass = transformer_.forward(batch, rows, options_.stop);
    if (!pass) {
      if (options_.stop.stop_requested()) return std::nullopt;
      throw Error(fmt::format("the cache has no room for {} tokens after {}", tokens.size(),
                              transformer_.cache().length(sequence_)));
    }
    ledger_ = pass->ledger();
    pass->commit();
    return rows == LogitRows::kNone ? std::span<const float>() : pass->logits(0);
  }

  // Once a token: a draw for each chunk would make the answer depend on their size.
  std::optional<TokenId> picked(const Logits& logits) {
    if (!logits) return std::nullopt;
    return sampler_.pick(*logits);
  }

  Logits prefill(std::span<const TokenId> prompt) {
    Logits logits;
    for (std::size_t first = 0; first < prompt.size();) {
      const auto chunk = prompt.subspan(
          first, std::min(static_cast<std::size_t>(options_.chunk), prompt.size() - first));
      first += chunk.size();
      logits = forward(chunk, first < prompt.size() ? LogitRows::kNone : LogitRows::kLast);
      if (!logits) return std::nullopt;
      if (!result_.evictions.empty()) continue;
      result_.prefill += ledger_;
      if (options_.progress) {
        options_.progress(static_cast<std::int64_t>(first), std::ssize(prompt));
      }
    }
    return logits;
  }

  bool is_full() const {
    return options_.overflow == Overflow::kEvict &&
           transformer_.cache().length(sequence_) == context_of(model_);
  }

  // Logits after the tokens that are kept, the last of which has not passed through the model yet.
  Logits begin_anew() {
    const Stopwatch watch;
    const auto all = static_cast<std::int64_t>(prompt_.size() + result_.tokens.size());
    const std::int64_t count = std::max<std::int64_t>(context_of(model_) / 2, 1);
    std::vector<TokenId> kept;
    for (std::int64_t at = all - count; at < all; ++at) {
      const auto of_answer = at - std::ssize(prompt_);
      kept.push_back(of_answer < 0 ? prompt_[static_cast<std::size_t>(at)]
                                   : result_.tokens[static_cast<std::size_t>(of_answer)]);
    }
    if (count > 1 && prompt_.front() == model_.tokenizer().beginning()) {
      kept.front() = prompt_.front();
    }
    transformer_.cache().free(sequence_);
    sequence_ = transformer_.cache().create();
    result_.evictions.push_back({all, count, 0});
    if (own_table_) transformer_.use(*own_table_);
    const Logits logits = prefill(kept);
    if (own_table_) transformer_.use(*options_.decode_table);
    result_.evictions.back().seconds = watch.seconds();
    return logits;
  }

  // False where the answer ends with this token.
  bool take(TokenId token) {
    if (!options_.ignore_end && model_.tokenizer().ends(token)) {
      result_.ended = Ended::kEndToken;
      return false;
    }
    result_.tokens.push_back(token);
    emit(stops_.push(stream_.push(token)));
    if (stops_.met()) result_.ended = Ended::kStopText;
    return !stops_.met();
  }

  // What was held back for a character or a stop text that did not become whole.
  void finish() {
    emit(stops_.push(stream_.finish()));
    if (stops_.met()) result_.ended = Ended::kStopText;
    emit(stops_.finish());
  }

  void emit(const std::string& text) {
    result_.text += text;
    if (!text.empty() && options_.text) options_.text(text);
  }

  Transformer& transformer_;
  const Model& model_;
  const GenerateOptions& options_;
  Sampler sampler_;
  TextStream stream_;
  StopTexts stops_;
  SequenceId sequence_;
  std::span<const TokenId> prompt_;
  std::optional<LayerTable> own_table_;  // while another one decodes
  Ledger ledger_;
  Generated result_;
};

// Tokens that may be generated.
std::int64_t room(const Model& model, std::int64_t prompt_tokens, const GenerateOptions& options) {
  const std::int64_t context = context_of(model);
  if (prompt_tokens > context) {
    throw Error(fmt::format("the prompt has {} tokens; allowed: at most the model's context of {}",
                            prompt_tokens, context));
  }
  if (options.overflow == Overflow::kError) {
    require_context(
        model, prompt_tokens, options.max_tokens,
        ", to stop at its end (overflow: stop), or to go on with the most recent tokens "
        "(overflow: evict)");
  }
  if (options.overflow == Overflow::kEvict) return options.max_tokens;
  return std::min(options.max_tokens, context - prompt_tokens);
}

bool covers(const Ranges& held, const Range& wanted) {
  return std::ranges::any_of(held, [&](const Range& range) {
    return range.begin <= wanted.begin && wanted.end <= range.end;
  });
}

// What the table of the answer reads must be there when the prompt is done.
void check_decode_table(const Transformer& transformer, const ModelShape& shape,
                        const LayerTable& decode_table, std::int64_t prompt_tokens) {
  const Retention own(transformer.table(), shape);
  const Retention other(decode_table, shape);
  if (own.layers() != other.layers()) return;  // use() says so
  const std::vector<Ranges> kept = own.kept(prompt_tokens, prompt_tokens);
  const std::vector<Ranges> wanted = other.kept(prompt_tokens, prompt_tokens);
  for (std::size_t table = 0; table < wanted.size(); ++table) {
    for (const Range& range : wanted[table]) {
      if (covers(kept[table], range)) continue;
      throw Error(
          fmt::format("the table of the answer reads keys {}..{}, which the table of the "
                      "prompt has freed by then; allowed: tables that read no more",
                      range.begin, range.end - 1));
    }
  }
}

}  // namespace

std::string_view to_string(Ended ended) {
  switch (ended) {
    case Ended::kEndToken:
      return "end token";
    case Ended::kStopText:
      return "stop text";
    case Ended::kMaxTokens:
      return "max tokens";
    case Ended::kContext:
      return "context";
    case Ended::kInterrupted:
      return "interrupted";
  }
  return "";
}

Held predicted_kv(const LayerTable& table, const ModelShape& shape,
                  const TransformerOptions& options, std::int64_t tokens, std::int64_t in_flight) {
  const Policy paged = parse_policy(fmt::format("paged(P={}, in_flight={}, rollback={})",
                                                options.page_size, in_flight, options.rollback));
  const KvDtype dtype = kv_dtype(to_string(options.kv_dtype));
  return held(paged, table, shape, {tokens, tokens, dtype});
}

std::int64_t cache_bytes_for(const LayerTable& table, const ModelShape& shape,
                             const TransformerOptions& options, std::int64_t tokens,
                             std::int64_t chunk) {
  constexpr std::int64_t kSlab = std::int64_t{2} << 20;
  const LayerTable kept = options.planted.keep_all
                              ? parse_layers("full", static_cast<int>(table.layers.size()), true)
                              : table;
  const std::int64_t bytes =
      to_int64(predicted_kv(kept, shape, options, tokens, std::min(chunk, tokens)).bytes.value(),
               "bytes of the cache");
  return checked_add64(checked_add64(bytes, bytes / 4), 16 * kSlab);
}

void require_context(const Model& model, std::int64_t prompt_tokens, std::int64_t answer_tokens,
                     std::string_view or_else) {
  const std::int64_t context = context_of(model);
  if (answer_tokens <= context - prompt_tokens) return;
  throw Error(
      fmt::format("a prompt of {} tokens and {} to generate are longer than the model's context of "
                  "{}; allowed: less of either{}",
                  prompt_tokens, answer_tokens, context, or_else));
}

Generated generate(Transformer& transformer, const Model& model, std::span<const TokenId> prompt,
                   const GenerateOptions& options) {
  if (prompt.empty()) throw Error("the prompt has no tokens; allowed: at least one");
  if (options.chunk < 1 || options.max_tokens < 1) {
    throw Error(fmt::format("chunk is {} and max_tokens {}; allowed: 1 and more", options.chunk,
                            options.max_tokens));
  }
  for (const std::string& text : options.stop_texts) {
    if (text.empty()) throw Error("a stop text is empty; allowed: at least one character");
  }
  if (options.decode_table) {
    check_decode_table(transformer, model.config().shape, *options.decode_table,
                       std::ssize(prompt));
  }
  const std::int64_t most = room(model, std::ssize(prompt), options);
  return Run(transformer, model, options).answer(prompt, most);
}

}  // namespace lacuna
