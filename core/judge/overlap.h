// Execution model `overlap`: event-driven, compute and copies side by side.
//
// The rules, in full:
//
// 1. A device runs one op at a time. When it is free it takes, among the ops whose inputs have all arrived, the one
// with
//    the least (priority, ready time, op number).
// 2. When an op ends, each of its tensors is sent to every other device that holds a reader, once per device, in the
// order
//    of the first reader there. Copies are booked at that moment, first come first served: a direct copy starts when
//    the busy ends' channels are free; through host memory, the tensor goes up once over the sender's channel and then
//    comes down over each receiver's channel. A copy that takes no time does not queue.
// 3. Ops that end at the same moment are handled in the order of their numbers, all of them before any device is given
//    new work. Channels: one for sending and one for receiving per device, or one for both (half duplex).
// 4. The value is the end of the last op.
//
// Ops that wait for a device are kept in two sorted runs and a heap. Most ops become ready later than those before them
// (copies arrive in order, time moves on), so nearly all can be appended to a run, and taking the first of a run costs
// no comparisons and no mispredicted branches. What would break the order of both runs goes to the heap; with
// priorities everything does. A run is sorted by (ready time, op number).
#pragma once

#include <array>
#include <cstdint>

#include "kit/array.h"
#include "kit/copies.h"
#include "problem.h"

namespace placewright::judge {

// What happened when; written where there is room for it. Entries of copies that were not made are left as they are.
struct OverlapRecord {
  Span<double> start_s, end_s;  // [ops]
  Span2d<double> copies;        // [tensors, 2 * devices]: start and end at each receiving device
  Span2d<double> up_legs;       // [tensors, 2]: start and end of the copy up to host memory
};

class OverlapJudge {
 public:
  explicit OverlapJudge(const Problem& problem);

  // The value of a placement, infinite where an op cannot run on its device. `priority` has one number per op or none.
  double run(Span<const std::int32_t> device_of_op, Span<const double> priority, const OverlapRecord* record = nullptr);

 private:
  // What one op needs to know, side by side: an event touches all of it.
  struct Op {
    double ready_s;  // when the last input known so far arrives
    double took_s;
    std::int32_t pending;  // inputs whose producer has not ended
    std::int32_t device;
  };
  struct Run {
    std::int32_t head, tail;  // positions of its first op and after its last
    double first_s;           // ready time of its first op, infinite if it is empty
  };
  struct alignas(64) Device {  // a line of the cache
    double arrival_s;          // of the tensor that is being sent now
    std::array<Run, 2> runs;
    std::int32_t heap_base, heap_size;
    std::int32_t arrival_of;  // which tensor `arrival_s` speaks of
  };
  // Heaps of waiting ops, one behind the other; least (key, ready time, op number) on top.
  struct Heap {
    Array<std::int32_t> op;
    Array<double> key;
  };

  bool begin(Span<const std::int32_t> device_of_op);
  void start_ready_ops();
  void give_work(std::int32_t d);
  std::int32_t take_first(Device& device);
  std::int32_t take_from_run(Run& run, const Array<std::int32_t>& waiting);
  bool append(Run& run, Array<std::int32_t>& waiting, std::int32_t op);
  [[nodiscard]] bool is_heap_first(const Device& device) const;
  bool find_next_moment();
  [[nodiscard]] std::int32_t first_ending() const;
  void end_op(std::int32_t source);
  void send(std::int32_t tensor, std::int32_t source);
  void has_arrived(std::int32_t op, double arrival_s, std::int32_t source);
  void wait(std::int32_t op);
  void take_in_future_ops();
  double book(const Route& leg, double took_s, double ready_s, std::int32_t tensor);

  [[nodiscard]] bool ready_before(std::int32_t a, std::int32_t b) const;
  void push(Heap& heap, std::int32_t base, std::int32_t size, std::int32_t op, double key);
  std::int32_t pop(Heap& heap, std::int32_t base, std::int32_t size);

  const Problem& p_;
  Routes routes_;
  Array<Op> ops_;
  Array<Device> devices_;
  // What is looked at for all devices at every event stands apart, so that it is a line or two of the cache.
  Array<double> next_s_;  // end of the running op, else when the next one is ready (infinite: none known, padding)
  Array<std::int32_t> running_;                 // op or none
  std::array<Array<std::int32_t>, 2> waiting_;  // the runs of all devices, side by side
  Heap heap_, future_;                          // `future_`: ops whose last input is on its way, with priorities only
  Array<double> channel_free_s_;

  // of the present placement
  Span<const double> priority_;
  const OverlapRecord* record_ = nullptr;
  double now_s_ = 0.0;
  std::int32_t n_future_ = 0, n_left_ = 0;
  std::int32_t here_ = 0;  // the device that something happens on now
  bool several_ = true;    // it may not be the only one
  bool are_several_ending_ = false;
};

}  // namespace placewright::judge
