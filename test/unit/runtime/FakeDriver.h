// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A CUDA driver made of host memory. It records what it was asked to do, and
// can be told to fail. The tests reach its state through the one symbol that a
// real driver lacks.

#ifndef FA_TEST_UNIT_RUNTIME_FAKEDRIVER_H
#define FA_TEST_UNIT_RUNTIME_FAKEDRIVER_H

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace fake {

struct Launch {
  std::string kernel;
  unsigned grid[3];
  unsigned block[3];
  unsigned smem;
  void *stream;
  /// As many words as the kernel declares parameters.
  std::vector<uint64_t> params;
};

struct Behaviour {
  int initResult = 0;
  int deviceCount = 1;
  int driverVersion = 12040;
  int major = 8, minor = 0;
  int smemOptin = 166912;
  bool hasPools = true;
  /// Not empty: PTX is rejected with this log.
  std::string rejectLog;
  /// The result of a rejection: 218 is CUDA_ERROR_INVALID_PTX.
  int rejectResult = 218;
  bool isLinkerBroken = false;
  bool rejectsCubins = false;
  /// Result of the async allocator; 801 is CUDA_ERROR_NOT_SUPPORTED.
  int asyncAllocResult = 0;
  /// Allocations that succeed before the memory runs out; -1: all.
  int allocationsLeft = -1;
  int launchResult = 0;
  /// Index of the launch, counted from 0, from which on launches fail.
  int launchesLeft = -1;
  int synchronizeResult = 0;
  int registers = 128, localBytes = 0, staticSmem = 0, maxThreads = 1024;
};

struct State {
  std::mutex mutex;
  Behaviour behaviour;
  std::vector<Launch> launches;
  /// Names of the calls that matter, in order: "memAllocAsync 4096", ...
  std::vector<std::string> calls;
  /// Live device memory and its size.
  std::map<uint64_t, size_t> memory;
  /// Largest dynamic shared memory set for each kernel.
  std::map<std::string, int> maxDynamicSmem;
  int liveModules = 0;
  int compilations = 0;
};

} // namespace fake

extern "C" fake::State *fakeDriverState();
/// Makes `context` current on this thread, as a caller's library would.
extern "C" void fakeSetCurrentContext(void *context);
extern "C" void *fakeCurrentContext();
extern "C" int fakeContextDepth();

#endif // FA_TEST_UNIT_RUNTIME_FAKEDRIVER_H
