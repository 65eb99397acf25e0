// libFuzzer: any bytes as a log end in starts that are accounted for or differ, or in one Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "lacuna/engine_account.h"
#include "lacuna/engine_log.h"
#include "lacuna/error.h"

namespace {

void account_for(const lacuna::EngineStart& start) {
  static const lacuna::LayerTable kTable = lacuna::parse_layers("window(100), full", 2, true);
  static const lacuna::ModelShape kShape = lacuna::uniform_shape(
      2, lacuna::LayerShape{.num_q_heads = 4, .num_kv_heads = 2, .head_dim = 64});
  const lacuna::Account found = lacuna::account(start, kTable, kShape, {});
  // A line for each figure, and a difference wherever a policy does not account for them.
  for (const lacuna::AccountPolicy& policy : found.policies) {
    const bool fits = lacuna::first_difference(policy) == nullptr;
    if (policy.lines.size() != start.figures.size() || fits != found.accounted) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::vector<lacuna::EngineStart> starts =
        lacuna::read_engine_log({reinterpret_cast<const char*>(data), size});
    // Accounting costs a hundred times what reading does.
    if (!starts.empty() && size % 4 == 0) account_for(starts.front());
  } catch (const lacuna::Error&) {
  }
  return 0;
}
