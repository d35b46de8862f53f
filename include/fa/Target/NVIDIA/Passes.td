// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TARGET_NVIDIA_PASSES
#define FA_TARGET_NVIDIA_PASSES

include "mlir/Pass/PassBase.td"

def ScheduleAmperePass : Pass<"fa-schedule-ampere", "::mlir::ModuleOp"> {
  let summary = "choose warps and layouts for tensor cores of sm_80 and later";
  let description = [{
    Handles each outermost `scf.forall` of a function that has no schedule yet.
    It chooses the warps of a block and the layouts of its tiles, as encodings
    of their types (the `nvidia` dialect). The program stays as it is.

    - An operand of a contraction that is loaded from global memory goes to
      shared memory. In a loop it gets a ring of stages.
    - A contraction's result has the accumulator layout of mma.m16n8k16. Its
      first operand stays in registers if the warps that read it have computed
      it; else it goes through shared memory (`nvidia.convert_layout`).
    - An elementwise operation on a tile has the tile's layout. A warp holds
      whole rows if rows are reduced or meet vectors.
    - Of all ways to divide tiles among warps, the pass takes the one with the
      least traffic in shared memory, and estimates registers.

    Numeric contract: bit-identical (it also expands the steps of softmax that
    still are operations of `fa`).
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_80\"",
           "the target: a row of the target table">,
    Option<"stages", "stages", "unsigned", "0",
           "stages of a ring of tiles in shared memory; 0: two, or one if "
           "registers are short or two blocks share a multiprocessor then">,
    Option<"warps", "warps", "unsigned", "0",
           "warps in a block; 0: chosen from the tile and the registers">,
    Option<"hoistRegisters", "hoist-registers", "unsigned", "224",
           "loop-invariant fragments stay in registers while the estimate of "
           "registers a thread is at most this">,
    Option<"inTurn", "in-turn", "int", "-1",
           "refill a ring's stage once its tile is read (1), or all tiles of "
           "an iteration together in the next one (0); -1 to choose">
  ];
  let dependentDialects = [
    "::fa::nvidia::NVIDIADialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def HopperPlacePass : Pass<"fa-hopper-place", "::mlir::ModuleOp"> {
  let summary = "rewrite tile programs as roles, rings and wgmma";
  let description = [{
    Rewrites each outermost `scf.forall` into the `hopper` dialect, by rules
    that know no particular program:

    - The producer loads the tiles that contractions read. The consumers do all
      other work.
    - Each loaded tile is one slot of a ring of its own. The consumers hold it
      from before the first product that reads it to behind the last.
    - Computed first operands stay in registers.
    - Blocks are persistent and take tiles from a queue.
    - Every product is awaited where it starts, so only loads overlap.
    - Sums of rows that a loop carries stay partial in each thread until after
      the loop, or the tensor cores make them.
    - Warps take branches on rows.
    - A 16-bit result leaves through shared memory by TMA.
    - If half of a block's registers and memory are enough for a tile, a block
      works on two.

    The rules do not take operands of 32 bits, results with other row counts,
    or tiles that exceed shared memory. Such a program stays as it is, with a
    remark that gives the reason, and the Ampere schedule takes it. A block
    without contractions stays without a remark. An option that cannot be met is
    an error.

    Numeric contract: reassociated (sums follow the tensor cores' order).
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_90a\"", "the target">,
    Option<"stages", "stages", "int", "-1",
           "stages of the rings of tiles that loops load, or -1 to choose">,
    Option<"persistent", "persistent", "int", "-1",
           "blocks take tiles from a queue: 0, 1, or -1 to choose">,
    Option<"stageStores", "stage-stores", "int", "-1",
           "panels of 64 columns of the result that go through shared memory "
           "and TMA at a time, 0 for none, or -1 to choose">,
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
           "registers of a thread that stay free of tiles, or -1 to choose: "
           "with fewer, more products start at once, and more work runs under "
           "them">,
    Option<"companions", "companions", "int", "-1",
           "vectors fill and empty with a tile that is held while they are "
           "read: 0 or 1; -1: where measurements found it faster">,
    Option<"carriedFirst", "carried-first", "int", "-1",
           "start the previous iteration's products first: 0, 1, or -1">
  ];
  let dependentDialects = [
    "::fa::hopper::HopperDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect"
  ];
}

def HopperLayoutsPass : Pass<"fa-hopper-layouts", "::mlir::ModuleOp"> {
  let summary = "choose the layouts of a scheduled block's tiles on sm_90a";
  let description = [{
    Chooses, for each `scf.forall` with roles, the part of each tile that the
    threads of its warpgroups hold, as encodings of the tiles' types (the
    `nvidia` dialect). It also records how much shared memory the rings take.
    Operations whose results consumers find in a ring leave the consumers.

    Numeric contract: exact.
  }];
  let dependentDialects = [
    "::fa::nvidia::NVIDIADialect", "::mlir::tensor::TensorDialect"
  ];
}

def TilesToThreadsPass : Pass<"fa-tiles-to-threads", "::mlir::ModuleOp"> {
  let summary = "lower tile programs whose tiles have layouts to kernels";
  let description = [{
    Outlines each outermost `scf.forall` into a kernel: the program of one
    thread. The thread holds the registers that a tile's layout gives it.

    - Tiles in shared memory come by cp.async, swizzled; rings are filled ahead
      of their loops. The operations of the `hopper` dialect become mbarriers,
      TMA and wgmma.
    - ldmatrix reads the operands of mma.sync that are not in registers already.
    - Elementwise operations are cloned for each register. Coordinates come from
      the same layout. Row reductions end with two shuffles in the quad.
    - Tiles carried by loops are registers carried by loops.

    The result is a `gpu.module`. Its attribute `fa.program` lists the lines
    that describe arguments and launches; the PTX begins with them. A tile
    without a layout, or with one that its users do not take, is an error.

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
  let summary = "set kernel attributes on functions of the LLVM dialect";
  let description = [{
    Tensor maps become parameters by value that stay in constant memory. No
    kernel asks for more than one block on a multiprocessor.

    Numeric contract: changes no number.
  }];
}

def NormalizeCoordinatesPass : Pass<"fa-normalize-coordinates", "::mlir::gpu::GPUModuleOp"> {
  let summary = "compute with an element's coordinates in one operation";
  let description = [{
    A mask compares coordinates. Each is the sum of a value common to a thread's
    elements and a constant of the element. The pass moves the constants to one
    side: the rest is computed once, and an element takes one comparison with an
    immediate. If a score reads coordinates as floats, the common value is
    converted once, and an element takes one addition, or one fma if the score
    multiplies the coordinates.

    Numeric contract: bit-identical for integers (coordinates and their
    differences fit 32 bits), approximate for floats: sums from 2^24 on are
    rounded once more, and products of coordinates are rounded part by part.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"
  ];
}

def LowerKernelMathPass : Pass<"fa-lower-kernel-math", "::mlir::gpu::GPUModuleOp"> {
  let summary = "lower math to instructions of the GPU, or report an error";
  let description = [{
    exp2, exp, log, log2, rsqrt and division become the approximate
    instructions (ex2, lg2, div.full, rsqrt) and short formulas over them. So
    does a tanh with `fastmath<afn>`, as blocks with 16-bit numbers get it.
    Functions without an instruction or formula are expanded as polynomials. A
    reciprocal, a division with `fastmath<arcp>` and a logarithm with `afn` take
    denormal numbers for 0. Angles are reduced exactly, and remainders are
    exact. An operation that cannot be lowered is an error here, because later
    it would end the process.

    Consecutive constant factors become one, and so does a factor of a linear
    form: the scale of scores, a cap and tanh's own constants.

    Numeric contract: approximate, within 2e-6 relative (tanh with afn:
    absolute).
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::vector::VectorDialect", "::mlir::scf::SCFDialect"
  ];
}

def EmitPTXPass : Pass<"fa-emit-ptx", "::mlir::ModuleOp"> {
  let summary = "write the kernels of a module as PTX text";
  let description = [{
    Translates the module's `gpu.module` to LLVM IR and PTX, writes it to
    `output` (`-` is the standard output), and leaves the module as it is.

    Numeric contract: approximate. LLVM contracts a product and a sum into an
    fma, and denormal f32 numbers are 0.
  }];
  let options = [
    Option<"chip", "chip", "std::string", "\"sm_80\"", "the target">,
    Option<"output", "output", "std::string", "\"-\"", "file to write">,
    Option<"printLLVM", "print-llvm", "bool", "false",
           "write LLVM IR instead of PTX">
  ];
}

#endif // FA_TARGET_NVIDIA_PASSES
