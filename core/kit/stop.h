// How a long loop learns that it has to end.
//
// Loops that can run for more than a millisecond call poll() in every round. It costs a counter most of the time, looks
// at the clock every 256 rounds, and asks the host (Python, for its signals) every 20 ms. The host's answer is an
// exception, so that a loop leaves through its destructors and the caller sees what stopped it.
#pragma once

#include <chrono>
#include <cstdint>

namespace placewright {

class Stop {
 public:
  using Clock = std::chrono::steady_clock;
  using Ask = void (*)();  // throws if the work has to end; called by the thread that does the work

  explicit Stop(Ask ask = nullptr) : ask_(ask), next_(Clock::now() + interval) {}

  void poll() {
    if ((++rounds_ & 0xff) == 0) look();
  }

 private:
  static constexpr std::chrono::milliseconds interval{20};

  void look() {
    if (ask_ == nullptr) return;
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + interval;
    ask_();
  }

  Ask ask_;
  Clock::time_point next_;
  std::uint32_t rounds_ = 0;
};

}  // namespace placewright
