// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Device.h"

#include <map>
#include <mutex>

using namespace fa::rt;

static int countDevices(const Driver &driver) {
  int count = 0;
  driver.check(driver.deviceGetCount(&count), "counting the devices",
               FA_RT_NO_DEVICE);
  if (count == 0)
    fail(FA_RT_NO_DEVICE, "no GPU: the NVIDIA driver reports 0 devices; check "
                          "CUDA_VISIBLE_DEVICES, or run with target=cpu");
  return count;
}

cu::Device fa::rt::deviceHandle(const Driver &driver, int ordinal) {
  int count = countDevices(driver);
  if (ordinal < 0 || ordinal >= count)
    fail(FA_RT_INVALID_ARGUMENT,
         "device %d does not exist: there are %d; pass 0 to %d", ordinal, count,
         count - 1);
  cu::Device device;
  driver.check(driver.deviceGet(&device, ordinal), "opening the device");
  return device;
}

fa_rt_device_desc fa::rt::describeDevice(const Driver &driver,
                                         cu::Device device) {
  fa_rt_device_desc desc = {};
  driver.check(driver.deviceGetName(desc.name, sizeof(desc.name) - 1, device),
               "reading the device's name");
  auto read = [&](int32_t &value, cu::DeviceAttribute attribute) {
    driver.check(driver.deviceGetAttribute(&value, attribute, device),
                 "reading a device attribute");
  };
  read(desc.cc_major, cu::kDevMajor);
  read(desc.cc_minor, cu::kDevMinor);
  read(desc.sm_count, cu::kDevSMCount);
  read(desc.smem_optin, cu::kDevMaxSharedOptin);
  if (desc.smem_optin == 0)
    read(desc.smem_optin, cu::kDevMaxSharedPerBlock);
  read(desc.l2_size, cu::kDevL2Size);
  desc.driver_version = driver.version();
  return desc;
}

cu::Context fa::rt::primaryContext(const Driver &driver, int ordinal) {
  static std::mutex mutex;
  static std::map<int, cu::Context> contexts;
  cu::Device device = deviceHandle(driver, ordinal);
  std::lock_guard<std::mutex> lock(mutex);
  cu::Context &context = contexts[ordinal];
  if (!context)
    driver.check(driver.primaryCtxRetain(&context, device),
                 "retaining the device's primary context");
  return context;
}

void fa::rt::checkTarget(const Image &image, int ordinal,
                         const fa_rt_device_desc &device) {
  const Target &target = image.header.target;
  int number = device.cc_major * 10 + device.cc_minor;
  bool isSameMajor = number / 10 == target.number / 10;
  bool fits = number >= target.number;
  if (target.suffix == 'a') // Features of exactly this device.
    fits = number == target.number;
  else if (target.suffix == 'f' || !image.isPTX) // Of its family; machine code.
    fits = fits && isSameMajor;
  if (!fits)
    fail(FA_RT_INVALID_ARGUMENT,
         "the image is for %s but device %d (%s) is sm_%d; compile with "
         "target=sm_%d or choose another device",
         image.header.targetName.c_str(), ordinal, device.name, number, number);
}

fa_rt_status fa_rt_device_count(int *count) {
  return guarded([&] {
    requireNonNull(count, "count");
    *count = countDevices(Driver::get());
  });
}

fa_rt_status fa_rt_device_info(int device, fa_rt_device_desc *desc) {
  return guarded([&] {
    requireNonNull(desc, "desc");
    const Driver &driver = Driver::get();
    *desc = describeDevice(driver, deviceHandle(driver, device));
  });
}
