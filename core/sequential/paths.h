// Paths along edges of the graph: the one whose changes of device cost most, and what can be reached at all.
#pragma once

#include <cstdint>

#include "kit/stop.h"
#include "problem.h"

namespace placewright::sequential {

struct WorstPath {
  Index length;  // edges
  std::int32_t first_op;
};

// The path along which new segments cost most, the first one included; a segment costs `segment_s` [devices]. Writes
// its edges, numbers of readers (of `consumer_op`), from the last to the first, to the beginning of `edges` [ops].
WorstPath worst_path(const Problem& problem, Span<const std::int32_t> device_of_op, Span<const double> segment_s,
                     Span<std::int32_t> edges, Stop& stop);

// Mark everything that marked units lead to, or that leads to them. Edge i goes from before[i] to after[i]; where edges
// are in running order and no units are split over it, one round is enough.
void mark_what_follows(Span<const std::int32_t> before, Span<const std::int32_t> after, Span<bool> marked, Stop& stop);
void mark_what_precedes(Span<const std::int32_t> before, Span<const std::int32_t> after, Span<bool> marked, Stop& stop);

}  // namespace placewright::sequential
