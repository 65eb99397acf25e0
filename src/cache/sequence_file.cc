#include "lacuna/sequence_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/checksum.h"
#include "cache/state.h"
#include "lacuna/error.h"
#include "lacuna/file.h"
#include "lacuna/integer.h"

namespace lacuna {
namespace {

// docs/kv_layout.md has the format as a table.
constexpr std::string_view kMagic = "lacunakv";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::int64_t kFieldBytes = 8;  // of a number, a checksum; texts are padded to it
constexpr std::int64_t kHeaderBytesAt = 16;
constexpr std::int64_t kFileBytesAt = 24;
constexpr std::int64_t kFixedBytes = 48;  // before the identity

// Every number that pages depend on: visit(name, idx, value) in the order of the file. The loader
// expects those that its own cache has, which is why it needs no memory for them.
template <typename Visit>
void visit_shape(const KvCache& cache, Visit visit) {
  const CacheShape& shape = cache.shape();
  visit("page_size", -1, shape.page_size);
  visit("dtype", -1, static_cast<std::int64_t>(shape.dtype));
  visit("summaries", -1, static_cast<std::int64_t>(shape.summaries));
  visit("num_layers", -1, std::ssize(shape.layers));
  for (std::int64_t idx = 0; const CacheLayer& layer : shape.layers) {
    visit("num_kv_heads of layer", idx, layer.num_kv_heads);
    visit("head_dim of layer", idx, layer.head_dim);
    visit("v_head_dim of layer", idx, layer.v_head_dim);
    visit("kv_from of layer", idx, std::int64_t{layer.kv_from.value_or(-1)});
    ++idx;
  }
  visit("num_tables", -1, std::ssize(cache.tables()));
  for (std::int64_t idx = 0; const CacheTable& table : cache.tables()) {
    visit("layer of table", idx, std::int64_t{table.layer_idx});
    visit("num_heads of table", idx, std::ssize(table.kv_heads));
    for (const int head : table.kv_heads) visit("head of table", idx, std::int64_t{head});
    visit("page_bytes of table", idx, table.page_bytes);
    ++idx;
  }
}

std::int64_t num_columns(const KvCache& cache, std::int64_t length) {
  return ceil_div(length, cache.shape().page_size);
}

// --- writing -------------------------------------------------------------------------------------

class HeaderWriter {
 public:
  void put(std::int64_t value) { append(&value, sizeof(value)); }
  void put_text(const void* data, std::size_t size) {
    append(data, size);
    bytes_.resize(static_cast<std::size_t>(ceil_div(size_bytes(), kFieldBytes) * kFieldBytes));
  }
  void set(std::int64_t offset, std::int64_t value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  std::int64_t size_bytes() const { return std::ssize(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  std::vector<std::byte> bytes_;
};

HeaderWriter make_header(const KvCache& cache, const Sequence& of, std::string_view identity,
                         std::span<const std::int32_t> tokens) {
  HeaderWriter header;
  header.put_text(kMagic.data(), kMagic.size());
  header.put(kFormatVersion);
  header.put(0);  // header_bytes and file_bytes: set below
  header.put(0);
  header.put(of.length);
  header.put(std::ssize(identity));
  header.put_text(identity.data(), identity.size());
  header.put_text(tokens.data(), tokens.size_bytes());
  visit_shape(cache, [&](const char*, std::int64_t, std::int64_t value) { header.put(value); });
  std::int64_t page_bytes = 0;
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    const std::vector<PageId>& columns = of.tables[table];
    const auto num_null = std::count(columns.begin(), columns.end(), KvView::kNullPage);
    header.put(std::ssize(columns) - num_null);
    for (std::int64_t column = 0; column < std::ssize(columns); ++column) {
      const PageId page = columns[static_cast<std::size_t>(column)];
      if (page == KvView::kNullPage) continue;
      header.put(column);
      header.put(cache.state().first_slot(page));
      page_bytes += cache.tables()[table].page_bytes + kFieldBytes;
    }
  }
  header.set(kHeaderBytesAt, header.size_bytes() + kFieldBytes);
  header.set(kFileBytesAt, header.size_bytes() + kFieldBytes + page_bytes);
  header.put(checksum(header.bytes()));
  return header;
}

// Zeros as the keys and values of some slots.
void clear_slots(const KvCache::State& state, std::size_t table, std::byte* page, Range slots) {
  const std::int64_t num_slots = slots.end - slots.begin;
  if (num_slots == 0) return;
  const CacheLayer& layer = state.layer(table);
  const float zero = 0;
  const TensorView k = {&zero, DType::kF32, {num_slots, 1, layer.head_dim}, {0, 0, 0}};
  const TensorView v = {&zero, DType::kF32, {num_slots, 1, layer.v_head_dim}, {0, 0, 0}};
  for (std::int64_t slot = 0; slot < std::ssize(state.tables[table].kv_heads); ++slot) {
    append_tokens(state.packed_head(table, page, slot), slots.begin, k, v, 0);
  }
}

// Zeros in what is no part of the sequence's state: slots outside `slots`, which may hold tokens of
// others, and bytes behind summaries.
void clear_unused(const KvCache::State& state, std::size_t table, std::span<std::byte> page,
                  Range slots) {
  clear_slots(state, table, page.data(), {0, slots.begin});
  clear_slots(state, table, page.data(), {slots.end, state.shape.page_size});
  if (!state.shape.summaries) return;
  const std::int64_t used =
      state.tables[table].kv_bytes + static_cast<std::int64_t>(sizeof(SummaryHeader)) +
      std::ssize(state.tables[table].kv_heads) * 3 * state.layer(table).head_dim * 4;
  std::fill(page.begin() + used, page.end(), std::byte{0});
}

// --- reading -------------------------------------------------------------------------------------

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  std::int64_t offset() const { return offset_; }
  std::int64_t num_left() const { return std::ssize(bytes_) - offset_; }
  // Nothing from `end` on is read any more.
  void end_at(std::int64_t end) { bytes_ = bytes_.first(static_cast<std::size_t>(end)); }

  // Of the field that was read last.
  [[noreturn]] void fail(const std::string& field, const std::string& value,
                         const std::string& expected) const {
    throw Error(fmt::format("'{}': {} at offset {} is {}; expected {}", name_, field, field_offset_,
                            value, expected));
  }

  std::span<const std::byte> text(const std::string& field, std::int64_t size) {
    field_offset_ = offset_;
    // Padded: size is below the bytes that are left, so this cannot overflow.
    if (size < 0 || size > num_left() || ceil_div(size, kFieldBytes) * kFieldBytes > num_left()) {
      throw Error(fmt::format("'{}': {} at offset {} has {} bytes, but {} are left", name_, field,
                              offset_, size, num_left()));
    }
    const std::int64_t padded = ceil_div(size, kFieldBytes) * kFieldBytes;
    const auto whole =
        bytes_.subspan(static_cast<std::size_t>(offset_), static_cast<std::size_t>(padded));
    offset_ += padded;
    const auto padding = whole.subspan(static_cast<std::size_t>(size));
    if (std::any_of(padding.begin(), padding.end(),
                    [](std::byte x) { return x != std::byte{0}; })) {
      fail(field, "followed by other bytes", "zeros up to a multiple of 8");
    }
    return whole.first(static_cast<std::size_t>(size));
  }

  std::int64_t number(const std::string& field) {
    std::int64_t value = 0;
    std::memcpy(&value, text(field, kFieldBytes).data(), sizeof(value));
    return value;
  }

  std::int64_t number(const std::string& field, std::int64_t low, std::int64_t high) {
    const std::int64_t value = number(field);
    if (value < low || value > high) {
      fail(field, std::to_string(value),
           low == high ? std::to_string(low) : fmt::format("{}..{}", low, high));
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::int64_t offset_ = 0;
  std::int64_t field_offset_ = 0;
};

// A page as it lies in the file.
struct StoredPage {
  std::size_t table;
  std::int64_t column;
  std::int64_t first_slot;
  std::int64_t offset;
};

struct StoredSequence {
  std::int64_t length = 0;
  std::span<const std::byte> tokens;
  std::vector<StoredPage> pages;
};

// At most 40 bytes, those that are no printable ASCII as \xhh.
std::string shown(std::string_view text) {
  std::string result = "'";
  for (const char byte : text.substr(0, 40)) {
    const bool printable = byte >= ' ' && byte <= '~' && byte != '\\';
    result += printable ? std::string(1, byte)
                        : fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return result + (text.size() > 40 ? "…'" : "'");
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SequenceReader {
 public:
  SequenceReader(const KvCache& cache, std::span<const std::byte> bytes, const std::string& name)
      : cache_(cache), bytes_(bytes), name_(name), header_(bytes, name) {}

  StoredSequence read(std::string_view identity) {
    read_fixed();
    const auto stored =
        as_text(header_.text("identity", header_.number("identity_bytes", 0, header_.num_left())));
    if (stored != identity) header_.fail("identity", shown(stored), shown(identity));
    sequence_.tokens = header_.text("tokens", sequence_.length * kTokenBytes);
    visit_shape(cache_, [&](const char* field, std::int64_t idx, std::int64_t value) {
      header_.number(idx < 0 ? field : fmt::format("{} {}", field, idx), value, value);
    });
    read_columns();
    check_pages();
    return std::move(sequence_);
  }

 private:
  static constexpr std::int64_t kTokenBytes = 4;

  // Up to the length; checks the header's own checksum.
  void read_fixed() {
    const std::string_view magic = as_text(header_.text("magic", kFieldBytes));
    if (magic != kMagic) header_.fail("magic", shown(magic), shown(kMagic));
    header_.number("format_version", kFormatVersion, kFormatVersion);
    const auto size = std::ssize(bytes_);
    const std::int64_t header_bytes =
        header_.number("header_bytes", kFixedBytes + kFieldBytes, size);
    header_.number("file_bytes", size, size);
    if (header_bytes % kFieldBytes != 0) {
      throw Error(fmt::format("'{}': header_bytes at offset {} is {}; expected a multiple of {}",
                              name_, kHeaderBytesAt, header_bytes, kFieldBytes));
    }
    checksum_ = check(0, header_bytes - kFieldBytes, 0, "the header");
    next_page_ = header_bytes;
    header_.end_at(header_bytes - kFieldBytes);
    sequence_.length = header_.number("length", 0, header_.num_left() / kTokenBytes);
  }

  void read_columns() {
    const std::int64_t columns = num_columns(cache_, sequence_.length);
    for (std::size_t table = 0; table < cache_.tables().size(); ++table) {
      const std::int64_t num_pages =
          header_.number(fmt::format("num_pages of table {}", table), 0,
                         std::min(columns, header_.num_left() / (2 * kFieldBytes)));
      std::int64_t next = 0;
      for (std::int64_t idx = 0; idx < num_pages; ++idx) {
        const std::int64_t column =
            header_.number(fmt::format("column of table {}", table), next, columns - 1);
        next = column + 1;
        const std::int64_t num_slots = std::min(
            cache_.shape().page_size, sequence_.length - column * cache_.shape().page_size);
        const std::int64_t first_slot =
            header_.number(fmt::format("first_slot of table {}", table), 0, num_slots);
        sequence_.pages.push_back({table, column, first_slot, next_page_});
        next_page_ = checked_add64(next_page_, cache_.tables()[table].page_bytes + kFieldBytes);
      }
    }
    if (header_.num_left() != 0) {
      throw Error(fmt::format("'{}': the header has {} bytes too many at offset {}", name_,
                              header_.num_left(), header_.offset()));
    }
    if (next_page_ != std::ssize(bytes_)) {
      throw Error(fmt::format("'{}': {} pages end at offset {}; expected {}, the file's end", name_,
                              sequence_.pages.size(), next_page_, bytes_.size()));
    }
  }

  void check_pages() {
    for (const StoredPage& page : sequence_.pages) {
      const CacheTable& table = cache_.tables()[page.table];
      const std::string what = fmt::format("page {} of table {}", page.column, page.table);
      checksum_ = check(page.offset, page.offset + table.page_bytes, checksum_, what);
      if (!cache_.shape().summaries) continue;
      SummaryHeader summary;
      const std::int64_t at = page.offset + table.kv_bytes;
      std::memcpy(&summary, bytes_.data() + at, sizeof(summary));
      const bool ordered = summary.first_slot >= 0 && summary.first_slot <= summary.end_slot &&
                           summary.end_slot <= cache_.shape().page_size;
      if (ordered) continue;
      throw Error(fmt::format(
          "'{}': the summary of {} at offset {} covers slots {}..{}; expected "
          "slots of 0..{}",
          name_, what, at, summary.first_slot, summary.end_slot, cache_.shape().page_size));
    }
  }

  // Of begin .. end - 1, behind which it is stored.
  std::int64_t check(std::int64_t begin, std::int64_t end, std::int64_t before,
                     const std::string& what) const {
    const auto there =
        bytes_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const std::int64_t expected = checksum(there, before);
    std::int64_t stored = 0;
    std::memcpy(&stored, bytes_.data() + end, sizeof(stored));
    if (stored == expected) return expected;
    throw Error(
        fmt::format("'{}' is damaged: the checksum of {}, offsets {}..{}, is {:#x}; "
                    "expected {:#x}, which follows it",
                    name_, what, begin, end - 1, expected, stored));
  }

  const KvCache& cache_;
  std::span<const std::byte> bytes_;
  const std::string& name_;
  HeaderReader header_;
  StoredSequence sequence_;
  std::int64_t checksum_ = 0;
  std::int64_t next_page_ = 0;
};

}  // namespace

void save_sequence(const KvCache& cache, SequenceId sequence, std::string_view identity,
                   std::span<const std::int32_t> tokens, const std::string& path) {
  const KvCache::State& state = cache.state();
  const Sequence& of = state.idle_sequence(sequence);
  if (std::ssize(tokens) != of.length) {
    throw Error(fmt::format("tokens has {}; allowed: {}, the length of sequence {}", tokens.size(),
                            of.length, sequence));
  }
  FileWriter file(path);
  const HeaderWriter header = make_header(cache, of, identity, tokens);
  file.write(header.bytes());
  std::int64_t before =
      checksum(header.bytes().first(static_cast<std::size_t>(header.size_bytes() - kFieldBytes)));
  const std::int64_t page_size = cache.shape().page_size;
  for (std::size_t table = 0; table < of.tables.size(); ++table) {
    const std::int64_t page_bytes = cache.tables()[table].page_bytes;
    std::vector<std::byte> copy(static_cast<std::size_t>(page_bytes + kFieldBytes));
    const auto page_copy = std::span(copy).first(static_cast<std::size_t>(page_bytes));
    for (std::int64_t column = 0; column < std::ssize(of.tables[table]); ++column) {
      const PageId page = of.tables[table][static_cast<std::size_t>(column)];
      if (page == KvView::kNullPage) continue;
      std::copy_n(state.pool.bytes(page), page_bytes, copy.begin());
      clear_unused(state, table, page_copy,
                   {state.first_slot(page), std::min(page_size, of.length - column * page_size)});
      before = checksum(page_copy, before);
      std::memcpy(copy.data() + page_bytes, &before, sizeof(before));
      file.write(copy);
    }
  }
  file.commit();
}

std::optional<LoadedSequence> load_sequence_bytes(KvCache& cache, std::span<const std::byte> bytes,
                                                  const std::string& name,
                                                  std::string_view identity) {
  const StoredSequence stored = SequenceReader(cache, bytes, name).read(identity);
  KvCache::State& state = cache.state();
  const auto columns = static_cast<std::size_t>(num_columns(cache, stored.length));
  std::vector<std::size_t> tables;
  for (const StoredPage& from : stored.pages) tables.push_back(from.table);
  const std::optional<std::vector<PageId>> pages = state.take(tables);
  if (!pages) return std::nullopt;
  Sequence sequence;
  sequence.length = stored.length;
  sequence.tables.assign(state.tables.size(), std::vector<PageId>(columns, KvView::kNullPage));
  for (std::size_t idx = 0; idx < pages->size(); ++idx) {
    const StoredPage& from = stored.pages[idx];
    const PageId page = (*pages)[idx];
    sequence.tables[from.table][static_cast<std::size_t>(from.column)] = page;
    state.set_first_slot(page, from.first_slot);
    std::memcpy(state.pool.bytes(page), bytes.data() + from.offset,
                static_cast<std::size_t>(state.tables[from.table].page_bytes));
    // A page that was shared when its sequence was cut still summed up what was cut off.
    state.cut_summary(
        from.table, page,
        std::min(state.shape.page_size, stored.length - from.column * state.shape.page_size));
  }
  LoadedSequence loaded;
  loaded.tokens.resize(static_cast<std::size_t>(stored.length));
  if (stored.length > 0) {
    std::memcpy(loaded.tokens.data(), stored.tokens.data(), stored.tokens.size());
  }
  loaded.sequence = state.add(std::move(sequence));
  return loaded;
}

std::optional<LoadedSequence> load_sequence(KvCache& cache, const std::string& path,
                                            std::string_view identity) {
  const MappedFile file(path);
  return load_sequence_bytes(
      cache, std::as_bytes(std::span(file.data(), static_cast<std::size_t>(file.size()))), path,
      identity);
}

}  // namespace lacuna
