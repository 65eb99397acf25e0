// docs/kv_layout.md against the code: what stands there between `<!-- checked: name -->` and
// `<!-- end -->` is what these tests find in pages, block tables and the stored file.
#include "cache/page_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>

#include "cache/cache_rig.h"
#include "cache/sequence_sample.h"
#include "lacuna/file.h"
#include "lacuna/kv_pack.h"
#include "lacuna/offload.h"

namespace lacuna {
namespace {

// The lines between the marks, with the blank ones around them left out.
std::string stated(const std::string& name) {
  const std::string all = read_file("docs/kv_layout.md", 1 << 20);
  const std::string mark = "<!-- checked: " + name + " -->\n";
  const std::size_t begin = all.find(mark);
  const std::size_t end = all.find("<!-- end -->", begin);
  if (begin == std::string::npos || end == std::string::npos) return "no such part";
  std::string lines = all.substr(begin + mark.size(), end - begin - mark.size());
  for (const std::string fence : {"```text\n", "```\n"}) {
    const std::size_t at = lines.find(fence);
    if (at != std::string::npos) lines.erase(at, fence.size());
  }
  return lines;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8, DType::kInt4};

CacheShape one_head(DType dtype, std::int64_t page_size, std::int64_t dims, bool summaries) {
  CacheShape shape;
  shape.layers = {{1, dims, dims, {}, {}}};
  shape.page_size = page_size;
  shape.dtype = dtype;
  shape.summaries = summaries;
  return shape;
}

TEST(KvLayoutDocument, SaysWhereThePartsOfAPageBegin) {
  std::string lines =
      "| dtype | page_size | dims | V | K scales | V scales | bytes | with a summary |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const auto& [page_size, dims] : {std::pair{16, 64}, std::pair{64, 256}}) {
    for (const DType dtype : kDTypes) {
      const CacheShape shape = one_head(dtype, page_size, dims, true);
      const HeadLayout at = head_layout(shape, shape.layers.front());
      const CacheTable table = cache_tables(shape).front();
      EXPECT_EQ(table.kv_bytes, at.size_bytes);
      const bool scaled = is_quantized(dtype);
      lines +=
          fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", to_string(dtype), page_size,
                      dims, at.v, scaled ? std::to_string(at.k_scales) : "–",
                      scaled ? std::to_string(at.v_scales) : "–", at.size_bytes, table.page_bytes);
    }
  }
  EXPECT_EQ(stated("parts"), lines);
}

// A page of one head with 64 dims; all numbers are 1, of one slot and dim it is −1.
std::vector<std::byte> page_of(DType dtype, std::int64_t slot, std::int64_t dim) {
  const CacheShape shape = one_head(dtype, 32, 64, false);
  const HeadLayout at = head_layout(shape, shape.layers.front());
  std::vector<std::byte> page(static_cast<std::size_t>(at.size_bytes));
  std::vector<float> numbers(32 * 64, 1.0F);
  if (slot >= 0) numbers[static_cast<std::size_t>(slot * 64 + dim)] = -1.0F;
  const TensorView rows = tensor_view(numbers.data(), DType::kF32, {32, 1, 64});
  std::byte* const first = page.data();
  append_tokens({first, first + at.v, first + at.k_scales, first + at.v_scales, dtype, 64, 64}, 0,
                rows, rows, 0);
  return page;
}

// Where in first .. end - 1 the number of a slot and dim lies: the one place where pages differ.
std::string place(DType dtype, std::int64_t slot, std::int64_t dim, std::int64_t first,
                  std::int64_t end) {
  const std::vector<std::byte> ones = page_of(dtype, -1, 0);
  const std::vector<std::byte> page = page_of(dtype, slot, dim);
  std::string found;
  for (std::int64_t at = first; at < end; ++at) {
    const auto idx = static_cast<std::size_t>(at);
    const auto differs = std::to_integer<unsigned>(ones[idx] ^ page[idx]);
    if (differs == 0) continue;
    EXPECT_EQ(found, "");
    const std::int64_t number = dtype == DType::kInt4 ? at : at - at % size_bytes(dtype);
    found = std::to_string(number);
    if (dtype == DType::kInt4) found += differs < 16 ? " low" : " high";
  }
  return found;
}

