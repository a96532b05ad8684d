#include "pipeline/lattice.h"

#include <algorithm>

namespace placewright::pipeline {
namespace {

constexpr std::uint64_t bit(Index unit) { return std::uint64_t{1} << (unit & 63); }

}  // namespace

IdealEnumeration::IdealEnumeration(Span<const std::int64_t> successor_ptr, Span<const std::int64_t> successor)
    : successor_ptr_(successor_ptr),
      successor_(successor),
      predecessor_ptr_("predecessor_ptr", successor_ptr.size()),
      predecessor_("predecessor", successor.size()),
      parent_("parent", 1, none),
      last_unit_("last_unit", 1, none),
      edge_unit_("edge_unit", n_units()),
      edge_target_("edge_target", n_units()),
      edge_ptr_("edge_ptr", 2),
      level_ptr_("level_ptr", 2),
      members_("members", 1, n_units() / 64 + 1) {
  level_ptr_[1] = 1;
  for (const std::int64_t unit : successor_) ++predecessor_ptr_[unit + 1];
  for (Index u = 0; u < n_units(); ++u) predecessor_ptr_[u + 1] += predecessor_ptr_[u];
  Array<std::int64_t> filled = predecessor_ptr_;
  for (Index u = 0; u < n_units(); ++u) {
    for (std::int64_t slot = successor_ptr_[u]; slot < successor_ptr_[u + 1]; ++slot) {
      predecessor_[filled[successor_[slot]]++] = u;
    }
  }
  for (Index u = 0; u < n_units(); ++u) {
    if (predecessor_ptr_[u] == predecessor_ptr_[u + 1]) edge_unit_[edge_ptr_[1]++] = static_cast<std::int32_t>(u);
  }
}

IdealEnumeration::End IdealEnumeration::run(Index most, Stop& stop) {
  while (n_levels() <= n_units()) {
    const auto first = static_cast<Index>(level_ptr_[n_levels() - 1]), end = n_ideals();
    const Growth growth = count_children(first, end);
    if (end + growth.children > most) return End::too_many;
    parent_.resize(end + growth.children);
    last_unit_.resize(end + growth.children);
    edge_ptr_.resize(end + growth.children + 1);
    edge_unit_.resize(growth.edges);
    edge_target_.resize(growth.edges);
    if (!add_children(first, end, growth.children, stop) || !link_siblings(first, end, stop)) return End::stopped;
    level_ptr_.resize(n_levels() + 2);
    level_ptr_[n_levels()] = end + growth.children;
  }
  return End::whole;
}

// The number of ideals on the next level, and an upper bound on all edges up to there.
IdealEnumeration::Growth IdealEnumeration::count_children(Index first, Index end) const {
  Growth growth{0, static_cast<Index>(edge_ptr_[end])};
  for (Index ideal = first; ideal < end; ++ideal) {
    const std::int64_t degree = edge_ptr_[ideal + 1] - edge_ptr_[ideal];
    for (std::int64_t edge = edge_ptr_[ideal]; edge < edge_ptr_[ideal + 1]; ++edge) {
      const std::int32_t unit = edge_unit_[edge];
      if (unit <= last_unit_[ideal]) continue;
      ++growth.children;
      growth.edges += static_cast<Index>(degree - 1 + successor_ptr_[unit + 1] - successor_ptr_[unit]);
    }
  }
  return growth;
}

bool IdealEnumeration::add_children(Index first, Index end, Index children, Stop& stop) {
  Array2d<std::uint64_t> members("members", children, members_.columns());
  Index child = end;
  for (Index ideal = first; ideal < end; ++ideal) {
    if (stop.poll()) return false;
    const Span<const std::uint64_t> inherited = members_.row(ideal - first);
    for (std::int64_t edge = edge_ptr_[ideal]; edge < edge_ptr_[ideal + 1]; ++edge) {
      const std::int32_t unit = edge_unit_[edge];
      if (unit <= last_unit_[ideal]) continue;
      parent_[child] = static_cast<std::int32_t>(ideal);
      last_unit_[child] = unit;
      edge_target_[edge] = static_cast<std::int32_t>(child);
      const Span<std::uint64_t> held = members.row(child - end);
      std::copy(inherited.begin(), inherited.end(), held.begin());
      held[unit >> 6] |= bit(unit);
      list_ready(child, ideal, unit, held);
      ++child;
    }
  }
  members_ = std::move(members);
  return true;
}

// The edges of a level that lead to other ideals than children.
bool IdealEnumeration::link_siblings(Index first, Index end, Stop& stop) {
  for (Index ideal = first; ideal < end; ++ideal) {
    if (stop.poll()) return false;
    const std::int32_t largest = last_unit_[ideal];
    for (std::int64_t edge = edge_ptr_[ideal]; edge < edge_ptr_[ideal + 1]; ++edge) {
      const std::int32_t unit = edge_unit_[edge];
      if (unit >= largest) continue;
      const std::int32_t sibling = edge_target_[edge_of(parent_[ideal], unit)];
      edge_target_[edge] = edge_target_[edge_of(sibling, largest)];
    }
  }
  return true;
}

// Ready units of `child` = `ideal` + `added`: those of the ideal and the newly freed ones.
void IdealEnumeration::list_ready(Index child, Index ideal, std::int32_t added, Span<const std::uint64_t> members) {
  const std::int64_t start = edge_ptr_[child];
  std::int64_t end = start;
  for (std::int64_t edge = edge_ptr_[ideal]; edge < edge_ptr_[ideal + 1]; ++edge) {
    if (edge_unit_[edge] != added) edge_unit_[end++] = edge_unit_[edge];
  }
  for (std::int64_t slot = successor_ptr_[added]; slot < successor_ptr_[added + 1]; ++slot) {
    const auto unit = static_cast<std::int32_t>(successor_[slot]);
    if (!is_ready(unit, members)) continue;
    std::int64_t place = end++;
    for (; place > start && edge_unit_[place - 1] > unit; --place) edge_unit_[place] = edge_unit_[place - 1];
    edge_unit_[place] = unit;
  }
  edge_ptr_[child + 1] = end;
}

bool IdealEnumeration::is_ready(Index unit, Span<const std::uint64_t> members) const {
  for (std::int64_t slot = predecessor_ptr_[unit]; slot < predecessor_ptr_[unit + 1]; ++slot) {
    const std::int64_t before = predecessor_[slot];
    if ((members[before >> 6] & bit(before)) == 0) return false;
  }
  return true;
}

// The edge that adds a unit to an ideal in which it is ready.
std::int64_t IdealEnumeration::edge_of(Index ideal, std::int32_t unit) const {
  std::int64_t edge = edge_ptr_[ideal];
  while (edge_unit_[edge] != unit) ++edge;
  return edge;
}

}  // namespace placewright::pipeline
