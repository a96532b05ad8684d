// How a tensor gets from one device to another: the one rule that all execution models share.
//
// It takes the direct link where there is one. Otherwise it goes up to host memory once, whoever reads it, and comes
// down once per destination. A missing link to or from host memory costs nothing: that device computes out of host
// memory.
#pragma once

#include <cstdint>

#include "problem.h"

namespace placewright {

// One leg of a copy: what it takes, and the channels that it occupies (none: nobody's).
struct Leg {
  double took_s = 0.0;
  std::int32_t send_channel = none;
  std::int32_t receive_channel = none;
};

namespace copies {

[[nodiscard]] inline std::int32_t sending(const Problem& problem, std::int32_t link, std::int32_t source) {
  return (problem.link_busy[link] & Problem::busy_sender) != 0 ? problem.send_channel[source] : none;
}

[[nodiscard]] inline std::int32_t receiving(const Problem& problem, std::int32_t link, std::int32_t target) {
  return (problem.link_busy[link] & Problem::busy_receiver) != 0 ? problem.receive_channel[target] : none;
}

[[nodiscard]] inline Leg up(const Problem& problem, std::int32_t tensor, std::int32_t source) {
  const std::int32_t link = problem.to_host[source];
  if (link == none) return {};
  return {problem.copy_s(tensor, link), sending(problem, link, source), none};
}

[[nodiscard]] inline Leg down(const Problem& problem, std::int32_t tensor, std::int32_t target) {
  const std::int32_t link = problem.from_host[target];
  if (link == none) return {};
  return {problem.copy_s(tensor, link), none, receiving(problem, link, target)};
}

}  // namespace copies

// When a tensor that was made at `made_s` is on `target`. `book(leg, ready_s)` says when a leg ends that may begin at
// `ready_s`; `in_host_s` is when the tensor is in host memory, or `not_in_host`, and is noted there if `keep`.
template <class Book>
double copied_s(const Problem& problem, std::int32_t tensor, std::int32_t source, std::int32_t target, double made_s,
                double& in_host_s, double not_in_host, bool keep, Book book) {
  const std::int32_t direct = problem.direct(source, target);
  if (direct != none) {
    const Leg leg{problem.copy_s(tensor, direct), copies::sending(problem, direct, source),
                  copies::receiving(problem, direct, target)};
    return book(leg, made_s);
  }
  double up_s = in_host_s;
  if (up_s == not_in_host) {
    up_s = book(copies::up(problem, tensor, source), made_s);
    if (keep) in_host_s = up_s;
  }
  return book(copies::down(problem, tensor, target), up_s);
}

}  // namespace placewright
