#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "cli/audit_report.h"
#include "cli/bench_decode.h"
#include "cli/bench_kernels.h"
#include "cli/bench_model.h"
#include "cli/capacity_report.h"
#include "cli/cost_report.h"
#include "cli/explain.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/run_model.h"
#include "cli/show.h"
#include "cli/version.h"
#include "lacuna/error.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFault = 1;  // what was measured is not what must be

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error("the output could not be written");
  }
}

void add_cost(CLI::App& app, CostFlags& flags) {
  CLI::App* verb = app.add_subcommand(
      "cost", "exact pairs, FLOPs, state and bytes of a layer table, layer by layer");
  add_model_flags(*verb, flags.model);
  add_work_flags(*verb, flags.work);
  add_policy_flag(*verb, flags.policies);
  add_path_flags(*verb, flags.evidence, flags.query);
  add_hardware_flag(*verb, flags.hardware);
  add_json_flag(*verb, flags.json);
  verb->add_flag("--explain", flags.explain, "print the equation of every figure");
  verb->footer(
      "Examples:\n"
      "  lacuna cost --model gemma-3-270m-q4_k_m.gguf --prompt 32512 --generate 256\n"
      "  lacuna cost --model config.json --attend 'window(1024)+sink(4)' --prompt 131072 --json\n"
      "  lacuna cost --attend 'window(4096)*3, full' --num-layers 32 --num-q-heads 32 \\\n"
      "      --num-kv-heads 8 --head-dim 128 --prompt 131072 --policy 'pool(P=16)' --explain");
  verb->callback([&flags] {
    const CostReport report = make_cost_report(flags);
    print(flags.json ? cost_json(report, flags.explain) : cost_text(report, flags.explain));
  });
}

void add_show(CLI::App& app, ShowFlags& flags) {
  CLI::App* verb =
      app.add_subcommand("show", "what a layer table reads at a length: edges, paths, the mask");
  add_model_flags(*verb, flags.model);
  add_show_flags(*verb, flags);
  add_path_flags(*verb, flags.evidence, flags.query);
  add_json_flag(*verb, flags.json);
  verb->footer(
      "Examples:\n"
      "  lacuna show --attend 'window(3)' --length 8\n"
      "  lacuna show --model config.json --length 131072 --evidence 0\n"
      "  lacuna show --attend 'window(64)+global(every=256)' --length 2048 --svg mask.svg");
  verb->callback([&flags] { print(show(flags)); });
}

void add_capacity(CLI::App& app, CapacityFlags& flags) {
  CLI::App* verb = app.add_subcommand(
      "capacity", "tokens and requests that a memory budget and time limits allow");
  add_model_flags(*verb, flags.model);
  add_capacity_flags(*verb, flags);
  add_policy_flag(*verb, flags.policies);
  add_hardware_flag(*verb, flags.hardware);
  add_json_flag(*verb, flags.json);
  verb->footer(
      "Examples:\n"
      "  lacuna capacity --model config.json --memory-budget 48GiB --requests 24\n"
      "  lacuna capacity --model config.json --memory-budget 60GiB --lengths lengths.txt \\\n"
      "      --requests 32 --hardware h100-sxm --ttft 2 --tpot 0.03");
  verb->callback([&flags] { print(capacity(flags)); });
}

void add_explain(CLI::App& app, ExplainFlags& flags, std::vector<std::string>& faults) {
  CLI::App* verb = app.add_subcommand(
      "explain", "every byte of KV cache that llama.cpp or vLLM printed, by allocator policy");
  add_explain_flags(*verb, flags);
  verb->footer(
      "Examples:\n"
      "  lacuna explain server.log --model config.json\n"
      "  lacuna explain server.log --model gemma-3-270m-q4_k_m.gguf --ubatch-size 128 --json\n"
      "  lacuna explain vllm.log --model config.json --block-size 32 --tensor-parallel-size 2\n"
      "The exit code is 0 where every printed figure is accounted for, and 1 where one differs.");
  verb->callback([&flags, &faults] { faults = explain(flags, print); });
}

struct BenchFlags {
  BenchKernelsFlags kernels;
  BenchDecodeFlags decode;
  BenchModelFlags model;
};

void add_bench(CLI::App& app, BenchFlags& flags, std::vector<std::string>& faults) {
  CLI::App* verb = app.add_subcommand("bench", "timed workloads on this machine");
  verb->require_subcommand(1);
  CLI::App* kernels = verb->add_subcommand(
      "kernels", "attention kernels: rate, share of the machine's limit, executed over needed");
  add_bench_kernels_flags(*kernels, flags.kernels);
  kernels->footer(
      "Examples:\n"
      "  lacuna bench kernels --only d64 --json\n"
      "  lacuna bench kernels --length 2048 --attend full --attend 'window(512)' --dtype bf16\n"
      "  lacuna bench kernels --scan 1024..8192 --dtype bf16 --svg scan.svg");
  kernels->callback([&flags, &faults] { faults = bench_kernels(flags.kernels, print); });
  CLI::App* decode = verb->add_subcommand(
      "decode",
      "steps over a real KV cache: held and read bytes beside predicted, time, bandwidth");
  add_bench_decode_flags(*decode, flags.decode);
  decode->footer(
      "Examples:\n"
      "  lacuna bench decode --json\n"
      "  lacuna bench decode --model gemma-3-270m-q4_k_m.gguf --length 32767\n"
      "  lacuna bench decode --attend 'window(1024)*3, full' --num-layers 32 --num-q-heads 32 \\\n"
      "      --num-kv-heads 8 --head-dim 128 --scan 1024..65536 --svg steps.svg");
  decode->callback([&flags, &faults] { faults = bench_decode(flags.decode, print); });
  CLI::App* model = verb->add_subcommand(
      "model", "prompts and answers of a real model: time by part, pairs, bytes held and read");
  add_bench_model_flags(*model, flags.model);
  model->footer(
      "Examples:\n"
      "  lacuna bench model --model gemma-3-270m-q4_k_m.gguf --json\n"
      "  lacuna bench model --model smollm2-135m-q4_1.gguf --length 1024 --length 8128 \\\n"
      "      --against 'window(1024)+sink(4)'\n"
      "  lacuna bench model --model model.gguf --kv-dtype int8 --length 32512 --generate 256");
  model->callback([&flags, &faults] { faults = bench_model(flags.model, print); });
}

