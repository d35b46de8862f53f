// dS = P * (dP - D) reads the P that dV's product reads where registers are few, as
// a product of two bf16, and P itself where there are enough: not for the results of
// all products (64 x 64 at head dim 256), but for P and dP. The inputs are the consumers' loop of
// gradients as --fa-hopper-place makes it, without masks and dQ.

// RUN: fa-opt %s --hopper-narrow | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

// 80 queries and 128 keys, rows of 128 numbers.
// CHECK-LABEL: func.func @few_registers(
// CHECK: hopper.consumers
// CHECK: math.exp2
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<128x80xbf16>)
// CHECK: arith.truncf
// CHECK: hopper.wgmma
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<128x80xbf16>, tensor<128x80xf32>, tensor<80xf32>)
// CHECK-NEXT: ^bb0(%[[E:.*]]: bf16,
// CHECK: %[[X:.*]] = arith.subf
// CHECK-NEXT: %[[Y:.*]] = arith.truncf %[[X]] : f32 to bf16
// CHECK-NEXT: arith.mulf %[[E]], %[[Y]] : bf16
// CHECK-NOT: arith.mulf {{.*}} : f32
// CHECK: hopper.wgmma
func.func @few_registers(%k: tensor<128x128xbf16>, %v: tensor<128x128xbf16>, %q: tensor<80x128xbf16>, %do: tensor<80x128xbf16>, %lse: tensor<80xf32>, %d: tensor<80xf32>, %zeros: tensor<128x128xf32>, %scores: tensor<128x80xf32>,
    %rounded: tensor<128x80xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%j) in (4) {
    %k_ring = hopper.ring "k" at 1024 barriers 0 : <1, tensor<128x128xbf16>>
    %v_ring = hopper.ring "v" at 33792 barriers 16 : <1, tensor<128x128xbf16>>
    %q_ring = hopper.ring "q" at 66560 barriers 32 : <1, tensor<80x128xbf16>>
    %do_ring = hopper.ring "do" at 87040 barriers 48 : <1, tensor<80x128xbf16>>
    hopper.producer registers 24 {
    }
    %r:2 = hopper.consumers 2 registers 240 free 24 -> (tensor<128x128xf32>, tensor<128x128xf32>) {
      %ks = hopper.acquire %k_ring of %k : <1, tensor<128x128xbf16>> -> <tensor<128x128xbf16>>
      %vs = hopper.acquire %v_ring of %v : <1, tensor<128x128xbf16>> -> <tensor<128x128xbf16>>
      %sums:2 = scf.for %i = %c0 to %n step %c1 iter_args(%dk = %zeros, %dv = %zeros) -> (tensor<128x128xf32>, tensor<128x128xf32>) {
        %qs = hopper.acquire %q_ring of %q : <1, tensor<80x128xbf16>> -> <tensor<80x128xbf16>>
        %s_pending = hopper.wgmma %ks, %qs : (!hopper.slot<tensor<128x128xbf16>>, !hopper.slot<tensor<80x128xbf16>>) -> !hopper.pending<tensor<128x80xf32>>
        %s = hopper.wait_group 0, %s_pending : !hopper.pending<tensor<128x80xf32>>
        %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s, %lse : tensor<128x80xf32>, tensor<80xf32>) outs(%scores : tensor<128x80xf32>) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %below = arith.subf %x, %y : f32
          %exp = math.exp2 %below : f32
          linalg.yield %exp : f32
        } -> tensor<128x80xf32>
        %p16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p : tensor<128x80xf32>) outs(%rounded : tensor<128x80xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<128x80xbf16>
        %dos = hopper.acquire %do_ring of %do : <1, tensor<80x128xbf16>> -> <tensor<80x128xbf16>>
        %dv_pending = hopper.wgmma %p16, %dos transposed init(%dv) : (tensor<128x80xbf16>, !hopper.slot<tensor<80x128xbf16>>, tensor<128x128xf32>) -> !hopper.pending<tensor<128x128xf32>>
        %dv1 = hopper.wait_group 0, %dv_pending : !hopper.pending<tensor<128x128xf32>>
        %dp_pending = hopper.wgmma %vs, %dos : (!hopper.slot<tensor<128x128xbf16>>, !hopper.slot<tensor<80x128xbf16>>) -> !hopper.pending<tensor<128x80xf32>>
        %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<tensor<128x80xf32>>
        hopper.release %dos : <tensor<80x128xbf16>>
        %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p, %dp, %d : tensor<128x80xf32>, tensor<128x80xf32>, tensor<80xf32>) outs(%scores : tensor<128x80xf32>) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
          %apart = arith.subf %y, %z : f32
          %product = arith.mulf %x, %apart : f32
          linalg.yield %product : f32
        } -> tensor<128x80xf32>
        %ds16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%ds : tensor<128x80xf32>) outs(%rounded : tensor<128x80xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<128x80xbf16>
        %dk_pending = hopper.wgmma %ds16, %qs transposed init(%dk) : (tensor<128x80xbf16>, !hopper.slot<tensor<80x128xbf16>>, tensor<128x128xf32>) -> !hopper.pending<tensor<128x128xf32>>
        %dk1 = hopper.wait_group 0, %dk_pending : !hopper.pending<tensor<128x128xf32>>
        hopper.release %qs : <tensor<80x128xbf16>>
        scf.yield %dk1, %dv1 : tensor<128x128xf32>, tensor<128x128xf32>
      }
      hopper.release %vs : <tensor<128x128xbf16>>
      hopper.release %ks : <tensor<128x128xbf16>>
      hopper.yield %sums#0, %sums#1 : tensor<128x128xf32>, tensor<128x128xf32>
    }
  }
  return
}

