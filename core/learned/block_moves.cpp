#include "learned/block_moves.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kit/array.h"

namespace placewright::learned {
namespace {

class Union {
 public:
  Union(const BlockLimits& limits, Span<std::int64_t> label)
      : limits_(limits),
        label_(label),
        time_s_("block time_s", limits.time_s.rows(), limits.time_s.columns()),
        bytes_("block bytes", limits.memory_bytes.size()) {
    std::iota(label.begin(), label.end(), std::int64_t{0});
    for (Index g = 0; g < bytes_.size(); ++g) {
      bytes_[g] = limits.memory_bytes[g];
      for (Index d = 0; d < time_s_.columns(); ++d) time_s_(g, d) = limits.time_s(g, d);
    }
  }

  void unite(std::int64_t one, std::int64_t other) {
    const auto [a, b] = std::minmax({root(one), root(other)});
    if (a == b || bytes_[a] + bytes_[b] > limits_.most_bytes) return;
    double least_s = std::numeric_limits<double>::infinity();
    for (Index d = 0; d < time_s_.columns(); ++d) least_s = std::min(least_s, time_s_(a, d) + time_s_(b, d));
    if (!(least_s <= limits_.most_s)) return;
    label_[b] = a;
    for (Index d = 0; d < time_s_.columns(); ++d) time_s_(a, d) += time_s_(b, d);
    bytes_[a] += bytes_[b];
  }

  // The least group of a group's block; paths there are halved on the way.
  std::int64_t root(std::int64_t group) {
    while (label_[group] != group) {
      label_[group] = label_[label_[group]];
      group = label_[group];
    }
    return group;
  }

 private:
  const BlockLimits& limits_;
  Span<std::int64_t> label_;
  Array2d<double> time_s_;  // of the blocks that roots stand for
  Array<double> bytes_;
};

// Marsaglia's xorshift with 64 bits: the same numbers on every system.
class Xorshift {
 public:
  explicit Xorshift(std::uint64_t seed) : state_(seed) {}

  Index below(Index n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<Index>((state_ >> 11) % static_cast<std::uint64_t>(n));
  }
  bool one_in(Index n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// The order in which random numbers are drawn is part of the result.
class Mutation {
 public:
  Mutation(const Scales& scales, Span2d<const std::int32_t> parents, std::uint64_t seed)
      : s_(scales), parents_(parents), random_(seed) {}

  void write(Span<std::int32_t> child) {
    // The best parent is as likely as all others.
    const auto parent = parents_.row(random_.one_in(2) ? 0 : random_.below(parents_.rows()));
    std::copy(parent.begin(), parent.end(), child.begin());
    if (parents_.rows() > 1 && random_.one_in(8)) take_stretch(child);
    int moves = 1;
    while (moves < 6 && random_.one_in(2)) ++moves;
    for (int i = 0; i < moves; ++i) move_block(child);
  }

 private:
  // A stretch of another parent.
  void take_stretch(Span<std::int32_t> child) {
    const auto other = parents_.row(random_.below(parents_.rows()));
    const Index one = random_.below(child.size()), two = random_.below(child.size());
    for (Index g = std::min(one, two); g <= std::max(one, two); ++g) child[g] = other[g];
  }

  void move_block(Span<std::int32_t> child) {
    // Of two scales the earlier one: coarse moves matter most.
    const Index one = random_.below(s_.n_scales()), two = random_.below(s_.n_scales());
    const Index scale = std::min(one, two);
    auto device = static_cast<std::int32_t>(random_.below(s_.n_devices()));
    Index group = random_.below(s_.n_groups());
    if (s_.edges.rows() > 0 && !random_.one_in(4)) follow_a_neighbour(child, group, device);
    const Index block = s_.first_ptr[scale] + s_.block(scale, group);
    for (Index k = s_.member_ptr[block]; k < s_.member_ptr[block + 1]; ++k) {
      const std::int32_t member = s_.member(scale, k);
      if (s_.allowed(member, device)) child[member] = device;
    }
  }

  // One end of an edge that is cut follows the other, if a few tries find one.
  void follow_a_neighbour(Span<const std::int32_t> child, Index& group, std::int32_t& device) {
    for (int i = 0; i < 8; ++i) {
      const Index edge = random_.below(s_.edges.rows()), side = random_.below(2);
      const std::int64_t end = s_.edges(edge, side), neighbour = s_.edges(edge, 1 - side);
      if (child[end] == child[neighbour]) continue;
      group = end;
      device = child[neighbour];
      return;
    }
  }

  const Scales& s_;
  Span2d<const std::int32_t> parents_;
  Xorshift random_;
};

}  // namespace

void unite_blocks(Span2d<const std::int64_t> pairs, const BlockLimits& limits, Span<std::int64_t> label, Stop& stop) {
  Union blocks(limits, label);
  for (Index i = 0; i < pairs.rows() && !stop.poll(); ++i) blocks.unite(pairs(i, 0), pairs(i, 1));
  for (Index g = 0; g < label.size(); ++g) label[g] = blocks.root(g);
}

void mutate(const Scales& scales, Span2d<const std::int32_t> parents, std::uint64_t seed, Span2d<std::int32_t> children,
            Stop& stop) {
  Mutation mutation(scales, parents, seed);
  for (Index i = 0; i < children.rows(); ++i) {
    stop.poll();
    mutation.write(children.row(i));
  }
}

}  // namespace placewright::learned
