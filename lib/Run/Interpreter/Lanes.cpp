// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic of integers and floats, comparisons and affine expressions.

#include "Lanes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;

void Lanes::choose(const Lanes &condition, const Lanes &x, const Lanes &y,
                   bool isFloat, int64_t count) {
  if (condition.isUniform() &&
      (*condition.ints() ? x : y).isUniform()) { // also of x and y themselves
    const Lanes &chosen = *condition.ints() ? x : y;
    if (isFloat)
      setFloat(*chosen.floats());
    else
      setInt(*chosen.ints());
    return;
  }
  const int64_t *c = condition.ints();
  int64_t cs = condition.step(), xs = x.step(), ys = y.step();
  auto run = [&](auto *to, auto *a, auto *b) {
    if (cs && xs && ys)
      for (int64_t i = 0; i < count; ++i)
        to[i] = c[i] ? a[i] : b[i];
    else if (cs && xs)
      for (int64_t i = 0; i < count; ++i)
        to[i] = c[i] ? a[i] : *b;
    else
      for (int64_t i = 0; i < count; ++i)
        to[i] = c[i * cs] ? a[i * xs] : b[i * ys];
  };
  if (isFloat)
    run(makeFloats(count, false), x.floats(), y.floats());
  else
    run(makeInts(count, false), x.ints(), y.ints());
}

//===----------------------------------------------------------------------===//
// Kinds of kernels
//===----------------------------------------------------------------------===//

/// `fn` gets the operands, extended by their sign, and the number of bits.
template <auto fn>
static void binaryInt(const Scalar &scalar, ArrayRef<const Lanes *> in,
                      Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform();
  int64_t n = uniform ? 1 : count;
  int64_t *to = out.makeInts(n, uniform);
  unsigned bits = scalar.to.bits;
  mapLanes(in[0]->ints(), in[0]->step(), in[1]->ints(), in[1]->step(), to, n,
           [](int64_t a, int64_t b) { return fn(a, b); });
  if (bits < 64)
    for (int64_t i = 0; i < n; ++i)
      to[i] = wrap(to[i], bits);
}

/// `fn` gets operands extended by zeros, or their bits.
template <auto fn>
static void binaryUnsigned(const Scalar &scalar, ArrayRef<const Lanes *> in,
                           Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform();
  int64_t n = uniform ? 1 : count;
  int64_t *to = out.makeInts(n, uniform);
  unsigned bits = scalar.to.bits;
  uint64_t mask = llvm::maskTrailingOnes<uint64_t>(bits);
  mapLanes(in[0]->ints(), in[0]->step(), in[1]->ints(), in[1]->step(), to, n,
           [&](int64_t a, int64_t b) {
             return wrap(static_cast<int64_t>(
                             fn(static_cast<uint64_t>(a) & mask,
                                static_cast<uint64_t>(b) & mask, bits)),
                         bits);
           });
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

static float addF(float a, float b) { return a + b; }
static float subF(float a, float b) { return a - b; }
static float mulF(float a, float b) { return a * b; }
static float divF(float a, float b) { return a / b; }
static float remF(float a, float b) { return std::fmod(a, b); }
static float maximum(float a, float b) {
  if (std::isnan(a) || std::isnan(b))
    return poison();
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}
static float minimum(float a, float b) {
  if (std::isnan(a) || std::isnan(b))
    return poison();
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
static float maxNum(float a, float b) { return a > b || std::isnan(b) ? a : b; }
static float minNum(float a, float b) { return a < b || std::isnan(b) ? a : b; }

// Wrapping, as in the IR; the compiler's own integers must not overflow.
static int64_t addI(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) +
                              static_cast<uint64_t>(b));
}
static int64_t subI(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) -
                              static_cast<uint64_t>(b));
}
static int64_t mulI(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) *
                              static_cast<uint64_t>(b));
}
static int64_t andI(int64_t a, int64_t b) { return a & b; }
static int64_t orI(int64_t a, int64_t b) { return a | b; }
static int64_t xorI(int64_t a, int64_t b) { return a ^ b; }
static int64_t maxS(int64_t a, int64_t b) { return std::max(a, b); }
static int64_t minS(int64_t a, int64_t b) { return std::min(a, b); }
/// What has no result is 0.
static bool cannotDivide(int64_t a, int64_t b) {
  return b == 0 || (a == INT64_MIN && b == -1);
}
static int64_t divS(int64_t a, int64_t b) {
  return cannotDivide(a, b) ? 0 : a / b;
}
static int64_t remS(int64_t a, int64_t b) {
  return cannotDivide(a, b) ? 0 : a % b;
}
static int64_t floorDivS(int64_t a, int64_t b) {
  if (cannotDivide(a, b))
    return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t ceilDivS(int64_t a, int64_t b) {
  if (cannotDivide(a, b))
    return 0;
  return a / b + (a % b != 0 && (a < 0) == (b < 0));
}
static uint64_t divU(uint64_t a, uint64_t b, unsigned) { return b ? a / b : 0; }
static uint64_t remU(uint64_t a, uint64_t b, unsigned) { return b ? a % b : 0; }
static uint64_t ceilDivU(uint64_t a, uint64_t b, unsigned) {
  return b ? a / b + (a % b != 0) : 0;
}
static uint64_t maxU(uint64_t a, uint64_t b, unsigned) {
  return std::max(a, b);
}
static uint64_t minU(uint64_t a, uint64_t b, unsigned) {
  return std::min(a, b);
}
static uint64_t shiftLeft(uint64_t a, uint64_t b, unsigned bits) {
  return b < bits ? a << b : 0;
}
static uint64_t shiftRightU(uint64_t a, uint64_t b, unsigned bits) {
  return b < bits ? a >> b : 0;
}
static uint64_t shiftRightS(uint64_t a, uint64_t b, unsigned bits) {
  int64_t x = wrap(static_cast<int64_t>(a), bits);
  return static_cast<uint64_t>(b < bits ? x >> b : 0);
}

//===----------------------------------------------------------------------===//
// Comparisons and choices
//===----------------------------------------------------------------------===//

template <typename Predicate, typename T, typename Fn>
static void compareWith(ArrayRef<const Lanes *> in, const T *a, const T *b,
                        Lanes &out, int64_t count, Fn fn) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform();
  int64_t n = uniform ? 1 : count;
  mapLanes(a, in[0]->step(), b, in[1]->step(), out.makeInts(n, uniform), n,
           [&](T x, T y) -> int64_t { return fn(x, y); });
}

