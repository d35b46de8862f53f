// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_RUNTIME_LIB_TENSOR_H
#define FA_RUNTIME_LIB_TENSOR_H

#include <cstdint>
#include <string_view>

namespace fa::rt {

/// The fa_rt_dtype of a header's name, 0 if there is none.
int32_t parseDType(std::string_view name);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_TENSOR_H
