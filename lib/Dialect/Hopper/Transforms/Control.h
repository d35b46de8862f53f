// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the roles of a block do in one of its tiles, as far as numbers decide
// it: which operations of the dialect, in which order, in which loops and
// branches. Tiles have no values here.

#ifndef FA_LIB_DIALECT_HOPPER_TRANSFORMS_CONTROL_H
#define FA_LIB_DIALECT_HOPPER_TRANSFORMS_CONTROL_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

#include <map>
#include <optional>

namespace fa::hopper {

/// Something that a role does.
struct Step {
  enum Kind {
    /// Runs an operation of the dialect.
    Run,
    /// Begins or ends an iteration of an scf.for or a branch of an scf.if.
    Enter,
    Leave
  };
  Kind kind;
  mlir::Operation *op;
  /// Of a hopper.release: its condition.
  bool condition = true;
  /// Of a hopper.load, and of a hopper.acquire of what one brings: which tile
  /// it is of, the same number for the same slice of a tensor.
  int64_t tile = 0;
  /// What it takes, gives back or reads of slots, each a number of its own.
  llvm::SmallVector<int64_t, 2> slots = {};
};

using Trace = llvm::SmallVector<Step, 0>;

/// Runs the roles' control for chosen numbers. What stands outside the
/// operations that decide something is not looked at.
class Control {
public:
  explicit Control(mlir::scf::ForallOp forall);

  /// How many choices have all sizes that are of interest, each once.
  unsigned round() const { return candidates.size(); }
  /// Chooses what is not known of sizes, coordinates and lists; the same number
  /// makes the same choice. False where there is no such tile.
  bool choose(unsigned number);
  /// Whether anything was left to choose, so far.
  bool hasChoices() const { return !chosen.empty(); }
  /// What a role does. Reports a bound or condition that threads may not agree
  /// on. Nothing where a loop is too long to be run.
  mlir::FailureOr<std::optional<Trace>> run(mlir::Block &role);
  /// How many trips loops without constant bounds have had, of all choices.
  const std::map<mlir::Operation *, llvm::DenseSet<int64_t>> &trips() const {
    return tripsOf;
  }
  /// What was chosen, for a diagnostic.
  void describe(mlir::Diagnostic &diagnostic) const;

private:
  using Number = std::optional<int64_t>;
  /// What a number or tensor is determined by.
  using Key = std::vector<int64_t>;

  void collect(mlir::Block &block);
  void need(mlir::Value value);
  bool isOutside(mlir::Value value) const;
  Number evaluate(mlir::Value value);
  Number evaluateOp(mlir::OpResult result);
  Number fold(mlir::OpResult result);
  Number freeNumber(mlir::OpResult result);
  int64_t classOf(mlir::Operation *op);
  std::optional<int64_t> identify(mlir::Value tensor);
  std::optional<Key> keyOf(mlir::Operation *op);
  int64_t numberOutside(mlir::Value value);
  int64_t candidate(mlir::Value value, Key key);
  int64_t random();

  mlir::LogicalResult runBlock(mlir::Block &block, Trace &trace);
  mlir::LogicalResult runFor(mlir::scf::ForOp loop, Trace &trace);
  mlir::LogicalResult runIf(mlir::scf::IfOp branch, Trace &trace);

  mutable mlir::scf::ForallOp forall; // MLIR's op classes lack const
  /// Operations of each block that are run: of the dialect, loops and branches
  /// around such, and what their bounds and conditions are computed of.
  llvm::DenseMap<mlir::Block *, llvm::SmallVector<mlir::Operation *>> relevant;
  llvm::DenseSet<mlir::Operation *> holdsSteps;
  llvm::DenseSet<mlir::Value> needed;
  llvm::SmallVector<int64_t> candidates;
  /// A loop of the consumers begins before it and ends behind it.
  bool isExpanded = false;

  // Of one choice.
  unsigned number = 0;
  uint64_t state = 0;
  llvm::DenseMap<mlir::Value, Number> numbers;
  /// Numbers that nothing determines, by what asks for them.
  std::map<Key, int64_t> chosen;
  /// Slots that were acquired.
  int64_t acquired = 0;
  llvm::SmallVector<std::pair<mlir::Value, int64_t>> named;
  bool tooLong = false;

  // Of all choices: operations that compute the same of the same operands.
  llvm::SmallVector<mlir::Operation *> classes;
  /// What both roles read that is no arithmetic.
  llvm::SetVector<mlir::Value> outside;
  std::map<Key, int64_t> tensors;
  std::map<mlir::Operation *, llvm::DenseSet<int64_t>> tripsOf;
};

} // namespace fa::hopper

#endif // FA_LIB_DIALECT_HOPPER_TRANSFORMS_CONTROL_H
