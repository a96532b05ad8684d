// What the reduction of a graph to units loops over: orders, negligible classes, equal sets of readers.
#pragma once

#include "kit/array.h"
#include "kit/stop.h"

namespace placewright::pipeline {

// Successors of unit u are successor[successor_ptr[u]] to successor[successor_ptr[u + 1]].
struct Precedence {
  Span<const std::int64_t> successor_ptr;
  Span<const std::int64_t> successor;

  [[nodiscard]] Index n_units() const { return successor_ptr.size() - 1; }
};

// Writes all units by a stack (`is_depth_first`) or a queue of ready ones; those that become ready together go on it by
// rising priority.
void topological_order(const Precedence& precedence, Span<const double> priority, bool is_depth_first,
                       Span<std::int64_t> order, Stop& stop);

// Classes of ops that take time forward and backward [classes, kinds].
struct Classes {
  Span2d<double> forward_s, backward_s;
  Span<const bool> touches_backward;  // [classes]: these stay
  Span<std::int64_t> degree;          // [classes]: edges
  Span<std::int64_t> neighbour_xor;   // [classes]: the xor of all neighbours
};

// Merges negligible classes on one edge into the other end of that edge, again and again; writes what each class is
// merged into in the end, itself where it stays. Changes the times, degrees and neighbours of the classes on the way.
void merge_leaves(const Classes& classes, double negligible_s, Span<std::int64_t> merged_into, Stop& stop);

// Tensors by who makes them, in which direction, and by whom they are touched: tensor t by touched[ptr[t]] to
// touched[ptr[t + 1]].
struct Touches {
  Span<const std::int64_t> ptr;
  Span<const std::int64_t> touched;
  Span<const std::int64_t> producer;
  Span<const bool> is_backward;
};

// Writes for each tensor whether it has the same touches as the tensor `other` names.
void compare_touches(const Touches& touches, Span<const std::int64_t> other, Span<bool> same, Stop& stop);

}  // namespace placewright::pipeline
