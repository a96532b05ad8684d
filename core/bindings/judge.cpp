#include <nanobind/stl/string.h>

#include "bindings/bound_problem.h"
#include "judge/batch.h"
#include "judge/calls.h"
#include "judge/memory.h"
#include "judge/overlap.h"
#include "judge/sequential.h"

namespace placewright::bindings {
namespace {

judge::Execution execution_named(const std::string& name) {
  if (name == "overlap") return judge::Execution::overlap;
  if (name == "sequential") return judge::Execution::sequential;
  if (name == "calls") return judge::Execution::calls;
  if (name == "pipeline") return judge::Execution::pipeline;
  throw nb::value_error(("no such execution model: " + name).c_str());
}

// The rules by which placements of one problem are judged, with the arrays that they look into.
class Judge {
 public:
  Judge(const BoundProblem& problem, const std::string& execution, std::int32_t most_segments, bool is_contiguous,
        bool is_overlapped, bool is_split, In<std::int32_t> order_source, In<std::int32_t> order_target)
      : problem_(problem.view), order_source_(std::move(order_source)), order_target_(std::move(order_target)) {
    const auto source = order_source_.span("order_source", any);
    rules_ = {execution_named(execution),
              most_segments,
              {is_contiguous, is_overlapped, is_split},
              source,
              order_target_.span("order_target", source.size())};
  }

  void judge_many(const In<std::int32_t>& device_of_op, const In<double>& priority, Index first, Index last,
                  const Out<double>& value, const Out<double>& excess_bytes, const Out<bool>& is_valid) const {
    const auto placements = device_of_op.rows("device_of_op", any, problem_.n_ops());
    const auto priorities = priority.rows("priority", any, any);
    const Index n = placements.rows();
    const judge::Verdicts verdicts{value.span("value", n), excess_bytes.span("excess_bytes", n),
                                   is_valid.span("is_valid", n)};
    Stop stop(asking_python());
    nb::gil_scoped_release released;
    judge::judge_many(problem_, rules_, placements, priorities, first, last, verdicts, stop);
  }

  // One placement under `overlap`: what happened when, and the peaks of memory.
  double simulate(const In<std::int32_t>& device_of_op, const In<double>& priority, const Out<double>& start_s,
                  const Out<double>& end_s, const Out<double>& copies, const Out<double>& up_legs) const {
    const auto record = record_of(start_s, end_s, copies, up_legs);
    const auto device = device_of_op.span("device_of_op", problem_.n_ops());
    const auto priorities = priority.span("priority", any);
    nb::gil_scoped_release released;
    return judge::OverlapJudge(problem_).run(device, priorities, &record);
  }

  void peaks(const In<std::int32_t>& device_of_op, const Out<double>& start_s, const Out<double>& end_s,
             const Out<double>& copies, const Out<double>& up_legs, double value_s, const In<double>& resident,
             const Out<double>& out) const {
    const Index devices = problem_.n_devices();
    judge::MemoryJudge(problem_).peaks(device_of_op.span("device_of_op", problem_.n_ops()),
                                       record_of(start_s, end_s, copies, up_legs), value_s,
                                       resident.span("resident", devices), out.span("out", devices));
  }

  Index live_intervals(const In<std::int32_t>& device_of_op, const Out<double>& start_s, const Out<double>& end_s,
                       const Out<double>& copies, const Out<double>& up_legs, double value_s,
                       const Out<double>& out) const {
    const auto rows = out.rows("out", any, 4);
    judge::MemoryJudge memory(problem_);
    Index n = 0;
    for (const auto& interval : memory.intervals(device_of_op.span("device_of_op", problem_.n_ops()),
                                                 record_of(start_s, end_s, copies, up_legs), value_s)) {
      rows(n, 0) = interval.device;
      rows(n, 1) = interval.start_s;
      rows(n, 2) = interval.end_s;
      rows(n++, 3) = interval.bytes;
    }
    return n;
  }

  std::int32_t find_segments(const In<std::int32_t>& device_of_op, const Out<std::int32_t>& segment) const {
    const Index ops = problem_.n_ops();
    return judge::SegmentFinder(problem_).find(device_of_op.span("device_of_op", ops), segment.span("segment", ops));
  }

  double overheads(const In<std::int32_t>& device_of_op, const In<std::int32_t>& segment, std::int32_t n_segments,
                   const Out<double>& per_device) const {
    const Index ops = problem_.n_ops();
    return judge::SegmentFinder(problem_).overheads(device_of_op.span("device_of_op", ops),
                                                    segment.span("segment", ops), n_segments,
                                                    per_device.span("per_device", problem_.n_devices()));
  }

  double copies_total(const In<std::int32_t>& device_of_op, const Out<double>& per_device) const {
    return judge::copies_total(problem_, device_of_op.span("device_of_op", problem_.n_ops()),
                               per_device.span("per_device", problem_.n_devices()));
  }

  std::int32_t find_pieces(const In<std::int32_t>& device_of_op, const Out<std::int32_t>& group) const {
    const Index ops = problem_.n_ops();
    return judge::CallsJudge(problem_).find_pieces(device_of_op.span("device_of_op", ops), group.span("group", ops));
  }

