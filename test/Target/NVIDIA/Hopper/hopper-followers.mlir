// The last kernel of a gradient, dQ's scale and type, follows the one that adds
// dQ up, whole groups of query heads, too; but not where blocks add in an order.

// RUN: fa-opt %inputs/gpt2-small.mlir --fa-pipeline="target=sm_90a backward=all" --fa-schedule-hopper="chip=sm_90a" | FileCheck %s --check-prefix=PLACED
// RUN: fa-opt %inputs/llama-3-8b.mlir --fa-pipeline="target=sm_90a backward=all" --fa-schedule-hopper="chip=sm_90a" | FileCheck %s --check-prefix=PLACED
// RUN: fa-opt %inputs/gpt2-small.mlir --fa-pipeline="target=sm_90a backward=all" --fa-schedule-hopper="chip=sm_90a" --fa-hopper-layouts | FileCheck %s --check-prefix=SCRATCH
// RUN: fa-opt %inputs/llama-3-8b.mlir --fa-pipeline="target=sm_90a backward=all deterministic=true" --fa-schedule-hopper="chip=sm_90a" --fa-hopper-layouts | FileCheck %s --check-prefix=ORDER

// PLACED: hopper.follows = -1
// SCRATCH: hopper.follows = {{[1-9][0-9]*}}
// ORDER: scf.forall
// ORDER-NOT: hopper.follows
