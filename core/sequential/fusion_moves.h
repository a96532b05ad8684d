// Fusion of two labellings: every unit takes its device from the one or from the other, by one minimum cut (Lempitsky,
// Rother, Roth and Blake 2010; expansions and swaps, which are fusions, by Boykov, Veksler and Zabih 2001).
//
// The copies of a tensor are sums of terms "home stays or goes, and any of these readers stays (or goes)". Most are
// submodular and become arcs around one node more. What is not is replaced by a term of the home alone that is never
// too small and is right for the first labelling: if that is the present one, the result is never worse than it. With
// two devices and everybody free, nothing is replaced: the cut is the optimum.
#pragma once

#include <cstdint>

#include "kit/stop.h"
#include "sequential/labelling.h"

namespace placewright::sequential {

struct Fused {
  double bound;   // of all fusions, proven if it is exact
  bool is_exact;  // nothing was replaced
};

// Pairs of units: if before[i] takes its second label, so does after[i].
struct Order {
  Span<const std::int32_t> before, after;
};

// Writes `label` [units]. The labellings differ in at most two ways per device, as they do in expansions and swaps.
Fused fuse(const Energy& energy, Span2d<const double> unary_s, Span<const std::int32_t> first,
           Span<const std::int32_t> second, Order order, Span<std::int32_t> label, Stop& stop);

}  // namespace placewright::sequential
