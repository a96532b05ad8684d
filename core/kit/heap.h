// A binary heap of items with keys: the least key on top, equal keys by least item.
//
// Items are numbers whose order settles ties, so what comes off the heap does not depend on how it went on.
#pragma once

#include <cstdint>
#include <vector>

#include "kit/span.h"

namespace placewright {

class KeyedHeap {
 public:
  struct Entry {
    double key;
    std::int32_t item;
    [[nodiscard]] bool before(const Entry& other) const {
      return key < other.key || (key == other.key && item < other.item);
    }
  };

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] Index size() const { return static_cast<Index>(entries_.size()); }
  void clear() { entries_.clear(); }

  [[nodiscard]] const Entry& top() const {
    check_index("heap", 0, size());
    return entries_.front();
  }

  void push(std::int32_t item, double key) {
    const Entry entry{key, item};
    entries_.push_back(entry);
    std::size_t i = entries_.size() - 1;
    while (i > 0) {
      const std::size_t parent = (i - 1) / 2;
      if (entries_[parent].before(entry)) break;
      entries_[i] = entries_[parent];
      i = parent;
    }
    entries_[i] = entry;
  }

  void pop() {
    check_index("heap", 0, size());
    const Entry entry = entries_.back();
    entries_.pop_back();
    if (entries_.empty()) return;
    const std::size_t n = entries_.size();
    std::size_t i = 0;
    for (std::size_t child = 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n && entries_[child + 1].before(entries_[child])) ++child;
      if (entry.before(entries_[child])) break;
      entries_[i] = entries_[child];
      i = child;
    }
    entries_[i] = entry;
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace placewright
