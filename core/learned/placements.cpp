#include "learned/placements.h"

#include <algorithm>
#include <limits>

#include "kit/array.h"

namespace placewright::learned {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// A time and, added to it, what it takes to bring a tensor from one device to another with nothing else on the links.
double with_copy(const Problem& problem, double time_s, Index tensor, std::int32_t s, std::int32_t d) {
  if (s == d) return time_s;
  if (const std::int32_t link = problem.direct(s, d); link != none) return time_s + problem.copy_s(tensor, link);
  if (const std::int32_t link = problem.to_host[s]; link != none) time_s += problem.copy_s(tensor, link);
  if (const std::int32_t link = problem.from_host[d]; link != none) time_s += problem.copy_s(tensor, link);
  return time_s;
}

void repair_one(const GroupRoom& groups, Span<std::int32_t> device, Array<double>& room_bytes) {
  for (Index d = 0; d < room_bytes.size(); ++d) room_bytes[d] = groups.limit_bytes[d];
  for (Index g = 0; g < device.size(); ++g) room_bytes[device[g]] -= groups.memory_bytes[g];
  for (Index g = device.size() - 1; g >= 0; --g) {
    const double bytes = groups.memory_bytes[g];
    const std::int32_t here = device[g];
    if (room_bytes[here] >= 0.0 || bytes == 0.0) continue;
    std::int32_t there = none;
    for (std::int32_t d = 0; d < room_bytes.size(); ++d) {
      if (d == here || !groups.allowed(g, d) || room_bytes[d] < bytes) continue;
      if (there == none || room_bytes[d] >= room_bytes[there]) there = d;
    }
    if (there == none) continue;
    room_bytes[here] += bytes;
    room_bytes[there] -= bytes;
    device[g] = there;
  }
}

}  // namespace

void longest_paths_left(const Problem& problem, Span2d<const std::int32_t> device_of_op, Span2d<double> out,
                        Stop& stop) {
  for (Index row = 0; row < device_of_op.rows(); ++row) {
    const auto device = device_of_op.row(row);
    const auto left_s = out.row(row);
    for (Index u = problem.n_ops() - 1; u >= 0; --u) {
      stop.poll();
      double longest_s = 0.0;
      for (Index t = problem.tensor_ptr[u]; t < problem.tensor_ptr[u + 1]; ++t) {
        for (const std::int32_t reader : problem.readers(t)) {
          longest_s = std::max(longest_s, with_copy(problem, left_s[reader], t, device[u], device[reader]));
        }
      }
      const std::int32_t d = device[u];
      const double time_s = problem.allowed(u, d) ? problem.op_time_s(u, problem.device_kind[d]) : infinity;
      left_s[u] = time_s + longest_s;
    }
  }
}

void repair_memory(const GroupRoom& groups, Span2d<std::int32_t> device_of_group, Stop& stop) {
  Array<double> room_bytes("room_bytes", groups.limit_bytes.size());
  for (Index row = 0; row < device_of_group.rows(); ++row) {
    stop.poll();
    repair_one(groups, device_of_group.row(row), room_bytes);
  }
}

}  // namespace placewright::learned
