// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements that a thread takes, where no thread holds a tile.

#ifndef LIB_CONVERSION_TILESTOTHREADS_ELEMENTS_H
#define LIB_CONVERSION_TILESTOTHREADS_ELEMENTS_H

#include "KernelEmitter.h"

#include <vector>

namespace fa::nvidia {

/// Of the elements of a row that begin at a column, those that a thread takes:
/// their places, and what has been computed of them. Or one of a vector along
/// rows, without a column, with what the thread takes of its row.
struct KernelEmitter::Elements {
  mlir::Value row, col;
  unsigned width = 1;
  /// The lanes that share the row, and what this one takes of it.
  unsigned lanes = 1;
  std::vector<Elements> parts;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> known;
};

/// The tiles and vectors of memory that a value is computed of.
void collectLoaded(mlir::Value v, const BlockView &view,
                   llvm::SmallVectorImpl<mlir::Value> &loaded);

} // namespace fa::nvidia

#endif // LIB_CONVERSION_TILESTOTHREADS_ELEMENTS_H
