// What determines the loads of pipeline stages, as views of the arrays that Python owns.
//
// Devices that can be exchanged for each other are of one kind. A stage runs on `replicas` devices of one kind; ways to
// staff it are numbered as options. A unit touches a tensor if it produces or reads it: touches of unit u are numbered
// touch_ptr[u] to touch_ptr[u + 1]. A stage that reads a tensor from outside brings it in once; a stage that produces
// one which is read outside sends it out once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kit/span.h"

namespace placewright::pipeline {

// Sums of bytes may exceed a limit by what rounding adds.
inline constexpr double memory_slack = 1 + 1e-12;

// One way to staff a stage, with what is needed of it at every step of a search.
struct Staffing {
  Index kind = 0;
  double replicas = 1.0;
  double sync_share = 0.0;  // of the time to exchange weights once, in a ring
  double limit_bytes = 0.0;
};

struct LoadModel {
  Span2d<const double> time_s;         // [units, kinds], infinite where the unit cannot run
  Span<const double> memory_bytes;     // [units]
  Span2d<const double> sync_s;         // [units, kinds]: to exchange the unit's weights between replicas
  Span<const std::int64_t> touch_ptr;  // [units + 1]
  Span<const std::int32_t> touch_tensor;
  Span<const bool> touch_produces;
  Span<const std::int32_t> tensor_size;  // [tensors]: units that touch it
  Span2d<const double> in_s, out_s;      // [tensors, kinds]
  Span<const std::int64_t> kind_count;   // [kinds]
  Span<const double> kind_memory;        // [kinds]: bytes of one device
  Span<const std::int64_t> option_kind, option_replicas;
  bool is_overlapped = false;  // transfers hide behind computing

  [[nodiscard]] Index n_units() const { return memory_bytes.size(); }
  [[nodiscard]] Index n_kinds() const { return kind_count.size(); }
  [[nodiscard]] Index n_tensors() const { return tensor_size.size(); }
  [[nodiscard]] Index n_options() const { return option_kind.size(); }

  [[nodiscard]] Staffing staffing(Index kind, Index replicas) const {
    const auto devices = static_cast<double>(replicas);
    return {kind, devices, 2.0 * (devices - 1.0) / devices, kind_memory[kind] * memory_slack};
  }
  [[nodiscard]] Staffing staffing(Index option) const {
    return staffing(static_cast<Index>(option_kind[option]), static_cast<Index>(option_replicas[option]));
  }

  // Load of each of the devices that share a stage.
  [[nodiscard]] double load_s(const Staffing& how, double compute_s, double transfer_s, double sync_sum_s) const {
    const double busy_s = is_overlapped ? std::max(compute_s, transfer_s) : compute_s + transfer_s;
    return how.replicas == 1.0 ? busy_s : busy_s / how.replicas + how.sync_share * sync_sum_s;
  }
};

}  // namespace placewright::pipeline
