#include "judge/pipeline.h"

#include <algorithm>

namespace placewright::judge {

void fill_loads(const Problem& problem, Span<const std::int32_t> device_of_op, const Loads& loads) {
  for (Index d = 0; d < problem.n_devices(); ++d) {
    for (Index column = 0; column < 2; ++column) loads.compute_s(d, column) = loads.copies_s(d, column) = 0.0;
  }
  for (Index v = 0; v < problem.n_ops(); ++v) {
    const std::int32_t d = device_of_op[v];
    loads.compute_s(d, problem.is_backward[v] ? 1 : 0) += problem.op_time_s(v, problem.device_kind[d]);
  }
  Array<std::int32_t> last("last", problem.n_devices(), none);
  for (std::int32_t t = 0; t < problem.n_tensors(); ++t) {
    const std::int32_t u = problem.tensor_producer[t], s = device_of_op[u];
    const Index column = problem.is_backward[u] ? 1 : 0;
    bool is_in_host = false;
    last[s] = t;
    for (const std::int32_t reader : problem.readers(t)) {
      const std::int32_t d = device_of_op[reader];
      if (last[d] == t) continue;
      last[d] = t;
      const std::int32_t link = problem.direct(s, d);
      if (link != none) {
        if ((problem.link_busy[link] & Problem::busy_sender) != 0) loads.copies_s(s, column) += problem.copy_s(t, link);
        if ((problem.link_busy[link] & Problem::busy_receiver) != 0)
          loads.copies_s(d, column) += problem.copy_s(t, link);
        continue;
      }
      const std::int32_t up = problem.to_host[s], down = problem.from_host[d];
      if (!is_in_host && up != none) loads.copies_s(s, column) += problem.copy_s(t, up);
      is_in_host = true;
      if (down != none) loads.copies_s(d, column) += problem.copy_s(t, down);
    }
  }
}

double largest_load(const Loads& loads, const PipelineRules& rules) {
  const auto load = [&](double compute_s, double copies_s) {
    return rules.is_overlapped ? std::max(compute_s, copies_s) : compute_s + copies_s;
  };
  double best = 0.0, forward = 0.0, backward = 0.0;
  for (Index d = 0; d < loads.compute_s.rows(); ++d) {
    best = std::max(best,
                    load(loads.compute_s(d, 0) + loads.compute_s(d, 1), loads.copies_s(d, 0) + loads.copies_s(d, 1)));
    forward = std::max(forward, load(loads.compute_s(d, 0), loads.copies_s(d, 0)));
    backward = std::max(backward, load(loads.compute_s(d, 1), loads.copies_s(d, 1)));
  }
  return rules.is_split ? forward + backward : best;
}

bool stages_form_chain(Span<const std::int32_t> order_source, Span<const std::int32_t> order_target,
                       Span<const std::int32_t> device_of_op, Index n_devices) {
  Array2d<std::uint8_t> follows("follows", n_devices, n_devices);
  for (Index e = 0; e < order_source.size(); ++e) {
    const std::int32_t s = device_of_op[order_source[e]], d = device_of_op[order_target[e]];
    if (s != d) follows(s, d) = 1;
  }
  Array<std::uint8_t> done("done", n_devices);
  for (Index round = 0; round < n_devices; ++round) {
    for (Index d = 0; d < n_devices; ++d) {
      if (done[d] != 0) continue;
      bool is_free = true;
      for (Index s = 0; s < n_devices; ++s) is_free = is_free && (follows(s, d) == 0 || done[s] != 0);
      done[d] = is_free ? 1 : 0;
    }
  }
  return std::all_of(done.begin(), done.end(), [](std::uint8_t d) { return d != 0; });
}

}  // namespace placewright::judge
