#include "judge/memory.h"

#include <algorithm>
#include <cmath>

namespace placewright::judge {

void resident_bytes(const Problem& problem, Span<const std::int32_t> device_of_op, Span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (Index v = 0; v < problem.n_ops(); ++v) out[device_of_op[v]] += problem.memory_bytes[v];
}

bool memory_matters(const Problem& problem) {
  double resident = 0.0, live = 0.0;
  for (const double bytes : problem.memory_bytes) resident += bytes;
  for (const double bytes : problem.live_bytes) live += bytes;
  const auto& limits = problem.memory_limit_bytes;
  return resident + live > *std::min_element(limits.begin(), limits.end());
}

double excess_bytes(const Problem& problem, Span<const double> used) {
  double total = 0.0;
  for (Index d = 0; d < problem.n_devices(); ++d) {
    if (used[d] > problem.memory_limit_bytes[d]) total += used[d] - problem.memory_limit_bytes[d];
  }
  return total;
}

MemoryJudge::MemoryJudge(const Problem& problem)
    : p_(problem),
      most_("most", problem.n_devices()),
      until_s_("until_s", problem.n_devices()),
      now_("now", problem.n_devices()),
      last_("last", problem.n_devices()) {}

bool MemoryJudge::may_exceed(Span<const std::int32_t> device_of_op, Span<const double> resident) {
  std::copy(resident.begin(), resident.end(), most_.begin());
  last_.fill(none);
  for (std::int32_t t = 0; t < p_.n_tensors(); ++t) {
    const std::int32_t home = device_of_op[p_.tensor_producer[t]];
    most_[home] += p_.live_bytes[t];
    last_[home] = t;
    for (const std::int32_t reader : p_.readers(t)) {
      const std::int32_t d = device_of_op[reader];
      if (last_[d] == t) continue;
      last_[d] = t;
      most_[d] += p_.live_bytes[t];
    }
  }
  for (Index d = 0; d < p_.n_devices(); ++d) {
    if (most_[d] > p_.memory_limit_bytes[d]) return true;
  }
  return false;
}

void MemoryJudge::peaks(Span<const std::int32_t> device_of_op, const OverlapRecord& record, double value_s,
                        Span<const double> resident, Span<double> out) {
  changes_.clear();
  for (const Interval& interval : intervals(device_of_op, record, value_s)) {
    changes_.push_back({interval.start_s, interval.device, interval.bytes});
    changes_.push_back({interval.end_s, interval.device, -interval.bytes});
  }
  // Changes of one moment keep the order of their tensors, so that sums are the same everywhere.
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const Change& a, const Change& b) { return a.time_s < b.time_s; });
  std::copy(resident.begin(), resident.end(), now_.begin());
  std::copy(resident.begin(), resident.end(), out.begin());
  for (std::size_t i = 0; i < changes_.size();) {
    const double moment_s = changes_[i].time_s;
    for (; i < changes_.size() && changes_[i].time_s == moment_s; ++i) now_[changes_[i].device] += changes_[i].bytes;
    for (Index d = 0; d < p_.n_devices(); ++d) out[d] = std::max(out[d], now_[d]);
  }
}

const std::vector<MemoryJudge::Interval>& MemoryJudge::intervals(Span<const std::int32_t> device_of_op,
                                                                 const OverlapRecord& record, double value_s) {
  intervals_.clear();
  for (std::int32_t t = 0; t < p_.n_tensors(); ++t) {
    if (p_.live_bytes[t] <= 0.0) continue;
    const std::int32_t producer = p_.tensor_producer[t], home = device_of_op[producer];
    const auto readers = p_.readers(t);
    until_s_.fill(-1.0);
    until_s_[home] = readers.size() == 0 ? value_s : record.end_s[producer];
    if (!std::isnan(record.up_legs(t, 1))) until_s_[home] = std::max(until_s_[home], record.up_legs(t, 1));
    for (const std::int32_t reader : readers) {
      const std::int32_t d = device_of_op[reader];
      until_s_[d] = std::max(until_s_[d], record.end_s[reader]);
      if (d != home && p_.direct(home, d) != none) {
        until_s_[home] = std::max(until_s_[home], record.copies(t, 2 * d + 1));
      }
    }
    for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
      if (until_s_[d] < 0.0) continue;
      const double start_s = d == home ? record.start_s[producer] : record.copies(t, 2 * d);
      intervals_.push_back({d, start_s, until_s_[d], p_.live_bytes[t]});
    }
  }
  return intervals_;
}

}  // namespace placewright::judge
