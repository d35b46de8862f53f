// Each input is one head of the output of --fa-pipeline="rows=128 keys=64 speculate=on
// stop-after=fa-split-mask-loops".
// RUN: fa-opt %s --fa-order-keys | FileCheck %s --check-prefixes=CHECK,AUTO
// RUN: fa-opt %s --fa-order-keys --remarks-filter=fa-order-keys --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: fa-opt %s --fa-order-keys="order=ascending" | FileCheck %s --check-prefix=UP
// RUN: not fa-opt %s --fa-order-keys="order=down" 2>&1 | FileCheck %s --check-prefix=PASS

// PASS: error: expected order auto, ascending or descending, got down

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#end = affine_map<()[i] -> (i + 128, 512)>
#full = affine_map<()[i] -> (i + 1)>
#next = affine_map<(j) -> (j + 64)>

// The last keys are the nearest, and their scores the largest: the slope is a
// power of two.
// CHECK-DAG: #[[$SUM:.*]] = affine_map<()[s0] -> (((s0 - 1) floordiv 64) * 64)>
// CHECK-LABEL: func @alibi
// CHECK: %[[SUM:.*]] = affine.apply #[[$SUM]]()[%[[END:[a-z0-9]+]]]
// CHECK: scf.for %[[N:[a-z0-9]+]] = %c0 to %[[END]] step %c64
// CHECK-NEXT: %[[J:.*]] = arith.subi %[[SUM]], %[[N]]
// CHECK: tensor.extract_slice %{{.*}}[%[[J]], 0]
// CHECK-NOT: %[[N]]
// CHECK: fa.online_softmax
// UP-LABEL: func @alibi
// UP: scf.for %
// UP: scf.for %[[N:[a-z0-9]+]] = %c0 to
// UP: tensor.extract_slice %{{.*}}[%[[N]], 0]
// REMARK: remark: [Passed] Descending {{.*}}Function=alibi{{.*}}put the last keys first: scores grow with the key
func.func @alibi(%q: tensor<512x64xf32>, %k: tensor<512x64xf32>, %h: index, %max0: tensor<128xf32>, %sum0: tensor<128xf32>, %zeros: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %r = scf.for %i0 = %c0 to %c512 step %c128 iter_args(%before = %zeros) -> tensor<128x64xf32> {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xf32> to tensor<128x64xf32>
    %end = affine.min #end()[%i0]
    %full = affine.apply #full()[%i0]
    %state:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %zeros) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<512x64xf32> to tensor<64x64xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %y: f32, %part: f32):
        %product = arith.mulf %x, %y : f32
        %dot = arith.addf %part, %product : f32
        linalg.yield %dot : f32
      } -> tensor<128x64xf32>
      %next_key = affine.apply #next(%j0)
      %isfull = arith.cmpi sle, %next_key, %full : index
      %scores = scf.if %isfull -> (tensor<128x64xf32>) {
        %seen_all = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %n = arith.index_cast %h : index to i32
          %f = arith.sitofp %n : i32 to f32
          %minus = arith.negf %f : f32
          %slope = math.exp2 %minus : f32
          %d = arith.subi %i, %j : index
          %m = arith.index_cast %d : index to i32
          %g = arith.sitofp %m : i32 to f32
          %bias = arith.mulf %slope, %g : f32
          %y = arith.subf %scaled, %bias : f32
          linalg.yield %y : f32
        } -> tensor<128x64xf32>
        scf.yield %seen_all : tensor<128x64xf32>
      } else {
        %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %n = arith.index_cast %h : index to i32
          %f = arith.sitofp %n : i32 to f32
          %minus = arith.negf %f : f32
          %slope = math.exp2 %minus : f32
          %d = arith.subi %i, %j : index
          %m = arith.index_cast %d : index to i32
          %g = arith.sitofp %m : i32 to f32
          %bias = arith.mulf %slope, %g : f32
          %y = arith.subf %scaled, %bias : f32
          %seen = arith.cmpi sle, %j, %i : index
          %score = arith.select %seen, %y, %none : f32
          linalg.yield %score : f32
        } -> tensor<128x64xf32>
        scf.yield %masked : tensor<128x64xf32>
      }
      %step:3 = fa.online_softmax ins(%scores, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%max, %sum, %acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
      scf.yield %step#0, %step#1, %step#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.yield %state#2 : tensor<128x64xf32>
  }
  return %r : tensor<128x64xf32>
}

