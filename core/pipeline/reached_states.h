// What one thread of a search has reached: for each ideal a set of vectors, and how well it was reached with each.
//
// A state is an ideal with a vector: stages within the threshold hold the ideal's units and use the vector's devices.
// Only the thread that owns a set adds to it; others may look at it at the same time and see each word as it was or as
// it is.
#pragma once

#include <atomic>
#include <limits>
#include <vector>

#include "kit/array.h"
#include "pipeline/vectors.h"

namespace placewright::pipeline {

class ReachedStates {
 public:
  // With values, or without: they only help to trace back a good pipeline, and take memory.
  ReachedStates(Index n_ideals, const Vectors& vectors, bool is_guided)
      : words_(static_cast<std::size_t>(n_ideals * vectors.n_words())),
        value_("value", is_guided ? n_ideals : 0, vectors.count, std::numeric_limits<float>::infinity()),
        n_ideals_(n_ideals),
        n_words_(vectors.n_words()),
        is_guided_(is_guided) {}

  [[nodiscard]] Index n_ideals() const { return n_ideals_; }
  [[nodiscard]] Index n_words() const { return n_words_; }
  [[nodiscard]] bool is_guided() const { return is_guided_; }

  [[nodiscard]] Word word(Index ideal, Index word) const {
    return words_[place(ideal, word)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool holds(Index ideal, Index vector) const { return has_bit(word(ideal, vector >> 6), vector); }
  [[nodiscard]] bool is_reached(Index ideal) const {
    bool is_any = false;
    for (Index i = 0; i < n_words_; ++i) is_any = is_any || word(ideal, i) != 0;
    return is_any;
  }
  void add(Index ideal, Index word, Word bits) {
    std::atomic<Word>& here = words_[place(ideal, word)];
    here.store(here.load(std::memory_order_relaxed) | bits, std::memory_order_relaxed);
  }

  // Of a state, the least largest load seen of stages that reach it.
  [[nodiscard]] float value(Index ideal, Index vector) const { return value_(ideal, vector); }
  void lower_value(Index ideal, Index vector, double value) {
    float& here = value_(ideal, vector);
    if (value < static_cast<double>(here)) here = static_cast<float>(value);
  }

  void merge(const ReachedStates& other) {
    for (Index ideal = 0; ideal < n_ideals_; ++ideal) {
      for (Index i = 0; i < n_words_; ++i) add(ideal, i, other.word(ideal, i));
      for (Index v = 0; is_guided_ && v < value_.columns(); ++v) lower_value(ideal, v, other.value(ideal, v));
    }
  }

 private:
  [[nodiscard]] std::size_t place(Index ideal, Index word) const {
    check_index("reached", ideal, n_ideals_);
    check_index("reached", word, n_words_);
    return static_cast<std::size_t>(ideal * n_words_ + word);
  }

  std::vector<std::atomic<Word>> words_;
  Array2d<float> value_;
  Index n_ideals_, n_words_;
  bool is_guided_;
};

}  // namespace placewright::pipeline
