// Memory while a list scheduler decides.
//
// Resident bytes of a whole group count from the decision for its first member on, and for the whole run. A tensor
// counts on every device that holds it, from the decision for its producer (or for its copy) until the decisions for
// all its readers; results stay. Decisions follow time only roughly, so the evaluator has the last word.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kit/array.h"
#include "problem.h"

namespace placewright::overlap {

// What a list scheduler is told of a problem beside its arrays; a group is named by its first op.
struct ListCosts {
  Span2d<const double> time_s;        // [ops, devices], infinite where the op's group may not be
  Span2d<const double> group_time_s;  // [ops, devices]: of all members
  Span<const double> group_bytes;     // [ops]: resident, of all members
};

// Where a tensor has arrived. `nowhere` marks a device that it is not copied to.
inline constexpr double nowhere = -1.0;

class MemoryLedger {
 public:
  struct Missing {
    double forever;  // by how much the limit would be passed, even if all is freed that can be
    double now;      // by how much, if the op ran next
  };

  // Groups that are decided before are counted from the beginning. `device_of_group` is read and written.
  MemoryLedger(const Problem& problem, const ListCosts& costs, Span<std::int32_t> device_of_group,
               Span<const double> limit_bytes)
      : problem_(problem),
        costs_(costs),
        device_of_group_(device_of_group),
        limit_(limit_bytes),
        unread_("unread", problem.n_tensors()),
        resident_("resident", problem.n_devices()),
        live_("live", problem.n_devices()),
        peak_("peak", problem.n_devices()),
        freed_("freed", problem.n_devices()) {
    for (Index t = 0; t < problem.n_tensors(); ++t) unread_[t] = static_cast<std::int32_t>(problem.readers(t).size());
    for (Index v = 0; v < problem.n_ops(); ++v) {
      if (problem.colocation_first[v] == v && device_of_group[v] != none) {
        resident_[device_of_group[v]] += costs.group_bytes[v];
      }
    }
  }

  // Whether neither times, rules nor an earlier member of the group speak against it.
  [[nodiscard]] bool may_be_on(Index op, Index device) const {
    const std::int32_t group = problem_.colocation_first[op];
    if (!(costs_.group_time_s(group, device) < std::numeric_limits<double>::infinity())) return false;
    return device_of_group_[group] == none || device_of_group_[group] == device;
  }

  [[nodiscard]] Missing missing(Index op, Index device, Span<const std::int32_t> device_of_op,
                                const Array2d<double>& arrival_s) const {
    const std::int32_t group = problem_.colocation_first[op];
    const double resident = resident_[device] + (device_of_group_[group] == none ? costs_.group_bytes[group] : 0.0);
    const double added = new_bytes(op, device, device_of_op, arrival_s);
    return {resident + std::max(peak_[device], added) - limit_[device],
            resident + std::max(peak_[device], live_[device] + added) - limit_[device]};
  }

  // Count an op on a device; to be called before its copies are noted in `arrival_s`.
  void take(Index op, Index device, Span<const std::int32_t> device_of_op, const Array2d<double>& arrival_s) {
    const std::int32_t group = problem_.colocation_first[op];
    if (device_of_group_[group] == none) {
      device_of_group_[group] = static_cast<std::int32_t>(device);
      resident_[device] += costs_.group_bytes[group];
    }
    live_[device] += new_bytes(op, device, device_of_op, arrival_s);
    peak_[device] = std::max(peak_[device], live_[device]);
  }

  // Free the tensors that an op was the last to read; to be called after its copies are noted.
  void free_inputs(Index op, Span<const std::int32_t> device_of_op, const Array2d<double>& arrival_s) {
    for (const std::int32_t t : problem_.inputs(op)) {
      if (--unread_[t] != 0 || problem_.live_bytes[t] <= 0.0) continue;
      const std::int32_t home = device_of_op[problem_.tensor_producer[t]];
      for (Index d = 0; d < problem_.n_devices(); ++d) {
        if (d == home || arrival_s(t, d) != nowhere) {
          live_[d] -= problem_.live_bytes[t];
          freed_[d] = 1;
        }
      }
    }
  }

  // Whether a tensor went from the device since this was last asked.
  [[nodiscard]] bool take_freed(Index device) {
    const bool was = freed_[device] != 0;
    freed_[device] = 0;
    return was;
  }

 private:
  // Outputs of the op, and inputs that the device does not hold yet.
  [[nodiscard]] double new_bytes(Index op, Index device, Span<const std::int32_t> device_of_op,
                                 const Array2d<double>& arrival_s) const {
    double total = 0.0;
    for (Index t = problem_.tensor_ptr[op]; t < problem_.tensor_ptr[op + 1]; ++t) total += problem_.live_bytes[t];
    for (const std::int32_t t : problem_.inputs(op)) {
      if (device_of_op[problem_.tensor_producer[t]] != device && arrival_s(t, device) == nowhere) {
        total += problem_.live_bytes[t];
      }
    }
    return total;
  }

  const Problem& problem_;
  const ListCosts& costs_;
  Span<std::int32_t> device_of_group_;  // [ops], by first op; none = open
  Span<const double> limit_;
  Array<std::int32_t> unread_;  // [tensors]: readers not placed yet
  Array<double> resident_, live_, peak_;
  Array<std::uint8_t> freed_;
};

}  // namespace placewright::overlap
