#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "calls/frontiers.h"
#include "calls/greedy_fill.h"
#include "calls/label_setting.h"
#include "calls/tails.h"

namespace placewright::bindings {
namespace {

// Takes arrays by name out of a dict, and keeps them alive.
class Taken {
 public:
  explicit Taken(const nb::dict& arrays) : arrays_(arrays) {}

  Span<const double> reals(const char* name, Index size) { return array<double>(name).span(name, size); }
  Span<const std::int64_t> numbers(const char* name, Index size) { return array<std::int64_t>(name).span(name, size); }
  Span<const std::int32_t> short_numbers(const char* name, Index size) {
    return array<std::int32_t>(name).span(name, size);
  }
  Span2d<const double> rows(const char* name, Index rows, Index columns) {
    return array<double>(name).rows(name, rows, columns);
  }
  [[nodiscard]] std::vector<nb::object> owners() && { return std::move(owners_); }

 private:
  template <class T>
  In<T> array(const char* name) {
    In<T> found = array_in<const T>(arrays_, name);
    owners_.push_back(nb::borrow(arrays_[name]));
    return found;
  }

  const nb::dict& arrays_;
  std::vector<nb::object> owners_;
};

// A relaxed problem together with the arrays that it looks into.
class BoundRelaxed {
 public:
  explicit BoundRelaxed(const nb::dict& arrays) {
    Taken taken(arrays);
    view.host_time_s = taken.reals("host_time_s", any);
    view.limit_bytes = taken.reals("limit_bytes", any);
    view.class_bytes = taken.reals("class_bytes", any);
    view.tensor_producer = taken.numbers("tensor_producer", any);
    const Index units = view.n_units(), sorts = view.n_sorts(), tensors = view.n_tensors();
    view.host_ready_s = taken.reals("host_ready_s", units);
    view.time_s = taken.rows("time_s", units, sorts);
    view.class_of_unit = taken.numbers("class_of_unit", units);
    view.successor_ptr = taken.numbers("successor_ptr", units + 1);
    view.successor = taken.numbers("successor", any);
    view.consumer_ptr = taken.numbers("consumer_ptr", tensors + 1);
    view.consumer = taken.numbers("consumer", any);
    view.in_s = taken.rows("in_s", tensors, sorts);
    view.out_s = taken.rows("out_s", tensors, sorts);
    view.output_ptr = taken.numbers("output_ptr", units + 1);
    view.output = taken.numbers("output", any);
    view.input_ptr = taken.numbers("input_ptr", units + 1);
    view.input = taken.numbers("input", any);
    owners_ = std::move(taken).owners();
  }

  calls::Relaxed view;

 private:
  std::vector<nb::object> owners_;
};

// A lattice of ideals together with the arrays that it looks into.
class BoundIdeals {
 public:
  explicit BoundIdeals(const nb::dict& arrays) {
    Taken taken(arrays);
    view.parent = taken.short_numbers("parent", any);
    view.last_unit = taken.short_numbers("last_unit", view.n_ideals());
    view.edge_ptr = taken.numbers("edge_ptr", view.n_ideals() + 1);
    view.edge_unit = taken.short_numbers("edge_unit", any);
    view.edge_target = taken.short_numbers("edge_target", view.edge_unit.size());
    owners_ = std::move(taken).owners();
  }

  pipeline::Lattice view;

