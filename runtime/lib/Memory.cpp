// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Device memory and streams, for users without another CUDA library.

#include "Device.h"

using namespace fa::rt;

static cu::DevicePtr toDevice(const void *data) {
  return static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(data));
}

/// Runs `body(driver)` in the device's primary context.
template <typename Body> static fa_rt_status onDevice(int device, Body body) {
  return guarded([&] {
    const Driver &driver = Driver::get();
    ScopedContext scope(driver, primaryContext(driver, device));
    body(driver);
  });
}

fa_rt_status fa_rt_alloc(int device, size_t bytes, void **data) {
  return onDevice(device, [&](const Driver &driver) {
    requireNonNull(data, "data");
    cu::DevicePtr result = 0;
    if (bytes)
      driver.check(driver.memAlloc(&result, bytes),
                   format("allocating %zu bytes", bytes).c_str());
    *data = reinterpret_cast<void *>(static_cast<uintptr_t>(result));
  });
}

fa_rt_status fa_rt_free(int device, void *data) {
  if (!data)
    return FA_RT_OK;
  return onDevice(device, [&](const Driver &driver) {
    driver.check(driver.memFree(toDevice(data)), "freeing device memory");
  });
}

fa_rt_status fa_rt_copy_to_device(int device, void *to, const void *from,
                                  size_t bytes) {
  if (!bytes)
    return FA_RT_OK;
  return onDevice(device, [&](const Driver &driver) {
    requireNonNull(to, "the device address");
    requireNonNull(from, "the host address");
    driver.check(driver.memcpyHtoD(toDevice(to), from, bytes),
                 format("copying %zu bytes to the device", bytes).c_str());
  });
}

fa_rt_status fa_rt_copy_to_host(int device, void *to, const void *from,
                                size_t bytes) {
  if (!bytes)
    return FA_RT_OK;
  return onDevice(device, [&](const Driver &driver) {
    requireNonNull(to, "the host address");
    requireNonNull(from, "the device address");
    driver.check(driver.memcpyDtoH(to, toDevice(from), bytes),
                 format("copying %zu bytes to the host", bytes).c_str());
  });
}

fa_rt_status fa_rt_stream_is_capturing(int device, void *stream,
                                       int32_t *is_capturing) {
  return onDevice(device, [&](const Driver &driver) {
    requireNonNull(is_capturing, "is_capturing");
    int status = cu::kCaptureNone;
    // The default stream gives an error while another one is captured.
    bool isKnown = driver.streamIsCapturing &&
                   driver.streamIsCapturing(static_cast<cu::Stream>(stream),
                                            &status) == cu::kSuccess;
    *is_capturing = !isKnown || status != cu::kCaptureNone;
  });
}

fa_rt_status fa_rt_stream_synchronize(int device, void *stream) {
  return onDevice(device, [&](const Driver &driver) {
    driver.check(driver.streamSynchronize(static_cast<cu::Stream>(stream)),
                 "waiting for the stream", FA_RT_LAUNCH_FAILED);
  });
}
