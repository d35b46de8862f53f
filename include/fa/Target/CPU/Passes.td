// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_CPU_PASSES
#define FA_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

def CPUTrimPaddingPass : Pass<"fa-cpu-trim-padding", "::mlir::func::FuncOp"> {
  let summary = "rows that only make a tile full are not computed";
  let description = [{
    Takes back the padding of a tile's dimension where nothing needs it: where
    every value that shares the dimension is made for the tile, every op runs
    over it in parallel, and all that leaves the tile is the part that was not
    padding. These values then have a dynamic size, that of what was padded.
    Matrix instructions want whole tiles; a loop over rows does not, and one
    query is one row rather than a tile of them.

    Dimensions that something reduces keep their padding (keys), and so does
    one that meets a value from elsewhere.

    Before:
    ```mlir
    %q = tensor.pad %slice high[%p, 0] : tensor<?x64xf32> to tensor<16x64xf32>
    %s = linalg.generic ... outs(%e : tensor<16x128xf32>)
    %r = tensor.extract_slice %o[0, 0] [%n, 64] [1, 1]
    ```
    After:
    ```mlir
    %s = linalg.generic ... ins(%slice : tensor<?x64xf32>, ...)
                            outs(%e : tensor<?x128xf32>)
    ```
    Numeric contract: bit-identical.
  }];
  let dependentDialects = [
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def CPUPreparePass : Pass<"fa-cpu-prepare", "::mlir::func::FuncOp"> {
  let summary = "tensor program -> one that bufferizes without copies";
  let description = [{
    Rewrites that decide where values live, while they are still values:

    - ops with an aggregate definition (`fa.online_softmax`) become `linalg`, and
      `fa.random_bits` arithmetic;
    - results become writable destination arguments at the end of the argument
      list, so the caller owns all memory that outlives the call;
    - `tensor.pad` becomes an insertion into a fresh tensor that is filled with
      the padding;
    - an elementwise op writes into its last-used operand where it can;
    - a value that a loop carries is written back to where it came from.

    Before:
    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      ...
      return %y : tensor<4xf32>
    ```
    After:
    ```mlir
    func.func @f(%x: tensor<4xf32>, %out: memref<4xf32, strided<[?], offset: ?>>) {
      ...
      bufferization.materialize_in_destination %y in restrict writable %out
      return
    ```
    Numeric contract: bit-identical.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
  let options = [
    Option<"unitInnerStride", "unit-inner-stride", "bool", "true",
           "tensors have unit stride in their last dimension">
  ];
}

def CPUBufferizePass : Pass<"fa-cpu-bufferize", "::mlir::ModuleOp"> {
  let summary = "tensors -> buffers with dynamic strides at the boundary";
  let description = [{
    Upstream's one-shot bufferization with function arguments of dynamic
    strides and offset, so a strided input needs no copy, and copies as
    `linalg.copy`, so they are vectorised like everything else. A padded tile
    of an argument that nothing writes to is read where it lies if it turns out
    to be whole.

    Before: `func.func @f(%q: tensor<?x64xf32>)`. After:
    `func.func @f(%q: memref<?x64xf32, strided<[?, 1], offset: ?>>)`.
    Numeric contract: bit-identical.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect",
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
  let options = [
    Option<"unitInnerStride", "unit-inner-stride", "bool", "true",
           "tensors have unit stride in their last dimension">
  ];
}

def ScheduleCPUPass : Pass<"fa-schedule-cpu", "::mlir::func::FuncOp"> {
  let summary = "linalg on buffers -> loops over native vectors";
  let description = [{
    Every `linalg` op becomes loops over native vectors, chosen by structure:

    - a contraction (two parallel loops, one reduction, multiply and add)
      becomes a register-tiled kernel: `rows` x 2 vectors of accumulators,
      fewer rows with more vectors at the end, the right operand packed into
      panels where its rows run along the reduction, once for a loop around
      that does not change it, edges by masked vectors; the sums of a fresh
      result that was filled with zeros start there;
      with at most 16 rows it is not worth a copy: where the right operand's
      rows run along the reduction, sums of 16 products of rows are
      accumulated side by side and reduced together;
    - any other op is vectorised along its last loop if each operand is
      contiguous or constant along it and the body consists of elementwise
      ops; the end of a row by a masked vector. A row reduction accumulates a
      vector and reduces it once. Of what the body reads at places of its own,
      those that are neighbours from lane to lane are one vector;
    - anything else becomes scalar loops.

    Before:
    ```mlir
    linalg.generic {... exp ...} ins(%s : memref<128x64xf32>) outs(...)
    ```
    After:
    ```mlir
    scf.for %i ... { scf.for %j ... step 16 {
      %x = vector.load %s[%i, %j] : memref<128x64xf32>, vector<16xf32>
      %y = math.exp %x : vector<16xf32>
    ```
    Numeric contract: sums are reassociated.
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"
  ];
  let options = [
    Option<"vectorBits", "vector-bits", "unsigned", "256",
           "bits of a vector register: 128, 256 or 512">,
    Option<"rows", "rows", "unsigned", "0",
           "rows of the contraction kernel, 0: from the registers">
  ];
}

def CPUParallelizePass : Pass<"fa-cpu-parallelize", "::mlir::ModuleOp"> {
  let summary = "outermost scf.forall -> a function that threads call";
  let description = [{
    The body of each outermost `scf.forall` becomes a function over a range of
    the linearised iteration space; in its place stands a call to the host's
    `fa_cpu_parallel_for(function, context, count)`, which hands out ranges to
    threads. Inner `scf.forall`s become loops. Memory comes from the calling
    thread's arena: `fa_cpu_mark` and `fa_cpu_release` around each iteration
    make an allocation in a loop the bump of a pointer.

    Before:
    ```mlir
    scf.forall (%b, %h) in (%B, 8) { use %b, %h, %x }
    ```
    After:
    ```mlir
    func.func private @f_range0(%context: !llvm.ptr, %begin: i64, %end: i64)
    ...
    func.call @fa_cpu_parallel_for(%function, %context, %count)
    ```
    Numeric contract: bit-identical.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect"
  ];
}

def CPUExpandMathPass : Pass<"fa-cpu-expand-math", "::mlir::func::FuncOp"> {
  let summary = "math functions -> polynomials; 16-bit conversions -> integers";
  let description = [{
    f32 `math.exp` and `math.exp2` become a degree-6 polynomial and an exponent
    (relative error below 3e-7; NaN stays NaN, results below 2^-126 are 0), the
    other functions upstream's approximations; `arith.maxnumf` a comparison;
    bf16 conversions shifts with rounding to nearest even unless the CPU has
    them (`native-bf16`).

    Before: `math.exp %x : vector<16xf32>`. After: 14 `arith` and `math.fma` ops.
    Numeric contract: approximate, within 3e-7 relative.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::vector::VectorDialect"
  ];
  let options = [
    Option<"nativeBF16", "native-bf16", "bool", "false",
           "the CPU converts between bf16 and f32">
  ];
}

def ReferencePass : Pass<"fa-reference", "::mlir::func::FuncOp"> {
  let summary = "fa.attention -> plain loops in float64";
  let description = [{
    The definition of `fa.attention` as loops over one row at a time, written
    independently of every other pass: scores of a row, their maximum, the
    exponentials and their sum, the weighted sum of the values. With
    `precision=f64` every float of the score and mask regions is widened and
    the results are f64 tensors. With `precision=same` it is the naive formula
    in the inputs' own type: scores and weights rounded to it, sums in f32.
    Masked scores are not computed, and values of weight 0 are not added, even
    if they are not finite.

    Before: `%o = fa.attention %q, %k, %v`. After: `scf.forall (b, h, i)` around
    three `scf.for` over the keys; memory O(Sk) per thread.
    Numeric contract: defines what right means.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
  let options = [
    Option<"precision", "precision", "std::string", "\"f64\"",
           "f64, or same: the inputs' type">
  ];
}

#endif // FA_TARGET_CPU_PASSES
