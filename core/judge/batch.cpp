#include "judge/batch.h"

#include <limits>
#include <optional>
#include <vector>

#include "judge/calls.h"
#include "judge/memory.h"
#include "judge/overlap.h"
#include "judge/sequential.h"

namespace placewright::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_copied = std::numeric_limits<double>::quiet_NaN();

// A record that owns its memory.
class OwnedRecord {
 public:
  explicit OwnedRecord(const Problem& problem)
      : start_s_(static_cast<std::size_t>(problem.n_ops())),
        end_s_(start_s_.size()),
        copies_(static_cast<std::size_t>(problem.n_tensors() * 2 * problem.n_devices())),
        up_legs_(static_cast<std::size_t>(2 * problem.n_tensors())) {
    view.start_s = {"start_s", start_s_.data(), problem.n_ops()};
    view.end_s = {"end_s", end_s_.data(), problem.n_ops()};
    view.copies = {"copies", copies_.data(), problem.n_tensors(), 2 * problem.n_devices()};
    view.up_legs = {"up_legs", up_legs_.data(), problem.n_tensors(), 2};
  }
  void clear() {
    copies_.assign(copies_.size(), not_copied);
    up_legs_.assign(up_legs_.size(), not_copied);
  }

  OverlapRecord view;

 private:
  std::vector<double> start_s_, end_s_, copies_, up_legs_;
};

// What all execution models ask of a placement beside its value; what holds for every placement is asked once.
class CommonJudge {
 public:
  CommonJudge(const Problem& problem, const Rules& rules)
      : p_(problem),
        most_segments_(rules.most_segments),
        segments_(problem),
        segment_(static_cast<std::size_t>(problem.n_ops())),
        rules_matter_(do_rules_matter()) {}

  [[nodiscard]] bool is_allowed(Span<const std::int32_t> device_of_op) const {
    if (!rules_matter_) return true;
    for (Index v = 0; v < p_.n_ops(); ++v) {
      if (!p_.allowed(v, device_of_op[v]) || device_of_op[v] != device_of_op[p_.colocation_first[v]]) return false;
    }
    return true;
  }
  [[nodiscard]] bool has_few_segments(Span<const std::int32_t> device_of_op) {
    return most_segments_ == 0 || segments_.find(device_of_op, segment()) <= most_segments_;
  }
  SegmentFinder& segments() { return segments_; }
  Span<std::int32_t> segment() { return {"segment", segment_.data(), p_.n_ops()}; }

 private:
  [[nodiscard]] bool do_rules_matter() const {
    for (Index v = 0; v < p_.n_ops(); ++v) {
      if (p_.colocation_first[v] != v) return true;
      for (Index d = 0; d < p_.n_devices(); ++d) {
        if (!p_.allowed(v, d)) return true;
      }
    }
    return false;
  }

  const Problem& p_;
  std::int32_t most_segments_;
  SegmentFinder segments_;
  std::vector<std::int32_t> segment_;
  bool rules_matter_;
};

struct Placements {
  Span2d<const std::int32_t> device_of_op;
  Span2d<const double> priority;
  Index first, last;
};

void judge_overlap(const Problem& p, CommonJudge& common, const Placements& given, const Verdicts& verdicts,
                   Stop& stop) {
  OverlapJudge judge(p);
  MemoryJudge memory(p);
  std::optional<OwnedRecord> record;
  const bool asks_memory = memory_matters(p);
  std::vector<double> resident(static_cast<std::size_t>(p.n_devices())), used(resident.size());
  const Span<double> resident_view("resident", resident.data(), p.n_devices()),
      used_view("used", used.data(), p.n_devices());
  for (Index b = given.first; b < given.last; ++b) {
    stop.poll();
    const auto device = given.device_of_op.row(b);
    const auto priority = given.priority.row(given.priority.rows() > 1 ? b : 0);
    double excess = 0.0;
    if (asks_memory) resident_bytes(p, device, resident_view);
    if (asks_memory && memory.may_exceed(device, resident_view)) {
      if (!record) record.emplace(p);
      record->clear();
      verdicts.value[b] = judge.run(device, priority, &record->view);
      used = resident;
      if (verdicts.value[b] < infinity) {
        memory.peaks(device, record->view, verdicts.value[b], resident_view, used_view);
      }
      excess = excess_bytes(p, used_view);
    } else {
      verdicts.value[b] = judge.run(device, priority);
      if (asks_memory) excess = excess_bytes(p, resident_view);
    }
    verdicts.excess_bytes[b] = excess;
    verdicts.is_valid[b] = excess == 0.0 && common.is_allowed(device) && common.has_few_segments(device);
  }
}

