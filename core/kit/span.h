// Views of arrays that somebody else owns, with every access checked.
//
// A wrong index is a fault in this program, never in a user's input. In a shipped wheel it has to end as an exception
// that names the array and the index, not as a crash or a silent write to foreign memory: one branch per access, which
// processors predict. Loops that go without are listed in README.md, each with the measurement that asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace placewright {

using Index = std::ptrdiff_t;

// "None" among indices of ops, devices, links and so on.
inline constexpr std::int32_t none = -1;

class OutOfSpan : public std::out_of_range {
 public:
  OutOfSpan(const char* name, Index index, Index size)
      : std::out_of_range("index " + std::to_string(index) + " is outside '" + name + "' of " + std::to_string(size)) {}
};

[[noreturn]] inline void throw_out_of_span(const char* name, Index index, Index size) {
  throw OutOfSpan(name, index, size);
}

inline void check_index(const char* name, Index index, Index size) {
  // One comparison for both ends: a negative number is a huge one without its sign.
  if (static_cast<std::size_t>(index) >= static_cast<std::size_t>(size)) [[unlikely]] {
    throw_out_of_span(name, index, size);
  }
}

// For `unchecked` access, in loops that README.md lists: checked all the same where sanitizers are on.
inline void check_if_sanitized([[maybe_unused]] const char* name, [[maybe_unused]] Index index,
                               [[maybe_unused]] Index size) {
#ifdef PLACEWRIGHT_SANITIZE
  check_index(name, index, size);
#endif
}

template <class T>
class Span {
 public:
  Span() = default;
  Span(const char* name, T* data, Index size) : data_(data), size_(size), name_(name) {}

  // What may be written may be read.
  operator Span<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {name_, data_, size_};
  }

  T& operator[](Index i) const {
    check_index(name_, i, size_);
    return data_[i];
  }
  T& unchecked(Index i) const {
    check_if_sanitized(name_, i, size_);
    return data_[i];
  }
  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] T* begin() const { return data_; }
  [[nodiscard]] T* end() const { return data_ + size_; }

  // The part [first, last).
  [[nodiscard]] Span part(Index first, Index last) const {
    if (first < 0 || last < first || last > size_) [[unlikely]] {
      throw_out_of_span(name_, last, size_);
    }
    return Span(name_, data_ + first, last - first);
  }
  [[nodiscard]] Span unchecked_part(Index first, Index last) const { return Span(name_, data_ + first, last - first); }

 private:
  T* data_ = nullptr;
  Index size_ = 0;
  const char* name_ = "";
};

// Rows one behind the other.
template <class T>
class Span2d {
 public:
  Span2d() = default;
  Span2d(const char* name, T* data, Index rows, Index columns)
      : data_(data), rows_(rows), columns_(columns), name_(name) {}

  T& operator()(Index row, Index column) const {
    check_index(name_, row, rows_);
    check_index(name_, column, columns_);
    return data_[row * columns_ + column];
  }
  T& unchecked(Index row, Index column) const {
    check_if_sanitized(name_, row, rows_);
    check_if_sanitized(name_, column, columns_);
    return data_[row * columns_ + column];
  }
  [[nodiscard]] Span<T> row(Index row) const {
    check_index(name_, row, rows_);
    return Span<T>(name_, data_ + row * columns_, columns_);
  }
  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }

 private:
  T* data_ = nullptr;
  Index rows_ = 0;
  Index columns_ = 0;
  const char* name_ = "";
};

}  // namespace placewright
