// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Interpreter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::test;

static int64_t wrap(int64_t x, Type type) {
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  if (width == 64)
    return x;
  return llvm::SignExtend64(static_cast<uint64_t>(x), width);
}

static uint64_t zeroExtended(int64_t x, Type type) {
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  return width == 64 ? x : static_cast<uint64_t>(x) & ((1ull << width) - 1);
}

static int64_t floorDiv(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

int64_t Interpreter::evaluate(Value v) {
  cache.clear();
  return evaluateCached(v);
}

int64_t Interpreter::evaluateCached(Value v) {
  if (auto known = values.find(v); known != values.end())
    return known->second;
  Operation *op = v.getDefiningOp();
  if (!op)
    llvm::report_fatal_error("interpreter: unknown block argument");
  if (auto known = cache.find(v); known != cache.end())
    return known->second;
  int64_t result = wrap(evaluateOp(op), v.getType());
  cache[v] = result;
  return result;
}

int64_t Interpreter::evaluateOp(Operation *op) {
  if (APInt constant; matchPattern(op, m_ConstantInt(&constant)))
    return constant.getSExtValue();
  if (auto i = dyn_cast<linalg::IndexOp>(op))
    return index[i.getDim()];
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return sizes.at(dim.getSource());
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return tensors[extract.getTensor()].at(
        evaluateCached(extract.getIndices()[0]));
  auto affineResults = [&](AffineMap map) {
    SmallVector<Attribute> operands, results;
    for (Value operand : op->getOperands())
      operands.push_back(
          IntegerAttr::get(operand.getType(), evaluateCached(operand)));
    if (failed(map.constantFold(operands, results)))
      llvm::report_fatal_error("interpreter: affine map does not fold");
    SmallVector<int64_t> numbers;
    for (Attribute result : results)
      numbers.push_back(cast<IntegerAttr>(result).getInt());
    return numbers;
  };
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    return affineResults(apply.getMap()).front();
  if (auto min = dyn_cast<affine::AffineMinOp>(op))
    return *llvm::min_element(affineResults(min.getMap()));
  if (auto max = dyn_cast<affine::AffineMaxOp>(op))
    return *llvm::max_element(affineResults(max.getMap()));
  int64_t x = evaluateCached(op->getOperand(0));
  Type type = op->getOperand(0).getType();
  if (isa<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>(op))
    return x;
  if (isa<arith::IndexCastUIOp, arith::ExtUIOp>(op))
    return zeroExtended(x, type);
  if (isa<math::AbsIOp>(op))
    return x < 0 ? -x : x;
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return evaluateCached(x & 1 ? select.getTrueValue()
                                : select.getFalseValue());
  int64_t y = evaluateCached(op->getOperand(1));
  uint64_t ux = zeroExtended(x, type), uy = zeroExtended(y, type);
  if (isa<arith::AddIOp>(op))
    return static_cast<int64_t>(ux + uy);
  if (isa<arith::SubIOp>(op))
    return static_cast<int64_t>(ux - uy);
  if (isa<arith::MulIOp>(op))
    return static_cast<int64_t>(ux * uy);
  if (isa<arith::AndIOp>(op))
    return x & y;
  if (isa<arith::OrIOp>(op))
    return x | y;
  if (isa<arith::XOrIOp>(op))
    return x ^ y;
  if (isa<arith::MinSIOp>(op))
    return std::min(x, y);
  if (isa<arith::MaxSIOp>(op))
    return std::max(x, y);
  if (isa<arith::MinUIOp>(op))
    return ux < uy ? x : y;
  if (isa<arith::MaxUIOp>(op))
    return ux < uy ? y : x;
  if (isa<arith::FloorDivSIOp>(op))
    return floorDiv(x, y);
  if (isa<arith::CeilDivSIOp>(op))
    return -floorDiv(-x, y);
  if (isa<arith::DivSIOp>(op))
    return x / y;
  if (isa<arith::DivUIOp>(op))
    return static_cast<int64_t>(ux / uy);
  if (isa<arith::RemSIOp>(op))
    return x % y;
  if (isa<arith::RemUIOp>(op))
    return static_cast<int64_t>(ux % uy);
  if (isa<arith::ShRSIOp>(op))
    return x >> y;
  if (auto cmp = dyn_cast<arith::CmpIOp>(op)) {
    APInt a(64, x, true, true), b(64, y, true, true);
    return arith::applyCmpPredicate(cmp.getPredicate(), a, b) ? -1 : 0;
  }
  llvm::report_fatal_error("interpreter: unknown op " +
                           op->getName().getStringRef());
}
