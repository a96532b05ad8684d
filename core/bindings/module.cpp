// The module `placewright._core`: one submodule per room, and nothing but conversion here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/arrays.h"

namespace placewright::bindings {

void bind_problem(nb::module_& module);
void bind_judge(nb::module_& module);
void bind_overlap(nb::module_& module);
void bind_not_contiguous(nb::module_& module);
void bind_sequential(nb::module_& module);
void bind_pipeline(nb::module_& module);
void bind_calls(nb::module_& module);
void bind_learned(nb::module_& module);

Stop::Ask asking_python() {
  static const ShouldStop nobody;
  return asking_python(nobody);
}

Stop::Ask asking_python(const ShouldStop& should_stop) {
  return [&should_stop] {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return should_stop && nb::cast<bool>((*should_stop)());
  };
}

namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__);
#elif defined(__GNUC__)
  return "g++ " + std::to_string(__GNUC__);
#elif defined(_MSC_VER)
  return "MSVC " + std::to_string(_MSC_VER);
#else
  return "unknown";
#endif
}

}  // namespace
}  // namespace placewright::bindings

NB_MODULE(_core, module) {
  namespace bindings = placewright::bindings;
  module.doc() = "Placewright's hot loops, compiled ahead of time. Inputs are checked in Python; see core/README.md.";
  module.def("compiler", &bindings::compiler, "What the core was compiled with.");
  bindings::bind_problem(module);
  bindings::bind_judge(module);
  bindings::bind_overlap(module);
  bindings::bind_not_contiguous(module);
  bindings::bind_sequential(module);
  bindings::bind_pipeline(module);
  bindings::bind_calls(module);
  bindings::bind_learned(module);
}
