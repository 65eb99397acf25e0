#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention_answer.h"
#include "attention_case.h"
#include "lacuna/attention.h"
#include "lacuna/error.h"

// What a call refuses, by which words, before anything is written; and how it stops.

namespace lacuna {
namespace {

using cases::Case;
using cases::filled;
using cases::How;
using cases::last_rows;
using cases::whole;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// A call that is right; a test makes one thing of it wrong.
struct Arguments {
  explicit Arguments(Case c = sound_case(), const cases::KvLayout& layout = {})
      : question(std::move(c)),
        q_memory(question.q, question.q_dtype),
        kv_memory(question, layout),
        out_memory(static_cast<std::size_t>(question.num_rows() * 4 * 10), 7),
        lse(static_cast<std::size_t>(question.num_rows() * 4), 7),
        plan(cases::plan_of(question)),
        q(q_memory.view()),
        kv(kv_memory.view()),
        out(mutable_tensor_view(out_memory.data(), DType::kF32, {question.num_rows(), 4, 10})),
        bytes(workspace_bytes(plan, q, kv, options)) {}

  static Case sound_case() {
    Case c;
    c.shape = {"heads", 4, 2, 6, 10};
    c.attend = {{Window{7, 0}, Sink{2}}};
    c.sequences = {whole(20), last_rows(2, 30)};
    return filled(std::move(c), 91);
  }

  std::optional<Ledger> call() {
    cases::Workspace workspace(bytes);
    return run(out, lse, plan, q, kv, workspace.span(), options);
  }
  bool is_untouched() const {
    return out_memory == std::vector<float>(out_memory.size(), 7) &&
           std::all_of(lse.begin(), lse.end(), [](float x) { return x == 7; });
  }

  Case question;
  stored::Tensor q_memory;
  cases::KvMemory kv_memory;
  std::vector<float> out_memory;
  std::vector<float> lse;
  AttentionOptions options;
  Plan plan;
  TensorView q;
  KvView kv;
  MutableTensorView out;
  std::int64_t bytes;
};

// Both run() and masked_dense() refuse, naming each of `words`, and write nothing.
void expect_refused(Arguments& a, const std::vector<std::string>& words, bool by_dense = true) {
  const auto expect_named = [&](const std::function<void()>& call, const char* who) {
    try {
      call();
      ADD_FAILURE() << who << " accepts it";
    } catch (const Error& error) {
      for (const std::string& word : words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << who << " says \"" << error.what() << "\" and not " << word;
      }
    }
    EXPECT_TRUE(a.is_untouched()) << who << " wrote before it refused";
  };
  expect_named([&] { a.call(); }, "run");
  if (by_dense) {
    expect_named([&] { masked_dense(a.out, a.lse, a.plan, a.q, a.kv, a.options); }, "masked_dense");
  }
}

TEST(CallContract, ASoundCallIsAccepted) {
  Arguments a;
  EXPECT_TRUE(a.call().has_value());
  EXPECT_FALSE(a.is_untouched());
}

TEST(CallContract, RefusesQueriesOfAnotherShape) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::int64_t change : {-1, 1}) {
      Arguments a;
      a.q.shape[axis] += change;
      expect_refused(a, {"q", std::to_string(a.q.shape[axis])});
    }
  }
}

TEST(CallContract, RefusesAnOutOfAnotherShape) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::int64_t change : {-1, 1}) {
      Arguments a;
      a.out.shape[axis] += change;
      expect_refused(a, {"out", std::to_string(a.out.shape[axis])});
    }
  }
}

TEST(CallContract, RefusesAnOutThatIsNeitherF32NorOfTheQueriesDType) {
  for (DType dtype : {DType::kBf16, DType::kF16}) {
    Arguments a;
    a.out.dtype = dtype;
    expect_refused(a, {"out", std::string(to_string(dtype))});
  }
  Case c = Arguments::sound_case();
  c.q_dtype = c.kv_dtype = DType::kBf16;
  Arguments a(filled(std::move(c)));
  a.out.dtype = DType::kF16;
  expect_refused(a, {"out", "f16"});
}

TEST(CallContract, RefusesAnLseOfAnotherSize) {
  for (std::int64_t change : {-1, 1}) {
    Arguments a;
    a.lse.resize(a.lse.size() + static_cast<std::size_t>(change), 7);
    expect_refused(a, {"lse", std::to_string(a.lse.size())});
  }
}

TEST(CallContract, RefusesNullTensors) {
  Arguments a;
  a.q.data = nullptr;
  expect_refused(a, {"q"});
  Arguments b;
  b.out.data = nullptr;
  expect_refused(b, {"out"});
  Arguments c;
  c.kv.k = nullptr;
  expect_refused(c, {"k"});
}

