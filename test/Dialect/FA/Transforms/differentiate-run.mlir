// Every operation that has a derivative, against differences in float64: an f32's
// limit is 1e-5 of the largest gradient. differentiate-branches.mlir has branches.
// REQUIRES: fa-run, ci
// RUN: fa-run %s --func=exponentials --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=of_positive --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=above_one --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=of_small --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=kinks --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=arithmetic --backward --check --each-stage --rows=8 --keys=8
// RUN: fa-run %s --func=steps --backward --check --each-stage --rows=8 --keys=8

func.func @exponentials(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %half = arith.constant 0.5 : f32
    %sum = arith.addf %s, %a : f32
    %y = arith.mulf %sum, %half : f32
    %u0 = math.exp %y : f32
    %w0 = arith.constant 0.10 : f32
    %m0 = arith.mulf %u0, %w0 : f32
    %u1 = math.exp2 %y : f32
    %w1 = arith.constant 0.15 : f32
    %m1 = arith.mulf %u1, %w1 : f32
    %t1 = arith.addf %m0, %m1 : f32
    %u2 = math.expm1 %y : f32
    %w2 = arith.constant 0.20 : f32
    %m2 = arith.mulf %u2, %w2 : f32
    %t2 = arith.addf %t1, %m2 : f32
    %u3 = math.tanh %y : f32
    %w3 = arith.constant 0.25 : f32
    %m3 = arith.mulf %u3, %w3 : f32
    %t3 = arith.addf %t2, %m3 : f32
    %u4 = math.sinh %y : f32
    %w4 = arith.constant 0.30 : f32
    %m4 = arith.mulf %u4, %w4 : f32
    %t4 = arith.addf %t3, %m4 : f32
    %u5 = math.cosh %y : f32
    %w5 = arith.constant 0.35 : f32
    %m5 = arith.mulf %u5, %w5 : f32
    %t5 = arith.addf %t4, %m5 : f32
    %u6 = math.atan %y : f32
    %w6 = arith.constant 0.40 : f32
    %m6 = arith.mulf %u6, %w6 : f32
    %t6 = arith.addf %t5, %m6 : f32
    %u7 = math.asinh %y : f32
    %w7 = arith.constant 0.45 : f32
    %m7 = arith.mulf %u7, %w7 : f32
    %t7 = arith.addf %t6, %m7 : f32
    %u8 = math.erf %y : f32
    %w8 = arith.constant 0.50 : f32
    %m8 = arith.mulf %u8, %w8 : f32
    %t8 = arith.addf %t7, %m8 : f32
    %u9 = math.erfc %y : f32
    %w9 = arith.constant 0.55 : f32
    %m9 = arith.mulf %u9, %w9 : f32
    %t9 = arith.addf %t8, %m9 : f32
    %u10 = math.sin %y : f32
    %w10 = arith.constant 0.60 : f32
    %m10 = arith.mulf %u10, %w10 : f32
    %t10 = arith.addf %t9, %m10 : f32
    %u11 = math.cos %y : f32
    %w11 = arith.constant 0.65 : f32
    %m11 = arith.mulf %u11, %w11 : f32
    %t11 = arith.addf %t10, %m11 : f32
    %result = arith.addf %t11, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @of_positive(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %one = arith.constant 1.0 : f32
    %y0 = arith.addf %s, %a : f32
    %y1 = arith.mulf %y0, %y0 : f32
    %y = arith.addf %y1, %one : f32
    %u0 = math.log %y : f32
    %w0 = arith.constant 0.10 : f32
    %m0 = arith.mulf %u0, %w0 : f32
    %u1 = math.log2 %y : f32
    %w1 = arith.constant 0.15 : f32
    %m1 = arith.mulf %u1, %w1 : f32
    %t1 = arith.addf %m0, %m1 : f32
    %u2 = math.log10 %y : f32
    %w2 = arith.constant 0.20 : f32
    %m2 = arith.mulf %u2, %w2 : f32
    %t2 = arith.addf %t1, %m2 : f32
    %u3 = math.log1p %y : f32
    %w3 = arith.constant 0.25 : f32
    %m3 = arith.mulf %u3, %w3 : f32
    %t3 = arith.addf %t2, %m3 : f32
    %u4 = math.sqrt %y : f32
    %w4 = arith.constant 0.30 : f32
    %m4 = arith.mulf %u4, %w4 : f32
    %t4 = arith.addf %t3, %m4 : f32
    %u5 = math.rsqrt %y : f32
    %w5 = arith.constant 0.35 : f32
    %m5 = arith.mulf %u5, %w5 : f32
    %t5 = arith.addf %t4, %m5 : f32
    %u6 = math.cbrt %y : f32
    %w6 = arith.constant 0.40 : f32
    %m6 = arith.mulf %u6, %w6 : f32
    %t6 = arith.addf %t5, %m6 : f32
    %result = arith.addf %t6, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @above_one(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %one = arith.constant 1.5 : f32
    %y0 = arith.addf %s, %a : f32
    %y1 = arith.mulf %y0, %y0 : f32
    %y = arith.addf %y1, %one : f32
    %u0 = math.acosh %y : f32
    %w0 = arith.constant 0.10 : f32
    %m0 = arith.mulf %u0, %w0 : f32
    %result = arith.addf %m0, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @of_small(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %c = arith.constant 0.9 : f32
    %y0 = arith.addf %s, %a : f32
    %y1 = math.tanh %y0 : f32
    %y = arith.mulf %y1, %c : f32
    %u0 = math.tan %y : f32
    %w0 = arith.constant 0.10 : f32
    %m0 = arith.mulf %u0, %w0 : f32
    %u1 = math.asin %y : f32
    %w1 = arith.constant 0.15 : f32
    %m1 = arith.mulf %u1, %w1 : f32
    %t1 = arith.addf %m0, %m1 : f32
    %u2 = math.acos %y : f32
    %w2 = arith.constant 0.20 : f32
    %m2 = arith.mulf %u2, %w2 : f32
    %t2 = arith.addf %t1, %m2 : f32
    %u3 = math.atanh %y : f32
    %w3 = arith.constant 0.25 : f32
    %m3 = arith.mulf %u3, %w3 : f32
    %t3 = arith.addf %t2, %m3 : f32
    %result = arith.addf %t3, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @kinks(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %c = arith.constant 0.3 : f32
    %lo = arith.constant -0.7 : f32
    %hi = arith.constant 0.8 : f32
    %y0 = math.absf %s : f32
    %y1 = arith.maximumf %s, %a : f32
    %y2 = arith.minimumf %s, %a : f32
    %w2 = arith.mulf %y2, %c : f32
    %y3 = arith.maxnumf %a, %s : f32
    %y4 = arith.minnumf %a, %s : f32
    %w4 = arith.mulf %y4, %hi : f32
    %y5 = math.clampf %s to [%lo, %hi] : f32
    %y6 = math.copysign %s, %a : f32
    %w6 = arith.mulf %y6, %lo : f32
    %z0 = arith.addf %y0, %y1 : f32
    %z1 = arith.addf %z0, %w2 : f32
    %z2 = arith.addf %z1, %y3 : f32
    %z3 = arith.addf %z2, %w4 : f32
    %z4 = arith.addf %z3, %y5 : f32
    %result = arith.addf %z4, %w6 : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @arithmetic(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %two = arith.constant 2.0 : f32
    %d0 = math.absf %a : f32
    %d = arith.addf %d0, %two : f32
    %y0 = arith.divf %s, %d : f32
    %y1 = math.fma %s, %a, %y0 : f32
    %y2 = arith.subf %y1, %d : f32
    %y3 = arith.negf %y2 : f32
    %y4 = arith.remf %s, %d : f32
    %y5 = arith.mulf %y3, %y4 : f32
    %i32 = arith.constant 3 : i32
    %y6 = math.fpowi %s, %i32 : f32, i32
    %hundredth = arith.constant 0.01 : f32
    %w6 = arith.mulf %y6, %hundredth : f32
    %tenth = arith.constant 0.1 : f32
    %p = arith.mulf %s, %tenth : f32
    %p0 = arith.mulf %p, %s : f32
    %p1 = arith.addf %p0, %two : f32
    %y7 = math.powf %p1, %a : f32
    %w7 = arith.mulf %y7, %tenth : f32
    %y8 = math.atan2 %s, %d : f32
    %n = arith.truncf %s : f32 to f16
    %e = arith.extf %n : f16 to f32
    %back = arith.subf %s, %e : f32
    %z0 = arith.addf %y5, %w6 : f32
    %z1 = arith.addf %z0, %w7 : f32
    %z2 = arith.addf %z1, %y8 : f32
    %z3 = arith.addf %z2, %back : f32
    %result = arith.addf %z3, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}

func.func @steps(%q: tensor<1x2x17x8xf32>, %k: tensor<1x2x17x8xf32>, %v: tensor<1x2x17x8xf32>, %x: tensor<2x17xf32>) -> tensor<1x2x17x8xf32> {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %a = tensor.extract %x[%h, %j] : tensor<2x17xf32>
    %ten = arith.constant 0.1 : f32
    %y = arith.mulf %s, %a : f32
    %y0 = math.floor %y : f32
    %y1 = math.ceil %y : f32
    %y2 = math.trunc %y : f32
    %y3 = math.round %y : f32
    %y4 = math.roundeven %y : f32
    %z0 = arith.addf %y0, %y1 : f32
    %z1 = arith.addf %z0, %y2 : f32
    %z2 = arith.addf %z1, %y3 : f32
    %z3 = arith.addf %z2, %y4 : f32
    %z = arith.mulf %z3, %ten : f32
    %result = arith.addf %z, %s : f32
    fa.yield %result : f32
  } : (tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>, tensor<1x2x17x8xf32>) -> tensor<1x2x17x8xf32>
  return %o : tensor<1x2x17x8xf32>
}
