// Always take the op and the device that can start first (ETF), with favourite children if there are any (SCT).
//
// The key of an op on a device is its start there plus what its group takes longer there than on its best device; on
// equal devices that is the start. Channels are queues as in the evaluator, but a copy is booked when its reader is
// placed, not when its producer ends: where channels queue, the evaluator's order of copies, and so its times, can
// differ.
//
// Each device has two heaps of ready ops: *waiting* by key, for ops whose inputs come after the device is free, and
// *startable* by (slowness, rank), for the others; so nothing has to be moved when the device's clock moves on.
// Channels make keys grow: an entry is brought up to date when it comes to the top, at most `most_refreshed` per device
// and decision; then the best of those is taken.
//
// An op that has no room on a device just now is parked until a tensor is freed there.

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "kit/copies.h"
#include "kit/heap.h"
#include "overlap/list_schedule.h"

namespace placewright::overlap {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int most_refreshed = 64;

// When channels are free, with a way to try copies and put everything back.
class Channels {
 public:
  explicit Channels(Index n) : free_s_("free_s", n) {}

  // Occupy the channels of a leg, from `ready_s` on; return when it starts.
  double book(const Route& leg, double took_s, double ready_s) {
    if (took_s <= 0.0) return ready_s;
    const std::int32_t one = leg.send_channel, other = leg.receive_channel;
    if (one != none) ready_s = std::max(ready_s, free_s_[one]);
    if (other != none) ready_s = std::max(ready_s, free_s_[other]);
    if (one != none) set(one, ready_s + took_s);
    if (other != none) set(other, ready_s + took_s);
    return ready_s;
  }
  void keep() { before_.clear(); }
  void put_back() {
    for (; !before_.empty(); before_.pop_back()) free_s_[before_.back().channel] = before_.back().free_s;
  }

 private:
  struct Before {
    std::int32_t channel;
    double free_s;
  };

  void set(std::int32_t channel, double free_s) {
    before_.push_back({channel, free_s_[channel]});
    free_s_[channel] = free_s;
  }

  Array<double> free_s_;
  std::vector<Before> before_;  // what put_back restores, oldest first
};

class ByStart {
 public:
  ByStart(const Problem& problem, const ListCosts& costs, Span<const double> rank, Span<const std::int32_t> favourite,
          Given given, ListPlan plan)
      : p_(problem),
        costs_(costs),
        routes_(problem),
        favourite_(favourite),
        plan_(plan),
        device_of_group_(given.device_of_group),
        ledger_(problem, costs, given.device_of_group, given.limit_bytes),
        channels_(2 * problem.n_devices()),
        arrival_s_("arrival_s", problem.n_tensors(), problem.n_devices(), nowhere),
        in_host_s_("in_host_s", problem.n_tensors(), nowhere),
        free_s_("free_s", problem.n_devices()),
        op_at_(ops_by_rank(rank)),
        position_("position", problem.n_ops()),
        pending_("pending", problem.n_ops()),
        placed_("placed", problem.n_ops()),
        slower_s_("slower_s", problem.n_ops(), problem.n_devices()),
        next_member_("next_member", problem.n_ops(), none),
        awaited_("awaited", problem.n_devices(), none),
        queues_(static_cast<std::size_t>(problem.n_devices())) {
    for (Index i = 0; i < p_.n_ops(); ++i) position_[op_at_[i]] = static_cast<std::int32_t>(i);
    note_slowness();
  }

  void run(Stop& stop) {
    for (Index v = 0; v < p_.n_ops(); ++v) {
      pending_[v] = static_cast<std::int32_t>(p_.n_inputs(v));
      if (pending_[v] == 0) becomes_ready(static_cast<std::int32_t>(v));
    }
    for (Index i = 0; i < p_.n_ops(); ++i) {
      stop.poll();
      queue_fresh();
      const Choice choice = best_choice();
      place(choice.op == none ? misfit() : choice);
    }
  }

 private:
  struct Choice {
    std::int32_t op = none;
    std::int32_t device = none;
    double key = infinity;
  };
  // A device's ready ops; heaps hold positions by rank, so that equal keys are settled by rank.
  struct Queue {
    KeyedHeap waiting, startable;
    std::vector<std::int32_t> parked;  // positions
  };

