// What a target value forces, by minimum cuts.
//
// For one device kind, the least load of a device whose set holds unit `a` and lacks unit `b` is a minimum cut: loads
// are a sum of times and a submodular boundary cost. If it exceeds the target, every device of that kind that holds `a`
// holds `b`.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "kit/stop.h"

namespace placewright::not_contiguous {

// A flow network whose arcs stand in rows by their tail; each arc has a mate in the other direction. The arc from a
// unit to the sink carries the unit's time.
struct Network {
  Span<const std::int32_t> ptr;      // [nodes + 1]
  Span<const std::int32_t> head;     // [arcs]
  Span<const std::int32_t> reverse;  // [arcs]
  Span<const double> capacity;       // [arcs]
  std::int32_t sink;

  [[nodiscard]] Index n_nodes() const { return ptr.size() - 1; }
  [[nodiscard]] Index n_arcs() const { return head.size(); }
};

// Asks one network about one unit after the other; owns its scratch.
class PairFacts {
 public:
  explicit PairFacts(const Network& network);

  // The least load with `unit`, exact if it is at most `limit`; and written to `forced` [others], whether leaving that
  // other unit out exceeds the limit.
  double ask(std::int32_t unit, Span<const std::int32_t> others, double limit, Span<bool> forced);

 private:
  double augment(Array<double>& residual, std::int32_t source, double enough);
  [[nodiscard]] bool find_path(const Array<double>& residual, std::int32_t source);

  Network network_;
  Array<double> residual_, trial_;
  Array<std::int32_t> parent_, queue_;
};

}  // namespace placewright::not_contiguous