 private:
  std::vector<nb::object> owners_;
};

void find_tails(const BoundRelaxed& relaxed, const Out<double>& edge_s, const Out<double>& start_s,
                const Out<double>& open_s, const ShouldStop& should_stop) {
  const Index edges = relaxed.view.successor.size(), units = relaxed.view.n_units();
  const calls::Tails tails{edge_s.span("edge_s", edges), start_s.span("start_s", units), open_s.span("open_s", units)};
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  calls::find_tails(relaxed.view, tails, stop);
}

std::optional<calls::Frontiers> find_frontiers(const BoundRelaxed& relaxed, const BoundIdeals& ideals,
                                               const In<double>& edge_s, const ShouldStop& should_stop) {
  const auto tails = edge_s.span("edge_s", relaxed.view.successor.size());
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  return calls::find_frontiers(relaxed.view, ideals.view, tails, stop);
}

using SlotAsTuple = std::tuple<std::int32_t, double, std::vector<std::uint64_t>>;

std::vector<SlotAsTuple> slots_of(const calls::Frontiers& frontiers, Index ideal) {
  std::vector<SlotAsTuple> found;
  for (const auto& slot : frontiers.slots(ideal)) {
    const auto waits = frontiers.waits(slot);
    found.emplace_back(slot.unit, slot.tail_s, std::vector<std::uint64_t>(waits.begin(), waits.end()));
  }
  return found;
}

using BoundRation = std::tuple<double, In<double>, double>;

calls::LabelAnswer solve_labels(const BoundRelaxed& relaxed, const BoundIdeals& ideals,
                                const calls::Frontiers& frontiers, const In<double>& open_s, double cutoff, Index width,
                                const std::optional<BoundRation>& ration, const ShouldStop& should_stop) {
  const Index units = relaxed.view.n_units();
  calls::LabelQuestion question{open_s.span("open_s", units), cutoff, width, std::nullopt};
  if (ration) {
    const auto& [per_piece, per_unit, limit] = *ration;
    question.ration = calls::Ration{per_piece, per_unit.span("per_unit", units), limit};
  }
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  return calls::solve_labels(relaxed.view, ideals.view, frontiers, question, stop);
}

bool fill_greedily(const In<std::int64_t>& order, const In<bool>& allowed, const In<double>& memory_bytes,
                   const In<double>& limit_bytes, const In<bool>& is_host, const Out<std::int32_t>& device_of_unit) {
  const auto of_unit = device_of_unit.span("device_of_unit", any);
  const auto host = is_host.span("is_host", any);
  const calls::GreedyQuestion question{allowed.rows("allowed", of_unit.size(), host.size()),
                                       memory_bytes.span("memory_bytes", of_unit.size()),
                                       limit_bytes.span("limit_bytes", host.size()), host};
  const auto units = order.span("order", of_unit.size());
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  return calls::fill_greedily(question, units, of_unit, stop);
}

using Groups = std::vector<std::pair<std::vector<std::int32_t>, bool>>;

Groups groups_of(const calls::LabelSolution& solution) {
  Groups groups;
  for (const auto& group : solution.groups) groups.emplace_back(group.units, group.is_on_host);
  return groups;
}

}  // namespace

void bind_calls(nb::module_& module) {
  nb::module_ room = module.def_submodule("calls", "Latency under `calls`: bounds of a relaxed problem, and a greedy.");
  const auto from_arrays = nb::sig("def __init__(self, arrays: dict[str, object]) -> None");
  nb::class_<BoundRelaxed>(room, "Relaxed", "Views of a relaxed problem's arrays, which it keeps alive.")
      .def(nb::init<const nb::dict&>(), nb::arg("arrays"), from_arrays);
  nb::class_<BoundIdeals>(room, "Ideals", "Views of a lattice's arrays, which it keeps alive.")
      .def(nb::init<const nb::dict&>(), nb::arg("arrays"), from_arrays);
  nb::class_<calls::Frontiers>(room, "Frontiers", "Per ideal, the units in it that are still to be read.")
      .def_prop_ro("widest", &calls::Frontiers::widest, "Units of the widest frontier.")
      .def("slots", &slots_of, nb::arg("ideal"), "Units of an ideal's frontier with their tails and waits.");
  nb::class_<calls::LabelSolution>(room, "LabelSolution", "Groups of units in the order in which they can be run.")
      .def_ro("value", &calls::LabelSolution::value)
      .def_prop_ro("groups", &groups_of, "Units, and whether they run on the host.");
  nb::class_<calls::LabelAnswer>(room, "LabelAnswer", "A bound, and a solution where it can be told.")
      .def_ro("bound", &calls::LabelAnswer::bound)
      .def_ro("solution", &calls::LabelAnswer::solution)
      .def_ro("is_finished", &calls::LabelAnswer::is_finished)
      .def_ro("is_blended", &calls::LabelAnswer::is_blended)
      .def_ro("n_visits", &calls::LabelAnswer::n_visits);
  room.def("find_tails", &find_tails, nb::arg("relaxed"), nb::arg("edge_s"), nb::arg("start_s"), nb::arg("open_s"),
           nb::arg("should_stop").none(), "Write least times to the end of everything.");
  room.def("find_frontiers", &find_frontiers, nb::arg("relaxed"), nb::arg("ideals"), nb::arg("edge_s"),
           nb::arg("should_stop").none(), "The frontiers of all ideals; None if one is too wide or the time is over.");
  room.def("solve_labels", &solve_labels, nb::arg("relaxed"), nb::arg("ideals"), nb::arg("frontiers"),
           nb::arg("open_s"), nb::arg("cutoff"), nb::arg("width"), nb::arg("ration").none(),
           nb::arg("should_stop").none(),
           "Bound the relaxed problem, and solve it if `width` labels per ideal are enough.");
  room.def("fill_greedily", &fill_greedily, nb::arg("order"), nb::arg("allowed"), nb::arg("memory_bytes"),
           nb::arg("limit_bytes"), nb::arg("is_host"), nb::arg("device_of_unit"),
           "Write the device of each unit; False if one fits nowhere.");
}

}  // namespace placewright::bindings