TEST(KvLayoutDocument, SaysWhereANumberLies) {
  std::string lines =
      "| slot, dim | f32: K, V | bf16, f16: K, V | int8: K, V | int4: K, V |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const auto& [slot, dim] :
       {std::pair{0, 0}, std::pair{0, 1}, std::pair{0, 4}, std::pair{1, 0}, std::pair{3, 5},
        std::pair{15, 63}, std::pair{16, 0}}) {
    lines += fmt::format("| {}, {} |", slot, dim);
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kInt8, DType::kInt4}) {
      const CacheShape shape = one_head(dtype, 32, 64, false);
      const HeadLayout at = head_layout(shape, shape.layers.front());
      const std::string k = place(dtype, slot, dim, 0, at.v);
      const std::string v = place(dtype, slot, dim, at.v, at.k_scales);
      if (dtype == DType::kBf16) {
        EXPECT_EQ(place(DType::kF16, slot, dim, 0, at.v), k);
        EXPECT_EQ(place(DType::kF16, slot, dim, at.v, at.k_scales), v);
      }
      lines += fmt::format(" {}, {} |", k, v);
    }
    lines += "\n";
  }
  EXPECT_EQ(stated("places"), lines);
}

// --- block tables --------------------------------------------------------------------------------

// Draws block tables: a letter is a page, in the order of their first showing.
class Drawing {
 public:
  Drawing(const KvCache& cache, std::vector<std::string> names)
      : cache_(cache), names_(std::move(names)) {}

