#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/options.h"

namespace lacuna::cli {

struct ShowFlags {
  ModelFlags model;
  bool json = false;
  std::optional<std::int64_t> length;
  std::optional<std::int64_t> layer;  // whose mask is drawn; default: one of each topology
  std::optional<std::int64_t> evidence;
  std::optional<std::int64_t> query;
  std::int64_t seeds = 5;  // random tables: figures over so many seeds
  std::string tile;
  std::string svg;  // file to write the mask to
};

void add_show_flags(CLI::App& app, ShowFlags& flags);

// What the table is and what it reads at this length, as text or as JSON with the keys of
// docs/schema/show.schema.json. Writes the picture to flags.svg where it is named.
std::string show(const ShowFlags& flags);

}  // namespace lacuna::cli
