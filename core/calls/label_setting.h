// The relaxed problem solved by labels on the lattice of ideals.
//
// A solution is built up piece by piece along a chain of ideals. All that the rest of it has to know of an ideal's part
// is when each unit of its frontier ends, and the end of what nobody reads: that is a label (label_store.h). A label
// that is nowhere earlier than another one of the same ideal is dropped. So is one that cannot end below the cutoff.
// Where an ideal has too many labels, some are replaced by their componentwise minimum, which keeps the bound valid.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calls/frontiers.h"
#include "calls/relaxed.h"
#include "kit/stop.h"
#include "pipeline/lattice.h"

namespace placewright::calls {

// What pieces use up, and how much of it there is.
struct Ration {
  double per_piece;
  Span<const double> per_unit;  // [units]
  double limit;
};

struct LabelQuestion {
  Span<const double> open_s;     // [units], of Tails
  double cutoff;                 // solutions below it are looked for; infinite: all
  Index width;                   // labels per ideal that are carried on
  std::optional<Ration> ration;  // the answer, bound included, is about solutions that keep to it
};

// Groups of units in the order in which they can be run; host units are groups of one.
struct LabelSolution {
  struct Group {
    std::vector<std::int32_t> units;
    bool is_on_host;
  };
  double value;
  std::vector<Group> groups;
};

struct LabelAnswer {
  double bound;                           // of the relaxed problem, up to the cutoff
  std::optional<LabelSolution> solution;  // the best one below the cutoff, where it can be told
  bool is_finished;
  bool is_blended;  // labels were replaced by minima
  Index n_visits;
};

// Without a ration, fewer pieces are preferred where nothing else differs. A time that is over leaves a weaker bound.
[[nodiscard]] LabelAnswer solve_labels(const Relaxed& relaxed, const pipeline::Lattice& ideals,
                                       const Frontiers& frontiers, const LabelQuestion& question, Stop& stop);

}  // namespace placewright::calls
