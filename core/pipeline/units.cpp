#include "pipeline/units.h"

#include <algorithm>
#include <numeric>

namespace placewright::pipeline {

void topological_order(const Precedence& precedence, Span<const double> priority, bool is_depth_first,
                       Span<std::int64_t> order, Stop& stop) {
  const Index n_units = precedence.n_units();
  Array<std::int64_t> missing("missing", n_units), ready("ready", n_units), by_priority("by_priority", n_units);
  for (const std::int64_t unit : precedence.successor) ++missing[unit];
  std::iota(by_priority.begin(), by_priority.end(), 0);
  std::stable_sort(by_priority.begin(), by_priority.end(),
                   [&](std::int64_t a, std::int64_t b) { return priority[a] < priority[b]; });
  Index first = 0, last = 0;
  for (const std::int64_t unit : by_priority) {
    if (missing[unit] == 0) ready[last++] = unit;
  }
  for (Index position = 0; position < n_units; ++position) {
    stop.poll();
    const std::int64_t unit = is_depth_first ? ready[--last] : ready[first++];
    order[position] = unit;
    const Index start = last;
    for (std::int64_t edge = precedence.successor_ptr[unit]; edge < precedence.successor_ptr[unit + 1]; ++edge) {
      const std::int64_t freed = precedence.successor[edge];
      if (--missing[freed] != 0) continue;
      Index slot = last++;
      for (; slot > start && priority[ready[slot - 1]] > priority[freed]; --slot) ready[slot] = ready[slot - 1];
      ready[slot] = freed;
    }
  }
}

namespace {

// The end of a path of merged classes.
std::int64_t root_of(Span<const std::int64_t> merged_into, std::int64_t one) {
  while (merged_into[one] != one) one = merged_into[one];
  return one;
}

bool is_negligible(const Classes& classes, Index one, double negligible_s) {
  const Span<double> forward_s = classes.forward_s.row(one), backward_s = classes.backward_s.row(one);
  if (*std::max_element(forward_s.begin(), forward_s.end()) >= negligible_s) return false;
  return std::accumulate(backward_s.begin(), backward_s.end(), 0.0) < negligible_s;
}

void add_row(Span2d<double> table, Index to, Index from) {
  const Span<const double> more = table.row(from);
  const Span<double> sums = table.row(to);
  for (Index i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

}  // namespace

void merge_leaves(const Classes& classes, double negligible_s, Span<std::int64_t> merged_into, Stop& stop) {
  // The xor of all neighbours is the neighbour itself once one edge is left, so no adjacency lists have to be kept up
  // to date while classes disappear.
  std::iota(merged_into.begin(), merged_into.end(), 0);
  for (Index first = 0; first < merged_into.size(); ++first) {
    stop.poll();
    Index leaf = first;
    while (classes.degree[leaf] == 1 && !classes.touches_backward[leaf] && is_negligible(classes, leaf, negligible_s)) {
      const auto other = static_cast<Index>(classes.neighbour_xor[leaf]);
      merged_into[leaf] = other;
      add_row(classes.forward_s, other, leaf);
      add_row(classes.backward_s, other, leaf);
      classes.degree[leaf] = 0;
      --classes.degree[other];
      classes.neighbour_xor[other] ^= leaf;
      leaf = other;
    }
  }
  for (std::int64_t& one : merged_into) one = root_of(merged_into, one);
}

void compare_touches(const Touches& touches, Span<const std::int64_t> other, Span<bool> same, Stop& stop) {
  const auto touched = [&](std::int64_t t) { return touches.touched.part(touches.ptr[t], touches.ptr[t + 1]); };
  for (Index t = 0; t < other.size(); ++t) {
    stop.poll();
    const auto here = touched(t), there = touched(other[t]);
    same[t] = touches.producer[t] == touches.producer[other[t]] &&
              touches.is_backward[t] == touches.is_backward[other[t]] &&
              std::equal(here.begin(), here.end(), there.begin(), there.end());
  }
}

}  // namespace placewright::pipeline
