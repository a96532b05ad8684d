#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "pipeline/bounds.h"
#include "pipeline/recovery.h"
#include "pipeline/stage_loads.h"

namespace placewright::bindings {

void bind_pipeline_units(nb::module_& room);

namespace {

// A load model with the arrays that it looks into, which Python's `LoadModel` has under these names.
class BoundLoadModel {
 public:
  explicit BoundLoadModel(const nb::dict& fields) : fields_(fields) {
    view.memory_bytes = reals("memory").span("memory", any);
    view.kind_count = numbers("kind_count").span("kind_count", any);
    view.option_kind = numbers("option_kind").span("option_kind", any);
    view.tensor_size = array_in<const std::int32_t>(fields, "tensor_size").span("tensor_size", any);
    view.touch_tensor = array_in<const std::int32_t>(fields, "touch_tensor").span("touch_tensor", any);
    const Index units = view.n_units(), kinds = view.n_kinds(), tensors = view.n_tensors();
    view.time_s = reals("time").rows("time", units, kinds);
    view.sync_s = reals("sync").rows("sync", units, kinds);
    view.touch_ptr = numbers("touch_ptr").span("touch_ptr", units + 1);
    view.touch_produces =
        array_in<const bool>(fields, "touch_produces").span("touch_produces", view.touch_tensor.size());
    view.in_s = reals("tensor_in").rows("tensor_in", tensors, kinds);
    view.out_s = reals("tensor_out").rows("tensor_out", tensors, kinds);
    view.kind_memory = reals("kind_memory").span("kind_memory", kinds);
    view.option_replicas = numbers("option_replicas").span("option_replicas", view.n_options());
    view.is_overlapped = nb::cast<bool>(fields["overlapped"]);
  }

  pipeline::LoadModel view;

 private:
  [[nodiscard]] In<double> reals(const char* name) const { return array_in<const double>(fields_, name); }
  [[nodiscard]] In<std::int64_t> numbers(const char* name) const { return array_in<const std::int64_t>(fields_, name); }

  nb::dict fields_;
};

double stage_load(const BoundLoadModel& model, Index kind, Index replicas, const In<std::int64_t>& units) {
  const auto listed = units.span("units", any);
  return pipeline::StageLoads(model.view).load_s(listed, model.view.staffing(kind, replicas));
}

// A lattice with the arrays that it looks into.
class BoundLattice {
 public:
  BoundLattice(In<std::int32_t> parent, In<std::int32_t> last_unit, In<std::int64_t> edge_ptr,
               In<std::int32_t> edge_unit, In<std::int32_t> edge_target)
      : owners_{parent, last_unit, edge_unit, edge_target}, edge_ptr_(edge_ptr) {
    view.parent = parent.span("parent", any);
    view.last_unit = last_unit.span("last_unit", view.n_ideals());
    view.edge_ptr = edge_ptr.span("edge_ptr", view.n_ideals() + 1);
    view.edge_unit = edge_unit.span("edge_unit", any);
    view.edge_target = edge_target.span("edge_target", view.edge_unit.size());
  }

  pipeline::Lattice view;

 private:
  std::vector<In<std::int32_t>> owners_;
  In<std::int64_t> edge_ptr_;
};

class BoundEnumeration {
 public:
  BoundEnumeration(In<std::int64_t> successor_ptr, In<std::int64_t> successor)
      : owners_{successor_ptr, successor},
        ideals_(successor_ptr.span("successor_ptr", any), successor.span("successor", any)) {}

  const char* run(Index most, const ShouldStop& should_stop) {
    Stop stop(asking_python(should_stop));
    nb::gil_scoped_release released;
    const auto end = ideals_.run(most, stop);
    using End = pipeline::IdealEnumeration::End;
    return end == End::whole ? "whole" : end == End::too_many ? "too_many_ideals" : "timeout";
  }

