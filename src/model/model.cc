#include "lacuna/model.h"

#include <fmt/format.h>
#include <algorithm>

#include <set>
#include <string_view>

#include "lacuna/error.h"
#include "lacuna/system_memory.h"
#include "model/model_state.h"

namespace lacuna {
namespace {

// Packs the tensors of one file and knows which of them were asked for.
class Loader {
 public:
  Loader(const WeightFile& file, const ModelOptions& options, ThreadPool* pool)
      : file_(file), options_(options), pool_(pool) {}

  Vector vector(const std::string& name, std::int64_t size) {
    taken_.insert(name);
    return file_.vector(name, size);
  }
  WeightMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    taken_.insert(name);
    return file_.matrix(name, rows, cols);
  }
  // The rows of all of them, one after another; in the file's 4 or 5 bits where all have so few.
  DenseWeights pack(const std::vector<WeightMatrix>& parts) {
    std::int64_t rows = 0;
    for (const WeightMatrix& part : parts) {
      rows += part.rows;
      packed_bytes_ += part.size_bytes();
    }
    const auto of_row = [&](std::int64_t row, const auto& read) {
      for (const WeightMatrix& part : parts) {
        if (row < part.rows) return read(part, row);
        row -= part.rows;
      }
    };
    if (const int bits = common_bits(parts); bits != 0) {
      const auto read = [&](std::span<DenseGroup> to, std::int64_t row) {
        of_row(row, [&](const WeightMatrix& part, std::int64_t at) { read_groups(to, part, at); });
      };
      return {bits, rows, parts.front().cols, read, pool_, &blocks_};
    }
    const auto read = [&](std::span<float> to, std::int64_t row) {
      of_row(row, [&](const WeightMatrix& part, std::int64_t at) { read_row(to, part, at); });
    };
    return {options_.products, rows, parts.front().cols, read, pool_, &blocks_};
  }
  // As the file stores what was packed.
  std::int64_t packed_bytes() const { return packed_bytes_; }
  void refuse_others() const {
    for (const GgufTensor& tensor : file_.header().tensors) {
      if (taken_.contains(tensor.name) || tensor.name == "rope_freqs.weight") continue;
      throw Error(
          fmt::format("{}: tensor '{}' is not part of the architectures that this program "
                      "runs, so its results would be wrong",
                      file_.path(), tensor.name));
    }
  }

 private:
  // 0: not in groups of few bits.
  int common_bits(const std::vector<WeightMatrix>& parts) const {
    if (options_.products != DenseType::kInt8) return 0;
    int bits = 4;
    for (const WeightMatrix& part : parts) {
      if (group_bits(part.type) == 0) return 0;
      bits = std::max(bits, group_bits(part.type));
    }
    return bits;
  }

