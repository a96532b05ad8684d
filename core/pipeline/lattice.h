// The lattice of ideals: sets of units that hold all predecessors of their units.
//
// Units are numbered topologically, so an ideal without its largest unit is an ideal: every ideal but the empty one has
// a canonical parent, and the chain of parents lists its units in falling order. Ideals are numbered by rising
// cardinality; 0 is the empty one, the last one holds all units. The covering edges of ideal i are edge_ptr[i] to
// edge_ptr[i + 1], by rising unit: edge_target is the ideal with edge_unit added.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "kit/stop.h"

namespace placewright::pipeline {

struct Lattice {
  Span<const std::int32_t> parent;     // [ideals], none for the empty one
  Span<const std::int32_t> last_unit;  // [ideals]: added to the parent, none for the empty one
  Span<const std::int64_t> edge_ptr;   // [ideals + 1]
  Span<const std::int32_t> edge_unit;
  Span<const std::int32_t> edge_target;

  [[nodiscard]] Index n_ideals() const { return parent.size(); }

  // Calls `visit(unit)` for all units of an ideal, in falling order.
  template <class Visit>
  void for_each_unit(Index ideal, Visit visit) const {
    for (Index i = ideal; i > 0; i = parent[i]) visit(static_cast<Index>(last_unit[i]));
  }

  // Writes the units of `larger` that are not in `smaller` in falling order and returns their number, or none if
  // `smaller` is not a part of `larger`.
  [[nodiscard]] Index difference(Index smaller, Index larger, Array<std::int64_t>& units) const {
    Index count = 0;
    while (smaller != larger) {
      const std::int32_t small_unit = last_unit[smaller], large_unit = last_unit[larger];
      if (small_unit > large_unit) return none;
      if (small_unit == large_unit) {
        smaller = parent[smaller];
      } else {
        units[count++] = large_unit;
      }
      larger = parent[larger];
    }
    return count;
  }
};

// All ideals of a precedence relation, level by level.
//
// Growing ideals from their parents produces each exactly once, without sets to hash or compare. The edges to larger
// units lead to children; the others follow from known ones: with m the largest unit of I = P + m and v < m ready in I,
// I + v = (P + v) + m.
class IdealEnumeration {
 public:
  enum class End { whole, too_many, stopped };

  // Successors of unit u are successor[successor_ptr[u]] to successor[successor_ptr[u + 1]], all greater than u.
  IdealEnumeration(Span<const std::int64_t> successor_ptr, Span<const std::int64_t> successor);

  // Adds levels until all units are in; gives up before a level that would make more than `most` ideals.
  End run(Index most, Stop& stop);

  // Of whole levels.
  [[nodiscard]] Index n_ideals() const { return static_cast<Index>(level_ptr_[n_levels()]); }
  [[nodiscard]] Index n_edges() const { return static_cast<Index>(edge_ptr_[n_ideals()]); }
  [[nodiscard]] Index n_levels() const { return level_ptr_.size() - 1; }

  [[nodiscard]] const Array<std::int32_t>& parent() const { return parent_; }
  [[nodiscard]] const Array<std::int32_t>& last_unit() const { return last_unit_; }
  [[nodiscard]] const Array<std::int64_t>& edge_ptr() const { return edge_ptr_; }
  [[nodiscard]] const Array<std::int32_t>& edge_unit() const { return edge_unit_; }
  [[nodiscard]] const Array<std::int32_t>& edge_target() const { return edge_target_; }
  [[nodiscard]] const Array<std::int64_t>& level_ptr() const { return level_ptr_; }

 private:
  struct Growth {
    Index children, edges;
  };

  [[nodiscard]] Index n_units() const { return successor_ptr_.size() - 1; }
  [[nodiscard]] Growth count_children(Index first, Index end) const;
  bool add_children(Index first, Index end, Index children, Stop& stop);
  bool link_siblings(Index first, Index end, Stop& stop);
  void list_ready(Index child, Index ideal, std::int32_t added, Span<const std::uint64_t> members);
  [[nodiscard]] bool is_ready(Index unit, Span<const std::uint64_t> members) const;
  [[nodiscard]] std::int64_t edge_of(Index ideal, std::int32_t unit) const;

  Span<const std::int64_t> successor_ptr_, successor_;
  Array<std::int64_t> predecessor_ptr_, predecessor_;
  Array<std::int32_t> parent_, last_unit_, edge_unit_, edge_target_;
  Array<std::int64_t> edge_ptr_;
  Array<std::int64_t> level_ptr_;   // [levels + 1]: the first of each level, and one behind the last
  Array2d<std::uint64_t> members_;  // of the last level, a bit per unit
};

}  // namespace placewright::pipeline
