// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled function on tensors.

#ifndef FA_TARGET_CPU_PROGRAM_H
#define FA_TARGET_CPU_PROGRAM_H

#include "fa/Target/CPU/TensorRef.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace fa {
namespace cpu {

/// What a run had no memory for.
struct Shortage {
  /// Of the temporary; of all others; and the most that there may be.
  uint64_t bytes = 0, held = 0, limit = 0;
};

/// A run that could not have its temporaries. Its results are undefined.
class OutOfMemoryError : public llvm::ErrorInfo<OutOfMemoryError> {
public:
  explicit OutOfMemoryError(Shortage shortage) : shortage(shortage) {}
  void log(llvm::raw_ostream &os) const override;
  std::error_code convertToErrorCode() const override;
  static char ID;

private:
  Shortage shortage;
};

/// This machine, as its machine code depends on it: LLVM's version, the
/// processor, its features.
llvm::Expected<std::string> hostName();

struct CompileOptions {
  /// The function to compile; empty: the module's only public one.
  std::string function;
  /// 0: this machine's; else 128, 256 or 512.
  unsigned vectorBits = 0;
  /// LLVM's -O level, 0 to 3. 0 compiles in a third of the time of 3, to slower
  /// code.
  unsigned optimize = 3;
};

struct RunOptions {
  /// 0: as many as the machine has.
  unsigned threads = 0;
};

struct RunStatistics {
  /// Most bytes of temporaries at one time, over all threads.
  int64_t peakTemporaryBytes = 0;
};

/// A function on tensors, compiled for this machine. `run` may be called from
/// several threads at once.
class Program {
public:
  /// Compiles a function of the module, which stays as it is. Takes any stage's
  /// IR except one that still contains `fa.attention`.
  static llvm::Expected<std::unique_ptr<Program>>
  compile(mlir::ModuleOp module, const CompileOptions &options = {});
  ~Program();

  /// The program as bytes for `load`: its interface, IR and machine code.
  llvm::Expected<std::string> save() const;
  /// A program that was saved by the same fa on a machine with the same
  /// `hostName`; fails where it was another, and where bytes were damaged. The
  /// bytes are code that `run` executes.
  static llvm::Expected<std::unique_ptr<Program>> load(llvm::StringRef bytes);

  /// Runs with the tensors of the arguments and of the results, in that order.
  /// Inputs may have any strides; nothing is copied. Types and shapes are
  /// checked against the function's. Fails with OutOfMemoryError where there is
  /// no memory for temporaries.
  llvm::Error run(llvm::ArrayRef<TensorRef> tensors,
                  const RunOptions &options = {},
                  RunStatistics *statistics = nullptr);

  unsigned getNumInputs() const;
  unsigned getNumResults() const;
  /// The shapes of the results for these inputs. Fails where they depend on
  /// more than the inputs' shapes.
  llvm::Expected<std::vector<TensorRef>>
  resultShapes(llvm::ArrayRef<TensorRef> inputs) const;

private:
  struct Impl;
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace cpu
} // namespace fa

#endif // FA_TARGET_CPU_PROGRAM_H
