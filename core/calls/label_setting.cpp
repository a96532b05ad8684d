#include "calls/label_setting.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "calls/growing_piece.h"
#include "calls/label_store.h"
#include "kit/array.h"

namespace placewright::calls {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double same = 1e-13;  // labels this close, relative to the cutoff, are taken for equal

class LabelSetting {
 public:
  LabelSetting(const Relaxed& relaxed, const pipeline::Lattice& ideals, const Frontiers& frontiers,
               const LabelQuestion& question)
      : p_(relaxed),
        ideals_(ideals),
        frontiers_(frontiers),
        question_(question),
        no_ration_("no ration", relaxed.n_units()),
        ration_(question.ration.value_or(Ration{1.0, no_ration_.view(), infinity})),
        store_(ideals.n_ideals(), frontiers.widest() + 1, question.width,
               std::isfinite(question.cutoff) ? same * question.cutoff : 0.0, question.ration.has_value()),
        piece_(relaxed, ration_.per_piece, ration_.per_unit),
        visited_for_("visited for", ideals.n_ideals(), none),
        end_of_("end_of", relaxed.n_units()),
        walk_("walk", relaxed.n_units() + 1),
        source_("source", frontiers.widest() + 1),
        fresh_("fresh", frontiers.widest() + 1) {}

  LabelAnswer run(Stop& stop) {
    Index done = 0;
    while (done < ideals_.n_ideals() && expand(done, stop)) ++done;
    const bool is_finished = done == ideals_.n_ideals();
    const double least = least_rank(std::min(done, ideals_.n_ideals() - 1));
    // Dropping a label for one that is later by a hair loses that hair at most once per unit.
    const double bound = std::min(question_.cutoff, least) * (1 - same * static_cast<double>(p_.n_units() + 10));
    auto solution = is_finished && least < question_.cutoff ? best_solution() : std::nullopt;
    return {bound, std::move(solution), is_finished, store_.is_any_blended(), n_visits_};
  }

 private:
  // One ideal on the walk away from the one that is expanded.
  struct Step {
    Index ideal;
    Index edge;             // the next one to take
    Array<double> start_s;  // [labels]: when the piece so far can start
  };

  [[nodiscard]] Span<const std::int32_t> places() const {
    return {"places", places_.data(), static_cast<Index>(places_.size())};
  }

  // Go on from all labels of an ideal with one host unit or one piece; false if the time is over.
  bool expand(Index ideal, Stop& stop) {
    gather(ideal);
    if (places_.empty()) return true;
    expanded_ = ideal;
    const auto slots = frontiers_.slots(ideal);
    for (Index i = 0; i < slots.size(); ++i) end_of_[slots[i].unit] = i + 1;
    walk_[0] = {ideal, ideals_.edge_ptr[ideal], Array<double>("start_s", places().size())};
    while (true) {
      Step& step = walk_[piece_.size()];
      if (step.edge == ideals_.edge_ptr[step.ideal + 1]) {
        if (piece_.size() == 0) break;
        piece_.take_back();
        continue;
      }
      const Index edge = step.edge++;
      const std::int32_t target = ideals_.edge_target[edge];
      if (visited_for_[target] == ideal) continue;
      visited_for_[target] = static_cast<std::int32_t>(ideal);
      ++n_visits_;
      if (stop.poll()) return false;
      if (!go_on(ideals_.edge_unit[edge], target, stop)) piece_.take_back();
      if (stop.is_over()) return false;
    }
    store_.forget_values(ideal);
    return true;
  }

  // The labels of an ideal, the newest first, or by rank if there are too many; then the last that is kept stands for
  // the rest.
  void gather(Index ideal) {
    const auto labels = store_.of(ideal);
    places_.resize(static_cast<std::size_t>(labels.size()));
    std::iota(places_.rbegin(), places_.rend(), 0);
    if (labels.size() <= question_.width) return;
    std::stable_sort(places_.begin(), places_.end(),
                     [&](std::int32_t a, std::int32_t b) { return labels[a].rank < labels[b].rank; });
    const std::int32_t kept = places()[question_.width - 1];
    for (const std::int32_t place : places().part(question_.width, labels.size())) {
      store_.blend(ideal, kept, store_.values(ideal, place), labels[place].rank, labels[place].spent);
    }
    places_.resize(static_cast<std::size_t>(question_.width));
  }

  // Add a unit to the piece, which leads to `target`; false if nothing below the cutoff begins so.
  bool go_on(Index unit, std::int32_t target, Stop& stop) {
    const Array<double>& before_s = walk_[piece_.size()].start_s;
    piece_.add(unit);
    Step& step = walk_[piece_.size()];
    step.ideal = target;
    step.edge = ideals_.edge_ptr[target];
    step.start_s = before_s;
    for (const Index maker : piece_.newly_read_from()) delay(step.start_s, end_of_[maker]);

    double earliest_s = infinity;
    for (const double start_s : step.start_s) earliest_s = std::min(earliest_s, start_s);
    const GrowingPiece::Seconds seconds = piece_.seconds();
    const auto slots = frontiers_.slots(target);
    for (Index i = 0; i < slots.size(); ++i) {
      source_[i + 1] = piece_.holds(slots[i].unit) ? 0 : end_of_[slots[i].unit];
    }
    add_labels(target, step.start_s, seconds.whole, none, stop);
    if (piece_.size() == 1) add_labels(target, step.start_s, p_.host_time_s[unit], unit, stop);
    return !(earliest_s + seconds.least + question_.open_s[unit] >= question_.cutoff);
  }

