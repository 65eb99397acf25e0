#pragma once

// A KvCache beside cache_model.h, both of them drawn by choices that come from a seed or from a
// fuzzer's bytes, and the checks of one against the other.

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_model.h"
#include "cache/cache_rig.h"
#include "cache/cache_scenarios.h"
#include "cache/packed_reader.h"
#include "lacuna/error.h"
#include "lacuna/integer.h"
#include "lacuna/policy.h"

namespace lacuna::rig {

class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed), seeded_(true) {}
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  // 0..count-1; zeros once the bytes have run out.
  std::int64_t below(std::int64_t count) {
    if (seeded_) return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte % count;
  }
  bool one_in(std::int64_t count) { return below(count) == count - 1; }
  bool done() const { return !seeded_ && bytes_.empty(); }

 private:
  std::mt19937_64 random_;
  bool seeded_ = false;
  std::span<const std::uint8_t> bytes_;
};

// The cache and the model differ.
class Mismatch : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The words are put together only where they are needed.
template <typename A, typename B, typename... Words>
void same(const A& is, const B& should_be, fmt::format_string<const Words&...> what,
          const Words&... words) {
  if (is == should_be) return;
  throw Mismatch(
      fmt::format("{} is {}; it should be {}", fmt::format(what, words...), is, should_be));
}

// One cache with a model of it. Checks throw Mismatch.
class CheckedCache {
 public:
  explicit CheckedCache(Choices& choices)
      : choices_(choices),
        model_(model_of(scenarios()[pick(std::ssize(scenarios()))])),
        retention_(model_.table, model_.shape),
        rollback_(choices.one_in(3) ? 1 + choices.below(20) : 0),
        pool_options_(draw_pool()),
        cache_(draw_shape(), pool_options_),
        mirror_(cache_.shape().page_size, cache_.tables().size()),
        policy_{"paged",
                {{"P", cache_.shape().page_size}, {"in_flight", 0}, {"rollback", rollback_}}} {
    for (int layer = 0; layer < std::ssize(model_.table.layers); ++layer) {
      topologies_.push_back(topologies(model_, layer));
    }
  }

 protected:
  // A page of the index: what it stands for, and which of its slots hold anything.
  struct Published {
    ContentId content = kNoContent;
    std::size_t table = 0;
    std::int64_t column = 0;
    std::string identity;
    Tokens tokens;  // from position 0 to the last slot
    std::vector<char> present;
  };

  std::size_t pick(std::int64_t count) { return static_cast<std::size_t>(choices_.below(count)); }

