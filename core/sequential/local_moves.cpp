#include "sequential/local_moves.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace placewright::sequential {
namespace {

constexpr int repair_rounds = 80;
constexpr double price_growth = 1.4, late_price_growth = 2.8;         // late: in the second half of the rounds
constexpr double least_gain = 1e-12;                                  // of the unit's time: less is rounding
constexpr double no_price = std::numeric_limits<double>::infinity();  // no move may add any byte beyond a limit

}  // namespace

MovableLabels::MovableLabels(const Energy& energy, Span<const std::int32_t> label, Span<const double> limit_bytes)
    : energy_(energy),
      label_("label", energy.n_units()),
      limit_("limit", energy.n_devices()),
      used_("used", energy.n_devices()),
      readers_("readers", energy.n_tensors(), energy.n_devices()) {
  for (Index d = 0; d < energy.n_devices(); ++d) limit_[d] = limit_bytes[d];
  for (Index u = 0; u < energy.n_units(); ++u) {
    label_[u] = label[u];
    used_[label[u]] += energy.memory_bytes[u];
  }
  for (Index t = 0; t < energy.n_tensors(); ++t) {
    for (const std::int32_t reader : energy.readers(t)) ++readers_(t, label[reader]);
  }
}

void MovableLabels::descend(Stop& stop) {
  while (sweep(no_price, stop)) {
  }
}

bool MovableLabels::repair(double price, Stop& stop) {
  for (int round = 0; round < repair_rounds; ++round) {
    if (fits()) {
      descend(stop);
      return true;
    }
    if (stop.is_over()) return false;
    while (sweep(price, stop) && !fits()) {
    }
    price *= round < repair_rounds / 2 ? price_growth : late_price_growth;
  }
  return false;
}

bool MovableLabels::fits() const {
  for (Index d = 0; d < limit_.size(); ++d) {
    if (used_[d] > limit_[d]) return false;
  }
  return true;
}

// Look at every unit once. False if none moved, or if the time is over.
bool MovableLabels::sweep(double price, Stop& stop) {
  bool has_moved = false;
  for (std::int32_t u = 0; u < energy_.n_units(); ++u) {
    if (stop.poll()) return false;
    const std::int32_t to = best_move(u, price);
    if (to == none) continue;
    move(u, to);
    has_moved = true;
  }
  return has_moved;
}

// Where the unit is better off than where it is, none if nowhere.
std::int32_t MovableLabels::best_move(std::int32_t unit, double price) {
  const std::int32_t from = label_[unit];
  const double bytes = energy_.memory_bytes[unit];
  const double relief = excess(from, used_[from]) - excess(from, used_[from] - bytes);
  double best = -least_gain * (1.0 + std::abs(energy_.time_s(unit, from)));
  std::int32_t to = none;
  for (std::int32_t d = 0; d < energy_.n_devices(); ++d) {
    if (d == from || std::isinf(energy_.time_s(unit, d))) continue;
    const double more = excess(d, used_[d] + bytes) - excess(d, used_[d]);
    if (price == no_price && more > 0.0) continue;
    const double penalty = price == no_price ? 0.0 : price * (more - relief);
    const double change = penalty + change_of_move(unit, d);
    if (change >= best) continue;
    best = change;
    to = d;
  }
  return to;
}

double MovableLabels::change_of_move(std::int32_t unit, std::int32_t to) {
  const std::int32_t from = label_[unit];
  double change = energy_.time_s(unit, to) - energy_.time_s(unit, from);
  for (const std::int32_t t : energy_.touched(unit)) {
    const std::int32_t home = label_[energy_.home[t]];
    change -= copies_s(t, home);
    if (energy_.home[t] == unit) {
      change += copies_s(t, to);
      continue;
    }
    move_reader(t, from, to);
    change += copies_s(t, home);
    move_reader(t, to, from);
  }
  return change;
}

void MovableLabels::move(std::int32_t unit, std::int32_t to) {
  const std::int32_t from = label_[unit];
  for (const std::int32_t t : energy_.touched(unit)) {
    if (energy_.home[t] != unit) move_reader(t, from, to);
  }
  used_[from] -= energy_.memory_bytes[unit];
  used_[to] += energy_.memory_bytes[unit];
  label_[unit] = to;
}

void MovableLabels::move_reader(Index tensor, std::int32_t from, std::int32_t to) {
  --readers_(tensor, from);
  ++readers_(tensor, to);
}

// How far a device would be beyond its limit.
double MovableLabels::excess(std::int32_t device, double bytes) const { return std::max(0.0, bytes - limit_[device]); }

// Of a tensor that is made on `from`, to wherever it is read.
double MovableLabels::copies_s(Index tensor, std::int32_t from) const {
  double total_s = 0.0;
  bool through_host = false;
  for (std::int32_t d = 0; d < energy_.n_devices(); ++d) {
    if (d == from || readers_(tensor, d) == 0) continue;
    total_s += energy_.arrival_s(tensor, from, d);
    through_host = through_host || energy_.goes_through_host(from, d);
  }
  return through_host ? total_s + energy_.way_up_s(tensor, from) : total_s;
}

}  // namespace placewright::sequential
