// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A block with roles, or of several teams one: its rings, its agents, and what
// is on its way.

#ifndef FA_LIB_RUN_INTERPRETER_TEAM_H
#define FA_LIB_RUN_INTERPRETER_TEAM_H

#include "Agent.h"

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "llvm/ADT/MapVector.h"

namespace fa::run::interpreter {

/// A stage of a ring. Barriers count the phases that have ended; who waits
/// looks at a parity, as on the machine.
struct Stage {
  /// Not valid: poison.
  Tensor content;
  /// Counts changes of the content.
  uint64_t version = 0;
  uint64_t fullPhases = 0, emptyPhases = 0;
  /// Of the phase of `empty` at hand, and of that of `full` where warpgroups
  /// fill it.
  int64_t arrivals = 0, filled = 0;
};

struct Ring {
  hopper::RingOp op;
  std::vector<Stage> stages;
  /// Those that fill and empty with it.
  std::vector<Ring *> companions;
};

/// A stage as a warpgroup has it, from its acquisition to its release.
struct Hold {
  Ring *ring;
  Stage *stage;
  uint64_t position;
  bool isReleased = false;
  /// The slot that it is given back with, if it is with one.
  std::shared_ptr<Hold> with = nullptr;
  /// "ring "k", stage 1"
  std::string name() const;
};

/// An operand that a product reads from shared memory, from its start to its
/// end.
struct SharedOperand {
  std::shared_ptr<Hold> hold;
  bool wasThere = false;
  uint64_t version = 0;
};

/// A matrix product on its way.
struct Group {
  hopper::WgmmaOp op;
  /// In registers; else in a stage.
  Tensor a;
  SharedOperand aShared, bShared;
  /// Empty: from zero.
  llvm::SmallVector<Cell, 2> inits;
  llvm::SmallVector<Tensor, 2> results;
  bool isDone = false, isWaitedFor = false;
};

/// A named barrier of 256 threads, in warpgroups.
struct Turn {
  int64_t arrivals = 0;
  uint64_t phases = 0;
  void arrive() {
    if (++arrivals == 2) {
      arrivals = 0;
      ++phases;
    }
  }
};

class Team;

/// The producer, or a warpgroup of the consumers.
class RoleAgent : public Agent {
public:
  /// `warpgroup` -1: the producer.
  RoleAgent(Shared &shared, Agent *outer, Team &team, int64_t warpgroup)
      : Agent(shared, outer), team(team), warpgroup(warpgroup) {}
  /// A step of the program, or the next tile.
  Progress advance();
  /// "warpgroup 1 waits at hopper.acquire (...) for ..."
  std::string waitsFor();
  std::string name() const;
  bool isProducer() const { return warpgroup < 0; }
  uint64_t position(Ring *ring) const { return positions.lookup(ring); }
  /// How many stages of a ring it has filled: by loads, or its parts of them.
  uint64_t filled(Ring *ring) const { return fills.lookup(ring); }
  /// The first product that has not ended.
  Group *running();
  mlir::LogicalResult endProduct();
  int64_t tilesEnded() const { return tile; }

protected:
  Progress runHopper(mlir::Operation *op) override;
  Part partOf(mlir::Value v, llvm::ArrayRef<int64_t> shape) override;
  Progress leaveForall(mlir::Operation *terminator) override;
  Progress leaveRole(mlir::Operation *terminator) override;

private:
  Progress nextTile();
  Progress fill(mlir::Operation *op, mlir::Value of, mlir::Value content,
                Stage *&stage, Tensor &tile);
  Progress load(hopper::LoadOp op);
  Progress share(hopper::ShareOp op);
  Progress acquire(hopper::AcquireOp op);
  Progress poll(hopper::PollOp op);
  Progress release(hopper::ReleaseOp op);
  Progress readVector(hopper::ReadOp op);
  Progress product(hopper::WgmmaOp op);
  mlir::LogicalResult readSlot(mlir::Operation *op, const Cell &slot,
                               SharedOperand &operand);
  mlir::LogicalResult stayed(Group &group, const SharedOperand &operand);
  Progress wait(hopper::WaitGroupOp op);
  Progress beginTurn(hopper::TurnBeginOp op);
  Progress endTurn(hopper::TurnEndOp op);
  Progress partialSums(hopper::PartialSumsOp op);
  Progress exceeds(hopper::ExceedsOp op);
  Progress same(mlir::ValueRange values, mlir::ValueRange results);
  Progress stage(hopper::StageOp op);
  bool isFull(Ring &ring, uint64_t position);
  std::pair<int64_t, int64_t> ownRows(const Tensor &t);

  Team &team;
  int64_t warpgroup;
  llvm::DenseMap<Ring *, uint64_t> positions, fills;
  /// The position that was polled last.
  llvm::DenseMap<Ring *, uint64_t> polled;
  /// Products nobody has waited for, in order.
  std::vector<std::shared_ptr<Group>> groups;
  /// Tiles that have ended.
  int64_t tile = 0;
  /// The phase of its turn's barrier that it waits for the end of.
  std::optional<uint64_t> turnPhase;
  bool isInTurn = false;
};

class Team {
public:
  Team(mlir::scf::ForallOp op, Agent &outer, Shared &shared,
       std::vector<llvm::SmallVector<int64_t>> tiles,
       llvm::ArrayRef<Tensor> outs);
  mlir::LogicalResult run();

  Ring *ring(mlir::Value v) {
    auto *it = rings.find(v);
    return it == rings.end() ? nullptr : it->second.get();
  }
  void startLoad(Stage &stage, Tensor tile);
  bool isPersistent() const { return persistent; }

  mlir::scf::ForallOp op;
  hopper::ConsumersOp consumers;
  int64_t warpgroups;
  std::vector<Turn> turns;
  /// The tiles that it takes, each by its induction variables.
  std::vector<llvm::SmallVector<int64_t>> tiles;
  /// How many tiles the producer has told the consumers of; one more once it
  /// has told that there are no others.
  int64_t published = 0;
  int64_t leastEnded();

private:
  struct Load {
    Stage *stage;
    Tensor tile;
  };
  /// What may happen next.
  struct Event {
    enum class Kind { Step, Arrival, Product } kind;
    unsigned number;
    uint64_t weight;
  };
  void collect(llvm::SmallVectorImpl<Event> &events);
  const Event &choose(llvm::ArrayRef<Event> events);
  mlir::LogicalResult happen(const Event &event);
  mlir::LogicalResult stuck();
  mlir::LogicalResult checkEnd();

  Shared &shared;
  bool persistent = false;
  llvm::MapVector<mlir::Value, std::unique_ptr<Ring>> rings;
  std::vector<std::unique_ptr<RoleAgent>> agents;
  std::vector<Progress> states;
  std::vector<Load> loads;
  /// How likely agents, arrivals and ends of products are, against each other.
  std::vector<uint64_t> agentWeights, productWeights;
  uint64_t loadWeight = 1;
};

/// Computes a product whose operands are there: the part of one warpgroup.
void computeProduct(Group &group, int64_t warpgroup, int64_t warpgroups);
/// A warpgroup's part of a matrix.
Tensor viewPart(const Tensor &tile, int64_t warpgroup, int64_t warpgroups);

} // namespace fa::run::interpreter

#endif // FA_LIB_RUN_INTERPRETER_TEAM_H