static void compareFloats(const Scalar &scalar, ArrayRef<const Lanes *> in,
                          Lanes &out, int64_t count) {
  using P = arith::CmpFPredicate;
  auto with = [&](auto fn) {
    compareWith<P>(in, in[0]->floats(), in[1]->floats(), out, count, fn);
  };
  auto unordered = [](float x, float y) {
    return std::isnan(x) || std::isnan(y);
  };
  switch (cast<arith::CmpFOp>(scalar.op).getPredicate()) {
  case P::AlwaysFalse:
    return with([](float, float) { return false; });
  case P::OEQ:
    return with([](float x, float y) { return x == y; });
  case P::OGT:
    return with([](float x, float y) { return x > y; });
  case P::OGE:
    return with([](float x, float y) { return x >= y; });
  case P::OLT:
    return with([](float x, float y) { return x < y; });
  case P::OLE:
    return with([](float x, float y) { return x <= y; });
  case P::ONE:
    return with([&](float x, float y) { return x < y || x > y; });
  case P::ORD:
    return with([&](float x, float y) { return !unordered(x, y); });
  case P::UEQ:
    return with([&](float x, float y) { return x == y || unordered(x, y); });
  case P::UGT:
    return with([](float x, float y) { return !(x <= y); });
  case P::UGE:
    return with([](float x, float y) { return !(x < y); });
  case P::ULT:
    return with([](float x, float y) { return !(x >= y); });
  case P::ULE:
    return with([](float x, float y) { return !(x > y); });
  case P::UNE:
    return with([](float x, float y) { return x != y; });
  case P::UNO:
    return with([&](float x, float y) { return unordered(x, y); });
  case P::AlwaysTrue:
    return with([](float, float) { return true; });
  }
}

static void compareInts(const Scalar &scalar, ArrayRef<const Lanes *> in,
                        Lanes &out, int64_t count) {
  using P = arith::CmpIPredicate;
  // A condition that is true counts as -1 where signs count.
  bool isCondition = scalar.from.bits == 1;
  uint64_t mask = llvm::maskTrailingOnes<uint64_t>(scalar.from.bits);
  auto with = [&](auto fn) {
    compareWith<P>(in, in[0]->ints(), in[1]->ints(), out, count, fn);
  };
  auto less = [&](int64_t x, int64_t y) { return isCondition ? x > y : x < y; };
  auto below = [&](int64_t x, int64_t y) {
    return (static_cast<uint64_t>(x) & mask) <
           (static_cast<uint64_t>(y) & mask);
  };
  switch (cast<arith::CmpIOp>(scalar.op).getPredicate()) {
  case P::eq:
    return with([](int64_t x, int64_t y) { return x == y; });
  case P::ne:
    return with([](int64_t x, int64_t y) { return x != y; });
  case P::slt:
    return with([&](int64_t x, int64_t y) { return less(x, y); });
  case P::sle:
    return with([&](int64_t x, int64_t y) { return !less(y, x); });
  case P::sgt:
    return with([&](int64_t x, int64_t y) { return less(y, x); });
  case P::sge:
    return with([&](int64_t x, int64_t y) { return !less(x, y); });
  case P::ult:
    return with([&](int64_t x, int64_t y) { return below(x, y); });
  case P::ule:
    return with([&](int64_t x, int64_t y) { return !below(y, x); });
  case P::ugt:
    return with([&](int64_t x, int64_t y) { return below(y, x); });
  case P::uge:
    return with([&](int64_t x, int64_t y) { return !below(x, y); });
  }
}

