#include "judge/overlap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace placewright::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_in_host = -1.0;
constexpr std::ptrdiff_t lanes = 4;

}  // namespace

OverlapJudge::OverlapJudge(const Problem& problem)
    : p_(problem),
      routes_(problem),
      ops_("ops", problem.n_ops()),
      devices_("devices", problem.n_devices()),
      next_s_("next_s", (problem.n_devices() + lanes - 1) / lanes * lanes),
      running_("running", problem.n_devices()),
      waiting_{Array<std::int32_t>("run", problem.n_ops()), Array<std::int32_t>("run", problem.n_ops())},
      heap_{Array<std::int32_t>("heap", problem.n_ops()), Array<double>("heap_key", problem.n_ops())},
      future_{Array<std::int32_t>("future", problem.n_ops()), Array<double>("future_key", problem.n_ops())},
      channel_free_s_("channel_free_s", 2 * problem.n_devices()) {}

double OverlapJudge::run(Span<const std::int32_t> device_of_op, Span<const double> priority,
                         const OverlapRecord* record) {
  priority_ = priority;
  record_ = record;
  if (!begin(device_of_op)) return infinity;
  while (true) {
    start_ready_ops();
    if (n_left_ == 0) return now_s_;
    if (!find_next_moment()) return infinity;  // nothing will ever happen: what is left cannot run
    std::int32_t source = running_[here_] != none ? here_ : none;
    if (several_) source = first_ending();
    while (source != none) {
      end_op(source);
      source = are_several_ending_ ? first_ending() : none;
    }
    take_in_future_ops();
  }
}

bool OverlapJudge::begin(Span<const std::int32_t> device_of_op) {
  for (Device& device : devices_) device = {0.0, {}, 0, 0, none};
  next_s_.fill(infinity);
  running_.fill(none);
  channel_free_s_.fill(0.0);
  for (Index v = 0; v < p_.n_ops(); ++v) {
    const std::int32_t d = device_of_op[v];
    const double took_s = p_.op_time_s(v, p_.device_kind[d]);
    if (took_s == infinity) return false;
    ops_[v] = {0.0, took_s, static_cast<std::int32_t>(p_.n_inputs(v)), d};
    ++devices_[d].heap_size;  // for the moment: how many ops it has
  }
  std::int32_t offset = 0;
  for (Device& device : devices_) {
    device.heap_base = offset;
    device.runs = {Run{offset, offset, infinity}, Run{offset, offset, infinity}};
    offset += device.heap_size;
    device.heap_size = 0;
  }
  n_left_ = static_cast<std::int32_t>(p_.n_ops());
  n_future_ = 0;
  now_s_ = 0.0;
  here_ = 0;
  several_ = true;
  for (std::int32_t v = 0; v < p_.n_ops(); ++v) {
    if (ops_[v].pending == 0) {
      next_s_[ops_[v].device] = 0.0;
      wait(v);
    }
  }
  return true;
}

// Give work to devices that are free. A branch that nearly always goes the same way is a cheap one.
void OverlapJudge::start_ready_ops() {
  give_work(here_);
  if (!several_) return;
  for (std::int32_t d = 0; d < devices_.size(); ++d) give_work(d);
}

inline void OverlapJudge::give_work(std::int32_t d) {
  if (!((next_s_.unchecked(d) <= now_s_) & (running_.unchecked(d) == none))) return;
  const std::int32_t op = take_first(devices_.unchecked(d));
  const double end_s = now_s_ + ops_.unchecked(op).took_s;
  running_.unchecked(d) = op;
  next_s_.unchecked(d) = end_s;
  if (record_ != nullptr) {
    record_->start_s[op] = now_s_;
    record_->end_s[op] = end_s;
  }
}

inline std::int32_t OverlapJudge::take_first(Device& device) {
  if (is_heap_first(device)) return pop(heap_, device.heap_base, device.heap_size--);
  const Run &a = device.runs[0], &b = device.runs[1];
  const bool is_first = a.first_s < b.first_s ||
                        (a.first_s == b.first_s && waiting_[0].unchecked(a.head) < waiting_[1].unchecked(b.head));
  return is_first ? take_from_run(device.runs[0], waiting_[0]) : take_from_run(device.runs[1], waiting_[1]);
}

inline std::int32_t OverlapJudge::take_from_run(Run& run, const Array<std::int32_t>& waiting) {
  const std::int32_t op = waiting.unchecked(run.head);
  ++run.head;
  run.first_s = run.head < run.tail ? ops_.unchecked(waiting.unchecked(run.head)).ready_s : infinity;
  return op;
}

