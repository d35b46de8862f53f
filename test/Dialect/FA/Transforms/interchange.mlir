// RUN: fa-opt %s --fa-interchange | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#plus = affine_map<(d0)[s0] -> (d0 + s0)>
#rows = affine_map<(i)[n] -> (n - i, 64)>
#keys = affine_map<(j)[n] -> (n - j, 32)>

// Rows outside, keys inside; the state of a row block is carried by the inner
// loop and written once after it.
// CHECK-LABEL: func @causal_dynamic
// CHECK: scf.for %[[I0:.*]] = %{{.*}} to %{{.*}} step %c64 iter_args
// CHECK: %[[ST:.*]]:3 = scf.for %[[J0:.*]] = %{{.*}} to %{{.*}} step %c32 iter_args
// CHECK: fa.online_softmax
// CHECK-NEXT: scf.yield
// CHECK: tensor.insert_slice %[[ST]]#0 into %{{.*}}[%[[I0]]]
// CHECK: tensor.insert_slice %[[ST]]#1 into %{{.*}}[%[[I0]]]
// CHECK: tensor.insert_slice %[[ST]]#2 into %{{.*}}[%[[I0]], 0]
// The input is a head of what --fa-decompose --fa-online-softmax --fa-tile="rows=64 keys=32"
// makes of fa.attention.
func.func @causal_dynamic(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %matrix = tensor.empty(%Sq) : tensor<?x64xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r:3 = scf.for %j0 = %c0 to %Sk step %c32 iter_args(%mk = %m0, %lk = %l0, %ok = %o0)
      -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
    %keys = affine.min #keys(%j0)[%Sk]
    %kt = tensor.extract_slice %k[%j0, 0] [%keys, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %vt = tensor.extract_slice %v[%j0, 0] [%keys, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
    %s:3 = scf.for %i0 = %c0 to %Sq step %c64 iter_args(%m = %mk, %l = %lk, %o = %ok)
        -> (tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>) {
      %rows = affine.min #rows(%i0)[%Sq]
      %qt = tensor.extract_slice %q[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xbf16> to tensor<?x64xbf16>
      %tile = tensor.empty(%rows, %keys) : tensor<?x?xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x?xf32>) -> tensor<?x?xf32>
      %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%qt, %kt : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
      ^bb0(%x: bf16, %y: bf16, %acc: f32):
        %x32 = arith.extf %x : bf16 to f32
        %y32 = arith.extf %y : bf16 to f32
        %product = arith.mulf %x32, %y32 : f32
        %sum = arith.addf %acc, %product : f32
        linalg.yield %sum : f32
      } -> tensor<?x?xf32>
      %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%products : tensor<?x?xf32>) outs(%tile : tensor<?x?xf32>) {
      ^bb0(%x: f32, %out: f32):
        %scaled = arith.mulf %x, %scale : f32
        %row = linalg.index 0 : index
        %i = affine.apply #plus(%i0)[%row]
        %column = linalg.index 1 : index
        %j = affine.apply #plus(%j0)[%column]
        %seen = arith.cmpi sle, %j, %i : index
        %score = arith.select %seen, %scaled, %none : f32
        linalg.yield %score : f32
      } -> tensor<?x?xf32>
      %mt = tensor.extract_slice %m[%i0] [%rows] [1] : tensor<?xf32> to tensor<?xf32>
      %lt = tensor.extract_slice %l[%i0] [%rows] [1] : tensor<?xf32> to tensor<?xf32>
      %ot = tensor.extract_slice %o[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xf32> to tensor<?x64xf32>
      %next:3 = fa.online_softmax ins(%scores, %vt : tensor<?x?xf32>, tensor<?x64xbf16>)
          outs(%mt, %lt, %ot : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>)
      %m1 = tensor.insert_slice %next#0 into %m[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
      %l1 = tensor.insert_slice %next#1 into %l[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
      %o1 = tensor.insert_slice %next#2 into %o[%i0, 0] [%rows, 64] [1, 1] : tensor<?x64xf32> into tensor<?x64xf32>
      scf.yield %m1, %l1, %o1 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
    }
    scf.yield %s#0, %s#1, %s#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x64xf32>
}
