// A `sequential` problem without segments as a labelling: units get devices, tensors cost what their copies take.
//
// Views of the arrays of Python's `Energy`. A tensor is listed if it has readers outside of its home unit; `reader`
// holds those, each once. Tensor t goes from device s to device d over the link direct(s, d), or, where there is none,
// up over to_host[s], once, and down over from_host[d], once per destination. The last column of copy_s is zero: no
// link, no time.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::sequential {

struct Energy {
  Span2d<const double> time_s;          // [units, devices], infinite where the unit may not be
  Span<const double> memory_bytes;      // [units]
  Span<const std::int32_t> home;        // [tensors]: the unit that makes it
  Span<const std::int32_t> reader_ptr;  // [tensors + 1]
  Span<const std::int32_t> reader;
  Span2d<const double> copy_s;        // [tensors, links + 1]
  Span2d<const std::int32_t> direct;  // [devices, devices], none = through host memory
  Span<const std::int32_t> to_host;
  Span<const std::int32_t> from_host;
  Span<const std::int32_t> touch_ptr;  // [units + 1]: the tensors that a unit makes or reads
  Span<const std::int32_t> touch;

  [[nodiscard]] Index n_units() const { return time_s.rows(); }
  [[nodiscard]] Index n_devices() const { return time_s.columns(); }
  [[nodiscard]] Index n_tensors() const { return home.size(); }
  [[nodiscard]] Span<const std::int32_t> readers(Index tensor) const {
    return reader.part(reader_ptr[tensor], reader_ptr[tensor + 1]);
  }
  [[nodiscard]] Span<const std::int32_t> touched(Index unit) const {
    return touch.part(touch_ptr[unit], touch_ptr[unit + 1]);
  }

  [[nodiscard]] bool goes_through_host(Index from, Index to) const { return from != to && direct(from, to) == none; }
  // Of a copy to one device, the way up to host memory left out.
  [[nodiscard]] double arrival_s(Index tensor, Index from, Index to) const {
    if (from == to) return 0.0;
    const std::int32_t link = direct(from, to);
    return copy_s(tensor, link != none ? link : from_host[to]);
  }
  [[nodiscard]] double way_up_s(Index tensor, Index from) const { return copy_s(tensor, to_host[from]); }
};

// Seconds of all units and copies. The times of the units are those of `unary_s` [units, devices], which may have
// prices in them. There is no value before the end, so only a signal stops it.
[[nodiscard]] double labelling_value(const Energy& energy, Span2d<const double> unary_s, Span<const std::int32_t> label,
                                     Stop& stop);

}  // namespace placewright::sequential
