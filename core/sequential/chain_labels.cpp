#include "sequential/chain_labels.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace placewright::sequential {
namespace {

// Memories of the kept labels of one state, side by side. Those that beat others move to the front, by half of what is
// before them: there they are tried first.
class Front {
 public:
  explicit Front(Index width) : width_(width) {}

  void clear() {
    bytes_.clear();
    count_ = 0;
  }
  void add(Span<const double> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    ++count_;
  }
  // Whether a kept label takes as little on all devices.
  [[nodiscard]] bool beats(Span<const double> bytes) {
    const Span<double> all("front", bytes_.data(), static_cast<Index>(bytes_.size()));
    for (Index k = 0; k < count_; ++k) {
      const Span<double> kept = all.part(k * width_, (k + 1) * width_);
      if (!std::equal(kept.begin(), kept.end(), bytes.begin(), std::less_equal<>())) continue;
      const Index ahead = k / 2;
      if (ahead != k)
        std::swap_ranges(kept.begin(), kept.end(), all.part(ahead * width_, (ahead + 1) * width_).begin());
      return true;
    }
    return false;
  }

 private:
  Index width_, count_ = 0;
  std::vector<double> bytes_;  // [kept labels, devices]
};

}  // namespace

void mark_undominated(Span<const std::int32_t> state, Span2d<const double> memory_bytes, Span<bool> is_kept,
                      Stop& stop) {
  Front front(memory_bytes.columns());
  for (Index i = 0; i < state.size(); ++i) {
    if (i == 0 || state[i] != state[i - 1]) front.clear();
    is_kept[i] = stop.poll() || !front.beats(memory_bytes.row(i));
    if (is_kept[i]) front.add(memory_bytes.row(i));
  }
}

}  // namespace placewright::sequential
