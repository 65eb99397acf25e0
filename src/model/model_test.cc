// What loading refuses: a tiny file, changed in one place each.
#include "lacuna/model.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/refusal.h"
#include "config/gguf_bytes.h"
#include "lacuna/file.h"
#include "lacuna/transformer.h"
#include "model/model_state.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using config_test::GgufBytes;
using rig::expect_refused;

// A GGUF file in parts that can be changed and written again.
struct EditedFile {
  struct Entry {
    std::string key;
    GgufBytes encoded;  // with its key
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::vector<std::uint8_t> data;
  };
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;

  explicit EditedFile(const std::string& name) {
    const std::string path = std::string(LACUNA_TEST_DATA) + "/models/" + name + ".gguf";
    const MappedFile file(path);
    const std::span bytes(file.data(), static_cast<std::size_t>(file.size()));
    const GgufHeader header = read_gguf_header(bytes, path);
    for (const GgufEntry& from : header.entries) {
      Entry entry = {from.key, {}};
      if (from.is_array) {
        entry.encoded.array(from.key, from.type, static_cast<std::uint64_t>(from.count));
      } else {
        entry.encoded.key(from.key, from.type);
      }
      entry.encoded.raw(bytes.data() + from.offset, static_cast<std::size_t>(from.bytes));
      entries.push_back(std::move(entry));
    }
    for (const GgufTensor& from : header.tensors) {
      const auto data = bytes.subspan(static_cast<std::size_t>(from.offset),
                                      static_cast<std::size_t>(from.bytes));
      tensors.push_back(
          {from.name, {from.dims.begin(), from.dims.end()}, from.type, {data.begin(), data.end()}});
    }
  }

  EditedFile& drop(const std::string& key) {
    EXPECT_GT(std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; }), 0U)
        << key;
    return *this;
  }
  EditedFile& set(const std::string& key, GgufBytes encoded) {
    std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; });
    entries.push_back({key, std::move(encoded)});
    return *this;
  }
  EditedFile& set(const std::string& key, std::uint32_t value) {
    return set(key, GgufBytes().entry(key, value));
  }
  EditedFile& set(const std::string& key, const char* value) {
    return set(key, GgufBytes().entry(key, std::string_view(value)));
  }
  EditedFile& set(const std::string& key, float value) {
    return set(key, GgufBytes().key(key, GgufType::kFloat32).f32(value));
  }
  Tensor& tensor(const std::string& name) {
    return *std::ranges::find(tensors, name, &Tensor::name);
  }
  EditedFile& drop_tensor(const std::string& name) {
    EXPECT_EQ(std::erase_if(tensors, [&](const Tensor& one) { return one.name == name; }), 1U);
    return *this;
  }
  EditedFile& add_vector(const std::string& name, const std::vector<float>& numbers) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(numbers.data());
    tensors.push_back({name, {numbers.size()}, 0, {bytes, bytes + 4 * numbers.size()}});
    return *this;
  }

  std::vector<std::uint8_t> bytes() const {
    GgufBytes out;
    out.head(tensors.size(), entries.size());
    for (const Entry& entry : entries) {
      out.raw(entry.encoded.bytes().data(), entry.encoded.bytes().size());
    }
    std::size_t offset = 0;
    for (const Tensor& one : tensors) {
      out.tensor(one.name, one.dims, one.type, offset);
      offset += (one.data.size() + 31) / 32 * 32;
    }
    for (const Tensor& one : tensors) out.data(0).raw(one.data.data(), one.data.size());
    return out.bytes();
  }
};