  double run_groups(const In<std::int32_t>& device_of_op, const In<std::int32_t>& group, std::int32_t n_groups,
                    const Out<double>& start_s, const Out<double>& in_s, const Out<double>& compute_s,
                    const Out<double>& out_s) const {
    const Index ops = problem_.n_ops();
    const judge::GroupTimes times{start_s.span("start_s", n_groups), in_s.span("in_s", n_groups),
                                  compute_s.span("compute_s", n_groups), out_s.span("out_s", n_groups)};
    return judge::CallsJudge(problem_).run(device_of_op.span("device_of_op", ops), group.span("group", ops), n_groups,
                                           times);
  }

  void loads(const In<std::int32_t>& device_of_op, const Out<double>& compute_s, const Out<double>& copies_s) const {
    const Index devices = problem_.n_devices();
    judge::fill_loads(problem_, device_of_op.span("device_of_op", problem_.n_ops()),
                      {compute_s.rows("compute_s", devices, 2), copies_s.rows("copies_s", devices, 2)});
  }

  double largest_load(const Out<double>& compute_s, const Out<double>& copies_s) const {
    const Index devices = problem_.n_devices();
    return judge::largest_load({compute_s.rows("compute_s", devices, 2), copies_s.rows("copies_s", devices, 2)},
                               rules_.pipeline);
  }

  bool stages_form_chain(const In<std::int32_t>& device_of_op) const {
    return judge::stages_form_chain(rules_.order_source, rules_.order_target,
                                    device_of_op.span("device_of_op", problem_.n_ops()), problem_.n_devices());
  }

 private:
  [[nodiscard]] judge::OverlapRecord record_of(const Out<double>& start_s, const Out<double>& end_s,
                                               const Out<double>& copies, const Out<double>& up_legs) const {
    const Index ops = problem_.n_ops(), tensors = problem_.n_tensors();
    return {start_s.span("start_s", ops), end_s.span("end_s", ops),
            copies.rows("copies", tensors, 2 * problem_.n_devices()), up_legs.rows("up_legs", tensors, 2)};
  }

  const Problem& problem_;
  In<std::int32_t> order_source_, order_target_;
  judge::Rules rules_;
};

}  // namespace

void bind_judge(nb::module_& module) {
  nb::class_<Judge>(module, "Judge", "Judges placements of one problem under its execution model.")
      .def(nb::init<const BoundProblem&, const std::string&, std::int32_t, bool, bool, bool, In<std::int32_t>,
                    In<std::int32_t>>(),
           nb::keep_alive<1, 2>(), nb::arg("problem"), nb::arg("execution"), nb::arg("most_segments"),
           nb::arg("is_contiguous"), nb::arg("is_overlapped"), nb::arg("is_split"), nb::arg("order_source"),
           nb::arg("order_target"))
      .def("judge_many", &Judge::judge_many, nb::arg("device_of_op"), nb::arg("priority"), nb::arg("first"),
           nb::arg("last"), nb::arg("value"), nb::arg("excess_bytes"), nb::arg("is_valid"),
           "Judge placements first to last; write the last three arrays.")
      .def("simulate", &Judge::simulate, nb::arg("device_of_op"), nb::arg("priority"), nb::arg("start_s"),
           nb::arg("end_s"), nb::arg("copies"), nb::arg("up_legs"),
           "Run one placement under `overlap`; return its value and write what happened when.")
      .def("peaks", &Judge::peaks, nb::arg("device_of_op"), nb::arg("start_s"), nb::arg("end_s"), nb::arg("copies"),
           nb::arg("up_legs"), nb::arg("value_s"), nb::arg("resident"), nb::arg("out"),
           "Write the largest resident and live bytes of each device, by what `simulate` wrote.")
      .def("live_intervals", &Judge::live_intervals, nb::arg("device_of_op"), nb::arg("start_s"), nb::arg("end_s"),
           nb::arg("copies"), nb::arg("up_legs"), nb::arg("value_s"), nb::arg("out"),
           "Write (device, start, end, bytes) of every tensor on every device that holds it; return how many.")
      .def("find_segments", &Judge::find_segments, nb::arg("device_of_op"), nb::arg("segment"),
           "Write segment numbers in running order; return how many there are.")
      .def("overheads", &Judge::overheads, nb::arg("device_of_op"), nb::arg("segment"), nb::arg("n_segments"),
           nb::arg("per_device"), "Return the seconds of all segment overheads, and write each device's share.")
      .def("copies_total", &Judge::copies_total, nb::arg("device_of_op"), nb::arg("per_device"),
           "Return the seconds of all copies under `sequential`, and write each device's share.")
      .def("find_pieces", &Judge::find_pieces, nb::arg("device_of_op"), nb::arg("group"),
           "Write the call that each op is in; return how many there are.")
      .def("run_groups", &Judge::run_groups, nb::arg("device_of_op"), nb::arg("group"), nb::arg("n_groups"),
           nb::arg("start_s"), nb::arg("in_s"), nb::arg("compute_s"), nb::arg("out_s"),
           "Return the value under `calls`, and write what each call takes.")
      .def("loads", &Judge::loads, nb::arg("device_of_op"), nb::arg("compute_s"), nb::arg("copies_s"),
           "Write the seconds of each device under `pipeline`, forward and backward.")
      .def("largest_load", &Judge::largest_load, nb::arg("compute_s"), nb::arg("copies_s"),
           "Return the value under `pipeline` of the seconds that `loads` wrote.")
      .def("stages_form_chain", &Judge::stages_form_chain, nb::arg("device_of_op"),
           "Return whether no edge runs backwards between stages.");
}

}  // namespace placewright::bindings
