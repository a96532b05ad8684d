#include "bindings/bound_problem.h"

namespace placewright::bindings {

BoundProblem::BoundProblem(const nb::dict& arrays) {
  const auto taken = [&]<class T>(const char* name, NumpyArray<T>) {
    const auto array = array_in<T>(arrays, name);
    owners_.push_back(nb::borrow(arrays[name]));
    return array;
  };
  const auto numbers = [&](const char* name, Index size) { return taken(name, In<std::int32_t>()).span(name, size); };
  const auto reals = [&](const char* name, Index size) { return taken(name, In<double>()).span(name, size); };
  const auto flags = [&](const char* name, Index size) { return taken(name, In<bool>()).span(name, size); };

  view.colocation_first = numbers("colocation_first", any);
  view.tensor_producer = numbers("tensor_producer", any);
  view.device_kind = numbers("device_kind", any);
  view.link_busy = taken("link_busy", In<std::uint8_t>()).span("link_busy", any);
  const Index ops = view.n_ops(), tensors = view.n_tensors(), devices = view.n_devices();
  view.tensor_ptr = numbers("tensor_ptr", ops + 1);
  view.consumer_ptr = numbers("consumer_ptr", tensors + 1);
  view.consumer_op = numbers("consumer_op", any);
  view.input_ptr = numbers("input_ptr", ops + 1);
  view.input_tensor = numbers("input_tensor", any);
  view.is_backward = flags("is_backward", ops);
  view.op_time_s = taken("op_time_s", In<double>()).rows("op_time_s", ops, any);
  view.memory_bytes = reals("memory_bytes", ops);
  view.live_bytes = reals("live_bytes", tensors);
  view.copy_s = taken("copy_s", In<double>()).rows("copy_s", tensors, view.link_busy.size());
  view.memory_limit_bytes = reals("memory_limit_bytes", devices);
  view.is_host = flags("is_host", devices);
  view.segment_overhead_s = reals("segment_overhead_s", devices);
  view.direct = taken("direct", In<std::int32_t>()).rows("direct", devices, devices);
  view.to_host = numbers("to_host", devices);
  view.from_host = numbers("from_host", devices);
  view.send_channel = numbers("send_channel", devices);
  view.receive_channel = numbers("receive_channel", devices);
  view.allowed = taken("allowed", In<bool>()).rows("allowed", ops, devices);
}

void bind_problem(nb::module_& module) {
  nb::class_<BoundProblem>(module, "Problem", "Views of a problem's arrays, which it keeps alive.")
      .def(nb::init<const nb::dict&>(), nb::arg("arrays"),
           nb::sig("def __init__(self, arrays: dict[str, object]) -> None"))
      .def_prop_ro("n_ops", [](const BoundProblem& p) { return p.view.n_ops(); })
      .def_prop_ro("n_tensors", [](const BoundProblem& p) { return p.view.n_tensors(); })
      .def_prop_ro("n_devices", [](const BoundProblem& p) { return p.view.n_devices(); });
}

}  // namespace placewright::bindings
