// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Jit.h"

#include "Codegen.h"
#include "Runtime.h"

#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace fa::cpu;

JitModule::JitModule() = default;
JitModule::~JitModule() = default;

llvm::Expected<int64_t>
JitModule::invoke(Entry entry, const Descriptors &tensors, unsigned threads) {
  std::vector<void *> arguments(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    arguments[i] = const_cast<int64_t *>(tensors[i].data());
  return runWithThreads(threads, entry, arguments.data());
}

/// The functions that compiled code calls.
static llvm::Error defineRuntime(llvm::orc::LLJIT &jit) {
  llvm::orc::SymbolMap map;
  for (auto [name, address] : runtimeSymbols())
    map[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                      llvm::JITSymbolFlags::Exported};
  return jit.getMainJITDylib().define(
      llvm::orc::absoluteSymbols(std::move(map)));
}

llvm::Expected<std::unique_ptr<JitModule>>
JitModule::load(const MachineCode &code, llvm::StringRef function) {
  auto machine = hostMachine();
  if (!machine)
    return machine.takeError();
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(*machine))
                 .create();
  if (!jit)
    return jit.takeError();
  std::unique_ptr<JitModule> module(new JitModule());
  module->jit = std::move(*jit);
  if (llvm::Error error = defineRuntime(*module->jit))
    return std::move(error);
  if (llvm::Error error = module->jit->addObjectFile(
          llvm::MemoryBuffer::getMemBufferCopy(code.object, function)))
    return std::move(error);
  auto find = [&](llvm::StringRef name, Entry &entry) -> llvm::Error {
    auto found = module->jit->lookup(MachineCode::entryName(name));
    if (!found)
      return found.takeError();
    entry = found->toPtr<Entry>();
    return llvm::Error::success();
  };
  if (llvm::Error error = find(function, module->main))
    return std::move(error);
  if (code.hasShapes)
    if (llvm::Error error =
            find(MachineCode::shapesOf(function), module->shapes))
      return std::move(error);
  return module;
}
