// Small moves under limits of memory: one unit goes to another device.
//
// Readers are counted per tensor and device, so that a move is judged by the tensors that its unit makes or reads.
// Additions go by tensor and then by device.
#pragma once

#include <cstdint>

#include "kit/stop.h"
#include "sequential/labelling.h"

namespace placewright::sequential {

class MovableLabels {
 public:
  MovableLabels(const Energy& energy, Span<const std::int32_t> label, Span<const double> limit_bytes);

  // Move units while that helps; a device never gets fuller by a move than it may be.
  void descend(Stop& stop);

  // Move units out of devices that are too full, cheapest per byte first, and then descend: bytes beyond a limit cost
  // `price` each, and more from round to round. False if that does not get within the limits.
  bool repair(double price, Stop& stop);

  // What the value changes by if a unit moves.
  [[nodiscard]] double change_of_move(std::int32_t unit, std::int32_t to);

  [[nodiscard]] const Array<std::int32_t>& label() const { return label_; }

 private:
  [[nodiscard]] bool fits() const;
  bool sweep(double price, Stop& stop);
  [[nodiscard]] std::int32_t best_move(std::int32_t unit, double price);
  void move(std::int32_t unit, std::int32_t to);
  void move_reader(Index tensor, std::int32_t from, std::int32_t to);
  [[nodiscard]] double excess(std::int32_t device, double bytes) const;
  [[nodiscard]] double copies_s(Index tensor, std::int32_t from) const;

  Energy energy_;
  Array<std::int32_t> label_;      // [units]
  Array<double> limit_;            // [devices]
  Array<double> used_;             // [devices]: resident bytes
  Array2d<std::int32_t> readers_;  // [tensors, devices]
};

}  // namespace placewright::sequential
