// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_RUNTIME_LIB_DEVICE_H
#define FA_RUNTIME_LIB_DEVICE_H

#include "Driver.h"
#include "Image.h"

namespace fa::rt {

/// The handle of device `ordinal`. Throws INVALID_ARGUMENT, NO_DEVICE.
cu::Device deviceHandle(const Driver &driver, int ordinal);

/// What the driver says of a device.
fa_rt_device_desc describeDevice(const Driver &driver, cu::Device device);

/// The device's primary context, retained once and for good: other libraries
/// in the process use it too, and tearing it down at exit is the driver's part.
cu::Context primaryContext(const Driver &driver, int ordinal);

/// Throws INVALID_ARGUMENT if code for `image`'s target cannot run on the
/// device.
void checkTarget(const Image &image, int ordinal,
                 const fa_rt_device_desc &device);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_DEVICE_H
