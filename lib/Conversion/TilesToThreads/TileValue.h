// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a tensor of the tile program lives in a kernel.

#ifndef FA_LIB_CONVERSION_TILESTOTHREADS_TILEVALUE_H
#define FA_LIB_CONVERSION_TILESTOTHREADS_TILEVALUE_H

#include "fa/Dialect/Hopper/IR/Hopper.h"
#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"

namespace fa::nvidia {

/// A tensor in global memory, as the kernel's parameters give it.
struct GlobalTensor {
  unsigned buffer = 0;
  mlir::Value pointer;
  llvm::SmallVector<mlir::Value> sizes;   // index
  llvm::SmallVector<mlir::Value> strides; // i64, elements
  mlir::RankedTensorType type;
};

/// A rectangle cut out of a tensor in global memory, padded to a static shape.
struct GlobalSlice {
  const GlobalTensor *base = nullptr;
  llvm::SmallVector<mlir::Value> offsets; // index, one for each dim of base
  llvm::SmallVector<unsigned> dims;       // the dims of base that are kept
  llvm::SmallVector<int64_t> shape;
  /// Elements beyond these are padding; null: none are.
  llvm::SmallVector<mlir::Value> valid;
  mlir::Value pad;
};

/// How a tensor of the tile program lives in the kernel.
struct TileValue {
  enum class Kind { Undefined, Global, Slice, Shared, Registers, Splat };
  Kind kind = Kind::Undefined;
  const GlobalTensor *global = nullptr;
  GlobalSlice slice;
  FragmentLayout layout;
  /// One value for each register of the layout. Tiles of rank 2 are packed:
  /// with 16-bit floats each i32 holds two neighbouring columns, with i1 the
  /// elements of eight tiles of 16 x 8 (bitOf).
  llvm::SmallVector<mlir::Value> regs;
  mlir::Value splat;
  /// Of a vector in shared memory: where a thread's first element lies, whose
  /// others lie as `layout` says, from there.
  mlir::Value shared;
  /// Of registers: rows and columns beyond these are not to be stored.
  llvm::SmallVector<mlir::Value> valid;
  /// Where it goes into shared memory for TMA to store it; null: nowhere.
  hopper::StageOp stage;
};

/// A tensor in global memory, whole, with offsets of zero, or a part of it;
/// nothing for others.
std::optional<GlobalSlice> inMemory(const TileValue &tensor, mlir::Value zero);

/// How many elements one of a tile's registers holds, words of 32 bits where it
/// is more than one.
unsigned perWord(mlir::Type elementType, const FragmentLayout &layout);
inline unsigned numWords(mlir::Type elementType, const FragmentLayout &layout) {
  return llvm::divideCeil(layout.numRegs(), perWord(elementType, layout));
}
inline bool isPacked(mlir::Type elementType, const FragmentLayout &layout) {
  return perWord(elementType, layout) > 1;
}

/// A tensor map that a kernel takes: boxes of `rows` of dimension `dim` by
/// `cols` of the last dimension, in the 128-byte swizzle where these are 128
/// bytes, else as they are.
struct TensorMap {
  unsigned buffer = 0, dim = 0;
  int64_t rows = 0, cols = hopper::RingType::panelCols;
  bool operator==(const TensorMap &o) const {
    return buffer == o.buffer && dim == o.dim && rows == o.rows &&
           cols == o.cols;
  }
};

} // namespace fa::nvidia

#endif // FA_LIB_CONVERSION_TILESTOTHREADS_TILEVALUE_H
