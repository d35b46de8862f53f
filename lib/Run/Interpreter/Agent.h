// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who runs a program: the function itself, or a role of a block. An agent
// stands at one operation and can be left there.

#ifndef FA_LIB_RUN_INTERPRETER_AGENT_H
#define FA_LIB_RUN_INTERPRETER_AGENT_H

#include "Body.h"

#include "fa/Run/Interpreter.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <random>

namespace fa::run::interpreter {

struct Group;
struct Hold;

/// What all agents of a run share.
struct Shared {
  explicit Shared(const InterpreterOptions &options)
      : options(options), random(options.seed) {}
  InterpreterOptions options;
  Failure failure;
  Bodies bodies;
  std::mt19937_64 random;
  /// One of `count` numbers.
  uint64_t draw(uint64_t count) { return random() % count; }
};

/// What a value is.
struct Cell {
  enum class Kind { None, Number, Tile, Slot, Pending };
  Kind kind = Kind::None;
  Number number;
  Tensor tile;
  /// Of a slot.
  std::shared_ptr<Hold> hold;
  /// Of a product's result, which may not be read yet.
  std::shared_ptr<Group> group;
  unsigned result = 0;

  static Cell of(Tensor tile) {
    Cell cell;
    cell.kind = Kind::Tile;
    cell.tile = std::move(tile);
    return cell;
  }
  static Cell of(Number number) {
    Cell cell;
    cell.kind = Kind::Number;
    cell.number = number;
    return cell;
  }
  static Cell ofInt(int64_t i) { return of(Number{i, 0}); }
};

/// The tile that a value is or will be.
mlir::RankedTensorType tileTypeOf(mlir::Value v);

/// What came of a step.
enum class Progress {
  /// Went on.
  Moved,
  /// Went on, and others may have noticed.
  Met,
  /// Stays where it is until others have done something.
  Blocked,
  Ended,
  Failed
};

class Agent : public Scope {
public:
  Agent(Shared &shared, Agent *outer) : shared(shared), outer(outer) {}

  /// Starts at a block, whose arguments are set.
  void enter(mlir::Operation *op, mlir::Block &block);
  Progress step();
  mlir::Operation *place();

  void set(mlir::Value v, Cell cell) { cells[v] = std::move(cell); }
  mlir::FailureOr<Cell> cell(mlir::Value v);
  mlir::FailureOr<Number> number(mlir::Value v) override;
  mlir::FailureOr<Tensor> tensor(mlir::Value v) override;
  mlir::FailureOr<int64_t> index(mlir::OpFoldResult v);
  mlir::LogicalResult indices(llvm::ArrayRef<mlir::OpFoldResult> values,
                              llvm::SmallVectorImpl<int64_t> &to);
  /// What the function returned.
  llvm::ArrayRef<Cell> returned() const { return results; }

protected:
  struct Frame {
    mlir::Operation *op;
    mlir::Block *block;
    mlir::Block::iterator next;
    /// Of a loop: where it is, ends, and how it goes on.
    int64_t iv = 0, end = 0, by = 1;
    /// Of a scf.forall: the iteration's number and how many there are.
    int64_t iteration = 0, iterations = 0;
  };

  Progress fail(mlir::Operation *op, const llvm::Twine &message) {
    (void)shared.failure.at(op, message);
    return Progress::Failed;
  }
  virtual Progress runHopper(mlir::Operation *op);
  /// At the end of a scf.forall's body or of a role.
  virtual Progress leaveForall(mlir::Operation *terminator);
  virtual Progress leaveRole(mlir::Operation *terminator);
  Progress leaveInto(mlir::Operation *terminator, mlir::ValueRange results);
  mlir::LogicalResult read(mlir::ValueRange values,
                           llvm::SmallVectorImpl<Cell> &to);
  /// Which part of a tile this is to store or to add: offsets and sizes.
  struct Part {
    llvm::SmallVector<int64_t> offsets, sizes;
  };
  /// Of a tile of this shape, of which `v` may be a slice from the first
  /// element on.
  virtual Part partOf(mlir::Value v, llvm::ArrayRef<int64_t> shape);
  mlir::FailureOr<std::pair<Tensor, Tensor>>
  partAndPlace(mlir::OffsetSizeAndStrideOpInterface op, mlir::Value source,
               const Tensor &dest, const llvm::SmallBitVector &dropped);
  mlir::LogicalResult insert(mlir::tensor::ParallelInsertSliceOp op);
  mlir::LogicalResult accumulate(AccumulateSliceOp op);
  mlir::LogicalResult accumulate(AccumulateOp op);
  mlir::LogicalResult run(mlir::Operation *op);

  Shared &shared;
  Agent *outer;
  llvm::DenseMap<mlir::Value, Cell> cells;
  llvm::SmallVector<Frame, 8> frames;
  llvm::SmallVector<Cell, 2> results;

private:
  Progress runControl(mlir::Operation *op);
  Progress leave(mlir::Operation *terminator);
  Progress leaveFor(mlir::Operation *terminator);
  Progress startForall(mlir::scf::ForallOp op);
  mlir::LogicalResult bindIteration(mlir::scf::ForallOp op, int64_t number);
  mlir::LogicalResult runScalar(mlir::Operation *op);
  mlir::LogicalResult runAffine(mlir::Operation *op);
  mlir::LogicalResult runTensor(mlir::Operation *op, bool &isKnown);
  mlir::LogicalResult runConstant(mlir::Operation *op);
  mlir::LogicalResult runEmpty(mlir::Operation *op);
  mlir::LogicalResult runPad(mlir::tensor::PadOp op);
  mlir::LogicalResult runExtract(mlir::tensor::ExtractOp op);
  mlir::FailureOr<int64_t> elementOf(mlir::Operation *op, const Tensor &t,
                                     mlir::ValueRange at);
  mlir::LogicalResult runExtractSlice(mlir::tensor::ExtractSliceOp op);
  mlir::LogicalResult runInsertSlice(mlir::tensor::InsertSliceOp op);
  mlir::LogicalResult runInsert(mlir::tensor::InsertOp op);
  mlir::LogicalResult runReshape(mlir::Operation *op);
  mlir::LogicalResult runListBlocks(mlir::Operation *op);
};

/// How many iterations a scf.forall has, and the induction variables of one:
/// the last dimension goes fastest.
mlir::LogicalResult forallSizes(mlir::scf::ForallOp op, Agent &agent,
                                Failure &failure,
                                llvm::SmallVectorImpl<int64_t> &lower,
                                llvm::SmallVectorImpl<int64_t> &steps,
                                llvm::SmallVectorImpl<int64_t> &counts);

/// Runs a scf.forall that has roles, which `outer` has come to. `shared` has
/// its results, in place.
mlir::LogicalResult runRoles(mlir::scf::ForallOp op, Agent &outer,
                             Shared &shared, llvm::ArrayRef<Tensor> outs);

} // namespace fa::run::interpreter

#endif // FA_LIB_RUN_INTERPRETER_AGENT_H
