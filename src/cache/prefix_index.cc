#include "cache/prefix_index.h"

namespace lacuna {

bool PrefixIndex::make_room(int size_class) { return pool_.num_available(size_class) > 0; }

}  // namespace lacuna
