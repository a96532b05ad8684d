// A problem together with the arrays that it looks into.
#pragma once

#include <vector>

#include "bindings/arrays.h"
#include "problem.h"

namespace placewright::bindings {

class BoundProblem {
 public:
  // Takes the arrays by name, as they stand in Python's `Arrays`; names that it does not need are ignored.
  explicit BoundProblem(const nb::dict& arrays);

  Problem view;

 private:
  void check_indices() const;

  std::vector<nb::object> owners_;
};

}  // namespace placewright::bindings
