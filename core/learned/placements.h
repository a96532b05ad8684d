// What learned policies ask about batches of placements: the longest paths left in them, and a repair of memory.
#pragma once

#include <cstdint>

#include "kit/stop.h"
#include "problem.h"

namespace placewright::learned {

// Writes the longest path from each op's start to the end of the model [batch, ops] for placements [batch, ops], with
// times and copies as placed, infinite where an op may not be. Copies are added leg by leg, up to host memory before
// down from it.
void longest_paths_left(const Problem& problem, Span2d<const std::int32_t> device_of_op, Span2d<double> out,
                        Stop& stop);

// Groups of ops, and how much each device may hold.
struct GroupRoom {
  Span2d<const bool> allowed;       // [groups, devices]
  Span<const double> memory_bytes;  // [groups]
  Span<const double> limit_bytes;   // [devices]
};

// Moves groups off over-full devices: in each placement [batch, groups] later groups go first, each to the device with
// the most room among those that take it (the last of equal ones). Placements that fit are left as they are.
void repair_memory(const GroupRoom& groups, Span2d<std::int32_t> device_of_group, Stop& stop);

}  // namespace placewright::learned
