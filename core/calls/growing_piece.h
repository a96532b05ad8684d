// A piece that grows unit by unit, as a walk along the lattice of ideals adds and takes back units.
//
// It knows its bytes and, per sort of accelerators, what it computes, brings in and sends out. A tensor that is made
// outside is brought in once; one that is made inside is sent out as long as it has a reader outside. All sums run in
// the order in which units were added, and taking a unit back restores them.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "calls/relaxed.h"
#include "kit/array.h"

namespace placewright::calls {

class GrowingPiece {
 public:
  // `per_unit` [units] and `per_piece` are what it spends of a ration.
  GrowingPiece(const Relaxed& relaxed, double per_piece, Span<const double> per_unit)
      : p_(relaxed),
        per_unit_(per_unit),
        inside_("inside", relaxed.n_units()),
        taken_("taken", relaxed.class_bytes.size()),
        readers_inside_("readers inside", relaxed.n_tensors()),
        readers_outside_("readers outside", relaxed.n_tensors()),
        sums_("sums", relaxed.n_units() + 1),
        seconds_("seconds", relaxed.n_units() + 1, relaxed.n_sorts()) {
    sums_[0].spent = per_piece;
  }

  void add(Index unit) {
    newly_read_from_.clear();
    sums_[size_ + 1] = sums_[size_];
    for (Index k = 0; k < p_.n_sorts(); ++k) {
      seconds_(size_ + 1, k) = seconds_(size_, k);
      seconds_(size_ + 1, k).compute += p_.time_s(unit, k);
    }
    Sums& now = sums_[++size_];
    inside_[unit] = 1;
    const std::int64_t c = p_.class_of_unit[unit];
    now.unit = unit;
    now.bytes += taken_[c]++ == 0 ? p_.class_bytes[c] : 0.0;
    now.spent += per_unit_[unit];
    now.has_result = now.has_result || p_.successors(unit).size() == 0;
    for (const std::int64_t t : p_.inputs(unit)) read(t);
    for (const std::int64_t t : p_.outputs(unit)) {
      readers_outside_[t] = p_.n_readers(t);
      for (Index k = 0; k < p_.n_sorts(); ++k) seconds_(size_, k).out += p_.out_s(t, k);
    }
  }

  void take_back() {
    const Index unit = top().unit;
    inside_[unit] = 0;
    --taken_[p_.class_of_unit[unit]];
    for (const std::int64_t t : p_.inputs(unit)) {
      if (is_made_inside(t)) {
        ++readers_outside_[t];
      } else {
        --readers_inside_[t];
      }
    }
    --size_;
  }

  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] bool holds(Index unit) const { return inside_[unit] != 0; }
  [[nodiscard]] double spent() const { return top().spent; }
  // Whether nobody reads one of its units.
  [[nodiscard]] bool has_result() const { return top().has_result; }
  // Makers of the tensors that the unit added last was the first to read from outside.
  [[nodiscard]] const std::vector<Index>& newly_read_from() const { return newly_read_from_; }

  struct Seconds {
    double whole = std::numeric_limits<double>::infinity();  // as it stands
    double least = std::numeric_limits<double>::infinity();  // before it sends anything: more units may be added
  };
  // On the best of the sorts whose memory holds it; infinite where there is none.
  [[nodiscard]] Seconds seconds() const {
    Seconds found;
    for (Index k = 0; k < p_.n_sorts(); ++k) {
      if (top().bytes > p_.limit_bytes[k]) continue;
      const SortSeconds& s = seconds_(size_, k);
      found.least = std::min(found.least, s.compute + s.into);
      found.whole = std::min(found.whole, s.compute + s.into + std::max(s.out, 0.0));
    }
    return found;
  }

 private:
  struct Sums {
    Index unit = none;  // the one added last
    double bytes = 0.0;
    double spent = 0.0;
    bool has_result = false;
  };
  struct SortSeconds {
    double compute = 0.0, into = 0.0, out = 0.0;
  };

  [[nodiscard]] const Sums& top() const { return sums_[size_]; }
  [[nodiscard]] bool is_made_inside(Index tensor) const {
    const std::int64_t maker = p_.tensor_producer[tensor];
    return maker != none && inside_[maker] != 0;
  }

  void read(Index t) {
    if (is_made_inside(t)) {
      if (--readers_outside_[t] == 0) {
        for (Index k = 0; k < p_.n_sorts(); ++k) seconds_(size_, k).out -= p_.out_s(t, k);
      }
      return;
    }
    if (readers_inside_[t]++ > 0) return;
    for (Index k = 0; k < p_.n_sorts(); ++k) seconds_(size_, k).into += p_.in_s(t, k);
    if (p_.tensor_producer[t] != none) newly_read_from_.push_back(p_.tensor_producer[t]);
  }

  const Relaxed& p_;
  Span<const double> per_unit_;
  Array<std::uint8_t> inside_;    // [units]
  Array<Index> taken_;            // [classes]: units of it inside
  Array<Index> readers_inside_;   // [tensors] made outside
  Array<Index> readers_outside_;  // [tensors] made inside
  Array<Sums> sums_;              // [units + 1]: with the first units that were added
  Array2d<SortSeconds> seconds_;  // [units + 1, sorts]
  Index size_ = 0;
  std::vector<Index> newly_read_from_;
};

}  // namespace placewright::calls
