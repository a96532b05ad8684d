// A problem as the core sees it: views of the arrays that Python owns, made once per Python problem.
//
// Ops, tensors, devices and links are numbers. Ops are in topological order. Tensor t belongs to the op
// tensor_producer[t]; the tensors of op u are tensor_ptr[u] to tensor_ptr[u + 1], their readers
// consumer_op[consumer_ptr[t] to consumer_ptr[t + 1]], and the tensors that u reads input_tensor[input_ptr[u] to
// input_ptr[u + 1]].
//
// A tensor goes from device s to device d over the link direct(s, d), or, where there is none, over to_host[s] and
// from_host[d] through host memory, up once and down once per destination; none among these means free. A link's busy
// bits say whose channels a copy occupies: 1 the sender's, 2 the receiver's. A device has one channel to send and one
// to receive, or one for both (the same number).
#pragma once

#include <cstdint>

#include "kit/span.h"

namespace placewright {

struct Problem {
  // the graph
  Span<const std::int32_t> tensor_ptr;       // [ops + 1]
  Span<const std::int32_t> tensor_producer;  // [tensors]
  Span<const std::int32_t> consumer_ptr;     // [tensors + 1]
  Span<const std::int32_t> consumer_op;
  Span<const std::int32_t> input_ptr;  // [ops + 1]
  Span<const std::int32_t> input_tensor;
  Span<const bool> is_backward;               // [ops]
  Span<const std::int32_t> colocation_first;  // [ops]: first op of its group, itself where free
  // costs
  Span2d<const double> op_time_s;   // [ops, kinds], infinite where not supported
  Span<const double> memory_bytes;  // [ops], resident
  Span<const double> live_bytes;    // [tensors]: zero where activations are not tracked
  Span2d<const double> copy_s;      // [tensors, links]
  // devices
  Span<const std::int32_t> device_kind;
  Span<const double> memory_limit_bytes;
  Span<const bool> is_host;
  Span<const double> segment_overhead_s;
  // links
  Span2d<const std::int32_t> direct;
  Span<const std::int32_t> to_host;
  Span<const std::int32_t> from_host;
  Span<const std::uint8_t> link_busy;
  Span<const std::int32_t> send_channel;
  Span<const std::int32_t> receive_channel;
  Span2d<const bool> allowed;  // [ops, devices]: supported and not ruled out

  static constexpr std::uint8_t busy_sender = 1;
  static constexpr std::uint8_t busy_receiver = 2;

  [[nodiscard]] Index n_ops() const { return colocation_first.size(); }
  [[nodiscard]] Index n_tensors() const { return tensor_producer.size(); }
  [[nodiscard]] Index n_devices() const { return device_kind.size(); }

  [[nodiscard]] Index n_inputs(Index op) const { return input_ptr[op + 1] - input_ptr[op]; }
  [[nodiscard]] Span<const std::int32_t> inputs(Index op) const {
    return input_tensor.part(input_ptr[op], input_ptr[op + 1]);
  }
  [[nodiscard]] Span<const std::int32_t> readers(Index tensor) const {
    return consumer_op.part(consumer_ptr[tensor], consumer_ptr[tensor + 1]);
  }
  [[nodiscard]] Span<const std::int32_t> unchecked_readers(Index tensor) const {
    return consumer_op.unchecked_part(consumer_ptr.unchecked(tensor), consumer_ptr.unchecked(tensor + 1));
  }
  [[nodiscard]] Index most_inputs() const {
    Index most = 0;
    for (Index u = 0; u < n_ops(); ++u) most = n_inputs(u) > most ? n_inputs(u) : most;
    return most;
  }
};

}  // namespace placewright
