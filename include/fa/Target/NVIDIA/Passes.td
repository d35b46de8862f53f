// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_NVIDIA_PASSES
#define FA_TARGET_NVIDIA_PASSES

include "mlir/Pass/PassBase.td"

def ScheduleAmperePass : Pass<"fa-schedule-ampere", "::mlir::ModuleOp"> {
  let summary = "where the tiles of a block live, for the tensor cores of sm_80 and later";
  let description = [{
    Says of each outermost `scf.forall` of a function that no schedule has taken
    yet how many warps a block has and where its tiles live, as encodings of their
    types (the `nvidia` dialect); the program stays as it is:

    - an operand of a contraction that is loaded from global memory goes to
      shared memory; in a loop it gets a ring of stages;
    - a contraction's result has the accumulator layout of mma.m16n8k16, its
      first operand is taken from registers where it was computed by the warps
      that want it, else it goes through shared memory (`nvidia.convert_layout`);
    - what is computed element by element of a tile has its layout; rows that are
      reduced, and what meets vectors then, are whole in a warp;
    - of the ways to divide tiles among warps that with the least traffic in
      shared memory is taken, and registers are estimated.

    Numeric contract: exact (nothing is computed otherwise; softmax's steps that
    are operations of `fa` still are expanded).
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_80\"",
           "the target: a row of the target table">,
    Option<"stages", "stages", "unsigned", "0",
           "stages of a ring of tiles in shared memory; 0: two, or one where "
           "registers are short or two blocks share a multiprocessor then">,
    Option<"warps", "warps", "unsigned", "0",
           "warps in a block; 0: chosen from the tile and the registers">,
    Option<"hoistRegisters", "hoist-registers", "unsigned", "224",
           "loop-invariant fragments stay in registers while the estimate of "
           "registers a thread is at most this">,
    Option<"inTurn", "in-turn", "int", "-1",
           "a ring's stage is filled again once its tile is read (1), or all "
           "tiles of an iteration together in the next one (0); -1 to choose">
  ];
  let dependentDialects = [
    "::fa::nvidia::NVIDIADialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def HopperPlacePass : Pass<"fa-hopper-place", "::mlir::ModuleOp"> {
  let summary = "tile programs of any contractions as roles, rings and wgmma";
  let description = [{
    Rewrites each outermost `scf.forall` into the `hopper` dialect by rules that
    know no program: what loads the tiles that contractions read is the
    producer, all else the consumers; each loaded tile is one slot of a ring of
    its own, held from before the first product that reads it to behind the
    last; computed first operands stay in registers; blocks take tiles from a
    queue. Every product is awaited where it is started, and nothing overlaps
    but loads.

    Sums of rows that a loop carries stay partial in each thread until after the
    loop, or are made by the tensor cores; branches on rows are taken by warps; a
    16-bit result leaves through shared memory by TMA; where half of a block's
    registers and memory do for a tile, a block works on two.

    What the rules do not take (operands of 32 bits, results of other rows, more
    than shared memory holds) stays as it is, with a remark that says why; the
    Ampere schedule takes it. A block without contractions stays without a
    remark. An option that asks for what cannot be is an error.

    Numeric contract: reassociated (sums follow the tensor cores' order).
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_90a\"", "the target">,
    Option<"stages", "stages", "int", "-1",
           "stages of the rings of tiles that loops load, or -1 to choose">,
    Option<"persistent", "persistent", "int", "-1",
           "blocks take tiles from a queue: 0, 1, or -1 to choose">,
    Option<"stageStores", "stage-stores", "int", "-1",
           "panels of 64 columns of the result that go through shared memory and "
           "TMA at a time, 0: none, or -1 to choose">,
    Option<"ones", "ones", "int", "-1",
           "sums of rows on the tensor cores: 0, 1, or -1 to choose">,
    Option<"pingPong", "ping-pong", "int", "-1",
           "warpgroups take turns: 0, 1, or -1 to choose">,
    Option<"heads", "heads", "int64_t", "-1",
           "heads that blocks work on together where tiles differ in length, "
           "or -1 to choose">,
    Option<"teams", "teams", "int64_t", "-1",
           "tiles that a block works on at the same time, or -1 to choose">,
    Option<"spare", "spare", "int64_t", "-1",
           "registers a thread for what is no tile, or -1 to choose: with fewer "
           "more products start at once, and more is computed under them">,
    Option<"companions", "companions", "int", "-1",
           "vectors fill and empty with a tile that is held while they are "
           "read: 0 or 1; -1: where that was measured to be faster">,
    Option<"carriedFirst", "carried-first", "int", "-1",
           "products of the iteration before come first: 0, 1, or -1 to choose">
  ];
  let dependentDialects = [
    "::fa::hopper::HopperDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def HopperLayoutsPass : Pass<"fa-hopper-layouts", "::mlir::ModuleOp"> {
  let summary = "where the tiles of a scheduled block live, on sm_90a";
  let description = [{
    Says of each `scf.forall` with roles which part of each tile its warpgroups'
    threads hold, as encodings of the tiles' types, and how much shared memory its
    rings take (the `nvidia` dialect). What consumers find in a ring is no longer
    computed by them.

    Numeric contract: exact.
  }];
  let dependentDialects = [
    "::fa::nvidia::NVIDIADialect", "::mlir::tensor::TensorDialect"
  ];
}

def TilesToThreadsPass : Pass<"fa-tiles-to-threads", "::mlir::ModuleOp"> {
  let summary = "tile programs whose tiles have layouts, as kernels";
  let description = [{
    Outlines each outermost `scf.forall` into a kernel: the program of one thread,
    which has the registers of each tile that the tile's layout gives it.

    - tiles in shared memory come by cp.async, swizzled, rings ahead of their
      loops; the operations of the `hopper` dialect become mbarriers, TMA and
      wgmma;
    - mma.sync's operands are read by ldmatrix, or are registers already;
    - elementwise operations are cloned for each register, coordinates come from
      the same layout; row reductions end with two shuffles in the quad;
    - tiles carried by loops are registers carried by loops.

    The result is a `gpu.module` whose attribute `fa.program` lists the lines
    that describe arguments and launches; the PTX begins with them. A tile without
    a layout, or with one that its users do not take, is an error.

    Numeric contract: reassociated (sums follow the tensor cores' order).
  }];
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

def FinishKernelsPass : Pass<"fa-finish-kernels", "::mlir::gpu::GPUModuleOp"> {
  let summary = "attributes of kernels that are functions of the LLVM dialect";
  let description = [{
    Tensor maps are parameters by value that stay in constant memory; no kernel
    asks for more than one block on a multiprocessor.
  }];
}

def NormalizeCoordinatesPass : Pass<"fa-normalize-coordinates", "::mlir::gpu::GPUModuleOp"> {
  let summary = "what elements compute of their coordinates, in one operation";
  let description = [{
    A mask compares coordinates that are sums of something common to a thread's
    elements and a constant of each element. With the constants on one side the
    rest is computed once, and an element takes one comparison with an
    immediate. A score that reads coordinates as floats takes one addition an
    element of what is converted once, or one fma where it multiplies them.

    Numeric contract: exact (coordinates and their differences fit 32 bits), but
    for floats: sums from 2^24 on are rounded once more, and products of
    coordinates are rounded part by part.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"
  ];
}

def LowerKernelMathPass : Pass<"fa-lower-kernel-math", "::mlir::gpu::GPUModuleOp"> {
  let summary = "math as instructions of the GPU, or a diagnostic";
  let description = [{
    exp2, exp, log, log2, rsqrt and division become the approximate
    instructions (ex2, lg2, div.full, rsqrt) and short formulas over them, and so does
    a tanh with `fastmath<afn>`, as blocks that have 16-bit numbers get it; what
    has neither is expanded as a polynomial. A reciprocal, a division with
    `fastmath<arcp>` and a logarithm with `afn` take denormal numbers for 0. Angles
    are reduced exactly, and remainders are exact. An operation that cannot be lowered is
    an error here, because later it would end the process. Constant factors,
    one after the other, become one, and so does a factor of a linear form: the
    scale of scores, a cap and tanh's own constants.

    Numeric contract: approximate, within 2e-6 relative (tanh with afn: absolute).
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::vector::VectorDialect", "::mlir::scf::SCFDialect"
  ];
}

def EmitPTXPass : Pass<"fa-emit-ptx", "::mlir::ModuleOp"> {
  let summary = "the kernels of a module as PTX text";
  let description = [{
    Translates the module's `gpu.module` to LLVM IR and PTX, writes it to
    `output` (`-` is the standard output), and leaves the module as it is.
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_80\"", "the target">,
    Option<"output", "output", "std::string", "\"-\"", "file to write">,
    Option<"printLLVM", "print-llvm", "bool", "false",
           "write LLVM IR instead of PTX">
  ];
}

#endif // FA_TARGET_NVIDIA_PASSES
