#include "cli/run_model.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "cli/bench_figures.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "lacuna/chat.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/integer.h"
#include "lacuna/kernels.h"
#include "lacuna/statistics.h"
#include "lacuna/system_memory.h"

namespace lacuna::cli {
namespace {

std::string prompt_text(const RunFlags& flags) {
  if (!flags.prompt.empty() && !flags.file.empty()) {
    throw Error("--prompt and --file are both given; allowed: one text");
  }
  if (!flags.system.empty() && !flags.chat) {
    throw Error("--system is given without --chat; allowed: both");
  }
  if (flags.no_special && flags.chat) {
    throw Error("--no-special is given with --chat, whose marks are special tokens; allowed: one");
  }
  if (flags.prompt.empty() && flags.file.empty()) {
    throw Error("no prompt is given; allowed: --prompt TEXT, --file FILE, --file - (input)");
  }
  if (flags.file.empty()) return flags.prompt;
  if (flags.file != "-") return read_file(flags.file, kLongestText);
  std::string text;
  char block[1 << 16];
  for (std::size_t size = 0; (size = std::fread(block, 1, sizeof(block), stdin)) > 0;) {
    text.append(block, size);
    if (std::ssize(text) > kLongestText) {
      throw Error(fmt::format("the input is longer than {} bytes", kLongestText));
    }
  }
  if (std::ferror(stdin) != 0) throw Error("the standard input could not be read");
  return text;
}

std::vector<TokenId> prompt_tokens(const RunFlags& flags, const std::string& text,
                                   const Model& model) {
  EncodeOptions options;
  options.parse_special = !flags.no_special;
  if (!flags.chat) return model.tokenizer().encode(text, options);
  std::vector<ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", text});
  const ChatText chat = chat_text(model.chat_template(), messages);
  options.plain = chat.messages;
  return model.tokenizer().encode(chat.text, options);
}

// The table with global(token=…) as positions of the prompt, which do not move.
LayerTable resolved(const LayerTable& table, const std::vector<TokenId>& prompt,
                    const RunFlags& flags) {
  LayerTable result = resolve_tokens(table, {prompt.begin(), prompt.end()});
  if (result != table && flags.overflow == "evict") {
    throw Error(
        "global(token=…) is given with --overflow evict, which moves the tokens; allowed: one of "
        "them");
  }
  return result;
}

GenerateOptions generate_options(const RunFlags& flags) {
  GenerateOptions options;
  options.max_tokens = flags.max_tokens;
  options.chunk = flags.runner.chunk;
  options.sampler = {flags.temperature, flags.top_k, flags.top_p, flags.min_p,
                     static_cast<std::uint64_t>(flags.seed)};
  options.stop_texts = flags.stop;
  options.ignore_end = flags.ignore_end;
  options.overflow = flags.overflow == "stop"    ? Overflow::kStop
                     : flags.overflow == "evict" ? Overflow::kEvict
                                                 : Overflow::kError;
  return options;
}

}  // namespace

void run_model(const RunFlags& flags, const std::function<void(const std::string&)>& print) {
  const Interrupt interrupt;
  GenerateOptions generating = generate_options(flags);
  const Sampler refuses_options(generating.sampler);
  TransformerOptions options = transformer_options(flags.runner);
  const std::string text = prompt_text(flags);
  RunReport report;
  report.flags = flags;
  Subject& subject = report.runner.subject;
  subject = make_subject(flags.runner.model);
  if (flags.decode_only && !subject.table_replaced) {
    throw Error("--decode-only is given without a table; allowed: with --attend or --layers");
  }
  ThreadPool pool(flags.runner.threads);
  const Model model = load_model(report.runner, flags.runner, pool);
  report.weight_bytes = model.weight_bytes();

  const std::vector<TokenId> prompt = prompt_tokens(flags, text, model);
  subject.table = resolved(subject.table, prompt, flags);
  if (flags.decode_only) {
    generating.decode_table = subject.table;
  } else if (subject.table_replaced) {
    options.table = subject.table;
  }
  const ModelShape& shape = model.config().shape;
  const LayerTable& of_prompt = flags.decode_only ? model.config().table : subject.table;
  const std::int64_t asked = std::ssize(prompt) + flags.max_tokens;
  const std::int64_t tokens = std::min(asked, shape.context_length.value_or(asked));
  options.cache_bytes = cache_bytes_for(of_prompt, shape, options, tokens, flags.runner.chunk);
  require_memory(options.cache_bytes, "the cache");
  Transformer transformer(model, options, pool);

  generating.stop = interrupt.token();
  Progress progress("prefill");
  generating.progress = [&](std::int64_t done, std::int64_t total) {
    progress(done, total, "tokens");
  };
  if (!flags.json) generating.text = [&](std::string_view more) { print(std::string(more)); };
  report.result = generate(transformer, model, prompt, generating);
  report.predicted_held_bytes = to_int64(
      predicted_kv(transformer.table(), shape, options, report.result.held_tokens, 0).bytes.value(),
      "held bytes");
  report.runner.peak_memory_bytes = peak_memory_bytes();
  if (flags.json) {
    print(run_json(report));
  } else {
    print("\n");
    const std::string figures = run_text(report);
    std::fwrite(figures.data(), 1, figures.size(), stderr);
  }
}

std::string run_text(const RunReport& report) {
  const RunnerReport& runner = report.runner;
  const Generated& result = report.result;
  const std::int64_t generated = std::ssize(result.tokens);
  std::string text = fmt::format(
      "\nprompt {} tokens, generated {} ({}); products {}, keys {}, kernels {}, threads {}\n"
      "layers {}{}{}\n"
      "load {:.2f} s",
      result.prompt_tokens, generated, to_string(result.ended), runner.products, runner.kv_dtype,
      runner.isa, runner.threads, to_text(runner.subject.table),
      report.flags.decode_only ? ", for the answer alone" : "",
      runner.subject.table.trained == Trained::kFalse
          ? " (the model was not trained with this table)"
          : "",
      runner.load_seconds);
  if (result.first_token_seconds > 0) {
    text +=
        fmt::format("; first token {:.3f} s ({:.0f} prompt tokens/s)", result.first_token_seconds,
                    static_cast<double>(result.prompt_tokens) / result.first_token_seconds);
  }
  if (!result.step_seconds.empty()) {
    const Statistics steps = statistics_of(result.step_seconds);
    text += fmt::format("; each later token {:.2f} ms ({:.1f} tokens/s, p90 {:.2f} ms)",
                        steps.p50 * 1e3, 1 / steps.p50, steps.p90 * 1e3);
  }
  for (const Eviction& eviction : result.evictions) {
    text += fmt::format(
        "\nthe context was full after token {}: went on with {} of them, the most recent, computed "
        "again in {:.3f} s",
        eviction.position, eviction.kept_tokens, eviction.seconds);
  }
  text += fmt::format(
      "\nkeys and values held {} bytes, predicted {}; weights {} bytes; peak memory {} bytes\n",
      result.held_bytes, report.predicted_held_bytes, report.weight_bytes,
      runner.peak_memory_bytes);
  return text;
}

Json eviction_json(const Eviction& eviction) {
  return {{"position", eviction.position},
          {"kept_tokens", eviction.kept_tokens},
          {"seconds", eviction.seconds}};
}

Json request_json(const RunFlags& flags) {
  return {{"chat", flags.chat},
          {"decode_only", flags.decode_only},
          {"max_tokens", flags.max_tokens},
          {"chunk_tokens", flags.runner.chunk},
          {"temperature", flags.temperature},
          {"top_k", flags.top_k},
          {"top_p", flags.top_p},
          {"min_p", flags.min_p},
          {"seed", flags.seed},
          {"stop_texts", flags.stop},
          {"ignore_end", flags.ignore_end},
          {"overflow", flags.overflow},
          {"exact_kv", flags.runner.exact_kv},
          {"page_size", flags.runner.page_size}};
}

std::string run_json(const RunReport& report) {
  const RunnerReport& runner = report.runner;
  const Generated& result = report.result;
  const Json document = {{"format", "lacuna-run"},
                         {"format_version", 1},
                         {"kind", "measured"},
                         {"interrupted", result.ended == Ended::kInterrupted},
                         {"model", subject_json(runner.subject)},
                         {"layers", to_text(runner.subject.table)},
                         {"machine",
                          {{"cpu", runner.cpu.model_name},
                           {"num_allowed_cpus", runner.cpu.num_allowed_cpus},
                           {"isas", kernel_isas()}}},
                         {"request", request_json(report.flags)},
                         {"threads", runner.threads},
                         {"products", runner.products},
                         {"kv_dtype", runner.kv_dtype},
                         {"isa", runner.isa},
                         {"prompt_tokens", result.prompt_tokens},
                         {"tokens", result.tokens},
                         {"text", result.text},
                         {"ended", to_string(result.ended)},
                         {"load_seconds", runner.load_seconds},
                         {"first_token_seconds", result.first_token_seconds},
                         {"step_seconds", result.step_seconds},
                         {"evictions", list_json(result.evictions, eviction_json)},
                         {"held_tokens", result.held_tokens},
                         {"held_bytes", result.held_bytes},
                         {"predicted_held_bytes", report.predicted_held_bytes},
                         {"executed_pairs", result.prefill.executed_pairs},
                         {"weight_bytes", report.weight_bytes},
                         {"peak_memory_bytes", runner.peak_memory_bytes}};
  return document_text(document);
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  add_table_flags(app, flags.runner.model, "; global(token=…) are positions of the prompt");
  app.add_option("--assume", flags.runner.model.assume,
                 "KEY=VALUE in place of a key of the file, as for lacuna cost; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--decode-only", flags.decode_only,
               "the other table reads the answer alone, the model's own reads the prompt");
  app.add_option("--prompt", flags.prompt, "text to go on with")->check(refuse_empty);
  app.add_option("--file", flags.file, "file that holds it; -: standard input")
      ->check(refuse_empty);
  app.add_flag(
      "--chat", flags.chat,
      "the text is a user's message to a chat model; texts of special tokens in it, and in "
      "--system, are plain text");
  app.add_option("--system", flags.system, "system message of the chat");
  app.add_flag("--no-special", flags.no_special, "texts of special tokens are plain text");
  add_number(app, "--max-tokens", flags.max_tokens, 1, 1 << 24,
             "tokens to generate, within the context (256)");
  app.add_option("--temperature", flags.temperature, "0 (default): the likeliest token");
  add_number(app, "--top-k", flags.top_k, 0, 1 << 24, "the likeliest tokens to draw from (0: all)");
  app.add_option("--top-p", flags.top_p, "the likeliest tokens whose sum is this (1)");
  app.add_option("--min-p", flags.min_p, "tokens of this share of the likeliest one's (0)");
  add_number(app, "--seed", flags.seed, 0, INT64_MAX, "of the draws (0)");
  app.add_option("--stop", flags.stop, "text before which the answer ends; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--ignore-end", flags.ignore_end, "go on after an end-of-text token");
  app.add_option(
         "--overflow", flags.overflow,
         "beyond the context: error (default), refused before work; stop there; or evict: go "
         "on with the most recent half of it, computed again from position 0 on (with the "
         "beginning of text, where the prompt has one)")
      ->check(CLI::IsMember({"error", "stop", "evict"}));
  add_runner_flags(app, flags.runner);
  add_exact_flags(app, flags.runner);
  add_json_flag(app, flags.json);
}

}  // namespace lacuna::cli
