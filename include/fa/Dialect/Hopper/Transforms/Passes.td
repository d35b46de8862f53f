// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_PASSES
#define FA_DIALECT_HOPPER_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def VerifySchedulePass : Pass<"hopper-verify", "::mlir::func::FuncOp"> {
  let summary = "check a schedule of sm_90a for races and deadlocks";
  let description = [{
    Runs the control flow of both roles of each scheduled `scf.forall` without
    its tiles: loops, branches and the operations of the `hopper` dialect. Each
    run chooses sizes, coordinates and contents of lists. Runs end when loops
    with unknown bounds have had 0 to 2n iterations, n the stages of the largest
    ring, or when further choices give no more. The pass reports an error at an
    operation that

    - reads a slot after its release;
    - releases a slot that a product in flight reads, releases it twice or,
      where blocks stay on their multiprocessor, does not release it;
    - uses the result of a product that is still in flight;
    - ends an iteration or a branch with fewer products in flight than it began
      with;
    - works on rings, products or turns, other than by a `hopper.poll`, in a
      branch that begins while a product is in flight;
    - takes a `polled` stage that no `hopper.poll` waited for, or polls a stage
      that is not the next one;
    - depends on the elements of tiles, so that threads may differ;
    - loads another tile than the consumers take, or more or fewer of them;
    - waits for ever: for a load, for a stage or for a turn that does not come.

    The IR stays as it is.

    Numeric contract: changes no number.
  }];
}

def OrderStepsPass : Pass<"hopper-order", "::mlir::func::FuncOp"> {
  let summary = "start products early and await them late";
  let description = [{
    Orders the consumers' operations within each block that has products, by
    list scheduling:

    - A product starts as soon as its operands are there and registers can hold
      its result. The product with the longest path to the block's end comes
      first.
    - A wait comes when nothing else is left to do. A `hopper.wait_group` leaves
      in flight the products that started after the ones it gives.
    - A stage is released once all of its readers are done.
    - Sums leave for memory at the end; with `sums_first`, those for adders at
      once.

    So a product runs under work that does not need its result: in a step of
    attention's gradient, dP under the exponentials and dV under dS. A
    `hopper.pin` keeps computed tiles before the next product or wait. With
    `streams`, a tile that is only shared is computed as if it took no
    registers.

    Nothing moves into or out of a loop or branch, so no product is in flight
    where an iteration ends. Loaded tiles are taken in their old order, except
    tiles that are an iteration behind. Tiles of a ring that consumers fill keep
    that ring's order.

    Numeric contract: bit-identical.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect"];
}

def NarrowTilesPass : Pass<"hopper-narrow", "::mlir::func::FuncOp"> {
  let summary = "keep tiles rounded that products read rounded";
  let description = [{
    A loop's products read 16-bit roundings of f32 tiles. An operation may read
    such a tile only after another product's result has come. If threads cannot
    hold the tile beside that result and the values that the loop carries, the
    operation reads the rounded tile, too: it takes half the registers. So
    attention's gradient dS = P * (dP - D) is computed from the same P that dV's
    product reads. A product of bf16 elements whose result is rounded is then
    computed in bf16.

    A tile stays f32 if its elements may be summed along a row: such a sum can
    cancel and keep nothing but roundings.

    Numeric contract: approximate. The tile, and for bf16 the factor beside it,
    are rounded to 16 bits before the operation.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ScheduleLoopsPass : Pass<"hopper-schedule", "::mlir::func::FuncOp"> {
  let summary = "choose the operations of a loop that run an iteration later";
  let description = [{
    The first half of software pipelining. The attribute `hopper.delay` of a
    loop's operation says how many iterations later than the others it runs;
    `hopper-expand` then moves it.

    A product that feeds no other product of its iteration only adds to the
    loop's carried values or gives its result away. It can run an iteration
    later: then the tensor cores have work while the other units compute the
    next iteration's scores. Three things follow it: the wait for its result
    with all operations on that, the acquisition of tiles that only such
    products read, and the release of all tiles that they read. In attention
    these are the products of O, in its gradient those of dQ, dK and dV.

    With `shares_later`, a product may run two iterations later. It reads a tile
    that warpgroups share and nothing else of its iteration, and the tile's ring
    has two stages for each tile that an iteration takes from it. Then no
    warpgroup waits for another's part.

    An operation that takes such a result from the iteration before, as O's
    rescaling does, needs no delay: it follows the result in the same iteration.

    A slot that is held into the next iteration needs a second stage in its
    ring. A loop stays as it is, with a remark, if a ring has too few stages, if
    no product feeds another or all do, or if the next iteration's scores need
    the results.

    Numeric contract: bit-identical (only attributes change).
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect"];
}

def ExpandLoopsPass : Pass<"hopper-expand", "::mlir::func::FuncOp"> {
  let summary = "run delayed operations in a later iteration";
  let description = [{
    The second half of software pipelining: applies `scf::pipelineForLoop` to
    each loop of consumers with operations that have a `hopper.delay`. A
    prologue runs operations without a delay before the loop, and an epilogue
    runs delayed ones behind it. An `scf.if` around them asks whether the loop
    has as many iterations as the largest delay; otherwise the loop runs as it
    was.

    Numbers are computed again where a delayed operation needs them; the loop
    carries tiles and slots from one iteration to the next. If the loop asks
    whether an iteration is its first, the prologue and the loop know the
    answer, and branches on it fold. A product's sum that starts from zeros then
    starts by the product's condition, and the zeros take no registers.

    Constraints: a delay is not negative. An operation's delay is at least that
    of the values it uses. For a value from the iteration before, it is that
    value's delay or one less. A product has the delay of its wait. All
    acquisitions from a ring have the same delay, and so do all shares into one.
    Errors name the operation.

    Numeric contract: bit-identical.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

def FinishSchedulePass : Pass<"hopper-finish", "::mlir::func::FuncOp"> {
  let summary = "add turns and polls, and order loads as consumers take tiles";
  let description = [{
    Makes the changes that depend on the final order of the consumers' steps:

    - Turns: if the role has `turns`, warpgroups start the first products of an
      iteration one after the other. One warpgroup computes on the other units
      while another's products run (ping-pong; Shah et al. 2024,
      "FlashAttention-3", section 3.1).
    - Polls: if tiles are computed while an iteration's last product is in
      flight, a `hopper.poll` waits for the next iteration's first tile before
      that product is awaited. Warpgroups that share tiles do not poll.
    - Branches: a branch whose side rules out the next branch is merged with it.
    - Rings that the consumers fill become `unguarded` if the order of their
      steps proves that a stage is empty before it is filled.
    - Producer: it is built again if consumers take some tiles an iteration
      later, since loads follow the order in which consumers take tiles.

    Numeric contract: bit-identical.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

#endif // FA_DIALECT_HOPPER_TRANSFORMS_PASSES
