#include "pipeline/not_contiguous/frontier_labels.h"

#include <algorithm>
#include <numeric>

namespace placewright::not_contiguous {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Label {
  std::int32_t state;
  double load;
  double worth;  // worth <= hope <= worth + blur, however many merges there were on the path
  double hope;
  std::int32_t source;  // the label of the step before
  bool is_inside;       // whether the unit of this step was taken in
};

// What has to be kept of a step to find the path back.
struct Trace {
  std::int32_t source;
  bool is_inside;
};

class LabelSearch {
 public:
  LabelSearch(const Frontiers& frontiers, const Pricing& pricing, Span<const double> multipliers,
              Span2d<const double> completions, const LabelLimits& limits)
      : frontiers_(frontiers),
        pricing_(pricing),
        multipliers_(multipliers),
        completions_(completions),
        limits_(limits) {}

  LabelAnswer run(Span<bool> member, Stop& stop) {
    labels_ = {{0, 0.0, 0.0, 0.0, none, false}};
    std::int64_t used = 0;
    for (const std::int32_t unit : frontiers_.order) {
      if (!extend(unit, stop)) return {false, infinity, -infinity};
      if (labels_.empty()) return {true, limits_.floor, -infinity};
      used += static_cast<std::int64_t>(labels_.size());
      if (used > limits_.n_labels) return {false, infinity, -infinity};
      std::vector<Trace>& step = history_.emplace_back();
      step.reserve(labels_.size());
      for (const Label& label : labels_) step.push_back({label.source, label.is_inside});
    }
    return answer(member);
  }

 private:
  // Decide one unit for every label: what is then within the limit, may beat the floor and is not dominated.
  // False: the time is over.
  bool extend(std::int32_t unit, Stop& stop) {
    made_.clear();
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (stop.poll()) return false;
      for (Index side = 0; side < 2; ++side) consider(static_cast<std::int32_t>(i), unit, side);
    }
    rank_.resize(made_.size());
    std::iota(rank_.begin(), rank_.end(), std::size_t{0});
    std::stable_sort(rank_.begin(), rank_.end(), [&](std::size_t a, std::size_t b) {
      return made_[a].state != made_[b].state ? made_[a].state < made_[b].state : made_[a].load < made_[b].load;
    });
    labels_.clear();
    for (const std::size_t i : rank_) {
      // A label that is no lighter than another of its state, and worth at most `blur` more, is merged into that one.
      if (!labels_.empty() && labels_.back().state == made_[i].state &&
          made_[i].hope <= labels_.back().worth + limits_.blur) {
        labels_.back().hope = std::max(labels_.back().hope, made_[i].hope);
      } else {
        labels_.push_back(made_[i]);
      }
    }
    return true;
  }

  void consider(std::int32_t source, std::int32_t unit, Index side) {
    const Label& label = labels_[static_cast<std::size_t>(source)];
    const std::int32_t target = frontiers_.child(side, label.state);
    if (target == none) return;
    const bool is_inside = side == 1;
    const double load = label.load + frontiers_.cost(side, label.state) + (is_inside ? pricing_.time_s[unit] : 0.0);
    if (!(load <= limits_.load)) return;
    const double gained = is_inside ? pricing_.price[unit] : 0.0;
    const double hope = label.hope + gained;
    for (Index k = 0; k < multipliers_.size(); ++k) {
      if (!(hope + completions_(k, target) + multipliers_[k] * (limits_.load - load) > limits_.floor)) return;
    }
    made_.push_back({target, load, label.worth + gained, hope, source, is_inside});
  }

  LabelAnswer answer(Span<bool> member) const {
    std::size_t best = 0;
    double hope = -infinity;
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      if (labels_[i].worth > labels_[best].worth) best = i;
      hope = std::max(hope, labels_[i].hope);
    }
    std::size_t at = best;
    for (Index step = frontiers_.n_steps() - 1; step >= 0; --step) {
      const Trace& trace = history_[static_cast<std::size_t>(step)].at(at);
      member[frontiers_.order[step]] = trace.is_inside;
      at = static_cast<std::size_t>(trace.source);
    }
    return {true, std::max(limits_.floor, hope), labels_[best].worth};
  }

  const Frontiers& frontiers_;
  const Pricing& pricing_;
  Span<const double> multipliers_;
  Span2d<const double> completions_;
  const LabelLimits& limits_;
  std::vector<Label> labels_, made_;
  std::vector<std::size_t> rank_;
  std::vector<std::vector<Trace>> history_;
};

}  // namespace

double best_completions(const Frontiers& frontiers, const Pricing& pricing, double multiplier, Span<double> best) {
  const Index steps = frontiers.n_steps();
  for (Index state = frontiers.ptr[steps]; state < frontiers.ptr[steps + 1]; ++state) best[state] = 0.0;
  for (Index step = steps - 1; step >= 0; --step) {
    const std::int32_t unit = frontiers.order[step];
    const double gain = pricing.price[unit] - multiplier * pricing.time_s[unit];
    for (Index state = frontiers.ptr[step]; state < frontiers.ptr[step + 1]; ++state) {
      double value = best[frontiers.child(0, state)] - multiplier * frontiers.cost(0, state);
      const std::int32_t inside = frontiers.child(1, state);
      if (inside != none) value = std::max(value, best[inside] - multiplier * frontiers.cost(1, state) + gain);
      best[state] = value;
    }
  }
  return best[0];
}

LabelAnswer best_set(const Frontiers& frontiers, const Pricing& pricing, Span<const double> multipliers,
                     Span2d<const double> completions, const LabelLimits& limits, Span<bool> member, Stop& stop) {
  return LabelSearch(frontiers, pricing, multipliers, completions, limits).run(member, stop);
}

}  // namespace placewright::not_contiguous
