// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How fa-hopper-place sees a block's program and what it chooses for it.
//
//   Match.cpp  which programs the rules take
//   Shape.cpp  warpgroups, teams, turns, what lies where in shared memory
//   Place.cpp  the two roles, and the pass

#ifndef FA_LIB_TARGET_NVIDIA_HOPPER_PLACEMENT_H
#define FA_LIB_TARGET_NVIDIA_HOPPER_PLACEMENT_H

#include "Schedule.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "llvm/ADT/MapVector.h"

namespace fa::nvidia {

/// The tile that a product gives: the transpose of its operation's result, if
/// it is turned.
mlir::RankedTensorType productTile(const Contraction &c);

/// Whether a branch in it, such as that of blocks that a mask cuts, reads
/// memory element by element.
bool branchesRead(mlir::Operation *root);

/// Registers a thread, by role.
struct RoleRegisters {
  int64_t producer, consumers;
};

/// Of as many warpgroups of consumers, which share what they compute or not.
RoleRegisters registersOfRoles(int64_t warpgroups, bool share);

/// What a user asks of the schedule; -1: chosen.
struct PlaceOptions {
  int stages = -1, persistent = -1, stageStores = -1, ones = -1, pingPong = -1,
      companions = -1, carriedFirst = -1;
  int64_t heads = -1, teams = -1, spare = -1;
};

/// A tile that is in shared memory because products read it, or a vector that
/// is loaded early, and its place.
struct PlacedTile {
  /// The consumers compute it; else it is loaded.
  bool isComputed = false;
  /// A loop loads or computes it.
  bool isInLoop = false;
  /// It lies there with rows and columns exchanged.
  bool isTurned = false;
  /// Beside it lies a panel of ones, to sum rows with.
  bool ones = false;
  /// The tile that it fills and empties with, if any.
  mlir::Value with;
  hopper::RingOp ring;
  mlir::Value slot;
  unsigned stages = 1;
};

/// What was measured to be fastest for blocks that add to memory, of one size
/// of tiles.
struct MeasuredChoice {
  /// Columns of all loaded tiles, and the shape of the first product.
  int64_t columns, rows, cols;
  bool makesBits;
  bool companions, carriedFirst;
  /// In general, and where no product in flight reads registers.
  int64_t spare, spareFree;
  /// Of the rings of tiles that warpgroups share, and whether what reads them
  /// comes another iteration later.
  int64_t sharedStages;
  bool sharesLater;
  /// Whether what is only shared is computed piece by piece.
  bool streams;
};

/// A block's program, on its way into two roles.
class Placement {
public:
  Placement(mlir::scf::ForallOp forall, const fa::NVIDIATarget &target,
            const PlaceOptions &options)
      : forall(forall), target(target), options(options) {}
  /// Whether the rules take the block's program; else says in `why` what they
  /// do not.
  bool match(std::string &why);
  /// Whether what a user asked for is against it.
  bool isRefused() const { return refused; }
  bool hasContractions() const { return !contractions.empty(); }
  void apply();

private:
  // Match.cpp
  void turnProducts();
  bool matchContractions(std::string &why);
  bool matchOperand(const Contraction &c, mlir::OpOperand &operand,
                    bool isFirst, std::string &why);
  bool matchRest(std::string &why);
  bool isVectorForRing(mlir::Value vector);
  void matchVectors();
  mlir::Value findLeader(mlir::Value vector);

  // Shape.cpp
  bool chooseWarpgroups(std::string &why);
  void findRowSums();
  bool chooseTeams(std::string &why);
  bool chooseTurns(std::string &why);
  int64_t ringBytes(mlir::Value tile, const PlacedTile &placed,
                    int64_t stages) const;
  bool chooseMoreStages(int64_t available, int64_t &bytes, std::string &why);
  void chooseOnes(int64_t available, int64_t &bytes);
  void chooseStagedPanels(int64_t available, int64_t &bytes);
  void chooseSharedStages(int64_t available, int64_t &bytes);
  bool chooseStages(std::string &why);
  int64_t headsOfSection();
  bool addsToMemory();
  bool canStageTurned(std::string &why);
  mlir::RankedTensorType stageableSum(fa::AccumulateSliceOp sum) const;
  int64_t bytesOfSums();
  bool sharesTiles() const;
  int64_t mostColumns() const;
  const MeasuredChoice *measured();
  int64_t registersOfResults(int64_t warpgroups) const;
  int64_t registersOfProducts(int64_t warpgroups) const;
  bool refuse(std::string &why, const llvm::Twine &text);

  // Place.cpp
  void placeRings(mlir::OpBuilder &b);
  void placeQueue(mlir::OpBuilder &b);
  void moveIntoConsumers(mlir::OpBuilder &b);
  void startProduct(const Contraction &c);
  void placeSlot(mlir::Value tile, PlacedTile &placed);
  void placeCompanion(mlir::Value tile, PlacedTile &placed);
  mlir::scf::ForOp loopOfUsers(mlir::Value tile,
                               llvm::ArrayRef<mlir::Operation *> users);
  llvm::SmallVector<mlir::Operation *> usersInShared(mlir::Value tile);
  void stageSums();
  void placeExchange();

  mlir::scf::ForallOp forall;
  const fa::NVIDIATarget &target;
  const PlaceOptions &options;
  bool refused = false;
  const MeasuredChoice *choice = nullptr;
  /// Of those that are turned the transpose: of the other operand with this
  /// one.
  llvm::SmallVector<Contraction> contractions;
  llvm::DenseSet<mlir::Operation *> turned;
  int64_t warpgroups = 0, teams = 1;
  bool turns = false, sharesLater = false;
  llvm::MapVector<mlir::Value, PlacedTile> tiles;
  /// By product: the sums of the rows of its first operand, which a loop
  /// carries, and which the product makes too where its ring has ones.
  llvm::MapVector<mlir::Operation *, hopper::PartialSumsOp> rowSums;
  /// Panels of the block's result that leave through shared memory at a time,
  /// and their bytes.
  int64_t stagedPanels = 0, stagedBytes = 0;
  /// Where shared memory is free: for tiles, and before them.
  int64_t tilesEnd = hopper::tileAlignment, barriersEnd = 0;
  /// Operands of products in registers.
  llvm::DenseSet<mlir::OpOperand *> inRegisters;
  hopper::ConsumersOp consumers;
};

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_HOPPER_PLACEMENT_H
