#include "topology/edge_list.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lacuna/error.h"
#include "lacuna/file.h"
#include "topology/attend_terms.h"

namespace lacuna::attend_text {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Whole file as lines without comments; blank ones are left out.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), bytes_(read_file(path, kMaxFileBytes)) {}

  // False at the end of the file.
  bool next() {
    while (at_ < bytes_.size()) {
      const std::string_view rest = std::string_view(bytes_).substr(at_);
      const std::string_view whole = rest.substr(0, rest.find('\n'));
      at_ += whole.size() + 1;
      ++number_;
      line_ = trimmed(whole.substr(0, whole.find('#')));
      if (!line_.empty()) return true;
    }
    line_ = {};
    return false;
  }
  std::string_view line() const { return line_; }

  // The two fields of the line, which must not be more or fewer.
  std::pair<std::string_view, std::string_view> fields(const std::string& allowed) const {
    const std::size_t cut = line_.find_first_of(kBlanks);
    const std::string_view first = line_.substr(0, cut);
    const std::string_view second =
        cut == std::string_view::npos ? std::string_view() : trimmed(line_.substr(cut));
    if (second.empty() || second.find_first_of(kBlanks) != std::string_view::npos) fail(allowed);
    return {first, second};
  }

  std::int64_t whole(std::string_view text, std::int64_t min, std::int64_t max,
                     const std::string& allowed) const {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc{} || stop != end || value < min || value > max) fail(allowed);
    return value;
  }

  [[noreturn]] void fail(const std::string& allowed) const {
    throw Error(fmt::format("{} line {}: {} stands here; allowed: {}", shown(path_), number_,
                            line_.empty() ? "the end" : shown(line_), allowed));
  }

 private:
  std::string path_;
  std::string bytes_;
  std::string_view line_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
};

std::shared_ptr<const EdgeList> read_pairs(Lines& lines, const char* names, std::int64_t max) {
  const std::string allowed = fmt::format("{}, two numbers 0..{}", names, max);
  auto list = std::make_shared<EdgeList>();
  while (lines.next()) {
    const auto [query, key] = lines.fields(allowed);
    list->pairs.emplace_back(lines.whole(query, 0, max, allowed),
                             lines.whole(key, 0, max, allowed));
  }
  std::sort(list->pairs.begin(), list->pairs.end());
  list->pairs.erase(std::unique(list->pairs.begin(), list->pairs.end()), list->pairs.end());
  list->pairs.shrink_to_fit();
  return list;
}

}  // namespace

BlockList read_block_list(const std::string& path) {
  Lines lines(path);
  const std::string allowed = fmt::format("'block B', B in 1..{}", kMaxNumber);
  if (!lines.next()) lines.fail(allowed);
  const auto [word, size] = lines.fields(allowed);
  if (word != "block") lines.fail(allowed);
  BlockList blocks;
  blocks.block = lines.whole(size, 1, kMaxNumber, allowed);
  // So that a block's positions are in range too.
  blocks.list = read_pairs(lines, "query_block and key_block", kMaxNumber / blocks.block);
  return blocks;
}

}  // namespace lacuna::attend_text

namespace lacuna {

std::shared_ptr<const EdgeList> read_edge_list(const std::string& path) {
  attend_text::Lines lines(path);
  return attend_text::read_pairs(lines, "query and key", attend_text::kMaxNumber);
}

}  // namespace lacuna
