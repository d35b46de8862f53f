// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_RUNTIME_LIB_PROGRAM_H
#define FA_RUNTIME_LIB_PROGRAM_H

#include "Device.h"
#include "Queue.h"

#include <memory>

namespace fa::rt {

/// A launch whose kernel is known to the driver.
struct Kernel {
  cu::Function function = nullptr;
  /// The kernel's parameters, as offsets into the launch's words.
  std::vector<uint32_t> params;
  /// Its tensor maps, as indices into the header's.
  std::vector<int> maps;
  bool hasQueue = false;
  /// The most blocks of a launch; 0: any number.
  unsigned maxGrid = 0;
  fa_rt_launch_desc desc = {};
};

} // namespace fa::rt

/// Immutable once loaded: launches of several threads share it without locks.
struct fa_rt_program {
  const fa::rt::Driver &driver;
  int device = 0;
  fa::rt::cu::Context context = nullptr;
  fa::rt::cu::Module module = nullptr;
  fa::rt::ImageHeader header;
  /// Where each tensor's words begin: pointer, sizes, strides.
  std::vector<uint32_t> offsets;
  std::vector<fa::rt::Kernel> kernels;
  /// Only if a kernel has a queue.
  std::unique_ptr<fa::rt::QueuePool> queues;
  bool hasAsyncAlloc = false;
  /// Of the runtime's own on the device; null where there are none.
  fa::rt::cu::MemPool pool = nullptr;
  bool checkPointers = false;
  bool isFromCache = false;

  explicit fa_rt_program(const fa::rt::Driver &driver) : driver(driver) {}
  ~fa_rt_program();
  fa_rt_program(const fa_rt_program &) = delete;
  fa_rt_program &operator=(const fa_rt_program &) = delete;
};

#endif // FA_RUNTIME_LIB_PROGRAM_H
