// Is there a pipeline whose stages all stay within a threshold? Forward search over a lattice.
//
// Ideals are taken by rising cardinality; from each reached one a depth-first walk grows the next stage unit by unit,
// in rising unit number, so that every larger ideal is met once. The walk turns back where the stage's compute time and
// its settled transfers exceed the threshold on all kinds: neither can shrink again.
//
// Ideals of one cardinality do not feed each other, so several threads may share a level, each with a walk of its own.
#pragma once

#include <vector>

#include "kit/stop.h"
#include "pipeline/growing_stage.h"
#include "pipeline/lattice.h"
#include "pipeline/reached_states.h"

namespace placewright::pipeline {

// What a search is about; `hopeful` [ideals, words] are the vectors whose other devices may host an ideal's other
// units.
struct ThresholdTask {
  const LoadModel& model;
  const Lattice& lattice;
  const Vectors& vectors;
  Span2d<const Word> hopeful;
  double threshold_s;
};

// One thread's walks over the stages that may follow an ideal.
class Walk {
 public:
  // `own` is the number of this thread's states among those of all threads.
  Walk(const ThresholdTask& task, std::vector<ReachedStates>& reached, Index own);

  // Note what the stages behind an ideal reach; returns how many stages were looked at. When stopped, it ends anywhere,
  // and the walk is of no more use.
  Index expand(Index ideal, Stop& stop);

 private:
  // An option that the vectors of the passed ideal can afford.
  struct Usable {
    Index option = 0;
    Staffing how;
    Index n_arrivals = 0;
  };
  // Where a path stands: an ideal, and the edges that are still to be tried.
  struct Place {
    std::int64_t edge = 0, end = 0;
  };

  bool gather(Index ideal);
  void pass_over(Index ideal);
  void drop_dominated(Index ideal);
  void list_usable(Index ideal);
  void list_arrivals(Index ideal);
  Index grow_stages(Index ideal, Stop& stop);
  [[nodiscard]] bool is_hopeless() const;
  bool reach(Index ideal);
  void note_arrivals(Index ideal, const Usable& usable, double load_s);

  const ThresholdTask& task_;
  std::vector<ReachedStates>& all_;
  ReachedStates& own_;
  GrowingStage stage_;
  Index passed_ = 0;       // the ideal that the next stage starts from
  Array<Word> source_;     // [words]: vectors of the passed ideal
  Array2d<Word> shifted_;  // [options, words]: ... with the devices of one more stage
  std::vector<Usable> usable_;
  Array<Place> path_;               // [depths]
  Array<float> origin_;             // [vectors]: values of the passed ideal
  Array2d<std::int32_t> arrivals_;  // [options, vectors]: members of `shifted_`
};

class ThresholdSearch {
 public:
  ThresholdSearch(const ThresholdTask& task, Index n_threads);

  ThresholdSearch(const ThresholdSearch&) = delete;
  ThresholdSearch& operator=(const ThresholdSearch&) = delete;

  // Expand the ideals first, first + step, .. below `end`; returns how many stages were looked at. Different threads
  // may do so at the same time for ideals of one cardinality. A thread that was stopped expands no more.
  Index expand(Index thread, Index first, Index end, Index step, Stop& stop);

  // What all threads have reached together; none of them may go on.
  const ReachedStates& merge();

  [[nodiscard]] const ThresholdTask& task() const { return task_; }

 private:
  ThresholdTask task_;
  std::vector<ReachedStates> reached_;
  std::vector<Walk> walks_;
};

}  // namespace placewright::pipeline
