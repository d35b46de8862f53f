// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions and the functions of math.

#include "Lanes.h"

#include "fa/Run/Compare.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;

//===----------------------------------------------------------------------===//
// Kinds of kernels
//===----------------------------------------------------------------------===//

template <auto fn>
static void unaryFloat(const Scalar &scalar, ArrayRef<const Lanes *> in,
                       Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform();
  int64_t n = uniform ? 1 : count;
  float *to = out.makeFloats(n, uniform);
  mapLanes(in[0]->floats(), in[0]->step(), to, n,
           [](float x) -> float { return fn(x); });
  roundAll(scalar.to.rounding, to, n);
}

template <auto fn>
static void ternaryFloat(const Scalar &scalar, ArrayRef<const Lanes *> in,
                         Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform() && in[2]->isUniform();
  int64_t n = uniform ? 1 : count;
  float *to = out.makeFloats(n, uniform);
  const float *a = in[0]->floats(), *b = in[1]->floats(), *c = in[2]->floats();
  int64_t as = in[0]->step(), bs = in[1]->step(), cs = in[2]->step();
  if (as && !bs && cs)
    for (int64_t i = 0; i < n; ++i)
      to[i] = fn(a[i], *b, c[i]);
  else
    for (int64_t i = 0; i < n; ++i)
      to[i] = fn(a[i * as], b[i * bs], c[i * cs]);
  roundAll(scalar.to.rounding, to, n);
}

/// From an integer, extended by its sign.
template <auto fn>
static void intToInt(const Scalar &scalar, ArrayRef<const Lanes *> in,
                     Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform();
  int64_t n = uniform ? 1 : count;
  mapLanes(
      in[0]->ints(), in[0]->step(), out.makeInts(n, uniform), n,
      [&](int64_t x) { return wrap(fn(x, scalar.from.bits), scalar.to.bits); });
}

template <auto fn>
static void floatToInt(const Scalar &scalar, ArrayRef<const Lanes *> in,
                       Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform();
  int64_t n = uniform ? 1 : count;
  mapLanes(in[0]->floats(), in[0]->step(), out.makeInts(n, uniform), n,
           [&](float x) { return wrap(fn(x), scalar.to.bits); });
}

template <auto fn>
static void intToFloat(const Scalar &scalar, ArrayRef<const Lanes *> in,
                       Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform();
  int64_t n = uniform ? 1 : count;
  float *to = out.makeFloats(n, uniform);
  mapLanes(in[0]->ints(), in[0]->step(), to, n,
           [&](int64_t x) -> float { return fn(x, scalar.from.bits); });
  roundAll(scalar.to.rounding, to, n);
}

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

static float sameFloat(float x) { return x; }

static uint64_t zeroExtended(int64_t x, unsigned bits) {
  return static_cast<uint64_t>(x) & llvm::maskTrailingOnes<uint64_t>(bits);
}
/// A condition that is true counts as -1.
static int64_t signExtended(int64_t x, unsigned bits) {
  return bits == 1 ? -x : x;
}
static int64_t extendU(int64_t x, unsigned bits) {
  return static_cast<int64_t>(zeroExtended(x, bits));
}
static float fromSigned(int64_t x, unsigned bits) {
  return static_cast<float>(signExtended(x, bits));
}
static float fromUnsigned(int64_t x, unsigned bits) {
  return static_cast<float>(zeroExtended(x, bits));
}
/// Towards zero; what does not fit is the nearest number that does.
static int64_t toSigned(float x) {
  if (std::isnan(x))
    return 0;
  if (x >= 0x1p63f)
    return INT64_MAX;
  return x < -0x1p63f ? INT64_MIN : static_cast<int64_t>(x);
}
static int64_t toUnsigned(float x) {
  if (!(x > -1))
    return 0;
  return static_cast<int64_t>(x >= 0x1p64f ? UINT64_MAX
                                           : static_cast<uint64_t>(x));
}

/// The bits of a float in its own format.
static int64_t bitsOf(float x, ElementKind kind) {
  uint32_t bits = llvm::bit_cast<uint32_t>(x);
  if (kind.rounding == ElementKind::None)
    return static_cast<int32_t>(bits);
  if (kind.rounding == ElementKind::BF16)
    return static_cast<int16_t>(bits >> 16);
  return static_cast<int16_t>(narrowF16(x));
}

