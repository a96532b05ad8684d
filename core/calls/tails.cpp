#include "calls/tails.h"

#include <algorithm>
#include <limits>

#include "kit/array.h"

namespace placewright::calls {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class TailFinder {
 public:
  explicit TailFinder(const Relaxed& relaxed)
      : p_(relaxed),
        share_bytes_("share_bytes", relaxed.n_units()),
        alone_s_("alone_s", relaxed.n_units(), relaxed.n_sorts()),
        into_s_("into_s", relaxed.successor.size(), relaxed.n_sorts()),
        out_s_("out_s", relaxed.successor.size(), relaxed.n_sorts()),
        next_edge_("next_edge", relaxed.n_units(), none),
        tail_s_("tail_s", relaxed.n_units()) {
    share_out_classes();
    charge_own_sources();
    price_edges();
  }

  void run(Tails tails, Stop& stop) {
    std::fill(tails.edge_s.begin(), tails.edge_s.end(), 0.0);
    std::fill(tails.start_s.begin(), tails.start_s.end(), 0.0);
    std::fill(tails.open_s.begin(), tails.open_s.end(), 0.0);
    for (Index u = p_.n_units() - 1; u >= 0; --u) {
      for (Index edge = p_.successor_ptr[u]; edge < p_.successor_ptr[u + 1]; ++edge) {
        if (stop.poll()) return;
        const double found_s = from(p_.successor[edge], edge);
        tails.edge_s[edge] = found_s;
        if (next_edge_[u] == none || found_s > tail_s_[u]) {
          tail_s_[u] = found_s;
          next_edge_[u] = edge;
        }
      }
      tails.start_s[u] = from(u, none);
      tails.open_s[u] = onwards(u);
    }
  }

 private:
  // A unit's share of its class's bytes, so that a stretch never counts too much.
  void share_out_classes() {
    Array<Index> members("members", p_.class_bytes.size());
    for (const std::int64_t c : p_.class_of_unit) ++members[c];
    for (Index u = 0; u < p_.n_units(); ++u) {
      const std::int64_t c = p_.class_of_unit[u];
      share_bytes_[u] = p_.class_bytes[c] / static_cast<double>(members[c]);
    }
  }

  // A source that nobody else reads is paid with its reader.
  void charge_own_sources() {
    for (Index u = 0; u < p_.n_units(); ++u) {
      for (Index k = 0; k < p_.n_sorts(); ++k) alone_s_(u, k) = p_.time_s(u, k);
      for (const std::int64_t t : p_.inputs(u)) {
        if (p_.tensor_producer[t] != none || p_.n_readers(t) != 1) continue;
        for (Index k = 0; k < p_.n_sorts(); ++k) alone_s_(u, k) += p_.in_s(t, k);
      }
    }
  }

  // What the tensors along an edge cost where it is cut.
  void price_edges() {
    for (Index t = 0; t < p_.n_tensors(); ++t) {
      const std::int64_t u = p_.tensor_producer[t];
      if (u == none) continue;
      const auto successors = p_.successors(u);
      for (const std::int64_t v : p_.readers(t)) {
        const Index edge =
            p_.successor_ptr[u] + (std::lower_bound(successors.begin(), successors.end(), v) - successors.begin());
        for (Index k = 0; k < p_.n_sorts(); ++k) {
          into_s_(edge, k) += p_.in_s(t, k);
          out_s_(edge, k) += p_.out_s(t, k);
        }
      }
    }
  }

  // Least time along the path that starts with `first`, reached over the edge `entry` (none: it has all it reads).
  [[nodiscard]] double from(Index first, Index entry) const {
    double best_s = p_.host_time_s[first] + tail_s_[first];
    for (Index k = 0; k < p_.n_sorts(); ++k) {
      double total_s = entry != none ? into_s_(entry, k) : 0.0;
      double used_bytes = 0.0;
      for (Index v = first;;) {
        used_bytes += share_bytes_[v];
        total_s += alone_s_(v, k);
        if (used_bytes > p_.limit_bytes[k] || total_s >= best_s) break;
        const Index edge = next_edge_[v];
        if (edge == none) {
          best_s = total_s;
          break;
        }
        best_s = std::min(best_s, total_s + out_s_(edge, k) + tail_s_[v]);
        v = p_.successor[edge];
      }
    }
    return best_s;
  }

  // Least time along the path behind `first`, which is in a piece that has not ended yet.
  [[nodiscard]] double onwards(Index first) const {
    if (next_edge_[first] == none) return 0.0;
    double best_s = infinity;
    for (Index k = 0; k < p_.n_sorts(); ++k) {
      double total_s = 0.0, used_bytes = share_bytes_[first];
      for (Index v = first; used_bytes <= p_.limit_bytes[k] && total_s < best_s;) {
        const Index edge = next_edge_[v];
        if (edge == none) {
          best_s = total_s;
          break;
        }
        best_s = std::min(best_s, total_s + out_s_(edge, k) + tail_s_[v]);
        v = p_.successor[edge];
        used_bytes += share_bytes_[v];
        total_s += alone_s_(v, k);
      }
    }
    return best_s < infinity ? best_s : 0.0;
  }

  const Relaxed& p_;
  Array<double> share_bytes_;  // [units]
  Array2d<double> alone_s_;    // [units, sorts]
  Array2d<double> into_s_;     // [edges, sorts]
  Array2d<double> out_s_;      // [edges, sorts]
  Array<Index> next_edge_;     // [units]: the path from here
  Array<double> tail_s_;       // [units]: along it
};

}  // namespace

void find_tails(const Relaxed& relaxed, Tails tails, Stop& stop) { TailFinder(relaxed).run(tails, stop); }

}  // namespace placewright::calls
