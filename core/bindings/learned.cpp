#include "bindings/bound_problem.h"
#include "learned/block_moves.h"
#include "learned/fractal.h"
#include "learned/placements.h"

namespace placewright::bindings {
namespace {

void unite_blocks(const In<std::int64_t>& pairs, const In<double>& time_s, const In<double>& memory_bytes,
                  double most_s, double most_bytes, const Out<std::int64_t>& label) {
  const auto labels = label.span("label", any);
  const learned::BlockLimits limits{time_s.rows("time_s", labels.size(), any),
                                    memory_bytes.span("memory_bytes", labels.size()), most_s, most_bytes};
  const auto joined = pairs.rows("pairs", any, 2);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  learned::unite_blocks(joined, limits, labels, stop);
}

// Scales together with the arrays that they look into.
class BoundScales {
 public:
  BoundScales(In<std::int64_t> edges, In<bool> allowed, In<std::int32_t> member_ptr, In<std::int64_t> first_ptr,
              In<std::int32_t> member, In<std::int32_t> block_of_group)
      : edges_(std::move(edges)),
        allowed_(std::move(allowed)),
        member_ptr_(std::move(member_ptr)),
        first_ptr_(std::move(first_ptr)),
        member_(std::move(member)),
        block_of_group_(std::move(block_of_group)) {
    view_.edges = edges_.rows("edges", any, 2);
    view_.allowed = allowed_.rows("allowed", any, any);
    view_.member_ptr = member_ptr_.span("member_ptr", any);
    view_.first_ptr = first_ptr_.span("first_ptr", any);
    view_.member = member_.rows("member", view_.n_scales(), view_.n_groups());
    view_.block = block_of_group_.rows("block_of_group", view_.n_scales(), view_.n_groups());
  }

  void mutate(const In<std::int32_t>& parents, std::uint64_t seed, const Out<std::int32_t>& children) const {
    const auto from = parents.rows("parents", any, view_.n_groups());
    const auto to = children.rows("children", any, view_.n_groups());
    Stop stop(asking_python());
    nb::gil_scoped_release released;
    learned::mutate(view_, from, seed, to, stop);
  }

 private:
  In<std::int64_t> edges_;
  In<bool> allowed_;
  In<std::int32_t> member_ptr_;
  In<std::int64_t> first_ptr_;
  In<std::int32_t> member_, block_of_group_;
  learned::Scales view_;
};

void fractal_dimensions(const In<std::int64_t>& ptr, const In<std::int64_t>& neighbour, Index most_hops,
                        const Out<double>& out) {
  const auto dimension = out.span("out", any);
  const auto first = ptr.span("ptr", dimension.size() + 1);
  const auto neighbours = neighbour.span("neighbour", any);
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  learned::fractal_dimensions(first, neighbours, most_hops, dimension, stop);
}

void longest_paths_left(const BoundProblem& problem, const In<std::int32_t>& device_of_op, const Out<double>& out) {
  const Problem& p = problem.view;
  const auto devices = device_of_op.rows("device_of_op", any, p.n_ops());
  const auto left_s = out.rows("out", devices.rows(), p.n_ops());
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  learned::longest_paths_left(p, devices, left_s, stop);
}

void repair_memory(const In<bool>& allowed, const In<double>& memory_bytes, const In<double>& limit_bytes,
                   const Out<std::int32_t>& device_of_group) {
  const auto limits = limit_bytes.span("limit_bytes", any);
  const auto bytes = memory_bytes.span("memory_bytes", any);
  const learned::GroupRoom groups{allowed.rows("allowed", bytes.size(), limits.size()), bytes, limits};
  const auto devices = device_of_group.rows("device_of_group", any, bytes.size());
  Stop stop(asking_python());
  nb::gil_scoped_release released;
  learned::repair_memory(groups, devices, stop);
}

}  // namespace

void bind_learned(nb::module_& module) {
  nb::module_ room = module.def_submodule("learned", "What learned policies ask again and again.");
  nb::class_<BoundScales>(room, "Scales", "Groups and their blocks at several scales.")
      .def(nb::init<In<std::int64_t>, In<bool>, In<std::int32_t>, In<std::int64_t>, In<std::int32_t>,
                    In<std::int32_t>>(),
           nb::arg("edges"), nb::arg("allowed"), nb::arg("member_ptr"), nb::arg("first_ptr"), nb::arg("member"),
           nb::arg("block_of_group"))
      .def("mutate", &BoundScales::mutate, nb::arg("parents"), nb::arg("seed"), nb::arg("children"),
           "Write copies of placements, the best one first, with a few blocks of any scale moved.");
  room.def("unite_blocks", &unite_blocks, nb::arg("pairs"), nb::arg("time_s"), nb::arg("memory_bytes"),
           nb::arg("most_s"), nb::arg("most_bytes"), nb::arg("label"),
           "Unite groups along pairs in order while the limits hold; write the least group of each group's block.");
  room.def("fractal_dimensions", &fractal_dimensions, nb::arg("ptr"), nb::arg("neighbour"), nb::arg("most_hops"),
           nb::arg("out"), "Write the slope of log N(r) against log r for each node.");
  room.def("longest_paths_left", &longest_paths_left, nb::arg("problem"), nb::arg("device_of_op"), nb::arg("out"),
           "Write the longest path from each op's start to the end of the model, as placed.");
  room.def("repair_memory", &repair_memory, nb::arg("allowed"), nb::arg("memory_bytes"), nb::arg("limit_bytes"),
           nb::arg("device_of_group"), "Move groups off over-full devices, placement by placement.");
}

}  // namespace placewright::bindings
