#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/arrays.h"
#include "pipeline/not_contiguous/frontier_labels.h"
#include "pipeline/not_contiguous/implications.h"

namespace placewright::bindings {
namespace {

using not_contiguous::LabelAnswer;

// Frontiers together with the arrays that they look into.
class BoundFrontiers {
 public:
  BoundFrontiers(In<std::int32_t> order, In<std::int64_t> ptr, In<std::int32_t> child, In<double> cost)
      : order_(std::move(order)), ptr_(std::move(ptr)), child_(std::move(child)), cost_(std::move(cost)) {
    view_.order = order_.span("order", any);
    view_.ptr = ptr_.span("ptr", view_.order.size() + 2);
    view_.child = child_.rows("child", 2, any);
    view_.cost = cost_.rows("cost", 2, view_.child.columns());
  }

  double best_completions(const In<double>& time_s, const In<double>& price, double multiplier,
                          const Out<double>& best) const {
    const auto pricing = pricing_of(time_s, price);
    const auto out = best.span("best", any);
    nb::gil_scoped_release released;
    return not_contiguous::best_completions(view_, pricing, multiplier, out);
  }

  std::tuple<bool, double, double> best_set(const In<double>& time_s, const In<double>& price,
                                            const In<double>& multipliers, const In<double>& completions,
                                            double load_limit, double floor, double blur, std::int64_t most_labels,
                                            const Out<bool>& member, const ShouldStop& should_stop) const {
    const auto pricing = pricing_of(time_s, price);
    const auto prices_of_load = multipliers.span("multipliers", any);
    const auto table = completions.rows("completions", prices_of_load.size(), any);
    const auto set = member.span("member", view_.order.size());
    const not_contiguous::LabelLimits limits{load_limit, floor, blur, most_labels};
    Stop stop(asking_python(should_stop));
    nb::gil_scoped_release released;
    const LabelAnswer answer = not_contiguous::best_set(view_, pricing, prices_of_load, table, limits, set, stop);
    return {answer.is_complete, answer.bound, answer.worth};
  }

 private:
  [[nodiscard]] not_contiguous::Pricing pricing_of(const In<double>& time_s, const In<double>& price) const {
    const Index units = view_.order.size();
    return {time_s.span("time_s", units), price.span("price", units)};
  }

  In<std::int32_t> order_;
  In<std::int64_t> ptr_;
  In<std::int32_t> child_;
  In<double> cost_;
  not_contiguous::Frontiers view_;
};

class BoundPairFacts {
 public:
  BoundPairFacts(In<std::int32_t> ptr, In<std::int32_t> head, In<std::int32_t> reverse, In<double> capacity,
                 std::int32_t sink)
      : ptr_(std::move(ptr)),
        head_(std::move(head)),
        reverse_(std::move(reverse)),
        capacity_(std::move(capacity)),
        facts_(view(sink)) {}

  double ask(std::int32_t unit, const In<std::int32_t>& others, double limit, const Out<bool>& forced) {
    const auto rivals = others.span("others", any);
    const auto out = forced.span("forced", rivals.size());
    nb::gil_scoped_release released;
    return facts_.ask(unit, rivals, limit, out);
  }

 private:
  [[nodiscard]] not_contiguous::Network view(std::int32_t sink) const {
    const auto head = head_.span("head", any);
    return {ptr_.span("ptr", any), head, reverse_.span("reverse", head.size()), capacity_.span("capacity", head.size()),
            sink};
  }

  In<std::int32_t> ptr_, head_, reverse_;
  In<double> capacity_;
  not_contiguous::PairFacts facts_;
};

}  // namespace

void bind_not_contiguous(nb::module_& module) {
  nb::module_ room = module.def_submodule("not_contiguous", "Pipelines without contiguity: pricing and implications.");
  nb::class_<BoundFrontiers>(room, "Frontiers", "All reachable frontiers of a pricing problem.")
      .def(nb::init<In<std::int32_t>, In<std::int64_t>, In<std::int32_t>, In<double>>(), nb::arg("order"),
           nb::arg("ptr"), nb::arg("child"), nb::arg("cost"))
      .def("best_completions", &BoundFrontiers::best_completions, nb::arg("time_s"), nb::arg("price"),
           nb::arg("multiplier"), nb::arg("best"),
           "Write the largest (price - multiplier * load) to be had from every state; return the first one's.")
      .def("best_set", &BoundFrontiers::best_set, nb::arg("time_s"), nb::arg("price"), nb::arg("multipliers"),
           nb::arg("completions"), nb::arg("load_limit"), nb::arg("floor"), nb::arg("blur"), nb::arg("most_labels"),
           nb::arg("member"), nb::arg("should_stop").none(),
           "Write the best set to member; return (complete, bound, worth).");
  nb::class_<BoundPairFacts>(room, "PairFacts", "Asks a flow network what a unit on a device forces.")
      .def(nb::init<In<std::int32_t>, In<std::int32_t>, In<std::int32_t>, In<double>, std::int32_t>(), nb::arg("ptr"),
           nb::arg("head"), nb::arg("reverse"), nb::arg("capacity"), nb::arg("sink"))
      .def("ask", &BoundPairFacts::ask, nb::arg("unit"), nb::arg("others"), nb::arg("limit"), nb::arg("forced"),
           "Return the least load with a unit; write whether leaving out each other unit exceeds the limit.");
}

}  // namespace placewright::bindings