  CacheShape draw_shape() {
    constexpr DType kDtypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kInt8};
    CacheShape shape = cache_shape(retention_, choices_.one_in(3) ? 64 : 16, kDtypes[pick(4)]);
    shape.summaries = choices_.one_in(2);
    return shape;
  }
  PoolOptions draw_pool() {
    constexpr std::int64_t kSlabs[] = {3, 6, 12, 96};
    constexpr std::int64_t kSlabBytes = 1 << 15;
    return {.budget_bytes = kSlabs[pick(4)] * kSlabBytes, .slab_bytes = kSlabBytes, .poison = true};
  }

  std::vector<SequenceId> awake() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : mirror_.sequences) {
      if (sequence.asleep.empty()) ids.push_back(id);
    }
    return ids;
  }
  SequenceId any_sequence() {
    const std::vector<SequenceId> ids = awake();
    return ids[pick(std::ssize(ids))];
  }

  void check_prediction(SequenceId id, std::int64_t in_flight) {
    if (!mirror_.sequences.at(id).keeps_policy || choices_.below(4) != 0) return;
    policy_.params["in_flight"] = in_flight;
    const std::int64_t length = cache_.length(id) + in_flight;
    const Held predicted =
        held(policy_, model_.table, model_.shape,
             {length, length, kv_dtype(std::string(to_string(cache_.shape().dtype)))});
    std::int64_t bytes = 0;
    for (const std::int64_t of_layer : cache_.held_bytes(id)) bytes += of_layer;
    same(bytes, to_int64(predicted.bytes.value(), "bytes"),
         "bytes of {} tokens, {} of them in flight", length, in_flight);
  }

  void check() {
    check_pages();
    check_pool();
    std::vector<SequenceId> ids;
    for (const auto& [id, sequence] : mirror_.sequences) {
      ids.push_back(id);
      same(cache_.length(id), sequence.length(), "length");
    }
    if (ids != cache_.sequences()) throw Mismatch("sequences differ");
    if (awake().empty()) return;
    const SequenceId id = any_sequence();
    check_held(id);
    check_readers(id);
    check_numbers(id, choices_.one_in(32));
    if (cache_.shape().summaries) check_summaries(id);
  }

  // Every page of a table is a page of the pool with as many references as owners, shared exactly
  // where its content is.
  void check_pages() {
    const std::map<ContentId, std::int64_t> owners = mirror_.owners();
    std::map<ContentId, PageId> place;
    std::map<PageId, ContentId> content;
    for (const auto& [page, of] : published_) {
      place[of.content] = page;
      content[page] = of.content;
      const auto owned = owners.find(of.content);
      const std::int64_t others = owned == owners.end() ? 0 : owned->second;
      same(cache_.pool().references(page), others + 1, "references to published page {}", page);
    }
    for (const auto& [id, sequence] : mirror_.sequences) {
      for (std::size_t t = 0; t < sequence.tables.size(); ++t) {
        const std::span<const PageId> is = cache_.block_table(id, t);
        const std::vector<ContentId>& should_be = sequence.tables[t].pages;
        same(is.size(), should_be.size(), "columns of {}, table {}", id, t);
        for (std::size_t column = 0; column < is.size(); ++column) {
          same(is[column] == KvView::kNullPage, should_be[column] == kNoContent,
               "sequence {}, table {}, column {} being null", id, t, column);
          if (is[column] == KvView::kNullPage) continue;
          same(place.emplace(should_be[column], is[column]).first->second, is[column],
               "the page of sequence {}, table {}, column {}", id, t, column);
          same(content.emplace(is[column], should_be[column]).first->second, should_be[column],
               "the content of sequence {}, table {}, column {}", id, t, column);
          same(cache_.pool().size_class(is[column]), cache_.tables()[t].size_class,
               "the class of sequence {}, table {}, column {}", id, t, column);
        }
      }
    }
    for (const auto& [page, count] : owners) {
      same(cache_.pool().references(place.at(page)),
           count + static_cast<std::int64_t>(mirror_.published.count(page)), "references");
    }
    same(mirror_.published.size(), published_.size(), "published pages");
    std::size_t live = 0;
    cache_.pool().for_each_live([&](PageId page, int) {
      ++live;
      if (content.count(page) == 0) throw Mismatch(fmt::format("page {} has no owner", page));
    });
    same(live, content.size(), "live pages");
  }

  // Free and used pages of every class and slab add up to the pool.
  void check_pool() {
    const PagePool& pool = cache_.pool();
    std::map<std::int64_t, int> class_of_slab;
    std::map<int, std::int64_t> live;
    std::map<PageId, std::int64_t> ends;
    std::int64_t bytes = 0;
    pool.for_each_live([&](PageId page, int size_class) {
      const std::int64_t begin = page * kPageUnitBytes;
      const std::int64_t end = begin + pool.page_bytes(size_class);
      const std::int64_t slab = begin / pool_options_.slab_bytes;
      same((end - 1) / pool_options_.slab_bytes, slab, "the slab of a page's end");
      same(class_of_slab.emplace(slab, size_class).first->second, size_class, "class of a slab");
      ++live[size_class];
      bytes += pool.page_bytes(size_class);
      if (!ends.empty() && ends.rbegin()->second > begin) throw Mismatch("pages overlap");
      ends[page] = end;
    });
    same(cache_.live_bytes(), bytes, "live bytes");
    same(pool.num_free_slabs() + std::ssize(class_of_slab), pool.num_slabs(), "slabs");
    std::map<int, std::int64_t> slabs;
    for (const auto& [slab, size_class] : class_of_slab) ++slabs[size_class];
    for (const CacheTable& table : cache_.tables()) {
      const auto size_class = static_cast<int>(table.size_class);
      const std::int64_t per_slab = pool.pages_per_slab(size_class);
      same(pool.num_available(size_class) + live[size_class],
           (pool.num_free_slabs() + slabs[size_class]) * per_slab, "pages of a class");
    }
  }

  void check_held(SequenceId id) {
    const std::vector<Ranges> held = cache_.held(id);
    std::vector<std::int64_t> bytes(cache_.shape().layers.size(), 0);
    for (std::size_t t = 0; t < held.size(); ++t) {
      if (held[t] != mirror_.present(id, t)) {
        throw Mismatch(fmt::format("held positions of sequence {}, table {} differ", id, t));
      }
      const CacheTable& table = cache_.tables()[t];
      for (const ContentId page : mirror_.sequences.at(id).tables[t].pages) {
        if (page != kNoContent) bytes[static_cast<std::size_t>(table.layer_idx)] += table.kv_bytes;
      }
    }
    if (cache_.held_bytes(id) != bytes) throw Mismatch("held bytes differ");
  }

  std::size_t table_of(int layer, int kv_head) const {
    const auto& from = cache_.shape().layers[static_cast<std::size_t>(layer)].kv_from;
    for (std::size_t t = 0; t < cache_.tables().size(); ++t) {
      const CacheTable& table = cache_.tables()[t];
      if (table.layer_idx != from.value_or(layer)) continue;
      const auto& heads = table.kv_heads;
      if (std::find(heads.begin(), heads.end(), kv_head) != heads.end()) return t;
    }
    throw Mismatch(fmt::format("KV head {} of layer {} has no table", kv_head, layer));
  }

  // What a later query could read is there.
  void check_readers(SequenceId id) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    if (sequence.evicted) return;
    const std::int64_t length = sequence.length();
    const std::int64_t later = length + choices_.below(100);
    for (int layer = 0; layer < std::ssize(topologies_); ++layer) {
      const auto& of_heads = topologies_[static_cast<std::size_t>(layer)];
      const int group = model_.shape.layers[static_cast<std::size_t>(layer)].num_q_heads /
                        model_.shape.layers[static_cast<std::size_t>(layer)].num_kv_heads;
      for (int head = 0; head < std::ssize(of_heads); ++head) {
        for (const std::int64_t query : {sequence.earliest_query, length, later}) {
          const Ranges row = of_heads[static_cast<std::size_t>(head)].row(query, query + 1);
          if (mirror_.holds(id, table_of(layer, head / group), clip(row, {0, length}))) continue;
          throw Mismatch(
              fmt::format("sequence {} of {} tokens lacks a key that query {} of layer "
                          "{}, head {} reads",
                          id, length, query, layer, head));
        }
      }
    }
  }

  void check_numbers(SequenceId id, bool all) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    if (sequence.length() == 0) return;
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
      const CacheView view = cache_.view(layer, {&id, 1});
      for (int head = 0; head < sizes.num_kv_heads; ++head) {
        const std::vector<char>& present = sequence.tables[table_of(layer, head)].present;
        for (std::int64_t p = all ? 0 : choices_.below(sequence.length()); p < sequence.length();
             ++p) {
          if (present[static_cast<std::size_t>(p)] != 0) {
            check_token(view.kv(), layer, head, p, sequence.tokens[static_cast<std::size_t>(p)]);
          }
          if (!all) break;
        }
      }
    }
  }

  void check_token(const KvView& kv, int layer, int head, std::int64_t position,
                   std::int32_t token) {
    const int source =
        cache_.shape().layers[static_cast<std::size_t>(layer)].kv_from.value_or(layer);
    for (const Kind kind : {kK, kV}) {
      const std::vector<float> is = PackedReader(kv, kind == kV, head, position).vector();
      const std::vector<float> should_be =
          stored(vector_of(kind, token, position, source, head, std::ssize(is)), kv.dtype);
      for (std::size_t dim = 0; dim < is.size(); ++dim) {
        same(is[dim], should_be[dim], "layer {}, head {}, position {}, dim {}", layer, head,
             position, dim);
      }
    }
  }

  static std::vector<float> vector_of(Kind kind, std::int32_t token, std::int64_t position,
                                      int layer, int head, std::int64_t dims) {
    std::vector<float> vector;
    for (std::int64_t dim = 0; dim < dims; ++dim) {
      vector.push_back(number(kind, token, position, layer, head, dim));
    }
    return vector;
  }

  void check_summaries(SequenceId id) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    for (int layer = 0; layer < std::ssize(cache_.shape().layers); ++layer) {
      const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
      for (int head = 0; head < sizes.num_kv_heads; ++head) {
        const ModelTable& table = sequence.tables[table_of(layer, head)];
        if (table.pages.empty()) continue;
        const std::int64_t column = choices_.below(std::ssize(table.pages));
        const ContentId page = table.pages[static_cast<std::size_t>(column)];
        if (page == kNoContent || mirror_.cut_while_shared.count(page) != 0) continue;
        check_summary(id, table, layer, head, column);
      }
    }
  }

  void check_summary(SequenceId id, const ModelTable& table, int layer, int head,
                     std::int64_t column) {
    const ModelSequence& sequence = mirror_.sequences.at(id);
    const CacheLayer& sizes = cache_.shape().layers[static_cast<std::size_t>(layer)];
    const std::int64_t page_size = cache_.shape().page_size;
    const std::int64_t end = std::min((column + 1) * page_size, sequence.length());
    std::int64_t first = column * page_size;
    while (first < end && table.present[static_cast<std::size_t>(first)] == 0) ++first;
    const PageSummary is = cache_.summary(id, layer, head, column);
    same(is.positions.end, end, "end of the summary of {}, layer {}, head {}", id, layer, head);
    same(is.positions.begin, first, "begin of the summary of {}, layer {}, head {}", id, layer,
         head);
    if (first == end) return;
    const auto dims = static_cast<std::size_t>(sizes.head_dim);
    std::vector<float> low(dims, std::numeric_limits<float>::infinity());
    std::vector<float> high(dims, -std::numeric_limits<float>::infinity());
    std::vector<float> sum(dims, 0);
    for (std::int64_t p = first; p < end; ++p) {
      const std::vector<float> key =
          stored(vector_of(kK, sequence.tokens[static_cast<std::size_t>(p)], p,
                           sizes.kv_from.value_or(layer), head, sizes.head_dim),
                 cache_.shape().dtype);
      for (std::size_t d = 0; d < dims; ++d) {
        low[d] = std::min(low[d], key[d]);
        high[d] = std::max(high[d], key[d]);
        sum[d] += key[d];
      }
    }
    for (std::size_t d = 0; d < dims; ++d) {
      same(is.minimum[d], low[d], "minimum of the summary of {}, layer {}, head {}", id, layer,
           head);
      same(is.maximum[d], high[d], "maximum of the summary of {}, layer {}, head {}", id, layer,
           head);
      same(is.sum[d], sum[d], "sum of the summary of {}, layer {}, head {}", id, layer, head);
    }
  }

  Choices& choices_;
  Model model_;
  Retention retention_;
  std::int64_t rollback_;
  PoolOptions pool_options_;
  KvCache cache_;
  CacheModel mirror_;
  Policy policy_;
  std::vector<std::vector<Topology>> topologies_;  // [layers][query heads]
  std::map<PageId, Published> published_;
};

}  // namespace lacuna::rig
