#include "judge/sequential.h"

#include <algorithm>

namespace placewright::judge {

double copies_total(const Problem& problem, Span<const std::int32_t> device_of_op, Span<double> per_device) {
  double total = 0.0;
  std::fill(per_device.begin(), per_device.end(), 0.0);
  Array<std::int32_t> last("last", problem.n_devices(), none);
  for (std::int32_t t = 0; t < problem.n_tensors(); ++t) {
    const std::int32_t s = device_of_op[problem.tensor_producer[t]];
    bool is_in_host = false;
    last[s] = t;
    for (const std::int32_t reader : problem.readers(t)) {
      const std::int32_t d = device_of_op[reader];
      if (last[d] == t) continue;
      last[d] = t;
      double took_s = 0.0;
      const std::int32_t direct = problem.direct(s, d), up = problem.to_host[s], down = problem.from_host[d];
      if (direct != none) {
        took_s = problem.copy_s(t, direct);
      } else {
        if (!is_in_host && up != none) {
          total += problem.copy_s(t, up);
          per_device[s] += problem.copy_s(t, up);
        }
        is_in_host = true;
        if (down != none) took_s = problem.copy_s(t, down);
      }
      total += took_s;
      per_device[d] += took_s;
    }
  }
  return total;
}

SegmentFinder::SegmentFinder(const Problem& problem)
    : p_(problem),
      pending_("pending", problem.n_ops()),
      below_("below", problem.n_ops()),
      trial_("trial", problem.n_ops()),
      top_("top", problem.n_devices()),
      n_ready_("n_ready", problem.n_devices()),
      has_source_("has_source", problem.n_devices()),
      seen_("seen", problem.n_ops()) {}

std::int32_t SegmentFinder::find(Span<const std::int32_t> device_of_op, Span<std::int32_t> segment) {
  has_source_.fill(0);
  for (Index v = 0; v < p_.n_ops(); ++v) {
    if (p_.n_inputs(v) == 0) has_source_[device_of_op[v]] = 1;
  }
  std::int32_t best = static_cast<std::int32_t>(p_.n_ops()) + 1;
  for (std::int32_t first = 0; first < p_.n_devices(); ++first) {
    if (has_source_[first] == 0) continue;
    const std::int32_t count = run_from(device_of_op, first, best);
    if (count >= best) continue;
    best = count;
    std::copy(trial_.begin(), trial_.end(), segment.begin());
  }
  return best;
}

// Fills `trial_`, starting on device `first`; returns the number of segments, `limit` if not fewer.
std::int32_t SegmentFinder::run_from(Span<const std::int32_t> device_of_op, std::int32_t first, std::int32_t limit) {
  top_.fill(none);
  n_ready_.fill(0);
  for (std::int32_t v = 0; v < p_.n_ops(); ++v) {
    pending_[v] = static_cast<std::int32_t>(p_.n_inputs(v));
    if (pending_[v] == 0) is_ready(v, device_of_op[v]);
  }
  Index n_left = p_.n_ops();
  std::int32_t current = first, count = 0;
  while (n_left > 0 && count < limit) {
    while (top_[current] != none) {
      const std::int32_t op = top_[current];
      top_[current] = below_[op];
      --n_ready_[current];
      trial_[op] = count;
      --n_left;
      for (std::int32_t t = p_.tensor_ptr[op]; t < p_.tensor_ptr[op + 1]; ++t) {
        for (const std::int32_t reader : p_.readers(t)) {
          if (--pending_[reader] == 0) is_ready(reader, device_of_op[reader]);
        }
      }
    }
    ++count;
    current = static_cast<std::int32_t>(std::max_element(n_ready_.begin(), n_ready_.end()) - n_ready_.begin());
  }
  return n_left == 0 ? count : limit;
}

void SegmentFinder::is_ready(std::int32_t op, std::int32_t device) {
  below_[op] = top_[device];
  top_[device] = op;
  ++n_ready_[device];
}

double SegmentFinder::overheads(Span<const std::int32_t> device_of_op, Span<const std::int32_t> segment,
                                std::int32_t n_segments, Span<double> per_device) {
  std::fill(per_device.begin(), per_device.end(), 0.0);
  for (std::int32_t i = 0; i < n_segments; ++i) seen_[i] = 0;
  for (Index v = 0; v < p_.n_ops(); ++v) {
    if (seen_[segment[v]] != 0) continue;
    seen_[segment[v]] = 1;
    per_device[device_of_op[v]] += p_.segment_overhead_s[device_of_op[v]];
  }
  double total = 0.0;
  for (const double share : per_device) total += share;
  return total;
}

}  // namespace placewright::judge
