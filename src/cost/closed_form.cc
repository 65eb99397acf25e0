#include "cost/closed_form.h"

#include <string>
#include <variant>

#include <fmt/format.h>

namespace lacuna {
namespace {

using Formula = std::optional<Equation>;

// 1 + 2 + … + n
Equation triangle(const Equation& n) { return exact_div(n * (n + 1), 2); }

// Rows of 1, 2, …, w, w, w, … keys: `size` of them.
Equation capped_rows(const Equation& size, const Equation& cap) {
  if (size.value() <= cap.value()) return triangle(size);
  return triangle(cap) + (size - cap) * cap;
}

// What a causal term reads at most, in a row that is long enough.
Formula cap_of(const Term& term) {
  if (const auto* window = std::get_if<Window>(&term))
    return Equation("w", Int128{window->left} + 1);
  if (const auto* topk = std::get_if<TopK>(&term)) return Equation("k", topk->k);
  return std::nullopt;
}

Formula causal_prefill(const Union& attend, std::int64_t length) {
  const Equation n("n", length);
  const Formula cap = cap_of(attend.front());
  if (attend.size() == 2 && cap && std::holds_alternative<Sink>(attend.back())) {
    const Equation s("s", std::get<Sink>(attend.back()).s);
    if (length <= cap->value()) return triangle(n);
    return capped_rows(n, *cap) + capped_rows(n - *cap, s);
  }
  if (attend.size() != 1) return std::nullopt;
  if (std::holds_alternative<Full>(attend.front())) return triangle(n);
  if (cap) return capped_rows(n, *cap);
  if (const auto* chunk = std::get_if<Chunk>(&attend.front())) {
    const Equation c("c", chunk->c);
    const Equation rest("r", length % chunk->c);
    return floor_div(n, c) * exact_div(c * (c + 1), 2) + triangle(rest);
  }
  return std::nullopt;
}

Formula bidirectional(const Union& attend, std::int64_t length) {
  if (attend.size() != 1) return std::nullopt;
  const Equation n("n", length);
  if (std::holds_alternative<Full>(attend.front())) return n * n;
  const auto* window = std::get_if<Window>(&attend.front());
  if (window == nullptr || window->left != window->right || length <= window->left) {
    return std::nullopt;
  }
  const Equation h("h", window->left);
  return n * (2 * h + 1) - h * (h + 1);
}

// Steps of lengths n .. n+m-1.
Formula decode_steps(const Union& attend, std::int64_t length, std::int64_t num_steps) {
  if (attend.size() != 1) return std::nullopt;
  const Equation n("n", length);
  const Equation m("m", num_steps);
  const Formula cap = cap_of(attend.front());
  if (cap && length >= cap->value()) return m * *cap;
  const bool grows = std::holds_alternative<Full>(attend.front()) ||
                     (cap && length + num_steps - 1 <= cap->value());
  if (!grows) return std::nullopt;
  if (num_steps == 1) return n;
  return m * n + exact_div(m * (m - 1), 2);
}

Formula formula_of(const Union& attend, bool causal, const Workload& work, std::int64_t length) {
  if (work.decodes()) {
    if (work.step_rows() > 1) return std::nullopt;
    return decode_steps(attend, length, work.num_steps());
  }
  return causal ? causal_prefill(attend, length) : bidirectional(attend, length);
}

std::string union_text(const Union& attend, bool causal) {
  constexpr std::size_t kLongest = 60;
  std::string text;
  for (const Term& term : attend) {
    text += (text.empty() ? "" : "+") + to_text(term, causal);
    if (text.size() > kLongest) return "the layer's topology";
  }
  return text;
}

}  // namespace

Equation edges_equation(const Union& attend, bool causal, const Workload& work,
                        const Workload::Sequence& sequence, Int128 edges) {
  const Formula formula = formula_of(attend, causal, work, sequence.length);
  if (formula && formula->value() == edges) return *formula;
  const std::int64_t first = work.decodes() ? sequence.length - 1 : 0;
  const std::string text = union_text(attend, causal);
  std::string rows = fmt::format("rows {}..{}", first, work.last_length(sequence) - 1);
  if (work.step_rows() > 1) {
    rows += fmt::format(" in steps of {}", work.step_rows());
  }
  return Equation(fmt::format("edges of {} in {}", text, rows), edges);
}

}  // namespace lacuna
