#include "sequential/paths.h"

#include "kit/array.h"

namespace placewright::sequential {
namespace {

// The worst path to each op, back from the op.
class WorstPaths {
 public:
  WorstPaths(const Problem& problem, Span<const std::int32_t> device_of_op, Span<const double> segment_s, Stop& stop)
      : cost_s_("cost_s", problem.n_ops()),
        edge_("edge", problem.n_ops(), none),
        origin_("origin", problem.n_ops(), none) {
    for (Index v = 0; v < problem.n_ops(); ++v) cost_s_[v] = segment_s[device_of_op[v]];
    for (std::int32_t u = 0; u < problem.n_ops(); ++u) {
      stop.poll();
      if (cost_s_[u] > cost_s_[end_]) end_ = u;
      for (Index t = problem.tensor_ptr[u]; t < problem.tensor_ptr[u + 1]; ++t) {
        for (std::int32_t e = problem.consumer_ptr[t]; e < problem.consumer_ptr[t + 1]; ++e) {
          const std::int32_t v = problem.consumer_op[e], d = device_of_op[v];
          const double through_s = cost_s_[u] + (d != device_of_op[u] ? segment_s[d] : 0.0);
          if (through_s <= cost_s_[v]) continue;
          cost_s_[v] = through_s;
          edge_[v] = e;
          origin_[v] = u;
        }
      }
    }
  }

  WorstPath write(Span<std::int32_t> edges) const {
    Index length = 0;
    std::int32_t at = end_;
    for (; edge_[at] != none; at = origin_[at]) edges[length++] = edge_[at];
    return {length, at};
  }

 private:
  Array<double> cost_s_;
  Array<std::int32_t> edge_, origin_;  // none = the path begins here
  std::int32_t end_ = 0;
};

}  // namespace

WorstPath worst_path(const Problem& problem, Span<const std::int32_t> device_of_op, Span<const double> segment_s,
                     Span<std::int32_t> edges, Stop& stop) {
  return WorstPaths(problem, device_of_op, segment_s, stop).write(edges);
}

void mark_what_follows(Span<const std::int32_t> before, Span<const std::int32_t> after, Span<bool> marked, Stop& stop) {
  for (bool grows = true; grows;) {
    grows = false;
    for (Index i = 0; i < before.size(); ++i) {
      stop.poll();
      if (!marked[before[i]] || marked[after[i]]) continue;
      marked[after[i]] = grows = true;
    }
  }
}

void mark_what_precedes(Span<const std::int32_t> before, Span<const std::int32_t> after, Span<bool> marked,
                        Stop& stop) {
  for (bool grows = true; grows;) {
    grows = false;
    for (Index i = before.size() - 1; i >= 0; --i) {
      stop.poll();
      if (!marked[after[i]] || marked[before[i]]) continue;
      marked[before[i]] = grows = true;
    }
  }
}

}  // namespace placewright::sequential
