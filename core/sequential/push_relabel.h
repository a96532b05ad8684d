// Minimum cuts by push-relabel (Goldberg and Tarjan 1988): highest label first, gaps, distances to the sink found anew
// now and then (Cherkassky and Goldberg 1997).
//
// Capacities are whole numbers: the given ones times a power of two, rounded down. No cut gets dearer by that, so the
// least whole-number cut, scaled back, is a bound for the true one: at most one unit (2^-60 of the sum of all) per arc
// below it. Of all least cuts this is the one with the fewest nodes at the sink's side, in whichever order flow is
// pushed; so a run may end and go on anywhere.
#pragma once

#include <cstdint>

#include "kit/array.h"
#include "kit/stop.h"
#include "sequential/cut_network.h"

namespace placewright::sequential {

class MinimumCut {
 public:
  explicit MinimumCut(const CutNetwork& network);

  [[nodiscard]] Index n_nodes() const { return nodes_.size(); }

  // Begin anew with other costs and capacities; nodes and arcs have to be those of the constructor.
  void load(const CutNetwork& network);

  // Go on from where the last run ended. True if the cut is least, which can be false only if it was stopped.
  bool run(Stop& stop);

  // Of all cuts, from below. After a run to the end it is the cut's own value, but for rounding.
  [[nodiscard]] double bound() const;

  // Which nodes go [nodes]; before a run to the end it is just any cut.
  void write_sink_side(Array<std::uint8_t>& goes);

 private:
  // An arc and its way back are each other's mates. Arcs stand together by their tails.
  struct Arc {
    std::int64_t residual;
    std::int32_t to, mate;
  };
  struct Node {
    std::int64_t excess;      // what came in and has to go on
    std::int64_t room;        // left on the arc to the sink
    std::int32_t begin, end;  // its arcs
    std::int32_t current;     // the arc where pushing goes on
    std::int32_t below;       // on the stack of active nodes of its height
  };

  bool measure_distances(Stop& stop);
  void stack_active_nodes();
  void put_on_stack(std::int32_t v, std::int32_t height);
  [[nodiscard]] std::int32_t take_highest();
  void discharge(std::int32_t v);
  [[nodiscard]] std::int32_t relabel(std::int32_t v);

  Array<Node> nodes_;
  Array<Arc> arcs_;
  Array<std::int32_t> position_;    // [arcs of the network]: where they stand among `arcs_`
  Array<std::int32_t> height_;      // distance to the sink at least; above n_nodes(): it cannot be reached
  Array<std::int32_t> top_;         // [heights]: a stack of active nodes, none = empty
  Array<std::int32_t> population_;  // [heights]
  Array<std::int32_t> reaching_;    // nodes from which the sink can be reached, nearest first
  Index n_reaching_ = 0;
  std::int32_t highest_ = 0;
  Index relabel_work_ = 0;
  double scale_ = 1.0;
  std::int64_t through_ = 0;  // what goes from the source through one node to the sink
  std::int64_t reached_sink_ = 0;
};

}  // namespace placewright::sequential
