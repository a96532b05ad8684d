// Execution model `calls`: an accelerator's subgraph is one call that waits, copies in, computes and copies out.
//
// Each accelerator's set of ops is cut into contiguous pieces: an op's piece number is one more than the largest number
// of times that a path to it has left the set. A piece starts when all ops outside that it reads from have finished;
// then come, one after another, its copies in, its ops, and its copies out; every op of the piece finishes at the end.
// Ops on host devices run as one pool of unlimited width, each as soon as its inputs have finished, and copy nothing.
// Through host memory a piece pays once per tensor in and once per tensor out, also between two pieces of one
// accelerator. A direct copy between two accelerators is paid by the receiving piece, one from an accelerator to a host
// device by the sending piece.
#pragma once

#include <cstdint>
#include <vector>

#include "kit/array.h"
#include "problem.h"

namespace placewright::judge {

// Seconds of each group of ops: a piece of an accelerator's set, or one op on a host device.
struct GroupTimes {
  Span<double> start_s, in_s, compute_s, out_s;  // [groups]
};

class CallsJudge {
 public:
  explicit CallsJudge(const Problem& problem);

  // Writes the group of each op to `group` [ops]; returns how many there are.
  std::int32_t find_pieces(Span<const std::int32_t> device_of_op, Span<std::int32_t> group);

  // The value, infinite if groups wait for each other in a cycle; writes what each group takes.
  double run(Span<const std::int32_t> device_of_op, Span<const std::int32_t> group, std::int32_t n_groups,
             const GroupTimes& times);

 private:
  void charge_copies(Span<const std::int32_t> device_of_op, Span<const std::int32_t> group, const GroupTimes& times);
  double run_in_order(Span<const std::int32_t> group, std::int32_t n_groups, const GroupTimes& times);

  const Problem& p_;
  Array<std::int32_t> level_, number_, members_;      // [ops], [ops + 1], [ops]
  Array<std::int32_t> ptr_, fill_, waiting_, queue_;  // [ops + 1], by group
  Array<std::int32_t> paid_by_, sent_to_;             // [ops + 1] by group, [devices]
};

}  // namespace placewright::judge