TEST(CallContract, RefusesKeysOfAnotherShape) {
  Arguments a;
  a.kv.head_dim = 5;
  expect_refused(a, {"head_dim", "5"});
  Arguments b;
  b.kv.v_head_dim = 11;
  expect_refused(b, {"11"});
  Arguments c;
  c.kv.num_kv_heads = 4;
  expect_refused(c, {"num_kv_heads", "4"});
}

TEST(CallContract, RefusesHeadDimsThatNoKernelHas) {
  for (std::int64_t dim : {577, 0}) {
    Case c = Arguments::sound_case();
    c.shape.head_dim = std::max<std::int64_t>(dim, 1);
    c = filled(std::move(c));
    const stored::Tensor q(c.q, c.q_dtype);
    const cases::KvMemory memory(c, {});
    TensorView q_view = q.view();
    KvView kv = memory.view();
    q_view.shape[2] = kv.head_dim = dim;
    EXPECT_THROW(workspace_bytes(cases::plan_of(c), q_view, kv, {}), Error) << dim;
  }
}

TEST(CallContract, RefusesAPlanForOtherSequences) {
  Arguments longer;  // the plan reads keys that are not held
  longer.question.sequences[1].length = longer.question.sequences[1].rows.end = 31;
  longer.question.sequences[1].rows.begin = 29;
  longer.plan = cases::plan_of(longer.question);
  expect_refused(longer, {"31", "30"});
  Arguments shorter;
  shorter.question.sequences[1] = last_rows(2, 29);
  shorter.plan = cases::plan_of(shorter.question);
  expect_refused(shorter, {"29", "30"});
  Arguments fewer;
  fewer.question.sequences.pop_back();
  fewer.plan = cases::plan_of(fewer.question);
  fewer.q.shape[0] = fewer.out.shape[0] = 20;
  fewer.lse.resize(80);
  expect_refused(fewer, {"sequences"});
}

TEST(CallContract, RefusesAPlanForOtherHeads) {
  Arguments a;
  a.question.shape.num_kv_heads = 1;
  a.plan = cases::plan_of(a.question);
  expect_refused(a, {"num_kv_heads"});
  Arguments b;
  b.question.shape.num_q_heads = 8;
  b.plan = cases::plan_of(b.question);
  expect_refused(b, {"8"});
}

TEST(CallContract, RefusesAPlanOfAnotherTile) {
  for (const Tile tile : {Tile{8, 16}, Tile{16, 8}, Tile{64, 16}}) {
    Arguments a;
    a.plan = cases::plan_of(a.question, {tile, 0});
    expect_refused(a, {"tile", "16,16"});
  }
}

TEST(CallContract, RefusesAWorkspaceThatIsTooSmallOrMisaligned) {
  Arguments a;
  ASSERT_GT(a.bytes, 0);
  a.bytes -= 1;
  expect_refused(a, {"workspace", std::to_string(a.bytes), std::to_string(a.bytes + 1)}, false);
  Arguments b;
  cases::Workspace workspace(b.bytes + 64);
  for (std::size_t off : {1U, 4U, 32U}) {
    EXPECT_THROW(run(b.out, b.lse, b.plan, b.q, b.kv, workspace.span().subspan(off), b.options),
                 Error)
        << off;
  }
  EXPECT_THROW(run(b.out, b.lse, b.plan, b.q, b.kv, {}, b.options), Error);
  EXPECT_TRUE(b.is_untouched());
}

TEST(CallContract, RefusesAnUnknownInstructionSet) {
  Arguments a;
  a.options.isa = "avx3";
  expect_refused(a, {"avx3", "portable"});
  EXPECT_THROW(workspace_bytes(a.plan, a.q, a.kv, a.options), Error);
}

TEST(CallContract, RefusesAScaleOrSoftcapThatIsNoNumber) {
  for (float scale : {kNan, kInf, -kInf}) {
    Arguments a;
    a.options.sm_scale = scale;
    expect_refused(a, {"sm_scale"});
  }
  for (float cap : {kNan, kInf, -1.0F}) {
    Arguments a;
    a.options.softcap = cap;
    expect_refused(a, {"softcap"});
  }
}

TEST(CallContract, RefusesSlopesAndSinksThatAreNotOneForEachHead) {
  for (std::size_t count : {1U, 2U, 3U, 5U}) {
    const std::vector<float> numbers(count, 0.5F);
    Arguments a;
    a.options.alibi_slopes = numbers;
    expect_refused(a, {"alibi_slopes", std::to_string(count), "4"});
    Arguments b;
    b.options.sink_logits = numbers;
    expect_refused(b, {"sink_logits", std::to_string(count), "4"});
  }
}

