// Scratch memory: arrays that own what they hold, made once in a constructor and checked like a Span.
#pragma once

#include <vector>

#include "kit/span.h"

namespace placewright {

template <class T>
class Array {
 public:
  Array() = default;
  Array(const char* name, Index size, const T& value = T{})
      : items_(static_cast<std::size_t>(size), value), name_(name) {}

  T& operator[](Index i) {
    check_index(name_, i, size());
    return items_[static_cast<std::size_t>(i)];
  }
  const T& operator[](Index i) const {
    check_index(name_, i, size());
    return items_[static_cast<std::size_t>(i)];
  }
  T& unchecked(Index i) {
    check_if_sanitized(name_, i, size());
    return items_[static_cast<std::size_t>(i)];
  }
  const T& unchecked(Index i) const {
    check_if_sanitized(name_, i, size());
    return items_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] Index size() const { return static_cast<Index>(items_.size()); }
  [[nodiscard]] Span<T> view() { return {name_, items_.data(), size()}; }
  [[nodiscard]] Span<const T> view() const { return {name_, items_.data(), size()}; }
  [[nodiscard]] auto begin() { return items_.begin(); }
  [[nodiscard]] auto end() { return items_.end(); }
  [[nodiscard]] auto begin() const { return items_.begin(); }
  [[nodiscard]] auto end() const { return items_.end(); }
  void fill(const T& value) { items_.assign(items_.size(), value); }
  void resize(Index size) { items_.resize(static_cast<std::size_t>(size)); }

 private:
  std::vector<T> items_;
  const char* name_ = "";
};

template <class T>
class Array2d {
 public:
  Array2d() = default;
  Array2d(const char* name, Index rows, Index columns, const T& value = T{})
      : items_(static_cast<std::size_t>(rows * columns), value), rows_(rows), columns_(columns), name_(name) {}

  const T& unchecked(Index row, Index column) const {
    check_if_sanitized(name_, row, rows_);
    check_if_sanitized(name_, column, columns_);
    return items_[static_cast<std::size_t>(row * columns_ + column)];
  }
  T& operator()(Index row, Index column) { return items_[place(row, column)]; }
  const T& operator()(Index row, Index column) const { return items_[place(row, column)]; }
  [[nodiscard]] Span<T> row(Index row) { return view().row(row); }
  [[nodiscard]] Span<const T> row(Index row) const { return view().row(row); }
  [[nodiscard]] Span2d<T> view() { return {name_, items_.data(), rows_, columns_}; }
  [[nodiscard]] Span2d<const T> view() const { return {name_, items_.data(), rows_, columns_}; }
  [[nodiscard]] Index columns() const { return columns_; }
  void fill(const T& value) { items_.assign(items_.size(), value); }

 private:
  [[nodiscard]] std::size_t place(Index row, Index column) const {
    check_index(name_, row, rows_);
    check_index(name_, column, columns_);
    return static_cast<std::size_t>(row * columns_ + column);
  }

  std::vector<T> items_;
  Index rows_ = 0;
  Index columns_ = 0;
  const char* name_ = "";
};

}  // namespace placewright