  // What a group loses on a device, as long as it is open; members are chained to forget it when it is decided.
  void note_slowness() {
    Array<std::int32_t> last_member("last_member", p_.n_ops(), none);
    for (std::int32_t v = 0; v < p_.n_ops(); ++v) {
      const std::int32_t group = p_.colocation_first[v];
      if (device_of_group_[group] == none) {
        const Span<const double> time_s = costs_.group_time_s.row(group);
        const double least_s = *std::min_element(time_s.begin(), time_s.end());
        for (Index d = 0; d < p_.n_devices(); ++d) slower_s_(v, d) = time_s[d] - least_s;
      }
      if (group != v) next_member_[last_member[group]] = v;
      last_member[group] = v;
    }
  }

  void becomes_ready(std::int32_t op) {
    fresh_.push_back(op);
    ready_.push(position_[op]);
  }

  void queue_fresh() {
    for (const std::int32_t op : fresh_) {
      for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
        if (!ledger_.may_be_on(op, d)) continue;
        queue(d).waiting.push(position_[op], inputs_there(op, d, false) + slower_s_(op, d));
      }
    }
    fresh_.clear();
  }

  Choice best_choice() {
    Choice chosen;
    for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
      if (ledger_.take_freed(d)) {
        for (const std::int32_t position : queue(d).parked) queue(d).waiting.push(position, 0.0);
        queue(d).parked.clear();
      }
      Choice best = best_on(d);
      const std::int32_t child = awaited_[d];
      if (child != none && best.op != none && best.op != child && pending_[child] == 0 && placed_[child] == 0) {
        const double key = child_waited_for(child, best.op, d);
        if (key < infinity) best = {child, d, key};
      }
      if (best.op == none) continue;
      if (best.key < chosen.key || (best.key == chosen.key && position_[best.op] < position_[chosen.op])) chosen = best;
    }
    return chosen;
  }

  // The device's best op: tops are brought up to date until the better one of both heaps is.
  Choice best_on(std::int32_t d) {
    KeyedHeap& waiting = queue(d).waiting;
    KeyedHeap& startable = queue(d).startable;
    Choice seen;
    int refreshed = 0;
    while (!waiting.empty() || !startable.empty()) {
      const double wait_key = waiting.empty() ? infinity : waiting.top().key;
      const double start_key = startable.empty() ? infinity : free_s_[d] + startable.top().key;
      const bool from_startable =
          start_key < wait_key || (start_key == wait_key && !startable.empty() &&
                                   (waiting.empty() || startable.top().item < waiting.top().item));
      KeyedHeap& heap = from_startable ? startable : waiting;
      const std::int32_t op = op_at_[heap.top().item];
      bool gone = placed_[op] != 0 || !ledger_.may_be_on(op, d), parks = false;
      if (!gone) {
        const MemoryLedger::Missing missing = ledger_.missing(op, d, plan_.device, arrival_s_);
        gone = missing.forever > 0.0;
        parks = missing.now > 0.0;
      }
      if (gone || parks) {
        heap.pop();
        if (!gone) queue(d).parked.push_back(position_[op]);
        continue;
      }
      const double there_s = inputs_there(op, d, false);
      const double key = std::max(there_s, free_s_[d]) + slower_s_(op, d);
      const bool starts_at_once = there_s <= free_s_[d];
      if (from_startable ? starts_at_once : !starts_at_once && key <= wait_key) return {op, d, key};
      heap.pop();
      if (starts_at_once) {
        startable.push(position_[op], slower_s_(op, d));
        continue;
      }
      waiting.push(position_[op], key);
      if (key < seen.key) seen = {op, d, key};
      if (++refreshed == most_refreshed) return seen;
    }
    return {};
  }

  // The start of a favourite for which device `d` is kept free, or infinity if `rival` may be taken before it.
  //
  // The device is awake if the child can start nowhere earlier. A rival is urgent if it could start at once on every
  // device.
  double child_waited_for(std::int32_t child, std::int32_t rival, std::int32_t d) {
    double here_s = infinity, elsewhere_s = infinity;
    for (std::int32_t other = 0; other < p_.n_devices(); ++other) {
      if (!ledger_.may_be_on(child, other)) continue;
      const double there_s = std::max(inputs_there(child, other, false), free_s_[other]) + slower_s_(child, other);
      if (other == d) {
        here_s = there_s;
      } else {
        elsewhere_s = std::min(elsewhere_s, there_s);
      }
    }
    if (here_s == infinity || here_s > elsewhere_s) return infinity;
    if (ledger_.missing(child, d, plan_.device, arrival_s_).now > 0.0) return infinity;
    for (std::int32_t other = 0; other < p_.n_devices(); ++other) {
      if (ledger_.may_be_on(rival, other) && inputs_there(rival, other, false) > free_s_[d]) return here_s;
    }
    return infinity;
  }

  // Nothing has room anywhere: the first in rank goes where least is missing.
  Choice misfit() {
    while (placed_[op_at_[ready_.top()]] != 0) ready_.pop();
    Choice choice;
    choice.op = op_at_[ready_.top()];
    plan_.misfit[p_.colocation_first[choice.op]] = true;
    double least_missing = infinity;
    for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
      if (!ledger_.may_be_on(choice.op, d)) continue;
      const double missing = ledger_.missing(choice.op, d, plan_.device, arrival_s_).now;
      if (missing < least_missing) {
        choice.device = d;
        least_missing = missing;
      }
    }
    return choice;
  }

  void place(Choice choice) {
    const std::int32_t op = choice.op, d = choice.device, group = p_.colocation_first[op];
    if (device_of_group_[group] == none) {
      for (std::int32_t member = group; member != none; member = next_member_[member]) {
        for (Index other = 0; other < p_.n_devices(); ++other) slower_s_(member, other) = 0.0;
      }
    }
    ledger_.take(op, d, plan_.device, arrival_s_);
    plan_.start_s[op] = std::max(inputs_there(op, d, true), free_s_[d]);
    plan_.device[op] = d;
    plan_.finish_s[op] = plan_.start_s[op] + costs_.time_s(op, d);
    placed_[op] = 1;
    free_s_[d] = plan_.finish_s[op];
    awaited_[d] = favourite_[op];
    ledger_.free_inputs(op, plan_.device, arrival_s_);
    for (Index t = p_.tensor_ptr[op]; t < p_.tensor_ptr[op + 1]; ++t) {
      for (const std::int32_t reader : p_.readers(t)) {
        if (--pending_[reader] == 0) becomes_ready(reader);
      }
    }
  }

  // When all inputs of an op are on device `d`; `keep` books the copies, otherwise the channels are put back.
  double inputs_there(std::int32_t op, std::int32_t d, bool keep) {
    double latest_s = 0.0;
    for (const std::int32_t t : p_.inputs(op)) {
      const std::int32_t s = plan_.device[p_.tensor_producer[t]];
      double there_s = plan_.finish_s[p_.tensor_producer[t]];
      if (s != d) {
        there_s = arrival_s_(t, d) != nowhere ? arrival_s_(t, d) : arrival(t, s, d, there_s, keep);
        if (keep) arrival_s_(t, d) = there_s;
      }
      latest_s = std::max(latest_s, there_s);
    }
    if (keep) {
      channels_.keep();
    } else {
      channels_.put_back();
    }
    return latest_s;
  }

  double arrival(std::int32_t t, std::int32_t s, std::int32_t d, double made_s, bool keep) {
    const auto book = [&](const Route& leg, double took_s, double ready_s) {
      return channels_.book(leg, took_s, ready_s);
    };
    return routes_.copied(t, s, d, made_s, in_host_s_[t], nowhere, keep, book).end_s;
  }

  Queue& queue(std::int32_t d) { return queues_.at(static_cast<std::size_t>(d)); }

  const Problem& p_;
  const ListCosts& costs_;
  Routes routes_;
  Span<const std::int32_t> favourite_;
  ListPlan plan_;
  Span<std::int32_t> device_of_group_;
  MemoryLedger ledger_;
  Channels channels_;
  Array2d<double> arrival_s_;  // [tensors, devices]
  Array<double> in_host_s_;    // [tensors]
  Array<double> free_s_;       // [devices]
  Array<std::int32_t> op_at_;  // by position
  Array<std::int32_t> position_, pending_;
  Array<std::uint8_t> placed_;
  Array2d<double> slower_s_;
  Array<std::int32_t> next_member_, awaited_;
  std::vector<Queue> queues_;
  std::vector<std::int32_t> fresh_;  // ready, not in any queue yet
  // All that are ready, by position, for the case that memory lets none start.
  std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> ready_;
};

}  // namespace

void schedule_by_start(const Problem& problem, const ListCosts& costs, Span<const double> rank,
                       Span<const std::int32_t> favourite, Given given, ListPlan plan, Stop& stop) {
  ByStart(problem, costs, rank, favourite, given, plan).run(stop);
}

}  // namespace placewright::overlap