TEST(CallContract, RefusesSlopesAndSinksThatAreNoNumbers) {
  for (float number : {kNan, kInf}) {
    const std::vector<float> numbers = {0, number, 0, 0};
    Arguments a;
    a.options.alibi_slopes = numbers;
    expect_refused(a, {"slope"});
    Arguments b;
    b.options.sink_logits = numbers;
    expect_refused(b, {"sink"});
  }
}

// ---- Pages --------------------------------------------------------------------------------------

cases::KvLayout paged(std::int64_t page_size) {
  cases::KvLayout layout;
  layout.page_size = page_size;
  return layout;
}

TEST(CallContract, RefusesALengthBeyondTheTablesColumns) {
  Case c;
  c.shape = {"heads", 4, 2, 6, 10};
  c.sequences = {whole(9)};
  Arguments a(filled(std::move(c)), paged(4));
  std::vector<std::int64_t> table = {0, 1};
  a.kv.block_table = table;
  a.kv.table_columns = 2;
  expect_refused(a, {"table_columns", "2"});
}

TEST(CallContract, RefusesPagesOutsideThePool) {
  for (std::int64_t page : {std::int64_t{-2}, std::int64_t{1} << 40}) {
    Arguments a(Arguments::sound_case(), paged(4));
    std::vector<std::int64_t> table(a.kv.block_table.begin(), a.kv.block_table.end());
    table[1] = page;
    a.kv.block_table = table;
    expect_refused(a, {std::to_string(page)});
  }
  Arguments a(Arguments::sound_case(), paged(4));
  std::vector<std::int64_t> table(a.kv.block_table.begin(), a.kv.block_table.end());
  table[1] = a.kv.num_pages;
  a.kv.block_table = table;
  expect_refused(a, {std::to_string(a.kv.num_pages)});
}

TEST(CallContract, RefusesANullPageWhereARowReads) {
  // The second sequence has 30 keys; rows 28 and 29 read 0, 1 and 21..29: pages 0 and 5..7 of 4.
  const auto with_null = [](std::size_t column) {
    Arguments a(Arguments::sound_case(), paged(4));
    std::vector<std::int64_t> table(a.kv.block_table.begin(), a.kv.block_table.end());
    table[8 + column] = KvView::kNullPage;
    return std::pair(std::move(a), std::move(table));
  };
  for (std::size_t column : {0U, 5U, 7U}) {
    auto [a, table] = with_null(column);
    a.kv.block_table = table;
    expect_refused(a, {"page"});
  }
  for (std::size_t column : {1U, 2U, 3U, 4U}) {
    auto [a, table] = with_null(column);
    a.kv.block_table = table;
    EXPECT_TRUE(a.call().has_value()) << column;
  }
}

TEST(CallContract, RefusesANullPageWhereAGatheredKeyLies) {
  Case c;
  c.shape = {"heads", 4, 2, 6, 10};
  c.attend = {{Window{2, 0}, GlobalPositions{{9, 17}}}};
  c.sequences = {last_rows(2, 40)};
  c = filled(std::move(c));
  for (std::size_t column : {2U, 4U, 9U}) {  // keys 8..11, 16..19, 36..39
    Arguments a(c, paged(4));
    std::vector<std::int64_t> table(a.kv.block_table.begin(), a.kv.block_table.end());
    table[column] = KvView::kNullPage;
    a.kv.block_table = table;
    expect_refused(a, {"page"});
  }
}

// ---- Stopping and buffers -----------------------------------------------------------------------

TEST(CallContract, StopsBeforeTheFirstItemWhereThatIsAsked) {
  ThreadPool pool(2);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    Arguments a;
    std::stop_source stop;
    stop.request_stop();
    a.options.stop = stop.get_token();
    a.options.pool = threads;
    a.bytes = workspace_bytes(a.plan, a.q, a.kv, a.options);
    EXPECT_EQ(a.call(), std::nullopt);
    EXPECT_EQ(masked_dense(a.out, a.lse, a.plan, a.q, a.kv, a.options), std::nullopt);
  }
}

TEST(CallContract, AStopThatNobodyRequestsChangesNothing) {
  Arguments a;
  std::stop_source stop;
  a.options.stop = stop.get_token();
  EXPECT_TRUE(a.call().has_value());
}

