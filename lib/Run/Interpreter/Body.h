// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bodies of linalg's operations, computed for many elements at a time.

#ifndef FA_LIB_RUN_INTERPRETER_BODY_H
#define FA_LIB_RUN_INTERPRETER_BODY_H

#include "Lanes.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace fa::run::interpreter {

/// What is the same for a whole run.
class Failure {
public:
  /// Keeps the first message, with the operation's name and place.
  mlir::LogicalResult at(mlir::Operation *op, const llvm::Twine &message);
  mlir::LogicalResult text(const llvm::Twine &message);
  const std::string &message() const { return first; }

private:
  std::string first;
};

/// "hopper.load (file.mlir:3:5)"
std::string describe(mlir::Operation *op);

/// A number or a condition outside of tiles.
struct Number {
  int64_t i = 0;
  float f = 0;
};

/// Where a body finds what is defined outside of it.
class Scope {
public:
  virtual ~Scope() = default;
  virtual mlir::FailureOr<Number> number(mlir::Value v) = 0;
  virtual mlir::FailureOr<Tensor> tensor(mlir::Value v) = 0;
};

/// A block of scalar operations, in which each value has a register.
class Body {
public:
  /// `space` are the dimensions that linalg.index may ask for.
  static mlir::FailureOr<std::unique_ptr<Body>> make(mlir::Block &block,
                                                     Failure &failure);

  /// Reads what is defined outside.
  mlir::LogicalResult bind(Scope &scope, Failure &failure);
  Lanes &argument(unsigned number) { return registers[number]; }
  bool readsArgument(unsigned number) const { return isRead[number]; }
  /// For linalg.index and the arguments, before each run.
  Lanes &index(unsigned dim) { return indices[dim]; }
  bool readsIndex(unsigned dim) const {
    return dim < indexIsRead.size() && indexIsRead[dim];
  }
  mlir::LogicalResult run(int64_t count, Failure &failure) {
    return run(top, count, nullptr, failure);
  }
  /// What the block yields.
  const Lanes &yielded(unsigned number) const {
    return registers[top.yields[number]];
  }

private:
  struct Step;
  struct Sequence {
    std::vector<Step> steps;
    llvm::SmallVector<unsigned> yields;
  };
  struct Step {
    mlir::Operation *op = nullptr;
    /// Null: one of those below.
    Kernel kernel = nullptr;
    Scalar scalar;
    llvm::SmallVector<unsigned, 4> operands, results;
    /// Of tensor.extract, its tensor; of linalg.index, its dimension.
    unsigned number = 0;
    /// The sides of a branch.
    std::unique_ptr<Sequence> thenSide, elseSide;
  };

  mlir::LogicalResult build(mlir::Block &block, Sequence &sequence,
                            Failure &failure);
  mlir::LogicalResult buildStep(mlir::Operation &op, Step &step,
                                Failure &failure);
  unsigned registerOf(mlir::Value v);
  mlir::LogicalResult run(Sequence &sequence, int64_t count, const Lanes *mask,
                          Failure &failure);
  mlir::LogicalResult runStep(Step &step, int64_t count, const Lanes *mask,
                              Failure &failure);
  mlir::LogicalResult runBranch(Step &step, int64_t count, const Lanes *mask,
                                Failure &failure);
  mlir::LogicalResult runExtract(Step &step, int64_t count, const Lanes *mask,
                                 Failure &failure);

  mlir::Block *block = nullptr;
  Sequence top;
  llvm::DenseMap<mlir::Value, unsigned> numbers;
  std::vector<Lanes> registers, indices;
  std::vector<bool> isRead, indexIsRead;
  /// Scalars and tensors from outside.
  std::vector<std::pair<mlir::Value, unsigned>> captured;
  std::vector<mlir::Value> capturedTensors;
  std::vector<Tensor> tensors;
};

/// Bodies by their operation.
using Bodies = llvm::DenseMap<mlir::Operation *, std::unique_ptr<Body>>;

/// The body of an operation, which is made once.
mlir::FailureOr<Body *> bodyOf(mlir::Operation *op, mlir::Block &block,
                               Bodies &bodies, Failure &failure);

/// Computes the results of any of linalg's operations with one body.
mlir::LogicalResult runLinalg(mlir::linalg::LinalgOp op, Bodies &bodies,
                              Scope &scope, Failure &failure,
                              llvm::SmallVectorImpl<Tensor> &results);

} // namespace fa::run::interpreter

#endif // FA_LIB_RUN_INTERPRETER_BODY_H