  void write(const Out<std::int32_t>& parent, const Out<std::int32_t>& last_unit, const Out<std::int64_t>& edge_ptr,
             const Out<std::int32_t>& edge_unit, const Out<std::int32_t>& edge_target,
             const Out<std::int64_t>& level_ptr) const {
    const Index ideals = ideals_.n_ideals(), edges = ideals_.n_edges();
    copy(ideals_.parent(), parent.span("parent", ideals));
    copy(ideals_.last_unit(), last_unit.span("last_unit", ideals));
    copy(ideals_.edge_ptr(), edge_ptr.span("edge_ptr", ideals + 1));
    copy(ideals_.edge_unit(), edge_unit.span("edge_unit", edges));
    copy(ideals_.edge_target(), edge_target.span("edge_target", edges));
    copy(ideals_.level_ptr(), level_ptr.span("level_ptr", ideals_.n_levels() + 1));
  }

  [[nodiscard]] const pipeline::IdealEnumeration& ideals() const { return ideals_; }

 private:
  template <class T>
  static void copy(const Array<T>& from, Span<T> to) {
    const Span<const T> part = from.view().part(0, to.size());
    std::copy(part.begin(), part.end(), to.begin());
  }

  std::vector<In<std::int64_t>> owners_;
  pipeline::IdealEnumeration ideals_;
};

// A search with the vectors that it looks at; model and lattice are kept alive by the binding.
class BoundSearch {
 public:
  BoundSearch(const BoundLoadModel& model, const BoundLattice& lattice, Index n_vectors, In<std::int64_t> option_shift,
              In<pipeline::Word> option_allowed, In<pipeline::Word> hopeful, double threshold_s, Index n_threads)
      : option_shift_(option_shift), option_allowed_(option_allowed), hopeful_(hopeful) {
    const Index options = model.view.n_options(), words = (n_vectors + 63) / 64;
    vectors_ = {n_vectors, option_shift_.span("option_shift", options),
                option_allowed_.rows("option_allowed", options, words)};
    const auto masks = hopeful_.rows("hopeful", lattice.view.n_ideals(), words);
    nb::gil_scoped_release released;
    search_.emplace(pipeline::ThresholdTask{model.view, lattice.view, vectors_, masks, threshold_s}, n_threads);
  }

  std::pair<Index, bool> expand(Index thread, Index first, Index end, Index step, const ShouldStop& should_stop) {
    Stop stop(asking_python(should_stop));
    nb::gil_scoped_release released;
    const Index visits = search_->expand(thread, first, end, step, stop);
    return {visits, stop.is_over()};
  }

  std::optional<Index> trace(const Out<std::int32_t>& stage_of_unit, const Out<std::int32_t>& option_of_stage) {
    const pipeline::ThresholdTask& task = search_->task();
    const pipeline::TracedStages found{stage_of_unit.span("stage_of_unit", task.model.n_units()),
                                       option_of_stage.span("option_of_stage", task.model.n_units())};
    Stop stop(asking_python());
    nb::gil_scoped_release released;
    const pipeline::ReachedStates& reached = search_->merge();
    if (!reached.is_reached(reached.n_ideals() - 1)) return std::nullopt;
    return pipeline::trace(task, reached, found, stop);
  }

