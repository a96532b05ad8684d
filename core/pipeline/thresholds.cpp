#include "pipeline/thresholds.h"

#include <algorithm>
#include <utility>

namespace placewright::pipeline {
namespace {

// Values are kept for few vectors, and where they do not take too much memory.
constexpr Index most_guided_vectors = 512;
constexpr Index most_guide_bytes = Index{128} << 20;

constexpr float infinity = std::numeric_limits<float>::infinity();

bool is_guided(const ThresholdTask& task) {
  const Index values = task.lattice.n_ideals() * task.vectors.count;
  return task.vectors.count <= most_guided_vectors && values * Index{sizeof(float)} <= most_guide_bytes;
}

}  // namespace

Walk::Walk(const ThresholdTask& task, std::vector<ReachedStates>& reached, Index own)
    : task_(task),
      all_(reached),
      own_(reached.at(static_cast<std::size_t>(own))),
      stage_(task.model),
      source_("source", task.vectors.n_words()),
      shifted_("shifted", task.model.n_options(), task.vectors.n_words()),
      path_("path", task.model.n_units() + 1),
      origin_("origin", own_.is_guided() ? task.vectors.count : 0),
      arrivals_("arrivals", own_.is_guided() ? task.model.n_options() : 0, task.vectors.count) {
  usable_.reserve(static_cast<std::size_t>(task.model.n_options()));
}

Index Walk::expand(Index ideal, Stop& stop) {
  if (!gather(ideal)) return 0;
  pass_over(ideal);
  drop_dominated(ideal);
  list_usable(ideal);
  return usable_.empty() ? 0 : grow_stages(ideal, stop);
}

// The vectors with which any thread has reached the ideal; tells whether there are any.
bool Walk::gather(Index ideal) {
  bool is_reached = false;
  for (Index i = 0; i < source_.size(); ++i) {
    Word bits = 0;
    for (const ReachedStates& one : all_) bits |= one.word(ideal, i);
    source_[i] = bits;
    is_reached = is_reached || bits != 0;
  }
  return is_reached;
}

// Make the ideal the passed one; touches only units in which it differs from the last one.
void Walk::pass_over(Index ideal) {
  const Lattice& lattice = task_.lattice;
  Index last = std::exchange(passed_, ideal), next = ideal;
  while (last != next) {
    // Chains of parents list their units in falling order.
    const std::int32_t last_unit = lattice.last_unit[last], next_unit = lattice.last_unit[next];
    if (last_unit >= next_unit) last = lattice.parent[last];
    if (next_unit >= last_unit) next = lattice.parent[next];
    if (last_unit > next_unit) {
      stage_.take_out(last_unit);
    } else if (next_unit > last_unit) {
      stage_.pass(next_unit);
    }
  }
}

// Drop vectors with which the ideal plus a unit is reached too, if that is never worse: given a way to finish from the
// ideal, taking the unit out of its later stage finishes from the larger ideal; no other stage changes.
void Walk::drop_dominated(Index ideal) {
  const Lattice& lattice = task_.lattice;
  for (std::int64_t edge = lattice.edge_ptr[ideal]; edge < lattice.edge_ptr[ideal + 1]; ++edge) {
    if (!stage_.lightens(lattice.edge_unit[edge])) continue;
    const std::int32_t larger = lattice.edge_target[edge];
    for (Index i = 0; i < source_.size(); ++i) {
      for (const ReachedStates& one : all_) source_[i] &= ~one.word(larger, i);
    }
  }
}

void Walk::list_usable(Index ideal) {
  const Vectors& vectors = task_.vectors;
  usable_.clear();
  for (Index option = 0; option < task_.model.n_options(); ++option) {
    const auto shift = static_cast<Index>(vectors.option_shift[option]);
    if (shift_up(source_.view(), vectors.option_allowed.row(option), shift, shifted_.row(option))) {
      usable_.push_back({option, task_.model.staffing(option)});
    }
  }
  if (own_.is_guided() && !usable_.empty()) list_arrivals(ideal);
}

// What values are noted from: those of the ideal, and the vectors that each option leads to.
void Walk::list_arrivals(Index ideal) {
  origin_.fill(infinity);
  for (const ReachedStates& one : all_) {
    for (Index v = 0; v < origin_.size(); ++v) origin_[v] = std::min(origin_[v], one.value(ideal, v));
  }
  for (Usable& usable : usable_) {
    const Span<const Word> shifted = shifted_.row(usable.option);
    const Span<std::int32_t> arrivals = arrivals_.row(usable.option);
    for (Index v = 0; v < origin_.size(); ++v) {
      if (has_bit(shifted, v)) arrivals[usable.n_arrivals++] = static_cast<std::int32_t>(v);
    }
  }
}

Index Walk::grow_stages(Index ideal, Stop& stop) {
  const Lattice& lattice = task_.lattice;
  Index visits = 0;
  path_[0] = {lattice.edge_ptr[ideal], lattice.edge_ptr[ideal + 1]};
  while (!stop.poll()) {
    Place& here = path_[stage_.depth()];
    if (here.edge < here.end) {
      const std::int64_t edge = here.edge++;
      const std::int32_t unit = lattice.edge_unit[edge];
      ++visits;
      stage_.consider(unit);
      if (is_hopeless()) continue;
      stage_.add(unit);
      const std::int32_t target = lattice.edge_target[edge];
      if (reach(target)) {
        Place next{lattice.edge_ptr[target], lattice.edge_ptr[target + 1]};
        while (next.edge < next.end && lattice.edge_unit[next.edge] < unit) ++next.edge;
        path_[stage_.depth()] = next;
        continue;
      }
    } else if (stage_.depth() == 0) {
      break;
    }
    stage_.take_back();
  }
  return visits;
}

bool Walk::is_hopeless() const {
  return std::all_of(usable_.begin(), usable_.end(),
                     [&](const Usable& usable) { return stage_.is_hopeless(usable.how, task_.threshold_s); });
}

// Note where the stage leads to if it ends here; tells whether it may grow.
bool Walk::reach(Index ideal) {
  bool may_grow = false;
  for (const Usable& usable : usable_) {
    if (!stage_.may_grow(usable.how, task_.threshold_s)) continue;
    may_grow = true;
    const double load_s = stage_.load_s(usable.how);
    if (load_s > task_.threshold_s) continue;
    const Span<const Word> shifted = shifted_.row(usable.option), hopeful = task_.hopeful.row(ideal);
    for (Index i = 0; i < hopeful.size(); ++i) own_.add(ideal, i, shifted[i] & hopeful[i]);
    if (own_.is_guided()) note_arrivals(ideal, usable, load_s);
  }
  return may_grow;
}

void Walk::note_arrivals(Index ideal, const Usable& usable, double load_s) {
  const auto shift = static_cast<Index>(task_.vectors.option_shift[usable.option]);
  const Span<const std::int32_t> arrivals = arrivals_.row(usable.option);
  for (Index slot = 0; slot < usable.n_arrivals; ++slot) {
    const std::int32_t v = arrivals[slot];
    own_.lower_value(ideal, v, std::max(static_cast<double>(origin_[v - shift]), load_s));
  }
}

ThresholdSearch::ThresholdSearch(const ThresholdTask& task, Index n_threads) : task_(task) {
  reached_.reserve(static_cast<std::size_t>(n_threads));
  walks_.reserve(static_cast<std::size_t>(n_threads));
  for (Index i = 0; i < n_threads; ++i) {
    reached_.emplace_back(task.lattice.n_ideals(), task.vectors, is_guided(task));
    walks_.emplace_back(task_, reached_, i);
  }
  ReachedStates& first = reached_.at(0);
  first.add(0, 0, task.hopeful(0, 0) & 1);
  if (first.is_guided()) first.lower_value(0, 0, 0.0);
}

Index ThresholdSearch::expand(Index thread, Index first, Index end, Index step, Stop& stop) {
  check_index("walks", thread, static_cast<Index>(walks_.size()));
  Walk& walk = walks_[static_cast<std::size_t>(thread)];
  Index visits = 0;
  for (Index ideal = first; ideal < end && !stop.poll(); ideal += step) visits += walk.expand(ideal, stop);
  return visits;
}

const ReachedStates& ThresholdSearch::merge() {
  for (std::size_t i = 1; i < reached_.size(); ++i) reached_.front().merge(reached_[i]);
  return reached_.front();
}

}  // namespace placewright::pipeline
