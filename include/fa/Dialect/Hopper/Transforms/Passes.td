// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_PASSES
#define FA_DIALECT_HOPPER_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def VerifySchedulePass : Pass<"hopper-verify", "::mlir::func::FuncOp"> {
  let summary = "no race and no deadlock in a schedule of sm_90a";
  let description = [{
    Runs the control of both roles of each scheduled `scf.forall`, without its
    tiles: loops, branches and the operations of the `hopper` dialect, for
    chosen sizes, coordinates and contents of lists, until loops whose bounds
    are not constant have run from 0 to twice the stages of the largest ring,
    or no choice gives more. It ends with an error at the operation that

    - reads a slot that was given back, or gives one back that a product in
      flight reads, or gives one back twice or, where blocks stay, not at all;
    - takes as complete a product that is still in flight;
    - ends an iteration or a branch with fewer products in flight than it began
      with;
    - works on rings, products or turns, other than by a `hopper.poll`, in a
      branch that begins while a product is in flight;
    - takes a `polled` stage that no `hopper.poll` waited for, or polls a stage
      that is not taken next;
    - depends on what is computed of tiles, so that threads may differ;
    - loads another tile than the consumers take, more of them or fewer;
    - waits for ever: for a load that does not come, a stage that is not given
      back, a turn.

    The IR stays as it is.
  }];
}

def OrderStepsPass : Pass<"hopper-order", "::mlir::func::FuncOp"> {
  let summary = "products start early and are awaited late";
  let description = [{
    Orders what consumers do between the begin and the end of each block that
    has products, by list scheduling: products start as early as their operands
    are there and registers hold their results, those first that most is to
    follow (with `streams`, as if what leads to a tile to be shared, and to
    nothing else, took none); waits come when nothing else is left to do, and a
    `hopper.wait_group` leaves in flight what has started after what it gives.
    So a product runs under what does not need it: in a step of attention's
    gradient dP under the exponentials, dV under dS. Stages are given back when
    what reads them is over, and sums leave for memory at the end. What is computed is pinned before
    the next product or wait.

    Nothing moves into or out of a loop or branch, so no product is in flight
    where an iteration ends. Loaded tiles are taken in the order in which they
    were, but for those that are an iteration behind, and those of a ring that
    consumers fill in that ring's.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect"];
}

def NarrowTilesPass : Pass<"hopper-narrow", "::mlir::func::FuncOp"> {
  let summary = "tiles that products round wait rounded";
  let description = [{
    A loop's products read 16-bit roundings of what is computed in f32. What has
    to wait for another product's result reads the rounded tile, too, where
    threads cannot hold the tile and that result beside what the loop carries:
    half as many registers hold it. So attention's gradient dS = P * (dP - D) is
    computed of the P that dV's product reads.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ScheduleLoopsPass : Pass<"hopper-schedule", "::mlir::func::FuncOp"> {
  let summary = "which steps of a loop come an iteration later";
  let description = [{
    Says of a loop's operations, in the attribute `hopper.delay`, how many
    iterations later than the others they are to run; `hopper-expand` has them
    do so. A product that feeds no other product of its iteration only adds to
    what the loop carries or gives away: it can come an iteration later, and
    then the tensor cores have work while the next iteration's scores go through
    the other units. With it come the wait for its result and what is computed
    of that, the acquisition of tiles that only such products read, and the
    release of all tiles that they read. In attention O's product comes later; in
    its gradient those of dQ, dK and dV.

    A product that reads a tile that warpgroups share, and nothing else of its
    iteration, comes two iterations later where the tile's ring has a third
    stage: no warpgroup waits for another one's part then.

    What takes such a result from the iteration before, as O's rescaling does,
    need not come later: it stands behind that in the same iteration.

    A slot that is held into the next iteration takes another stage of its ring.
    A loop stays as it is, with a remark, where a ring has too few, where no
    product feeds another, and where the next iteration needs the results.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect"];
}

def ExpandLoopsPass : Pass<"hopper-expand", "::mlir::func::FuncOp"> {
  let summary = "steps with a delay run in a later iteration";
  let description = [{
    Pipelines each loop of consumers that has operations with `hopper.delay`, by
    `scf::pipelineForLoop`: what has no delay begins before the loop, and what
    has one ends behind it, in an `scf.if` that asks whether the loop has as many
    iterations. Numbers are computed again where a delayed operation needs them;
    tiles and slots are carried from one iteration to the next. Where the loop
    asks whether an iteration is its first, that is answered, and what follows
    folded; zeros that a product's sum starts from are no tile then, but the
    product's condition.

    A delay must not be negative; the values that an operation uses must not
    have a greater one, and those that it takes from the iteration before the
    same one or one more; a product has that of its wait. Errors name the operation.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

def FinishSchedulePass : Pass<"hopper-finish", "::mlir::func::FuncOp"> {
  let summary = "turns, polls, and loads in the order of the consumers' steps";
  let description = [{
    Adds what depends on the order in which consumers do their steps:

    - where the role has `turns`, warpgroups start the products with which an
      iteration begins one after the other, so that one computes on the other
      units while another's products run (ping-pong; Shah et al. 2024,
      "FlashAttention-3", section 3.1);
    - where tiles are computed while an iteration's last product is in flight,
      the first tile that the next iteration takes is polled before that product
      is waited for;
    - branches that follow each other, of which the first one's side rules the
      second out, become one;
    - rings that the consumers fill are `unguarded` where the order of their
      steps shows that a stage that is filled is empty;
    - the producer is made again where tiles are taken an iteration later, since
      loads come in the order in which the consumers take tiles.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect"];
}

#endif // FA_DIALECT_HOPPER_TRANSFORMS_PASSES
