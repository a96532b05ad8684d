#include "sequential/fusion_moves.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kit/pairwise_sum.h"
#include "sequential/push_relabel.h"

namespace placewright::sequential {
namespace {

class Fusion {
 public:
  Fusion(const Energy& energy, Span2d<const double> unary_s, Span<const std::int32_t> first,
         Span<const std::int32_t> second, Stop& stop)
      : energy_(energy),
        first_(first),
        second_(second),
        node_("node", energy.n_units(), none),
        is_there_("is_there", energy.n_devices()),
        staying_("staying", energy.n_devices()),
        going_("going", energy.n_devices()) {
    for (std::int32_t u = 0; u < energy.n_units(); ++u) {
      if (first[u] != second[u]) {
        node_[u] = static_cast<std::int32_t>(free_.size());
        free_.push_back(u);
      } else {
        fixed_.push_back(u);
      }
    }
    const Index fixed = static_cast<Index>(fixed_.size());
    fixed_s_ = pairwise_sum(0, fixed, [&](Index i) {
      const std::int32_t u = fixed_[static_cast<std::size_t>(i)];
      return unary_s(u, first_[u]);
    });
    network_ = CutNetwork(static_cast<Index>(free_.size()));
    network_.expect(2 * energy.reader.size(), static_cast<Index>(free_.size()) + 2 * energy.n_tensors());
    for (const std::int32_t u : free_) {
      network_.add_cost(node_[u], Side::goes, unary_s(u, second[u]));
      network_.add_cost(node_[u], Side::stays, unary_s(u, first[u]));
    }
    for (Index t = 0; t < energy.n_tensors(); ++t) {
      stop.poll();  // for signals: half a network has no bound
      add_tensor(t);
    }
  }

  // Units before at the sink's side and units after at the source's are what must not be.
  void keep(Order order) {
    for (Index i = 0; i < order.before.size(); ++i) {
      const std::int32_t u = node_[order.before[i]], v = node_[order.after[i]];
      if (u != none && v != none) network_.add_arc(v, u, CutNetwork::endless);
    }
  }

  Fused cut(Span<std::int32_t> label, Stop& stop) {
    MinimumCut least(network_);
    least.run(stop);
    Array<std::uint8_t> goes("goes", network_.n_nodes());
    least.write_sink_side(goes);
    for (Index u = 0; u < energy_.n_units(); ++u) {
      label[u] = node_[u] != none && goes[node_[u]] != 0 ? second_[u] : first_[u];
    }
    return {fixed_s_ + constant_s_ + least.bound(), is_exact_};
  }

 private:
  // A tensor's home: where it stays and where it goes, and its node (none: it cannot move).
  struct Home {
    std::int32_t node, first, second;
  };

  void add_tensor(Index t) {
    const std::int32_t unit = energy_.home[t];
    const Home home{node_[unit], first_[unit], second_[unit]};
    is_there_.fill(0);
    staying_.fill(0);
    going_.fill(0);
    for (const std::int32_t reader : energy_.readers(t)) {
      if (node_[reader] == none) {
        is_there_[first_[reader]] = 1;
      } else {
        ++staying_[first_[reader]];
        ++going_[second_[reader]];
      }
    }
    for (std::int32_t d = 0; d < energy_.n_devices(); ++d) {
      if (is_there_[d] != 0 || staying_[d] > 0 || going_[d] > 0) add_arrival(t, home, d);
    }
    add_way_up(t, home, Side::stays);
    if (home.node != none) add_way_up(t, home, Side::goes);
  }

  // What it takes from host memory or from the home to device `d`.
  void add_arrival(Index t, const Home& home, std::int32_t d) {
    const double staying_s = energy_.arrival_s(t, home.first, d), going_s = energy_.arrival_s(t, home.second, d);
    if (is_there_[d] != 0) return add_home(home, staying_s, going_s);
    // Never both: in an expansion and in a swap a device is either left or entered.
    const Side side = staying_[d] > 0 ? Side::stays : Side::goes;
    gather(t, [&](std::int32_t reader) { return device_of(reader, side) == d; });
    network_.add_any(std::min(staying_s, going_s), side, who(), none);
    if (home.node == none) return;
    if ((going_s > staying_s) == (side == Side::stays)) {
      network_.add_any(std::abs(going_s - staying_s), side, who(), home.node);
    } else if (going_s != staying_s) {
      is_exact_ = false;
      network_.add_cost(home.node, staying_s > going_s ? Side::stays : Side::goes, std::abs(staying_s - going_s));
    }
  }

  // The way up to host memory, once, from where the home is if it is on that side.
  void add_way_up(Index t, const Home& home, Side home_side) {
    const std::int32_t from = home_side == Side::stays ? home.first : home.second;
    const double up_s = energy_.way_up_s(t, from);
    if (up_s <= 0.0) return;
    bool always = false, any_stays = false, any_goes = false;
    for (const std::int32_t reader : energy_.readers(t)) {
      const bool stays = energy_.goes_through_host(from, first_[reader]);
      const bool goes = energy_.goes_through_host(from, second_[reader]);
      always = always || (stays && goes);
      any_stays = any_stays || stays;
      any_goes = any_goes || goes;
    }
    if (!any_stays && !any_goes) return;
    const Side side = any_stays ? Side::stays : Side::goes;
    if (!always && ((any_stays && any_goes) || (home.node != none && side == home_side))) {
      is_exact_ = false;
      always = true;
    }
    if (always) {
      if (home.node == none) {
        constant_s_ += up_s;
      } else {
        network_.add_cost(home.node, home_side, up_s);
      }
      return;
    }
    gather(t, [&](std::int32_t reader) { return energy_.goes_through_host(from, device_of(reader, side)); });
    network_.add_any(up_s, side, who(), home.node);
  }

  void add_home(const Home& home, double staying_s, double going_s) {
    if (home.node == none) {
      constant_s_ += staying_s;
    } else {
      network_.add_cost(home.node, Side::stays, staying_s);
      network_.add_cost(home.node, Side::goes, going_s);
    }
  }

  [[nodiscard]] std::int32_t device_of(std::int32_t unit, Side side) const {
    return side == Side::stays ? first_[unit] : second_[unit];
  }

  // Make `who` the nodes of a tensor's readers that may move and are meant.
  template <class IsMeant>
  void gather(Index t, const IsMeant& is_meant) {
    who_.clear();
    for (const std::int32_t reader : energy_.readers(t)) {
      if (node_[reader] != none && is_meant(reader)) who_.push_back(node_[reader]);
    }
  }
  [[nodiscard]] Span<const std::int32_t> who() const { return {"who", who_.data(), static_cast<Index>(who_.size())}; }

  const Energy& energy_;
  Span<const std::int32_t> first_, second_;
  CutNetwork network_{0};
  Array<std::int32_t> node_;  // [units], none = both labellings agree
  std::vector<std::int32_t> free_, fixed_;
  // of one tensor
  Array<std::uint8_t> is_there_;         // [devices]: a reader that cannot move
  Array<std::int32_t> staying_, going_;  // [devices]: readers that are there if they stay, or if they go
  std::vector<std::int32_t> who_;
  // what no choice changes
  double fixed_s_ = 0.0, constant_s_ = 0.0;
  bool is_exact_ = true;
};

}  // namespace

Fused fuse(const Energy& energy, Span2d<const double> unary_s, Span<const std::int32_t> first,
           Span<const std::int32_t> second, Order order, Span<std::int32_t> label, Stop& stop) {
  Fusion fusion(energy, unary_s, first, second, stop);
  fusion.keep(order);
  return fusion.cut(label, stop);
}

}  // namespace placewright::sequential
