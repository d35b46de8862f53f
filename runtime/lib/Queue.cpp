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
  constexpr size_t kBytes = kSlots * kSlotBytes;
  driver.check(driver.memAlloc(&counters, kBytes), "allocating tile counters");
  driver.check(driver.memsetD8Async(counters, 0, kBytes, nullptr),
               "zeroing tile counters");
  driver.check(driver.streamSynchronize(nullptr), "zeroing tile counters");
  driver.check(driver.memHostAlloc(&flags, kSlots * sizeof(uint32_t),
                                   cu::kHostPortable | cu::kHostMapped),
               "allocating flags of tile counters");
  for (uint32_t i = 0; i < kSlots; ++i)
    new (static_cast<std::atomic<uint32_t> *>(flags) + i)
        std::atomic<uint32_t>(0);
}

QueuePool::Slot QueuePool::take(cu::Stream stream) {
  Slot slot;
  int isCapturing = 1;
  if (!flags ||
      driver.streamIsCapturing(stream, &isCapturing) != cu::kSuccess ||
      isCapturing)
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
    slot.counter = static_cast<int64_t>(counters + index * kSlotBytes);
    // Unified addressing: the host's address is the device's.
    slot.flag = reinterpret_cast<intptr_t>(busy);
    slot.busy = busy;
    return slot;
  }
  return slot;
}
