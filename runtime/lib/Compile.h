// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_RUNTIME_LIB_COMPILE_H
#define FA_RUNTIME_LIB_COMPILE_H

#include "Device.h"

namespace fa::rt {

/// How to load, the environment already taken in.
struct LoadOptions {
  bool useCache = true;
  bool verbose = false;
  bool checkPointers = false;
  const char *header = nullptr;

  static LoadOptions from(const fa_rt_load_options *options);
};

/// Code in the driver's hands.
struct LoadedModule {
  cu::Module module = nullptr;
  bool isFromCache = false;
};

/// Compiles (or takes from the cache) and loads the image's code into the
/// current context. Throws DRIVER_REJECTED with the driver's log.
LoadedModule loadModule(const Driver &driver, const Image &image,
                        const fa_rt_device_desc &device,
                        const LoadOptions &options);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_COMPILE_H