inline bool OverlapJudge::is_heap_first(const Device& device) const {
  if (device.heap_size == 0) return false;
  if (priority_.size() > 0) return true;
  const std::int32_t top = heap_.op.unchecked(device.heap_base);
  const double top_s = heap_.key.unchecked(device.heap_base);
  const Run &a = device.runs[0], &b = device.runs[1];
  const double first_s = std::min(a.first_s, b.first_s);
  if (top_s != first_s) return top_s < first_s;
  return !((a.first_s == top_s && waiting_[0].unchecked(a.head) < top) ||
           (b.first_s == top_s && waiting_[1].unchecked(b.head) < top));
}

// False if nothing happens any more.
inline bool OverlapJudge::find_next_moment() {
  // No branch depends on the times, which are as good as random to the processor, and neighbours do not wait for each
  // other: four least times at once, then a bit for each device that is at the least.
  std::array<double, lanes> least = {infinity, infinity, infinity, infinity};
  const auto end = next_s_.end();
  for (auto block = next_s_.begin(); block != end; block += lanes) {
    for (std::ptrdiff_t i = 0; i < lanes; ++i) {
      double& lane = least[static_cast<std::size_t>(i)];
      lane = block[i] < lane ? block[i] : lane;
    }
  }
  now_s_ = std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
  if (n_future_ > 0) now_s_ = std::min(now_s_, ops_.unchecked(future_.op.unchecked(0)).ready_s);
  here_ = 0;
  bool is_one = false, are_several = false;
  for (std::int32_t first = 0; first < next_s_.size(); first += 64) {
    std::uint64_t at_least = 0;
    const std::int32_t n = std::min<std::int32_t>(64, static_cast<std::int32_t>(next_s_.size()) - first);
    const auto block = next_s_.begin() + first;
    for (std::int32_t i = 0; i < n; ++i) at_least |= static_cast<std::uint64_t>(block[i] <= now_s_) << i;
    if (at_least == 0) continue;
    if (!is_one) here_ = first + std::countr_zero(at_least);
    are_several = are_several || is_one || (at_least & (at_least - 1)) != 0;
    is_one = true;
  }
  are_several_ending_ = are_several;
  several_ = are_several || !is_one;
  return now_s_ < infinity;
}

// The device whose op ends now, of least op number if there are several.
inline std::int32_t OverlapJudge::first_ending() const {
  std::int32_t found = none;
  for (std::int32_t d = 0; d < devices_.size(); ++d) {
    if (next_s_.unchecked(d) == now_s_ && running_.unchecked(d) != none &&
        (found == none || running_.unchecked(d) < running_.unchecked(found)))
      found = d;
  }
  return found;
}

inline void OverlapJudge::end_op(std::int32_t source) {
  const Device& device = devices_.unchecked(source);
  const std::int32_t op = running_.unchecked(source);
  running_.unchecked(source) = none;
  --n_left_;
  double next_s = std::min(device.runs[0].first_s, device.runs[1].first_s);
  if (device.heap_size > 0) next_s = std::min(next_s, ops_.unchecked(heap_.op.unchecked(device.heap_base)).ready_s);
  next_s_.unchecked(source) = next_s;
  const std::int32_t last = p_.tensor_ptr.unchecked(op + 1);
  for (std::int32_t t = p_.tensor_ptr.unchecked(op); t < last; ++t) send(t, source);
}

inline void OverlapJudge::send(std::int32_t tensor, std::int32_t source) {
  double in_host_s = not_in_host;
  devices_.unchecked(source).arrival_of = tensor;
  devices_.unchecked(source).arrival_s = now_s_;
  for (const std::int32_t op : p_.unchecked_readers(tensor)) {
    const std::int32_t target = ops_.unchecked(op).device;
    Device& device = devices_.unchecked(target);
    if (device.arrival_of != tensor) {
      const auto booked = [&](const Route& leg, double took_s, double ready_s) {
        return book(leg, took_s, ready_s, tensor);
      };
      const Interval last = routes_.copied(tensor, source, target, now_s_, in_host_s, not_in_host, true, booked);
      device.arrival_of = tensor;
      device.arrival_s = last.end_s;
      if (record_ != nullptr) {
        record_->copies(tensor, 2 * target) = last.start_s;
        record_->copies(tensor, 2 * target + 1) = last.end_s;
      }
    }
    has_arrived(op, device.arrival_s, source);
  }
}

// The start of one leg of a copy; its channels are occupied.
inline double OverlapJudge::book(const Route& leg, double took_s, double ready_s, std::int32_t tensor) {
  if (took_s > 0.0) {
    const std::int32_t one = leg.send_channel, other = leg.receive_channel;
    if (one != none) ready_s = std::max(ready_s, channel_free_s_.unchecked(one));
    if (other != none) ready_s = std::max(ready_s, channel_free_s_.unchecked(other));
    if (one != none) channel_free_s_.unchecked(one) = ready_s + took_s;
    if (other != none) channel_free_s_.unchecked(other) = ready_s + took_s;
  }
  if (record_ != nullptr && leg.way == Way::up) {
    record_->up_legs(tensor, 0) = ready_s;
    record_->up_legs(tensor, 1) = ready_s + took_s;
  }
  return ready_s;
}

