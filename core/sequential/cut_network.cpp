#include "sequential/cut_network.h"

namespace placewright::sequential {

void CutNetwork::expect(Index n_arcs, Index n_nodes) {
  costs_.reserve(static_cast<std::size_t>(n_nodes));
  arcs_.reserve(static_cast<std::size_t>(n_arcs));
  forward_.reserve(static_cast<std::size_t>(n_arcs));
  backward_.reserve(static_cast<std::size_t>(n_arcs));
}

void CutNetwork::add_arc(std::int32_t tail, std::int32_t head, double forward, double backward) {
  check_index("nodes", tail, n_nodes());
  check_index("nodes", head, n_nodes());
  arcs_.push_back({tail, head});
  forward_.push_back(forward);
  backward_.push_back(backward);
}

void CutNetwork::add_any(double weight, Side side, Span<const std::int32_t> who, std::int32_t home) {
  if (weight <= 0.0 || who.size() == 0) return;
  if (who.size() == 1 && home == none) return add_cost(who[0], side, weight);
  std::int32_t centre = home;
  if (who.size() > 1) {
    centre = static_cast<std::int32_t>(n_nodes());
    costs_.emplace_back();
    if (home == none) {
      add_cost(centre, side, weight);
    } else {
      pay_alone(centre, home, side, weight);
    }
  }
  for (const std::int32_t node : who) pay_alone(node, centre, side, weight);
}

}  // namespace placewright::sequential
