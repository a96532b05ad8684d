#include "pipeline/stage_loads.h"

#include <limits>

namespace placewright::pipeline {

double StageLoads::load_s(Span<const std::int64_t> units, const Staffing& how) {
  double compute_s = 0.0, memory_bytes = 0.0, sync_s = 0.0, transfer_s = 0.0;
  for (const std::int64_t unit : units) {
    compute_s += model_.time_s(unit, how.kind);
    memory_bytes += model_.memory_bytes[unit];
    sync_s += model_.sync_s(unit, how.kind);
  }
  if (memory_bytes > how.limit_bytes) return std::numeric_limits<double>::infinity();
  for (const std::int64_t unit : units) {
    for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
      const std::int32_t t = model_.touch_tensor[touch];
      ++inside_[t];
      if (model_.touch_produces[touch]) is_produced_[t] = 1;
    }
  }
  for (const std::int64_t unit : units) {
    for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
      const std::int32_t t = model_.touch_tensor[touch];
      if (inside_[t] == 0) continue;  // was paid for
      if (is_produced_[t] == 0) {
        transfer_s += model_.in_s(t, how.kind);
      } else if (inside_[t] < model_.tensor_size[t]) {
        transfer_s += model_.out_s(t, how.kind);
      }
      inside_[t] = 0;
      is_produced_[t] = 0;
    }
  }
  return model_.load_s(how, compute_s, transfer_s, sync_s);
}

}  // namespace placewright::pipeline