inline void OverlapJudge::has_arrived(std::int32_t op, double arrival_s, std::int32_t source) {
  Op& reader = ops_.unchecked(op);
  reader.ready_s = std::max(reader.ready_s, arrival_s);
  if (--reader.pending != 0) return;
  if (priority_.size() > 0 && reader.ready_s > now_s_) {
    push(future_, 0, n_future_++, op, reader.ready_s);
    return;
  }
  wait(op);
  if (running_.unchecked(reader.device) == none) {
    double& next_s = next_s_.unchecked(reader.device);
    next_s = std::min(next_s, reader.ready_s);
    several_ = several_ || (reader.device != source && reader.ready_s <= now_s_);
  }
}

// Add an op to those that wait for its device.
inline void OverlapJudge::wait(std::int32_t op) {
  Device& device = devices_.unchecked(ops_.unchecked(op).device);
  if (priority_.size() > 0) {
    push(heap_, device.heap_base, device.heap_size++, op, priority_[op]);
    return;
  }
  if (append(device.runs[0], waiting_[0], op) || append(device.runs[1], waiting_[1], op)) return;
  push(heap_, device.heap_base, device.heap_size++, op, ops_.unchecked(op).ready_s);
}

// Whether the op may come last in a run; it does then.
inline bool OverlapJudge::append(Run& run, Array<std::int32_t>& waiting, std::int32_t op) {
  const double ready_s = ops_.unchecked(op).ready_s;
  if (run.tail == run.head) {
    run.first_s = ready_s;
  } else {
    const std::int32_t last = waiting.unchecked(run.tail - 1);
    const double last_s = ops_.unchecked(last).ready_s;
    if (!(last_s < ready_s || (last_s == ready_s && last < op))) return false;
  }
  waiting.unchecked(run.tail++) = op;
  return true;
}

void OverlapJudge::take_in_future_ops() {
  while (n_future_ > 0 && ops_.unchecked(future_.op.unchecked(0)).ready_s <= now_s_) {
    const std::int32_t op = pop(future_, 0, n_future_--);
    wait(op);
    const std::int32_t d = ops_.unchecked(op).device;
    if (running_.unchecked(d) == none) {
      next_s_.unchecked(d) = now_s_;
      several_ = true;
    }
  }
}

inline bool OverlapJudge::ready_before(std::int32_t a, std::int32_t b) const {
  return ops_.unchecked(a).ready_s < ops_.unchecked(b).ready_s ||
         (ops_.unchecked(a).ready_s == ops_.unchecked(b).ready_s && a < b);
}

// Add to the heap at `base`, which has `size` entries.
void OverlapJudge::push(Heap& heap, std::int32_t base, std::int32_t size, std::int32_t op, double key) {
  std::int32_t i = size;
  while (i > 0) {
    const std::int32_t parent = (i - 1) / 2;
    const double other = heap.key.unchecked(base + parent);
    if (other < key || (other == key && ready_before(heap.op.unchecked(base + parent), op))) break;
    heap.op.unchecked(base + i) = heap.op.unchecked(base + parent);
    heap.key.unchecked(base + i) = other;
    i = parent;
  }
  heap.op.unchecked(base + i) = op;
  heap.key.unchecked(base + i) = key;
}

// Remove and return the first of the heap at `base`, which has `size` entries (afterwards one less).
std::int32_t OverlapJudge::pop(Heap& heap, std::int32_t base, std::int32_t size) {
  const std::int32_t top = heap.op.unchecked(base), n = size - 1;
  const std::int32_t op = heap.op.unchecked(base + n);
  const double key = heap.key.unchecked(base + n);
  std::int32_t i = 0;
  for (std::int32_t child = 1; child < n; child = 2 * i + 1) {
    if (child + 1 < n) {
      const double left = heap.key.unchecked(base + child), right = heap.key.unchecked(base + child + 1);
      if (right < left ||
          (right == left && ready_before(heap.op.unchecked(base + child + 1), heap.op.unchecked(base + child))))
        ++child;
    }
    const double child_key = heap.key.unchecked(base + child);
    if (key < child_key || (key == child_key && ready_before(op, heap.op.unchecked(base + child)))) break;
    heap.op.unchecked(base + i) = heap.op.unchecked(base + child);
    heap.key.unchecked(base + i) = child_key;
    i = child;
  }
  heap.op.unchecked(base + i) = op;
  heap.key.unchecked(base + i) = key;
  return top;
}

}  // namespace placewright::judge
