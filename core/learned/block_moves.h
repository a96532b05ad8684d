// Blocks of groups that a learned policy decides on as one: how they are made, and how good placements are changed by
// moving whole blocks.
#pragma once

#include <cstdint>

#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::learned {

// What may be united: a group's time on each device, its bytes, and how much of both a block may have.
struct BlockLimits {
  Span2d<const double> time_s;      // [groups, devices], infinite where the group may not be
  Span<const double> memory_bytes;  // [groups]
  double most_s;                    // on the block's best device
  double most_bytes;
};

// Unites groups along pairs [pairs, 2] in their order, while some device takes both and the limits hold; writes the
// least group of each group's block. Times and bytes are added up in the order in which blocks are united.
void unite_blocks(Span2d<const std::int64_t> pairs, const BlockLimits& limits, Span<std::int64_t> label, Stop& stop);

// Groups and their blocks at several scales, all scales side by side.
struct Scales {
  Span2d<const std::int64_t> edges;     // [edges, 2] of groups
  Span2d<const bool> allowed;           // [groups, devices]
  Span<const std::int32_t> member_ptr;  // the pointers of all scales in a row
  Span<const std::int64_t> first_ptr;   // [scales]: where those of a scale begin
  Span2d<const std::int32_t> member;    // [scales, groups]: groups by block
  Span2d<const std::int32_t> block;     // [scales, groups]: of each group

  [[nodiscard]] Index n_scales() const { return first_ptr.size(); }
  [[nodiscard]] Index n_groups() const { return allowed.rows(); }
  [[nodiscard]] Index n_devices() const { return allowed.columns(); }
};

// Writes copies of placements [parents, groups] (the best one first) with a few blocks of any scale moved to `children`
// [children, groups]. Random numbers follow from `seed`, which is not 0.
void mutate(const Scales& scales, Span2d<const std::int32_t> parents, std::uint64_t seed, Span2d<std::int32_t> children,
            Stop& stop);

}  // namespace placewright::learned
