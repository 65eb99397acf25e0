#include "lacuna/sequence_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cache/cache_runs.h"
#include "cache/refusal.h"
#include "cache/sequence_sample.h"
#include "lacuna/error.h"
#include "lacuna/file.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using rig::message_of;
using rig::tokens;
using rig::Tokens;

PoolOptions small_pool() {
  return {.budget_bytes = 8 << 20, .slab_bytes = 1 << 16, .poison = true};
}

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "lacuna_sequence_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(folder_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_;
};

std::string file_bytes(const std::string& path) { return read_file(path, 64 << 20); }

// --- what comes back -----------------------------------------------------------------------------

struct Case {
  std::int64_t page_size;
  DType dtype;
};

// A window, all keys in pages of another size, and a window with sinks.
class SavedSequence : public testing::TestWithParam<Case> {
 protected:
  CacheShape make_shape() const {
    CacheShape shape = rig::cache_shape(retention, GetParam().page_size, GetParam().dtype);
    shape.summaries = true;
    return shape;
  }
  SequenceId decoded(std::int64_t length, std::int64_t chunk = 1) {
    const SequenceId id = cache.create();
    rig::run(cache, model, retention, id, tokens(length), chunk);
    return id;
  }
  std::string saved(const KvCache& from, SequenceId id, const char* name) {
    save_sequence(from, id, "a model", tokens(from.length(id)), folder / name);
    return file_bytes(folder / name);
  }

  rig::Model model = rig::three_kinds(GetParam().dtype);
  Retention retention{model.table, model.shape};
  KvCache cache{make_shape(), small_pool()};
  Folder folder;
};

INSTANTIATE_TEST_SUITE_P(Pages, SavedSequence,
                         testing::Values(Case{16, DType::kF32}, Case{16, DType::kBf16},
                                         Case{64, DType::kF16}, Case{64, DType::kF32},
                                         Case{16, DType::kInt8}, Case{16, DType::kInt4}),
                         [](const auto& chosen) {
                           return std::string(to_string(chosen.param.dtype)) +
                                  std::to_string(chosen.param.page_size);
                         });

TEST_P(SavedSequence, GoesOnInAnotherCacheWithTheSameBits) {
  const std::int64_t page = GetParam().page_size;
  for (const std::int64_t length :
       {std::int64_t{0}, std::int64_t{1}, page - 1, page, page + 1, 2 * page, std::int64_t{39},
        std::int64_t{40}, std::int64_t{41}, 40 + page, std::int64_t{80}, std::int64_t{150}}) {
    SCOPED_TRACE(length);
    const SequenceId id = decoded(length, 7);
    saved(cache, id, "x");
    KvCache other(cache.shape(), small_pool());
    const auto loaded = load_sequence(other, folder / "x", "a model");
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->tokens, tokens(length));
    EXPECT_EQ(other.length(loaded->sequence), length);
    EXPECT_EQ(other.held(loaded->sequence), cache.held(id));
    EXPECT_EQ(other.held_bytes(loaded->sequence), cache.held_bytes(id));
    rig::expect_same_summaries(cache, id, other, loaded->sequence);
    const Tokens next = tokens(2 * page + 3, 5000);
    EXPECT_EQ(rig::run(other, model, retention, loaded->sequence, next, 1),
              rig::run(cache, model, retention, id, next, 1));
    cache.free(id);
  }
}

TEST_P(SavedSequence, IsAloneWhereItsPagesWereShared) {
  const SequenceId parent = decoded(100);
  const SequenceId fork = cache.fork(parent);
  saved(cache, fork, "x");
  const std::int64_t before = cache.live_bytes();
  const auto loaded = load_sequence(cache, folder / "x", "a model");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(cache.live_bytes(), 2 * before);
  const Tokens next = tokens(70, 5000);
  const auto answers = rig::run(cache, model, retention, loaded->sequence, next, 1);
  EXPECT_EQ(answers, rig::run(cache, model, retention, fork, next, 1));
  EXPECT_EQ(answers, rig::run(cache, model, retention, parent, next, 1));
  for (const SequenceId id : {parent, fork, loaded->sequence}) cache.free(id);
  EXPECT_EQ(cache.live_bytes(), 0);
}

