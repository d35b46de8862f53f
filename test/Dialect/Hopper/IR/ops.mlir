// Every type and operation, read back from text, generic form and bytecode.

// RUN: fa-opt %s | FileCheck %s
// RUN: fa-opt %s | fa-opt | FileCheck %s
// RUN: fa-opt %s --mlir-print-op-generic | fa-opt | FileCheck %s
// RUN: fa-opt %s --emit-bytecode | fa-opt | FileCheck %s

// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !hopper.ring<1, tensor<8x8xbf16>>
// CHECK-SAME: !hopper.ring<8, tensor<256x128xf16>>
// CHECK-SAME: !hopper.slot<tensor<64x64xbf16>>
func.func private @types(!hopper.ring<1, tensor<8x8xbf16>>, !hopper.ring<8, tensor<256x128xf16>>,
                         !hopper.slot<tensor<64x64xbf16>>)

// A program of both roles, with every operation.

// CHECK-LABEL: func.func @roles(
func.func @roles(%q: tensor<128x64xbf16>, %k: tensor<256x64xbf16>, %v: tensor<256x80xbf16>)
    -> tensor<128x80xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x80xf32>
  %r = scf.forall (%i) = (0) to (128) step (128) shared_outs(%out = %e) -> (tensor<128x80xf32>) {
    %qt = tensor.extract_slice %q[%i, 0] [128, 64] [1, 1] : tensor<128x64xbf16> to tensor<128x64xbf16>
    // CHECK: %[[Q:.*]] = hopper.ring "q" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    %qr = hopper.ring "q" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    // CHECK: %[[K:.*]] = hopper.ring "k" at 17408 barriers 16 : <2, tensor<64x64xbf16>>
    %kr = hopper.ring "k" at 17408 barriers 16 : <2, tensor<64x64xbf16>>
    // CHECK: %[[V:.*]] = hopper.ring "v" at 33792 barriers 48 ones : <2, tensor<64x80xbf16>>
    %vr = hopper.ring "v" at 33792 barriers 48 ones : <2, tensor<64x80xbf16>>
    // CHECK: hopper.tile_queue barriers 80 longest_first section 16
    hopper.tile_queue barriers 80 longest_first section 16
    // CHECK: hopper.producer registers 24 attributes {note = "a"} {
    hopper.producer registers 24 attributes {note = "a"} {
      // CHECK: hopper.load %{{.*}} into %[[Q]] bytes 16384 : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
      hopper.load %qt into %qr bytes 16384 : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
      scf.for %j = %c0 to %c256 step %c64 {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<256x64xbf16> to tensor<64x64xbf16>
        %vt = tensor.extract_slice %v[%j, 0] [64, 80] [1, 1] : tensor<256x80xbf16> to tensor<64x80xbf16>
        hopper.load %kt into %kr bytes 8192 : tensor<64x64xbf16>, <2, tensor<64x64xbf16>>
        // Two panels: 80 columns arrive as 128.
        // CHECK: hopper.load %{{.*}} into %[[V]] bytes 16384 : tensor<64x80xbf16>, <2, tensor<64x80xbf16>>
        hopper.load %vt into %vr bytes 16384 : tensor<64x80xbf16>, <2, tensor<64x80xbf16>>
      }
    }
    // CHECK: %[[R:.*]]:2 = hopper.consumers 2 registers 240 -> (tensor<128x80xf32>, tensor<128x8xf32>) {
    %o:2 = hopper.consumers 2 registers 240 -> (tensor<128x80xf32>, tensor<128x8xf32>) {
      %oe = tensor.empty() : tensor<128x80xf32>
      %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<128x80xf32>) -> tensor<128x80xf32>
      %le = tensor.empty() : tensor<128x8xf32>
      %l0 = linalg.fill ins(%zero : f32) outs(%le : tensor<128x8xf32>) -> tensor<128x8xf32>
      // CHECK: %[[QS:.*]] = hopper.acquire %[[Q]] of %{{.*}} : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      %qs = hopper.acquire %qr of %qt : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      %s:2 = scf.for %j = %c0 to %c256 step %c64 iter_args(%a = %o0, %l = %l0) -> (tensor<128x80xf32>, tensor<128x8xf32>) {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<256x64xbf16> to tensor<64x64xbf16>
        %vt = tensor.extract_slice %v[%j, 0] [64, 80] [1, 1] : tensor<256x80xbf16> to tensor<64x80xbf16>
        // CHECK: hopper.poll %[[K]] : <2, tensor<64x64xbf16>>
        hopper.poll %kr : <2, tensor<64x64xbf16>>
        // CHECK: %[[KS:.*]] = hopper.acquire %[[K]] of %{{.*}} polled : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        %ks = hopper.acquire %kr of %kt polled : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
        // CHECK: hopper.turn_begin
        hopper.turn_begin
        // CHECK: %[[S:.*]] = hopper.wgmma %[[QS]], %[[KS]] : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<128x64xf32>>
        %p = hopper.wgmma %qs, %ks : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<128x64xf32>>
        // CHECK: hopper.turn_end
        hopper.turn_end
        // CHECK: %[[D:.*]] = hopper.wait_group 0, %[[S]] : !hopper.pending<tensor<128x64xf32>>
        %done = hopper.wait_group 0, %p : !hopper.pending<tensor<128x64xf32>>
        // CHECK: hopper.release %[[KS]] : <tensor<64x64xbf16>>
        hopper.release %ks : <tensor<64x64xbf16>>
        // CHECK: hopper.exceeds %[[D]] limit 2.000000e+00 : tensor<128x64xf32>
        %large = hopper.exceeds %done limit 2.0 : tensor<128x64xf32>
        // CHECK: hopper.pin %[[D]] : tensor<128x64xf32>
        %pinned = hopper.pin %done : tensor<128x64xf32>
        // CHECK: hopper.partial_sums %{{.*}}, %{{.*}} : tensor<128x64xf32>, tensor<128x8xf32> -> tensor<128x8xf32>
        %sum = hopper.partial_sums %pinned, %l : tensor<128x64xf32>, tensor<128x8xf32> -> tensor<128x8xf32>
        %pe = tensor.empty() : tensor<128x64xbf16>
        %w = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
          ins(%pinned : tensor<128x64xf32>) outs(%pe : tensor<128x64xbf16>) {
        ^bb0(%x: f32, %y: bf16):
          %t = arith.truncf %x : f32 to bf16
          linalg.yield %t : bf16
        } -> tensor<128x64xbf16>
        // CHECK: %[[VS:.*]] = hopper.acquire %[[V]] of %{{.*}} :
        %vs = hopper.acquire %vr of %vt : <2, tensor<64x80xbf16>> -> <tensor<64x80xbf16>>
        // CHECK: hopper.wgmma %{{.*}}, %[[VS]] transposed init(%{{.*}}, %{{.*}}) : (tensor<128x64xbf16>, !hopper.slot<tensor<64x80xbf16>>, tensor<128x80xf32>, tensor<128x8xf32>) -> (!hopper.pending<tensor<128x80xf32>>, !hopper.pending<tensor<128x8xf32>>)
        %n:2 = hopper.wgmma %w, %vs transposed init(%a, %sum)
          : (tensor<128x64xbf16>, !hopper.slot<tensor<64x80xbf16>>, tensor<128x80xf32>, tensor<128x8xf32>) -> (!hopper.pending<tensor<128x80xf32>>, !hopper.pending<tensor<128x8xf32>>)
        // CHECK: hopper.wait_group 1, %{{.*}}, %{{.*}} : !hopper.pending<tensor<128x80xf32>>, !hopper.pending<tensor<128x8xf32>>
        %m:2 = hopper.wait_group 1, %n#0, %n#1 : !hopper.pending<tensor<128x80xf32>>, !hopper.pending<tensor<128x8xf32>>
        // CHECK: hopper.release %[[VS]] if %{{.*}} : <tensor<64x80xbf16>>
        hopper.release %vs if %large : <tensor<64x80xbf16>>
        scf.yield %m#0, %m#1 : tensor<128x80xf32>, tensor<128x8xf32>
      }
      // CHECK: hopper.yield %{{.*}}, %{{.*}} : tensor<128x80xf32>, tensor<128x8xf32>
      hopper.yield %s#0, %s#1 : tensor<128x80xf32>, tensor<128x8xf32>
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %o#0 into %out[%i, 0] [128, 80] [1, 1] : tensor<128x80xf32> into tensor<128x80xf32>
    }
  }
  return %r : tensor<128x80xf32>
}

