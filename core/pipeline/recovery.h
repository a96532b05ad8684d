// Recover a pipeline from the states that a threshold search has reached.
#pragma once

#include "pipeline/thresholds.h"

namespace placewright::pipeline {

// A pipeline: of each unit its stage, of each stage how it is staffed.
struct TracedStages {
  Span<std::int32_t> stage_of_unit;    // [units]
  Span<std::int32_t> option_of_stage;  // [units], filled as far as there are stages
};

// Walks back from the full ideal, which has to be reached, to the empty one; returns the number of stages. Where values
// were kept, each step takes the predecessor of least value, or the first that is as good as known; without them, the
// best of the first few.
Index trace(const ThresholdTask& task, const ReachedStates& reached, TracedStages found, Stop& stop);

}  // namespace placewright::pipeline
