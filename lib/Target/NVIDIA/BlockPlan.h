// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is decided about a block's program before anything is emitted: which
// loads go to shared memory and how (roles, operands, rings), which layout each
// vector has, how many warps, and whether it fits (budget).

#ifndef FA_LIB_TARGET_NVIDIA_BLOCKPLAN_H
#define FA_LIB_TARGET_NVIDIA_BLOCKPLAN_H

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Target/NVIDIA/Fragment.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <optional>

namespace fa::nvidia {

/// C(i,j) += A(i,k) B(k,j), read off the op's maps and body.
struct Contraction {
  mutable mlir::linalg::LinalgOp op; // MLIR's op classes lack const
  mlir::OpOperand *a, *b;
  /// The operand's tensor is indexed (k,i) or (k,j), else (i,k) or (j,k).
  bool aOuterK, bOuterK;
  int64_t m, n, k;
  mlir::Type elementType;
  /// mma.sync, or else plain f32 multiply-adds.
  bool tensorCore() const { return elementType.getIntOrFloatBitWidth() == 16; }
};

/// The contraction that an op is, or nothing.
std::optional<Contraction> matchContraction(mlir::Operation *op);

/// The operations that make a tile of a slice: padding and casts, the outermost
/// first, and the tensor.extract_slice last. Empty where it is made otherwise.
llvm::SmallVector<mlir::Operation *> getLoadChain(mlir::Value tile);

/// Whether a value of a loop is known before its iteration: it depends on the
/// induction variable and what stands before the loop, through operations that
/// `takes` is true of.
bool isKnownAhead(mlir::Value value, mlir::scf::ForOp loop,
                  llvm::function_ref<bool(mlir::Operation *)> takes);
/// Whether it can be computed or loaded for a later iteration: from what stands
/// before the loop, by the loop's slices and scalar operations.
bool canPrefetch(mlir::Value value, mlir::scf::ForOp loop);

/// A tile that is loaded from global into shared memory, because a contraction
/// reads it.
struct LoadPlan {
  mlir::Value tile;
  /// The innermost loop around the load; null outside loops.
  mutable mlir::scf::ForOp loop;
  /// Position in the loop's ring; -1: not in a ring, loaded where it stands.
  int ringIndex = -1;
  unsigned stages = 1;
  /// A ring's loads that are read one after another: each stage is filled
  /// again while the next load is read, which one stage is enough for.
  bool inTurn = false;
  SharedLayout layout;
  mlir::Type elementType;
  int64_t offset = 0;
};

/// Options of a schedule.
struct ScheduleOptions {
  const NVIDIATarget *target;
  /// 0 to choose.
  unsigned stages;
  unsigned warps;
  unsigned hoistRegisters;
  /// 0 or 1; -1 to choose.
  int inTurn = -1;
};

/// The memory that a block adds to, and which of its dimensions `dim` of the
/// value is: through slices and loops that carry it.
std::pair<mlir::Value, unsigned> memoryOf(mlir::Value value, unsigned dim);

/// Where what is added is staged for TMA; null: it is not.
hopper::StageOp stageOf(AccumulateSliceOp sum);

class BlockPlan {
public:
  BlockPlan(mlir::scf::ForallOp forall, const ScheduleOptions &options)
      : forall(forall), options(options) {}
  /// Decides; reports what cannot be.
  mlir::LogicalResult compute();

  const NVIDIATarget &target() const { return *options.target; }
  unsigned warps() const { return numWarps; }
  unsigned threads() const { return 32 * numWarps; }
  /// The role that computes, where the tile program is scheduled for Hopper;
  /// null elsewhere. Its warps are the first of the block.
  hopper::ConsumersOp consumers() const;
  /// What adders add: one of the operations, whose memory and staged tiles are
  /// all alike. Null where there are none.
  AccumulateSliceOp handedSum() const { return handed; }
  /// How many times a block has those warps, and the shared memory of each.
  unsigned teams() const { return numTeams; }
  int64_t teamBytes() const { return smemBytes / numTeams; }
  /// Threads of a block: with those of a producer.
  unsigned blockThreads() const {
    return numTeams * threads() + (consumers() ? producerThreads : 0);
  }
  static constexpr unsigned producerThreads = hopper::warpgroupThreads;
  int64_t sharedBytes() const { return smemBytes; }
  int64_t registerEstimate() const { return estimate; }
  /// About how many registers a thread takes where so many warps divide tiles.
  int64_t estimateRegisters(unsigned warps) const;
  /// Blocks add tiles to sums that they share, as a gradient's do: so many
  /// tiles are in registers that few are left for addresses.
  bool addsTiles() const { return hasTileSums; }

