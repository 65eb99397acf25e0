#include "cli/show.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/json.h"
#include "cli/mask.h"
#include "cli/text.h"
#include "lacuna/error.h"
#include "lacuna/executed.h"
#include "lacuna/file.h"
#include "lacuna/graph.h"
#include "lacuna/quantity.h"
#include "lacuna/table.h"

namespace lacuna::cli {
namespace {

constexpr std::int64_t kLongestListed = 16;  // adjacency row by row up to this length
constexpr std::int64_t kTextCells = 48;
constexpr std::int64_t kSvgCells = 256;
constexpr std::int64_t kLongestDiameter = 4096;  // every query is looked at

// One topology of the table: the layers that have it, and what one of its heads reads.
struct Kind {
  std::vector<std::int64_t> layers;
  std::int64_t num_heads = 0;  // of each such layer
  Topology topology;
  Int128 edges = 0;
  Int128 legal = 0;
  Int128 square = 0;
  Int128 executed = 0;
  std::int64_t largest_row = 0;
  std::string reads;
};

Kind kind_of(const Subject& subject, std::size_t layer, const LayerTopology::Class& heads,
             std::int64_t length, Tile tile) {
  const bool causal = subject.table.causal;
  return {{static_cast<std::int64_t>(layer)},
          heads.count,
          heads.topology,
          heads.topology.edges(length),
          legal_pairs(causal, 0, length, length),
          Int128{length} * length,
          executed(heads.topology, {0, length}, length, tile).pairs,
          heads.topology.largest_row(length),
          layer_text(subject.table.layers[layer], causal)};
}

std::vector<Kind> kinds_of(const Subject& subject, std::int64_t length, Tile tile) {
  std::vector<Kind> kinds;
  for (std::size_t l = 0; l < subject.table.layers.size(); ++l) {
    const LayerShape& shape = subject.shape.layers[l];
    const LayerTopology heads(subject.table.layers[l], subject.table.causal, static_cast<int>(l),
                              shape.num_q_heads, shape.num_kv_heads);
    for (const LayerTopology::Class& one : heads.q_heads()) {
      const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) {
        return kind.num_heads == one.count &&
               kind.reads == layer_text(subject.table.layers[l], subject.table.causal) &&
               kind.topology == one.topology;
      });
      if (known != kinds.end()) {
        known->layers.push_back(static_cast<std::int64_t>(l));
      } else {
        kinds.push_back(kind_of(subject, l, one, length, tile));
      }
    }
  }
  return kinds;
}

