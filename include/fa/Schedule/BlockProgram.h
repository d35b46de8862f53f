// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block's tile program: the body of an scf.forall, whose tensors are in
// memory or are tiles that are loaded or computed.

#ifndef FA_SCHEDULE_BLOCKPROGRAM_H
#define FA_SCHEDULE_BLOCKPROGRAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace fa {

/// The functions of a module that have an scf.forall to make a kernel of.
llvm::SmallVector<mlir::func::FuncOp> collectPrograms(mlir::ModuleOp module);

/// The operations that make a tile of a slice: padding and casts, the outermost
/// first, and the tensor.extract_slice last. Empty where it is made otherwise.
llvm::SmallVector<mlir::Operation *> getLoadChain(mlir::Value tile);

/// Whether a loaded tile is padded only where its tensor ends, if at all.
bool endsWithTensor(mlir::Value tile);

/// Whether a value of a loop is known before its iteration: it depends on the
/// induction variable and what stands before the loop, through operations that
/// `takes` is true of.
bool isKnownAhead(mlir::Value value, mlir::scf::ForOp loop,
                  llvm::function_ref<bool(mlir::Operation *)> takes);
/// Whether it can be computed or loaded for a later iteration: from what stands
/// before the loop, by the loop's slices and scalar operations.
bool canPrefetch(mlir::Value value, mlir::scf::ForOp loop);

/// The memory that a block adds to, and which of its dimensions `dim` of the
/// value is: through slices and loops that carry it.
std::pair<mlir::Value, unsigned> memoryOf(mlir::Value value, unsigned dim);

/// Whether loops of blocks that come later in a dimension begin later.
bool beginsDependOn(mlir::scf::ForallOp forall, mlir::Value number);
/// Whether blocks that come last in a dimension have the longest loops: where
/// these begin may be later, too.
bool endsDependOn(mlir::scf::ForallOp forall, mlir::Value number);
/// Whether a loop in the forall has a bound that depends on a value. Where that
/// is the block's number, blocks differ in length.
bool boundsDependOn(mlir::scf::ForallOp forall, mlir::Value value);

/// Whether blocks wait for each other: if so, for the end of which block one
/// waits before it begins, counted back in the grid's last dimension; 0: none.
std::optional<int64_t> findOrder(mlir::scf::ForallOp forall);

/// How threads take a block that computes numbers of rows: lanes of a warp
/// share a row, and load `width` elements that lie side by side at a time.
struct SharedRows {
  int64_t rows = 0, cols = 0, width = 0, lanes = 0;
  /// Warps that have a row for each of their lanes, at most.
  int64_t mostWarps() const { return rows * lanes / 32; }
};

/// Where the tensors of a block's program live.
class BlockProgram {
public:
  explicit BlockProgram(mlir::scf::ForallOp forall) : forall(forall) {}
  mlir::scf::ForallOp getForall() const { return forall; }

  /// The value is (a new version of) a tensor in global memory.
  bool isGlobal(mlir::Value value) const;
  /// The value is a static tile cut out of global memory.
  bool isLoadedTile(mlir::Value value) const;
  /// A slice of a tensor in memory that is updated part by part stays there.
  bool isView(mlir::tensor::ExtractSliceOp slice) const;
  /// The value is a tile or vector that threads hold, element by element: not
  /// one value throughout.
  bool isComputed(mlir::Value value) const;
  /// Whether the block reads or computes 16-bit numbers. Walks it.
  bool isOfShortTypes() const;
  /// Whether all that a block stores are tiles of two dimensions that are
  /// computed element by element of such tiles in memory. Walks it.
  bool isElementwise() const;
  /// If all that the block stores are vectors with a number for each row, which
  /// are computed of rows of tiles in memory and of such vectors, and rows are
  /// vectors of 16 bytes that four lanes or more can divide. Walks it.
  std::optional<SharedRows> findSharedRows() const;
  /// Blocks add tiles to sums that they share, as a gradient's do. Walks it.
  bool addsTiles() const;

private:
  mutable mlir::scf::ForallOp forall; // MLIR's op classes lack const
};

} // namespace fa

#endif // FA_SCHEDULE_BLOCKPROGRAM_H
