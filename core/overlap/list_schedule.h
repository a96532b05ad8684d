// List scheduling for `overlap`: every op gets a device and a time once, and nothing is taken back.
#pragma once

#include <cstdint>

#include "kit/stop.h"
#include "overlap/memory_ledger.h"
#include "problem.h"

namespace placewright::overlap {

// What a scheduler plans; written by it.
struct ListPlan {
  Span<std::int32_t> device;  // [ops]
  Span<double> start_s;       // [ops]
  Span<double> finish_s;      // [ops]
  Span<bool> misfit;          // [ops]: first ops of groups for which no device had room
};

// What was decided before: the device of groups by their first op (none = open; the rest is filled in), and how much
// each device may hold.
struct Given {
  Span<std::int32_t> device_of_group;
  Span<const double> limit_bytes;
};

// Ready ops are taken by greatest `rank` (then least number). The device has the least finish + `extra_s` (+ the time
// of a new group's other ops there), or is `preferred` (none: no preference) where that has room. Where no device has
// room, the op goes where least is missing, and its group is marked in `misfit`.
void schedule_by_rank(const Problem& problem, const ListCosts& costs, Span<const double> rank,
                      Span2d<const double> extra_s, Span<const std::int32_t> preferred, Given given, ListPlan plan,
                      Stop& stop);

// What can start first is taken; equal starts go by greatest `rank`. `favourite` [ops] is the reader that should follow
// an op on its device (none: nobody). A device whose last op has a favourite that is ready and can start nowhere
// earlier is *awake*: it takes nothing but that favourite, unless its own first choice could start at once on every
// device.
void schedule_by_start(const Problem& problem, const ListCosts& costs, Span<const double> rank,
                       Span<const std::int32_t> favourite, Given given, ListPlan plan, Stop& stop);

// Ops by greatest rank, equal ones by least number.
[[nodiscard]] Array<std::int32_t> ops_by_rank(Span<const double> rank);

}  // namespace placewright::overlap
