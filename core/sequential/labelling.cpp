#include "sequential/labelling.h"

#include "kit/pairwise_sum.h"

namespace placewright::sequential {
namespace {

// In the order of tensors and of their readers, one after the other.
double copies_s(const Energy& energy, Span<const std::int32_t> label, Stop& stop) {
  double total_s = 0.0;
  Array<Index> has("has", energy.n_devices(), none);  // the last tensor that came to each device
  for (Index t = 0; t < energy.n_tensors(); ++t) {
    stop.poll();
    const std::int32_t from = label[energy.home[t]];
    has[from] = t;
    bool in_host = false;
    for (const std::int32_t reader : energy.readers(t)) {
      const std::int32_t to = label[reader];
      if (has[to] == t) continue;
      has[to] = t;
      total_s += energy.arrival_s(t, from, to);
      if (!in_host && energy.goes_through_host(from, to)) {
        in_host = true;
        total_s += energy.way_up_s(t, from);
      }
    }
  }
  return total_s;
}

}  // namespace

double labelling_value(const Energy& energy, Span2d<const double> unary_s, Span<const std::int32_t> label, Stop& stop) {
  const double times_s = pairwise_sum(0, label.size(), [&](Index u) { return unary_s(u, label[u]); });
  return times_s + copies_s(energy, label, stop);
}

}  // namespace placewright::sequential
