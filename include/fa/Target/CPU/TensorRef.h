// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tensor in memory that someone else owns. Neutral: no MLIR here.

#ifndef FA_TARGET_CPU_TENSORREF_H
#define FA_TARGET_CPU_TENSORREF_H

#include <cstdint>
#include <vector>

namespace fa {
namespace cpu {

enum class DType { F16, BF16, F32, F64, I1, I8, I16, I32, I64 };

/// Bytes of an element.
inline int64_t sizeOf(DType dtype) {
  switch (dtype) {
  case DType::I1:
  case DType::I8:
    return 1;
  case DType::F16:
  case DType::BF16:
  case DType::I16:
    return 2;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::F64:
  case DType::I64:
    return 8;
  }
  return 0;
}

/// The type's name as in MLIR.
inline const char *nameOf(DType dtype) {
  static const char *const names[] = {"f16", "bf16", "f32", "f64", "i1",
                                      "i8",  "i16",  "i32", "i64"};
  return names[static_cast<int>(dtype)];
}

inline bool isFloat(DType dtype) { return dtype <= DType::F64; }

struct TensorRef {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// In elements. May be zero or negative.
  std::vector<int64_t> strides;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape)
      n *= s;
    return n;
  }
  /// A contiguous tensor, last dimension fastest.
  static TensorRef contiguous(void *data, DType dtype,
                              std::vector<int64_t> shape) {
    TensorRef t{data, dtype, std::move(shape), {}};
    t.strides.resize(t.shape.size());
    int64_t stride = 1;
    for (int64_t d = t.rank() - 1; d >= 0; --d) {
      t.strides[d] = stride;
      stride *= t.shape[d] > 0 ? t.shape[d] : 1;
    }
    return t;
  }
};

} // namespace cpu
} // namespace fa

#endif // FA_TARGET_CPU_TENSORREF_H
