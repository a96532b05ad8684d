// Figures that list schedulers rank ops by: longest paths over mean times and copies, and the optimistic cost table.
#pragma once

#include "problem.h"

namespace placewright::overlap {

// Mean time from an op's start to the end of everything after it, copies along the path included (HEFT's rank).
void upward_ranks(const Problem& problem, Span<const double> mean_time_s, Span<const double> mean_copy_s,
                  Span<double> out);

// Longest path from the beginning to an op's start (CPOP's second rank).
void downward_ranks(const Problem& problem, Span<const double> mean_time_s, Span<const double> mean_copy_s,
                    Span<double> out);

// PEFT's table [ops, devices]: what is left after an op ends on a device, if each later op has the best device.
void optimistic_costs(const Problem& problem, Span2d<const double> time_s, Span<const double> mean_copy_s,
                      Span2d<double> out);

}  // namespace placewright::overlap
