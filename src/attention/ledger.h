#pragma once

#include <cstddef>
#include <span>

#include "attention/call.h"
#include "attention/workspace.h"
#include "lacuna/attention.h"

namespace lacuna {

// The threads' ledgers added up, with the bytes of the keys that they loaded, and of the different
// ones among them, from the flags of the workspace.
Ledger total_ledger(const Call& call, const Workspace& workspace, std::span<const Ledger> ledgers);

}  // namespace lacuna
