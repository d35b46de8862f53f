// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/FatalErrors.h"

#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"

#include <csetjmp>
#include <cstring>
#include <mutex>

using namespace fa;

namespace {
/// Where a thread goes on after a fatal error. Plain memory: no memory may be
/// left when it is written.
struct Rescue {
  std::jmp_buf place;
  char message[1024];
};
thread_local Rescue *rescue = nullptr;

/// LLVM's handlers are one for the process: installed while any thread works.
std::mutex handlersMutex;
unsigned users = 0;
} // namespace

/// LLVM calls this on the thread that failed; returning ends the process.
static void handleFatalError(void *, const char *reason, bool) {
  if (!rescue) {
    // Another library's use of the same LLVM: what it would have printed.
    llvm::errs() << "LLVM ERROR: " << reason << "\n";
    return;
  }
  std::strncpy(rescue->message, reason, sizeof(rescue->message) - 1);
  std::longjmp(rescue->place, 1);
}

namespace {
class Handlers {
public:
  Handlers() {
    std::lock_guard<std::mutex> lock(handlersMutex);
    if (users++)
      return;
    llvm::install_fatal_error_handler(handleFatalError);
    llvm::install_bad_alloc_error_handler(handleFatalError);
  }
  ~Handlers() {
    std::lock_guard<std::mutex> lock(handlersMutex);
    if (--users)
      return;
    llvm::remove_fatal_error_handler();
    llvm::remove_bad_alloc_error_handler();
  }
};
} // namespace

/// Whether `work` came to its end. Apart: nothing here has a destructor.
static bool runRescued(llvm::function_ref<void()> work, Rescue &own) {
  Rescue *before = rescue;
  rescue = &own;
  // volatile: read after a jump back.
  Rescue *volatile outer = before;
  bool completed = setjmp(own.place) == 0;
  if (completed)
    work();
  rescue = outer;
  return completed;
}

llvm::Error fa::catchFatalErrors(llvm::function_ref<void()> work) {
  Handlers handlers;
  Rescue own = {};
  if (runRescued(work, own))
    return llvm::Error::success();
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s",
                                 own.message);
}

namespace {
struct Diagnostics : llvm::DiagnosticHandler {
  explicit Diagnostics(std::shared_ptr<std::string> errors)
      : errors(std::move(errors)) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream os(*errors);
    if (!errors->empty())
      os << "; ";
    llvm::DiagnosticPrinterRawOStream printer(os);
    info.print(printer);
    return true;
  }
  std::shared_ptr<std::string> errors;
};
} // namespace

void fa::collectDiagnostics(llvm::LLVMContext &context,
                            std::shared_ptr<std::string> errors) {
  context.setDiagnosticHandler(
      std::make_unique<Diagnostics>(std::move(errors)));
}
