#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "lacuna/cost.h"
#include "lacuna/estimate.h"
#include "lacuna/machine.h"
#include "lacuna/policy.h"
#include "lacuna/training.h"

namespace lacuna::cli {

// What one policy holds for the whole batch at the phase's end; no bytes where it cannot serve the
// table.
struct PolicyRow {
  Policy policy;
  std::optional<Int128> held_bytes;
  std::string why;       // no bytes: why
  std::string equation;  // of one sequence of the longest length
  std::vector<std::string> notes;
};

// The lower bound of a phase (prefill) or of its last step (decode) on a device.
struct RooflineRow {
  std::string work;  // what is bounded
  Int128 flops = 0;
  Int128 bytes = 0;
  Roofline bound;
};

// A statement that a measurement can refute, and the number it rests on.
struct Prediction {
  std::string name;
  std::string statement;
  std::string refuted_by;
  std::optional<double> value;
};

struct PhaseReport {
  PhaseCost cost;
  std::vector<PolicyRow> policies;
  std::vector<RooflineRow> rooflines;
  std::optional<TrainingMemory> training_memory;  // of a training step
};

struct CostReport {
  Subject subject;
  std::vector<std::int64_t> lengths;
  std::int64_t generate = 0;
  std::int64_t chunk = 0;
  std::int64_t verify_rows = 1;
  Tile tile;
  KvDtype kv_dtype;
  bool mac = false;
  std::optional<Device> hardware;
  std::vector<PhaseReport> phases;
  std::optional<Padding> padding;  // of one head of layer 0, where sequences differ in length
  std::optional<std::int64_t> evidence;
  std::optional<std::int64_t> query;
  bool paths_known = true;  // false: hops and first_layer could not be found, a warning says why
  std::optional<int> hops;
  std::optional<int> first_layer;
  std::optional<std::int64_t> reach_tokens;
  std::vector<Prediction> predictions;
  std::vector<std::string> warnings;
};

struct CostFlags {
  ModelFlags model;
  WorkFlags work;
  bool json = false;
  bool explain = false;
  std::vector<std::string> policies;
  std::optional<std::int64_t> evidence;
  std::optional<std::int64_t> query;
  std::string hardware;
};

CostReport make_cost_report(const CostFlags& flags);

// The two forms of a report. Text ends in a newline; JSON has the keys of
// docs/schema/cost.schema.json.
std::string cost_text(const CostReport& report, bool explain);
std::string cost_json(const CostReport& report, bool explain);

}  // namespace lacuna::cli
