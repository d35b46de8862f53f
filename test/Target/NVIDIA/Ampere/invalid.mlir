// RUN: fa-opt %s --split-input-file --verify-diagnostics --fa-schedule-ampere

func.func @odd_rows(%q: tensor<24x64xf32>, %d: tensor<24xf32>) -> tensor<24x64xf32> {
  %e = tensor.empty() : tensor<24x64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<24x64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [24, 64] [1, 1] : tensor<24x64xf32> to tensor<24x64xf32>
    %v = tensor.extract_slice %d[0] [24] [1] : tensor<24xf32> to tensor<24xf32>
    // expected-error@below {{expected tiles whose number of rows is a multiple of 16, got 24; choose another tile size}}
    %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%t, %v : tensor<24x64xf32>, tensor<24xf32>) outs(%e : tensor<24x64xf32>) {
    ^bb0(%x: f32, %w: f32, %y: f32):
      %n = arith.addf %x, %w : f32
      linalg.yield %n : f32
    } -> tensor<24x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0, 0] [24, 64] [1, 1] : tensor<24x64xf32> into tensor<24x64xf32>
    }
  }
  return %r : tensor<24x64xf32>
}

// -----

// A tile that was not made a full one, though the other operand says how long
// the sum is.
func.func @dynamic_tile(%a: tensor<128x64xbf16>, %b: tensor<64x64xbf16>, %n: index) -> tensor<128x64xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<128x64xf32>
  %r = scf.forall (%i) = (0) to (128) step (128) shared_outs(%o = %out) -> (tensor<128x64xf32>) {
    %tile = tensor.extract_slice %b[0, 0] [%n, 64] [1, 1] : tensor<64x64xbf16> to tensor<?x64xbf16>
    %e = tensor.empty() : tensor<128x64xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<128x64xf32>) -> tensor<128x64xf32>
    // expected-error@below {{expected tiles of static sizes, got operands of 'tensor<128x64xbf16>' and 'tensor<?x64xbf16>'; run --fa-pad-tiles first}}
    %p = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %tile : tensor<128x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<128x64xf32>) {
    ^bb0(%x: bf16, %y: bf16, %s: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %xy = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %s, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<128x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [128, 64] [1, 1] : tensor<128x64xf32> into tensor<128x64xf32>
    }
  }
  return %r : tensor<128x64xf32>
}

// -----

// The bytes of a tile are no number of 64 bits.
func.func @huge_tile(%a: tensor<4294967296x4294967296xbf16>, %b: tensor<4294967296x4294967296xbf16>) -> tensor<4294967296x4294967296xf32> {
  %zero = arith.constant 0.0 : f32
  %out = tensor.empty() : tensor<4294967296x4294967296xf32>
  %r = scf.forall (%i) = (0) to (4294967296) step (4294967296) shared_outs(%o = %out) -> (tensor<4294967296x4294967296xf32>) {
    %e = tensor.empty() : tensor<4294967296x4294967296xf32>
    // expected-error@below {{expected tiles of at most 16777216 elements, got 'tensor<4294967296x4294967296xf32>'; choose smaller tiles}}
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<4294967296x4294967296xf32>) -> tensor<4294967296x4294967296xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<4294967296x4294967296xbf16>, tensor<4294967296x4294967296xbf16>) outs(%zeros : tensor<4294967296x4294967296xf32>) {
    ^bb0(%x: bf16, %y: bf16, %s: f32):
      %x32 = arith.extf %x : bf16 to f32
      %y32 = arith.extf %y : bf16 to f32
      %xy = arith.mulf %x32, %y32 : f32
      %sum = arith.addf %s, %xy : f32
      linalg.yield %sum : f32
    } -> tensor<4294967296x4294967296xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %p into %o[%i, 0] [4294967296, 4294967296] [1, 1] : tensor<4294967296x4294967296xf32> into tensor<4294967296x4294967296xf32>
    }
  }
  return %r : tensor<4294967296x4294967296xf32>
}
