// Execution model `pipeline`: seconds per sample of a full pipeline, the largest load of any device.
//
// The load of a device is the time of its ops plus, or at most (overlapped), the time of its copies. Through host
// memory a device pays once to send a tensor out, however many devices want it, and once to bring one in, however many
// of its ops read it. A direct copy is paid per pair of devices, by each end that the link keeps busy. Copies count as
// forward or backward by the op that produced the tensor.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "problem.h"

namespace placewright::judge {

struct PipelineRules {
  bool is_contiguous;  // stages have to form a chain
  bool is_overlapped;  // copies beside compute
  bool is_split;       // max FW + max BW instead of max(FW + BW)
};

// Seconds of each device [devices, 2]: forward in column 0, backward in 1.
struct Loads {
  Span2d<double> compute_s;
  Span2d<double> copies_s;
};

void fill_loads(const Problem& problem, Span<const std::int32_t> device_of_op, const Loads& loads);

[[nodiscard]] double largest_load(const Loads& loads, const PipelineRules& rules);

// Whether the devices can be ordered so that no edge runs backwards: the stages are a chain of ideals.
[[nodiscard]] bool stages_form_chain(Span<const std::int32_t> order_source, Span<const std::int32_t> order_target,
                                     Span<const std::int32_t> device_of_op, Index n_devices);

}  // namespace placewright::judge
