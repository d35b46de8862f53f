// What a score function reads along a row, forwards, backwards, within bounds
// that the row meets, and as a mask of booleans: vectors where places are
// neighbours. Lengths that no vector divides; for each vector width.
// REQUIRES: fa-run
// RUN: fa-run %s --func=bias --backward --check
// RUN: fa-run %s --func=bias --backward --check --vector-bits=256
// RUN: fa-run %s --func=bounded --backward --check
// RUN: fa-run %s --func=bounded --backward --check --vector-bits=128
// RUN: fa-run %s --func=differences --backward --check
// RUN: fa-run %s --func=seen --check --backward
// RUN: fa-run %s --func=seen --check --vector-bits=128

func.func @bias(%q: tensor<1x2x77x16xf32>, %k: tensor<1x2x149x16xf32>, %v: tensor<1x2x149x16xf32>, %x: tensor<2x77x149xf32>) -> tensor<1x2x77x16xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %i, %j] : tensor<2x77x149xf32>
    %r = arith.addf %s, %a : f32
    fa.yield %r : f32
  } : (tensor<1x2x77x16xf32>, tensor<1x2x149x16xf32>, tensor<1x2x149x16xf32>) -> tensor<1x2x77x16xf32>
  return %o : tensor<1x2x77x16xf32>
}

func.func @bounded(%q: tensor<1x2x77x16xf32>, %k: tensor<1x2x149x16xf32>, %v: tensor<1x2x149x16xf32>, %x: tensor<2x77x60xf32>) -> tensor<1x2x77x16xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c0 = arith.constant 0 : index
    %c59 = arith.constant 59 : index
    %c41 = arith.constant 41 : index
    %from = arith.subi %j, %c41 : index
    %low = arith.maxsi %from, %c0 : index
    %at = arith.minsi %low, %c59 : index
    %a = tensor.extract %x[%h, %i, %at] : tensor<2x77x60xf32>
    %r = arith.addf %s, %a : f32
    fa.yield %r : f32
  } : (tensor<1x2x77x16xf32>, tensor<1x2x149x16xf32>, tensor<1x2x149x16xf32>) -> tensor<1x2x77x16xf32>
  return %o : tensor<1x2x77x16xf32>
}

func.func @differences(%q: tensor<1x2x77x16xf32>, %k: tensor<1x2x149x16xf32>, %v: tensor<1x2x149x16xf32>, %x: tensor<120xf32>) -> tensor<1x2x77x16xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c0 = arith.constant 0 : index
    %c70 = arith.constant 70 : index
    %d = arith.subi %i, %j : index
    %from = arith.addi %d, %c70 : index
    %at = arith.maxsi %from, %c0 : index
    %c119 = arith.constant 119 : index
    %within = arith.minsi %at, %c119 : index
    %a = tensor.extract %x[%within] : tensor<120xf32>
    %r = arith.addf %s, %a : f32
    fa.yield %r : f32
  } : (tensor<1x2x77x16xf32>, tensor<1x2x149x16xf32>, tensor<1x2x149x16xf32>) -> tensor<1x2x77x16xf32>
  return %o : tensor<1x2x77x16xf32>
}

func.func @seen(%q: tensor<1x2x77x16xf32>, %k: tensor<1x2x149x16xf32>, %v: tensor<1x2x149x16xf32>, %m: tensor<2x77x149xi1>) -> tensor<1x2x77x16xf32> {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %m[%h, %i, %j] : tensor<2x77x149xi1>
    fa.yield %a : i1
  } : (tensor<1x2x77x16xf32>, tensor<1x2x149x16xf32>, tensor<1x2x149x16xf32>) -> tensor<1x2x77x16xf32>
  return %o : tensor<1x2x77x16xf32>
}
