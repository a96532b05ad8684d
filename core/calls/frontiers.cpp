#include "calls/frontiers.h"

#include "kit/array.h"

namespace placewright::calls {
namespace {

// Which units can be reached from which: one bit for each pair.
class Reach {
 public:
  Reach(const Relaxed& relaxed, Stop& stop) : bits_("reach", relaxed.n_units(), relaxed.n_units() / 64 + 1) {
    for (Index u = relaxed.n_units() - 1; u >= 0 && !stop.poll(); --u) {
      for (const std::int64_t v : relaxed.successors(u)) {
        bits_(u, v / 64) |= std::uint64_t{1} << (v % 64);
        for (Index i = v / 64; i < bits_.columns(); ++i) bits_(u, i) |= bits_(v, i);
      }
    }
  }
  // Whether a path leads from u to v.
  [[nodiscard]] bool leads(Index u, Index v) const { return (bits_(u, v / 64) >> (v % 64) & 1) != 0; }

 private:
  Array2d<std::uint64_t> bits_;
};

class FrontierFinder {
 public:
  FrontierFinder(const Relaxed& relaxed, const pipeline::Lattice& ideals, Span<const double> edge_s, Stop& stop)
      : p_(relaxed), ideals_(ideals), edge_s_(edge_s), reach_(relaxed, stop), inside_("inside", relaxed.n_units()) {}

  [[nodiscard]] std::optional<Frontiers> run(Stop& stop) {
    Frontiers found;
    for (Index ideal = 0; ideal < ideals_.n_ideals(); ++ideal) {
      if (stop.poll()) return std::nullopt;
      inside_.fill(0);
      ideals_.for_each_unit(ideal, [&](Index u) { inside_[u] = 1; });
      add_slots(found);
      if (found.n_open_slots() > Frontiers::widest_of_all) return std::nullopt;
      for (Index i = 0; i < found.n_open_slots(); ++i) add_waits(found, found.open_slot(i));
      found.end_ideal();
    }
    return found;
  }

 private:
  void add_slots(Frontiers& found) const {
    for (Index u = 0; u < p_.n_units(); ++u) {
      if (inside_[u] == 0) continue;
      double longest_s = -1.0;
      for (Index edge = p_.successor_ptr[u]; edge < p_.successor_ptr[u + 1]; ++edge) {
        if (inside_[p_.successor[edge]] == 0) longest_s = std::max(longest_s, edge_s_[edge]);
      }
      if (longest_s >= 0.0) found.add_slot(static_cast<std::int32_t>(u), longest_s);
    }
  }

  // A reader outside waits for all slots that lead to it.
  void add_waits(Frontiers& found, Frontiers::Slot& slot) const {
    found.begin_waits(slot);
    for (const std::int64_t v : p_.successors(slot.unit)) {
      if (inside_[v] != 0) continue;
      std::uint64_t wait = 0;
      for (Index i = 0; i < found.n_open_slots(); ++i) {
        if (reach_.leads(found.open_slot(i).unit, v)) wait |= std::uint64_t{1} << i;
      }
      found.add_wait(slot, wait);
    }
  }

  const Relaxed& p_;
  const pipeline::Lattice& ideals_;
  Span<const double> edge_s_;
  Reach reach_;
  Array<std::uint8_t> inside_;  // [units]: is it in the ideal?
};

}  // namespace

std::optional<Frontiers> find_frontiers(const Relaxed& relaxed, const pipeline::Lattice& ideals,
                                        Span<const double> edge_s, Stop& stop) {
  return FrontierFinder(relaxed, ideals, edge_s, stop).run(stop);
}

}  // namespace placewright::calls
