#include "learned/fractal.h"

#include <algorithm>
#include <cmath>

#include "kit/array.h"

namespace placewright::learned {
namespace {

// The line through points that are added one by one.
class Line {
 public:
  void add(double x, double y) {
    ++count_;
    sum_x_ += x;
    sum_y_ += y;
    sum_xx_ += x * x;
    sum_xy_ += x * y;
  }
  // By least squares; 0 where there are not two different points.
  [[nodiscard]] double slope() const {
    const auto count = static_cast<double>(count_);
    const double spread = count * sum_xx_ - sum_x_ * sum_x_;
    return count_ >= 2 && spread > 0.0 ? (count * sum_xy_ - sum_x_ * sum_y_) / spread : 0.0;
  }

 private:
  Index count_ = 0;
  double sum_x_ = 0.0, sum_y_ = 0.0, sum_xx_ = 0.0, sum_xy_ = 0.0;
};

}  // namespace

void fractal_dimensions(Span<const std::int64_t> ptr, Span<const std::int64_t> neighbour, Index most_hops,
                        Span<double> out, Stop& stop) {
  const Index n = out.size();
  Array<Index> seen_from("seen_from", n, none), queue("queue", n);
  std::fill(out.begin(), out.end(), 0.0);
  for (Index v = 0; v < n && !stop.poll(); ++v) {
    seen_from[v] = v;
    queue[0] = v;
    Line line;
    Index begin = 0, end = 1;
    for (Index hops = 1; begin < end && hops <= most_hops; ++hops) {
      const Index layer_end = end;
      for (; begin < layer_end; ++begin) {
        const Index u = queue[begin];
        for (const std::int64_t w : neighbour.part(ptr[u], ptr[u + 1])) {
          if (seen_from[w] == v) continue;
          seen_from[w] = v;
          queue[end++] = w;
        }
      }
      if (end > layer_end) line.add(std::log(static_cast<double>(hops)), std::log(static_cast<double>(end - 1)));
    }
    out[v] = line.slope();
  }
}

}  // namespace placewright::learned
