// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA driver, opened with dlopen.

#ifndef FA_RUNTIME_LIB_DRIVER_H
#define FA_RUNTIME_LIB_DRIVER_H

#include "DriverTypes.h"
#include "Error.h"

namespace fa::rt {

// X(member, exported symbol, parameter types)
#define FA_RT_DRIVER_REQUIRED(X)                                               \
  X(init, "cuInit", (unsigned))                                                \
  X(driverGetVersion, "cuDriverGetVersion", (int *))                           \
  X(getErrorString, "cuGetErrorString", (cu::Result, const char **))           \
  X(getErrorName, "cuGetErrorName", (cu::Result, const char **))               \
  X(deviceGet, "cuDeviceGet", (cu::Device *, int))                             \
  X(deviceGetCount, "cuDeviceGetCount", (int *))                               \
  X(deviceGetName, "cuDeviceGetName", (char *, int, cu::Device))               \
  X(deviceGetAttribute, "cuDeviceGetAttribute", (int *, int, cu::Device))      \
  X(primaryCtxRetain, "cuDevicePrimaryCtxRetain", (cu::Context *, cu::Device)) \
  X(ctxPush, "cuCtxPushCurrent_v2", (cu::Context))                             \
  X(ctxPop, "cuCtxPopCurrent_v2", (cu::Context *))                             \
  X(ctxGetCurrent, "cuCtxGetCurrent", (cu::Context *))                         \
  X(moduleLoadDataEx, "cuModuleLoadDataEx",                                    \
    (cu::Module *, const void *, unsigned, int *, void **))                    \
  X(moduleUnload, "cuModuleUnload", (cu::Module))                              \
  X(moduleGetFunction, "cuModuleGetFunction",                                  \
    (cu::Function *, cu::Module, const char *))                                \
  X(funcGetAttribute, "cuFuncGetAttribute", (int *, int, cu::Function))        \
  X(funcSetAttribute, "cuFuncSetAttribute", (cu::Function, int, int))          \
  X(launchKernel, "cuLaunchKernel",                                            \
    (cu::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
     unsigned, cu::Stream, void **, void **))                                  \
  X(memAlloc, "cuMemAlloc_v2", (cu::DevicePtr *, size_t))                      \
  X(memFree, "cuMemFree_v2", (cu::DevicePtr))                                  \
  X(memcpyHtoD, "cuMemcpyHtoD_v2", (cu::DevicePtr, const void *, size_t))      \
  X(memcpyDtoH, "cuMemcpyDtoH_v2", (void *, cu::DevicePtr, size_t))            \
  X(memsetD8Async, "cuMemsetD8Async",                                          \
    (cu::DevicePtr, unsigned char, size_t, cu::Stream))                        \
  X(streamSynchronize, "cuStreamSynchronize", (cu::Stream))                    \
  X(linkCreate, "cuLinkCreate_v2",                                             \
    (unsigned, int *, void **, cu::LinkState *))                               \
  X(linkAddData, "cuLinkAddData_v2",                                           \
    (cu::LinkState, int, void *, size_t, const char *, unsigned, int *,        \
     void **))                                                                 \
  X(linkComplete, "cuLinkComplete", (cu::LinkState, void **, size_t *))        \
  X(linkDestroy, "cuLinkDestroy", (cu::LinkState))                             \
  X(pointerGetAttribute, "cuPointerGetAttribute",                              \
    (void *, int, cu::DevicePtr))                                              \
  X(eventCreate, "cuEventCreate", (cu::Event *, unsigned))                     \
  X(eventDestroy, "cuEventDestroy_v2", (cu::Event))                            \
  X(eventRecord, "cuEventRecord", (cu::Event, cu::Stream))                     \
  X(eventSynchronize, "cuEventSynchronize", (cu::Event))                       \
  X(eventElapsedTime, "cuEventElapsedTime", (float *, cu::Event, cu::Event))

// Null where the driver is older: the first five came with CUDA 11.2, the next
// with 12.4, the one after it with 12.0; the others are older than all drivers
// that load what needs them.
#define FA_RT_DRIVER_OPTIONAL(X)                                               \
  X(memAllocAsync, "cuMemAllocAsync", (cu::DevicePtr *, size_t, cu::Stream))   \
  X(memFreeAsync, "cuMemFreeAsync", (cu::DevicePtr, cu::Stream))               \
  X(memPoolCreate, "cuMemPoolCreate",                                          \
    (cu::MemPool *, const cu::MemPoolProps *))                                 \
  X(memPoolSetAttribute, "cuMemPoolSetAttribute", (cu::MemPool, int, void *))  \
  X(memAllocFromPoolAsync, "cuMemAllocFromPoolAsync",                          \
    (cu::DevicePtr *, size_t, cu::MemPool, cu::Stream))                        \
  X(funcGetParamInfo, "cuFuncGetParamInfo",                                    \
    (cu::Function, size_t, size_t *, size_t *))                                \
  X(tensorMapEncodeTiled, "cuTensorMapEncodeTiled",                            \
    (void *, cu::TensorMapType, uint32_t, cu::DevicePtr, const uint64_t *,     \
     const uint64_t *, const uint32_t *, const uint32_t *, int, int, int,      \
     int))                                                                     \
  X(memHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))               \
  X(memFreeHost, "cuMemFreeHost", (void *))                                    \
  X(streamIsCapturing, "cuStreamIsCapturing", (cu::Stream, int *))

/// The driver's entry points. One object, immutable once made.
struct Driver {
#define FA_RT_MEMBER(member, symbol, params) cu::Result(*member) params;
  FA_RT_DRIVER_REQUIRED(FA_RT_MEMBER)
  FA_RT_DRIVER_OPTIONAL(FA_RT_MEMBER)
#undef FA_RT_MEMBER

  /// The initialised driver; opens it at the first call. A failure is tried
  /// again by the next call. Throws NO_DRIVER, NO_DEVICE, DRIVER_TOO_OLD.
  static const Driver &get();

  /// The CUDA version that the driver supports: 12040 for 12.4.
  int version() const;

  /// "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
  std::string describe(cu::Result result) const;

  /// Throws `status` if `result` is an error; OUT_OF_MEMORY if it is that.
  void check(cu::Result result, const char *what,
             fa_rt_status status = FA_RT_DRIVER_REJECTED) const {
    if (result != cu::kSuccess)
      failed(result, what, status);
  }
  [[noreturn]] void failed(cu::Result result, const char *what,
                           fa_rt_status status) const;
};

/// Makes a context current for a scope.
class ScopedContext {
public:
  ScopedContext(const Driver &driver, cu::Context context);
  ~ScopedContext();
  ScopedContext(const ScopedContext &) = delete;
  ScopedContext &operator=(const ScopedContext &) = delete;

private:
  const Driver &driver;
  bool isPushed = false;
};

/// Throws DRIVER_TOO_OLD if a driver for CUDA `driverVersion` cannot read PTX
/// `ptxVersion` (80 for 8.0).
void checkPTXVersion(int ptxVersion, int driverVersion);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_DRIVER_H