void judge_sequential(const Problem& p, CommonJudge& common, const Rules& rules, const Placements& given,
                      const Verdicts& verdicts, Stop& stop) {
  std::vector<double> per_device(static_cast<std::size_t>(p.n_devices()));
  const Span<double> shares("per_device", per_device.data(), p.n_devices());
  bool has_overhead = false;
  for (const double overhead_s : p.segment_overhead_s) has_overhead = has_overhead || overhead_s > 0.0;
  for (Index b = given.first; b < given.last; ++b) {
    stop.poll();
    const auto device = given.device_of_op.row(b);
    double total_s = copies_total(p, device, shares);
    for (Index v = 0; v < p.n_ops(); ++v) total_s += p.op_time_s(v, p.device_kind[device[v]]);
    std::int32_t count = 1;
    if (has_overhead || rules.most_segments > 0) {
      count = common.segments().find(device, common.segment());
      total_s += common.segments().overheads(device, common.segment(), count, shares);
    }
    verdicts.value[b] = total_s;
    resident_bytes(p, device, shares);
    const double excess = excess_bytes(p, shares);
    verdicts.excess_bytes[b] = excess;
    verdicts.is_valid[b] =
        excess == 0.0 && common.is_allowed(device) && (rules.most_segments == 0 || count <= rules.most_segments);
  }
}

void judge_calls(const Problem& p, CommonJudge& common, const Placements& given, const Verdicts& verdicts, Stop& stop) {
  CallsJudge judge(p);
  std::vector<std::int32_t> group(static_cast<std::size_t>(p.n_ops()));
  std::vector<double> seconds(4 * group.size()), used(static_cast<std::size_t>(p.n_devices()));
  const Span<std::int32_t> groups("group", group.data(), p.n_ops());
  const Span<double> used_view("used", used.data(), p.n_devices()), all("seconds", seconds.data(), 4 * p.n_ops());
  for (Index b = given.first; b < given.last; ++b) {
    stop.poll();
    const auto device = given.device_of_op.row(b);
    const std::int32_t n = judge.find_pieces(device, groups);
    const GroupTimes times{all.part(0, n), all.part(n, 2 * n), all.part(2 * n, 3 * n), all.part(3 * n, 4 * n)};
    verdicts.value[b] = judge.run(device, groups, n, times);
    resident_bytes(p, device, used_view);
    const double excess = excess_bytes(p, used_view);
    verdicts.excess_bytes[b] = excess;
    verdicts.is_valid[b] =
        excess == 0.0 && verdicts.value[b] < infinity && common.is_allowed(device) && common.has_few_segments(device);
  }
}

void judge_pipeline(const Problem& p, CommonJudge& common, const Rules& rules, const Placements& given,
                    const Verdicts& verdicts, Stop& stop) {
  const Index n = p.n_devices();
  std::vector<double> seconds(static_cast<std::size_t>(4 * n)), used(static_cast<std::size_t>(n));
  const Loads loads{Span2d<double>("compute_s", seconds.data(), n, 2),
                    Span2d<double>("copies_s", seconds.data() + 2 * n, n, 2)};
  const Span<double> used_view("used", used.data(), n);
  for (Index b = given.first; b < given.last; ++b) {
    stop.poll();
    const auto device = given.device_of_op.row(b);
    fill_loads(p, device, loads);
    verdicts.value[b] = largest_load(loads, rules.pipeline);
    resident_bytes(p, device, used_view);
    const double excess = excess_bytes(p, used_view);
    verdicts.excess_bytes[b] = excess;
    verdicts.is_valid[b] =
        excess == 0.0 && common.is_allowed(device) &&
        (!rules.pipeline.is_contiguous || stages_form_chain(rules.order_source, rules.order_target, device, n)) &&
        common.has_few_segments(device);
  }
}

}  // namespace

void judge_many(const Problem& problem, const Rules& rules, Span2d<const std::int32_t> device_of_op,
                Span2d<const double> priority, Index first, Index last, const Verdicts& verdicts, Stop& stop) {
  CommonJudge common(problem, rules);
  const Placements given{device_of_op, priority, first, last};
  switch (rules.execution) {
    case Execution::overlap:
      return judge_overlap(problem, common, given, verdicts, stop);
    case Execution::sequential:
      return judge_sequential(problem, common, rules, given, verdicts, stop);
    case Execution::calls:
      return judge_calls(problem, common, given, verdicts, stop);
    case Execution::pipeline:
      return judge_pipeline(problem, common, rules, given, verdicts, stop);
  }
}

}  // namespace placewright::judge
