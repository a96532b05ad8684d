// Exact pricing on narrow graphs: the best set of units for one device, by labels over frontiers.
//
// Units are decided one by one, in the set or not. What the past means for the future is a frontier: the state of the
// tensors that have both decided and undecided units. Python lists all frontiers that can be reached, step by step, and
// where each decision leads. From that follow, for any price of load, the best completion of every frontier, and with
// these bounds a search by labels (frontier, load, worth) visits little more than the best path.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kit/stop.h"
#include "problem.h"

namespace placewright::not_contiguous {

// All reachable frontiers, and where each decision leads.
struct Frontiers {
  Span<const std::int32_t> order;    // [units] in the order of decision
  Span<const std::int64_t> ptr;      // [units + 2]: states before step i are ptr[i] to ptr[i + 1]
  Span2d<const std::int32_t> child;  // [2, states]: next state if the unit stays out / is taken in; none: not possible
  Span2d<const double> cost;         // [2, states]: communication that the decision pays

  [[nodiscard]] Index n_steps() const { return order.size(); }
};

// What is asked for: a set of units of great price, within a limit of load.
struct Pricing {
  Span<const double> time_s;  // [units]
  Span<const double> price;   // [units]
};

// Writes the largest (price - multiplier * load) that can still be had from every state; returns that of the first.
double best_completions(const Frontiers& frontiers, const Pricing& pricing, double multiplier, Span<double> best);

struct LabelLimits {
  double load;            // of the set, at most
  double floor;           // nothing of less price is wanted
  double blur;            // labels that differ by less in worth may be merged
  std::int64_t n_labels;  // at most, of all steps
};

struct LabelAnswer {
  bool is_complete;  // else the limit of labels was met, or the time was over
  double bound;      // nothing of price above the floor is worth more; at most `blur` above the set's worth
  double worth;      // of the set that was found; minus infinity: none
};

// Finds the best set, and writes its units to `member`. `completions` [multipliers, states] are those of
// `best_completions` for each of the `multipliers`.
LabelAnswer best_set(const Frontiers& frontiers, const Pricing& pricing, Span<const double> multipliers,
                     Span2d<const double> completions, const LabelLimits& limits, Span<bool> member, Stop& stop);

}  // namespace placewright::not_contiguous
