// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Queue.h"

#include <new>

using namespace fa::rt;

QueuePool::~QueuePool() {
  if (counters)
    driver.memFree(counters);
  if (flags)
    driver.memFreeHost(flags);
}

void QueuePool::allocate() {
  if (!driver.memHostAlloc || !driver.memFreeHost || !driver.streamIsCapturing)
    return;
  constexpr size_t kAll = kSlots + kCapturedSlots, kBytes = kAll * kSlotBytes;
  driver.check(driver.memAlloc(&counters, kBytes), "allocating tile counters");
  driver.check(driver.memsetD8Async(counters, 0, kBytes, nullptr),
               "zeroing tile counters");
  driver.check(driver.streamSynchronize(nullptr), "zeroing tile counters");
  driver.check(driver.memHostAlloc(&flags, kAll * sizeof(uint32_t),
                                   cu::kHostPortable | cu::kHostMapped),
               "allocating flags of tile counters");
  for (size_t i = 0; i < kAll; ++i)
    new (static_cast<std::atomic<uint32_t> *>(flags) + i)
        std::atomic<uint32_t>(0);
}

QueuePool::Slot QueuePool::take(cu::Stream stream) {
  Slot slot;
  int capture = 0;
  if (!flags || driver.streamIsCapturing(stream, &capture) != cu::kSuccess)
    return slot;
  auto use = [&](uint32_t index) {
    std::atomic<uint32_t> *flag =
        static_cast<std::atomic<uint32_t> *>(flags) + index;
    slot.counter = static_cast<int64_t>(counters + index * kSlotBytes);
    // Unified addressing: the host's address is the device's.
    slot.flag = reinterpret_cast<intptr_t>(flag);
    return flag;
  };
  if (capture == cu::kCaptureActive) {
    uint32_t number = captured.load(std::memory_order_relaxed);
    while (number < kCapturedSlots &&
           !captured.compare_exchange_weak(number, number + 1,
                                           std::memory_order_relaxed)) {
    }
    if (number < kCapturedSlots)
      use(kSlots + number);
    return slot;
  }
  if (capture != cu::kCaptureNone)
    return slot;
  // The next few: if all are busy a thousand launches are in flight.
  constexpr uint32_t kTries = 16;
  for (uint32_t i = 0; i < kTries; ++i) {
    uint32_t index = next.fetch_add(1, std::memory_order_relaxed) % kSlots;
    std::atomic<uint32_t> *busy =
        static_cast<std::atomic<uint32_t> *>(flags) + index;
    uint32_t expected = 0;
    if (!busy->compare_exchange_strong(expected, 1, std::memory_order_acquire))
      continue;
    slot.busy = use(index);
    return slot;
  }
  return slot;
}
