// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's fatal errors as errors of ours.

#ifndef FA_TARGET_FATALERRORS_H
#define FA_TARGET_FATALERRORS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llvm {
class LLVMContext;
} // namespace llvm

namespace fa {

/// Runs `work`, which has LLVM generate code. A fatal error of LLVM's, which
/// would end the process, ends `work` instead and is returned. No destructor of
/// `work`'s runs then: what it has made is lost, and what it had in hand must
/// not be touched again, not even freed.
///
/// Only what LLVM itself reports is caught, by its error handlers and on this
/// thread. No signal handler is installed: signals are the process's, which may
/// be a Python interpreter with its own.
llvm::Error catchFatalErrors(llvm::function_ref<void()> work);

/// Collects the errors that LLVM reports as diagnostics of `context`, which
/// would end the process, in `errors`.
void collectDiagnostics(llvm::LLVMContext &context,
                        std::shared_ptr<std::string> errors);

} // namespace fa

#endif // FA_TARGET_FATALERRORS_H