// A folder of its own for each test.
class ModelFiles : public testing::Test {
 protected:
  ModelFiles() {
    std::string name = testing::TempDir() + "lacuna_models_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ModelFiles() override { fs::remove_all(folder_); }

  Model load(const EditedFile& file) const {
    const std::vector<std::uint8_t> bytes = file.bytes();
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return Model(path(), {.products = DenseType::kF32});
  }
  std::string path() const { return (folder_ / "a.gguf").string(); }
  void expect_load_refused(const EditedFile& file, std::vector<std::string> words) const {
    words.push_back(path());
    expect_refused([&] { load(file); }, words);
  }

  fs::path folder_;
};

EditedFile llama() { return EditedFile("tiny-llama-5-on-1"); }
EditedFile gemma2() { return EditedFile("tiny-gemma2"); }
EditedFile gemma3() { return EditedFile("tiny-gemma3"); }

TEST_F(ModelFiles, AFileThatIsWrittenAgainIsTheSameModel) {
  for (const char* const name :
       {"tiny-gemma2", "tiny-gemma3", "tiny-llama-5-on-1", "tiny-llama-6-on-3", "tiny-mistral"}) {
    const Model again = load(EditedFile(name));
    const Model first(std::string(LACUNA_TEST_DATA) + "/models/" + name + ".gguf",
                      {.products = DenseType::kF32});
    EXPECT_EQ(again.weight_bytes(), first.weight_bytes()) << name;
    EXPECT_EQ(again.config().table.layers, first.config().table.layers);
    EXPECT_EQ(again.tokenizer().vocab_size(), 288);
    EXPECT_EQ(again.path(), path());
  }
}

TEST_F(ModelFiles, RefusesFilesThatAreNoModel) {
  expect_refused([] { Model("/nowhere/a.gguf"); }, {"/nowhere/a.gguf"});
  expect_refused([&] { Model(folder_.string()); }, {folder_.string()});
}

TEST_F(ModelFiles, RefusesArchitecturesThatItDoesNotRun) {
  expect_load_refused(llama().drop("general.architecture"), {"general.architecture"});
  expect_load_refused(llama().set("general.architecture", "mamba"), {});
  // Known to the cost model, and not to the forward pass.
  EditedFile file = llama();
  for (EditedFile::Entry& entry : file.entries) {
    if (!entry.key.starts_with("llama.")) continue;
    const std::size_t begin = 8 + entry.key.size();
    const std::string key = "qwen2" + entry.key.substr(5);
    GgufBytes renamed;
    renamed.text(key).raw(entry.encoded.bytes().data() + begin,
                          entry.encoded.bytes().size() - begin);
    entry = {key, renamed};
  }
  expect_load_refused(file.set("general.architecture", "qwen2"),
                      {"general.architecture is 'qwen2'", "llama, gemma2 and gemma3"});
}

TEST_F(ModelFiles, RefusesAMissingTensorByItsName) {
  for (const EditedFile& whole : {llama(), gemma2(), gemma3()}) {
    for (const EditedFile::Tensor& one : whole.tensors) {
      if (one.name == "output.weight") continue;  // without it the embedding is the output
      if (one.name.starts_with("blk.") && !one.name.starts_with("blk.1.")) continue;
      EditedFile file = whole;
      expect_load_refused(file.drop_tensor(one.name), {one.name});
    }
  }
}

TEST_F(ModelFiles, TheEmbeddingIsTheOutputWhereThereIsNone) {
  const Model tied = load(llama().drop_tensor("output.weight"));
  EXPECT_EQ(tied.weight_bytes(), load(llama()).weight_bytes());
  EXPECT_EQ(tied.state().output.outputs(), 288);
}

TEST_F(ModelFiles, RefusesTensorsThatNoLayerReads) {
  for (const char* const name :
       {"blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", "blk.4.attn_norm.weight", "anything"}) {
    expect_load_refused(llama().add_vector(name, std::vector<float>(8, 1.0F)),
                        {std::string("'") + name + "'"});
  }
}

TEST_F(ModelFiles, RefusesTensorsOfOtherSizes) {
  for (const char* const name :
       {"token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_v.weight",
        "blk.2.attn_output.weight", "blk.3.ffn_down.weight", "output.weight"}) {
    EditedFile file = llama();
    EditedFile::Tensor& tensor = file.tensor(name);
    tensor.dims[1] /= 2;
    tensor.data.resize(tensor.data.size() / 2);
    expect_load_refused(file, {name});
  }
  EditedFile turned = llama();
  std::swap(turned.tensor("blk.0.ffn_up.weight").dims[0],
            turned.tensor("blk.0.ffn_up.weight").dims[1]);
  expect_load_refused(turned, {"blk.0.ffn_up.weight", "36"});
  EditedFile shorter = llama();
  shorter.tensor("output_norm.weight").dims[0] = 39;
  expect_load_refused(shorter, {"output_norm.weight", "39"});
}

TEST_F(ModelFiles, RefusesWidthsThatTheTensorsDoNotHave) {
  expect_load_refused(llama().set("llama.embedding_length", 44U), {"44"});
  expect_load_refused(llama().set("llama.feed_forward_length", 37U), {"ffn_"});
  expect_load_refused(llama().set("llama.attention.head_count", 6U), {});
  expect_load_refused(llama().set("llama.vocab_size", 287U), {"288 tokens", "287"});
  expect_load_refused(llama().set("llama.block_count", 5U), {"blk.4."});
  expect_load_refused(llama().set("llama.block_count", 3U), {"'blk.3."});
  expect_load_refused(llama().set("llama.block_count", 0U), {});
  expect_load_refused(llama().set("llama.attention.value_length", 4U), {});
}

TEST_F(ModelFiles, RefusesRotaryScalingsThatItDoesNotKnow) {
  for (const char* const type : {"yarn", "longrope", ""}) {
    expect_load_refused(llama().set("llama.rope.scaling.type", type),
                        {"llama.rope.scaling.type", "none, linear"});
  }
  expect_load_refused(llama().set("llama.rope.scaling.type", 1U), {"llama.rope.scaling.type"});
  const GgufBytes list = GgufBytes().array("llama.rope.scaling.type", GgufType::kString, 0);
  expect_load_refused(llama().set("llama.rope.scaling.type", list), {"llama.rope.scaling.type"});
  EditedFile linear = llama().set("llama.rope.scaling.type", "linear");
  for (const float factor : {0.0F, -1.0F, std::nanf(""), INFINITY}) {
    expect_load_refused(linear.set("llama.rope.scaling.factor", factor),
                        {"llama.rope.scaling.factor", "positive"});
  }
  EXPECT_EQ(load(linear.set("llama.rope.scaling.factor", 4.0F)).state().architecture.rotary.back(),
            (Rotary{10000, 4}));
  // A factor without a type, as llama.cpp reads it.
  EXPECT_EQ(
      load(llama().set("llama.rope.scaling.factor", 2.0F)).state().architecture.rotary.front(),
      (Rotary{10000, 2}));
  EXPECT_EQ(load(llama().set("llama.rope.scaling.type", "none")).state().architecture.rotary[0],
            (Rotary{10000, 1}));
}

TEST_F(ModelFiles, RefusesNumbersThatNoModelHas) {
  for (const char* const key : {"llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"}) {
    for (const float value : {0.0F, -1.0F, std::nanf(""), INFINITY}) {
      expect_load_refused(llama().set(key, value), {key, "positive"});
    }
    expect_load_refused(llama().set(key, "text"), {key});
    expect_load_refused(llama().set(key, GgufBytes().array(key, GgufType::kFloat32, 0)), {key});
  }
  expect_load_refused(llama().drop("llama.attention.layer_norm_rms_epsilon"),
                      {"llama.attention.layer_norm_rms_epsilon is absent"});
  for (const std::uint32_t dims : {4U, 0U, 16U}) {
    expect_load_refused(llama().set("llama.rope.dimension_count", dims),
                        {"llama.rope.dimension_count"});
  }
  expect_load_refused(gemma2().set("gemma2.attn_logit_softcapping", -1.0F),
                      {"gemma2.attn_logit_softcapping"});
}

TEST_F(ModelFiles, RefusesKeysThatWouldChangeItsResults) {
  for (const std::string key : {"llama.rope.scaling.attn_factor", "llama.attention.scale",
                                "llama.attn_logit_softcapping", "llama.logit_scale"}) {
    expect_load_refused(llama().set(key, 4.0F), {key, "forward pass"});
  }
  expect_load_refused(gemma2().set("gemma2.rope.freq_base_swa", 1e4F), {"gemma2.rope"});
  expect_load_refused(llama().set("split.count", 3U), {"split.count"});
  expect_load_refused(llama().set("adapter.type", "lora"), {"adapter.type"});
  EXPECT_NO_THROW(load(llama().set("llama.rope.scaling.original_context_length", 64U)));
}

TEST_F(ModelFiles, ReadsRotaryDivisorsWhereTheFileHasThem) {
  const Model model = load(llama().add_vector("rope_freqs.weight", {1, 2, 3, 4}));
  EXPECT_EQ(model.state().architecture.rotary_divisors, (std::vector<float>{1, 2, 3, 4}));
  expect_load_refused(llama().add_vector("rope_freqs.weight", {1, 2, 3, 4, 5}),
                      {"rope_freqs.weight"});
  for (const float wrong : {0.0F, -1.0F, std::nanf(""), INFINITY}) {
    expect_load_refused(llama().add_vector("rope_freqs.weight", {1, 2, wrong, 4}),
                        {"rope_freqs.weight", "positive"});
  }
}

TEST_F(ModelFiles, GemmaLayersWithAWindowTurnByTheirOwnBase) {
  EditedFile file = gemma3();
  file.set("gemma3.rope.scaling.type", "linear").set("gemma3.rope.scaling.factor", 8.0F);
  const Model model = load(file);
  const std::vector<Rotary>& rotary = model.state().architecture.rotary;
  ASSERT_EQ(rotary.size(), 7U);
  for (std::size_t layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(rotary[layer], layer == 5 ? (Rotary{1e6, 8}) : (Rotary{10000, 1})) << layer;
  }
  file.set("gemma3.rope.freq_base_swa", 500.0F);
  EXPECT_EQ(load(file).state().architecture.rotary.front(), (Rotary{500, 1}));
}

TEST_F(ModelFiles, SoftcapsAreThoseOfTheFileOrOfTheArchitecture) {
  EditedFile file = gemma2();
  EXPECT_EQ(load(file).state().architecture.attention_softcap, 10);
  EXPECT_EQ(load(file).state().architecture.logit_softcap, 12);
  file.drop("gemma2.attn_logit_softcapping").drop("gemma2.final_logit_softcapping");
  EXPECT_EQ(load(file).state().architecture.attention_softcap, 50);
  EXPECT_EQ(load(file).state().architecture.logit_softcap, 30);
  EXPECT_EQ(load(gemma3()).state().architecture.logit_softcap, 0);
  EXPECT_EQ(
      load(gemma3().set("gemma3.final_logit_softcapping", 7.0F)).state().architecture.logit_softcap,
      7);
}

// hidden_size / num_q_heads in place of head_dim: 4608 / 32 = 144 for Gemma 2, 5376 / 32 = 168 for
// Gemma 3, here 32 / 4 = 8 in place of 16.
TEST_F(ModelFiles, GemmaModelsOf27BScaleByAnotherWidth) {
  EXPECT_FLOAT_EQ(load(gemma3()).state().architecture.sm_scale, 0.25F);
  EditedFile file = gemma3();
  const std::vector<EditedFile::Tensor> before = file.tensors;
  for (int layer = 7; layer < 62; ++layer) {
    for (EditedFile::Tensor tensor : before) {
      if (!tensor.name.starts_with("blk.0.")) continue;
      tensor.name = "blk." + std::to_string(layer) + tensor.name.substr(5);
      file.tensors.push_back(std::move(tensor));
    }
  }
  const Model model = load(file.set("gemma3.block_count", 62U));
  EXPECT_FLOAT_EQ(model.state().architecture.sm_scale, 1 / std::sqrt(8.0F));
}

TEST_F(ModelFiles, HasAChatTemplateOnlyWhereTheFileHasOne) {
  EXPECT_EQ(load(llama().set("tokenizer.chat_template", "<start_of_turn>")).chat_template().family,
            ChatFamily::kGemma);
  expect_refused([&] { static_cast<void>(load(llama()).chat_template()); },
                 {path(), "no chat model"});
}

TEST_F(ModelFiles, RefusesATokenizerThatItDoesNotKnow) {
  expect_load_refused(llama().set("tokenizer.ggml.model", "rwkv"),
                      {"tokenizer.ggml.model", "rwkv"});
  expect_load_refused(llama().drop("tokenizer.ggml.tokens"), {"tokenizer.ggml.tokens"});
}

TEST_F(ModelFiles, ATransformerRefusesATableThatReadsLaterKeys) {
  const Model model = load(llama());
  ThreadPool pool(1);
  TransformerOptions options;
  options.table = parse_layers("full", 4, false);
  expect_refused([&] { Transformer(model, options, pool); }, {"bidirectional", "causal"});
}

}  // namespace
}  // namespace lacuna