// Two teams of consumers take tiles from one queue.

// CHECK-LABEL: func.func @teams(
func.func @teams() {
  scf.forall (%i) in (1) {
    // CHECK: hopper.tile_queue barriers 16 teams 2{{$}}
    hopper.tile_queue barriers 16 teams 2
    hopper.producer registers 24 {
    }
    // CHECK: hopper.consumers 2 registers 112 spare 72 carried_first {
    hopper.consumers 2 registers 112 spare 72 carried_first {
    }
  }
  return
}

// Without results the terminator is implied. Results are staged whole or in
// sections.

// CHECK-LABEL: func.func @no_results(
func.func @no_results(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "q" at 1024 barriers 0 : <1, tensor<64x128xf16>>
    // CHECK: hopper.tile_queue barriers 16{{$}}
    hopper.tile_queue barriers 16
    // CHECK: hopper.producer registers 24 {
    // CHECK-NEXT: }
    hopper.producer registers 24 {
    }
    // CHECK: hopper.consumers 1 registers 256 {
    hopper.consumers 1 registers 256 {
      // CHECK-NEXT: hopper.stage %{{.*}} at 17408 : tensor<64x64xf16>
      %s = hopper.stage %t at 17408 : tensor<64x64xf16>
      // CHECK-NEXT: tensor.empty
      %w = tensor.empty() : tensor<64x256xf16>
      // CHECK-NEXT: hopper.stage %{{.*}} at 17408 by 64 : tensor<64x256xf16>
      %ws = hopper.stage %w at 17408 by 64 : tensor<64x256xf16>
      // CHECK-NEXT: tensor.empty
      %f = tensor.empty() : tensor<64x64xf32>
      // CHECK-NEXT: hopper.stage %{{.*}} at 17408 adders 112 : tensor<64x64xf32>
      %fs = hopper.stage %f at 17408 adders 112 : tensor<64x64xf32>
      // CHECK-NEXT: }
    }
  }
  return
}

