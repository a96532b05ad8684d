// Cuts, shares and movable labels change while they work without the interpreter's lock: each belongs to one thread.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>

#include "bindings/bound_problem.h"
#include "sequential/chain_labels.h"
#include "sequential/device_share.h"
#include "sequential/fusion_moves.h"
#include "sequential/labelling.h"
#include "sequential/local_moves.h"
#include "sequential/paths.h"
#include "sequential/push_relabel.h"

namespace placewright::bindings {
namespace {

// Views of the arrays of Python's `Energy`, which it keeps alive.
class BoundEnergy {
 public:
  BoundEnergy(In<double> time_s, In<double> memory_bytes, In<std::int32_t> home, In<std::int32_t> reader_ptr,
              In<std::int32_t> reader, In<double> copy_s, In<std::int32_t> direct, In<std::int32_t> to_host,
              In<std::int32_t> from_host, In<std::int32_t> touch_ptr, In<std::int32_t> touch)
      : reals_{time_s, memory_bytes, copy_s},
        numbers_{home, reader_ptr, reader, direct, to_host, from_host, touch_ptr, touch} {
    view.time_s = time_s.rows("time_s", any, any);
    const Index units = view.n_units(), devices = view.n_devices();
    view.memory_bytes = memory_bytes.span("memory_bytes", units);
    view.home = home.span("home", any);
    view.reader_ptr = reader_ptr.span("reader_ptr", view.n_tensors() + 1);
    view.reader = reader.span("reader", any);
    view.copy_s = copy_s.rows("copy_s", view.n_tensors(), any);
    view.direct = direct.rows("direct", devices, devices);
    view.to_host = to_host.span("to_host", devices);
    view.from_host = from_host.span("from_host", devices);
    view.touch_ptr = touch_ptr.span("touch_ptr", units + 1);
    view.touch = touch.span("touch", any);
  }

  sequential::Energy view;

