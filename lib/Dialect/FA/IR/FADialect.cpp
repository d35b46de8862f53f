// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

#include "fa/Dialect/FA/IR/FADialect.cpp.inc"
#include "fa/Dialect/FA/IR/FAInterfaces.cpp.inc"

void fa::FADialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "fa/Dialect/FA/IR/FAOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Syntax of fa.yield_adjoint
//===----------------------------------------------------------------------===//

/// One type, that of the gradient and of all terms.
static ParseResult
parseAdjointTypes(OpAsmParser &parser, Type &grad, SmallVectorImpl<Type> &terms,
                  ArrayRef<OpAsmParser::UnresolvedOperand> operands) {
  if (parser.parseType(grad))
    return failure();
  terms.assign(operands.size(), grad);
  return success();
}

static void printAdjointTypes(OpAsmPrinter &printer, Operation *, Type grad,
                              TypeRange, OperandRange) {
  printer << grad;
}

#define GET_OP_CLASSES
#include "fa/Dialect/FA/IR/FAOps.cpp.inc"
