// How a long loop learns that it has to end.
//
// Loops that can run for more than a millisecond call poll() in every round. It costs a counter most of the time, looks
// at the clock every 64 rounds, and asks the host (Python: its signals, and the budget if one was given) every 5 ms.
// The host says that the time is over, and the loop ends with what it has; or it throws, and the loop is left through
// its destructors, so that the caller sees what stopped it.
//
// One thread asks; threads that work for it may look at `is_over`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace placewright {

class Stop {
 public:
  using Ask = std::function<bool()>;  // true: the time is over; called by the thread that does the work

  Stop() = default;
  explicit Stop(Ask ask) : ask_(std::move(ask)), next_(Clock::now() + interval) {}

  // Whether the loop has to end now.
  bool poll() {
    if ((++rounds_ & 0x3f) == 0) look();
    return is_over();
  }
  [[nodiscard]] bool is_over() const { return is_over_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds interval{5};

  void look() {
    if (!ask_) return;
    const auto now = Clock::now();
    if (now < next_) return;
    if (ask_()) is_over_.store(true, std::memory_order_relaxed);
    next_ = Clock::now() + interval;
  }

  Ask ask_;
  Clock::time_point next_;
  std::uint32_t rounds_ = 0;
  std::atomic<bool> is_over_{false};
};

}  // namespace placewright
