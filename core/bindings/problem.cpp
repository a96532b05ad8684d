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
  check_indices();
}

namespace {

void refuse(const char* name, const char* why) {
  throw nb::value_error((std::string("argument '") + name + "': " + why).c_str());
}

void check_range(const char* name, Span<const std::int32_t> numbers, std::int32_t least, Index size) {
  for (const std::int32_t number : numbers) {
    if (number < least || number >= size) refuse(name, "a number in it is out of range");
  }
}

void check_pointers(const char* name, Span<const std::int32_t> pointers, Index size) {
  if (pointers[0] != 0 || pointers[pointers.size() - 1] != size) refuse(name, "it does not lead from 0 to the end");
  for (Index i = 1; i < pointers.size(); ++i) {
    if (pointers[i] < pointers[i - 1]) refuse(name, "its numbers fall");
  }
}

}  // namespace

// Loops that go without checks rely on this: every index that an array holds is one of the array that it leads to.
void BoundProblem::check_indices() const {
  const Index ops = view.n_ops(), tensors = view.n_tensors(), devices = view.n_devices(), links = view.link_busy.size();
  check_pointers("tensor_ptr", view.tensor_ptr, tensors);
  check_pointers("consumer_ptr", view.consumer_ptr, view.consumer_op.size());
  check_pointers("input_ptr", view.input_ptr, view.input_tensor.size());
  check_range("tensor_producer", view.tensor_producer, 0, ops);
  check_range("consumer_op", view.consumer_op, 0, ops);
  check_range("input_tensor", view.input_tensor, 0, tensors);
  check_range("colocation_first", view.colocation_first, 0, ops);
  check_range("device_kind", view.device_kind, 0, view.op_time_s.columns());
  for (Index d = 0; d < devices; ++d) check_range("direct", view.direct.row(d), none, links);
  check_range("to_host", view.to_host, none, links);
  check_range("from_host", view.from_host, none, links);
  check_range("send_channel", view.send_channel, 0, 2 * devices);
  check_range("receive_channel", view.receive_channel, 0, 2 * devices);
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
