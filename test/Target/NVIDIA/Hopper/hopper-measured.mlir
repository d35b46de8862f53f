// Each row of what was measured (kMeasured in Shape.cpp) is that of a gradient's
// tiles: one of tiles that no gradient has would have no effect. What is left
// out is the default, 56 spare. Where vectors come with tiles their rings do.

// RUN: fa-opt %s --fa-pipeline="target=sm_90a backward=all" --fa-hopper-place | FileCheck %s

// CHECK-LABEL: func.func @d64_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 48 carried_first ->
func.func @d64(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %v: tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// CHECK-LABEL: func.func @d80_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 1 registers 256 spare 40 ->
func.func @d80(%q: tensor<1x2x?x80xbf16>, %k: tensor<1x2x?x80xbf16>, %v: tensor<1x2x?x80xbf16>) -> tensor<1x2x?x80xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x80xbf16>, tensor<1x2x?x80xbf16>, tensor<1x2x?x80xbf16>) -> tensor<1x2x?x80xbf16>
  return %o : tensor<1x2x?x80xbf16>
}

// CHECK-LABEL: func.func @d96_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 48 carried_first ->
func.func @d96(%q: tensor<1x2x?x96xbf16>, %k: tensor<1x2x?x96xbf16>, %v: tensor<1x2x?x96xbf16>) -> tensor<1x2x?x96xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x96xbf16>, tensor<1x2x?x96xbf16>, tensor<1x2x?x96xbf16>) -> tensor<1x2x?x96xbf16>
  return %o : tensor<1x2x?x96xbf16>
}

// CHECK-LABEL: func.func @d128_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 free 24 carried_first sums_first shares_later ->
func.func @d128(%q: tensor<1x2x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16>
  return %o : tensor<1x2x?x128xbf16>
}

// CHECK-LABEL: func.func @d160_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 72 carried_first ->
func.func @d160(%q: tensor<1x2x?x160xbf16>, %k: tensor<1x2x?x160xbf16>, %v: tensor<1x2x?x160xbf16>) -> tensor<1x2x?x160xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x160xbf16>, tensor<1x2x?x160xbf16>, tensor<1x2x?x160xbf16>) -> tensor<1x2x?x160xbf16>
  return %o : tensor<1x2x?x160xbf16>
}

// CHECK-LABEL: func.func @d192_backward(
// CHECK-NOT: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 40 carried_first ->
func.func @d192(%q: tensor<1x2x?x192xbf16>, %k: tensor<1x2x?x192xbf16>, %v: tensor<1x2x?x192xbf16>) -> tensor<1x2x?x192xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>, tensor<1x2x?x192xbf16>) -> tensor<1x2x?x192xbf16>
  return %o : tensor<1x2x?x192xbf16>
}

// CHECK-LABEL: func.func @d256_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 ->
func.func @d256(%q: tensor<1x2x?x256xbf16>, %k: tensor<1x2x?x256xbf16>, %v: tensor<1x2x?x256xbf16>) -> tensor<1x2x?x256xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>) -> tensor<1x2x?x256xbf16>
  return %o : tensor<1x2x?x256xbf16>
}

// CHECK-LABEL: func.func @causal128_backward(
// CHECK-NOT: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 32 carried_first shares_later ->
func.func @causal128(%q: tensor<1x2x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16> {
  %o = fa.attention %q, %k, %v
    mask {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %seen = arith.cmpi sle, %j, %i : index
      fa.yield %seen : i1
    } : (tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16>
  return %o : tensor<1x2x?x128xbf16>
}

// CHECK-LABEL: func.func @dropout64_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 40 carried_first exchange {{[0-9]+}} ->
func.func @dropout64(%q: tensor<1x2x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %v: tensor<1x2x?x64xbf16>, %seed: tensor<i64>) -> tensor<1x2x?x64xbf16> {
  %o = fa.attention %q, %k, %v
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %limit = arith.constant 26 : i8
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11304347826086958e+00 : (tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>) -> tensor<1x2x?x64xbf16>
  return %o : tensor<1x2x?x64xbf16>
}

// CHECK-LABEL: func.func @dropout128_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 40 carried_first streams ->
func.func @dropout128(%q: tensor<1x2x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>, %seed: tensor<i64>) -> tensor<1x2x?x128xbf16> {
  %o = fa.attention %q, %k, %v
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %limit = arith.constant 26 : i8
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11304347826086958e+00 : (tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>) -> tensor<1x2x?x128xbf16>
  return %o : tensor<1x2x?x128xbf16>
}

// CHECK-LABEL: func.func @dropout256_backward(
// CHECK: hopper.ring {{.*}} with
// CHECK: hopper.consumers 2 registers 240 spare 96 ->
func.func @dropout256(%q: tensor<1x2x?x256xbf16>, %k: tensor<1x2x?x256xbf16>, %v: tensor<1x2x?x256xbf16>, %seed: tensor<i64>) -> tensor<1x2x?x256xbf16> {
  %o = fa.attention %q, %k, %v
    keep {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %s = tensor.extract %seed[] : tensor<i64>
      %bits = fa.random_bits %s at [%b, %h, %i, %j]
      %limit = arith.constant 26 : i8
      %kept = arith.cmpi uge, %bits, %limit : i8
      fa.yield %kept : i1
    } times 1.11304347826086958e+00 : (tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>, tensor<1x2x?x256xbf16>) -> tensor<1x2x?x256xbf16>
  return %o : tensor<1x2x?x256xbf16>
}
