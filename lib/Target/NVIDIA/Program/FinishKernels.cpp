// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-finish-kernels.

#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace fa {
#define GEN_PASS_DEF_FINISHKERNELSPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

namespace {
struct FinishKernels : public fa::impl::FinishKernelsPassBase<FinishKernels> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<LLVM::LLVMFuncOp>()) {
      Builder b(func.getContext());
      // One block on a multiprocessor is enough: the assembler may take the
      // registers it needs instead of spilling for more blocks. And setmaxnreg
      // counts on knowing the registers at entry.
      if (func->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
        func->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                      b.getI32IntegerAttr(1));
      auto first = func->getAttrOfType<IntegerAttr>("fa.first_map");
      if (!first)
        continue;
      func->removeAttr("fa.first_map");
      // The size and alignment that the driver gives a tensor map.
      auto map = LLVM::LLVMArrayType::get(b.getI8Type(), 128);
      for (unsigned i = first.getInt(); i < func.getNumArguments(); ++i) {
        func.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                        TypeAttr::get(map));
        func.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                        b.getI64IntegerAttr(64));
        func.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(),
                        b.getUnitAttr());
      }
    }
  }
};
} // namespace