TEST(CallContract, NeedsNoMoreWorkspaceForALongerSequenceButWhatItSays) {
  const auto bytes_at = [](std::int64_t length, std::int64_t num_threads) {
    Case c;
    c.shape = {"heads", 4, 2, 6, 10};
    c.sequences = {last_rows(40, length)};
    Arguments a(filled(std::move(c)));
    a.plan = cases::plan_of(a.question, {.num_threads = num_threads});
    return workspace_bytes(a.plan, a.q, a.kv, a.options);
  };
  // A bit for each 16 keys of a KV head, in whole lines.
  EXPECT_LE(bytes_at(8000, 1) - bytes_at(1000, 1), 2 * 64);
  // And 40 · 2 states of 16 + 17 floats for a KV head, for each of two splits and of gathered keys.
  const std::int64_t states = 3 * 2 * 80 * (16 + 17) * 4;
  EXPECT_LE(bytes_at(8000, 2) - bytes_at(1000, 2), 2 * 64 + states + 1024);
  EXPECT_GT(bytes_at(8000, 2) - bytes_at(1000, 2), states / 2);
}

TEST(CallContract, NeedsAtMost64MiBOfWorkspaceForAPromptOf128kTokens) {
  constexpr std::int64_t kLength = 131072;
  const std::vector<std::int64_t> starts = {0};
  const std::vector<std::int64_t> lengths = {kLength};
  const float nothing = 0;  // sizes only: nobody reads
  ThreadPool pool(2);
  AttentionOptions options;
  options.pool = &pool;
  for (const char* attend : {"full", "window(512)+sink(4)+global(every=8192)"}) {
    for (DType dtype : kDTypes) {
      const Plan plan = make_plan(std::vector{Topology(cases::unions(attend, true, 1)[0], true)},
                                  std::vector{whole(kLength)}, {8, 2});
      const KvView kv = kv_view(tensor_view(&nothing, dtype, {kLength, 2, 128}),
                                tensor_view(&nothing, dtype, {kLength, 2, 128}), starts, lengths);
      EXPECT_LE(workspace_bytes(plan, tensor_view(&nothing, dtype, {kLength, 8, 128}), kv, options),
                64 << 20)
          << attend;
    }
  }
}

TEST(CallContract, APlanServesSeveralThreadsAtOnce) {
  Arguments a;
  ASSERT_TRUE(a.call().has_value());
  std::vector<std::vector<float>> outs(3, std::vector<float>(a.out_memory.size()));
  std::vector<std::thread> threads;
  for (std::vector<float>& memory : outs) {
    threads.emplace_back([&a, &memory] {
      MutableTensorView out = a.out;
      out.data = memory.data();
      cases::Workspace workspace(a.bytes);
      run(out, {}, a.plan, a.q, a.kv, workspace.span(), a.options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& memory : outs) EXPECT_EQ(memory, a.out_memory);
}

// Whenever the stop comes, the call ends, with all of its rows or without a ledger.
TEST(CallContract, MayBeStoppedWhileItRuns) {
  ThreadPool pool(2);
  Arguments a;
  ASSERT_TRUE(a.call().has_value());
  const auto want = a.out_memory;
  for (int round = 0; round < 20; ++round) {
    std::stop_source stop;
    a.options.stop = stop.get_token();
    a.options.pool = round % 2 == 0 ? &pool : nullptr;
    a.bytes = workspace_bytes(a.plan, a.q, a.kv, a.options);
    std::fill(a.out_memory.begin(), a.out_memory.end(), 7.0F);
    std::thread other([&stop] { stop.request_stop(); });
    const auto ledger = a.call();
    other.join();
    if (ledger) {
      EXPECT_EQ(a.out_memory, want);
    }
  }
}

// A prefix that two sequences share lies in the same pages.
TEST(CallContract, SequencesMayShareTheirPages) {
  Case c;
  c.shape = {"heads", 4, 2, 6, 10};
  c.sequences = {last_rows(2, 10), last_rows(3, 8)};
  c = filled(std::move(c));
  c.k[1] = cases::rows_of(c.k[0], 0, 8);
  c.v[1] = cases::rows_of(c.v[0], 0, 8);
  Arguments a(c, paged(4));
  std::vector<std::int64_t> table(a.kv.block_table.begin(), a.kv.block_table.end());
  ASSERT_EQ(a.kv.table_columns, 3);
  table[3] = table[0];
  table[4] = table[1];
  a.kv.block_table = table;
  ASSERT_TRUE(a.call().has_value());
  Arguments apart(c, paged(4));
  ASSERT_TRUE(apart.call().has_value());
  EXPECT_EQ(a.out_memory, apart.out_memory);
  EXPECT_EQ(a.lse, apart.lse);
}

TEST(CallContract, APlanServesAnyNumberOfCalls) {
  Arguments a;
  ASSERT_TRUE(a.call().has_value());
  const auto first = a.out_memory;
  const auto first_lse = a.lse;
  a.call();
  EXPECT_EQ(a.out_memory, first);
  EXPECT_EQ(a.lse, first_lse);
}

}  // namespace
}  // namespace lacuna
