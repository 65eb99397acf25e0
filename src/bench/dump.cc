#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/timed_row.h"
#include "lacuna/file.h"
#include "lacuna/kernel_bench.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes_of(const void* data, std::int64_t size_bytes) {
  return {static_cast<const char*>(data), static_cast<std::size_t>(size_bytes)};
}

Json write_tensor(const std::string& folder, const std::string& name, const TensorView& tensor) {
  const std::int64_t count = tensor.shape[0] * tensor.shape[1] * tensor.shape[2];
  const std::string file = name + ".bin";
  write_file(folder + "/" + file, bytes_of(tensor.data, count * size_bytes(tensor.dtype)));
  return {{"file", file}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}};
}

Json write_vector(const std::string& folder, const std::string& name, std::span<const float> values,
                  const std::vector<std::int64_t>& shape) {
  const std::string file = name + ".bin";
  write_file(folder + "/" + file,
             bytes_of(values.data(), static_cast<std::int64_t>(values.size_bytes())));
  return {{"file", file}, {"dtype", "f32"}, {"shape", shape}};
}

}  // namespace

void dump_kernel_problem(const KernelProblem& problem, std::uint64_t seed,
                         const std::string& folder) {
  bench::Shared shared(seed, {});
  KernelBenchOptions once;
  once.run_ns = 1;
  const bench::TimedRow timed(problem, shared, once);
  const bench::Inputs& inputs = timed.inputs();
  const bench::Outputs outputs = timed.outputs();
  Json tensors = {{"q", write_tensor(folder, "q", inputs.q_rows(problem.num_rows()))},
                  {"k", write_tensor(folder, "k", inputs.k.view())},
                  {"v", write_tensor(folder, "v", inputs.v.view())},
                  {"out", write_tensor(folder, "out", outputs.out)},
                  {"lse", write_vector(folder, "lse", outputs.lse,
                                       {problem.num_rows(), problem.heads.num_q_heads})}};
  if (problem.learned_sinks) {
    tensors["sinks"] =
        write_vector(folder, "sinks", inputs.sink_logits, {problem.heads.num_q_heads});
  }
  const Json document = {{"format", "lacuna-kernel-problem"},
                         {"format_version", 1},
                         {"name", problem.name()},
                         {"attend", problem.attend},
                         {"causal", problem.causal},
                         {"length", problem.length},
                         {"rows", problem.num_rows()},
                         {"num_q_heads", problem.heads.num_q_heads},
                         {"num_kv_heads", problem.heads.num_kv_heads},
                         {"head_dim", problem.head_dim},
                         {"v_head_dim", problem.v_head_dim},
                         {"isa", timed.row().isa},
                         {"needed_pairs", timed.row().needed_pairs},
                         {"executed_pairs", timed.row().ledger.executed_pairs},
                         {"tensors", std::move(tensors)}};
  write_file(folder + "/problem.json", document.dump(2) + "\n");
}

}  // namespace lacuna
