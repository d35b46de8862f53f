// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_CPU_PASSES
#define FA_TARGET_CPU_PASSES

include "mlir/Pass/PassBase.td"

def CPUTrimPaddingPass : Pass<"fa-cpu-trim-padding", "::mlir::func::FuncOp"> {
  let summary = "compute no rows that only pad a tile";
  let description = [{
    Takes back the padding of a tile's dimension if nothing needs it: every
    value that shares the dimension is made for the tile, every op runs over it
    in parallel, and only the part that was no padding leaves the tile. These
    values then have a dynamic size, that of the unpadded value. Matrix
    instructions want whole tiles. A loop over rows does not, and one query is
    one row rather than a tile of them.

    A dimension that some op reduces keeps its padding (keys), and so does one
    that meets a value from elsewhere.

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
  let summary = "prepare a tensor program to bufferize without copies";
  let description = [{
    Rewrites that decide where values live in memory, before bufferization:

    - ops with an aggregate definition (`fa.online_softmax`) become `linalg`,
      and `fa.random_bits` becomes arithmetic;
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
  let summary = "bufferize tensors, with dynamic strides at the boundary";
  let description = [{
    Upstream's one-shot bufferization. Function arguments have dynamic strides
    and offsets, so a strided input needs no copy. Copies are `linalg.copy`, so
    they are vectorised like everything else. A padded tile of an argument that
    nothing writes to is read in place if it turns out to be whole.

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
  let summary = "lower linalg on buffers to loops over native vectors";
  let description = [{
    Every `linalg` op becomes loops over native vectors. Its structure decides
    which:

    - A contraction (two parallel loops, one reduction, multiply and add)
      becomes a register-tiled kernel with `rows` x 2 vectors of accumulators.
      The last rows use fewer rows with more vectors. The right operand is
      packed into panels if its rows run along the reduction, once for an
      enclosing loop that does not change it. Masked vectors handle the edges.
      If the result is fresh and filled with zeros, its sums start there. With
      at most 16 rows a copy does not pay off: if the right operand's rows run
      along the reduction, the kernel accumulates sums of 16 products of rows
      side by side and reduces them together.
    - Any other op is vectorised along its last loop if each operand is
      contiguous or constant along it and the body consists of elementwise ops.
      A masked vector handles the end of a row. A row reduction accumulates a
      vector and reduces it once. If the body reads at indices of its own,
      indices that are neighbours from lane to lane become one vector.
    - Anything else becomes scalar loops.

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
    Numeric contract: reassociated (sums).
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
           "rows of the contraction kernel, 0 to choose by the registers">
  ];
}

def CPUParallelizePass : Pass<"fa-cpu-parallelize", "::mlir::ModuleOp"> {
  let summary = "outline the outermost scf.forall into a function for threads";
  let description = [{
    The body of each outermost `scf.forall` becomes a function over a range of
    the linearised iteration space. A call to the host's
    `fa_cpu_parallel_for(function, context, count)`, which hands out ranges to
    threads, replaces it. Inner `scf.forall`s become loops. Memory comes from
    the calling thread's arena. `fa_cpu_mark` and `fa_cpu_release` around each
    iteration make an allocation in a loop the bump of a pointer.

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
  let summary = "expand math functions to polynomials, and bf16 conversions";
  let description = [{
    `math.exp` and `math.exp2` become a polynomial and an exponent. In f32 the
    polynomial has degree 6 (relative error below 3e-7), in f64 degree 13. NaN
    stays NaN, and results below the smallest normal number (2^-126 in f32) are
    0. `math.log` and `math.log2` have expansions of their own; other functions
    become upstream's approximations. `arith.maxnumf` becomes a comparison, and
    an integer division one that traps on no operands. bf16 conversions become
    shifts with rounding to nearest even, unless the CPU has them
    (`native-bf16`).

    Before: `math.exp %x : vector<16xf32>`. After: 14 `arith` and `math.fma`
    ops.
    Numeric contract: approximate, within 3e-7 relative in f32.
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
  let summary = "define fa.attention by plain loops in float64";
  let description = [{
    The definition of `fa.attention` as loops over one row at a time, written
    independently of every other pass: scores of a row, their maximum, the
    exponentials and their sum, the weighted sum of the values. With
    `precision=f64` every float of the score and mask regions is widened, and
    the results are f64 tensors. With `precision=same` it is the naive formula
    in the inputs' own type: scores and weights are rounded to it, sums are in
    f32. Masked scores are not computed. Values of weight 0 are not added, even
    if they are not finite.

    Before: `%o = fa.attention %q, %k, %v`. After: `scf.forall (b, h, i)` around
    three `scf.for` over the keys; memory O(Sk) per thread.
    Numeric contract: defines the right result.
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
