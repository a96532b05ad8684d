// Labels of ideals: what the rest of a solution has to know of the part that an ideal holds.
//
// A label's values are ends: first the latest end of what nobody reads, then, slot by slot, when the units of the
// ideal's frontier end. Its rank is the least value of a solution that begins with it. Labels of one ideal lie one
// behind the other in the order in which they came, and none is nowhere later than another one: add() sees to that. An
// ideal gets no more labels once it is expanded, so the place of a label among those of its ideal is its name from then
// on.
//
// One label per ideal has its place in any case, and `n_spare` more in all. When those are used up, the newest label of
// the ideal is lowered to the minimum of itself and what comes, so that it stands for both: it is *blended*, and what
// is known from then on are bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "kit/array.h"

namespace placewright::calls {

class LabelStore {
 public:
  // The label that another one goes on from.
  struct Origin {
    static constexpr std::int32_t root = -2, blended = -3;  // instead of an ideal: it goes on from no label

    std::int32_t ideal;
    std::int32_t place;
  };

  struct Label {
    double rank;
    double spent;  // of the ration
    Origin origin;
    bool is_on_host;  // how it went on: one unit on the host, or a piece
    bool is_dropped;
  };

  // What add() is offered.
  struct Offer {
    Index ideal;
    Span<const double> value;
    double rank;
    double spent;
    Origin origin;
    bool is_on_host;
  };

  // Labels of up to `most_values` values. Values that differ by up to `tolerance` are equal where a label is dropped
  // for an older one. Where the ration counts, a label that has spent more is no substitute for one that has spent
  // less.
  LabelStore(Index n_ideals, Index most_values, Index width, double tolerance, bool is_rationed)
      : tolerance_(tolerance),
        is_rationed_(is_rationed),
        n_spare_(std::clamp<Index>(most_bytes / (8 * most_values + 30) - n_ideals, 0, n_ideals * (width + 1))),
        lists_("labels of ideals", n_ideals) {
    const double start_s = 0.0;
    insert({0, Span<const double>("root", &start_s, 1), 0.0, 0.0, {Origin::root, 0}, false});
  }

  // The labels of an ideal, the oldest first.
  [[nodiscard]] Span<const Label> of(Index ideal) const {
    const List& list = lists_[ideal];
    return {"labels", list.labels.data(), static_cast<Index>(list.labels.size())};
  }
  [[nodiscard]] Span<const double> values(Index ideal, Index place) const {
    const List& list = lists_[ideal];
    return Span<const double>("values", list.values.data(), static_cast<Index>(list.values.size()))
        .part(place * list.n_values, (place + 1) * list.n_values);
  }
  [[nodiscard]] bool is_any_blended() const { return is_any_blended_; }

  // Add a label to its ideal, unless it is nowhere earlier than one that is there; drop those that are nowhere earlier
  // than it.
  void add(Offer offer) {
    if (!makes_way_for(offer)) return;
    const Index count = of(offer.ideal).size();
    if (count > 0 && n_spare_ <= 0) {
      blend(offer.ideal, count - 1, offer.value, offer.rank, offer.spent);
      return;
    }
    if (count > 0) --n_spare_;
    insert(offer);
  }

  // Let a label stand for another one with these values as well.
  void blend(Index ideal, Index place, Span<const double> value, double rank, double spent) {
    const Span<double> values = lists_[ideal].row(place);
    for (Index i = 0; i < value.size(); ++i) values[i] = std::min(values[i], value[i]);
    Label& kept = lists_[ideal].all()[place];
    kept.rank = std::min(kept.rank, rank);
    kept.spent = std::min(kept.spent, spent);
    kept.origin.ideal = Origin::blended;
    is_any_blended_ = true;
  }

  // Nobody asks for the values of this ideal's labels any more.
  void forget_values(Index ideal) { std::vector<double>().swap(lists_[ideal].values); }

 private:
  static constexpr Index most_bytes = Index{400} << 20;

  struct List {
    std::vector<Label> labels;
    std::vector<double> values;  // rows of n_values
    Index n_values = 0;

    [[nodiscard]] Span<Label> all() { return {"labels", labels.data(), static_cast<Index>(labels.size())}; }
    [[nodiscard]] Span<const double> all_values() const {
      return {"values", values.data(), static_cast<Index>(values.size())};
    }
    [[nodiscard]] Span<double> row(Index place) {
      return Span<double>("values", values.data(), static_cast<Index>(values.size()))
          .part(place * n_values, (place + 1) * n_values);
    }
    void remove_dropped() {
      Index kept = 0;
      for (Index place = 0; place < all().size(); ++place) {
        if (all()[place].is_dropped) continue;
        if (kept < place) {
          all()[kept] = all()[place];
          const Span<double> from = row(place);
          std::copy(from.begin(), from.end(), row(kept).begin());
        }
        ++kept;
      }
      labels.resize(static_cast<std::size_t>(kept));
      values.resize(static_cast<std::size_t>(kept * n_values));
    }
  };

  struct Compared {
    bool is_no_later;  // the old label than the offer
    bool is_no_earlier;
  };

  // Drop labels that are nowhere earlier than the offer; false if the offer is nowhere earlier than one of them. The
  // newest are looked at first: they are the most alike.
  [[nodiscard]] bool makes_way_for(Offer& offer) {
    List& list = lists_[offer.ideal];
    const Span<Label> labels = list.all();
    const Span<const double> values = list.all_values();
    Index n_left = labels.size();
    bool is_wanted = true;
    for (Index place = labels.size() - 1, first = place * list.n_values; place >= 0 && is_wanted;
         --place, first -= list.n_values) {
      Label& old = labels[place];
      const auto [is_no_later, is_no_earlier] = compared(old, values.part(first, first + list.n_values), offer);
      if (!is_no_later && !is_no_earlier) continue;
      // A blended label is earlier than its rank tells: the rank is not that of what it replaces.
      if (is_any_blended_) {
        offer.rank = std::min(offer.rank, old.rank);
        old.rank = offer.rank;
      }
      is_wanted = !is_no_later;
      if (is_wanted) {
        old.is_dropped = true;
        if (--n_left > 0) ++n_spare_;
      }
    }
    if (n_left < labels.size()) list.remove_dropped();
    return is_wanted;
  }

  [[nodiscard]] Compared compared(const Label& old, Span<const double> value, const Offer& offer) const {
    const Span<const double> fresh = offer.value;
    bool is_no_later = std::equal(value.begin(), value.end(), fresh.begin(), fresh.end(),
                                  [late = tolerance_](double a, double b) { return a <= b + late; });
    bool is_no_earlier = std::equal(value.begin(), value.end(), fresh.begin(), fresh.end(), std::greater_equal<>());
    if (is_rationed_ || is_no_earlier) is_no_later = is_no_later && old.spent <= offer.spent;
    if (is_rationed_) is_no_earlier = is_no_earlier && old.spent >= offer.spent;
    return {is_no_later, is_no_earlier};
  }

  void insert(const Offer& offer) {
    List& list = lists_[offer.ideal];
    list.n_values = offer.value.size();
    list.labels.push_back({offer.rank, offer.spent, offer.origin, offer.is_on_host, false});
    list.values.insert(list.values.end(), offer.value.begin(), offer.value.end());
  }

  double tolerance_;
  bool is_rationed_;
  Index n_spare_;
  Array<List> lists_;  // [ideals]
  bool is_any_blended_ = false;
};

}  // namespace placewright::calls