  void show(const std::string& title, SequenceId id) {
    text_ += (text_.empty() ? "" : "\n") + title + "\n";
    for (std::size_t table = 0; table < names_.size(); ++table) {
      std::string line = fmt::format("  {:22}", names_[table]);
      for (const PageId page : cache_.block_table(id, table)) line += cell(page);
      text_ += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string cell(PageId page) {
    if (page == KvView::kNullPage) return "[ - ]";
    const auto [found, is_new] =
        letters_.emplace(page, static_cast<char>('A' + std::ssize(letters_)));
    const std::int64_t references = cache_.pool().references(page);
    return references == 1 ? fmt::format("[ {} ]", found->second)
                           : fmt::format("[ {}{}]", found->second, references);
  }

  const KvCache& cache_;
  std::vector<std::string> names_;
  std::map<PageId, char> letters_;
  std::string text_;
};

class States : public testing::Test {
 protected:
  std::span<const std::int32_t> some(std::int64_t count) {
    return std::span(tokens).first(static_cast<std::size_t>(count));
  }
  void step(SequenceId id, std::int64_t count) {
    ASSERT_TRUE(rig::step(cache, model, retention, {{{id, some(count)}}}));
  }
  // A step in progress, everything appended.
  KvCache::Step begin(SequenceId id, std::int64_t count) {
    const StepRows rows = {id, count};
    KvCache::Step begun = *cache.begin({{rows}});
    const std::vector<float> zeros(static_cast<std::size_t>(count * 16), 0.0F);
    const TensorView all = tensor_view(zeros.data(), DType::kF32, {count, 1, 16});
    for (int layer = 0; layer < 3; ++layer) begun.append(layer, all, all);
    return begun;
  }

  rig::Model model =
      rig::model("window(20), window(20) + sink(4), full", 3, rig::sizes(1, 1, 16, 16));
  Retention retention{model.table, model.shape};
  KvCache cache{rig::cache_shape(retention, 16, DType::kF32),
                {.budget_bytes = 1 << 20, .slab_bytes = 1 << 18}};
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(100, 1);
  Drawing drawing{cache, {"window(20)", "window(20) + sink(4)", "full"}};
};

TEST_F(States, AreDrawnInTheDocument) {
  const SequenceId id = cache.create();
  drawing.show("fresh: 0 tokens", id);
  step(id, 24);
  {
    KvCache::Step chunk = begin(id, 24);
    drawing.show("mid-prefill: 24 tokens, a chunk of 24 more in a step", id);
  }
  step(id, 24);
  drawing.show("48 tokens: the windows need positions from 29 on, the sinks 0..3", id);
  step(id, 10);
  drawing.show("58 tokens: the window has passed a second page", id);
  const SequenceId child = cache.fork(id);
  drawing.show("forked: either of the two, 58 tokens", child);
  step(child, 1);
  drawing.show("copied on write: the child, 59 tokens", child);
  drawing.show("                 and the parent, 58 tokens", id);
  {
    KvCache::Step drafts = begin(child, 1 + 6);
    drawing.show("drafts in flight: the child, 59 tokens, one more and 6 drafts in a step", child);
    drafts.commit({{2}});
  }
  drawing.show("rolled back: one draft of the six was right, 61 tokens", child);
  cache.free(id);
  cache.publish(child, "", some(61));
  drawing.show("published, the parent freed: the prefix index refers to every page", child);
  step(child, 1);
  drawing.show("the next token: copies of the last pages, the child's own, 62 tokens", child);
  std::string folder = testing::TempDir() + "lacuna_layout_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  KvOffload tier(cache, folder + "/pages", 1 << 20);
  ASSERT_TRUE(tier.sleep(child));
  drawing.show("asleep: its own pages lie in the file", child);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(stated("states"), drawing.text());
}

// --- the sequence file ---------------------------------------------------------------------------

// Lists the stored file's fields from its own bytes, without the loader.
class FieldList {
 public:
  explicit FieldList(std::string file) : file_(std::move(file)) {}

  std::int64_t number(const std::string& field) {
    std::int64_t value = 0;
    std::memcpy(&value, file_.data() + offset_, sizeof(value));
    row(8, field, std::to_string(value));
    return value;
  }
  void text(std::int64_t size, const std::string& field) {
    row(size, field,
        "`" + file_.substr(static_cast<std::size_t>(offset_), static_cast<std::size_t>(size)) +
            "`");
  }
  void checksum(const std::string& field) {
    std::int64_t value = 0;
    std::memcpy(&value, file_.data() + offset_, sizeof(value));
    row(8, field, fmt::format("{:#010x}", value));
  }
  void row(std::int64_t size, const std::string& field, const std::string& value) {
    lines_ += fmt::format("| {} | {} | {} | {} |\n", offset_, size, field, value);
    offset_ += size;
  }
  std::int64_t offset() const { return offset_; }
  const std::string& lines() const { return lines_; }

 private:
  std::string file_;
  std::int64_t offset_ = 0;
  std::string lines_ =
      "| offset | bytes | field | in the stored file |\n| ---: | ---: | --- | --- |\n";
};

TEST(KvLayoutDocument, ListsTheFieldsOfTheSequenceFile) {
  const std::string file = read_file(sample::kFile, 1 << 20);
  FieldList list(file);
  list.text(8, "magic");
  list.number("format_version");
  const std::int64_t header_bytes = list.number("header_bytes: where the pages begin");
  EXPECT_EQ(list.number("file_bytes"), std::ssize(file));
  list.number("length, in tokens");
  list.number("identity_bytes");
  list.text(6, "identity");
  list.row(2, "zeros up to a multiple of 8", "0");
  list.row(148, "tokens, 4 bytes each", "1000, 993, …");
  list.row(4, "zeros up to a multiple of 8", "0");
  list.number("page_size");
  list.number("dtype: f32 0, bf16 1, f16 2, int8 3, int4 4");
  list.number("summaries: 0 or 1");
  const std::int64_t num_layers = list.number("num_layers");
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const std::string of = fmt::format(" of layer {}", layer);
    list.number("num_kv_heads" + of);
    list.number("head_dim" + of);
    list.number("v_head_dim" + of);
    list.number("kv_from" + of + ", −1: none");
  }
  const std::int64_t num_tables = list.number("num_tables");
  std::vector<std::int64_t> page_bytes;
  for (std::int64_t table = 0; table < num_tables; ++table) {
    const std::string of = fmt::format(" of table {}", table);
    list.number("layer" + of);
    const std::int64_t num_heads = list.number("num_heads" + of);
    for (std::int64_t head = 0; head < num_heads; ++head) list.number("head" + of);
    page_bytes.push_back(list.number("page_bytes" + of));
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> pages;  // table, column
  for (std::int64_t table = 0; table < num_tables; ++table) {
    const std::string of = fmt::format(" of table {}", table);
    const std::int64_t num_pages = list.number("num_pages" + of);
    for (std::int64_t page = 0; page < num_pages; ++page) {
      pages.emplace_back(table, list.number("column" + of));
      list.number("first_slot of this page");
    }
  }
  list.checksum("CRC-32 of all before it");
  EXPECT_EQ(list.offset(), header_bytes);
  for (const auto& [table, column] : pages) {
    list.row(page_bytes[static_cast<std::size_t>(table)],
             fmt::format("page {} of table {}", column, table), "its bytes");
    list.checksum("CRC-32, going on from the one before");
  }
  EXPECT_EQ(list.offset(), std::ssize(file));
  EXPECT_EQ(stated("file"), list.lines());
}

}  // namespace
}  // namespace lacuna
