// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The nvidia dialect: where a block's tiles live.

#ifndef FA_DIALECT_NVIDIA_IR_NVIDIA_H
#define FA_DIALECT_NVIDIA_IR_NVIDIA_H

#include "fa/Dialect/NVIDIA/IR/Fragment.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "fa/Dialect/NVIDIA/IR/NVIDIADialect.h.inc"
#include "fa/Dialect/NVIDIA/IR/NVIDIAEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "fa/Dialect/NVIDIA/IR/NVIDIAAttrs.h.inc"

#define GET_OP_CLASSES
#include "fa/Dialect/NVIDIA/IR/NVIDIAOps.h.inc"

#include <optional>

namespace fa::nvidia {

/// The encoding of a tile of this layout.
FragmentAttr encodeLayout(mlir::MLIRContext *context,
                          const FragmentLayout &layout);
/// The layout that a type's encoding says; nothing where it says none.
std::optional<FragmentLayout> layoutOf(mlir::RankedTensorType type);
/// The layout in shared memory of such a tile or vector.
SharedLayout sharedLayoutOf(mlir::RankedTensorType type);

/// Gives a tile another type; of a constant, its attribute too.
void setTileType(mlir::Value value, mlir::RankedTensorType type);

/// Whether some block in it says where its tiles live.
bool saysLayouts(mlir::Operation *root);
/// The program as it was before anything was said of where tiles live.
void dropLayouts(mlir::Operation *root);

} // namespace fa::nvidia

#endif // FA_DIALECT_NVIDIA_IR_NVIDIA_H
