// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warps of a block divide its tiles: chosen for all that are computed
// with each other, and written into their types.

#ifndef FA_LIB_TARGET_NVIDIA_LAYOUT_LAYOUTS_H
#define FA_LIB_TARGET_NVIDIA_LAYOUT_LAYOUTS_H

#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"
#include "fa/Schedule/BlockProgram.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace fa::nvidia {

class Layouts {
public:
  explicit Layouts(const BlockProgram &program) : program(program) {}

  /// Tiles, and vectors along their rows and columns, that are computed with
  /// each other element by element: warps divide them alike.
  struct Class {
    int64_t rows = 0, cols = 0;
    /// A warp has all columns of its rows.
    bool whole = false;
    /// Warps that divide the rows.
    unsigned rowWarps = 0;
  };

  /// Says which vectors lie along rows and which along columns; reports one
  /// that does both.
  mlir::LogicalResult inferVectors();
  /// Classes are whole where rows are reduced. Then what meets vectors is, too,
  /// and what products take from registers: warps keep to their rows.
  void inferClasses(llvm::ArrayRef<mlir::Value> fromRegisters);
  llvm::MutableArrayRef<Class> getClasses() { return classes; }
  bool isWhole(mlir::Value value) const {
    auto it = classOf.find(value);
    return it != classOf.end() && classes[it->second].whole;
  }
  /// How many of so many warps divide a tile; the others have copies.
  unsigned warpsOf(mlir::Value tile, unsigned warps) const;

  void setWarps(unsigned warps) { numWarps = warps; }
  /// As many warps divide the rows of each class as can.
  void divideRows();

  /// The layout of a tile that lives in registers; nothing for other types.
  std::optional<FragmentLayout> of(mlir::Value value) const;

private:
  const BlockProgram &program;
  unsigned numWarps = 0;
  llvm::DenseMap<mlir::Value, FragmentLayout::Kind> vectors;
  llvm::DenseMap<mlir::Value, unsigned> classOf;
  llvm::SmallVector<Class> classes;
};

/// Writes the layouts of all tiles of a block's program that live in registers
/// into their types (WriteLayouts.cpp).
void writeLayouts(const BlockProgram &program, const Layouts &layouts);

/// Says what a block has: its warps that hold tiles, how many times it has
/// them, and the bytes of its shared memory.
void writeBlock(const BlockProgram &program, const NVIDIATarget &target,
                unsigned warps, unsigned teams, int64_t sharedBytes);

/// Reports more shared memory than a block of the target may have.
mlir::LogicalResult checkShared(const BlockProgram &program,
                                const NVIDIATarget &target,
                                int64_t sharedBytes);

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_LAYOUT_LAYOUTS_H
