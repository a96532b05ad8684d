// Place ops one by one in the order of a rank, each where it would end first (HEFT, PEFT, CPOP).
//
// Ops go into gaps of the devices' lines, and copies into gaps that the sender's and the receiver's channel have in
// common; through host memory a tensor goes up once and comes down once per destination. The evaluator books copies
// when their producer ends and never lets a device wait for an op while another one is ready, so its times can differ
// from the planned ones: they are equal where no copies queue and no device idles beside a ready op.

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <vector>

#include "kit/copies.h"
#include "overlap/busy_lines.h"
#include "overlap/list_schedule.h"

namespace placewright::overlap {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class ByRank {
 public:
  ByRank(const Problem& problem, const ListCosts& costs, Given given, ListPlan plan)
      : p_(problem),
        costs_(costs),
        routes_(problem),
        plan_(plan),
        device_of_group_(given.device_of_group),
        ledger_(problem, costs, given.device_of_group, given.limit_bytes),
        lines_(3 * problem.n_devices(), problem.n_ops() + 3 * problem.consumer_op.size()),
        arrival_s_("arrival_s", problem.n_tensors(), problem.n_devices(), nowhere),
        in_host_s_("in_host_s", problem.n_tensors(), nowhere),
        tried_end_s_("tried_end_s", 3 * problem.n_devices()),
        tried_in_("tried_in", 3 * problem.n_devices(), none),
        inputs_("inputs", problem.most_inputs()) {}

  void run(Span<const double> rank, Span2d<const double> extra_s, Span<const std::int32_t> preferred, Stop& stop) {
    const Array<std::int32_t> by_rank = ops_by_rank(rank);
    Array<std::int32_t> position("position", p_.n_ops()), pending("pending", p_.n_ops());
    for (Index i = 0; i < p_.n_ops(); ++i) position[by_rank[i]] = static_cast<std::int32_t>(i);
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready;
    for (Index v = 0; v < p_.n_ops(); ++v) {
      pending[v] = static_cast<std::int32_t>(p_.n_inputs(v));
      if (pending[v] == 0) ready.push(position[v]);
    }
    while (!ready.empty()) {
      stop.poll();
      const std::int32_t op = by_rank[ready.top()];
      ready.pop();
      place(op, extra_s, preferred[op]);
      for (Index t = p_.tensor_ptr[op]; t < p_.tensor_ptr[op + 1]; ++t) {
        for (const std::int32_t reader : p_.readers(t)) {
          if (--pending[reader] == 0) ready.push(position[reader]);
        }
      }
    }
  }

 private:
  void place(std::int32_t op, Span2d<const double> extra_s, std::int32_t preferred) {
    const std::int32_t group = p_.colocation_first[op];
    sort_inputs(op);
    std::int32_t chosen = none, fallback = none;
    double chosen_score = infinity, least_missing = infinity;
    for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
      if (!ledger_.may_be_on(op, d)) continue;
      const double missing = ledger_.missing(op, d, plan_.device, arrival_s_).now;
      if (missing > 0.0) {
        if (missing < least_missing || fallback == none) {
          fallback = d;
          least_missing = missing;
        }
        continue;
      }
      const double time_s = costs_.time_s(op, d);
      double score = lines_.first_gap(d, inputs_there(d, false), time_s) + time_s;
      score += extra_s(op, d);
      if (device_of_group_[group] == none) score += costs_.group_time_s(group, d) - time_s;
      if (d == preferred) score = -infinity;
      if (score < chosen_score) {
        chosen = d;
        chosen_score = score;
      }
    }
    if (chosen == none) {
      chosen = fallback;
      plan_.misfit[group] = true;
    }
    ledger_.take(op, chosen, plan_.device, arrival_s_);
    const double time_s = costs_.time_s(op, chosen);
    const double start_s = lines_.first_gap(chosen, inputs_there(chosen, true), time_s);
    plan_.start_s[op] = start_s;
    plan_.device[op] = chosen;
    plan_.finish_s[op] = start_s + time_s;
    lines_.occupy(chosen, start_s, start_s + time_s);
    ledger_.free_inputs(op, plan_.device, arrival_s_);
  }

