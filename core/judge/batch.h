// Many placements, one after another: value, memory beyond the limits, and whether `check` would find no fault.
#pragma once

#include <cstdint>

#include "judge/pipeline.h"
#include "kit/stop.h"
#include "problem.h"

namespace placewright::judge {

enum class Execution : std::uint8_t { overlap, sequential, calls, pipeline };

struct Rules {
  Execution execution;
  std::int32_t most_segments;  // 0: any number
  PipelineRules pipeline;
  Span<const std::int32_t> order_source, order_target;  // edges that contiguous stages must respect
};

// One entry per placement. A value may be infinite (an op that cannot run, calls waiting in a cycle).
struct Verdicts {
  Span<double> value;
  Span<double> excess_bytes;
  Span<bool> is_valid;
};

// Judges the placements `first` to `last` of `device_of_op` [placements, ops]. `priority` [placements or 1, ops or 0]
// orders ready ops under `overlap`. Ends early, with entries left as they are, only by what `stop` throws.
void judge_many(const Problem& problem, const Rules& rules, Span2d<const std::int32_t> device_of_op,
                Span2d<const double> priority, Index first, Index last, const Verdicts& verdicts, Stop& stop);

}  // namespace placewright::judge