 private:
  In<double> reals_[3];
  In<std::int32_t> numbers_[8];
};

double labelling_value(const BoundEnergy& energy, const In<double>& unary_s, const In<std::int32_t>& label) {
  const Index units = energy.view.n_units();
  const auto unary = unary_s.rows("unary_s", units, energy.view.n_devices());
  const auto labels = label.span("label", units);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  return sequential::labelling_value(energy.view, unary, labels, stop);
}

std::pair<double, bool> fuse(const BoundEnergy& energy, const In<double>& unary_s, const In<std::int32_t>& first,
                             const In<std::int32_t>& second, const In<std::int32_t>& before,
                             const In<std::int32_t>& after, const Out<std::int32_t>& label,
                             const ShouldStop& should_stop) {
  const Index units = energy.view.n_units();
  const auto unary = unary_s.rows("unary_s", units, energy.view.n_devices());
  const auto one = first.span("first", units), other = second.span("second", units);
  const auto from = before.span("before", any);
  const sequential::Order order{from, after.span("after", from.size())};
  const auto labels = label.span("label", units);
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  const sequential::Fused fused = sequential::fuse(energy.view, unary, one, other, order, labels, stop);
  return {fused.bound, fused.is_exact};
}

sequential::MinimumCut minimum_cut(const In<std::int32_t>& tail, const In<std::int32_t>& head,
                                   const In<double>& forward, const In<double>& backward, const In<double>& from_source,
                                   const In<double>& to_sink) {
  const auto tails = tail.span("tail", any);
  const auto heads = head.span("head", tails.size());
  const auto forth = forward.span("forward", tails.size()), back = backward.span("backward", tails.size());
  const auto going = from_source.span("from_source", any);
  const auto staying = to_sink.span("to_sink", going.size());
  nb::gil_scoped_release released;
  sequential::CutNetwork network(going.size());
  for (std::int32_t v = 0; v < going.size(); ++v) {
    network.set_cost(v, sequential::Side::goes, going[v]);
    network.set_cost(v, sequential::Side::stays, staying[v]);
  }
  for (Index e = 0; e < tails.size(); ++e) network.add_arc(tails[e], heads[e], forth[e], back[e]);
  return sequential::MinimumCut(network);
}

bool run(sequential::MinimumCut& cut, const ShouldStop& should_stop) {
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  return cut.run(stop);
}

void write_sink_side(sequential::MinimumCut& cut, const Out<bool>& goes) {
  const auto out = goes.span("goes", cut.n_nodes());
  Array<std::uint8_t> sides("goes", out.size());
  nb::gil_scoped_release released;
  cut.write_sink_side(sides);
  std::transform(sides.begin(), sides.end(), out.begin(), [](std::uint8_t side) { return side != 0; });
}

sequential::DeviceShare device_share(const BoundEnergy& energy, const In<double>& leaving_s,
                                     const In<double>& entering_s) {
  const Index tensors = energy.view.n_tensors();
  const auto leaving = leaving_s.span("leaving_s", tensors), entering = entering_s.span("entering_s", tensors);
  nb::gil_scoped_release released;
  return {energy.view, leaving, entering};
}

double cheapest_set(sequential::DeviceShare& share, const In<double>& cost_s, const Out<bool>& is_taken,
                    const ShouldStop& should_stop) {
  const auto costs = cost_s.span("cost_s", share.n_units());
  const auto taken = is_taken.span("is_taken", share.n_units());
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  return share.cheapest_set(costs, taken, stop);
}

sequential::MovableLabels movable_labels(const BoundEnergy& energy, const In<std::int32_t>& label,
                                         const In<double>& limit_bytes) {
  return {energy.view, label.span("label", energy.view.n_units()),
          limit_bytes.span("limit_bytes", energy.view.n_devices())};
}

void descend(sequential::MovableLabels& labels, const ShouldStop& should_stop) {
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  labels.descend(stop);
}

bool repair(sequential::MovableLabels& labels, double price, const ShouldStop& should_stop) {
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  return labels.repair(price, stop);
}

void write_label(const sequential::MovableLabels& labels, const Out<std::int32_t>& out) {
  const auto to = out.span("out", labels.label().size());
  for (Index u = 0; u < to.size(); ++u) to[u] = labels.label()[u];
}

std::pair<Index, std::int32_t> worst_path(const BoundProblem& problem, const In<std::int32_t>& device_of_op,
                                          const In<double>& segment_s, const Out<std::int32_t>& edges) {
  const Index ops = problem.view.n_ops();
  const auto devices = device_of_op.span("device_of_op", ops);
  const auto segments = segment_s.span("segment_s", problem.view.n_devices());
  const auto out = edges.span("edges", ops);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  const sequential::WorstPath path = sequential::worst_path(problem.view, devices, segments, out, stop);
  return {path.length, path.first_op};
}

using MarkUnits = void (*)(Span<const std::int32_t>, Span<const std::int32_t>, Span<bool>, Stop&);

template <MarkUnits mark>
void mark_units(const In<std::int32_t>& before, const In<std::int32_t>& after, const Out<bool>& marked) {
  const auto from = before.span("before", any);
  const auto to = after.span("after", from.size());
  const auto units = marked.span("marked", any);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  mark(from, to, units, stop);
}

void mark_undominated(const In<std::int32_t>& state, const In<double>& memory_bytes, const Out<bool>& is_kept,
                      const ShouldStop& should_stop) {
  const auto states = state.span("state", any);
  const auto bytes = memory_bytes.rows("memory_bytes", states.size(), any);
  const auto kept = is_kept.span("is_kept", states.size());
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  sequential::mark_undominated(states, bytes, kept, stop);
}

}  // namespace

void bind_sequential(nb::module_& module) {
  nb::module_ room = module.def_submodule("sequential", "Latency under `sequential`: labellings and minimum cuts.");
  nb::class_<sequential::MinimumCut>(room, "MinimumCut", "A minimum cut, found in one run or in several.")
      .def(nb::new_(&minimum_cut), nb::arg("tail"), nb::arg("head"), nb::arg("forward"), nb::arg("backward"),
           nb::arg("from_source"), nb::arg("to_sink"))
      .def_ro_static("ENDLESS", &sequential::CutNetwork::endless, "A capacity that no cut may pay.")
      .def("run", &run, nb::arg("should_stop") = nb::none(),
           "Go on from where the last run ended; true if the cut is least, which it is unless it was stopped.")
      .def_prop_ro("bound", &sequential::MinimumCut::bound, "Of all cuts, from below; the cut's own after a whole run.")
      .def("write_sink_side", &write_sink_side, nb::arg("goes"), "Write which nodes are at the sink's side.");
  using Numbers = In<std::int32_t>;
  using Reals = In<double>;
  nb::class_<BoundEnergy>(room, "Energy", "Views of an energy's arrays, which it keeps alive.")
      .def(nb::init<Reals, Reals, Numbers, Numbers, Numbers, Reals, Numbers, Numbers, Numbers, Numbers, Numbers>(),
           nb::arg("time_s"), nb::arg("memory_bytes"), nb::arg("home"), nb::arg("reader_ptr"), nb::arg("reader"),
           nb::arg("copy_s"), nb::arg("direct"), nb::arg("to_host"), nb::arg("from_host"), nb::arg("touch_ptr"),
           nb::arg("touch"));
  nb::class_<sequential::DeviceShare>(room, "DeviceShare", "What a device's set of units costs in copies.")
      .def(nb::new_(&device_share), nb::arg("energy"), nb::arg("leaving_s"), nb::arg("entering_s"))
      .def("cheapest_set", &cheapest_set, nb::arg("cost_s"), nb::arg("is_taken"), nb::arg("should_stop") = nb::none(),
           "Write the cheapest set at these costs of units; return what it costs, from below.");
  nb::class_<sequential::MovableLabels>(room, "MovableLabels", "A labelling that changes by moves of single units.")
      .def(nb::new_(&movable_labels), nb::keep_alive<0, 2>(), nb::arg("energy"), nb::arg("label"),
           nb::arg("limit_bytes"))
      .def("descend", &descend, nb::arg("should_stop") = nb::none(),
           "Move units while that helps; no device gets fuller by it than it may be.")
      .def("repair", &repair, nb::arg("price"), nb::arg("should_stop") = nb::none(),
           "Move units until all limits are kept, at rising prices per byte beyond them; whether they are.")
      .def("change_of_move", &sequential::MovableLabels::change_of_move, nb::arg("unit"), nb::arg("to"),
           "What the value changes by if a unit moves.")
      .def("write_label", &write_label, nb::arg("out"), "Write the device of each unit.");
  room.def("labelling_value", &labelling_value, nb::arg("energy"), nb::arg("unary_s"), nb::arg("label"),
           "Return the seconds of all units and copies.");
  room.def("fuse", &fuse, nb::arg("energy"), nb::arg("unary_s"), nb::arg("first"), nb::arg("second"), nb::arg("before"),
           nb::arg("after"), nb::arg("label"), nb::arg("should_stop") = nb::none(),
           "Write the best fusion of two labellings; return a bound on all of them, and whether it is proven.");
  room.def("worst_path", &worst_path, nb::arg("problem"), nb::arg("device_of_op"), nb::arg("segment_s"),
           nb::arg("edges"),
           "Write the edges of the path whose segments cost most; return their number and its first op.");
  room.def("mark_what_follows", &mark_units<sequential::mark_what_follows>, nb::arg("before"), nb::arg("after"),
           nb::arg("marked"), "Mark everything that marked units lead to.");
  room.def("mark_what_precedes", &mark_units<sequential::mark_what_precedes>, nb::arg("before"), nb::arg("after"),
           nb::arg("marked"), "Mark everything that leads to marked units.");
  room.def("mark_undominated", &mark_undominated, nb::arg("state"), nb::arg("memory_bytes"), nb::arg("is_kept"),
           nb::arg("should_stop") = nb::none(),
           "Write which labels no label before them beats; labels are ordered by state and by cost.");
}

}  // namespace placewright::bindings