void add_audit(CLI::App& app, AuditFlags& flags, std::vector<std::string>& faults) {
  CLI::App* verb = app.add_subcommand(
      "audit", "what was predicted of a model and its layer tables, and what this machine did");
  add_audit_flags(*verb, flags);
  verb->footer(
      "Examples:\n"
      "  lacuna audit --model gemma-3-270m-q4_k_m.gguf --prompt 8192 --against full \\\n"
      "      --against 'window(512)' --html audit.html\n"
      "  lacuna audit --model model.gguf --claim said.json --json\n"
      "  lacuna audit --model model.gguf --plant keep-all\n"
      "An exact figure that is not as predicted (pairs, bytes held, bytes read, a change before a\n"
      "path lets it be) ends with exit code 1; a time that is not, only with --strict.");
  verb->callback([&flags, &faults] { faults = audit(flags, print); });
}

void add_report(CLI::App& app, ReportFlags& flags) {
  CLI::App* verb = app.add_subcommand(
      "report", "an audit's text and page again, from its JSON alone; or two audits side by side");
  add_report_flags(*verb, flags);
  verb->footer(
      "Examples:\n"
      "  lacuna report audit.json --html audit.html\n"
      "  lacuna report --compare before.json after.json");
  verb->callback([&flags] { report(flags, print); });
}

void add_run(CLI::App& app, RunFlags& flags) {
  CLI::App* verb = app.add_subcommand("run", "generate text with a model, through any layer table");
  add_run_flags(*verb, flags);
  verb->footer(
      "Examples:\n"
      "  lacuna run --model gemma-3-270m-q4_k_m.gguf --prompt 'The capital of France is'\n"
      "  lacuna run --model smollm2-135m-q4_1.gguf --file book.txt --attend "
      "'window(1024)+sink(4)'\n"
      "  lacuna run --model model.gguf --chat --prompt 'What is a KV cache?' --temperature 0.7\n"
      "The answer goes to standard output as it comes, the figures to standard error. Ctrl-C ends\n"
      "the answer; what was done is printed, and the exit code is 0.");
  verb->callback([&flags] { run_model(flags, print); });
}

// The verb that was named last: `kernels` of `bench kernels`.
const CLI::App* named_verb(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// CLI11's own texts may have several lines and name no neighbour; ours have one, and suggest one.
std::string one_line(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> known;
  const CLI::App* verb = named_verb(&app);
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  std::vector<std::string> verbs;
  for (const CLI::App* sub : verb->get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(sub->get_name());
  }
  known.insert(known.end(), verbs.begin(), verbs.end());
  for (const std::string& word : verb->remaining(true)) {
    return "'" + word + "' is not an option or verb here; allowed: " + joined(known) +
           did_you_mean(word.substr(0, word.find('=')), known);
  }
  if (!verbs.empty()) return "no verb is given; allowed: " + joined(verbs);
  const bool empty = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  return error.what() + std::string(empty ? "; allowed: one value" : "");
}

// One line, whatever a file or a flag put into the message.
int refuse(const std::string& message) {
  const std::string line = "lacuna: " + printable(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kBadInput;
}

int run(int argc, char** argv) {
  CLI::App app("Lacuna: sparse attention that can be audited");
  app.require_subcommand(1);
  bool is_verbose = false;  // before --version, which looks at it: flags are read in this order
  CLI::Option* verbose =
      app.add_flag("--verbose", is_verbose, "with --version: compiler, CPU, what was measured");
  verbose->needs(app.set_version_flag("--version", [&] { return version_text(is_verbose); }));
  CostFlags cost;
  ShowFlags show;
  CapacityFlags capacity;
  ExplainFlags explain;
  RunFlags run_flags;
  AuditFlags audit_flags;
  ReportFlags report_flags;
  BenchFlags bench;
  std::vector<std::string> faults;
  add_show(app, show);
  add_cost(app, cost);
  add_capacity(app, capacity);
  add_explain(app, explain, faults);
  add_run(app, run_flags);
  add_audit(app, audit_flags, faults);
  add_report(app, report_flags);
  add_bench(app, bench, faults);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return refuse(one_line(app, error));
  } catch (const Error& error) {
    return refuse(error.what());
  } catch (const std::bad_alloc&) {
    return refuse("memory ran out; a shorter length or fewer sequences need less");
  } catch (const std::exception& error) {
    refuse(error.what());
    return kFault;
  }
  for (const std::string& fault : faults) refuse(fault);
  return faults.empty() ? 0 : kFault;
}

}  // namespace
}  // namespace lacuna::cli

int main(int argc, char** argv) { return lacuna::cli::run(argc, argv); }
