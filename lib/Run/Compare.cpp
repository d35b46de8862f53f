// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Run/Compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

double fa::run::widenF16(uint16_t bits) {
  int sign = bits >> 15, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value;
  if (exponent == 31)
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(fraction, -24);
  else
    value = std::ldexp(1024 + fraction, exponent - 25);
  return sign ? -value : value;
}

double fa::run::widenBF16(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// Rounds to `fractionBits` bits after the leading one; subnormals below
/// 2^minExponent. Nearest even, as nearbyint does by default.
static double roundTo(double value, int fractionBits, int minExponent) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent = std::max(std::ilogb(value), minExponent);
  double unit = std::ldexp(1.0, exponent - fractionBits);
  return std::nearbyint(value / unit) * unit;
}

uint16_t fa::run::narrowF16(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value))
    return sign | 0x7e00;
  double x = std::fabs(roundTo(value, 10, -14));
  if (x >= 65536.0)
    return sign | 0x7c00;
  if (x < std::ldexp(1.0, -14))
    return sign | static_cast<uint16_t>(std::ldexp(x, 24));
  int exponent = std::ilogb(x);
  auto fraction = static_cast<uint16_t>(std::ldexp(x, 10 - exponent) - 1024);
  return sign | static_cast<uint16_t>((exponent + 15) << 10) | fraction;
}

uint16_t fa::run::narrowBF16(double value) {
  // bf16 has f32's range: round there, then the f32 is exact.
  float x = static_cast<float>(roundTo(value, 7, -126));
  if (std::isnan(value))
    return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

double fa::run::elementAt(const TensorRef &t, int64_t offset) {
  switch (t.dtype) {
  case DType::F16:
    return widenF16(static_cast<const uint16_t *>(t.data)[offset]);
  case DType::BF16:
    return widenBF16(static_cast<const uint16_t *>(t.data)[offset]);
  case DType::F32:
    return static_cast<const float *>(t.data)[offset];
  case DType::F64:
    return static_cast<const double *>(t.data)[offset];
  case DType::I1:
  case DType::I8:
    return static_cast<const int8_t *>(t.data)[offset];
  case DType::I16:
    return static_cast<const int16_t *>(t.data)[offset];
  case DType::I32:
    return static_cast<const int32_t *>(t.data)[offset];
  case DType::I64:
    return static_cast<double>(static_cast<const int64_t *>(t.data)[offset]);
  }
  return 0;
}

void fa::run::storeElement(const TensorRef &t, int64_t offset, double value) {
  switch (t.dtype) {
  case DType::F16:
    static_cast<uint16_t *>(t.data)[offset] = narrowF16(value);
    return;
  case DType::BF16:
    static_cast<uint16_t *>(t.data)[offset] = narrowBF16(value);
    return;
  case DType::F32:
    static_cast<float *>(t.data)[offset] = static_cast<float>(value);
    return;
  case DType::F64:
    static_cast<double *>(t.data)[offset] = value;
    return;
  case DType::I1:
  case DType::I8:
    static_cast<int8_t *>(t.data)[offset] = static_cast<int8_t>(value);
    return;
  case DType::I16:
    static_cast<int16_t *>(t.data)[offset] = static_cast<int16_t>(value);
    return;
  case DType::I32:
    static_cast<int32_t *>(t.data)[offset] = static_cast<int32_t>(value);
    return;
  case DType::I64:
    static_cast<int64_t *>(t.data)[offset] = static_cast<int64_t>(value);
    return;
  }
}

Comparison fa::run::compare(const TensorRef &out, const TensorRef &reference,
                            Limit limit) {
  Comparison result;
  int64_t count = out.size();
  std::vector<int64_t> index(out.shape.size(), 0);
  int64_t a = 0, b = 0; // offsets of the element
  for (int64_t n = 0; n < count; ++n) {
    double x = elementAt(out, a), y = elementAt(reference, b);
    bool bad;
    if (std::isfinite(x) && std::isfinite(y)) {
      double error = std::fabs(x - y);
      if (error > result.maxError || result.maxErrorIndex.empty()) {
        result.maxError = error;
        result.maxErrorIndex = index;
      }
      result.maxReference = std::max(result.maxReference, std::fabs(y));
      bad =
          !(error <= std::max(limit.absolute, limit.relative * std::fabs(y))) ||
          (limit.exactZeros && y == 0 && x != 0);
    } else {
      bad = std::isnan(x) != std::isnan(y) || (!std::isnan(x) && x != y);
    }
    if (bad && result.badElements++ == 0) {
      result.firstBadIndex = index;
      result.firstBadOut = x;
      result.firstBadReference = y;
    }
    for (int64_t d = out.rank() - 1; d >= 0; --d) {
      a += out.strides[d];
      b += reference.strides[d];
      if (++index[d] < out.shape[d])
        break;
      a -= out.strides[d] * out.shape[d];
      b -= reference.strides[d] * out.shape[d];
      index[d] = 0;
    }
  }
  return result;
}

/// What may be wrong of a result by itself and its reference: some hundred
/// roundings of f32, some thousand of f64, whose reference has its own.
static double relativeLimit(DType dtype) {
  return dtype == DType::F64 ? 1e-12 : 1e-5;
}

Limit fa::run::outputLimit(DType dtype, double naiveError,
                           double maxReference) {
  double absolute = dtype == DType::F16 || dtype == DType::BF16
                        ? 2 * naiveError + 1e-5
                        : relativeLimit(dtype) * std::max(maxReference, 1e-30);
  return Limit(absolute, /*relative=*/0, /*exactZeros=*/true);
}

Limit fa::run::gradientLimit(DType dtype, double naiveError,
                             double maxReference) {
  Limit limit = outputLimit(dtype, 1.5 * naiveError, maxReference);
  limit.exactZeros = false;
  return limit;
}

Limit fa::run::lseLimit(DType dtype) {
  return dtype == DType::F64 ? Limit(1e-12, 8 * 0x1.0p-53)
                             : Limit(1e-4, 8 * 0x1.0p-24);
}

std::string fa::run::printIndex(const std::vector<int64_t> &index) {
  std::string text = "[";
  for (size_t i = 0; i < index.size(); ++i)
    text += (i ? ", " : "") + std::to_string(index[i]);
  return text + "]";
}
