// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Driver.h"

#include "Environment.h"

#include <atomic>
#include <dlfcn.h>
#include <mutex>

using namespace fa::rt;

template <typename Fn>
static void resolve(void *library, Fn *&member, const char *symbol) {
  // POSIX has dlsym return functions as object pointers.
  member = reinterpret_cast<Fn *>(dlsym(library, symbol));
}

/// Opens the driver and fills in `driver`. The library is never closed: it
/// has threads and state of its own.
static void open(Driver &driver) {
  std::string path = env::driverPath();
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    fail(FA_RT_NO_DRIVER,
         "no NVIDIA driver: dlopen of %s failed (%s); install the NVIDIA "
         "driver or run with target=cpu",
         path.c_str(), reason ? reason : "no reason given");
  }
  const char *missing = nullptr;
#define FA_RT_RESOLVE_REQUIRED(member, symbol, params)                         \
  resolve(library, driver.member, symbol);                                     \
  if (!driver.member && !missing)                                              \
    missing = symbol;
#define FA_RT_RESOLVE_OPTIONAL(member, symbol, params)                         \
  resolve(library, driver.member, symbol);
  FA_RT_DRIVER_REQUIRED(FA_RT_RESOLVE_REQUIRED)
  FA_RT_DRIVER_OPTIONAL(FA_RT_RESOLVE_OPTIONAL)
#undef FA_RT_RESOLVE_REQUIRED
#undef FA_RT_RESOLVE_OPTIONAL
  if (!missing)
    return;
  dlclose(library);
  fail(FA_RT_DRIVER_TOO_OLD,
       "%s has no function %s; update the NVIDIA driver to 450 (CUDA 11.0) or "
       "later",
       path.c_str(), missing);
}

static void start(const Driver &driver) {
  cu::Result result = driver.init(0);
  if (result == cu::kSuccess)
    return;
  if (result == cu::kNoDevice)
    fail(FA_RT_NO_DEVICE, "no GPU: the NVIDIA driver is installed but sees no "
                          "device; check nvidia-smi and CUDA_VISIBLE_DEVICES, "
                          "or run with target=cpu");
  fail(FA_RT_NO_DRIVER,
       "the NVIDIA driver does not start: cuInit gave %s; check nvidia-smi, "
       "or run with target=cpu",
       driver.describe(result).c_str());
}

const Driver &Driver::get() {
  static Driver driver;
  static std::mutex mutex;
  static std::atomic<bool> isReady{false};
  if (isReady.load(std::memory_order_acquire))
    return driver;
  std::lock_guard<std::mutex> lock(mutex);
  if (isReady.load(std::memory_order_relaxed))
    return driver;
  if (!driver.eventElapsedTime) {
    Driver opened = {};
    open(opened);
    driver = opened;
  }
  start(driver);
  isReady.store(true, std::memory_order_release);
  return driver;
}

int Driver::version() const {
  int result = 0;
  check(driverGetVersion(&result), "reading the driver's version");
  return result;
}

std::string Driver::describe(cu::Result result) const {
  const char *name = nullptr, *text = nullptr;
  if (getErrorName(result, &name) != cu::kSuccess || !name)
    name = "unknown CUDA error";
  if (getErrorString(result, &text) != cu::kSuccess || !text)
    text = "no description";
  return format("%s (%d): %s", name, result, text);
}

void Driver::failed(cu::Result result, const char *what,
                    fa_rt_status status) const {
  if (result == cu::kOutOfMemory)
    fail(FA_RT_OUT_OF_MEMORY,
         "%s failed: the device is out of memory, %s; free memory or use "
         "smaller tensors",
         what, describe(result).c_str());
  fail(status, "%s failed: %s", what, describe(result).c_str());
}

ScopedContext::ScopedContext(const Driver &driver, cu::Context context)
    : driver(driver) {
  cu::Context current = nullptr;
  driver.check(driver.ctxGetCurrent(&current), "reading the current context");
  if (current == context)
    return;
  driver.check(driver.ctxPush(context), "entering the device's context");
  isPushed = true;
}

ScopedContext::~ScopedContext() {
  cu::Context popped;
  if (isPushed)
    driver.ctxPop(&popped);
}

namespace {
struct PTXRelease {
  int ptx;
  int cuda;
  int driver;
};
} // namespace

/// The first CUDA version that reads a PTX version, and its Linux driver.
static constexpr PTXRelease kReleases[] = {
    {70, 11000, 450}, {71, 11010, 455}, {72, 11020, 460}, {73, 11030, 465},
    {74, 11040, 470}, {75, 11050, 495}, {76, 11060, 510}, {77, 11070, 515},
    {78, 11080, 520}, {80, 12000, 525}, {81, 12010, 530}, {82, 12020, 535},
    {83, 12030, 545}, {84, 12040, 550}, {85, 12050, 555}, {86, 12070, 565},
    {87, 12080, 570}, {88, 12090, 575}, {90, 13000, 580}};

void fa::rt::checkPTXVersion(int ptxVersion, int driverVersion) {
  for (const PTXRelease &release : kReleases) {
    if (release.ptx != ptxVersion || driverVersion >= release.cuda)
      continue;
    fail(FA_RT_DRIVER_TOO_OLD,
         "driver supports CUDA %d.%d but the image needs PTX %d.%d (CUDA "
         "%d.%d); update the driver to %d or later",
         driverVersion / 1000, driverVersion % 1000 / 10, ptxVersion / 10,
         ptxVersion % 10, release.cuda / 1000, release.cuda % 1000 / 10,
         release.driver);
  }
}
