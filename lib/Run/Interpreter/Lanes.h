// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar operations on many elements at a time.

#ifndef FA_LIB_RUN_INTERPRETER_LANES_H
#define FA_LIB_RUN_INTERPRETER_LANES_H

#include "Values.h"

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Operation.h"

#include <vector>

namespace fa::run::interpreter {

/// The value of a scalar for each of some elements, its lanes, or one value for
/// all of them. Points to its own memory or to a tensor's.
class Lanes {
public:
  bool isUniform() const { return uniform; }
  const float *floats() const { return floatData; }
  const int64_t *ints() const { return intData; }
  /// How far the next lane is.
  int64_t step() const { return uniform ? 0 : 1; }

  float *makeFloats(int64_t count, bool isUniform) {
    if (static_cast<int64_t>(floatMemory.size()) < count)
      floatMemory.resize(count);
    uniform = isUniform;
    floatData = floatMemory.data();
    return floatMemory.data();
  }
  int64_t *makeInts(int64_t count, bool isUniform) {
    if (static_cast<int64_t>(intMemory.size()) < count)
      intMemory.resize(count);
    uniform = isUniform;
    intData = intMemory.data();
    return intMemory.data();
  }
  void setFloat(float x) { *makeFloats(1, true) = x; }
  void setInt(int64_t x) { *makeInts(1, true) = x; }
  void view(const float *data) {
    uniform = false;
    floatData = data;
  }
  void view(const int64_t *data) {
    uniform = false;
    intData = data;
  }
  /// The same lanes as others, whose memory must stay.
  void share(const Lanes &other) {
    uniform = other.uniform;
    floatData = other.floatData;
    intData = other.intData;
  }
  /// Takes one of two for each lane.
  void choose(const Lanes &condition, const Lanes &x, const Lanes &y,
              bool isFloat, int64_t count);

private:
  bool uniform = true;
  const float *floatData = nullptr;
  const int64_t *intData = nullptr;
  std::vector<float> floatMemory;
  std::vector<int64_t> intMemory;
};

/// What a kernel needs to know of its operation.
struct Scalar {
  mlir::Operation *op = nullptr;
  /// Of the first operand and the result.
  ElementKind from, to;
};

/// Computes an operation's result for `count` lanes; uniform if all operands
/// are.
using Kernel = void (*)(const Scalar &scalar,
                        llvm::ArrayRef<const Lanes *> operands, Lanes &result,
                        int64_t count);

/// The kernel of a scalar operation of arith, math and fa, with one result and
/// without regions; null if it has none.
Kernel lookupKernel(mlir::Operation *op);
/// Those of math, of conversions and of random bits, for `lookupKernel`.
Kernel lookupMathKernel(mlir::Operation *op);
Kernel lookupConversion(mlir::Operation *op);
Kernel lookupRandomBits(mlir::Operation *op);

/// An affine expression for all lanes; dims and symbols are indices.
void evaluateAffine(mlir::AffineExpr expr, llvm::ArrayRef<const Lanes *> dims,
                    llvm::ArrayRef<const Lanes *> symbols, Lanes &result,
                    int64_t count);

//===----------------------------------------------------------------------===//
// Loops over lanes, for kernels
//===----------------------------------------------------------------------===//

template <typename To, typename A, typename Fn>
void mapLanes(const A *a, int64_t as, To *to, int64_t count, Fn fn) {
  if (as == 0)
    count = 1;
  for (int64_t i = 0; i < count; ++i)
    to[i] = fn(a[i]);
}

template <typename To, typename A, typename B, typename Fn>
void mapLanes(const A *a, int64_t as, const B *b, int64_t bs, To *to,
              int64_t count, Fn fn) {
  if (as && bs)
    for (int64_t i = 0; i < count; ++i)
      to[i] = fn(a[i], b[i]);
  else if (as)
    for (int64_t i = 0; i < count; ++i)
      to[i] = fn(a[i], *b);
  else if (bs)
    for (int64_t i = 0; i < count; ++i)
      to[i] = fn(*a, b[i]);
  else
    *to = fn(*a, *b);
}

/// The kernel of a function of two floats.
template <auto fn>
void binaryFloat(const Scalar &scalar, llvm::ArrayRef<const Lanes *> in,
                 Lanes &out, int64_t count) {
  bool uniform = in[0]->isUniform() && in[1]->isUniform();
  int64_t n = uniform ? 1 : count;
  float *to = out.makeFloats(n, uniform);
  mapLanes(in[0]->floats(), in[0]->step(), in[1]->floats(), in[1]->step(), to,
           n, [](float a, float b) -> float { return fn(a, b); });
  roundAll(scalar.to.rounding, to, n);
}

} // namespace fa::run::interpreter

#endif // FA_LIB_RUN_INTERPRETER_LANES_H
