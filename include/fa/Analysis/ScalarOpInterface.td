// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_ANALYSIS_SCALAROPINTERFACE
#define FA_ANALYSIS_SCALAROPINTERFACE

include "mlir/IR/OpBase.td"

def FA_ScalarOpInterface : OpInterface<"ScalarOpInterface"> {
  let cppNamespace = "::fa";
  let description = [{
    The table of scalar semantics: facts about an operation in a score function
    or a mask. Operations of `affine`, `arith` and `math` have them by external
    models (lib/Analysis/ScalarModels.cpp), where a new function is added. A
    fact that a model leaves out is unknown; the resulting code is slower and
    never wrong.

    Ranges of integers are upstream's, by `InferIntRangeInterface`.
  }];
  let methods = [
    InterfaceMethod<[{
        The integer result as an affine function of the operands. Intervals of a
        mask, the ranges of a tile, the granularity and the trend of an integer
        follow from it. The form is exact: if its value does not fit the
        result's type, the result is another number (`mayWrap`).
      }],
      "::fa::IntegerForm", "getIntegerForm", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
        The range of the result for operands in `operands`: that of the exact
        function in float64. Rounding to the type takes no result past a bound
        that the type holds, such as 0 or 1. The range is finite if the function
        gives no NaN for such operands and the bounds are numbers.
        `NumberRanges` checks whether the type holds these.
      }],
      "::fa::NumberRange", "inferRange",
      (ins "::llvm::ArrayRef<::fa::NumberRange>":$operands), "",
      [{ return {}; }]>,
    InterfaceMethod<[{
        The direction in which the result changes as one operand grows and the
        others stay, for all operands in `ranges`.
      }],
      "::fa::Trend", "getTrend",
      (ins "unsigned":$operand, "::llvm::ArrayRef<::fa::NumberRange>":$ranges),
      "", [{
        return ::fa::getIntegerForm($_op).getTrend(operand, ranges);
      }]>,
    InterfaceMethod<[{
        The adjoint of an operand by the chain rule. It is null if it is 0, and
        a failure if the derivative is unknown. `operands` and `result` are the
        operation's own, computed before the builder's position. `adjoint` is
        that of the result. All floats, the returned one too, are converted to
        the compute type. At a point without a derivative the value is PyTorch's
        choice.
      }],
      "::llvm::FailureOr<::mlir::Value>", "buildAdjoint",
      (ins "::mlir::OpBuilder &":$builder, "unsigned":$operand,
           "::mlir::ValueRange":$operands, "::mlir::Value":$result,
           "::mlir::Value":$adjoint), "", [{ return ::llvm::failure(); }]>
  ];
}

#endif // FA_ANALYSIS_SCALAROPINTERFACE
