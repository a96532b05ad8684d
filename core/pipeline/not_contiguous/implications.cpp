#include "pipeline/not_contiguous/implications.h"

#include <algorithm>
#include <limits>

namespace placewright::not_contiguous {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double least_residual = 1e-12;  // below it an arc counts as full
constexpr std::int32_t unseen = -1, root = -2;

}  // namespace

PairFacts::PairFacts(const Network& network)
    : network_(network),
      residual_("residual", network.n_arcs()),
      trial_("trial", network.n_arcs()),
      parent_("parent", network.n_nodes()),
      queue_("queue", network.n_nodes()) {}

double PairFacts::ask(std::int32_t unit, Span<const std::int32_t> others, double limit, Span<bool> forced) {
  std::copy(network_.capacity.begin(), network_.capacity.end(), residual_.begin());
  std::fill(forced.begin(), forced.end(), false);
  const double least = augment(residual_, unit, limit);
  if (least > limit) return least;
  for (Index i = 0; i < others.size(); ++i) {
    std::copy(residual_.begin(), residual_.end(), trial_.begin());
    // An endless arc to the sink puts the unit outside.
    for (Index arc = network_.ptr[others[i]]; arc < network_.ptr[others[i] + 1]; ++arc) {
      if (network_.head[arc] == network_.sink) trial_[arc] = infinity;
    }
    forced[i] = least + augment(trial_, unit, limit - least) > limit;
  }
  return least;
}

// Push flow along shortest paths until it exceeds `enough` or is maximal.
double PairFacts::augment(Array<double>& residual, std::int32_t source, double enough) {
  double flow = 0.0;
  while (flow <= enough && find_path(residual, source)) {
    double narrow = infinity;
    for (std::int32_t node = network_.sink; node != source; node = network_.head[network_.reverse[parent_[node]]]) {
      narrow = std::min(narrow, residual[parent_[node]]);
    }
    if (narrow == infinity) return infinity;
    for (std::int32_t node = network_.sink; node != source; node = network_.head[network_.reverse[parent_[node]]]) {
      residual[parent_[node]] -= narrow;
      residual[network_.reverse[parent_[node]]] += narrow;
    }
    flow += narrow;
  }
  return flow;
}

// Breadth first; `parent_` then holds the arc by which each node was met.
bool PairFacts::find_path(const Array<double>& residual, std::int32_t source) {
  parent_.fill(unseen);
  parent_[source] = root;
  queue_[0] = source;
  for (Index first = 0, last = 1; first < last && parent_[network_.sink] == unseen; ++first) {
    const std::int32_t node = queue_[first];
    for (std::int32_t arc = network_.ptr[node]; arc < network_.ptr[node + 1]; ++arc) {
      if (residual[arc] > least_residual && parent_[network_.head[arc]] == unseen) {
        parent_[network_.head[arc]] = arc;
        queue_[last++] = network_.head[arc];
      }
    }
  }
  return parent_[network_.sink] != unseen;
}

}  // namespace placewright::not_contiguous
