// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fa-schedule-ampere decides about a block's program: which loads go
// through shared memory and how, how many warps divide its tiles and how, and
// whether it fits.
//
//   Loads.cpp  loads, rings, what lies where in shared memory
//   Warps.cpp  warps, registers, layouts

#ifndef FA_LIB_TARGET_NVIDIA_AMPERE_PLAN_H
#define FA_LIB_TARGET_NVIDIA_AMPERE_PLAN_H

#include "../Layout/Layouts.h"

#include "fa/Schedule/Contraction.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace fa::nvidia {

/// A tile in shared memory: loaded from global memory because a contraction
/// reads it, or computed.
struct PlannedLoad {
  /// The innermost loop around the load; null outside loops.
  mutable mlir::scf::ForOp loop;
  /// Position in the loop's ring; -1: not in a ring, loaded where it stands.
  int ringIndex = -1;
  unsigned stages = 1;
  /// A ring's loads that are read one after another: each stage is filled
  /// again while the next load is read, which one stage is enough for.
  bool inTurn = false;
  SharedLayout layout;
  int64_t offset = 0;
};

/// Options of the schedule.
struct AmpereOptions {
  const NVIDIATarget *target;
  /// 0 to choose.
  unsigned stages;
  unsigned warps;
  unsigned hoistRegisters;
  /// 0 or 1; -1 to choose.
  int inTurn = -1;
};

class AmperePlan {
public:
  AmperePlan(mlir::scf::ForallOp forall, const AmpereOptions &options)
      : program(forall), layouts(program), options(options) {}
  /// Decides; reports what cannot be.
  mlir::LogicalResult compute();
  /// Writes what was decided into types and attributes of the program.
  void apply();

private:
  const PlannedLoad *load(mlir::Value tile) const {
    auto it = loads.find(tile);
    return it == loads.end() ? nullptr : &it->second;
  }

  mlir::LogicalResult checkTileSizes();

  // Loads.cpp
  void addLoad(mlir::Value tile);
  /// The loads of a loop's ring, in the order in which they are issued.
  llvm::SmallVector<mlir::Value> ring(mlir::scf::ForOp loop) const;
  void collectVectorLoads();
  mlir::LogicalResult collectLoads();
  int64_t placeLoads();
  void chooseRings();
  mlir::LogicalResult placeShared();

  // Warps.cpp
  int64_t registersWith(unsigned warps) const;
  int64_t mostWarps(mlir::Value tile) const;
  mlir::LogicalResult chooseWarps();
  void delaySums();
  void addConversion(mlir::OpOperand *operand);
  bool isTakenFromRegisters(const Contraction &c) const;
  llvm::SmallVector<unsigned> optionsOf(const Layouts::Class &c) const;
  int64_t costOfLayouts() const;
  void chooseLayouts();
  void chooseHoisted();

  BlockProgram program;
  Layouts layouts;
  AmpereOptions options;
  unsigned numWarps = 0;
  int64_t smemBytes = 0, estimate = 0;
  llvm::SmallVector<Contraction> contractions;
  llvm::MapVector<mlir::Value, PlannedLoad> loads;
  /// Computed operands that pass through shared memory, and their tiles there.
  llvm::DenseSet<mlir::OpOperand *> converted;
  llvm::MapVector<mlir::Value, PlannedLoad> conversions;
  llvm::DenseSet<mlir::OpOperand *> hoistedOperands;
};

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_AMPERE_PLAN_H
