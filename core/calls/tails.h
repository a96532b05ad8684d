// How long it takes at least from the end of a unit to the end of everything, along one path through the graph.
//
// A piece meets a path in one stretch, because nothing leaves a piece and comes back. So along a fixed path the least
// time is that of a chain cut into host units and stretches that fit a memory, which a small dynamic programme finds.
// From each unit the path goes on over the edge that seems longest. Sums run along the path from its first unit on.
#pragma once

#include "calls/relaxed.h"
#include "kit/stop.h"

namespace placewright::calls {

// Least seconds to the end of everything; written by find_tails.
struct Tails {
  Span<double> edge_s;   // [edges] from the end of a unit, along this edge; aligned with Relaxed::successor
  Span<double> start_s;  // [units] from the moment that all a unit reads is there, its own time included
  Span<double> open_s;   // [units] from the end of a unit's own work in a piece that may go on with later units
};

// Where the time is over before the end, the rest is zero, which is a bound as well.
void find_tails(const Relaxed& relaxed, Tails tails, Stop& stop);

}  // namespace placewright::calls