// 64 queries and 128 keys, rows of 64 numbers.
// CHECK-LABEL: func.func @enough_registers(
// CHECK: hopper.consumers
// CHECK: math.exp2
// CHECK: hopper.wgmma
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<128x64xf32>, tensor<128x64xf32>, tensor<64xf32>)
// CHECK: arith.truncf
func.func @enough_registers(%k: tensor<128x64xbf16>, %v: tensor<128x64xbf16>, %q: tensor<64x64xbf16>, %do: tensor<64x64xbf16>, %lse: tensor<64xf32>, %d: tensor<64xf32>, %zeros: tensor<128x64xf32>, %scores: tensor<128x64xf32>,
    %rounded: tensor<128x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%j) in (4) {
    %k_ring = hopper.ring "k" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    %v_ring = hopper.ring "v" at 17408 barriers 16 : <1, tensor<128x64xbf16>>
    %q_ring = hopper.ring "q" at 33792 barriers 32 : <1, tensor<64x64xbf16>>
    %do_ring = hopper.ring "do" at 41984 barriers 48 : <1, tensor<64x64xbf16>>
    hopper.producer registers 24 {
    }
    %r:2 = hopper.consumers 2 registers 240 spare 96 -> (tensor<128x64xf32>, tensor<128x64xf32>) {
      %ks = hopper.acquire %k_ring of %k : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      %vs = hopper.acquire %v_ring of %v : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      %sums:2 = scf.for %i = %c0 to %n step %c1 iter_args(%dk = %zeros, %dv = %zeros) -> (tensor<128x64xf32>, tensor<128x64xf32>) {
        %qs = hopper.acquire %q_ring of %q : <1, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        %s_pending = hopper.wgmma %ks, %qs : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<128x64xf32>>
        %s = hopper.wait_group 0, %s_pending : !hopper.pending<tensor<128x64xf32>>
        %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s, %lse : tensor<128x64xf32>, tensor<64xf32>) outs(%scores : tensor<128x64xf32>) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %below = arith.subf %x, %y : f32
          %exp = math.exp2 %below : f32
          linalg.yield %exp : f32
        } -> tensor<128x64xf32>
        %p16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p : tensor<128x64xf32>) outs(%rounded : tensor<128x64xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<128x64xbf16>
        %dos = hopper.acquire %do_ring of %do : <1, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        %dv_pending = hopper.wgmma %p16, %dos transposed init(%dv) : (tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>, tensor<128x64xf32>) -> !hopper.pending<tensor<128x64xf32>>
        %dv1 = hopper.wait_group 0, %dv_pending : !hopper.pending<tensor<128x64xf32>>
        %dp_pending = hopper.wgmma %vs, %dos : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<128x64xf32>>
        %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<tensor<128x64xf32>>
        hopper.release %dos : <tensor<64x64xbf16>>
        %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p, %dp, %d : tensor<128x64xf32>, tensor<128x64xf32>, tensor<64xf32>) outs(%scores : tensor<128x64xf32>) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
          %apart = arith.subf %y, %z : f32
          %product = arith.mulf %x, %apart : f32
          linalg.yield %product : f32
        } -> tensor<128x64xf32>
        %ds16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%ds : tensor<128x64xf32>) outs(%rounded : tensor<128x64xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<128x64xbf16>
        %dk_pending = hopper.wgmma %ds16, %qs transposed init(%dk) : (tensor<128x64xbf16>, !hopper.slot<tensor<64x64xbf16>>, tensor<128x64xf32>) -> !hopper.pending<tensor<128x64xf32>>
        %dk1 = hopper.wait_group 0, %dk_pending : !hopper.pending<tensor<128x64xf32>>
        hopper.release %qs : <tensor<64x64xbf16>>
        scf.yield %dk1, %dv1 : tensor<128x64xf32>, tensor<128x64xf32>
      }
      hopper.release %vs : <tensor<128x64xbf16>>
      hopper.release %ks : <tensor<128x64xbf16>>
      hopper.yield %sums#0, %sums#1 : tensor<128x64xf32>, tensor<128x64xf32>
    }
  }
  return
}