  // Nothing starts before what this value of the labels says.
  void delay(Array<double>& start_s, Index value) const {
    for (Index i = 0; i < start_s.size(); ++i) {
      start_s[i] = std::max(start_s[i], store_.values(expanded_, places()[i])[value]);
    }
  }

  // Go on to `target` from each label, as a piece or as one unit on the host (none: a piece).
  void add_labels(std::int32_t target, const Array<double>& start_s, double took_s, Index host_unit, Stop& stop) {
    if (took_s == infinity) return;
    const bool is_on_host = host_unit != none;
    const double host_ready_s = is_on_host ? p_.host_ready_s[host_unit] : 0.0;
    const double spends = is_on_host ? 0.0 : piece_.spent();
    const auto labels = store_.of(expanded_);
    const auto slots = frontiers_.slots(target);
    const auto fresh = fresh_.view().part(0, slots.size() + 1);
    for (Index i = 0; i < start_s.size(); ++i) {
      if (stop.poll()) return;
      const std::int32_t place = places()[i];
      const LabelStore::Label& old = labels[place];
      const double finish_s = (is_on_host ? std::max(start_s[i], host_ready_s) : start_s[i]) + took_s;
      const double spent = old.spent + spends;
      if (finish_s >= question_.cutoff || spent > ration_.limit) continue;
      const double rank = std::max(set_values(fresh, slots, store_.values(expanded_, place), finish_s), old.rank);
      if (rank >= question_.cutoff) continue;
      store_.add({target, fresh, rank, spent, {static_cast<std::int32_t>(expanded_), place}, is_on_host});
    }
  }

  // Writes the values of a label with these slots, all that is new having ended at `finish_s`; returns the least value
  // that a solution can have with them.
  [[nodiscard]] double set_values(Span<double> fresh, Span<const Frontiers::Slot> slots, Span<const double> old,
                                  double finish_s) const {
    fresh[0] = piece_.has_result() ? std::max(old[0], finish_s) : old[0];
    for (Index i = 1; i < fresh.size(); ++i) fresh[i] = source_[i] == 0 ? finish_s : old[source_[i]];
    double least = fresh[0];
    for (Index i = 0; i < slots.size(); ++i) {
      double waited_s = infinity;
      for (const std::uint64_t wait : frontiers_.waits(slots[i])) waited_s = std::min(waited_s, latest_of(fresh, wait));
      fresh[i + 1] = std::max(fresh[i + 1], waited_s);
      least = std::max(least, fresh[i + 1] + slots[i].tail_s);
    }
    return least;
  }

  [[nodiscard]] static double latest_of(Span<const double> ends, std::uint64_t wait) {
    double latest_s = 0.0;
    for (; wait != 0; wait &= wait - 1) latest_s = std::max(latest_s, ends[std::countr_zero(wait) + 1]);
    return latest_s;
  }

  // The least rank of all labels from an ideal on.
  [[nodiscard]] double least_rank(Index first_ideal) const {
    double least = infinity;
    for (Index ideal = first_ideal; ideal < ideals_.n_ideals(); ++ideal) {
      for (const LabelStore::Label& label : store_.of(ideal)) least = std::min(least, label.rank);
    }
    return least;
  }

  // The best label of the last ideal (the newest of equal ones), followed back to the root; nothing if a blended one is
  // met.
  [[nodiscard]] std::optional<LabelSolution> best_solution() const {
    Index ideal = ideals_.n_ideals() - 1;
    const LabelStore::Label* label = nullptr;
    for (const LabelStore::Label& other : store_.of(ideal)) {
      if (label == nullptr || other.rank <= label->rank) label = &other;
    }
    LabelSolution found{label->rank, {}};
    while (label->origin.ideal >= 0) {
      const LabelStore::Origin origin = label->origin;
      found.groups.push_back({units_between(origin.ideal, ideal), label->is_on_host});
      ideal = origin.ideal;
      label = &store_.of(ideal)[origin.place];
    }
    if (label->origin.ideal != LabelStore::Origin::root) return std::nullopt;
    std::reverse(found.groups.begin(), found.groups.end());
    return found;
  }

  [[nodiscard]] std::vector<std::int32_t> units_between(Index before, Index after) const {
    Array<std::uint8_t> is_old("is_old", p_.n_units());
    ideals_.for_each_unit(before, [&](Index u) { is_old[u] = 1; });
    std::vector<std::int32_t> units;
    ideals_.for_each_unit(after, [&](Index u) {
      if (is_old[u] == 0) units.push_back(static_cast<std::int32_t>(u));
    });
    std::sort(units.begin(), units.end());
    return units;
  }

  const Relaxed& p_;
  const pipeline::Lattice& ideals_;
  const Frontiers& frontiers_;
  const LabelQuestion& question_;
  Array<double> no_ration_;
  Ration ration_;
  LabelStore store_;
  GrowingPiece piece_;
  Array<std::int32_t> visited_for_;   // [ideals]: the ideal in whose expansion one was met last
  Index expanded_ = none;             // the ideal that is expanded
  std::vector<std::int32_t> places_;  // of its labels
  Array<Index> end_of_;               // [units]: which of their values is its end
  Array<Step> walk_;                  // [units + 1]
  Array<Index> source_;               // per value of the target: which value of the old label it is, 0 for new units
  Array<double> fresh_;
  Index n_visits_ = 0;
};

}  // namespace

LabelAnswer solve_labels(const Relaxed& relaxed, const pipeline::Lattice& ideals, const Frontiers& frontiers,
                         const LabelQuestion& question, Stop& stop) {
  return LabelSetting(relaxed, ideals, frontiers, question).run(stop);
}

}  // namespace placewright::calls