// Nothing is known of what is read, but that the last keys are the nearest.
// CHECK-LABEL: func @captured
// CHECK: scf.for %
// CHECK: scf.for %[[N:[a-z0-9]+]] = %c0
// CHECK-NEXT: arith.subi %{{.*}}, %[[N]]
// REMARK: remark: [Passed] Descending {{.*}}Function=captured{{.*}}put the last keys first: scores change with the key, and the last ones are the nearest
func.func @captured(%q: tensor<512x64xf32>, %k: tensor<512x64xf32>, %slopes: tensor<2xf32>, %h: index, %max0: tensor<128xf32>, %sum0: tensor<128xf32>, %zeros: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %r = scf.for %i0 = %c0 to %c512 step %c128 iter_args(%before = %zeros) -> tensor<128x64xf32> {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xf32> to tensor<128x64xf32>
    %end = affine.min #end()[%i0]
    %full = affine.apply #full()[%i0]
    %state:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %zeros) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<512x64xf32> to tensor<64x64xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %y: f32, %part: f32):
        %product = arith.mulf %x, %y : f32
        %dot = arith.addf %part, %product : f32
        linalg.yield %dot : f32
      } -> tensor<128x64xf32>
      %next_key = affine.apply #next(%j0)
      %isfull = arith.cmpi sle, %next_key, %full : index
      %scores = scf.if %isfull -> (tensor<128x64xf32>) {
        %seen_all = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %slope = tensor.extract %slopes[%h] : tensor<2xf32>
          %d = arith.subi %j, %i : index
          %m = arith.index_cast %d : index to i32
          %g = arith.sitofp %m : i32 to f32
          %bias = arith.mulf %slope, %g : f32
          %y = arith.addf %scaled, %bias : f32
          linalg.yield %y : f32
        } -> tensor<128x64xf32>
        scf.yield %seen_all : tensor<128x64xf32>
      } else {
        %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %slope = tensor.extract %slopes[%h] : tensor<2xf32>
          %d = arith.subi %j, %i : index
          %m = arith.index_cast %d : index to i32
          %g = arith.sitofp %m : i32 to f32
          %bias = arith.mulf %slope, %g : f32
          %y = arith.addf %scaled, %bias : f32
          %seen = arith.cmpi sle, %j, %i : index
          %score = arith.select %seen, %y, %none : f32
          linalg.yield %score : f32
        } -> tensor<128x64xf32>
        scf.yield %masked : tensor<128x64xf32>
      }
      %step:3 = fa.online_softmax ins(%scores, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%max, %sum, %acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
      scf.yield %step#0, %step#1, %step#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.yield %state#2 : tensor<128x64xf32>
  }
  return %r : tensor<128x64xf32>
}

// Without rows that bound the keys nothing is known.
// AUTO-LABEL: func @unbounded
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%[[N]], 0]
// REMARK-NOT: Function=unbounded
func.func @unbounded(%q: tensor<512x64xf32>, %k: tensor<512x64xf32>, %slopes: tensor<2xf32>, %h: index, %max0: tensor<128xf32>, %sum0: tensor<128xf32>, %zeros: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %r = scf.for %i0 = %c0 to %c512 step %c128 iter_args(%before = %zeros) -> tensor<128x64xf32> {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xf32> to tensor<128x64xf32>
    %state:3 = scf.for %j0 = %c0 to %c512 step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %zeros) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<512x64xf32> to tensor<64x64xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %y: f32, %part: f32):
        %product = arith.mulf %x, %y : f32
        %dot = arith.addf %part, %product : f32
        linalg.yield %dot : f32
      } -> tensor<128x64xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %m = arith.index_cast %j : index to i32
        %g = arith.sitofp %m : i32 to f32
        %slope = tensor.extract %slopes[%h] : tensor<2xf32>
        %bias = arith.mulf %slope, %g : f32
        %y = arith.addf %scaled, %bias : f32
        linalg.yield %y : f32
      } -> tensor<128x64xf32>
      %step:3 = fa.online_softmax ins(%scores, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%max, %sum, %acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
      scf.yield %step#0, %step#1, %step#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.yield %state#2 : tensor<128x64xf32>
  }
  return %r : tensor<128x64xf32>
}

