// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_LIB_RUN_INPUTS_H
#define FA_LIB_RUN_INPUTS_H

#include "fa/Run/Run.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fa {
class AttentionOp;
namespace run {

/// Tensors that own their memory.
class TensorStore {
public:
  cpu::TensorRef allocate(cpu::DType dtype, std::vector<int64_t> shape,
                          const std::string &layout = "bhsd");

private:
  std::vector<std::vector<char>> memory;
};

/// The sizes of attention that flops and checks need.
struct Problem {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, headDim = 0,
          valueDim = 0;
  /// Five products, of which the forward has two.
  bool backward = false;
  double flops() const {
    int64_t dims = backward ? 3 * headDim + 2 * valueDim : headDim + valueDim;
    return 2.0 * batch * heads * queries * keys * dims;
  }
};

/// Makes the function's inputs: shapes from the options, values by the seed.
/// `attention` may be null.
llvm::Expected<std::vector<cpu::TensorRef>>
makeInputs(mlir::func::FuncOp function, AttentionOp attention,
           const Options &options, TensorStore &store, Problem &problem);

/// A tensor of normal values, for the gradient of a result; `number` is its
/// place among the arguments.
cpu::TensorRef makeNormal(cpu::DType dtype, std::vector<int64_t> shape,
                          unsigned number, const Options &options,
                          TensorStore &store);

/// The element type of tensors that run, if it has one.
std::optional<cpu::DType> dtypeOf(mlir::Type type);

llvm::Error runError(const std::string &message);

} // namespace run
} // namespace fa

#endif // FA_LIB_RUN_INPUTS_H