  const WeightFile& file_;
  const ModelOptions& options_;
  ThreadPool* pool_;
  std::set<std::string, std::less<>> taken_;
  MemoryBlocks blocks_;
  std::int64_t packed_bytes_ = 0;
};

LayerWeights load_layer(Loader& loader, const Model::State& model, std::size_t idx) {
  const LayerShape& shape = model.config.shape.layers[idx];
  const std::int64_t hidden = model.architecture.hidden_size;
  const std::int64_t q_size = shape.num_q_heads * shape.head_dim;
  const std::int64_t kv_size = shape.num_kv_heads * shape.head_dim;
  const std::int64_t inner = shape.mlp->intermediate_size;
  const auto name = [&](std::string_view part) {
    return fmt::format("blk.{}.{}.weight", idx, part);
  };
  LayerWeights layer;
  layer.attention_norm = loader.vector(name("attn_norm"), hidden);
  layer.q_k_v = loader.pack({loader.matrix(name("attn_q"), q_size, hidden),
                             loader.matrix(name("attn_k"), kv_size, hidden),
                             loader.matrix(name("attn_v"), kv_size, hidden)});
  if (model.architecture.norms_heads) {
    layer.q_norm = loader.vector(name("attn_q_norm"), shape.head_dim);
    layer.k_norm = loader.vector(name("attn_k_norm"), shape.head_dim);
  }
  layer.attention_output = loader.pack({loader.matrix(name("attn_output"), hidden, q_size)});
  layer.mlp_norm = loader.vector(name("ffn_norm"), hidden);
  layer.gate_up = loader.pack({loader.matrix(name("ffn_gate"), inner, hidden),
                               loader.matrix(name("ffn_up"), inner, hidden)});
  layer.down = loader.pack({loader.matrix(name("ffn_down"), hidden, inner)});
  if (model.architecture.norms_after) {
    layer.after_attention_norm = loader.vector(name("post_attention_norm"), hidden);
    layer.after_mlp_norm = loader.vector(name("post_ffw_norm"), hidden);
  }
  return layer;
}

// Of all matrices; a tied embedding is packed as the output.
std::int64_t packed_bytes(const WeightFile& file, DenseType products) {
  double numbers = 0;
  for (const GgufTensor& tensor : file.header().tensors) {
    if (tensor.dims.size() < 2) continue;
    numbers += static_cast<double>(tensor.dims[0]) * static_cast<double>(tensor.dims[1]);
  }
  return static_cast<std::int64_t>(numbers * (products == DenseType::kF32 ? 4 : 1.0625));
}

std::int64_t bytes_of(const LayerWeights& layer) {
  return layer.q_k_v.size_bytes() + layer.attention_output.size_bytes() +
         layer.gate_up.size_bytes() + layer.down.size_bytes();
}

}  // namespace

Model::State::State(const std::string& path, const ModelOptions& options, ThreadPool* pool)
    : file(path),
      config(read_gguf_config(file.bytes(), path, options.assume)),
      architecture(read_architecture(file, config)) {
  tokenizer.emplace(file.bytes(), file.header(), path);
  if (tokenizer->vocab_size() != architecture.vocab_size) {
    throw Error(fmt::format("{}: the tokenizer has {} tokens and the model {}; allowed: the same",
                            path, tokenizer->vocab_size(), architecture.vocab_size));
  }
  require_memory(packed_bytes(file, options.products), path + ", its weights packed,");
  Loader loader(file, options, pool);
  const std::int64_t hidden = architecture.hidden_size;
  const std::int64_t vocab = architecture.vocab_size;
  embedding = loader.matrix("token_embd.weight", vocab, hidden);
  for (std::size_t idx = 0; idx < config.shape.layers.size(); ++idx) {
    layers.push_back(load_layer(loader, *this, idx));
  }
  output_norm = loader.vector("output_norm.weight", hidden);
  const bool tied = !file.has("output.weight");
  output = loader.pack({tied ? embedding : loader.matrix("output.weight", vocab, hidden)});
  loader.refuse_others();
  file_weight_bytes = loader.packed_bytes();
}

Model::Model(const std::string& path, const ModelOptions& options, ThreadPool* pool)
    : state_(std::make_unique<const State>(path, options, pool)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const ModelConfig& Model::config() const { return state_->config; }
const Tokenizer& Model::tokenizer() const { return *state_->tokenizer; }
const std::string& Model::path() const { return state_->file.path(); }
ChatTemplate Model::chat_template() const {
  return lacuna::chat_template(state_->file.bytes(), state_->file.header(), path());
}

std::int64_t Model::file_weight_bytes() const { return state_->file_weight_bytes; }

bool Model::rotates_alike() const {
  const std::vector<Rotary>& rotary = state_->architecture.rotary;
  return std::ranges::all_of(rotary, [&](const Rotary& one) { return one == rotary.front(); });
}

std::int64_t Model::weight_bytes() const {
  std::int64_t bytes = state_->output.size_bytes();
  for (const LayerWeights& layer : state_->layers) bytes += bytes_of(layer);
  return bytes;
}

}  // namespace lacuna
