// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// HBM traffic and temporary memory of a function, from its IR.

#ifndef FA_ANALYSIS_IOMODEL_H
#define FA_ANALYSIS_IOMODEL_H

#include "fa/Analysis/Polynomial.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace fa {

struct IOOptions {
  /// Values of dynamic sizes by name: B, Sq, Sk.
  llvm::StringMap<int64_t> shape;
  /// A fill that only starts an accumulation costs nothing, as in a kernel that
  /// starts from registers. Otherwise it is written and read as the IR says.
  bool foldFills = false;
};

/// Bytes read and written.
struct IOReport {
  /// `temp` is the sum of all temporaries, each in its own memory.
  Polynomial read, write, temp;
  /// The polynomials are upper bounds: a loop's bounds depend on a mask.
  bool isUpperBound = false;
  /// Numbers, where every size is known. Bounds that depend on a mask are
  /// evaluated for each block.
  std::optional<int64_t> readBytes, writeBytes, tempBytes;
  /// The numbers are upper bounds: a bound is read from memory.
  bool bytesAreUpperBound = false;
};

/// Counts by these rules:
/// - Function arguments and results are in HBM, and so is what is computed
///   outside tile loops. An `scf.for` is a tile loop, an `scf.forall` is one
///   where a step is not 1 (rows are one of its dimensions).
/// - Outside tile loops, an op reads its inputs, and its init where its body
///   uses it, and writes its results; slices are views.
/// - Inside, a slice of a tensor in HBM is read once for each step of the
///   loops around it, and a slice inserted into one is written; everything
///   else is on chip. A tensor that loops carry is in HBM where they slice it.
/// - `tensor.extract` in a body reads each element that its indices can mean
///   once in each execution of the op.
///
/// Sizes are named by tracing them to the first three arguments of rank 4,
/// q [B,Hq,Sq,D], k [B,Hk,Sk,D] and v [B,Hk,Sk,Dv], or fa.attention's operands.
/// A size that can't be traced is printed as its number, or as "?".
IOReport computeIO(mlir::func::FuncOp func, const IOOptions &options = {});

} // namespace fa

#endif // FA_ANALYSIS_IOMODEL_H
