// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_ANALYSIS_SCALAROPINTERFACE
#define FA_ANALYSIS_SCALAROPINTERFACE

include "mlir/IR/OpBase.td"

def FA_ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let cppNamespace = "::fa";
  let description = [{
    What the compiler has to know of an operation in a score function or a mask:
    the table of scalar semantics. Operations of `affine`, `arith` and `math`
    have it by external models (lib/Analysis/ScalarModels.cpp), where a new
    function is added. What a model leaves out is unknown, and what follows is
    slower and never wrong.

    Ranges of integers are upstream's, by `InferIntRangeInterface`.
  }];
  let methods = [
    InterfaceMethod<[{
        What it computes of integers, as an affine function of its operands.
        Intervals of a mask, the ranges of a tile, the granularity and the trend
        of an integer follow from it. The form is exact: the result is another
        number where the form's does not fit its type (`mayWrap`).
      }],
      "::fa::IntegerForm", "getIntegerForm", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
        The range of the result, of operands in `operands`. It is that of the
        exact function in float64: what is computed is rounded to its type, which
        does not take it past a bound that the type has, such as 0 or 1. It is
        finite where the function is no NaN of such operands and the bounds are
        numbers; whether its type holds these, `NumberRanges` looks.
      }],
      "::fa::NumberRange", "inferRange",
      (ins "::llvm::ArrayRef<::fa::NumberRange>":$operands), "",
      [{ return {}; }]>,
    InterfaceMethod<[{
        How the result changes as one operand grows and the others stay, for all
        operands in `ranges`.
      }],
      "::fa::Trend", "getTrend",
      (ins "unsigned":$operand, "::llvm::ArrayRef<::fa::NumberRange>":$ranges),
      "", [{
        return ::fa::getIntegerForm($_op).getTrend(operand, ranges);
      }]>,
    InterfaceMethod<[{
        The adjoint of an operand by the chain rule, null where it is 0, and a
        failure where the derivative is unknown.
        `operands` and `result` are the operation's own, already computed where
        the builder stands, as f32 where they are floats of another width;
        `adjoint` is that of the result, an f32, and so is what is returned.
        At a point without a derivative it is PyTorch's choice.
      }],
      "::llvm::FailureOr<::mlir::Value>", "buildAdjoint",
      (ins "::mlir::OpBuilder &":$builder, "unsigned":$operand,
           "::mlir::ValueRange":$operands, "::mlir::Value":$result,
           "::mlir::Value":$adjoint), "", [{ return ::llvm::failure(); }]>
  ];
}

#endif // FA_ANALYSIS_SCALAROPINTERFACE
