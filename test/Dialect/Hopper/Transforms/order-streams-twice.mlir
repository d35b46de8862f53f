// A tile that is shared twice is not streamed: the second time may wait for the
// first, so that it cannot wait for the second's stage.

// RUN: fa-opt %s --hopper-order --hopper-verify | FileCheck %s

// CHECK-LABEL: func.func @twice(
// CHECK: hopper.wait_group 0
// CHECK: arith.truncf
// CHECK-COUNT-2: hopper.share
// CHECK: hopper.wgmma
// CHECK: hopper.wait_group 0
func.func @twice(%k: tensor<64x64xbf16>) {
  scf.forall (%i) in (4) {
    %kr = hopper.ring "k" at 1024 barriers 0 : <1, tensor<64x64xbf16>>
    %pr = hopper.ring "p" at 9216 barriers 16 computed : <2, tensor<64x64xbf16>>
    hopper.tile_queue barriers 64
    hopper.producer registers 24 {
      hopper.load %k into %kr bytes 8192 : tensor<64x64xbf16>, <1, tensor<64x64xbf16>>
    }
    hopper.consumers 1 registers 240 streams {
      %ks = hopper.acquire %kr of %k : <1, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
      %s = hopper.wgmma %ks, %ks : (!hopper.slot<tensor<64x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %t = hopper.wait_group 0, %s : !hopper.pending<tensor<64x64xf32>>
      %empty = tensor.empty() : tensor<64x64xbf16>
      %p = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x64xf32>) outs(%empty : tensor<64x64xbf16>) {
      ^bb0(%x: f32, %out: bf16):
        %y = arith.truncf %x : f32 to bf16
        linalg.yield %y : bf16
      } -> tensor<64x64xbf16>
      hopper.share %p into %pr : tensor<64x64xbf16>, <2, tensor<64x64xbf16>>
      %first = hopper.acquire %pr of %p : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
      hopper.share %p into %pr : tensor<64x64xbf16>, <2, tensor<64x64xbf16>>
      %second = hopper.acquire %pr of %p : <2, tensor<64x64xbf16>> -> <tensor<64x64xbf16>>
      %o = hopper.wgmma %first, %second : (!hopper.slot<tensor<64x64xbf16>>, !hopper.slot<tensor<64x64xbf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %u = hopper.wait_group 0, %o : !hopper.pending<tensor<64x64xf32>>
      hopper.release %first : <tensor<64x64xbf16>>
      hopper.release %second : <tensor<64x64xbf16>>
      hopper.release %ks : <tensor<64x64xbf16>>
    }
  }
  return
}
