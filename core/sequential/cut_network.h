// A network whose cuts are choices: every node stays (the source's side) or goes (the sink's side), and pays for it.
//
// An arc is paid if its tail stays and its head goes, and its way back if it is the other way round. A node's arcs from
// the source and to the sink are what it costs that the node goes, or stays.
#pragma once

#include <cstdint>
#include <vector>

#include "kit/span.h"

namespace placewright::sequential {

enum class Side { stays, goes };

class CutNetwork {
 public:
  static constexpr double endless = -1.0;  // a capacity that no cut may pay

  struct Arc {
    std::int32_t tail, head;
  };

  explicit CutNetwork(Index n_nodes) : costs_(static_cast<std::size_t>(n_nodes)) {}

  void expect(Index n_arcs, Index n_nodes);
  void add_arc(std::int32_t tail, std::int32_t head, double forward, double backward = 0.0);
  // What it costs that the node is on that side; only `set_cost` forgets what was added before.
  void add_cost(std::int32_t node, Side side, double cost) { cost_of(node, side) += cost; }
  void set_cost(std::int32_t node, Side side, double cost) { cost_of(node, side) = cost; }

  // Add `weight` if any of `who` is on `side` while `home` is on the other one (none: whatever home does). Several who
  // share the weight through a node of their own.
  void add_any(double weight, Side side, Span<const std::int32_t> who, std::int32_t home);

  [[nodiscard]] Index n_nodes() const { return static_cast<Index>(costs_.size()); }
  [[nodiscard]] Index n_arcs() const { return static_cast<Index>(arcs_.size()); }
  [[nodiscard]] Span<const Arc> arcs() const { return {"arcs", arcs_.data(), n_arcs()}; }
  [[nodiscard]] Span<const double> forward() const { return {"forward", forward_.data(), n_arcs()}; }
  [[nodiscard]] Span<const double> backward() const { return {"backward", backward_.data(), n_arcs()}; }
  [[nodiscard]] double cost(Index node, Side side) const {
    check_index("nodes", node, n_nodes());
    const Costs& costs = costs_[static_cast<std::size_t>(node)];
    return side == Side::goes ? costs.going : costs.staying;
  }

 private:
  struct Costs {
    double going = 0.0, staying = 0.0;
  };

  double& cost_of(std::int32_t node, Side side) {
    check_index("nodes", node, n_nodes());
    Costs& costs = costs_[static_cast<std::size_t>(node)];
    return side == Side::goes ? costs.going : costs.staying;
  }
  // Pay if `node` is on `side` while `other` is not.
  void pay_alone(std::int32_t node, std::int32_t other, Side side, double weight) {
    if (side == Side::stays) {
      add_arc(node, other, weight);
    } else {
      add_arc(other, node, weight);
    }
  }

  std::vector<Costs> costs_;
  std::vector<Arc> arcs_;
  std::vector<double> forward_, backward_;
};

}  // namespace placewright::sequential
