// Each input is the output of --fa-schedule-ampere.
// RUN: fa-opt %s --split-input-file --verify-diagnostics --fa-tiles-to-threads

func.func @scalar_argument(%q: tensor<64x64xf32>, %s: f32) -> tensor<64x64xf32> { // expected-error {{expected tensor arguments, got 'f32' for argument 1}}
  %e = tensor.empty() : tensor<64x64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<64x64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> to tensor<64x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %t into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<64x64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 0>}
  return %r : tensor<64x64xf32>
}

// -----

#fragment = #nvidia.fragment<columns, row_warps = 4 of 4>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
func.func @column_reduction(%q: tensor<64x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.000000e+00 : f32
  %e = tensor.empty() : tensor<64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> to tensor<64x64xf32>
    %e2 = tensor.empty() : tensor<64xf32, #fragment>
    %f = linalg.fill ins(%zero : f32) outs(%e2 : tensor<64xf32, #fragment>) -> tensor<64xf32, #fragment>
    // expected-error@below {{of reductions only those along a tile's rows (dimension 1) can}}
    %s = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]} ins(%t : tensor<64x64xf32>) outs(%f : tensor<64xf32, #fragment>) {
    ^bb0(%x: f32, %acc: f32):
      %n = arith.addf %acc, %x : f32
      linalg.yield %n : f32
    } -> tensor<64xf32, #fragment>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0] [64] [1] : tensor<64xf32, #fragment> into tensor<64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 0>}
  return %r : tensor<64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @difference(%q: tensor<64x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.000000e+00 : f32
  %half = arith.constant 5.000000e-01 : f32
  %e = tensor.empty() : tensor<64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> to tensor<64x64xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    // expected-error@below {{expected each result to be one associative operation on the accumulator, such as a sum or a maximum; compute the rest in an elementwise operation}}
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%t : tensor<64x64xf32>) outs(%f : tensor<64xf32>) {
    ^bb0(%x: f32, %acc: f32):
      %n = arith.subf %acc, %x : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 8, teams = 1, shared = 0>}
  return %r : tensor<64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @decayed_sum(%q: tensor<64x64xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.000000e+00 : f32
  %half = arith.constant 5.000000e-01 : f32
  %e = tensor.empty() : tensor<64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> to tensor<64x64xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    // expected-error@below {{expected each result to be one associative operation on the accumulator, such as a sum or a maximum; compute the rest in an elementwise operation}}
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%t : tensor<64x64xf32>) outs(%f : tensor<64xf32>) {
    ^bb0(%x: f32, %acc: f32):
      %d = arith.mulf %acc, %half : f32
      %n = arith.addf %d, %x : f32
      linalg.yield %n : f32
    } -> tensor<64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0] [64] [1] : tensor<64xf32> into tensor<64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 8, teams = 1, shared = 0>}
  return %r : tensor<64xf32>
}

// -----

#fragment = #nvidia.fragment<tile, row_warps = 4 of 4>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @transpose(%q: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %e = tensor.empty() : tensor<64x64xf32>
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<64x64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> to tensor<64x64xf32>
    %e2 = tensor.empty() : tensor<64x64xf32, #fragment>
    // expected-error@below {{cannot be distributed: operand 0 is indexed by affine_map<(d0, d1) -> (d1, d0)>, expected the identity or one dimension}}
    %s = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x64xf32>) outs(%e2 : tensor<64x64xf32, #fragment>) {
    ^bb0(%x: f32, %y: f32):
      linalg.yield %x : f32
    } -> tensor<64x64xf32, #fragment>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0, 0] [64, 64] [1, 1] : tensor<64x64xf32, #fragment> into tensor<64x64xf32>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 0>}
  return %r : tensor<64x64xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @follows_none(%q: tensor<32x64xf32>) -> tensor<32x64xf32> {
  %e = tensor.empty() : tensor<32x64xf32>
  // expected-error@below {{cannot follow the kernel before it: there is no kernel before it that has roles and a hopper.tile_queue; remove hopper.follows}}
  %r = scf.forall (%i) in (1) shared_outs(%o = %e) -> (tensor<32x64xf32>) {
    %t = tensor.extract_slice %q[0, 0] [32, 64] [1, 1] : tensor<32x64xf32> to tensor<32x64xf32>
    %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<32x64xf32>) outs(%e : tensor<32x64xf32>) {
    ^bb0(%x: f32, %y: f32):
      %n = arith.addf %x, %x : f32
      linalg.yield %n : f32
    } -> tensor<32x64xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %s into %o[0, 0] [32, 64] [1, 1] : tensor<32x64xf32> into tensor<32x64xf32>
    }
  } {hopper.follows = -1 : i64, nvidia.block = #nvidia.block<chip = "sm_80", warps = 4, teams = 1, shared = 0>}
  return %r : tensor<32x64xf32>
}

