// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of fa-schedule-hopper, in the order in which they run:
//
//   HopperMatch.cpp      which programs can be scheduled
//   HopperRows.cpp       sums and branches of rows, as a warp makes them
//   HopperShape.cpp      roles, registers, shared memory
//   HopperConsumers.cpp  the rotated loop of the role that computes
//   HopperClone.cpp      the program's operations for one block of keys
//   HopperStores.cpp     results that leave through shared memory
//   ScheduleHopper.cpp   the pass
//
// and HopperPlace.cpp, the pass that is to take its place.

#ifndef FA_LIB_TARGET_NVIDIA_HOPPERSCHEDULE_H
#define FA_LIB_TARGET_NVIDIA_HOPPERSCHEDULE_H

#include "BlockPlan.h"

#include "fa/Dialect/Hopper/Transforms/Utils.h"

#include "mlir/IR/IRMapping.h"

namespace fa::nvidia {

/// What the schedule of one block is asked to be; -1: chosen.
struct HopperOptions {
  const NVIDIATarget *target;
  int overlap = -1, pingPong = -1, stages = -1, persistent = -1, stage = -1,
      ones = -1, split = 0;
  int64_t heads = -1, teams = -1;
};

/// A block's program, as far as the schedule knows it.
struct HopperProgram {
  mlir::scf::ForallOp forall;
  mlir::scf::ForOp loop;
  /// S = Q K and O = P V.
  Contraction first, second;
  /// The loop's result that the second contraction makes.
  unsigned outputIndex = 0;
  /// The sums of P's rows, where the tensor cores make them too, and the loop's
  /// result that they are.
  hopper::PartialSumsOp sums;
  unsigned sumsIndex = 0;
  /// The tile of i1 that random bits decide, if there is one.
  mlir::Value mask;
  /// Of a block of keys: its scores stay as they are, no mask cuts it. True up
  /// to some block and false from there on, if not null; then it is
  /// `iv + wholeOffset <= wholeBound`.
  mlir::Value wholeTile, wholeBound;
  int64_t wholeOffset = 0;

  /// Whether a result of the loop is an accumulator of the tensor cores.
  bool isAccumulated(unsigned i) const {
    return i == outputIndex || (sums && i == sumsIndex);
  }
};

/// What was chosen for a block.
struct HopperShape {
  /// Warpgroups of a team, and teams of a block.
  int64_t warpgroups = 0, teams = 1, consumerRegisters = 0,
          producerRegisters = 0;
  bool overlap = false, pingPong = false, persistent = false;
  /// Stages of the rings of K and V; whether V's have a panel of ones.
  int64_t stages = 0;
  bool ones = false;
  /// Panels of a result that are staged at a time; 0: none.
  int64_t stagedPanels = 0;
};

/// A block's rings.
struct HopperRings {
  hopper::RingOp q, k, v;
  /// Where their tiles and their mbarriers end.
  int64_t tilesEnd = 0, barriersEnd = 0;
};

/// The role that computes.
struct HopperConsumers {
  hopper::ConsumersOp role;
  mlir::Value qSlot;
};

//===----------------------------------------------------------------------===//
// HopperMatch.cpp
//===----------------------------------------------------------------------===//

/// Recognises what can be scheduled; else says in `why` what stands against it.
bool matchHopper(mlir::scf::ForallOp forall, HopperProgram &program,
                 std::string &why);

/// Whether a tile is cut out of memory.
inline bool isLoaded(mlir::Value tile) { return !getLoadChain(tile).empty(); }

/// Bytes of a tile in a ring.
int64_t tileBytes(mlir::Value tile);

/// Whether TMA can load a loaded tile, rows of one dimension by the last
/// dimension; else says in `why` what stands against it.
bool canLoadByTMA(mlir::Value tile, std::string &why);

/// Whether the number of steps of a loop is read from memory: that of a list.
bool followsList(mlir::scf::ForOp loop);

/// Finds a tile of random bits.
void findRandomMask(HopperProgram &program);

/// Finds a branch of the loop that leaves the scores of whole blocks as they
/// are.
void findMask(HopperProgram &program);

//===----------------------------------------------------------------------===//
// HopperRows.cpp
//===----------------------------------------------------------------------===//

/// The body is yield(x * y) of two values.
bool isProduct(mlir::linalg::GenericOp op);

/// "Some row is not below the limit", of vectors by rows and of the largest
/// elements of P's rows, is decided by warp, of P from its registers: branches
/// on it are of rows that may take them for themselves.
void decideByWarp(mlir::scf::ForOp loop);

/// Carried sums of rows become partial sums that a thread makes alone
/// (tensor<rows x 8>); the rest is added after the loop.
void splitRowSums(mlir::scf::ForOp loop);

/// Sums of what a branch yields, in the branch: the weights need not be kept
/// for them, and on the common side the block's part is summed early.
void sinkSums(mlir::scf::ForOp loop);

/// Finds sums of what the second contraction reads: they can be one more panel
/// of V that is all ones.
void findSums(HopperProgram &program);

/// Partial sums that a loop gives, made by the tensor cores: every column is
/// then the whole sum.
void takeWholeSums(mlir::Value sums);

//===----------------------------------------------------------------------===//
// HopperShape.cpp
//===----------------------------------------------------------------------===//

/// Registers a thread by role, where a block has so many warpgroups that
/// compute.
struct RoleRegisters {
  int64_t producer, consumers;
};
RoleRegisters roleRegisters(int64_t warpgroups);

/// Chooses what the options leave open; reports what does not fit.
mlir::FailureOr<HopperShape> chooseShape(HopperProgram &program,
                                         const HopperOptions &options);

/// Makes the rings: mbarriers from the first byte of shared memory, then tiles.
HopperRings placeRings(mlir::OpBuilder &b, HopperProgram &program,
                       const HopperShape &shape);

//===----------------------------------------------------------------------===//
// HopperConsumers.cpp
//===----------------------------------------------------------------------===//

/// Makes the role that computes of the loop and what follows it, which go.
HopperConsumers buildConsumers(mlir::OpBuilder &b, HopperProgram &program,
                               const HopperShape &shape,
                               const HopperRings &rings);

//===----------------------------------------------------------------------===//
// HopperClone.cpp
//===----------------------------------------------------------------------===//

/// Clones operations of the loop's body for one iteration, with what is known
/// of it folded. `isFirst` is what a comparison of the induction variable with
/// the lower bound gives there.
void cloneBlock(mlir::OpBuilder &b, mlir::scf::ForOp loop,
                llvm::ArrayRef<mlir::Operation *> ops, mlir::IRMapping &map,
                mlir::Value isFirst);

/// Erases what nothing uses, from the last operation to the first.
void eraseDead(mlir::Block &block);

//===----------------------------------------------------------------------===//
// HopperStores.cpp
//===----------------------------------------------------------------------===//

/// The block's result that can be staged, if there is exactly one; else null.
mlir::RankedTensorType findStageable(mlir::scf::ForallOp forall);

/// That result goes through shared memory, so many panels of 64 columns at a
/// time, where none: it does not.
void stageStores(mlir::scf::ForallOp forall, hopper::ConsumersOp role,
                 int64_t offset, int64_t panels);

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_HOPPERSCHEDULE_H