 private:
  In<std::int64_t> option_shift_;
  In<pipeline::Word> option_allowed_, hopeful_;
  pipeline::Vectors vectors_;
  std::optional<pipeline::ThresholdSearch> search_;
};

void weigh(const In<double>& time_share, const In<double>& memory_share, const In<double>& start, Index rounds,
           const Out<double>& best) {
  const auto from = start.rows("start", 2, any);
  const auto time = time_share.rows("time_share", any, from.columns());
  const auto memory = memory_share.rows("memory_share", time.rows(), from.columns());
  const auto out = best.rows("best", 2, from.columns());
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  pipeline::weigh({time, memory}, from, rounds, out, stop);
}

bool clear_unaffordable(const BoundLattice& lattice, const In<double>& unit_cost, const In<std::int64_t>& order,
                        const In<double>& worth, const Out<pipeline::Word>& masks, const ShouldStop& should_stop) {
  const auto costs = unit_cost.span("unit_cost", any);
  const auto vectors = order.span("order", any);
  const auto worths = worth.span("worth", vectors.size());
  const auto out = masks.rows("masks", lattice.view.n_ideals(), (vectors.size() + 63) / 64);
  Stop stop(asking_python(should_stop));
  nb::gil_scoped_release released;
  pipeline::clear_unaffordable(lattice.view, costs, vectors, worths, out, stop);
  return !stop.is_over();
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::module_ room = module.def_submodule("pipeline", "Contiguous pipelines: ideals, and searches over them.");
  nb::class_<BoundLoadModel>(room, "LoadModel", "Views of a load model's arrays, which it keeps alive.")
      .def(nb::init<const nb::dict&>(), nb::arg("fields"),
           nb::sig("def __init__(self, fields: dict[str, object]) -> None"));
  nb::class_<BoundLattice>(room, "Lattice", "Views of a lattice's arrays, which it keeps alive.")
      .def(nb::init<In<std::int32_t>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<std::int32_t>>(),
           nb::arg("parent"), nb::arg("last_unit"), nb::arg("edge_ptr"), nb::arg("edge_unit"), nb::arg("edge_target"));
  nb::class_<BoundEnumeration>(room, "IdealEnumeration", "All ideals of a precedence relation, level by level.")
      .def(nb::init<In<std::int64_t>, In<std::int64_t>>(), nb::arg("successor_ptr"), nb::arg("successor"))
      .def("run", &BoundEnumeration::run, nb::arg("most"), nb::arg("should_stop").none(),
           "Add levels until all units are in: \"whole\", or why not: \"too_many_ideals\", \"timeout\".")
      .def_prop_ro(
          "n_ideals", [](const BoundEnumeration& e) { return e.ideals().n_ideals(); }, "Of whole levels.")
      .def_prop_ro("n_edges", [](const BoundEnumeration& e) { return e.ideals().n_edges(); })
      .def_prop_ro("n_levels", [](const BoundEnumeration& e) { return e.ideals().n_levels(); })
      .def("write", &BoundEnumeration::write, nb::arg("parent"), nb::arg("last_unit"), nb::arg("edge_ptr"),
           nb::arg("edge_unit"), nb::arg("edge_target"), nb::arg("level_ptr"), "Write the lattice.");
  nb::class_<BoundSearch>(room, "ThresholdSearch", "Is there a pipeline whose stages all stay within a threshold?")
      .def(nb::init<const BoundLoadModel&, const BoundLattice&, Index, In<std::int64_t>, In<pipeline::Word>,
                    In<pipeline::Word>, double, Index>(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::arg("model"), nb::arg("lattice"), nb::arg("n_vectors"),
           nb::arg("option_shift"), nb::arg("option_allowed"), nb::arg("hopeful"), nb::arg("threshold_s"),
           nb::arg("n_threads"))
      .def("expand", &BoundSearch::expand, nb::arg("thread"), nb::arg("first"), nb::arg("end"), nb::arg("step"),
           nb::arg("should_stop").none(),
           "Expand every step-th ideal of a stretch; return the stages looked at, and whether it was stopped.")
      .def("trace", &BoundSearch::trace, nb::arg("stage_of_unit"), nb::arg("option_of_stage"),
           "Write the pipeline that was found and return its number of stages, None if there is none.");
  room.def("stage_load", &stage_load, nb::arg("model"), nb::arg("kind"), nb::arg("replicas"), nb::arg("units"),
           "Load of a stage, computed from scratch; infinite if it does not fit the kind's memory.");
  room.def("weigh", &weigh, nb::arg("time_share"), nb::arg("memory_share"), nb::arg("start"), nb::arg("rounds"),
           nb::arg("best"), "Write the best prices of time and memory that raising those of overused kinds meets.");
  room.def("clear_unaffordable", &clear_unaffordable, nb::arg("lattice"), nb::arg("unit_cost"), nb::arg("order"),
           nb::arg("worth"), nb::arg("masks"), nb::arg("should_stop").none(),
           "Clear the vectors that cannot pay for the units outside an ideal; false if it was stopped.");
  bind_pipeline_units(room);
}

}  // namespace placewright::bindings
