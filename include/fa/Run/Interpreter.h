// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a function whose blocks have the roles of the hopper dialect, on the CPU
// and as unkindly as the dialect allows: producer and warpgroups advance in any
// order, loads arrive late, products end late. A race is an error, and what
// nobody has computed is NaN.

#ifndef FA_RUN_INTERPRETER_H
#define FA_RUN_INTERPRETER_H

#include "fa/Target/CPU/TensorRef.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace fa {
namespace run {

struct InterpreterOptions {
  /// Of all that is left to chance.
  uint64_t seed = 0;
  /// Without it the order is the same for all seeds: loads arrive and products
  /// end at once.
  bool adversarial = true;
  /// Whether `hopper.exceeds` is true where no element of the warpgroup
  /// exceeds the limit: on a GPU another row of the warp may. Results may then
  /// differ in their last bits.
  enum class Rare { Never, Random, Always } rare = Rare::Random;
};

/// Whether a function has blocks with roles.
bool hasRoles(mlir::func::FuncOp function);

/// Runs the function on tensors of its arguments, in order. `allocate` gives
/// memory for a result of a type and shape. An error names the operation and
/// its location: one that is not known, a slice outside of its tensor, a stage
/// that is given back or changes while a product reads it, a result that is not
/// waited for, a block in which nobody can go on (with what each role waits
/// for), loads that nobody takes.
llvm::Expected<std::vector<cpu::TensorRef>>
interpret(mlir::func::FuncOp function, llvm::ArrayRef<cpu::TensorRef> inputs,
          llvm::function_ref<cpu::TensorRef(cpu::DType, std::vector<int64_t>)>
              allocate,
          const InterpreterOptions &options = {});

/// The same, into tensors of the results' types and shapes.
llvm::Error interpret(mlir::func::FuncOp function,
                      llvm::ArrayRef<cpu::TensorRef> inputs,
                      llvm::ArrayRef<cpu::TensorRef> results,
                      const InterpreterOptions &options = {});

} // namespace run
} // namespace fa

#endif // FA_RUN_INTERPRETER_H
