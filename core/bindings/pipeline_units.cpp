// The loops that units are made with, in the submodule of pipelines.
#include "bindings/arrays.h"
#include "pipeline/units.h"

namespace placewright::bindings {
namespace {

void topological_order(const In<std::int64_t>& successor_ptr, const In<std::int64_t>& successor,
                       const In<double>& priority, bool is_depth_first, const Out<std::int64_t>& order) {
  const pipeline::Precedence precedence{successor_ptr.span("successor_ptr", any), successor.span("successor", any)};
  const auto priorities = priority.span("priority", precedence.n_units());
  const auto out = order.span("order", precedence.n_units());
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  pipeline::topological_order(precedence, priorities, is_depth_first, out, stop);
}

void merge_leaves(const Out<double>& forward_s, const Out<double>& backward_s, const In<bool>& touches_backward,
                  const Out<std::int64_t>& degree, const Out<std::int64_t>& neighbour_xor, double negligible_s,
                  const Out<std::int64_t>& merged_into) {
  const auto forward = forward_s.rows("forward_s", any, any);
  const Index count = forward.rows();
  const pipeline::Classes classes{forward, backward_s.rows("backward_s", count, forward.columns()),
                                  touches_backward.span("touches_backward", count), degree.span("degree", count),
                                  neighbour_xor.span("neighbour_xor", count)};
  const auto out = merged_into.span("merged_into", count);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  pipeline::merge_leaves(classes, negligible_s, out, stop);
}

void compare_touches(const In<std::int64_t>& ptr, const In<std::int64_t>& touched, const In<std::int64_t>& producer,
                     const In<bool>& is_backward, const In<std::int64_t>& other, const Out<bool>& same) {
  const auto made_by = producer.span("producer", any);
  const Index tensors = made_by.size();
  const pipeline::Touches touches{ptr.span("ptr", tensors + 1), touched.span("touched", any), made_by,
                                  is_backward.span("is_backward", tensors)};
  const auto others = other.span("other", tensors);
  const auto out = same.span("same", tensors);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  pipeline::compare_touches(touches, others, out, stop);
}

}  // namespace

void bind_pipeline_units(nb::module_& room) {
  room.def("topological_order", &topological_order, nb::arg("successor_ptr"), nb::arg("successor"), nb::arg("priority"),
           nb::arg("is_depth_first"), nb::arg("order"), "Write the units in their order.");
  room.def("merge_leaves", &merge_leaves, nb::arg("forward_s"), nb::arg("backward_s"), nb::arg("touches_backward"),
           nb::arg("degree"), nb::arg("neighbour_xor"), nb::arg("negligible_s"), nb::arg("merged_into"),
           "Write what negligible classes on one edge are merged into; changes times, degrees and neighbours.");
  room.def("compare_touches", &compare_touches, nb::arg("ptr"), nb::arg("touched"), nb::arg("producer"),
           nb::arg("is_backward"), nb::arg("other"), nb::arg("same"),
           "Write for each tensor whether it has the same touches as another one.");
}

}  // namespace placewright::bindings
