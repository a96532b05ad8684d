// A stage that grows unit by unit behind the units that earlier stages hold (the passed ideal), and shrinks again.
//
// Sums are kept per depth, so that taking a unit back needs no arithmetic and no rounding adds up. What a stage pays
// for transfers is settled or pending: settled transfers are paid by every larger stage too, because units of the
// passed ideal never join it; pending ones may vanish when the other end joins.
#pragma once

#include <cmath>

#include "kit/array.h"
#include "pipeline/load_model.h"

namespace placewright::pipeline {

class GrowingStage {
 public:
  explicit GrowingStage(const LoadModel& model)
      : model_(model),
        tensors_("tensors", model.n_tensors()),
        sums_("sums", model.n_units() + 1, model.n_kinds()),
        memory_bytes_("memory_bytes", model.n_units() + 1),
        added_("added", model.n_units() + 1) {
    for (Index t = 0; t < model.n_tensors(); ++t) tensors_[t].size = model.tensor_size[t];
  }

  [[nodiscard]] Index depth() const { return depth_; }

  void pass(Index unit) { mark(unit, 1, Home::passed); }
  void take_out(Index unit) { mark(unit, -1, Home::ahead); }  // of the passed ideal

  // Whether any stage behind the passed ideal gets no heavier when it loses the unit: adds up the least that each
  // tensor's transfers can fall; a negative fall is a rise.
  [[nodiscard]] bool lightens(Index unit) const {
    for (Index kind = 0; kind < model_.n_kinds(); ++kind) {
      if (model_.kind_count[kind] == 0 || !std::isfinite(model_.time_s(unit, kind))) continue;
      double fall_s = 0.0;
      for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
        const std::int32_t t = model_.touch_tensor[touch];
        const Tensor& tensor = tensors_[t];
        const bool is_last = tensor.passed + 1 == tensor.size;
        if (model_.touch_produces[touch]) {
          // The rest of the stage may have to receive what it had at hand.
          if (tensor.passed > 0) fall_s += model_.out_s(t, kind);
          if (!is_last) fall_s -= model_.in_s(t, kind);
        } else if (tensor.home == Home::passed) {
          if (is_last) fall_s += model_.in_s(t, kind);
        } else if (tensor.passed == 0) {
          // The producer may be in the stage and now has to send.
          fall_s -= model_.out_s(t, kind);
        }
      }
      if (!model_.is_overlapped) fall_s += model_.time_s(unit, kind);
      if (fall_s < 0) return false;
    }
    return true;
  }

  // Write the sums of the stage with the unit, its transfers not yet among them.
  void consider(Index unit) {
    const Span<const Sums> here = sums_.row(depth_);
    const Span<Sums> next = sums_.row(depth_ + 1);
    const Span<const double> time_s = model_.time_s.row(unit), sync_s = model_.sync_s.row(unit);
    memory_bytes_[depth_ + 1] = memory_bytes_[depth_] + model_.memory_bytes[unit];
    for (Index kind = 0; kind < model_.n_kinds(); ++kind) {
      const Sums& sums = here[kind];
      next[kind] = {sums.compute_s + time_s[kind], sums.settled_s, sums.pending_s, sums.sync_s + sync_s[kind]};
    }
  }

  // Of what is considered: whether it, and anything larger, is beyond the threshold or the memory.
  [[nodiscard]] bool is_hopeless(const Staffing& how, double threshold_s) const {
    const Sums& sums = sums_(depth_ + 1, how.kind);
    return !(model_.load_s(how, sums.compute_s, sums.settled_s, sums.sync_s) <= threshold_s &&
             memory_bytes_[depth_ + 1] <= how.limit_bytes);
  }

  // Take the considered unit in.
  void add(Index unit) {
    const Span<Sums> sums = sums_.row(++depth_);
    added_[depth_] = unit;
    for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
      const std::int32_t t = model_.touch_tensor[touch];
      if (model_.touch_produces[touch]) {
        produce(t, sums);
      } else {
        read(t, sums);
      }
    }
  }

  [[nodiscard]] double load_s(const Staffing& how) const {
    const Sums& sums = sums_(depth_, how.kind);
    return model_.load_s(how, sums.compute_s, sums.settled_s + sums.pending_s, sums.sync_s);
  }
  // ... of which every larger stage pays as much.
  [[nodiscard]] bool may_grow(const Staffing& how, double threshold_s) const {
    const Sums& sums = sums_(depth_, how.kind);
    return memory_bytes_[depth_] <= how.limit_bytes &&
           model_.load_s(how, sums.compute_s, sums.settled_s, sums.sync_s) <= threshold_s;
  }

  // Without the unit that came last.
  void take_back() {
    const Index unit = added_[depth_--];
    for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
      Tensor& tensor = tensors_[model_.touch_tensor[touch]];
      --tensor.inside;
      if (model_.touch_produces[touch]) tensor.home = Home::ahead;
    }
  }

 private:
  enum class Home : std::uint8_t { ahead, passed, stage };  // where the producer is
  struct Tensor {
    std::int32_t size = 0;    // units that touch it
    std::int32_t passed = 0;  // ... of the passed ideal
    std::int32_t inside = 0;  // ... of the stage
    Home home = Home::ahead;
  };
  struct Sums {
    double compute_s = 0.0, settled_s = 0.0, pending_s = 0.0, sync_s = 0.0;
  };

  void mark(Index unit, std::int32_t change, Home home) {
    for (std::int64_t touch = model_.touch_ptr[unit]; touch < model_.touch_ptr[unit + 1]; ++touch) {
      Tensor& tensor = tensors_[model_.touch_tensor[touch]];
      tensor.passed += change;
      if (model_.touch_produces[touch]) tensor.home = home;
    }
  }

  void produce(Index t, Span<Sums> sums) {
    Tensor& tensor = tensors_[t];
    const std::int32_t before = tensor.inside++;
    const bool is_complete = tensor.inside == tensor.size;
    tensor.home = Home::stage;
    const Span<const double> in_s = model_.in_s.row(t), out_s = model_.out_s.row(t);
    for (Index kind = 0; kind < sums.size(); ++kind) {
      if (before > 0) sums[kind].pending_s -= in_s[kind];
      if (tensor.passed > 0) {
        sums[kind].settled_s += out_s[kind];
      } else if (!is_complete) {
        sums[kind].pending_s += out_s[kind];
      }
    }
  }

  void read(Index t, Span<Sums> sums) {
    Tensor& tensor = tensors_[t];
    const std::int32_t before = tensor.inside++;
    if (tensor.home == Home::stage) {
      if (tensor.inside != tensor.size) return;
      const Span<const double> out_s = model_.out_s.row(t);
      for (Index kind = 0; kind < sums.size(); ++kind) sums[kind].pending_s -= out_s[kind];
    } else if (before == 0) {
      const Span<const double> in_s = model_.in_s.row(t);
      double Sums::* const column = tensor.home == Home::passed ? &Sums::settled_s : &Sums::pending_s;
      for (Index kind = 0; kind < sums.size(); ++kind) sums[kind].*column += in_s[kind];
    }
  }

  const LoadModel& model_;
  Array<Tensor> tensors_;
  Array2d<Sums> sums_;          // [depths, kinds]
  Array<double> memory_bytes_;  // [depths]
  Array<Index> added_;          // [depths]: the unit that led there
  Index depth_ = 0;
};

}  // namespace placewright::pipeline
