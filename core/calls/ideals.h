// The lattice of ideals (predecessor-closed sets of units), as views of the arrays of a Python `Lattice`.
//
// Ideals are numbered by rising cardinality: 0 is the empty set, the last one holds all units. Every ideal but the
// empty one is its parent and one unit more; its edges lead to the ideals that hold one more unit than it does.
#pragma once

#include <cstdint>

#include "kit/span.h"

namespace placewright::calls {

struct Ideals {
  Span<const std::int32_t> parent;       // [ideals]
  Span<const std::int32_t> last_unit;    // [ideals]: what it holds besides its parent's units
  Span<const std::int64_t> edge_ptr;     // [ideals + 1]
  Span<const std::int32_t> edge_unit;    // the unit that is added
  Span<const std::int32_t> edge_target;  // the ideal that this gives

  [[nodiscard]] Index size() const { return parent.size(); }

  // Calls `visit(unit)` for all units of an ideal, in no particular order.
  template <class Visit>
  void for_each_unit(Index ideal, Visit visit) const {
    for (Index i = ideal; i > 0; i = parent[i]) visit(static_cast<Index>(last_unit[i]));
  }
};

}  // namespace placewright::calls
