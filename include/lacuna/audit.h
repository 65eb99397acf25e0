#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "lacuna/graph.h"
#include "lacuna/model_bench.h"

namespace lacuna {

// From a token to a later position, the path along which most of it is passed on: the product over
// its edges of the largest weight that a query head of the layer gives them.
struct BestPath {
  double weight = 0;
  int hops = 0;
};

// A token is changed, and the residual stream of a later position is looked at after every layer,
// in f32, where equal inputs give equal bits.
struct Intervention {
  std::int64_t evidence = 0;  // the changed position
  std::int64_t query = 0;
  // By the graph of the claimed table; nullopt: unreachable.
  std::optional<int> hops;
  std::optional<int> first_layer;
  DistanceBucket bucket = DistanceBucket::kUnreachable;
  // The first layer after which a bit of the query's state differs; nullopt: none.
  std::optional<int> first_change;
  std::optional<BestPath> best_path;  // of the table that runs, as attention weighs it
  // max|difference| / max|state| after the last layer: what is left of the change.
  double last_change = 0;

  // Before the graph lets it be, or without a path: the table that ran is not the one that is
  // claimed.
  bool is_early() const { return first_change && (!first_layer || *first_change < *first_layer); }
};

// How well the model foretells a text: mean negative log-likelihood in nats.
struct NllBucket {
  std::string name;
  std::int64_t positions = 0;
  double nll = 0;
};
struct Quality {
  std::int64_t first = 0;  // position whose next token is the first foretold
  std::vector<float> nll;  // of each position
  double mean = 0;
  std::vector<NllBucket> by_position;
  // By where the pair of tokens that is foretold last stood before: what a copy would read.
  std::vector<NllBucket> by_distance;
};

// The first tokens once more, and once with every layer rotating as the first one does. A model
// whose layers rotate by different bases reads worse so; where no bit changes, they rotate alike.
struct RotaryTrial {
  Quality own;
  Quality as_first;
};

// All of one table.
struct AuditedTable {
  ModelRow row;
  std::optional<Quality> quality;
  std::vector<Intervention> interventions;
};

struct AuditOptions {
  ModelBenchOptions bench;  // text: at least prompt_tokens + 1 tokens
  std::int64_t prompt_tokens = 8192;
  std::int64_t generate_tokens = 64;
  std::optional<LayerTable> claim = {};   // what is said of the first table; absent: what runs
  std::int64_t quality_positions = 1024;  // the last of the prompt; 0: none
  bool all_distances = false;             // interventions of every distance in place of one
  bool int8_kv = true;                    // the first table once more with int8 keys and values
  // Of the stages that follow one another; what is at hand within the bench's own progress.
  std::function<void(const std::string&)> stage = {};
};

struct Audit {
  std::vector<AuditedTable> tables;     // the first is the one under audit
  std::optional<AuditedTable> int8_kv;  // the first one again
  std::optional<RotaryTrial> rotary;    // where the model's layers have different bases
  std::int64_t num_threads = 1;
  bool interrupted = false;
};

// `exact`: the same file with f32 products, for interventions. Throws Error as run_model_bench().
// Once stop is requested, what is done is returned.
Audit run_audit(const Model& model, const Model& exact, std::span<const LayerTable> tables,
                ThreadPool& pool, const AuditOptions& options);

// The table with every window `more` keys wider, or narrower down to the query itself.
LayerTable with_wider_windows(LayerTable table, std::int64_t more);

}  // namespace lacuna
