// Lower bounds on what a set of units needs: prices of resources, and the states that cannot finish.
//
// Put prices on a second of each kind and on a byte of each kind. A unit costs at least its cheapest kind's price, and
// devices that finish within a threshold can pay no more than what their time and memory are worth. Hence for any
// prices, units whose costs exceed the worth of the remaining devices do not fit on them.
#pragma once

#include "kit/stop.h"
#include "pipeline/lattice.h"
#include "pipeline/vectors.h"

namespace placewright::pipeline {

// Shares [units, kinds] of a kind's time (infinite where the unit cannot run) and memory that a unit takes.
struct Shares {
  Span2d<const double> time, memory;
};

// Prices [time and memory, kinds] by multiplicative weights on the fractional assignment problem: raise the price of
// overused resources, starting from `start`; writes the best prices met.
void weigh(const Shares& shares, Span2d<const double> start, Index rounds, Span2d<double> best, Stop& stop);

// Clears in `masks` [ideals, words] the vectors whose remaining devices are worth less than the units outside the ideal
// cost. `order` lists vectors by rising worth, `worth` [as order] is sorted. When stopped, less is cleared.
void clear_unaffordable(const Lattice& lattice, Span<const double> unit_cost, Span<const std::int64_t> order,
                        Span<const double> worth, Span2d<Word> masks, Stop& stop);

}  // namespace placewright::pipeline
