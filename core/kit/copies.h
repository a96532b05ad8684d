// How a tensor gets from one device to another: the one rule that all execution models share.
//
// It takes the direct link where there is one. Otherwise it goes up to host memory once, whoever reads it, and comes
// down once per destination. A missing link to or from host memory costs nothing: that device computes out of host
// memory.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "problem.h"

namespace placewright {

struct Interval {
  double start_s;
  double end_s;
};

enum class Way : std::uint8_t { direct, up, down };

// Which link a leg takes, and the channels that it occupies (none: nobody's).
struct Route {
  std::int32_t link = none;
  std::int32_t send_channel = none;
  std::int32_t receive_channel = none;
  Way way = Way::direct;
};

// The legs between all devices, looked up once per problem.
class Routes {
 public:
  explicit Routes(const Problem& problem)
      : copy_s_(problem.copy_s),
        direct_("direct", problem.n_devices(), problem.n_devices()),
        up_("up", problem.n_devices()),
        down_("down", problem.n_devices()) {
    for (std::int32_t s = 0; s < problem.n_devices(); ++s) {
      up_[s] = route(problem, Way::up, problem.to_host[s], s, none);
      down_[s] = route(problem, Way::down, problem.from_host[s], none, s);
      for (std::int32_t d = 0; d < problem.n_devices(); ++d) {
        direct_(s, d) = route(problem, Way::direct, problem.direct(s, d), s, d);
      }
    }
  }

  // When a tensor that was made at `made_s` arrives on `target`: the last leg. `book(route, took_s, ready_s)` says when
  // a leg starts that may start at `ready_s`; `in_host_s` is when the tensor is in host memory, or `not_in_host`, and
  // is noted there if `keep`.
  template <class Book>
  Interval copied(std::int32_t tensor, std::int32_t source, std::int32_t target, double made_s, double& in_host_s,
                  double not_in_host, bool keep, Book book) const {
    const Route& direct = direct_.unchecked(source, target);
    if (direct.link != none) return booked(direct, tensor, made_s, book);
    double up_s = in_host_s;
    if (up_s == not_in_host) {
      up_s = booked(up_.unchecked(source), tensor, made_s, book).end_s;
      if (keep) in_host_s = up_s;
    }
    return booked(down_.unchecked(target), tensor, up_s, book);
  }

 private:
  template <class Book>
  Interval booked(const Route& leg, std::int32_t tensor, double ready_s, Book& book) const {
    if (leg.link == none) return {ready_s, ready_s};
    const double took_s = copy_s_.unchecked(tensor, leg.link);
    const double start_s = book(leg, took_s, ready_s);
    return {start_s, start_s + took_s};
  }

  // Ends that are not named have no channel to be busy.
  static Route route(const Problem& problem, Way way, std::int32_t link, std::int32_t source, std::int32_t target) {
    if (link == none) return {none, none, none, way};
    const std::uint8_t busy = problem.link_busy[link];
    const bool sends = source != none && (busy & Problem::busy_sender) != 0;
    const bool receives = target != none && (busy & Problem::busy_receiver) != 0;
    return {link, sends ? problem.send_channel[source] : none, receives ? problem.receive_channel[target] : none, way};
  }

  Span2d<const double> copy_s_;
  Array2d<Route> direct_;
  Array<Route> up_, down_;
};

}  // namespace placewright
