// Labels of the dynamic programme over open groups (`chain`): which of them another one beats.
#pragma once

#include <cstdint>

#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::sequential {

// Whether no label before, of the same state, takes as little memory on all devices. Labels are ordered by `state` and
// then by cost, so that such a label is at least as good in everything. Writes `is_kept` [labels]; if it is stopped,
// some that are beaten are kept.
void mark_undominated(Span<const std::int32_t> state, Span2d<const double> memory_bytes, Span<bool> is_kept,
                      Stop& stop);

}  // namespace placewright::sequential
