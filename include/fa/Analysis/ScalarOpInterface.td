// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_ANALYSIS_SCALAROPINTERFACE
#define FA_ANALYSIS_SCALAROPINTERFACE

include "mlir/IR/OpBase.td"

def FA_ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let cppNamespace = "::fa";
  let description = [{
    What the compiler has to know of an operation in a score function: the table
    of scalar semantics. Operations of `arith` and `math` have it by external
    models (lib/Analysis/ScalarModels.cpp), where a new function is added.
  }];
  let methods = [
    InterfaceMethod<[{
        The adjoint of an operand by the chain rule, or null where it is 0.
        `operands` and `result` are the operation's own, already computed where
        the builder stands, as f32 where they are floats of another width;
        `adjoint` is that of the result, an f32, and so is what is returned.
        At a point without a derivative it is PyTorch's choice.
      }],
      "::mlir::Value", "buildAdjoint",
      (ins "::mlir::OpBuilder &":$builder, "unsigned":$operand,
           "::mlir::ValueRange":$operands, "::mlir::Value":$result,
           "::mlir::Value":$adjoint)>
  ];
}

#endif // FA_ANALYSIS_SCALAROPINTERFACE
