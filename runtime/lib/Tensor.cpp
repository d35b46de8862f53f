// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa-runtime/fa_runtime.h"

#include "Tensor.h"

#include <algorithm>

using namespace fa::rt;

namespace {
struct ElementType {
  int32_t dtype;
  const char *name;
  size_t size;
};
} // namespace

static constexpr ElementType kElementTypes[] = {
    {FA_RT_F32, "f32", 4},      {FA_RT_F16, "f16", 2},
    {FA_RT_BF16, "bf16", 2},    {FA_RT_F64, "f64", 8},
    {FA_RT_I1, "i1", 1},        {FA_RT_I8, "i8", 1},
    {FA_RT_I16, "i16", 2},      {FA_RT_I32, "i32", 4},
    {FA_RT_I64, "i64", 8},      {FA_RT_U8, "u8", 1},
    {FA_RT_U16, "u16", 2},      {FA_RT_U32, "u32", 4},
    {FA_RT_U64, "u64", 8},      {FA_RT_F8E4M3FN, "f8E4M3FN", 1},
    {FA_RT_F8E5M2, "f8E5M2", 1}};

static const ElementType *find(int32_t dtype) {
  for (const ElementType &type : kElementTypes)
    if (type.dtype == dtype)
      return &type;
  return nullptr;
}

int32_t fa::rt::parseDType(std::string_view name) {
  for (const ElementType &type : kElementTypes)
    if (name == type.name)
      return type.dtype;
  return 0;
}

size_t fa_rt_dtype_size(int32_t dtype) {
  const ElementType *type = find(dtype);
  return type ? type->size : 0;
}

const char *fa_rt_dtype_name(int32_t dtype) {
  const ElementType *type = find(dtype);
  return type ? type->name : "?";
}

fa_rt_tensor fa_rt_tensor_contiguous(void *data, int32_t dtype, int32_t rank,
                                     const int64_t *shape) {
  fa_rt_tensor tensor = {};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = rank;
  if (rank < 0 || rank > FA_RT_MAX_RANK)
    return tensor;
  // Unsigned, because sizes that nobody checked yet may overflow.
  uint64_t stride = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    tensor.shape[i] = shape[i];
    tensor.strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
  }
  return tensor;
}
