#include "judge/calls.h"

#include <algorithm>
#include <limits>

namespace placewright::judge {

CallsJudge::CallsJudge(const Problem& problem)
    : p_(problem),
      level_("level", problem.n_ops()),
      number_("number", problem.n_ops() + 1),
      members_("members", problem.n_ops()),
      ptr_("ptr", problem.n_ops() + 1),
      fill_("fill", problem.n_ops() + 1),
      waiting_("waiting", problem.n_ops() + 1),
      queue_("queue", problem.n_ops() + 1),
      paid_by_("paid_by", problem.n_ops() + 1),
      sent_to_("sent_to", problem.n_devices()) {}

std::int32_t CallsJudge::find_pieces(Span<const std::int32_t> device_of_op, Span<std::int32_t> group) {
  std::int32_t n_groups = 0;
  for (Index v = 0; v < p_.n_ops(); ++v) {
    if (p_.is_host[device_of_op[v]]) group[v] = n_groups++;
  }
  for (std::int32_t d = 0; d < p_.n_devices(); ++d) {
    if (p_.is_host[d]) continue;
    number_.fill(none);
    for (Index v = 0; v < p_.n_ops(); ++v) {
      const bool is_inside = device_of_op[v] == d;
      std::int32_t level = is_inside ? 1 : 0;
      for (const std::int32_t t : p_.inputs(v)) {
        const std::int32_t u = p_.tensor_producer[t];
        level = std::max(level, is_inside && device_of_op[u] != d ? level_[u] + 1 : level_[u]);
      }
      level_[v] = level;
      if (!is_inside) continue;
      if (number_[level] == none) number_[level] = n_groups++;
      group[v] = number_[level];
    }
  }
  return n_groups;
}

double CallsJudge::run(Span<const std::int32_t> device_of_op, Span<const std::int32_t> group, std::int32_t n_groups,
                       const GroupTimes& times) {
  for (const auto& seconds : {times.start_s, times.in_s, times.compute_s, times.out_s}) {
    std::fill(seconds.begin(), seconds.end(), 0.0);
  }
  waiting_.fill(0);
  ptr_.fill(0);
  for (Index v = 0; v < p_.n_ops(); ++v) {
    const std::int32_t g = group[v];
    ++ptr_[g + 1];
    times.compute_s[g] += p_.op_time_s(v, p_.device_kind[device_of_op[v]]);
    for (const std::int32_t t : p_.inputs(v)) waiting_[g] += group[p_.tensor_producer[t]] != g ? 1 : 0;
  }
  for (std::int32_t g = 0; g < n_groups; ++g) {
    ptr_[g + 1] += ptr_[g];
    fill_[g] = ptr_[g];
  }
  for (std::int32_t v = 0; v < p_.n_ops(); ++v) members_[fill_[group[v]]++] = v;
  charge_copies(device_of_op, group, times);
  return run_in_order(group, n_groups, times);
}

double CallsJudge::run_in_order(Span<const std::int32_t> group, std::int32_t n_groups, const GroupTimes& times) {
  Index head = 0, tail = 0;
  for (std::int32_t g = 0; g < n_groups; ++g) {
    if (waiting_[g] == 0) queue_[tail++] = g;
  }
  double value_s = 0.0;
  while (head < tail) {
    const std::int32_t g = queue_[head++];
    const double finish_s = times.start_s[g] + times.in_s[g] + times.compute_s[g] + times.out_s[g];
    value_s = std::max(value_s, finish_s);
    for (Index m = ptr_[g]; m < ptr_[g + 1]; ++m) {
      const std::int32_t u = members_[m];
      for (std::int32_t t = p_.tensor_ptr[u]; t < p_.tensor_ptr[u + 1]; ++t) {
        for (const std::int32_t reader : p_.readers(t)) {
          const std::int32_t h = group[reader];
          if (h == g) continue;
          times.start_s[h] = std::max(times.start_s[h], finish_s);
          if (--waiting_[h] == 0) queue_[tail++] = h;
        }
      }
    }
  }
  return tail == n_groups ? value_s : std::numeric_limits<double>::infinity();
}

void CallsJudge::charge_copies(Span<const std::int32_t> device_of_op, Span<const std::int32_t> group,
                               const GroupTimes& times) {
  paid_by_.fill(none);
  sent_to_.fill(none);
  for (std::int32_t t = 0; t < p_.n_tensors(); ++t) {
    const std::int32_t u = p_.tensor_producer[t], s = device_of_op[u], g = group[u];
    bool is_out_paid = false;
    for (const std::int32_t reader : p_.readers(t)) {
      const std::int32_t d = device_of_op[reader], h = group[reader];
      if (h == g) continue;
      const std::int32_t link = s != d ? p_.direct(s, d) : none;
      if (!p_.is_host[s]) {
        if (link == none && !is_out_paid) {
          is_out_paid = true;
          if (p_.to_host[s] != none) times.out_s[g] += p_.copy_s(t, p_.to_host[s]);
        } else if (link != none && p_.is_host[d] && sent_to_[d] != t) {
          sent_to_[d] = t;
          times.out_s[g] += p_.copy_s(t, link);
        }
      }
      if (!p_.is_host[d] && paid_by_[h] != t) {
        paid_by_[h] = t;
        if (link != none) {
          times.in_s[h] += p_.copy_s(t, link);
        } else if (p_.from_host[d] != none) {
          times.in_s[h] += p_.copy_s(t, p_.from_host[d]);
        }
      }
    }
  }
}

}  // namespace placewright::judge