TEST_P(SavedSequence, HasEqualFilesInEqualStates) {
  const std::string one = saved(cache, decoded(75, 1), "one");
  EXPECT_EQ(saved(cache, decoded(75, 75), "chunk"), one);
  const auto loaded = load_sequence(cache, folder / "one", "a model");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(saved(cache, loaded->sequence, "again"), one);
  KvCache clean(cache.shape(), {.budget_bytes = 8 << 20, .slab_bytes = 1 << 16});
  const SequenceId id = clean.create();
  rig::run(clean, model, retention, id, tokens(75), 10);
  EXPECT_EQ(saved(clean, id, "clean"), one);
}

// A page that was freed half full and taken again for later tokens holds nothing before them.
TEST(SavedChunks, KnowWhichSlotsHoldNothing) {
  const Folder folder;
  const rig::Model model = rig::model("chunk(16)", 1, rig::sizes(1, 1, 16, 16));
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 64, DType::kF32), small_pool());
  const SequenceId id = cache.create();
  for (const std::int64_t count : {16, 4}) {
    ASSERT_TRUE(rig::step(cache, model, retention, {{{id, tokens(count)}}}));
  }
  ASSERT_EQ(cache.held(id), std::vector<Ranges>{(Ranges{{16, 20}})});
  save_sequence(cache, id, "", tokens(20), folder / "x");
  const auto loaded = load_sequence(cache, folder / "x", "");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(cache.held(loaded->sequence), cache.held(id));
  EXPECT_THROW(cache.truncate(loaded->sequence, 10, retention.kept(10, 10)), Error);
  // The other slots are zeros: 16 of the 64 lie in a panel of K, behind 4 in the second one.
  const std::string file = file_bytes(folder / "x");
  const std::string panel(16 * 16 * 4, '\0');
  EXPECT_EQ(file.substr(file.size() - 8 - 2 * 4 * panel.size(), panel.size()), panel);
  EXPECT_EQ(file.substr(file.size() - 8 - panel.size(), panel.size()), panel);
}

// A page that was adopted may go on with tokens of others.
TEST(SavedPrefix, HoldsNothingOfTokensBehindIt) {
  const Folder folder;
  const rig::Model model = rig::model("full", 1, rig::sizes(1, 1, 16, 16));
  const Retention retention(model.table, model.shape);
  KvCache cache(rig::cache_shape(retention, 16, DType::kBf16), small_pool());
  const SequenceId first = cache.create();
  ASSERT_TRUE(rig::step(cache, model, retention, {{{first, tokens(30)}}}));
  cache.publish(first, "", tokens(30));
  const SequenceId adopted = cache.adopt("", tokens(21), retention.kept(21, 21));
  const SequenceId alone = cache.create();
  ASSERT_TRUE(rig::step(cache, model, retention, {{{alone, tokens(21)}}}));
  save_sequence(cache, adopted, "", tokens(21), folder / "adopted");
  save_sequence(cache, alone, "", tokens(21), folder / "alone");
  EXPECT_EQ(file_bytes(folder / "adopted"), file_bytes(folder / "alone"));
}

TEST_P(SavedSequence, TakesNothingWhereThereIsNoRoom) {
  const SequenceId id = decoded(150);
  saved(cache, id, "x");
  const auto loaded = load_sequence(cache, folder / "x", "a model");
  ASSERT_TRUE(loaded);
  for (std::int64_t num_slabs = 1;; ++num_slabs) {
    KvCache small(cache.shape(),
                  {.budget_bytes = num_slabs << 15, .slab_bytes = 1 << 15, .poison = true});
    const auto there = load_sequence(small, folder / "x", "a model");
    if (there) break;
    EXPECT_EQ(small.live_bytes(), 0);
    EXPECT_TRUE(small.sequences().empty());
    EXPECT_EQ(small.pool().num_free_slabs(), num_slabs);
  }
}

