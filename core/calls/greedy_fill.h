// The greedy of Tarnawski et al.: one accelerator after the other is filled, the rest goes to the host.
//
// Units come in a given order. The accelerator that is being filled takes what it may hold and has room for. What it
// cannot take ends it, if it holds anything, and the next one is asked. What that one does not take either goes to the
// first host device that does, or else to any accelerator with room.
#pragma once

#include <cstdint>

#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::calls {

struct GreedyQuestion {
  Span2d<const bool> allowed;       // [units, devices]
  Span<const double> memory_bytes;  // [units]
  Span<const double> limit_bytes;   // [devices]
  Span<const bool> is_host;         // [devices]
};

// Writes the device of each unit; false if one fits nowhere.
[[nodiscard]] bool fill_greedily(const GreedyQuestion& question, Span<const std::int64_t> order,
                                 Span<std::int32_t> device_of_unit, Stop& stop);

}  // namespace placewright::calls
