// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_FA_IR_FAINTERFACES
#define FA_DIALECT_FA_IR_FAINTERFACES

include "mlir/IR/OpBase.td"

def FA_TileStepOpInterface : OpInterface<"TileStepOpInterface"> {
  let cppNamespace = "::fa";
  let description = [{
    The effect of a tile of scores on the state of a loop over tiles: the merge
    of the forward, the sums of the backward. A score of -inf has no effect. So a
    loop may leave out a tile of such scores, and its bounds follow the mask.
  }];
  let methods = [
    InterfaceMethod<"The scores, [rows, keys]; masked ones are -inf.",
      "::mlir::OpOperand &", "getScoresOperand">,
    InterfaceMethod<[{
        An operand whose first dimension is that of the scores' rows (0) or keys
        (1). It is a slice, and its offset tells which rows or keys the tile is
        of.
      }], "::mlir::Value", "getOperandAlong", (ins "unsigned":$dim)>,
    InterfaceMethod<[{
        Whether the scores of padding rows (0) or keys (1) must be -inf. If not,
        the tile's user cuts off the elements that they change.
      }], "bool", "mustMaskPadding", (ins "unsigned":$dim)>
  ];
}

#endif // FA_DIALECT_FA_IR_FAINTERFACES