// -----

// Warps that are asked for and do not divide the rows, in test/inputs/tiles/rows.mlir.

#map = affine_map<(d0)[s0] -> (-d0 + s0, 24)>
#map1 = affine_map<(d0) -> (-d0 + 24)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#map4 = affine_map<(d0) -> (d0)>
func.func @rows(%x: tensor<?x48xbf16>, %y: tensor<?x50xf32>, %v: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xbf16>) {
  %c0 = arith.constant 0 : index
  %zero16 = arith.constant 0.000000e+00 : bf16
  %zero = arith.constant 0.000000e+00 : f32
  %least = arith.constant 0xFF80 : bf16
  %rows = tensor.dim %x, %c0 : tensor<?x48xbf16>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %empty16 = tensor.empty(%rows) : tensor<?xbf16>
  // expected-error@below {{expected warps to divide 3 (24 rows of 4 lanes), got 2; choose another number, or leave it out}}
  %r:2 = scf.forall (%i) = (0) to (%rows) step (24) shared_outs(%out = %empty, %out16 = %empty16) -> (tensor<?xf32>, tensor<?xbf16>) {
    %m = affine.min #map(%i)[%rows]
    %pad = affine.apply #map1(%m)
    %xs = tensor.extract_slice %x[%i, 0] [%m, 48] [1, 1] : tensor<?x48xbf16> to tensor<?x48xbf16>
    %xt = tensor.pad %xs low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero16 : bf16
    } : tensor<?x48xbf16> to tensor<24x48xbf16>
    %ys = tensor.extract_slice %y[%i, 1] [%m, 48] [1, 1] : tensor<?x50xf32> to tensor<?x48xf32>
    %yt = tensor.pad %ys low[0, 0] high[%pad, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %zero : f32
    } : tensor<?x48xf32> to tensor<24x48xf32>
    %vs = tensor.extract_slice %v[%i] [%m] [1] : tensor<?xf32> to tensor<?xf32>
    %vt = tensor.pad %vs low[0] high[%pad] {
    ^bb0(%a: index):
      tensor.yield %zero : f32
    } : tensor<?xf32> to tensor<24xf32>
    %e = tensor.empty() : tensor<24x48xf32>
    %product = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%xt, %yt : tensor<24x48xbf16>, tensor<24x48xf32>) outs(%e : tensor<24x48xf32>) {
    ^bb0(%a: bf16, %b: f32, %o: f32):
      %a32 = arith.extf %a : bf16 to f32
      %ab = arith.mulf %a32, %b : f32
      linalg.yield %ab : f32
    } -> tensor<24x48xf32>
    %ev = tensor.empty() : tensor<24xf32>
    %ev16 = tensor.empty() : tensor<24xbf16>
    %zeros = linalg.fill ins(%zero : f32) outs(%ev : tensor<24xf32>) -> tensor<24xf32>
    %leasts = linalg.fill ins(%least : bf16) outs(%ev16 : tensor<24xbf16>) -> tensor<24xbf16>
    %sums:2 = linalg.generic {indexing_maps = [#id, #id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%product, %xt : tensor<24x48xf32>, tensor<24x48xbf16>) outs(%zeros, %leasts : tensor<24xf32>, tensor<24xbf16>) {
    ^bb0(%a: f32, %b: bf16, %s: f32, %t: bf16):
      %sum = arith.addf %a, %s : f32
      %max = arith.maximumf %t, %b : bf16
      linalg.yield %sum, %max : f32, bf16
    } -> (tensor<24xf32>, tensor<24xbf16>)
    %less = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel"]} ins(%sums#0, %vt : tensor<24xf32>, tensor<24xf32>) outs(%ev : tensor<24xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %d = arith.subf %a, %b : f32
      linalg.yield %d : f32
    } -> tensor<24xf32>
    %valid = tensor.extract_slice %less[0] [%m] [1] : tensor<24xf32> to tensor<?xf32>
    %valid16 = tensor.extract_slice %sums#1[0] [%m] [1] : tensor<24xbf16> to tensor<?xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %valid into %out[%i] [%m] [1] : tensor<?xf32> into tensor<?xf32>
      tensor.parallel_insert_slice %valid16 into %out16[%i] [%m] [1] : tensor<?xbf16> into tensor<?xbf16>
    }
  } {nvidia.block = #nvidia.block<chip = "sm_80", warps = 2, teams = 1, shared = 0>}
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xbf16>
}
