// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The counters that kernels draw the numbers of their tiles from. A launch has
// one for itself while its kernel runs; the last block to end zeroes it and
// clears the slot's flag in host memory. A launch that is captured has one for
// ever: its graph may run at any time, but not twice at once.

#ifndef FA_RUNTIME_LIB_QUEUE_H
#define FA_RUNTIME_LIB_QUEUE_H

#include "Driver.h"

#include <atomic>
#include <cstdint>

namespace fa::rt {

/// The counters of one program.
class QueuePool {
public:
  /// Two words: the next tile's number, and how many blocks have ended.
  static constexpr size_t kSlotBytes = 8;
  static constexpr uint32_t kSlots = 1024, kCapturedSlots = 8192;

  explicit QueuePool(const Driver &driver) : driver(driver) {}
  ~QueuePool();
  QueuePool(const QueuePool &) = delete;
  QueuePool &operator=(const QueuePool &) = delete;

  /// Allocates in the current context. Without what it needs of the driver the
  /// pool stays empty.
  void allocate();

  /// The addresses that a launch on the stream passes to its kernel.
  struct Slot {
    int64_t counter = 0, flag = 0;
    std::atomic<uint32_t> *busy = nullptr;
  };
  /// A free slot; null addresses where there is none: the kernel then takes
  /// tiles in equal steps. No lock, no waiting.
  Slot take(cu::Stream stream);
  /// After a launch that failed.
  static void giveBack(const Slot &slot) {
    if (slot.busy)
      slot.busy->store(0, std::memory_order_release);
  }

private:
  const Driver &driver;
  cu::DevicePtr counters = 0;
  void *flags = nullptr;
  /// The slot to try first, and how many slots captured launches have.
  std::atomic<uint32_t> next{0}, captured{0};
};

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_QUEUE_H