// 64 queries and 64 keys, rows of 256 numbers.
// CHECK-LABEL: func.func @wide_rows(
// CHECK: hopper.consumers
// CHECK: math.exp2
// CHECK: hopper.wgmma
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>)
// CHECK: arith.truncf
// CHECK: hopper.wgmma {{.*}} -> !hopper.pending<tensor<64x256xf32>>
func.func @wide_rows(%k: tensor<64x256xbf16>, %v: tensor<64x256xbf16>, %q: tensor<64x256xbf16>, %do: tensor<64x256xbf16>, %lse: tensor<64xf32>, %d: tensor<64xf32>, %zeros: tensor<64x256xf32>, %scores: tensor<64x64xf32>,
    %rounded: tensor<64x64xbf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.forall (%j) in (4) {
    %k_ring = hopper.ring "k" at 1024 barriers 0 : <1, tensor<64x256xbf16>>
    %v_ring = hopper.ring "v" at 33792 barriers 16 : <1, tensor<64x256xbf16>>
    %q_ring = hopper.ring "q" at 66560 barriers 32 : <1, tensor<64x256xbf16>>
    %do_ring = hopper.ring "do" at 99328 barriers 48 : <1, tensor<64x256xbf16>>
    %p_ring = hopper.ring "p" at 132096 barriers 64 computed : <2, tensor<64x64xbf16>>
    %ds_ring = hopper.ring "ds" at 148480 barriers 96 computed : <2, tensor<64x64xbf16>>
    hopper.producer registers 24 {
    }
    %r:2 = hopper.consumers 2 registers 240 -> (tensor<64x256xf32>, tensor<64x256xf32>) {
      %ks = hopper.acquire %k_ring of %k : <1, tensor<64x256xbf16>> -> <tensor<64x256xbf16>>
      %vs = hopper.acquire %v_ring of %v : <1, tensor<64x256xbf16>> -> <tensor<64x256xbf16>>
      %sums:2 = scf.for %i = %c0 to %n step %c1 iter_args(%dk = %zeros, %dv = %zeros) -> (tensor<64x256xf32>, tensor<64x256xf32>) {
        %qs = hopper.acquire %q_ring of %q : <1, tensor<64x256xbf16>> -> <tensor<64x256xbf16>>
        %s_pending = hopper.wgmma %ks, %qs : (!hopper.slot<tensor<64x256xbf16>>, !hopper.slot<tensor<64x256xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %s = hopper.wait_group 0, %s_pending : !hopper.pending<tensor<64x64xf32>>
        %p = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s, %lse : tensor<64x64xf32>, tensor<64xf32>) outs(%scores : tensor<64x64xf32>) {
        ^bb0(%x: f32, %y: f32, %out: f32):
          %below = arith.subf %x, %y : f32
          %exp = math.exp2 %below : f32
          linalg.yield %exp : f32
        } -> tensor<64x64xf32>
        %p16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p : tensor<64x64xf32>) outs(%rounded : tensor<64x64xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<64x64xbf16>
        %dos = hopper.acquire %do_ring of %do : <1, tensor<64x256xbf16>> -> <tensor<64x256xbf16>>
        hopper.share %p16 into %p_ring : tensor<64x64xbf16>, <2, tensor<64x64xbf16>>
        %ps = hopper.acquire %p_ring of %p16 : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        %dv_pending = hopper.wgmma %ps, %dos transposed init(%dv) : (!hopper.slot<tensor<64x64xbf16>>, !hopper.slot<tensor<64x256xbf16>>, tensor<64x256xf32>) -> !hopper.pending<tensor<64x256xf32>>
        %dv1 = hopper.wait_group 0, %dv_pending : !hopper.pending<tensor<64x256xf32>>
        hopper.release %ps : <tensor<64x64xbf16>>
        %dp_pending = hopper.wgmma %vs, %dos : (!hopper.slot<tensor<64x256xbf16>>, !hopper.slot<tensor<64x256xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %dp = hopper.wait_group 0, %dp_pending : !hopper.pending<tensor<64x64xf32>>
        hopper.release %dos : <tensor<64x256xbf16>>
        %ds = linalg.generic {indexing_maps = [#id, #id, #column, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p, %dp, %d : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>) outs(%scores : tensor<64x64xf32>) {
        ^bb0(%x: f32, %y: f32, %z: f32, %out: f32):
          %apart = arith.subf %y, %z : f32
          %product = arith.mulf %x, %apart : f32
          linalg.yield %product : f32
        } -> tensor<64x64xf32>
        %ds16 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%ds : tensor<64x64xf32>) outs(%rounded : tensor<64x64xbf16>) {
        ^bb0(%x: f32, %out: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<64x64xbf16>
        hopper.share %ds16 into %ds_ring : tensor<64x64xbf16>, <2, tensor<64x64xbf16>>
        %dss = hopper.acquire %ds_ring of %ds16 : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        %dk_pending = hopper.wgmma %dss, %qs transposed init(%dk) : (!hopper.slot<tensor<64x64xbf16>>, !hopper.slot<tensor<64x256xbf16>>, tensor<64x256xf32>) -> !hopper.pending<tensor<64x256xf32>>
        %dk1 = hopper.wait_group 0, %dk_pending : !hopper.pending<tensor<64x256xf32>>
        hopper.release %dss : <tensor<64x64xbf16>>
        hopper.release %qs : <tensor<64x256xbf16>>
        scf.yield %dk1, %dv1 : tensor<64x256xf32>, tensor<64x256xf32>
      }
      hopper.release %vs : <tensor<64x256xbf16>>
      hopper.release %ks : <tensor<64x256xbf16>>
      hopper.yield %sums#0, %sums#1 : tensor<64x256xf32>, tensor<64x256xf32>
    }
  }
  return
}