// Scores that fall, and a mask alone, leave the first keys first.
// AUTO-LABEL: func @falls
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%[[N]], 0]
// REMARK-NOT: Function=falls
func.func @falls(%q: tensor<512x64xf32>, %k: tensor<512x64xf32>, %max0: tensor<128xf32>, %sum0: tensor<128xf32>, %zeros: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %r = scf.for %i0 = %c0 to %c512 step %c128 iter_args(%before = %zeros) -> tensor<128x64xf32> {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xf32> to tensor<128x64xf32>
    %end = affine.min #end()[%i0]
    %full = affine.apply #full()[%i0]
    %state:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %zeros) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<512x64xf32> to tensor<64x64xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %y: f32, %part: f32):
        %product = arith.mulf %x, %y : f32
        %dot = arith.addf %part, %product : f32
        linalg.yield %dot : f32
      } -> tensor<128x64xf32>
      %next_key = affine.apply #next(%j0)
      %isfull = arith.cmpi sle, %next_key, %full : index
      %scores = scf.if %isfull -> (tensor<128x64xf32>) {
        %seen_all = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %scaled = arith.mulf %x, %scale : f32
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %m = arith.index_cast %j : index to i32
          %g = arith.sitofp %m : i32 to f32
          %y = arith.subf %scaled, %g : f32
          linalg.yield %y : f32
        } -> tensor<128x64xf32>
        scf.yield %seen_all : tensor<128x64xf32>
      } else {
        %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %scaled = arith.mulf %x, %scale : f32
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %m = arith.index_cast %j : index to i32
          %g = arith.sitofp %m : i32 to f32
          %y = arith.subf %scaled, %g : f32
          %seen = arith.cmpi sle, %j, %i : index
          %score = arith.select %seen, %y, %none : f32
          linalg.yield %score : f32
        } -> tensor<128x64xf32>
        scf.yield %masked : tensor<128x64xf32>
      }
      %step:3 = fa.online_softmax ins(%scores, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%max, %sum, %acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
      scf.yield %step#0, %step#1, %step#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.yield %state#2 : tensor<128x64xf32>
  }
  return %r : tensor<128x64xf32>
}

// AUTO-LABEL: func @causal
// AUTO: scf.for %
// AUTO: scf.for %[[N:[a-z0-9]+]] = %c0 to
// AUTO: tensor.extract_slice %{{.*}}[%[[N]], 0]
// REMARK-NOT: Function=causal
func.func @causal(%q: tensor<512x64xf32>, %k: tensor<512x64xf32>, %max0: tensor<128xf32>, %sum0: tensor<128xf32>, %zeros: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %c512 = arith.constant 512 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %r = scf.for %i0 = %c0 to %c512 step %c128 iter_args(%before = %zeros) -> tensor<128x64xf32> {
    %qt = tensor.extract_slice %q[%i0, 0] [128, 64] [1, 1] : tensor<512x64xf32> to tensor<128x64xf32>
    %end = affine.min #end()[%i0]
    %full = affine.apply #full()[%i0]
    %state:3 = scf.for %j0 = %c0 to %end step %c64 iter_args(%max = %max0, %sum = %sum0, %acc = %zeros) -> (tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>) {
      %kt = tensor.extract_slice %k[%j0, 0] [64, 64] [1, 1] : tensor<512x64xf32> to tensor<64x64xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%zeros : tensor<128x64xf32>) {
      ^bb0(%x: f32, %y: f32, %part: f32):
        %product = arith.mulf %x, %y : f32
        %dot = arith.addf %part, %product : f32
        linalg.yield %dot : f32
      } -> tensor<128x64xf32>
      %next_key = affine.apply #next(%j0)
      %isfull = arith.cmpi sle, %next_key, %full : index
      %scores = scf.if %isfull -> (tensor<128x64xf32>) {
        %seen_all = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %y = arith.mulf %x, %scale : f32
          linalg.yield %y : f32
        } -> tensor<128x64xf32>
        scf.yield %seen_all : tensor<128x64xf32>
      } else {
        %masked = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%products : tensor<128x64xf32>) outs(%zeros : tensor<128x64xf32>) {
        ^bb0(%x: f32, %out: f32):
          %row = linalg.index 0 : index
          %i = affine.apply #plus(%i0)[%row]
          %column = linalg.index 1 : index
          %j = affine.apply #plus(%j0)[%column]
          %y = arith.mulf %x, %scale : f32
          %seen = arith.cmpi sle, %j, %i : index
          %score = arith.select %seen, %y, %none : f32
          linalg.yield %score : f32
        } -> tensor<128x64xf32>
        scf.yield %masked : tensor<128x64xf32>
      }
      %step:3 = fa.online_softmax ins(%scores, %kt : tensor<128x64xf32>, tensor<64x64xf32>) outs(%max, %sum, %acc : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>)
      scf.yield %step#0, %step#1, %step#2 : tensor<128xf32>, tensor<128xf32>, tensor<128x64xf32>
    }
    scf.yield %state#2 : tensor<128x64xf32>
  }
  return %r : tensor<128x64xf32>
}
