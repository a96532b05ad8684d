// The load of one stage, computed from scratch.
#pragma once

#include "kit/array.h"
#include "pipeline/load_model.h"

namespace placewright::pipeline {

class StageLoads {
 public:
  explicit StageLoads(const LoadModel& model)
      : model_(model), inside_("inside", model.n_tensors()), is_produced_("is_produced", model.n_tensors()) {}

  // Infinite if the units do not fit the kind's memory. Sums are added up in the order of `units`.
  double load_s(Span<const std::int64_t> units, const Staffing& how);

 private:
  const LoadModel& model_;
  Array<std::int32_t> inside_;       // [tensors]: units of the stage that touch it; zero between calls
  Array<std::uint8_t> is_produced_;  // [tensors]: by a unit of the stage; false between calls
};

}  // namespace placewright::pipeline
