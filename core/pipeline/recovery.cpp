#include "pipeline/recovery.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "pipeline/stage_loads.h"

namespace placewright::pipeline {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr int most_tries = 64;

// Rounding differs between a search and a load computed afresh.
double with_tolerance(double threshold_s) { return threshold_s * (1 + 1e-10) + 1e-300; }

class Trace {
 public:
  Trace(const ThresholdTask& task, const ReachedStates& reached, Stop& stop)
      : task_(task),
        reached_(reached),
        stop_(stop),
        loads_(task.model),
        threshold_s_(with_tolerance(task.threshold_s)),
        compute_s_("compute_s", task.lattice.n_ideals(), task.model.n_kinds()),
        memory_bytes_("memory_bytes", task.lattice.n_ideals()),
        units_("units", task.model.n_units()) {
    add_up();
  }

  Index run(TracedStages found) {
    State state = best_end();
    Index stages = 0;
    while (state.ideal > 0) {
      stop_.poll();
      const Step step = step_to(state);
      if (step.before == none) throw std::logic_error("no stage leads to a state that the search has reached");
      const Index count = task_.lattice.difference(step.before, state.ideal, units_);
      for (Index i = 0; i < count; ++i) found.stage_of_unit[units_[i]] = static_cast<std::int32_t>(stages);
      found.option_of_stage[stages++] = static_cast<std::int32_t>(step.option);
      state = {step.before, state.vector - static_cast<Index>(task_.vectors.option_shift[step.option])};
    }
    // They were found from the last to the first.
    for (std::int32_t& stage : found.stage_of_unit) stage = static_cast<std::int32_t>(stages) - 1 - stage;
    std::reverse(found.option_of_stage.begin(), found.option_of_stage.begin() + stages);
    return stages;
  }

 private:
  struct State {
    Index ideal, vector;
  };
  struct Step {
    double value = infinity;
    Index before = none, option = none;
  };

  // Finite compute time on each kind, and memory, of every ideal.
  void add_up() {
    for (Index ideal = 1; ideal < task_.lattice.n_ideals(); ++ideal) {
      const std::int32_t unit = task_.lattice.last_unit[ideal], parent = task_.lattice.parent[ideal];
      memory_bytes_[ideal] = memory_bytes_[parent] + task_.model.memory_bytes[unit];
      for (Index kind = 0; kind < task_.model.n_kinds(); ++kind) {
        const double time_s = task_.model.time_s(unit, kind);
        compute_s_(ideal, kind) = compute_s_(parent, kind) + (std::isfinite(time_s) ? time_s : 0.0);
      }
    }
  }

  // The full ideal with the vector of least value, the first of these.
  [[nodiscard]] State best_end() const {
    State best{task_.lattice.n_ideals() - 1, none};
    for (Index v = 0; v < task_.vectors.count; ++v) {
      if (!reached_.holds(best.ideal, v)) continue;
      if (best.vector == none || known(best.ideal, v) < known(best.ideal, best.vector)) best.vector = v;
    }
    return best;
  }

  [[nodiscard]] double known(Index ideal, Index vector) const {
    return reached_.is_guided() ? static_cast<double>(reached_.value(ideal, vector)) : 0.0;
  }

  // A reached ideal and an option whose stage leads to the state.
  Step step_to(State state) {
    Step best;
    const double goal = known(state.ideal, state.vector) * (1 + 1e-6);
    int tries = 0;
    for (Index option = 0; option < task_.model.n_options(); ++option) {
      const Index earlier = state.vector - static_cast<Index>(task_.vectors.option_shift[option]);
      if (earlier < 0 || !has_bit(task_.vectors.option_allowed.row(option), earlier)) continue;
      const Staffing how = task_.model.staffing(option);
      const double least_s = least_compute_s(state.ideal, how), least_bytes = least_memory_bytes(state.ideal, how);
      for (Index before = 0; before < state.ideal; ++before) {
        stop_.poll();
        if (!reached_.holds(before, earlier)) continue;
        if (compute_s_(before, how.kind) < least_s || memory_bytes_[before] < least_bytes) continue;
        if (known(before, earlier) >= best.value) continue;
        const Index count = task_.lattice.difference(before, state.ideal, units_);
        if (count == none) continue;
        const double load_s = loads_.load_s(units_.view().part(0, count), how);
        if (load_s > threshold_s_) continue;
        ++tries;
        const double value = std::max(load_s, known(before, earlier));
        if (value < best.value) best = {value, before, option};
        if (best.value <= goal || (!reached_.is_guided() && tries >= most_tries)) return best;
      }
    }
    return best;
  }

  // An ideal with less than that before it would leave too much for one stage.
  [[nodiscard]] double least_compute_s(Index ideal, const Staffing& how) const {
    const double all_s = compute_s_(task_.lattice.n_ideals() - 1, how.kind);
    return compute_s_(ideal, how.kind) - threshold_s_ * how.replicas - 1e-9 * all_s;
  }
  [[nodiscard]] double least_memory_bytes(Index ideal, const Staffing& how) const {
    const double all_bytes = memory_bytes_[task_.lattice.n_ideals() - 1];
    return memory_bytes_[ideal] - task_.model.kind_memory[how.kind] - 1e-9 * all_bytes;
  }

  const ThresholdTask& task_;
  const ReachedStates& reached_;
  Stop& stop_;
  StageLoads loads_;
  double threshold_s_;
  Array2d<double> compute_s_;   // [ideals, kinds]
  Array<double> memory_bytes_;  // [ideals]
  Array<std::int64_t> units_;
};

}  // namespace

Index trace(const ThresholdTask& task, const ReachedStates& reached, TracedStages found, Stop& stop) {
  return Trace(task, reached, stop).run(found);
}

}  // namespace placewright::pipeline
