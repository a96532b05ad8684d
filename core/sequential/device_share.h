// One device's part of a labelling: what its set of units costs, if nobody asks whether they are placed anywhere else.
//
// Being placed exactly once is relaxed: units bring a reward for it, and each device takes the set that is cheapest for
// it. Copies are split into parts that never add up to more: what a tensor pays to leave its home, and to enter a
// device.
#pragma once

#include <cstdint>

#include "sequential/labelling.h"
#include "sequential/push_relabel.h"

namespace placewright::sequential {

class DeviceShare {
 public:
  // A tensor that is read on the device but not made there pays to enter, one that is made there and read elsewhere to
  // leave, each [tensors].
  DeviceShare(const Energy& energy, Span<const double> leaving_s, Span<const double> entering_s);

  [[nodiscard]] Index n_units() const { return n_units_; }

  // What the cheapest set costs, from below; units cost `cost_s` [units], which may be negative. Writes the set.
  double cheapest_set(Span<const double> cost_s, Span<bool> is_taken, Stop& stop);

 private:
  Index n_units_;
  CutNetwork network_;
  MinimumCut cut_;
  Array<std::uint8_t> goes_;
};

}  // namespace placewright::sequential