// --- what is refused -----------------------------------------------------------------------------

// CRC-32 bit by bit: the polynomial 0xedb88320, as zlib and zip have it.
std::int64_t crc32_of(std::string_view bytes, std::int64_t before = 0) {
  auto crc = ~static_cast<std::uint32_t>(before);
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 1 ? 0xedb88320u : 0u);
  }
  return static_cast<std::int64_t>(~crc);
}

// The sample's file, which can be changed so that its checksums are right again.
class SequenceFile : public testing::Test {
 protected:
  SequenceFile() {
    save_sequence(cache, sample::make(cache), sample::kIdentity, sample::tokens(), folder / "x");
    file = file_bytes(folder / "x");
    live_bytes = cache.live_bytes();
  }

  std::string load(std::string_view bytes, std::string_view identity = sample::kIdentity) {
    const std::string message = message_of(
        [&] { load_sequence_bytes(cache, std::as_bytes(std::span(bytes)), "x", identity); });
    EXPECT_EQ(cache.live_bytes(), live_bytes);
    EXPECT_EQ(cache.sequences().size(), 1U);
    return message;
  }

  static std::int64_t number(std::string_view bytes, std::int64_t offset) {
    std::int64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  }
  static void set(std::string& bytes, std::int64_t offset, std::int64_t value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  }
  // With another number at an offset, and all checksums right.
  std::string with(std::int64_t offset, std::int64_t value) const {
    std::string changed = file;
    set(changed, offset, value);
    const std::int64_t end = number(file, 16);
    const auto part = [&](std::int64_t begin, std::int64_t size) {
      return std::string_view(changed).substr(static_cast<std::size_t>(begin),
                                              static_cast<std::size_t>(size));
    };
    std::int64_t sum = crc32_of(part(0, end - 8));
    set(changed, end - 8, sum);
    std::int64_t at = end;
    for (const std::int64_t page_bytes : {832, 832, 832, 832, 1760, 1760, 1760}) {
      sum = crc32_of(part(at, page_bytes), sum);
      set(changed, at + page_bytes, sum);
      at += page_bytes + 8;
    }
    return changed;
  }

  KvCache cache{sample::shape(), small_pool()};
  Folder folder;
  std::string file;
  std::int64_t live_bytes = 0;
};

TEST_F(SequenceFile, IsTheStoredOneByteForByte) {
  EXPECT_EQ(file, file_bytes(sample::kFile)) << "the format changed: give it a new version";
}

TEST_F(SequenceFile, HasChecksumsThatAnotherCrc32Gives) {
  EXPECT_EQ(with(8, number(file, 8)), file);
}

TEST_F(SequenceFile, IsRefusedWithAnyByteChanged) {
  for (std::size_t offset = 0; offset < file.size(); ++offset) {
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string changed = file;
      changed[offset] = static_cast<char>(changed[offset] ^ bits);
      const std::string message = load(changed);
      ASSERT_TRUE(message.starts_with("'x'")) << offset << ": " << message;
      ASSERT_NE(message.find("offset"), std::string::npos) << message;
    }
  }
}

TEST_F(SequenceFile, IsRefusedCutAtAnyByteAndWithBytesBehindIt) {
  for (std::size_t size = 0; size < file.size(); ++size) {
    ASSERT_TRUE(load(file.substr(0, size)).starts_with("'x'")) << size;
  }
  EXPECT_EQ(load(file.substr(0, 3)), "'x': magic at offset 0 has 8 bytes, but 3 are left");
  EXPECT_EQ(load(file.substr(0, 9000)),
            "'x': file_bytes at offset 24 is " + std::to_string(file.size()) + "; expected 9000");
  EXPECT_EQ(load(file + '\0'), "'x': file_bytes at offset 24 is " + std::to_string(file.size()) +
                                   "; expected " + std::to_string(file.size() + 1));
}

