// Busy times of devices and channels with the gaps between them.
//
// A line is one device or one channel. Its stretches are sorted, have a length, and do not touch: those that would are
// joined. All stretches of all lines are nodes of one pool, linked in both directions; node `line` is the line's
// sentinel and ends at time zero. Looking for a gap walks back from the last stretch over at most `most_gaps` of them,
// so that a decision costs little on long lines too; what is older counts as full.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kit/array.h"

namespace placewright::overlap {

class BusyLines {
 public:
  static constexpr int most_gaps = 512;

  BusyLines(Index n_lines, Index n_bookings)
      : begin_s_("begin_s", n_lines + n_bookings),
        end_s_("end_s", n_lines + n_bookings),
        before_("before", n_lines + n_bookings, none),
        after_("after", n_lines + n_bookings, none),
        last_("last", n_lines),
        used_(static_cast<std::int32_t>(n_lines)) {
    for (Index line = 0; line < n_lines; ++line) last_[line] = static_cast<std::int32_t>(line);
  }

  // The earliest moment from `ready_s` on at which the line is free for `length_s`.
  [[nodiscard]] double first_gap(std::int32_t line, double ready_s, double length_s) const {
    std::int32_t node = stretch_before(line, ready_s);
    double moment_s = std::max(ready_s, end_s_[node]);
    for (node = after_[node]; node != none && moment_s + length_s > begin_s_[node]; node = after_[node]) {
      moment_s = std::max(moment_s, end_s_[node]);
    }
    return moment_s;
  }

  // The same for two lines at once.
  [[nodiscard]] double first_common_gap(std::int32_t one, std::int32_t other, double ready_s, double length_s) const {
    std::int32_t i = stretch_before(one, ready_s), j = stretch_before(other, ready_s);
    double moment_s = std::max({ready_s, end_s_[i], end_s_[j]});
    i = after_[i];
    j = after_[j];
    while (true) {
      std::int32_t& in_the_way = is_met(i, moment_s, length_s) ? i : j;
      if (!is_met(in_the_way, moment_s, length_s)) return moment_s;
      moment_s = std::max(moment_s, end_s_[in_the_way]);
      in_the_way = after_[in_the_way];
    }
  }

  // Mark a free stretch of a line as busy.
  void occupy(std::int32_t line, double start_s, double finish_s) {
    if (finish_s <= start_s) return;
    std::int32_t left = last_[line];
    while (begin_s_[left] > start_s) left = before_[left];
    const std::int32_t right = after_[left];
    const bool joins_left = end_s_[left] == start_s && left != line;
    const bool joins_right = right != none && begin_s_[right] == finish_s;
    if (joins_left && joins_right) {
      end_s_[left] = end_s_[right];
      after_[left] = after_[right];
      link_back(after_[right], left, line);
    } else if (joins_left) {
      end_s_[left] = finish_s;
    } else if (joins_right) {
      begin_s_[right] = start_s;
    } else {
      const std::int32_t node = used_++;
      begin_s_[node] = start_s;
      end_s_[node] = finish_s;
      before_[node] = left;
      after_[node] = right;
      after_[left] = node;
      link_back(right, node, line);
    }
  }

 private:
  [[nodiscard]] bool is_met(std::int32_t node, double moment_s, double length_s) const {
    return node != none && moment_s + length_s > begin_s_[node];
  }

  // The last stretch of a line that begins at or before a moment, or the oldest that is still looked at.
  [[nodiscard]] std::int32_t stretch_before(std::int32_t line, double moment_s) const {
    std::int32_t node = last_[line];
    for (int i = 0; i < most_gaps && begin_s_[node] > moment_s; ++i) node = before_[node];
    return node;
  }

  // `node` now comes right before `next`, or last on its line.
  void link_back(std::int32_t next, std::int32_t node, std::int32_t line) {
    if (next != none) {
      before_[next] = node;
    } else {
      last_[line] = node;
    }
  }

  Array<double> begin_s_, end_s_;
  Array<std::int32_t> before_, after_, last_;
  std::int32_t used_;
};

}  // namespace placewright::overlap
