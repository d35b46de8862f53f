// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the CUDA driver's binary interface that the runtime uses. Names
// are ours; numbers are the driver's.

#ifndef FA_RUNTIME_LIB_DRIVERTYPES_H
#define FA_RUNTIME_LIB_DRIVERTYPES_H

#include <cstddef>
#include <cstdint>

namespace fa::rt::cu {

using Result = int;
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextOpaque *;
using Module = struct ModuleOpaque *;
using Function = struct FunctionOpaque *;
using Stream = struct StreamOpaque *;
using Event = struct EventOpaque *;
using LinkState = struct LinkStateOpaque *;
using MemPool = struct MemPoolOpaque *;

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNoBinaryForGPU = 209,
  kInvalidPTX = 218,
  kUnsupportedPTXVersion = 222,
  kNotSupported = 801,
};

enum DeviceAttribute : int {
  kDevMaxSharedPerBlock = 8,
  kDevSMCount = 16,
  kDevL2Size = 38,
  kDevMajor = 75,
  kDevMinor = 76,
  kDevMaxSharedOptin = 97,
  kDevMemoryPools = 115,
};

enum MemPoolAttribute : int { kPoolReleaseThreshold = 4 };
/// CUmemPoolProps: pinned memory of a device, for no other process.
struct MemPoolProps {
  int allocType = 1, handleTypes = 0;
  int locationType = 1, locationId = 0;
  void *securityAttributes = nullptr;
  size_t maxSize = 0;
  unsigned char reserved[56] = {};
};

enum FunctionAttribute : int {
  kFuncMaxThreads = 0,
  kFuncSharedBytes = 1,
  kFuncLocalBytes = 3,
  kFuncRegisters = 4,
  kFuncMaxDynamicShared = 8,
};

enum PointerAttribute : int {
  kPtrMemoryType = 2,
  kPtrIsManaged = 8,
  kPtrDeviceOrdinal = 9,
};
constexpr unsigned kMemoryTypeHost = 1;

/// Options of the driver's compiler and linker.
enum JitOption : int {
  kJitInfoLog = 3,
  kJitInfoLogSize = 4,
  kJitErrorLog = 5,
  kJitErrorLogSize = 6,
  kJitLogVerbose = 12,
};
enum JitInput : int { kJitInputPTX = 1 };

constexpr unsigned kHostPortable = 1, kHostMapped = 2;
/// What a stream is found in: CUstreamCaptureStatus.
constexpr int kCaptureNone = 0, kCaptureActive = 1;

/// Of tensor maps.
using TensorMapType = int;
enum : TensorMapType { kMapF16 = 6, kMapF32 = 7, kMapBF16 = 9 };
constexpr int kMapSwizzleNone = 0, kMapSwizzle128 = 3;
constexpr int kMapPromotion256 = 3;

} // namespace fa::rt::cu

#endif // FA_RUNTIME_LIB_DRIVERTYPES_H
