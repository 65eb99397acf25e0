#include "config/gguf_facts.h"

namespace lacuna::config {
namespace {

constexpr ArchitectureFacts kArchitectures[] = {
    {"gemma2", Mlp::kGated, GgufWindow::kPeriod, 2, false, false, 4096, 0},
    {"gemma3", Mlp::kGated, GgufWindow::kPeriod, 6, false, false, 0, 0},
    {"gemma3n", Mlp::kGated, GgufWindow::kPeriod, 5, false, false, 0, 20},
    {"gemma-embedding", Mlp::kGated, GgufWindow::kPeriod, 6, true, false, 0, 0},
    {"cohere2", Mlp::kGated, GgufWindow::kPeriod, 4, false, false, 0, 0},
    {"gpt-oss", Mlp::kGated, GgufWindow::kPeriod, 2, false, true, 0, 0},
    {"llama4", Mlp::kGated, GgufWindow::kChunks, 4, false, false, 8192, 0},
    {"exaone4", Mlp::kGated, GgufWindow::kPeriod, 4, false, false, 0, 0},
    {"olmo2", Mlp::kGated, GgufWindow::kPeriod, 4, false, false, 0, 0},
    {"smallthinker", Mlp::kGated, GgufWindow::kDenseFirst, 4, false, false, 0, 0},
    {"modern-bert", Mlp::kGated, GgufWindow::kDenseFirst, 3, true, false, 0, 0},
    {"phi3", Mlp::kGated, GgufWindow::kIgnored, -1, false, false, 0, 0},
    // Architectures without a window of their own.
    {"llama"},
    {"gemma"},
    {"qwen2"},
    {"qwen2moe"},
    {"qwen3"},
    {"qwen3moe"},
    {"qwen3next"},
    {"qwen35"},
    {"qwen35moe"},
    {"mistral3"},
    {"deepseek2"},
    {"glm4"},
    {"glm4moe"},
    {"minimax-m2"},
    {"mimo2"},
    {"kimi-linear"},
    {"command-r"},
    {"olmo"},
    {"olmoe"},
    {"internlm2"},
    {"smollm3"},
    {"granite"},
    {"granitemoe"},
    {"granitehybrid"},
    {"jamba"},
    {"deci"},
    {"stablelm"},
    {"gemma4"},
    {"seed_oss"},
    {"starcoder2", Mlp::kPlain},
    {"phi2", Mlp::kPlain},
    {"gpt2", Mlp::kPlain},
    {"gptneox", Mlp::kPlain},
    {"falcon", Mlp::kPlain},
    {"nemotron", Mlp::kPlain},
    {"nemotron_h", Mlp::kPlain},
    {"nemotron_h_moe", Mlp::kPlain},
    {"bloom", Mlp::kPlain},
    {"mpt", Mlp::kPlain},
    {"bert", Mlp::kPlain}};

}  // namespace

const ArchitectureFacts* find_architecture(std::string_view name) {
  for (const ArchitectureFacts& facts : kArchitectures) {
    if (facts.name == name) return &facts;
  }
  return nullptr;
}

}  // namespace lacuna::config
