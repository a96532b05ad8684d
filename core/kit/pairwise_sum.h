// Sums of many numbers, halves first: the error grows with the logarithm of their count.
//
// The order of additions is numpy's (`sum` of a contiguous array), so that a sum is the same on either side of the
// border: eight running sums over up to 128 numbers, and longer ones in two parts, the first of a multiple of eight.
#pragma once

#include "kit/span.h"

namespace placewright {

// Adds up item(first), ..., item(first + count - 1).
template <class Item>
[[nodiscard]] double pairwise_sum(Index first, Index count, const Item& item) {
  constexpr Index lanes = 8, longest = 128;
  if (count > longest) {
    const Index half = count / 2 - count / 2 % lanes;
    return pairwise_sum(first, half, item) + pairwise_sum(first + half, count - half, item);
  }
  double total = 0.0;
  Index done = 0;
  if (count >= lanes) {
    double lane[lanes];
    for (Index k = 0; k < lanes; ++k) lane[k] = item(first + k);
    for (done = lanes; done < count - count % lanes; done += lanes) {
      for (Index k = 0; k < lanes; ++k) lane[k] += item(first + done + k);
    }
    total = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
  for (; done < count; ++done) total += item(first + done);
  return total;
}

}  // namespace placewright
