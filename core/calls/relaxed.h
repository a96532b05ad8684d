// The relaxed problem of `calls` as views of the arrays that Python makes; src/placewright/placers/calls/relaxation.py
// says what is relaxed, and why an optimum of it is a lower bound.
//
// Units are ops that always share a piece; they are numbered topologically. Sorts are accelerators that differ in
// nothing but their names. A tensor belongs to the unit that makes it, or to nobody (`none`): then it is read from
// wherever it costs least. Units of one class share a device in every valid placement, and a piece holds the bytes of a
// whole class as soon as it holds one of its units.
#pragma once

#include <cstdint>

#include "kit/span.h"

namespace placewright::calls {

struct Relaxed {
  Span<const double> host_time_s;            // [units]
  Span<const double> host_ready_s;           // [units]: least finish of the sources that it reads
  Span2d<const double> time_s;               // [units, sorts]
  Span<const std::int64_t> class_of_unit;    // [units]
  Span<const double> class_bytes;            // [classes]
  Span<const double> limit_bytes;            // [sorts]
  Span<const std::int64_t> successor_ptr;    // [units + 1]
  Span<const std::int64_t> successor;        // distinct, rising
  Span<const std::int64_t> tensor_producer;  // [tensors]
  Span<const std::int64_t> consumer_ptr;     // [tensors + 1]
  Span<const std::int64_t> consumer;         // distinct units other than the producer
  Span2d<const double> in_s;                 // [tensors, sorts]: to bring it to an accelerator
  Span2d<const double> out_s;                // [tensors, sorts]: to send it from there
  Span<const std::int64_t> output_ptr;       // [units + 1]
  Span<const std::int64_t> output;           // tensors of a unit
  Span<const std::int64_t> input_ptr;        // [units + 1]
  Span<const std::int64_t> input;            // tensors that a unit reads

  [[nodiscard]] Index n_units() const { return host_time_s.size(); }
  [[nodiscard]] Index n_sorts() const { return limit_bytes.size(); }
  [[nodiscard]] Index n_tensors() const { return tensor_producer.size(); }

  [[nodiscard]] Span<const std::int64_t> successors(Index unit) const {
    return successor.part(successor_ptr[unit], successor_ptr[unit + 1]);
  }
  [[nodiscard]] Span<const std::int64_t> inputs(Index unit) const {
    return input.part(input_ptr[unit], input_ptr[unit + 1]);
  }
  [[nodiscard]] Span<const std::int64_t> outputs(Index unit) const {
    return output.part(output_ptr[unit], output_ptr[unit + 1]);
  }
  [[nodiscard]] Span<const std::int64_t> readers(Index tensor) const {
    return consumer.part(consumer_ptr[tensor], consumer_ptr[tensor + 1]);
  }
  [[nodiscard]] Index n_readers(Index tensor) const { return consumer_ptr[tensor + 1] - consumer_ptr[tensor]; }
};

}  // namespace placewright::calls
