// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_LLVMPASSES_H
#define FA_TARGET_LLVMPASSES_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace llvm {
class Module;
class PassBuilder;
class TargetMachine;
} // namespace llvm

namespace fa {

/// Runs LLVM's passes, as text for `opt -passes=`, on a module. `configure` may
/// teach the builder names that it does not know. Fails where the text is
/// wrong.
llvm::Error runLLVMPasses(
    llvm::Module &module, llvm::TargetMachine &machine, llvm::StringRef passes,
    llvm::function_ref<void(llvm::PassBuilder &)> configure = nullptr);

} // namespace fa

#endif // FA_TARGET_LLVMPASSES_H
