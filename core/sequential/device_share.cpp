#include "sequential/device_share.h"

#include <algorithm>

#include "kit/pairwise_sum.h"

namespace placewright::sequential {
namespace {

// To go is to be on the device.
CutNetwork network_of(const Energy& energy, Span<const double> leaving_s, Span<const double> entering_s) {
  CutNetwork network(energy.n_units());
  network.expect(2 * (energy.reader.size() + energy.n_tensors()), energy.n_units() + 2 * energy.n_tensors());
  for (Index t = 0; t < energy.n_tensors(); ++t) {
    network.add_any(entering_s[t], Side::goes, energy.readers(t), energy.home[t]);
    network.add_any(leaving_s[t], Side::stays, energy.readers(t), energy.home[t]);
  }
  return network;
}

}  // namespace

DeviceShare::DeviceShare(const Energy& energy, Span<const double> leaving_s, Span<const double> entering_s)
    : n_units_(energy.n_units()),
      network_(network_of(energy, leaving_s, entering_s)),
      cut_(network_),
      goes_("goes", network_.n_nodes()) {}

double DeviceShare::cheapest_set(Span<const double> cost_s, Span<bool> is_taken, Stop& stop) {
  for (std::int32_t u = 0; u < cost_s.size(); ++u) {
    network_.set_cost(u, Side::goes, std::max(cost_s[u], 0.0));
    network_.set_cost(u, Side::stays, std::max(-cost_s[u], 0.0));
  }
  cut_.load(network_);
  cut_.run(stop);
  cut_.write_sink_side(goes_);
  for (Index u = 0; u < is_taken.size(); ++u) is_taken[u] = goes_[u] != 0;
  // The cut pays for what a negative cost would bring, where it is not taken.
  const double could_bring_s =
      pairwise_sum(0, network_.n_nodes(), [&](Index v) { return network_.cost(v, Side::stays); });
  return cut_.bound() - could_bring_s;
}

}  // namespace placewright::sequential
