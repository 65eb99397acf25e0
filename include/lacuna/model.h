#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lacuna/chat.h"
#include "lacuna/config.h"
#include "lacuna/dense.h"
#include "lacuna/thread_pool.h"
#include "lacuna/tokenizer.h"

namespace lacuna {

struct ModelOptions {
  // kF32: exactly the file's weights, as transformers answers. kInt8 (and 16-bit or int8 keys) are
  // fast: logits of two ways to one answer have the same bits all the same (see transformer.h);
  // from exact ones they are off, so that a token differs where the best two lie near each other.
  // How near, docs/kernel_log.md says for each test model.
  DenseType products = DenseType::kInt8;
  Assumptions assume = {};  // as of read_model()
};

// A model of a GGUF file: its weights packed for products, its tokenizer, its own layer table and
// sizes. Architectures: llama (Llama, Mistral, SmolLM2), gemma2, gemma3. Immutable; threads may
// share it.
class Model {
 public:
  // Throws Error naming the file and what was wrong or is not known: an architecture, a tensor that
  // is missing, of another size or type, or that no layer here reads.
  explicit Model(const std::string& path, const ModelOptions& options = {},
                 ThreadPool* pool = nullptr);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelConfig& config() const;
  const Tokenizer& tokenizer() const;
  const std::string& path() const;
  ChatTemplate chat_template() const;      // throws as chat_template() of chat.h
  std::int64_t weight_bytes() const;       // of all packed matrices: what a step reads of them
  std::int64_t file_weight_bytes() const;  // of the same matrices as the file stores them
  bool rotates_alike() const;              // queries and keys of all layers by the same angles

  struct State;  // private to src/model
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace lacuna
