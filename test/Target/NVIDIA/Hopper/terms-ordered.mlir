// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Captured tensors' gradients in an order, of blocks that wait for each other's
// end: fa-hopper-place leaves them, and a block with roles is an error.
//
// RUN: not fa-opt %s --fa-hopper-layouts -o /dev/null 2>&1 | FileCheck %s
// CHECK: error: 'scf.forall' op has roles, and an fa.accumulate for which blocks wait for the end of that 16 before; 0 is expected there, or no roles

func.func @slopes(%terms: tensor<128x64xf32>, %slopes: tensor<8xf32>) -> tensor<8xf32> {
  %r = scf.forall (%h) in (8) shared_outs(%out = %slopes) -> (tensor<8xf32>) {
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    %s = hopper.consumers 2 registers 240 -> (tensor<8xf32>) {
      %sum = fa.accumulate %terms into %out at {
      ^bb0(%column: index, %row: index):
        fa.yield_places %h
      } {ordered = 16 : i64} : tensor<128x64xf32> into tensor<8xf32>
      hopper.yield %sum : tensor<8xf32>
    }
    scf.forall.in_parallel {
      fa.parallel_accumulate %s into %out : tensor<8xf32>
    }
  }
  return %r : tensor<8xf32>
}
