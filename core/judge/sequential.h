// Execution model `sequential`: segments run one after another, nothing overlaps.
//
// The value is the time of all ops, plus every copy (once per destination device; through host memory once up and once
// down per destination), plus each segment's overhead. Segments are found greedily: run everything that can run on the
// current device, then continue with the device that has most ops ready (least number among equals); of all devices to
// start with, the one that gives the fewest segments is taken. With two devices no other order has fewer segments.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "problem.h"

namespace placewright::judge {

// Seconds of all copies; `per_device` [devices] gets each copy at its receiver, and copies up to host memory at the
// sender.
double copies_total(const Problem& problem, Span<const std::int32_t> device_of_op, Span<double> per_device);

class SegmentFinder {
 public:
  explicit SegmentFinder(const Problem& problem);

  // Writes segment numbers in running order to `segment` [ops]; returns how many there are.
  std::int32_t find(Span<const std::int32_t> device_of_op, Span<std::int32_t> segment);

  // Seconds of all segment overheads; `per_device` [devices] gets each device's share.
  double overheads(Span<const std::int32_t> device_of_op, Span<const std::int32_t> segment, std::int32_t n_segments,
                   Span<double> per_device);

 private:
  std::int32_t run_from(Span<const std::int32_t> device_of_op, std::int32_t first, std::int32_t limit);
  void is_ready(std::int32_t op, std::int32_t device);

  const Problem& p_;
  Array<std::int32_t> pending_, below_, trial_;  // [ops]; `below_`: the op under this one on its device's stack
  Array<std::int32_t> top_, n_ready_;            // [devices]
  Array<std::uint8_t> has_source_, seen_;
};

}  // namespace placewright::judge
