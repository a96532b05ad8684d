// numpy arrays as spans: type, shape and contiguity are checked here, once, with a message that names the argument.
//
// A bound function takes In<double> (it reads) or Out<double> (it writes) and asks for a span of the size it needs.
// These types also tell the stubs which items an array has to have.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>

#include "kit/span.h"
#include "kit/stop.h"

namespace placewright::bindings {

namespace nb = nanobind;

inline constexpr Index any = -1;  // any length will do

template <class T>
struct TypeName;
template <>
struct TypeName<double> {
  static constexpr char text[] = "float64";
};
template <>
struct TypeName<std::uint64_t> {
  static constexpr char text[] = "uint64";
};
template <>
struct TypeName<std::int32_t> {
  static constexpr char text[] = "int32";
};
template <>
struct TypeName<std::int64_t> {
  static constexpr char text[] = "int64";
};
template <>
struct TypeName<std::uint8_t> {
  static constexpr char text[] = "uint8";
};
template <>
struct TypeName<bool> {
  static constexpr char text[] = "bool_";
};

// An array that keeps its memory alive. T is const where it is only read.
template <class T>
class NumpyArray {
 public:
  using Item = std::remove_const_t<T>;
  using Handle =
      std::conditional_t<std::is_const_v<T>, nb::ndarray<nb::ro, nb::device::cpu>, nb::ndarray<nb::device::cpu>>;

  NumpyArray() = default;
  explicit NumpyArray(Handle handle) : handle_(std::move(handle)) {}

  // Throws ValueError unless the array is C-contiguous, of items T and of the shape wanted.
  [[nodiscard]] Span<T> span(const char* name, Index size) const {
    T* data = checked(name, {size});
    return {name, data, static_cast<Index>(handle_.shape(0))};
  }
  [[nodiscard]] Span2d<T> rows(const char* name, Index rows, Index columns) const {
    T* data = checked(name, {rows, columns});
    return {name, data, static_cast<Index>(handle_.shape(0)), static_cast<Index>(handle_.shape(1))};
  }

 private:
  [[nodiscard]] T* checked(const char* name, std::initializer_list<Index> shape) const {
    const auto refuse = [&](const std::string& why) {
      throw nb::value_error((std::string("argument '") + name + "': " + why).c_str());
    };
    if (handle_.dtype() != nb::dtype<Item>()) refuse(std::string("its items are not of type ") + TypeName<Item>::text);
    std::string wanted, got;
    bool fits = handle_.ndim() == shape.size();
    std::size_t axis = 0;
    for (const Index size : shape) {
      fits = fits && (size == any || static_cast<Index>(handle_.shape(axis)) == size);
      wanted += (size == any ? "any" : std::to_string(size)) + ", ";
      ++axis;
    }
    for (std::size_t i = 0; i < handle_.ndim(); ++i) got += std::to_string(handle_.shape(i)) + ", ";
    if (!fits) refuse("its shape is (" + got + "), expected (" + wanted + ")");
    if (!is_contiguous()) refuse("it is not C-contiguous");
    return static_cast<T*>(handle_.data());
  }

  [[nodiscard]] bool is_contiguous() const {
    std::int64_t stride = 1;
    for (std::size_t i = handle_.ndim(); i-- > 0;) {
      if (handle_.size() != 0 && handle_.shape(i) > 1 && handle_.stride(i) != stride) return false;
      stride *= static_cast<std::int64_t>(handle_.shape(i));
    }
    return true;
  }

  Handle handle_;
};

template <class T>
using In = NumpyArray<const T>;
template <class T>
using Out = NumpyArray<T>;

// The argument `should_stop` of long loops: a function of Python's, or None.
using ShouldStop = std::optional<nb::typed<nb::callable, bool()>>;

// What a loop without the interpreter's lock asks now and then: Python's signals (a handler that raises ends the loop),
// and `should_stop`, if there is one. It has to live as long as the loop runs.
Stop::Ask asking_python();
Stop::Ask asking_python(const ShouldStop& should_stop);

}  // namespace placewright::bindings

template <class T>
struct nanobind::detail::type_caster<placewright::bindings::NumpyArray<T>> {
  using Array = placewright::bindings::NumpyArray<T>;
  NB_TYPE_CASTER(Array, const_name("numpy.typing.NDArray[numpy.") +
                            const_name(placewright::bindings::TypeName<std::remove_const_t<T>>::text) + const_name("]"))

  // Never converted: what is written has to arrive in the caller's array, and a copy of what is read costs time.
  template <class Flags>
  bool from_python(handle source, Flags, cleanup_list* cleanup) noexcept {
    make_caster<typename Array::Handle> caster;
    if (!caster.from_python(source, 0, cleanup)) return false;
    value = Array(std::move(caster.value));
    return true;
  }
};

namespace placewright::bindings {

// The array that a dict has under a name.
template <class T>
NumpyArray<T> array_in(const nb::dict& arrays, const char* name) {
  NumpyArray<T> array;
  if (!arrays.contains(name) || !nb::try_cast(arrays[name], array, false)) {
    throw nb::value_error((std::string("argument '") + name + "': expected a numpy array").c_str());
  }
  return array;
}

}  // namespace placewright::bindings
