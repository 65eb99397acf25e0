#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "lacuna/audit.h"

// Audits of a tiny model, for tests.
namespace lacuna::rig {

// Gemma 3's own table: window(8) in five layers of six, 7 keys farther with each, then full.
class TinyAudit : public testing::Test {
 protected:
  TinyAudit()
      : pool_(2), model_(kFile, {}, &pool_), exact_(kFile, {.products = DenseType::kF32}, &pool_) {
    options_.prompt_tokens = 60;
    options_.generate_tokens = 9;
    options_.quality_positions = 40;
    options_.bench.chunk = 16;
    options_.bench.repetitions = 1;
    options_.bench.transformer.page_size = 16;
    options_.int8_kv = false;
    std::mt19937 random(1);
    for (int i = 0; i < 61; ++i) {
      options_.bench.text.push_back(static_cast<TokenId>(random() % 60));
    }
  }

  LayerTable table(const std::string& layers) {
    if (layers.empty()) return model_.config().table;
    return parse_layers(layers, static_cast<int>(model_.config().table.layers.size()), true);
  }
  Audit audit(const std::vector<std::string>& layers = {""}) {
    std::vector<LayerTable> tables;
    for (const std::string& text : layers) tables.push_back(table(text));
    return run_audit(model_, exact_, tables, pool_, options_);
  }

  static inline const std::string kFile =
      std::string(LACUNA_TEST_DATA) + "/models/tiny-gemma3.gguf";
  ThreadPool pool_;
  Model model_;
  Model exact_;
  AuditOptions options_;
};

}  // namespace lacuna::rig
