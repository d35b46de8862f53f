// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an scf.forall says of a block by its attributes and the encodings of its
// types (the nvidia dialect): its threads, its shared memory, and where each
// tile lives.

#ifndef FA_LIB_CONVERSION_TILESTOTHREADS_BLOCKVIEW_H
#define FA_LIB_CONVERSION_TILESTOTHREADS_BLOCKVIEW_H

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"
#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"
#include "fa/Schedule/BlockProgram.h"
#include "fa/Schedule/Contraction.h"
#include "fa/Target/TargetInfo.h"

#include "llvm/ADT/MapVector.h"

#include <optional>

namespace fa::nvidia {

/// A tile in shared memory: one that is loaded, or that nvidia.convert_layout
/// puts there.
struct SharedTile {
  mlir::Value tile;
  /// The innermost loop around it; null outside loops.
  mutable mlir::scf::ForOp loop; // MLIR's op classes lack const
  /// Position in the loop's ring; -1: not in a ring, loaded where it stands.
  int ringIndex = -1;
  unsigned stages = 1;
  /// A ring's loads that are read one after another: each stage is filled
  /// again while the next load is read, which one stage is enough for.
  bool inTurn = false;
  SharedLayout layout;
  mlir::Type elementType;
  int64_t offset = 0;
  bool isLoaded() const { return !tile.getDefiningOp<ConvertLayoutOp>(); }
};

class BlockView {
public:
  /// What is said of the block; reports what is missing or cannot be.
  static mlir::FailureOr<BlockView> of(mlir::scf::ForallOp forall);

  const TargetInfo &target() const { return info; }
  bool hasWgmma() const {
    return info.tensorCores == TargetInfo::TensorCores::Wgmma;
  }
  unsigned warps() const { return block.getWarps(); }
  unsigned threads() const { return 32 * warps(); }
  /// The role that computes, where the tile program is scheduled for Hopper;
  /// null elsewhere. Its warps are the first of the block.
  hopper::ConsumersOp consumers() const { return role; }
  /// What adders add: one of the operations, whose memory and staged tiles are
  /// all alike. Null where there are none.
  AccumulateSliceOp handedSum() const { return handed; }
  /// How many times a block has those warps, and the shared memory of each.
  unsigned teams() const { return block.getTeams(); }
  int64_t teamBytes() const { return sharedBytes() / teams(); }
  /// Threads of a block: with those of a producer.
  unsigned blockThreads() const {
    return teams() * threads() + (role ? hopper::warpgroupThreads : 0);
  }
  int64_t sharedBytes() const { return block.getShared(); }
  /// Blocks add tiles to sums that they share, as a gradient's do: so many
  /// tiles are in registers that few are left for addresses.
  bool addsTiles() const { return hasTileSums; }

  /// The tile in shared memory that a value is; null where it is none.
  const SharedTile *shared(mlir::Value value) const {
    auto it = tiles.find(value);
    return it == tiles.end() ? nullptr : &it->second;
  }
  /// One that is loaded from global memory.
  const SharedTile *load(mlir::Value value) const {
    const SharedTile *tile = shared(value);
    return tile && tile->isLoaded() ? tile : nullptr;
  }
  /// The loads of a loop's ring, in the order in which they are issued.
  llvm::SmallVector<const SharedTile *> ring(mlir::scf::ForOp loop) const;
  /// The loads that an op or its regions read.
  llvm::SmallVector<const SharedTile *> loadsReadIn(mlir::Operation *op) const;
  /// The layout of a tile that lives in registers, or that is taken there;
  /// nothing for other types.
  std::optional<FragmentLayout> layout(mlir::Value value) const;
  /// The layout of a tile whose rows are not divided among warps: if there are
  /// more warps than tiles of 16 rows, some hold the same.
  FragmentLayout wholeRows(int64_t rows, int64_t cols) const {
    return FragmentLayout::accumulator(
        rows, cols, FragmentLayout::mostRowWarps(rows, warps()));
  }

  /// The value is (a new version of) a tensor in global memory.
  bool isGlobal(mlir::Value value) const { return program.isGlobal(value); }
  /// The value is a static tile cut out of global memory.
  bool isLoaded(mlir::Value value) const { return program.isLoadedTile(value); }
  /// Blocks compute element by element: no thread holds a tile. Walks it.
  bool isElementwise() const { return program.isElementwise(); }
  /// Blocks compute numbers of rows, as lanes share them: no thread holds a
  /// tile. Walks it.
  std::optional<SharedRows> findSharedRows() const {
    return program.findSharedRows();
  }
  /// Whether the block reads or computes 16-bit numbers. Walks it.
  bool isOfShortTypes() const { return program.isOfShortTypes(); }

private:
  BlockView(mlir::scf::ForallOp forall, BlockAttr block, TargetInfo info);
  void collectTiles();
  mlir::LogicalResult verifyTiles();
  mlir::LogicalResult verifyShared();
  mlir::LogicalResult verifyContraction(const Contraction &c);

  BlockProgram program;
  BlockAttr block;
  TargetInfo info;
  mutable hopper::ConsumersOp role; // MLIR's op classes lack const
  AccumulateSliceOp handed;
  bool hasTileSums;
  llvm::MapVector<mlir::Value, SharedTile> tiles;
  llvm::SmallVector<Contraction> contractions;
};

} // namespace fa::nvidia

#endif // FA_LIB_CONVERSION_TILESTOTHREADS_BLOCKVIEW_H