  const LoadPlan *load(mlir::Value tile) const {
    auto it = loads.find(tile);
    return it == loads.end() ? nullptr : &it->second;
  }
  /// The loads of a loop's ring, in the order in which they are issued.
  llvm::SmallVector<const LoadPlan *> ring(mlir::scf::ForOp loop) const;
  /// The loads that an op or its regions read.
  llvm::SmallVector<const LoadPlan *> loadsReadIn(mlir::Operation *op) const;
  /// The shared memory for a computed operand that must pass through it.
  const LoadPlan *conversion(mlir::OpOperand *operand) const {
    return converted.contains(operand)
               ? &conversions.find(operand->get())->second
               : nullptr;
  }
  /// The operand's fragments are read once, before the loop.
  bool hoisted(mlir::OpOperand *operand) const {
    return hoistedOperands.contains(operand);
  }
  /// The layout of a tile that lives in registers; nothing for other types.
  std::optional<FragmentLayout> layout(mlir::Value value) const;
  /// The layout of a tile whose rows are not divided among warps: if there are
  /// more warps than tiles of 16 rows, some hold the same.
  FragmentLayout wholeRows(int64_t rows, int64_t cols) const {
    return FragmentLayout::accumulator(
        rows, cols, FragmentLayout::mostRowWarps(rows, numWarps));
  }

  /// The value is (a new version of) a tensor in global memory.
  bool isGlobal(mlir::Value value) const;
  /// Whether the block reads or computes 16-bit numbers. Walks it.
  bool isOfShortTypes() const;
  /// The value is a static tile cut out of global memory.
  bool isLoadedTile(mlir::Value value) const;
  bool isView(mlir::tensor::ExtractSliceOp slice) const;

private:
  mlir::LogicalResult collectLoads();
  mlir::LogicalResult inferVectors();

  //--- Layouts (BlockLayouts.cpp)
  /// Tiles, and vectors along their rows and columns, that are computed with
  /// each other element by element: warps divide them alike.
  struct LayoutClass {
    int64_t rows = 0, cols = 0;
    /// A warp has all columns of its rows.
    bool whole = false;
    /// Warps that divide the rows.
    unsigned rowWarps = 0;
  };
  void inferClasses();
  void chooseLayouts();
  llvm::SmallVector<unsigned> optionsOf(const LayoutClass &c) const;
  int64_t costOfLayouts() const;
  bool isTakenFromRegisters(const Contraction &c) const;
  bool isComputed(mlir::Value value) const;
  bool isWhole(mlir::Value value) const {
    auto it = classOf.find(value);
    return it != classOf.end() && classes[it->second].whole;
  }
  void addConversion(mlir::OpOperand *operand, mlir::Type elementType);
  int64_t mostWarps(mlir::Value tile) const;
  mlir::LogicalResult chooseWarps();
  void delaySums();
  int64_t registersOf(mlir::Value v, unsigned warps) const;
  int64_t mostLive(mlir::Block &block, unsigned warps) const;
  void chooseRings();
  int64_t placeLoads();
  mlir::LogicalResult placeShared();
  mlir::LogicalResult findHandedSum();
  mlir::LogicalResult placeRings();
  mlir::LogicalResult checkShared();
  void chooseHoisted();
  bool isReadInTurn(mlir::scf::ForOp loop) const;
  void addLoad(mlir::Value tile);
  void collectVectorLoads();

  mutable mlir::scf::ForallOp forall; // MLIR's op classes lack const
  ScheduleOptions options;
  unsigned numWarps = 0, numTeams = 1;
  bool hasTileSums = false;
  AccumulateSliceOp handed;
  int64_t smemBytes = 0, estimate = 0;
  llvm::MapVector<mlir::Value, LoadPlan> loads;
  /// Computed operands that pass through shared memory, and their tiles there.
  llvm::DenseSet<mlir::OpOperand *> converted;
  llvm::MapVector<mlir::Value, LoadPlan> conversions;
  llvm::DenseMap<mlir::Value, FragmentLayout::Kind> vectors;
  llvm::DenseMap<mlir::Value, unsigned> classOf;
  llvm::SmallVector<LayoutClass> classes;
  llvm::DenseSet<mlir::OpOperand *> hoistedOperands;
  llvm::SmallVector<Contraction> contractions;
};

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_BLOCKPLAN_H
