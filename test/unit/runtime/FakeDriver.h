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

/// What the driver puts into the 128 bytes of a tensor map. The real one packs
/// them into something that it does not document.
struct TensorMap {
  uint64_t address;
  /// The innermost dimension first, as cuTensorMapEncodeTiled takes them;
  /// unused ones are 0.
  uint64_t sizes[5];
  /// In bytes, of all dimensions but the innermost one.
  uint64_t strides[4];
  uint32_t box[5];
  uint32_t type, rank, interleave, swizzle, promotion, oobFill, magic;
};
static_assert(sizeof(TensorMap) == 128, "the size of a CUtensorMap");
constexpr uint32_t kTensorMapMagic = 0xfa7e4500;

struct Launch {
  std::string kernel;
  unsigned grid[3];
  unsigned block[3];
  unsigned smem;
  void *stream;
  /// As many words as the kernel declares parameters of 8 bytes.
  std::vector<uint64_t> params;
  /// Its parameters of 128 bytes.
  std::vector<TensorMap> maps;
};

struct Behaviour {
  int initResult = 0;
  int deviceCount = 1;
  int driverVersion = 12040;
  int major = 8, minor = 0;
  int smCount = 108;
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
  /// What cuStreamIsCapturing says: 1 is CU_STREAM_CAPTURE_STATUS_ACTIVE.
  int captureStatus = 0, captureResult = 0;
  /// Of cuMemHostAlloc.
  int hostAllocResult = 0;
  /// The result of encoding a tensor map, if its arguments are good.
  int encodeResult = 0;
  int registers = 128, localBytes = 0, staticSmem = 0, maxThreads = 1024;
};

struct State {
  std::mutex mutex;
  Behaviour behaviour;
  std::vector<Launch> launches;
  /// Names of the calls that matter, in order: "memAllocAsync 4096", ...
  std::vector<std::string> calls;
  /// Names of the calls that did not end with success.
  std::vector<std::string> failures;
  /// Live device memory and its size.
  std::map<uint64_t, size_t> memory;
  /// Largest dynamic shared memory set for each kernel.
  std::map<std::string, int> maxDynamicSmem;
  int liveModules = 0, liveHostBuffers = 0;
  int compilations = 0;
  /// Tensor maps encoded, and refused.
  int encodings = 0, refusedEncodings = 0;
};

} // namespace fake

extern "C" fake::State *fakeDriverState();
/// Makes `context` current on this thread, as a caller's library would.
extern "C" void fakeSetCurrentContext(void *context);
extern "C" void *fakeCurrentContext();
extern "C" int fakeContextDepth();
/// What a pool keeps at a synchronisation, in bytes; 0 before there is a pool.
extern "C" unsigned long long fakePoolThreshold();

#endif // FA_TEST_UNIT_RUNTIME_FAKEDRIVER_H
