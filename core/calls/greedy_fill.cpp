#include "calls/greedy_fill.h"

#include <vector>

#include "kit/array.h"

namespace placewright::calls {
namespace {

class GreedyFill {
 public:
  explicit GreedyFill(const GreedyQuestion& question)
      : q_(question), used_bytes_("used_bytes", question.is_host.size()) {
    for (std::int32_t d = 0; d < question.is_host.size(); ++d) {
      (question.is_host[d] ? hosts_ : accelerators_).push_back(d);
    }
    filling_ = accelerators_.begin();
  }

  // The device for the next unit; none if it fits nowhere.
  [[nodiscard]] std::int32_t place(Index unit) {
    std::int32_t device = on_accelerator_in_turn(unit);
    if (device == none) device = first_of(hosts_, unit);
    if (device == none) device = first_of(accelerators_, unit);
    if (device != none) used_bytes_[device] += q_.memory_bytes[unit];
    return device;
  }

 private:
  [[nodiscard]] std::int32_t on_accelerator_in_turn(Index unit) {
    std::int32_t device = fillable(unit);
    if (device == none && is_begun_) {
      ++filling_;
      is_begun_ = false;
      device = fillable(unit);
    }
    is_begun_ = is_begun_ || device != none;
    return device;
  }

  [[nodiscard]] std::int32_t first_of(const std::vector<std::int32_t>& devices, Index unit) const {
    for (const std::int32_t d : devices) {
      if (may_take(unit, d)) return d;
    }
    return none;
  }
  [[nodiscard]] std::int32_t fillable(Index unit) const {
    return filling_ != accelerators_.end() && may_take(unit, *filling_) ? *filling_ : none;
  }
  [[nodiscard]] bool may_take(Index unit, std::int32_t device) const {
    return q_.allowed(unit, device) && used_bytes_[device] + q_.memory_bytes[unit] <= q_.limit_bytes[device];
  }

  const GreedyQuestion& q_;
  Array<double> used_bytes_;  // [devices]
  std::vector<std::int32_t> hosts_, accelerators_;
  std::vector<std::int32_t>::const_iterator filling_;  // the accelerator in turn
  bool is_begun_ = false;                              // does it hold anything?
};

}  // namespace

bool fill_greedily(const GreedyQuestion& question, Span<const std::int64_t> order, Span<std::int32_t> device_of_unit,
                   Stop& stop) {
  GreedyFill fill(question);
  for (const std::int64_t unit : order) {
    if (stop.poll()) return false;
    const std::int32_t device = fill.place(unit);
    if (device == none) return false;
    device_of_unit[unit] = device;
  }
  return true;
}

}  // namespace placewright::calls
