// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Compiler.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <stdexcept>

using namespace fa::python;

static std::atomic<bool> isReady{false};

std::string Compiler::path() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(&Compiler::path), &info) ||
      !info.dli_fname)
    return "libfa.so";
  std::string module = info.dli_fname;
  return module.substr(0, module.rfind('/') + 1) + "libfa.so";
}

bool Compiler::isLoaded() { return isReady.load(std::memory_order_acquire); }

static void open(Compiler &compiler) {
  std::string path = Compiler::path();
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error(std::string("cannot open the compiler: ") +
                             dlerror() + "; install fa anew");
#define FA_PYTHON_RESOLVE(name)                                                \
  compiler.name =                                                              \
      reinterpret_cast<decltype(compiler.name)>(dlsym(library, #name));        \
  if (!compiler.name)                                                          \
    throw std::runtime_error(path + " has no function " #name                  \
                                    "; install fa anew");
  FA_PYTHON_COMPILER(FA_PYTHON_RESOLVE)
#undef FA_PYTHON_RESOLVE
  if (std::strcmp(compiler.fa_version(), FA_VERSION) != 0)
    throw std::runtime_error(path + " is of version " + compiler.fa_version() +
                             ", expected " FA_VERSION "; install fa anew");
}

const Compiler &Compiler::get() {
  static Compiler compiler;
  static std::mutex mutex;
  if (isLoaded())
    return compiler;
  std::lock_guard<std::mutex> lock(mutex);
  if (!isLoaded()) {
    open(compiler);
    isReady.store(true, std::memory_order_release);
  }
  return compiler;
}