TEST_F(SequenceFile, NamesWhatItIsNot) {
  EXPECT_EQ(load("GGUF" + file.substr(4)),
            "'x': magic at offset 0 is 'GGUFnakv'; expected 'lacunakv'");
  EXPECT_EQ(load(with(8, 2)), "'x': format_version at offset 8 is 2; expected 1");
  EXPECT_EQ(load(file, "other\n"), "'x': identity at offset 48 is 'sample'; expected 'other\\x0a'");
  EXPECT_EQ(message_of([&] { load_sequence(cache, folder / "gone", ""); }),
            "cannot open '" + folder / "gone" + "': No such file or directory");
}

TEST_F(SequenceFile, NamesWhatIsDamaged) {
  std::string changed = file;
  changed[60] = 'x';
  EXPECT_TRUE(load(changed).starts_with("'x' is damaged: the checksum of the header, offsets 0.."))
      << load(changed);
  changed = file;
  changed[file.size() - 9] = 'x';
  const std::string message = load(changed);
  EXPECT_TRUE(message.starts_with("'x' is damaged: the checksum of page 2 of table 2, offsets "))
      << message;
}

TEST_F(SequenceFile, NamesTheShapeThatIsNotTheCaches) {
  const auto refused = [&](auto change) {
    CacheShape shape = sample::shape();
    change(shape);
    KvCache other(shape, small_pool());
    return message_of([&] { load_sequence(other, folder / "x", sample::kIdentity); });
  };
  const auto says = [&](const std::string& what) { return "'" + folder / "x" + "': " + what; };
  EXPECT_EQ(refused([](CacheShape& shape) { shape.page_size = 32; }),
            says("page_size at offset 208 is 16; expected 32"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.dtype = DType::kF16; }),
            says("dtype at offset 216 is 1; expected 2"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.summaries = false; }),
            says("summaries at offset 224 is 1; expected 0"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.layers.pop_back(); }),
            says("num_layers at offset 232 is 3; expected 2"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.layers[0].head_dim = 8; }),
            says("head_dim of layer 0 at offset 248 is 6; expected 8"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.layers[2].kv_from = {}; }),
            says("kv_from of layer 2 at offset 328 is 1; expected -1"));
  EXPECT_EQ(refused([](CacheShape& shape) { shape.layers[0].head_groups = {}; }),
            says("num_tables at offset 336 is 3; expected 2"));
  EXPECT_EQ(refused([](CacheShape& shape) {
              shape.layers[0].head_groups = {{0}, {1}};
            }),
            says("head of table 0 at offset 360 is 1; expected 0"));
}

TEST_F(SequenceFile, IsRefusedWithNumbersThatCannotBe) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const std::string size = std::to_string(file.size());
  const std::int64_t columns = number(file, 16) - 8 - (3 + 2 * 7) * 8;
  ASSERT_EQ(number(file, columns), 2);
  EXPECT_TRUE(load(with(32, kHuge)).starts_with("'x': length at offset 32 is 4611686018427387904"));
  EXPECT_TRUE(load(with(32, -1)).starts_with("'x': length at offset 32 is -1; expected 0.."));
  EXPECT_TRUE(load(with(40, kHuge)).starts_with("'x': identity_bytes at offset 40 is "));
  EXPECT_TRUE(load(with(40, -1)).starts_with("'x': identity_bytes at offset 40 is -1"));
  const std::string at = " at offset " + std::to_string(columns) + " is ";
  EXPECT_EQ(load(with(columns, 4)), "'x': num_pages of table 0" + at + "4; expected 0..3");
  EXPECT_EQ(load(with(columns, -1)), "'x': num_pages of table 0" + at + "-1; expected 0..3");
  const std::string second = " at offset " + std::to_string(columns + 24) + " is ";
  EXPECT_EQ(load(with(columns + 24, 0)), "'x': column of table 0" + second + "0; expected 1..2");
  EXPECT_EQ(load(with(columns + 24, 3)), "'x': column of table 0" + second + "3; expected 1..2");
  EXPECT_EQ(load(with(columns + 32, 6)), "'x': first_slot of table 0 at offset " +
                                             std::to_string(columns + 32) + " is 6; expected 0..5");
  EXPECT_TRUE(load(with(columns, 1)).starts_with("'x': "));
  const auto longer = static_cast<std::int64_t>(file.size()) + 8;
  EXPECT_EQ(load(with(24, longer) + "8 bytes."), "'x': 7 pages end at offset " + size +
                                                     "; expected " + std::to_string(longer) +
                                                     ", the file's end");
  EXPECT_EQ(load(with(16, 60)).substr(0, 32), "'x': header_bytes at offset 16 i");
  EXPECT_EQ(load(with(54, 1)).substr(0, 36), "'x': identity at offset 48 is follow");
}

