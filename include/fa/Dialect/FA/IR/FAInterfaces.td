// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_IR_FAINTERFACES
#define FA_DIALECT_FA_IR_FAINTERFACES

include "mlir/IR/OpBase.td"

def FA_TileStepOpInterface : OpInterface<"TileStepOpInterface"> {
  let cppNamespace = "::fa";
  let description = [{
    What a tile of scores does to the state of a loop over tiles: the merge of
    the forward, the sums of the backward. A score of -inf does nothing to it, so
    that a tile of them may be left out, and a loop's bounds follow the mask.
  }];
  let methods = [
    InterfaceMethod<"The scores, [rows, keys], of which masked ones are -inf.",
      "::mlir::OpOperand &", "getScoresOperand">,
    InterfaceMethod<[{
        An operand whose first dimension is that of the scores' rows (0) or keys
        (1): of which rows and keys a tile is shows in the slice that it is.
      }], "::mlir::Value", "getOperandAlong", (ins "unsigned":$dim)>,
    InterfaceMethod<[{
        Whether scores of rows (0) or keys (1) that pad a tile must be -inf. Where
        not, what they change is cut off.
      }], "bool", "mustMaskPadding", (ins "unsigned":$dim)>
  ];
}

#endif // FA_DIALECT_FA_IR_FAINTERFACES
