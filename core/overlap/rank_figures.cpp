#include "overlap/rank_figures.h"

#include <algorithm>
#include <limits>

#include "kit/array.h"

namespace placewright::overlap {

void upward_ranks(const Problem& problem, Span<const double> mean_time_s, Span<const double> mean_copy_s,
                  Span<double> out) {
  for (Index u = problem.n_ops() - 1; u >= 0; --u) {
    double longest_s = 0.0;
    for (Index t = problem.tensor_ptr[u]; t < problem.tensor_ptr[u + 1]; ++t) {
      for (const std::int32_t v : problem.readers(t)) longest_s = std::max(longest_s, mean_copy_s[t] + out[v]);
    }
    out[u] = mean_time_s[u] + longest_s;
  }
}

void downward_ranks(const Problem& problem, Span<const double> mean_time_s, Span<const double> mean_copy_s,
                    Span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (Index u = 0; u < problem.n_ops(); ++u) {
    for (Index t = problem.tensor_ptr[u]; t < problem.tensor_ptr[u + 1]; ++t) {
      for (const std::int32_t v : problem.readers(t)) {
        out[v] = std::max(out[v], out[u] + mean_time_s[u] + mean_copy_s[t]);
      }
    }
  }
}

void optimistic_costs(const Problem& problem, Span2d<const double> time_s, Span<const double> mean_copy_s,
                      Span2d<double> out) {
  const Index n_devices = problem.n_devices();
  Array<double> total_s("total_s", n_devices);
  for (Index u = problem.n_ops() - 1; u >= 0; --u) {
    const Span<double> left_s = out.row(u);
    std::fill(left_s.begin(), left_s.end(), 0.0);
    for (Index t = problem.tensor_ptr[u]; t < problem.tensor_ptr[u + 1]; ++t) {
      for (const std::int32_t v : problem.readers(t)) {
        double least_s = std::numeric_limits<double>::infinity();
        for (Index d = 0; d < n_devices; ++d) {
          total_s[d] = out(v, d) + time_s(v, d);
          least_s = std::min(least_s, total_s[d]);
        }
        for (Index d = 0; d < n_devices; ++d) {
          left_s[d] = std::max(left_s[d], std::min(total_s[d], least_s + mean_copy_s[t]));
        }
      }
    }
  }
}

}  // namespace placewright::overlap