static float floatOf(int64_t x, ElementKind kind) {
  uint32_t bits = static_cast<uint32_t>(x);
  if (kind.rounding == ElementKind::None)
    return llvm::bit_cast<float>(bits);
  if (kind.rounding == ElementKind::BF16)
    return llvm::bit_cast<float>(bits << 16);
  return static_cast<float>(widenF16(static_cast<uint16_t>(bits)));
}

static void bitcast(const Scalar &scalar, ArrayRef<const Lanes *> in,
                    Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform();
  int64_t n = uniform ? 1 : count;
  bool isFloat = scalar.from.isFloat, toFloat = scalar.to.isFloat;
  for (int64_t i = 0; i < n; ++i) {
    int64_t bits =
        isFloat ? bitsOf(in[0]->floats()[i], scalar.from) : in[0]->ints()[i];
    // Memory is there once the first of a kind has been asked for.
    if (toFloat)
      out.makeFloats(n, uniform)[i] = floatOf(bits, scalar.to);
    else
      out.makeInts(n, uniform)[i] = wrap(bits, scalar.to.bits);
  }
}

Kernel interpreter::lookupConversion(Operation *op) {
  using namespace arith;
  static const llvm::DenseMap<TypeID, Kernel> table = {
      {TypeID::get<ExtFOp>(), unaryFloat<sameFloat>},
      {TypeID::get<TruncFOp>(), unaryFloat<sameFloat>},
      {TypeID::get<ExtSIOp>(), intToInt<signExtended>},
      {TypeID::get<ExtUIOp>(), intToInt<extendU>},
      {TypeID::get<TruncIOp>(), intToInt<signExtended>},
      {TypeID::get<IndexCastOp>(), intToInt<signExtended>},
      {TypeID::get<IndexCastUIOp>(), intToInt<extendU>},
      {TypeID::get<SIToFPOp>(), intToFloat<fromSigned>},
      {TypeID::get<UIToFPOp>(), intToFloat<fromUnsigned>},
      {TypeID::get<FPToSIOp>(), floatToInt<toSigned>},
      {TypeID::get<FPToUIOp>(), floatToInt<toUnsigned>},
      {TypeID::get<BitcastOp>(), bitcast},
  };
  return table.lookup(op->getName().getTypeID());
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static float rsqrt(float x) { return 1 / std::sqrt(x); }
static float fusedMultiplyAdd(float a, float b, float c) {
  // Exact in double but for the last rounding.
  return static_cast<float>(static_cast<double>(a) * b + c);
}
static float clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

#define FA_UNARY(name, call)                                                   \
  static float name(float x) { return call; }
FA_UNARY(absF, std::fabs(x))
FA_UNARY(expF, std::exp(x))
FA_UNARY(exp2F, std::exp2(x))
FA_UNARY(expM1F, std::expm1(x))
FA_UNARY(logF, std::log(x))
FA_UNARY(log2F, std::log2(x))
FA_UNARY(log10F, std::log10(x))
FA_UNARY(log1pF, std::log1p(x))
FA_UNARY(sqrtF, std::sqrt(x))
FA_UNARY(cbrtF, std::cbrt(x))
FA_UNARY(sinF, std::sin(x))
FA_UNARY(cosF, std::cos(x))
FA_UNARY(tanF, std::tan(x))
FA_UNARY(asinF, std::asin(x))
FA_UNARY(acosF, std::acos(x))
FA_UNARY(atanF, std::atan(x))
FA_UNARY(sinhF, std::sinh(x))
FA_UNARY(coshF, std::cosh(x))
FA_UNARY(tanhF, std::tanh(x))
FA_UNARY(asinhF, std::asinh(x))
FA_UNARY(acoshF, std::acosh(x))
FA_UNARY(atanhF, std::atanh(x))
FA_UNARY(erfF, std::erf(x))
FA_UNARY(erfcF, std::erfc(x))
FA_UNARY(floorF, std::floor(x))
FA_UNARY(ceilF, std::ceil(x))
FA_UNARY(roundF, std::round(x))
FA_UNARY(roundEvenF, std::nearbyint(x))
FA_UNARY(truncF, std::trunc(x))
#undef FA_UNARY

static float powF(float x, float y) { return std::pow(x, y); }
static float atan2F(float x, float y) { return std::atan2(x, y); }
static float copySignF(float x, float y) { return std::copysign(x, y); }

static int64_t absI(int64_t x, unsigned) { return x < 0 ? -x : x; }
static int64_t isNaN(float x) { return std::isnan(x); }
static int64_t isInf(float x) { return std::isinf(x); }
static int64_t isFinite(float x) { return std::isfinite(x); }

static void powerOfInt(const Scalar &scalar, ArrayRef<const Lanes *> in,
                       Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform();
  int64_t n = uniform ? 1 : count;
  float *to = out.makeFloats(n, uniform);
  mapLanes(in[0]->floats(), in[0]->step(), in[1]->ints(), in[1]->step(), to, n,
           [](float a, int64_t b) {
             return static_cast<float>(
                 std::pow(static_cast<double>(a), static_cast<double>(b)));
           });
  roundAll(scalar.to.rounding, to, n);
}

Kernel interpreter::lookupMathKernel(Operation *op) {
  using namespace math;
  static const llvm::DenseMap<TypeID, Kernel> table = {
      {TypeID::get<AbsFOp>(), unaryFloat<absF>},
      {TypeID::get<AbsIOp>(), intToInt<absI>},
      {TypeID::get<ExpOp>(), unaryFloat<expF>},
      {TypeID::get<Exp2Op>(), unaryFloat<exp2F>},
      {TypeID::get<ExpM1Op>(), unaryFloat<expM1F>},
      {TypeID::get<LogOp>(), unaryFloat<logF>},
      {TypeID::get<Log2Op>(), unaryFloat<log2F>},
      {TypeID::get<Log10Op>(), unaryFloat<log10F>},
      {TypeID::get<Log1pOp>(), unaryFloat<log1pF>},
      {TypeID::get<SqrtOp>(), unaryFloat<sqrtF>},
      {TypeID::get<RsqrtOp>(), unaryFloat<rsqrt>},
      {TypeID::get<CbrtOp>(), unaryFloat<cbrtF>},
      {TypeID::get<SinOp>(), unaryFloat<sinF>},
      {TypeID::get<CosOp>(), unaryFloat<cosF>},
      {TypeID::get<TanOp>(), unaryFloat<tanF>},
      {TypeID::get<AsinOp>(), unaryFloat<asinF>},
      {TypeID::get<AcosOp>(), unaryFloat<acosF>},
      {TypeID::get<AtanOp>(), unaryFloat<atanF>},
      {TypeID::get<SinhOp>(), unaryFloat<sinhF>},
      {TypeID::get<CoshOp>(), unaryFloat<coshF>},
      {TypeID::get<TanhOp>(), unaryFloat<tanhF>},
      {TypeID::get<AsinhOp>(), unaryFloat<asinhF>},
      {TypeID::get<AcoshOp>(), unaryFloat<acoshF>},
      {TypeID::get<AtanhOp>(), unaryFloat<atanhF>},
      {TypeID::get<ErfOp>(), unaryFloat<erfF>},
      {TypeID::get<ErfcOp>(), unaryFloat<erfcF>},
      {TypeID::get<FloorOp>(), unaryFloat<floorF>},
      {TypeID::get<CeilOp>(), unaryFloat<ceilF>},
      {TypeID::get<RoundOp>(), unaryFloat<roundF>},
      {TypeID::get<RoundEvenOp>(), unaryFloat<roundEvenF>},
      {TypeID::get<TruncOp>(), unaryFloat<truncF>},
      {TypeID::get<PowFOp>(), binaryFloat<powF>},
      {TypeID::get<FPowIOp>(), powerOfInt},
      {TypeID::get<Atan2Op>(), binaryFloat<atan2F>},
      {TypeID::get<CopySignOp>(), binaryFloat<copySignF>},
      {TypeID::get<FmaOp>(), ternaryFloat<fusedMultiplyAdd>},
      {TypeID::get<ClampFOp>(), ternaryFloat<clamp>},
      {TypeID::get<IsNaNOp>(), floatToInt<isNaN>},
      {TypeID::get<IsInfOp>(), floatToInt<isInf>},
      {TypeID::get<IsFiniteOp>(), floatToInt<isFinite>},
  };
  return table.lookup(op->getName().getTypeID());
}