// What the consumers compute, shared, and read the other way round.

// CHECK-LABEL: func.func @shared(
func.func @shared(%k: tensor<128x64xbf16>, %ds: tensor<128x64xbf16>) {
  scf.forall (%i) in (4) {
    // CHECK: %[[K:.*]] = hopper.ring "k" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    %kr = hopper.ring "k" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    // CHECK: %[[S:.*]] = hopper.ring "ds" at 17408 barriers 16 computed : <1, tensor<128x64xbf16>>
    %sr = hopper.ring "ds" at 17408 barriers 16 computed : <1, tensor<128x64xbf16>>
    hopper.producer registers 24 {
      hopper.load %k into %kr bytes 16384 : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
    }
    hopper.consumers 2 registers 240 {
      %ks = hopper.acquire %kr of %k : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      // CHECK: hopper.share %{{.*}} into %[[S]] : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
      hopper.share %ds into %sr : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
      %ss = hopper.acquire %sr of %ds : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      // CHECK: hopper.wgmma %{{.*}} transposed, %{{.*}} transposed : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<128x64xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %p = hopper.wgmma %ss transposed, %ks transposed : (!hopper.slot<tensor<128x64xbf16>>, !hopper.slot<tensor<128x64xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %dq = hopper.wait_group 0, %p : !hopper.pending<tensor<64x64xf32>>
      hopper.release %ss : <tensor<128x64xbf16>>
      hopper.release %ks : <tensor<128x64xbf16>>
    }
  }
  return
}

// What lies turned, and a product that gives the transpose of what is staged.

