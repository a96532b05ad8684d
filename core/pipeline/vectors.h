// Sets of device-count vectors as bit sets: which numbers of devices of each kind are in use.
//
// Vector 0 uses no device. Staffing a stage adds the same number to every vector that can afford it, so for a whole set
// of vectors it is a mask and a shift.
#pragma once

#include <cstdint>

#include "kit/span.h"

namespace placewright::pipeline {

using Word = std::uint64_t;  // vector v is bit v % 64 of word v / 64

struct Vectors {
  Index count = 0;
  Span<const std::int64_t> option_shift;  // [options], in bits
  Span2d<const Word> option_allowed;      // [options, words]: vectors that can still afford the option

  [[nodiscard]] Index n_words() const { return option_allowed.columns(); }
};

[[nodiscard]] inline bool has_bit(Word word, Index vector) { return ((word >> (vector & 63)) & 1) != 0; }
[[nodiscard]] inline bool has_bit(Span<const Word> words, Index vector) { return has_bit(words[vector >> 6], vector); }

// Writes the allowed members of `source`, shifted; tells whether there are any.
inline bool shift_up(Span<const Word> source, Span<const Word> allowed, Index shift, Span<Word> result) {
  const Index whole = shift >> 6, part = shift & 63;
  bool found = false;
  for (Index word = source.size() - 1; word >= 0; --word) {
    const Index from = word - whole;
    Word bits = 0;
    if (from >= 0) {
      bits = (source[from] & allowed[from]) << part;
      if (part > 0 && from >= 1) bits |= (source[from - 1] & allowed[from - 1]) >> (64 - part);
    }
    result[word] = bits;
    found = found || bits != 0;
  }
  return found;
}

}  // namespace placewright::pipeline