static void select(const Scalar &scalar, ArrayRef<const Lanes *> in, Lanes &out,
                   int64_t count) {
  out.choose(*in[0], *in[1], *in[2], scalar.to.isFloat, count);
}

static void negate(const Scalar &scalar, ArrayRef<const Lanes *> in, Lanes &out,
                   int64_t count) {
  bool uniform = in[0]->isUniform();
  mapLanes(in[0]->floats(), in[0]->step(),
           out.makeFloats(uniform ? 1 : count, uniform), count,
           [](float x) { return -x; });
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

Kernel interpreter::lookupKernel(Operation *op) {
  using namespace arith;
  static const llvm::DenseMap<TypeID, Kernel> table = {
      {TypeID::get<AddFOp>(), binaryFloat<addF>},
      {TypeID::get<SubFOp>(), binaryFloat<subF>},
      {TypeID::get<MulFOp>(), binaryFloat<mulF>},
      {TypeID::get<DivFOp>(), binaryFloat<divF>},
      {TypeID::get<RemFOp>(), binaryFloat<remF>},
      {TypeID::get<MaximumFOp>(), binaryFloat<maximum>},
      {TypeID::get<MinimumFOp>(), binaryFloat<minimum>},
      {TypeID::get<MaxNumFOp>(), binaryFloat<maxNum>},
      {TypeID::get<MinNumFOp>(), binaryFloat<minNum>},
      {TypeID::get<NegFOp>(), negate},
      {TypeID::get<AddIOp>(), binaryInt<addI>},
      {TypeID::get<SubIOp>(), binaryInt<subI>},
      {TypeID::get<MulIOp>(), binaryInt<mulI>},
      {TypeID::get<AndIOp>(), binaryInt<andI>},
      {TypeID::get<OrIOp>(), binaryInt<orI>},
      {TypeID::get<XOrIOp>(), binaryInt<xorI>},
      {TypeID::get<MaxSIOp>(), binaryInt<maxS>},
      {TypeID::get<MinSIOp>(), binaryInt<minS>},
      {TypeID::get<DivSIOp>(), binaryInt<divS>},
      {TypeID::get<RemSIOp>(), binaryInt<remS>},
      {TypeID::get<FloorDivSIOp>(), binaryInt<floorDivS>},
      {TypeID::get<CeilDivSIOp>(), binaryInt<ceilDivS>},
      {TypeID::get<DivUIOp>(), binaryUnsigned<divU>},
      {TypeID::get<RemUIOp>(), binaryUnsigned<remU>},
      {TypeID::get<CeilDivUIOp>(), binaryUnsigned<ceilDivU>},
      {TypeID::get<MaxUIOp>(), binaryUnsigned<maxU>},
      {TypeID::get<MinUIOp>(), binaryUnsigned<minU>},
      {TypeID::get<ShLIOp>(), binaryUnsigned<shiftLeft>},
      {TypeID::get<ShRUIOp>(), binaryUnsigned<shiftRightU>},
      {TypeID::get<ShRSIOp>(), binaryUnsigned<shiftRightS>},
      {TypeID::get<CmpFOp>(), compareFloats},
      {TypeID::get<CmpIOp>(), compareInts},
      {TypeID::get<SelectOp>(), select},
  };
  if (op->getNumResults() != 1 || op->getNumRegions())
    return nullptr;
  if (Kernel kernel = table.lookup(op->getName().getTypeID()))
    return kernel;
  if (Kernel kernel = lookupConversion(op))
    return kernel;
  if (Kernel kernel = lookupMathKernel(op))
    return kernel;
  return lookupRandomBits(op);
}

//===----------------------------------------------------------------------===//
// Affine expressions
//===----------------------------------------------------------------------===//

void interpreter::evaluateAffine(AffineExpr expr, ArrayRef<const Lanes *> dims,
                                 ArrayRef<const Lanes *> symbols, Lanes &result,
                                 int64_t count) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return result.setInt(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return result.share(*dims[dim.getPosition()]);
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return result.share(*symbols[symbol.getPosition()]);
  auto binary = cast<AffineBinaryOpExpr>(expr);
  Lanes lhs, rhs;
  evaluateAffine(binary.getLHS(), dims, symbols, lhs, count);
  evaluateAffine(binary.getRHS(), dims, symbols, rhs, count);
  bool uniform = lhs.isUniform() && rhs.isUniform();
  int64_t n = uniform ? 1 : count;
  int64_t *to = result.makeInts(n, uniform);
  auto with = [&](auto fn) {
    mapLanes(lhs.ints(), lhs.step(), rhs.ints(), rhs.step(), to, n,
             [&](int64_t a, int64_t b) { return fn(a, b); });
  };
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return with(addI);
  case AffineExprKind::Mul:
    return with(mulI);
  case AffineExprKind::Mod:
    return with(
        [](int64_t a, int64_t b) { return subI(a, mulI(floorDivS(a, b), b)); });
  case AffineExprKind::FloorDiv:
    return with(floorDivS);
  default:
    return with(ceilDivS);
  }
}
