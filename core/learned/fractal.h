// Fractal dimensions of the nodes of a graph: what a policy knows about the structure around each group.
#pragma once

#include <cstdint>

#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::learned {

// Writes the slope of log N(r) against log r for each node [nodes], where N(r) counts the other nodes within r hops;
// radii end at `most_hops`, and those that add no node do not count. With fewer than two radii it is 0. Neighbours of v
// are neighbour[ptr[v]] to neighbour[ptr[v + 1]]. A time that is over leaves zeros. Sums run by rising radius.
void fractal_dimensions(Span<const std::int64_t> ptr, Span<const std::int64_t> neighbour, Index most_hops,
                        Span<double> out, Stop& stop);

}  // namespace placewright::learned
