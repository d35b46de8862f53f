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
    has products, by list scheduling: products and the tiles that they read come
    as early as their operands are there, waits when nothing else is left to do,
    and a `hopper.wait_group` leaves in flight what has started after what it
    gives. So a product runs under what does not need it: in a step of
    attention's gradient dP under the exponentials, dV under dS. Stages are given
    back when the products that read them have been waited for.

    Nothing moves into or out of a loop or branch, so no product is in flight
    where an iteration ends; tiles are taken in the order in which they were.
  }];
  let dependentDialects = ["::fa::hopper::HopperDialect"];
}

#endif // FA_DIALECT_HOPPER_TRANSFORMS_PASSES
