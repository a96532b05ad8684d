// What has to be remembered of an ideal: the units in it that are still to be read, and how their times interact.
//
// Those units are the ideal's frontier, one slot each, units rising. Whatever reads a slot's unit later cannot start
// before the latest of the slots in one of the slot's waits (bit sets of slots of the same ideal, none of which holds
// another): its time may be raised to the least of these without changing anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "calls/relaxed.h"
#include "kit/stop.h"
#include "pipeline/lattice.h"

namespace placewright::calls {

class Frontiers {
 public:
  static constexpr Index widest_of_all = 62;  // units that one ideal may have to remember, one bit each

  struct Slot {
    std::int32_t unit;
    std::int32_t n_waits;
    double tail_s;  // least time from the end of the unit to the end of everything
    Index first_wait;
  };

  [[nodiscard]] Index widest() const { return widest_; }
  [[nodiscard]] Index n_ideals() const { return static_cast<Index>(ptr_.size()) - 1; }

  [[nodiscard]] Span<const Slot> slots(Index ideal) const {
    check_index("frontiers", ideal, n_ideals());
    const auto i = static_cast<std::size_t>(ideal);
    return Span<const Slot>("slots", slots_.data(), static_cast<Index>(slots_.size())).part(ptr_[i], ptr_[i + 1]);
  }
  [[nodiscard]] Span<const std::uint64_t> waits(const Slot& slot) const {
    return Span<const std::uint64_t>("waits", waits_.data(), static_cast<Index>(waits_.size()))
        .part(slot.first_wait, slot.first_wait + slot.n_waits);
  }

  // Ideals are added in the order of their numbers: first an ideal's slots, then each slot's waits, then the end.
  void add_slot(std::int32_t unit, double tail_s) { slots_.push_back({unit, 0, tail_s, 0}); }
  [[nodiscard]] Index n_open_slots() const { return static_cast<Index>(slots_.size()) - ptr_.back(); }
  [[nodiscard]] Slot& open_slot(Index number) {
    check_index("open slots", number, n_open_slots());
    return slots_[static_cast<std::size_t>(ptr_.back() + number)];
  }
  void begin_waits(Slot& slot) { slot.first_wait = static_cast<Index>(waits_.size()); }
  // A wait that holds another one of the same slot says nothing.
  void add_wait(Slot& slot, std::uint64_t wait) {
    const auto first = waits_.begin() + slot.first_wait;
    if (std::any_of(first, waits_.end(), [&](std::uint64_t w) { return (w & wait) == w; })) return;
    const auto holds_it = [&](std::uint64_t w) { return (w & wait) == wait; };
    waits_.erase(std::remove_if(first, waits_.end(), holds_it), waits_.end());
    waits_.push_back(wait);
    slot.n_waits = static_cast<std::int32_t>(static_cast<Index>(waits_.size()) - slot.first_wait);
  }
  void end_ideal() {
    widest_ = std::max(widest_, n_open_slots());
    ptr_.push_back(static_cast<Index>(slots_.size()));
  }

 private:
  std::vector<Index> ptr_{0};  // [ideals + 1]
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> waits_;
  Index widest_ = 0;
};

// The frontiers of all ideals, with the tails `edge_s` [edges]; nothing if one is too wide or the time is over.
[[nodiscard]] std::optional<Frontiers> find_frontiers(const Relaxed& relaxed, const pipeline::Lattice& ideals,
                                                      Span<const double> edge_s, Stop& stop);

}  // namespace placewright::calls