  // The op's inputs by the time at which they are made, as the evaluator sends them.
  void sort_inputs(std::int32_t op) {
    n_inputs_ = 0;
    for (const std::int32_t t : p_.inputs(op)) {
      Index k = n_inputs_++;
      for (; k > 0 && made_s(inputs_[k - 1]) > made_s(t); --k) inputs_[k] = inputs_[k - 1];
      inputs_[k] = t;
    }
  }

  [[nodiscard]] double made_s(std::int32_t tensor) const { return plan_.finish_s[p_.tensor_producer[tensor]]; }

  // When all inputs of the op are on device `d`; `keep` books the copies that this needs.
  double inputs_there(std::int32_t d, bool keep) {
    ++attempt_;
    double latest_s = 0.0;
    for (Index k = 0; k < n_inputs_; ++k) {
      const std::int32_t t = inputs_[k], s = plan_.device[p_.tensor_producer[t]];
      double there_s = made_s(t);
      if (s != d) {
        there_s = arrival_s_(t, d) != nowhere ? arrival_s_(t, d) : arrival(t, s, d, keep);
        if (keep) arrival_s_(t, d) = there_s;
      }
      latest_s = std::max(latest_s, there_s);
    }
    return latest_s;
  }

  double arrival(std::int32_t t, std::int32_t s, std::int32_t d, bool keep) {
    const auto book = [&](const Route& leg, double took_s, double ready_s) {
      return start_of(leg, took_s, ready_s, keep);
    };
    return routes_.copied(t, s, d, made_s(t), in_host_s_[t], nowhere, keep, book).end_s;
  }

  // The start of one leg of a copy. Copies that are tried for the same op queue behind each other: `tried_end_s_` holds
  // their ends on the channels that are marked with this attempt.
  double start_of(const Route& leg, double took_s, double ready_s, bool keep) {
    std::int32_t one = line_of(leg.send_channel), other = line_of(leg.receive_channel);
    if (took_s <= 0.0 || (one == none && other == none)) return ready_s;
    if (one == none) std::swap(one, other);
    if (tried_in_[one] == attempt_) ready_s = std::max(ready_s, tried_end_s_[one]);
    double start_s = 0.0;
    if (other == none) {
      start_s = lines_.first_gap(one, ready_s, took_s);
    } else {
      if (tried_in_[other] == attempt_) ready_s = std::max(ready_s, tried_end_s_[other]);
      start_s = lines_.first_common_gap(one, other, ready_s, took_s);
      try_until(other, start_s, start_s + took_s, keep);
    }
    try_until(one, start_s, start_s + took_s, keep);
    return start_s;
  }

  // Lines of channels come after those of devices.
  [[nodiscard]] std::int32_t line_of(std::int32_t channel) const {
    return channel == none ? none : static_cast<std::int32_t>(p_.n_devices()) + channel;
  }

  void try_until(std::int32_t channel, double start_s, double end_s, bool keep) {
    tried_end_s_[channel] = end_s;
    tried_in_[channel] = attempt_;
    if (keep) lines_.occupy(channel, start_s, end_s);
  }

  const Problem& p_;
  const ListCosts& costs_;
  Routes routes_;
  ListPlan plan_;
  Span<std::int32_t> device_of_group_;
  MemoryLedger ledger_;
  BusyLines lines_;
  Array2d<double> arrival_s_;  // [tensors, devices]
  Array<double> in_host_s_;    // [tensors]
  Array<double> tried_end_s_;
  Array<std::int64_t> tried_in_;
  Array<std::int32_t> inputs_;
  Index n_inputs_ = 0;
  std::int64_t attempt_ = 0;
};

}  // namespace

Array<std::int32_t> ops_by_rank(Span<const double> rank) {
  Array<std::int32_t> ops("ops_by_rank", rank.size());
  std::iota(ops.begin(), ops.end(), 0);
  std::stable_sort(ops.begin(), ops.end(), [&](std::int32_t a, std::int32_t b) { return rank[a] > rank[b]; });
  return ops;
}

void schedule_by_rank(const Problem& problem, const ListCosts& costs, Span<const double> rank,
                      Span2d<const double> extra_s, Span<const std::int32_t> preferred, Given given, ListPlan plan,
                      Stop& stop) {
  ByRank(problem, costs, given, plan).run(rank, extra_s, preferred, stop);
}

}  // namespace placewright::overlap
