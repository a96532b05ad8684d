#include "sequential/push_relabel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kit/pairwise_sum.h"

namespace placewright::sequential {
namespace {

// Of all capacities as whole numbers: no excess or residual capacity can overflow.
constexpr int largest_sum_bits = 60;

constexpr double bound_slack = 1e-15;  // a sum beyond 2^53 is rounded when it becomes a floating-point number

// The largest power of two that keeps the sum of all capacities within bounds.
double scale_of(const CutNetwork& network) {
  const auto sum = [](Index count, auto&& item) {
    return pairwise_sum(0, count, [&](Index i) { return std::max(item(i), 0.0); });
  };
  double total = sum(network.n_arcs(), [&](Index e) { return network.forward()[e]; });
  total += sum(network.n_arcs(), [&](Index e) { return network.backward()[e]; });
  total += sum(network.n_nodes(), [&](Index v) { return network.cost(v, Side::goes); });
  total += sum(network.n_nodes(), [&](Index v) { return network.cost(v, Side::stays); });
  if (!std::isfinite(total)) throw std::invalid_argument("a capacity of a cut is not finite");
  return total > 0.0 ? std::ldexp(1.0, std::ilogb(std::ldexp(1.0, largest_sum_bits) / total)) : 1.0;
}

std::int64_t whole(double capacity, double scale) {
  if (capacity == CutNetwork::endless) return std::int64_t{1} << largest_sum_bits;
  return static_cast<std::int64_t>(std::floor(std::max(capacity, 0.0) * scale));
}

}  // namespace

MinimumCut::MinimumCut(const CutNetwork& network)
    : nodes_("nodes", network.n_nodes()),
      arcs_("arcs", 2 * network.n_arcs()),
      position_("position", network.n_arcs()),
      height_("height", network.n_nodes()),
      top_("top", network.n_nodes() + 2, none),
      population_("population", network.n_nodes() + 2),
      reaching_("reaching", network.n_nodes()) {
  if (arcs_.size() > std::numeric_limits<std::int32_t>::max()) throw std::length_error("too many arcs for a cut");
  for (const auto& arc : network.arcs()) {
    ++nodes_[arc.tail].end;
    ++nodes_[arc.head].end;
  }
  std::int32_t begin = 0;
  for (Node& node : nodes_) {
    node.begin = node.current = begin;
    node.end = begin += node.end;
  }
  for (Index e = 0; e < network.n_arcs(); ++e) {
    const auto [tail, head] = network.arcs()[e];
    const std::int32_t forth = nodes_[tail].current++, back = nodes_[head].current++;
    position_[e] = forth;
    arcs_[forth] = {0, head, back};
    arcs_[back] = {0, tail, forth};
  }
  load(network);
}

void MinimumCut::load(const CutNetwork& network) {
  if (network.n_nodes() != n_nodes() || network.n_arcs() != position_.size()) {
    throw std::invalid_argument("the nodes and arcs are those of another network");
  }
  scale_ = scale_of(network);
  through_ = reached_sink_ = 0;
  for (Index e = 0; e < network.n_arcs(); ++e) {
    Arc& arc = arcs_[position_[e]];
    arc.residual = whole(network.forward()[e], scale_);
    arcs_[arc.mate].residual = whole(network.backward()[e], scale_);
  }
  for (Index v = 0; v < n_nodes(); ++v) {
    const std::int64_t supply = whole(network.cost(v, Side::goes), scale_);
    const std::int64_t room = whole(network.cost(v, Side::stays), scale_);
    const std::int64_t through = std::min(supply, room);
    through_ += through;
    nodes_[v].excess = supply - through;
    nodes_[v].room = room - through;
  }
}

bool MinimumCut::run(Stop& stop) {
  const Index period = 6 * n_nodes() + arcs_.size() / 2;
  while (measure_distances(stop)) {
    stack_active_nodes();
    for (relabel_work_ = 0; relabel_work_ <= period;) {
      const std::int32_t v = take_highest();
      if (v == none) return true;
      if (stop.poll()) return false;
      discharge(v);
    }
  }
  return false;
}

double MinimumCut::bound() const { return static_cast<double>(through_ + reached_sink_) / scale_ * (1 - bound_slack); }

void MinimumCut::write_sink_side(Array<std::uint8_t>& goes) {
  Stop to_the_end;
  measure_distances(to_the_end);
  for (Index v = 0; v < goes.size(); ++v) goes[v] = height_[v] <= n_nodes() ? 1 : 0;
}

// Exact distances to the sink, breadth first along arcs that are not full. False if it was stopped before it had them.
bool MinimumCut::measure_distances(Stop& stop) {
  const auto unreached = static_cast<std::int32_t>(n_nodes() + 1);
  const Span<std::int32_t> height = height_.view(), reaching = reaching_.view();
  const Span<const Arc> arcs = std::as_const(arcs_).view();
  const Span<const Node> nodes = std::as_const(nodes_).view();
  Index n_reaching = 0;
  for (std::int32_t v = 0; v < n_nodes(); ++v) {
    height[v] = unreached;
    if (nodes[v].room <= 0) continue;
    height[v] = 1;
    reaching[n_reaching++] = v;
  }
  for (Index next = 0; next < n_reaching; ++next) {
    if (stop.poll()) return false;
    const std::int32_t v = reaching[next], higher = height[v] + 1;
    for (const Arc& arc : arcs.part(nodes[v].begin, nodes[v].end)) {
      std::int32_t& its_height = height[arc.to];
      if (its_height != unreached || arcs[arc.mate].residual <= 0) continue;
      its_height = higher;
      reaching[n_reaching++] = arc.to;
    }
  }
  n_reaching_ = n_reaching;
  return true;
}

void MinimumCut::stack_active_nodes() {
  top_.fill(none);
  population_.fill(0);
  highest_ = 0;
  for (Index k = n_reaching_ - 1; k >= 0; --k) {
    const std::int32_t v = reaching_[k], height = height_[v];
    Node& node = nodes_[v];
    node.current = node.begin;
    ++population_[height];
    if (node.excess > 0) put_on_stack(v, height);
  }
}

void MinimumCut::put_on_stack(std::int32_t v, std::int32_t height) {
  nodes_[v].below = top_[height];
  top_[height] = v;
  highest_ = std::max(highest_, height);
}

std::int32_t MinimumCut::take_highest() {
  while (highest_ > 0 && top_[highest_] == none) --highest_;
  if (highest_ == 0) return none;
  const std::int32_t v = top_[highest_];
  top_[highest_] = nodes_[v].below;
  return v;
}

// Push a node's excess downwards, and lift the node where there is no way down, until nothing is left that can get to
// the sink.
void MinimumCut::discharge(std::int32_t v) {
  const Span<Node> nodes = nodes_.view();
  const Span<Arc> arcs = arcs_.view();
  const Span<std::int32_t> height = height_.view();
  Node& node = nodes[v];
  std::int64_t have = node.excess;
  if (node.room > 0) {
    const std::int64_t sent = std::min(have, node.room);
    node.room -= sent;
    have -= sent;
    reached_sink_ += sent;
  }
  std::int32_t at = node.current, lower = height[v] - 1;
  while (have > 0) {
    if (at == node.end) {
      at = relabel(v);
      lower = height[v] - 1;
      if (lower == n_nodes()) break;
      continue;
    }
    Arc& arc = arcs[at];
    if (arc.residual > 0 && height[arc.to] == lower) {
      const std::int64_t sent = std::min(have, arc.residual);
      arc.residual -= sent;
      arcs[arc.mate].residual += sent;
      have -= sent;
      Node& next = nodes[arc.to];
      if (next.excess == 0) put_on_stack(arc.to, lower);
      next.excess += sent;
      if (have == 0) break;
    }
    ++at;
  }
  node.current = at;
  node.excess = have;
}

// Lift a node right above the lowest one that it can push to; return the arc to that.
std::int32_t MinimumCut::relabel(std::int32_t v) {
  const auto unreached = static_cast<std::int32_t>(n_nodes() + 1);
  const std::int32_t begin = nodes_[v].begin, end = nodes_[v].end;
  const Span<std::int32_t> height = height_.view();
  std::int32_t lowest = unreached, to_lowest = end, i = begin;
  for (const Arc& arc : std::as_const(arcs_).view().part(begin, end)) {
    if (arc.residual > 0 && height[arc.to] < lowest) {
      lowest = height[arc.to];
      to_lowest = i;
    }
    ++i;
  }
  relabel_work_ += end - begin + 12;
  // Nothing is left at the old height: no way down leads from here, nor from anything above.
  const Span<std::int32_t> population = population_.view();
  const bool is_gap = --population[height[v]] == 0;
  height[v] = is_gap ? unreached : std::min(unreached, lowest + 1);
  if (height[v] != unreached) ++population[height[v]];
  return to_lowest;
}

}  // namespace placewright::sequential
