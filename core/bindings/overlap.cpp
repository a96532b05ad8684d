#include "bindings/bound_problem.h"
#include "overlap/busy_lines.h"
#include "overlap/list_schedule.h"
#include "overlap/rank_figures.h"

namespace placewright::bindings {
namespace {

// What list schedulers know of one problem, kept from one call to the next.
class ListScheduler {
 public:
  ListScheduler(const BoundProblem& problem, In<double> time_s, In<double> group_time_s, In<double> group_bytes)
      : problem_(problem.view), time_s_(time_s), group_time_s_(group_time_s), group_bytes_(group_bytes) {
    const Index ops = problem_.n_ops(), devices = problem_.n_devices();
    costs_.time_s = time_s_.rows("time_s", ops, devices);
    costs_.group_time_s = group_time_s_.rows("group_time_s", ops, devices);
    costs_.group_bytes = group_bytes_.span("group_bytes", ops);
  }

  void by_rank(const In<double>& rank, const In<double>& extra_s, const In<std::int32_t>& preferred,
               const Out<std::int32_t>& device_of_group, const In<double>& limit_bytes, const Out<std::int32_t>& device,
               const Out<double>& start_s, const Out<double>& finish_s, const Out<bool>& misfit) const {
    const Index ops = problem_.n_ops();
    const auto ranks = rank.span("rank", ops);
    const auto extra = extra_s.rows("extra_s", ops, problem_.n_devices());
    const auto wanted = preferred.span("preferred", ops);
    const auto given = given_of(device_of_group, limit_bytes);
    const auto plan = plan_of(device, start_s, finish_s, misfit);
    Stop stop(asking_python());
    nb::gil_scoped_release released;
    overlap::schedule_by_rank(problem_, costs_, ranks, extra, wanted, given, plan, stop);
  }

  void by_start(const In<double>& rank, const In<std::int32_t>& favourite, const Out<std::int32_t>& device_of_group,
                const In<double>& limit_bytes, const Out<std::int32_t>& device, const Out<double>& start_s,
                const Out<double>& finish_s, const Out<bool>& misfit) const {
    const auto ranks = rank.span("rank", problem_.n_ops());
    const auto favourites = favourite.span("favourite", problem_.n_ops());
    const auto given = given_of(device_of_group, limit_bytes);
    const auto plan = plan_of(device, start_s, finish_s, misfit);
    Stop stop(asking_python());
    nb::gil_scoped_release released;
    overlap::schedule_by_start(problem_, costs_, ranks, favourites, given, plan, stop);
  }

 private:
  [[nodiscard]] overlap::Given given_of(const Out<std::int32_t>& device_of_group, const In<double>& limit_bytes) const {
    return {device_of_group.span("device_of_group", problem_.n_ops()),
            limit_bytes.span("limit_bytes", problem_.n_devices())};
  }
  [[nodiscard]] overlap::ListPlan plan_of(const Out<std::int32_t>& device, const Out<double>& start_s,
                                          const Out<double>& finish_s, const Out<bool>& misfit) const {
    const Index ops = problem_.n_ops();
    return {device.span("device", ops), start_s.span("start_s", ops), finish_s.span("finish_s", ops),
            misfit.span("misfit", ops)};
  }

  const Problem& problem_;
  In<double> time_s_, group_time_s_, group_bytes_;
  overlap::ListCosts costs_;
};

using RankFigures = void (*)(const Problem&, Span<const double>, Span<const double>, Span<double>);

template <RankFigures figures>
void write_ranks(const BoundProblem& problem, const In<double>& mean_time_s, const In<double>& mean_copy_s,
                 const Out<double>& out) {
  const Index ops = problem.view.n_ops(), tensors = problem.view.n_tensors();
  figures(problem.view, mean_time_s.span("mean_time_s", ops), mean_copy_s.span("mean_copy_s", tensors),
          out.span("out", ops));
}

void write_optimistic_costs(const BoundProblem& problem, const In<double>& time_s, const In<double>& mean_copy_s,
                            const Out<double>& out) {
  const Index ops = problem.view.n_ops(), devices = problem.view.n_devices();
  overlap::optimistic_costs(problem.view, time_s.rows("time_s", ops, devices),
                            mean_copy_s.span("mean_copy_s", problem.view.n_tensors()), out.rows("out", ops, devices));
}

}  // namespace

void bind_overlap(nb::module_& module) {
  nb::module_ room = module.def_submodule("overlap", "Latency under `overlap`: list schedulers.");
  nb::class_<ListScheduler>(room, "ListScheduler", "List schedulers of one problem.")
      .def(nb::init<const BoundProblem&, In<double>, In<double>, In<double>>(), nb::keep_alive<1, 2>(),
           nb::arg("problem"), nb::arg("time_s"), nb::arg("group_time_s"), nb::arg("group_bytes"))
      .def("by_rank", &ListScheduler::by_rank, nb::arg("rank"), nb::arg("extra_s"), nb::arg("preferred"),
           nb::arg("device_of_group"), nb::arg("limit_bytes"), nb::arg("device"), nb::arg("start_s"),
           nb::arg("finish_s"), nb::arg("misfit"),
           "Place ops in the order of a rank, each where it would end first; write the last four arrays.")
      .def("by_start", &ListScheduler::by_start, nb::arg("rank"), nb::arg("favourite"), nb::arg("device_of_group"),
           nb::arg("limit_bytes"), nb::arg("device"), nb::arg("start_s"), nb::arg("finish_s"), nb::arg("misfit"),
           "Place what can start first; write the last four arrays.");
  nb::class_<overlap::BusyLines>(room, "BusyLines", "Busy times of devices and channels with the gaps between them.")
      .def(nb::init<Index, Index>(), nb::arg("n_lines"), nb::arg("n_bookings"))
      .def("first_gap", &overlap::BusyLines::first_gap, nb::arg("line"), nb::arg("ready_s"), nb::arg("length_s"))
      .def("first_common_gap", &overlap::BusyLines::first_common_gap, nb::arg("one"), nb::arg("other"),
           nb::arg("ready_s"), nb::arg("length_s"))
      .def("occupy", &overlap::BusyLines::occupy, nb::arg("line"), nb::arg("start_s"), nb::arg("finish_s"));
  room.def("upward_ranks", &write_ranks<overlap::upward_ranks>, nb::arg("problem"), nb::arg("mean_time_s"),
           nb::arg("mean_copy_s"), nb::arg("out"),
           "Write the mean time from each op's start to the end of everything after it.");
  room.def("downward_ranks", &write_ranks<overlap::downward_ranks>, nb::arg("problem"), nb::arg("mean_time_s"),
           nb::arg("mean_copy_s"), nb::arg("out"), "Write the longest path from the beginning to each op's start.");
  room.def("optimistic_costs", &write_optimistic_costs, nb::arg("problem"), nb::arg("time_s"), nb::arg("mean_copy_s"),
           nb::arg("out"),
           "Write what is left after each op ends on each device, if each later op has its best device.");
}

}  // namespace placewright::bindings