TEST_F(SequenceFile, IsRefusedWithASummaryOfOtherSlots) {
  const std::int64_t header = number(file, 16) + 704;  // of the first page's summaries
  EXPECT_EQ(load(with(header, 17ll << 32)), "'x': the summary of page 0 of table 0 at offset " +
                                                std::to_string(header) +
                                                " covers slots 0..17; expected slots of 0..16");
  EXPECT_NE(load(with(header, (16ll << 32) | 0xffffffffll)), "no error");
  EXPECT_NE(load(with(header, (3ll << 32) | 4)), "no error");
}

TEST_F(SequenceFile, IsNotWrittenForWhatCannotBeSaved) {
  const SequenceId id = cache.sequences().front();
  const auto saved = [&](SequenceId sequence, const Tokens& all, const std::string& path) {
    return message_of([&] { save_sequence(cache, sequence, "", all, path); });
  };
  EXPECT_EQ(saved(99, {}, folder / "y"), "sequence is 99; allowed: one of the cache's 1");
  EXPECT_EQ(saved(id, tokens(36), folder / "y"),
            "tokens has 36; allowed: 37, the length of sequence 0");
  EXPECT_EQ(saved(id, sample::tokens(), folder / "no/y"),
            "cannot open '" + folder / "no/y" + "': No such file or directory");
  const StepRows rows = {id, 1};
  const auto step = cache.begin({{rows}});
  EXPECT_EQ(saved(id, sample::tokens(), folder / "y"),
            "sequence 0 is in a step of 1 rows; allowed: outside steps");
  EXPECT_FALSE(fs::exists(folder / "y"));
}

// --- what a killed process leaves ----------------------------------------------------------------

TEST_F(SequenceFile, IsTheOldOrTheNewOneWhenItsWriterIsKilled) {
  const auto save_forever = [&] {
    const SequenceId empty = cache.create();
    for (;;) {
      save_sequence(cache, empty, sample::kIdentity, {}, folder / "x");
      save_sequence(cache, 0, sample::kIdentity, sample::tokens(), folder / "x");
    }
  };
  KvCache other(sample::shape(), small_pool());
  int num_whole = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = ::fork();
    if (child == 0) save_forever();
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 777 * round));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const auto loaded = load_sequence(other, folder / "x", sample::kIdentity);
    ASSERT_TRUE(loaded);
    const bool whole = other.length(loaded->sequence) == sample::kLength;
    EXPECT_EQ(loaded->tokens, whole ? sample::tokens() : Tokens{});
    num_whole += whole ? 1 : 0;
  }
  const auto num_files = std::distance(fs::directory_iterator(fs::path(folder / "x").parent_path()),
                                       fs::directory_iterator());
  RecordProperty("whole", num_whole);
  RecordProperty("killed_while_writing", static_cast<int>(num_files - 1));
}

}  // namespace
}  // namespace lacuna