// CHECK-LABEL: func.func @turned(
func.func @turned(%k: tensor<64x64xbf16>, %ds: tensor<64x80xbf16>) {
  scf.forall (%i) in (4) {
    %kr = hopper.ring "k" at 1024 barriers 0 : <1, tensor<64x64xbf16>>
    // CHECK: %[[S:.*]] = hopper.ring "ds" at 9216 barriers 16 computed : <1, tensor<64x80xbf16>, turned>
    %sr = hopper.ring "ds" at 9216 barriers 16 computed : <1, tensor<64x80xbf16>, turned>
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
      hopper.load %k into %kr bytes 8192 : tensor<64x64xbf16>, <1, tensor<64x64xbf16>>
    }
    // CHECK: hopper.consumers 1 registers 240 free 24 sums_first shares_later streams exchange 65536 {
    hopper.consumers 1 registers 240 free 24 sums_first shares_later streams exchange 65536 {
      %ks = hopper.acquire %kr of %k : <1, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
      // CHECK: hopper.share %{{.*}} into %[[S]] : tensor<64x80xbf16>, <1, tensor<64x80xbf16>, turned>
      hopper.share %ds into %sr : tensor<64x80xbf16>, <1, tensor<64x80xbf16>, turned>
      // CHECK: hopper.acquire %[[S]] of %{{.*}} : <1, tensor<64x80xbf16>, turned> -> <tensor<64x80xbf16>>
      %ss = hopper.acquire %sr of %ds : <1, tensor<64x80xbf16>, turned> -> <tensor<64x80xbf16>>
      %p = hopper.wgmma %ks transposed, %ss transposed : (!hopper.slot<tensor<64x64xbf16>>, !hopper.slot<tensor<64x80xbf16>>) -> !hopper.pending<tensor<64x80xf32>>
      %t = hopper.wait_group 0, %p : !hopper.pending<tensor<64x80xf32>>
      // CHECK: hopper.stage %{{.*}} turned at 20480 adders 128 : tensor<64x80xf32>
      %dq = hopper.stage %t turned at 20480 adders 128 : tensor<64x80xf32>
      // CHECK: tensor.dim %{{.*}} : tensor<80x64xf32>
      %c0 = arith.constant 0 : index
      %rows = tensor.dim %dq, %c0 : tensor<80x64xf32>
      hopper.release %ss : <tensor<64x80xbf16>>
      hopper.release %ks : <tensor<64x64xbf16>>
    }
  }
  return
}

// A vector that fills and empties with a tile; tiles that the consumers fill
// when the order of their steps shows that a stage is empty.

// CHECK-LABEL: func.func @companion(
func.func @companion(%q: tensor<128x64xbf16>, %l: tensor<128xf32>) {
  scf.forall (%i) in (4) {
    // CHECK: %[[Q:.*]] = hopper.ring "q" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    %qr = hopper.ring "q" at 1024 barriers 0 : <1, tensor<128x64xbf16>>
    // CHECK: %[[L:.*]] = hopper.ring "l" at 17408 barriers 0 with %[[Q]] : !hopper.ring<1, tensor<128x64xbf16>> in : <1, tensor<128xf32>>
    %lr = hopper.ring "l" at 17408 barriers 0 with %qr : !hopper.ring<1, tensor<128x64xbf16>> in : <1, tensor<128xf32>>
    // CHECK: hopper.ring "p" at 18432 barriers 16 computed unguarded : <2, tensor<128x64xbf16>>
    %pr = hopper.ring "p" at 18432 barriers 16 computed unguarded : <2, tensor<128x64xbf16>>
    hopper.producer registers 24 {
      hopper.load %q into %qr bytes 16384 : tensor<128x64xbf16>, <1, tensor<128x64xbf16>>
      hopper.load %l into %lr bytes 512 : tensor<128xf32>, <1, tensor<128xf32>>
    }
    hopper.consumers 2 registers 240 {
      // CHECK: %[[S:.*]] = hopper.acquire %[[Q]]
      %qs = hopper.acquire %qr of %q : <1, tensor<128x64xbf16>> -> <tensor<128x64xbf16>>
      // CHECK: hopper.acquire %[[L]] of %{{.*}} with %[[S]] : !hopper.slot<tensor<128x64xbf16>> in : <1, tensor<128xf32>> -> <tensor<128xf32>>
      %ls = hopper.acquire %lr of %l with %qs : !hopper.slot<tensor<128x64xbf16>> in : <1, tensor<128xf32>> -> <tensor<128xf32>>
      %x = hopper.read %ls : <tensor<128xf32>> -> tensor<128xf32>
      hopper.release %qs : <tensor<128x64xbf16>>
    }
  }
  return
}