double ratio(Int128 part, Int128 whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

struct Paths {
  std::int64_t evidence = 0;
  std::int64_t query = 0;
  std::optional<int> hops;
  std::optional<int> first_layer;
  std::int64_t reach_tokens = 0;
  double coverage = 0;
  int eccentricity = 0;
  std::optional<int> diameter;  // only where every query can be looked at
  DistanceBucket bucket = DistanceBucket::kUnreachable;
  std::optional<RandomSpread> spread;
};

bool has_random(const LayerTable& table) {
  for (const Layer& layer : table.layers) {
    for (const HeadGroup& group : layer.attend.groups) {
      for (const Term& term : group.attend) {
        if (std::holds_alternative<Random>(term) || std::holds_alternative<RandomBlocks>(term)) {
          return true;
        }
      }
    }
  }
  return false;
}

std::optional<Paths> paths_of(const ShowFlags& flags, const Subject& subject, std::int64_t length) {
  if (length == 0) return std::nullopt;
  const std::vector<int> heads = num_q_heads(subject.shape);
  const Graph graph(subject.table, heads, length);
  Paths paths;
  paths.evidence = flags.evidence.value_or(0);
  paths.query = flags.query.value_or(length - 1);
  paths.hops = graph.hops(paths.evidence, paths.query);
  paths.first_layer = graph.first_layer(paths.evidence, paths.query);
  paths.reach_tokens = graph.reach_tokens();
  paths.coverage = graph.coverage(paths.query);
  paths.eccentricity = graph.eccentricity(paths.query);
  paths.bucket = graph.bucket(paths.evidence, paths.query);
  if (length <= kLongestDiameter) paths.diameter = graph.diameter();
  if (has_random(subject.table)) {
    paths.spread = over_seeds(subject.table, heads, length, paths.evidence, paths.query,
                              static_cast<int>(flags.seeds));
  }
  return paths;
}

// The kind whose mask is drawn: of the layer asked for, else each.
const Kind& kind_with_layer(const std::vector<Kind>& kinds, std::int64_t layer) {
  for (const Kind& kind : kinds) {
    if (std::ranges::find(kind.layers, layer) != kind.layers.end()) return kind;
  }
  std::string attending;
  for (const Kind& kind : kinds)
    attending += (attending.empty() ? "" : ", ") + list_text(kind.layers);
  throw Error("--layer is " + std::to_string(layer) +
              "; allowed: layers that attend: " + attending);
}

std::string rows_text(const Kind& kind, std::int64_t length) {
  std::string text;
  for (std::int64_t q = 0; q < length; ++q) {
    const Ranges keys = kind.topology.row(q, length);
    text += fmt::format("{:>4} reads {:>2}:", q, keys.size());
    for (const Range& part : keys) {
      for (std::int64_t k = part.begin; k < part.end; ++k) text += fmt::format(" {}", k);
    }
    text += "\n";
  }
  return text;
}

std::string kinds_text(const std::vector<Kind>& kinds, Tile tile) {
  Table table({{"layers", Align::kLeft},
               {"heads", Align::kRight},
               {"each reads", Align::kLeft},
               {"edges", Align::kRight},
               {"longest row", Align::kRight},
               {"of the square", Align::kRight},
               {"of legal pairs", Align::kRight},
               {fmt::format("of executed ({}x{})", tile.q, tile.k), Align::kRight}});
  for (const Kind& kind : kinds) {
    table.add_row({list_text(kind.layers), std::to_string(kind.num_heads), kind.reads,
                   count_text(kind.edges, Grouping::kThousands),
                   count_text(kind.largest_row, Grouping::kThousands),
                   fmt::format("{:.2f} %", 100 * ratio(kind.edges, kind.square)),
                   fmt::format("{:.2f} %", 100 * ratio(kind.edges, kind.legal)),
                   fmt::format("{:.2f} %", 100 * ratio(kind.edges, kind.executed))});
  }
  return table.text();
}

std::string spread_text(const char* name, const Spread& spread) {
  std::string text = fmt::format("  {} over {} seeds: min {}, median {}, max {}", name,
                                 spread.seeds, spread.min, spread.median, spread.max);
  if (spread.unreachable > 0) text += fmt::format(" ({} unreachable)", spread.unreachable);
  return text + "\n";
}

std::string paths_text(const Paths& paths) {
  std::string text = fmt::format("\nfrom token {} to token {}: ", paths.evidence, paths.query);
  text += paths.hops ? fmt::format("{} hop(s)", *paths.hops) : std::string("unreachable");
  if (paths.first_layer) {
    text += fmt::format(", first in layer {} ({})", *paths.first_layer, to_string(paths.bucket));
  }
  text += "\n";
  text += fmt::format("reach {} tokens; token {} sees {:.2f} % of what it may within {} hop(s)",
                      paths.reach_tokens, paths.query, 100 * paths.coverage, paths.eccentricity);
  if (paths.diameter) text += fmt::format("; diameter {}", *paths.diameter);
  text += "\n";
  if (paths.spread) {
    text += spread_text("hops", paths.spread->hops) +
            spread_text("reach", paths.spread->reach_tokens) +
            spread_text("hops to the farthest", paths.spread->eccentricity);
  }
  return text;
}

std::string show_text(const ShowFlags& flags, const Subject& subject,
                      const std::vector<Kind>& kinds, const std::optional<Paths>& paths,
                      std::int64_t length, Tile tile) {
  std::string text = subject_text(subject);
  text += fmt::format("length {} tokens; edges and densities of one head of one layer\n\n", length);
  text += kinds_text(kinds, tile);
  if (paths) text += paths_text(*paths);
  if (length == 0) return text;
  for (const Kind& kind : kinds) {
    if (flags.layer && &kind != &kind_with_layer(kinds, *flags.layer)) continue;
    const std::string title = "layer " + list_text(kind.layers) + ": " + kind.reads;
    text += "\n";
    if (length <= kLongestListed) text += title + "\n" + rows_text(kind, length);
    try {
      text += mask_text(mask_of(kind.topology, length, kTextCells).picture(title));
    } catch (const Error& error) {  // the figures stand without the picture
      text += title + ": no picture, " + error.what() + "\n";
    }
  }
  return text;
}

Json spread_json(const Spread& spread) {
  return {{"min", spread.min},
          {"median", spread.median},
          {"max", spread.max},
          {"unreachable", spread.unreachable},
          {"seeds", spread.seeds}};
}

Json kind_json(const Kind& kind, std::int64_t length) {
  Json row = {{"layers", kind.layers},
              {"num_q_heads", kind.num_heads},
              {"attend", kind.reads},
              {"edges", json_of(kind.edges)},
              {"largest_row", kind.largest_row},
              {"legal_pairs", json_of(kind.legal)},
              {"square_pairs", json_of(kind.square)},
              {"executed_pairs", json_of(kind.executed)},
              {"density_square", ratio(kind.edges, kind.square)},
              {"density_legal", ratio(kind.edges, kind.legal)},
              {"density_executed", ratio(kind.edges, kind.executed)}};
  if (length > kLongestListed) return row;
  row["rows"] = Json::array();
  for (std::int64_t q = 0; q < length; ++q) {
    Json keys = Json::array();
    for (const Range& part : kind.topology.row(q, length)) {
      for (std::int64_t k = part.begin; k < part.end; ++k) keys.push_back(k);
    }
    row["rows"].push_back(std::move(keys));
  }
  return row;
}

std::string show_json(const Subject& subject, const std::vector<Kind>& kinds,
                      const std::optional<Paths>& paths, std::int64_t length, Tile tile) {
  Json document = {{"format", "lacuna-show"},
                   {"format_version", 1},
                   {"kind", "exact"},
                   {"model", subject_json(subject)},
                   {"length_tokens", length},
                   {"tile", {{"q", tile.q}, {"k", tile.k}}},
                   {"topologies", Json::array()},
                   {"layer_table", Json::parse(to_json(subject.table))}};
  for (const Kind& kind : kinds) document["topologies"].push_back(kind_json(kind, length));
  const auto put = [&](const char* name, auto&& value) {
    document[name] = paths ? Json(value(*paths)) : Json(nullptr);
  };
  put("evidence", [](const Paths& p) { return Json(p.evidence); });
  put("query", [](const Paths& p) { return Json(p.query); });
  put("hops", [](const Paths& p) { return json_of(p.hops); });
  put("first_layer", [](const Paths& p) { return json_of(p.first_layer); });
  put("bucket", [](const Paths& p) { return Json(to_string(p.bucket)); });
  put("reach_tokens", [](const Paths& p) { return Json(p.reach_tokens); });
  put("coverage", [](const Paths& p) { return Json(p.coverage); });
  put("eccentricity", [](const Paths& p) { return Json(p.eccentricity); });
  put("diameter", [](const Paths& p) { return json_of(p.diameter); });
  if (paths && paths->spread) {
    document["over_seeds"] = {{"hops", spread_json(paths->spread->hops)},
                              {"reach_tokens", spread_json(paths->spread->reach_tokens)},
                              {"eccentricity", spread_json(paths->spread->eccentricity)}};
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void add_show_flags(CLI::App& app, ShowFlags& flags) {
  add_number(app, "--length", flags.length, 0, kLongest, "tokens of the segment");
  add_number(app, "--layer", flags.layer, 0, 65535, "draw this layer's mask alone");
  add_number(app, "--seeds", flags.seeds, 1, 1000, "random tables: seeds to look at (5)");
  app.add_option("--tile", flags.tile,
                 "Q,K: smallest executed unit in tokens (16,16: the kernels')");
  app.add_option("--svg", flags.svg, "file to draw the mask into");
}

std::string show(const ShowFlags& flags) {
  const Subject subject = make_subject(flags.model);
  if (!flags.length) throw Error("--length is missing; allowed: --length N");
  const std::int64_t length = *flags.length;
  const Tile tile = tile_of(flags.tile, subject.table);
  const std::vector<Kind> kinds = kinds_of(subject, length, tile);
  if (flags.layer) kind_with_layer(kinds, *flags.layer);
  if (length > 0) {
    require_inside(flags.evidence.value_or(0), "--evidence", length);
    require_inside(flags.query.value_or(0), "--query", length);
  }
  std::optional<Paths> paths;
  try {
    paths = paths_of(flags, subject, length);
  } catch (const Error& error) {
    // Sets of too many ranges: the counts stand without the paths.
    std::fprintf(stderr, "lacuna: warning: paths are not known: %s\n", error.what());
  }
  if (!flags.svg.empty()) {
    if (kinds.empty() || length == 0) throw Error("--svg has no mask to draw");
    const Kind& kind = flags.layer ? kind_with_layer(kinds, *flags.layer) : kinds.front();
    const Mask mask = mask_of(kind.topology, length, kSvgCells);
    write_file(flags.svg,
               mask_svg(mask.picture("layer " + list_text(kind.layers) + ": " + kind.reads)));
  }
  return flags.json ? show_json(subject, kinds, paths, length, tile)
                    : show_text(flags, subject, kinds, paths, length, tile);
}

}  // namespace lacuna::cli
