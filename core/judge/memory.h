// Memory of a placement: resident bytes everywhere, and live activations where the model keeps time (`overlap`).
//
// A tensor occupies its producer's device from the producer's start until its last reader there, and its last copy out
// of there, have ended; on another device from the start of its copy until its last reader there has ended. A result
// (no readers) stays to the end of the run. Intervals are half-open: what is freed at a moment makes room at that
// moment.
#pragma once

#include <cstdint>
#include <vector>

#include "judge/overlap.h"
#include "kit/array.h"
#include "problem.h"

namespace placewright::judge {

// Sums the resident bytes of each device into `out` [devices].
void resident_bytes(const Problem& problem, Span<const std::int32_t> device_of_op, Span<double> out);

// False if no placement at all could exceed a limit: everything together fits the smallest memory.
[[nodiscard]] bool memory_matters(const Problem& problem);

// The bytes beyond the limits, summed over devices.
[[nodiscard]] double excess_bytes(const Problem& problem, Span<const double> used);

class MemoryJudge {
 public:
  explicit MemoryJudge(const Problem& problem);

  // False if no device could exceed its limit even if all its tensors were alive at once.
  [[nodiscard]] bool may_exceed(Span<const std::int32_t> device_of_op, Span<const double> resident);

  // Writes the largest resident + live bytes of each device to `out`, by what a simulation recorded.
  void peaks(Span<const std::int32_t> device_of_op, const OverlapRecord& record, double value_s,
             Span<const double> resident, Span<double> out);

  struct Interval {
    std::int32_t device;
    double start_s, end_s;
    double bytes;
  };
  // When which device holds how much of a tensor, tensor by tensor.
  const std::vector<Interval>& intervals(Span<const std::int32_t> device_of_op, const OverlapRecord& record,
                                         double value_s);

 private:
  struct Change {
    double time_s;
    std::int32_t device;
    double bytes;
  };

  const Problem& p_;
  Array<double> most_, until_s_, now_;
  Array<std::int32_t> last_;
  std::vector<Interval> intervals_;
  std::vector<Change> changes_;
};

}  // namespace placewright::judge
