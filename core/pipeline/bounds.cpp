#include "pipeline/bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace placewright::pipeline {
namespace {

constexpr double slack = 1e-9;

class Weighing {
 public:
  Weighing(const Shares& shares, Span2d<const double> start)
      : shares_(shares), n_kinds_(start.columns()), price_("price", 2, n_kinds_), load_("load", 2, n_kinds_) {
    each([&](Index row, Index kind) { price_(row, kind) = start(row, kind); });
  }

  // Total 1.
  void normalise() {
    double sum = 0.0;
    each([&](Index row, Index kind) { sum += price_(row, kind); });
    each([&](Index row, Index kind) { price_(row, kind) /= sum; });
  }

  // Give every unit to the kind on which it is cheapest; returns what they cost.
  double assign() {
    load_.fill(0.0);
    const Span<const double> time_price = price_.row(0), memory_price = price_.row(1);
    double total = 0.0;
    for (Index unit = 0; unit < shares_.time.rows(); ++unit) {
      const Span<const double> time = shares_.time.row(unit), memory = shares_.memory.row(unit);
      double cheapest = std::numeric_limits<double>::infinity();
      Index choice = 0;
      for (Index kind = 0; kind < n_kinds_; ++kind) {
        if (!std::isfinite(time[kind])) continue;
        const double cost = time_price[kind] * time[kind] + memory_price[kind] * memory[kind];
        if (cost < cheapest) {
          cheapest = cost;
          choice = kind;
        }
      }
      total += cheapest;
      load_(0, choice) += time[choice];
      load_(1, choice) += memory[choice];
    }
    return total;
  }

  void raise_prices(Index step) {
    double most = load_(0, 0);
    each([&](Index row, Index kind) { most = std::max(most, load_(row, kind)); });
    most = std::max(most, 1e-300);
    const double damping = 1 + 0.1 * static_cast<double>(step);
    each([&](Index row, Index kind) { price_(row, kind) *= std::exp(load_(row, kind) / most / damping); });
  }

  void write(Span2d<double> prices) {
    each([&](Index row, Index kind) { prices(row, kind) = price_(row, kind); });
  }

 private:
  template <class Body>
  void each(const Body& body) const {
    for (Index row = 0; row < 2; ++row) {
      for (Index kind = 0; kind < n_kinds_; ++kind) body(row, kind);
    }
  }

  const Shares& shares_;
  Index n_kinds_;
  Array2d<double> price_, load_;
};

// Row r holds the vectors order[r], order[r + 1], ..
Array2d<Word> suffixes(Span<const std::int64_t> order, Index n_words) {
  Array2d<Word> tables("tables", order.size() + 1, n_words);
  for (Index rank = order.size() - 1; rank >= 0; --rank) {
    const Span<const Word> later = tables.row(rank + 1);
    const Span<Word> here = tables.row(rank);
    std::copy(later.begin(), later.end(), here.begin());
    here[order[rank] >> 6] |= Word{1} << (order[rank] & 63);
  }
  return tables;
}

}  // namespace

void weigh(const Shares& shares, Span2d<const double> start, Index rounds, Span2d<double> best, Stop& stop) {
  Weighing weighing(shares, start);
  double best_total = -1.0;
  for (Index step = 0; step < rounds && !stop.poll(); ++step) {
    weighing.normalise();
    if (step == 0) weighing.write(best);
    const double total = weighing.assign();
    if (total > best_total) {
      best_total = total;
      weighing.write(best);
    }
    weighing.raise_prices(step);
  }
}

void clear_unaffordable(const Lattice& lattice, Span<const double> unit_cost, Span<const std::int64_t> order,
                        Span<const double> worth, Span2d<Word> masks, Stop& stop) {
  const Array2d<Word> tables = suffixes(order, masks.columns());
  Array<double> rest("rest", lattice.n_ideals());
  for (const double cost : unit_cost) rest[0] += cost;
  const double tolerance = slack * rest[0];
  for (Index ideal = 0; ideal < lattice.n_ideals() && !stop.poll(); ++ideal) {
    if (ideal > 0) rest[ideal] = rest[lattice.parent[ideal]] - unit_cost[lattice.last_unit[ideal]];
    const auto rank = std::lower_bound(worth.begin(), worth.end(), rest[ideal] - tolerance) - worth.begin();
    const Span<const Word> affordable = tables.row(rank);
    const Span<Word> mask = masks.row(ideal);
    std::transform(mask.begin(), mask.end(), affordable.begin(), mask.begin(), std::bit_and<>());
  }
}

}  // namespace placewright::pipeline
