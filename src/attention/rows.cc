// From attention states to the caller's rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/item.h"

namespace lacuna {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What o is multiplied by, and the row's log-sum-exp.
struct Normaliser {
  float factor;
  float lse;
};

// Of a row with the largest score `top` and Σ P = l. A learned sink is one more logit with the
// value 0: it enters the denominator here and nowhere else.
Normaliser normaliser(double top, double l, double sink) {
  if (l > 0 && sink == static_cast<double>(kMinusInfinity)) {
    return {static_cast<float>(1 / l), static_cast<float>(top + std::log(l))};
  }
  if (l == 0) return {0, static_cast<float>(sink)};  // no keys
  const double base = std::fmax(top, sink);
  const double own = std::exp(top - base);
  const double denominator = l * own + std::exp(sink - base);
  return {static_cast<float>(own / denominator), static_cast<float>(base + std::log(denominator))};
}

void* vector_of(const MutableTensorView& out, const RowPlace& place) {
  return static_cast<std::byte*>(out.data) +
         out.offset(place.q_row, place.q_head) * size_bytes(out.dtype);
}

}  // namespace

void write_rows(const Call& call, const WorkItem& item, const PartWork& work,
                const StateBlock& state, const Outputs& outputs) {
  const double unit = static_cast<double>(call.rule(work.slopes).unit_e());
  const bool has_sinks = !call.options.sink_logits.empty();
  // Lines that will be written are asked for a few rows ahead: a store that misses holds up others.
  constexpr std::int64_t kLine = 64;
  const std::int64_t element = size_bytes(outputs.out.dtype);
  const std::int64_t bytes = outputs.out.strides[2] == 1 ? outputs.out.shape[2] * element : 0;
  const std::int64_t tokens_ahead = std::max<std::int64_t>(1, 8 / work.rows.num_heads);
  const std::int64_t ahead = tokens_ahead * outputs.out.strides[0] * element;
  for_each_row(call, item, *work.part, [&](std::int64_t row, const RowPlace& place) {
    const auto head = static_cast<std::size_t>(place.q_head);
    const double sink =
        static_cast<double>(has_sinks ? call.options.sink_logits[head] : kMinusInfinity);
    const Normaliser norm =
        state.empty
            ? normaliser(0, 0, sink)
            : normaliser(static_cast<double>(state.m[row]) * unit,
                         static_cast<double>(call.kernel.row_sum(state.l + row * kPanelKeys)),
                         sink);
    auto* const vector = vector_of(outputs.out, place);
    for (std::int64_t at = 0; at < bytes; at += kLine) {
      __builtin_prefetch(static_cast<std::byte*>(vector) + ahead + at, 1);
    }
    call.kernel.write_row(vector, static_cast<ElementType>(outputs.out.dtype),
                          outputs.out.strides[2], outputs.out.shape[2],
                          state.o + row * call.o_stride(), norm.factor);
    if (!outputs.lse.empty()) {
      const std::int64_t at = place.q_row * call.q.shape[1] + place.q_head;
      outputs.lse[static_cast<std::size_t>(at)] = norm.lse;
    }
  });
}

}  // namespace lacuna
