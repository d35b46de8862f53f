// The loop of Algorithm 1 stays as it was tiled, rows of the rest as in it. The input is the output
// of --fa-decompose --fa-online-softmax --fa-tile="target=sm_80 algorithm=fa1".
// RUN: fa-opt %s --fa-distribute="target=sm_80 algorithm=fa1" | FileCheck %s

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i)[n] -> (n - i, 64)>
#keys = affine_map<(j)[n] -> (n - j, 144)>

// CHECK: scf.forall {{.*}} step (1, 1, 64)
// CHECK: scf.for {{.*}} step %c144
func.func @heads(%q: tensor<1x4x?x128xbf16>, %k: tensor<1x4x?x128xbf16>, %v: tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c64 = arith.constant 64 : index
  %c144 = arith.constant 144 : index
  %scale = arith.constant 0.0883883461 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c2 : tensor<1x4x?x128xbf16>
  %Sk = tensor.dim %k, %c2 : tensor<1x4x?x128xbf16>
  %e0 = tensor.empty(%Sq) : tensor<1x4x?x128xbf16>
  %all_heads = scf.forall (%b, %h) in (1, 4) shared_outs(%all = %e0) -> (tensor<1x4x?x128xbf16>) {
    %qs = tensor.extract_slice %q[%b, %h, 0, 0] [1, 1, %Sq, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %ks = tensor.extract_slice %k[%b, %h, 0, 0] [1, 1, %Sk, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %vs = tensor.extract_slice %v[%b, %h, 0, 0] [1, 1, %Sk, 128] [1, 1, 1, 1] : tensor<1x4x?x128xbf16> to tensor<?x128xbf16>
    %vector = tensor.empty(%Sq) : tensor<?xf32>
    %matrix = tensor.empty(%Sq) : tensor<?x128xf32>
    %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
    %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
    %o0 = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x128xf32>) -> tensor<?x128xf32>
    %r:3 = scf.for %j0 = %c0 to %Sk step %c144 iter_args(%mk = %m0, %lk = %l0, %ok = %o0)
        -> (tensor<?xf32>, tensor<?xf32>, tensor<?x128xf32>) {
      %keys = affine.min #keys(%j0)[%Sk]
      %kt = tensor.extract_slice %ks[%j0, 0] [%keys, 128] [1, 1] : tensor<?x128xbf16> to tensor<?x128xbf16>
      %vt = tensor.extract_slice %vs[%j0, 0] [%keys, 128] [1, 1] : tensor<?x128xbf16> to tensor<?x128xbf16>
      %s:3 = scf.for %i0 = %c0 to %Sq step %c64 iter_args(%m = %mk, %l = %lk, %o = %ok)
          -> (tensor<?xf32>, tensor<?xf32>, tensor<?x128xf32>) {
        %rows = affine.min #rows(%i0)[%Sq]
        %qt = tensor.extract_slice %qs[%i0, 0] [%rows, 128] [1, 1] : tensor<?x128xbf16> to tensor<?x128xbf16>
        %tile = tensor.empty(%rows, %keys) : tensor<?x?xf32>
        %zeros = linalg.fill ins(%zero : f32) outs(%tile : tensor<?x?xf32>) -> tensor<?x?xf32>
        %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%qt, %kt : tensor<?x128xbf16>, tensor<?x128xbf16>) outs(%zeros : tensor<?x?xf32>) {
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
          linalg.yield %scaled : f32
        } -> tensor<?x?xf32>
        %mt = tensor.extract_slice %m[%i0] [%rows] [1] : tensor<?xf32> to tensor<?xf32>
        %lt = tensor.extract_slice %l[%i0] [%rows] [1] : tensor<?xf32> to tensor<?xf32>
        %ot = tensor.extract_slice %o[%i0, 0] [%rows, 128] [1, 1] : tensor<?x128xf32> to tensor<?x128xf32>
        %next:3 = fa.online_softmax ins(%scores, %vt : tensor<?x?xf32>, tensor<?x128xbf16>)
            outs(%mt, %lt, %ot : tensor<?xf32>, tensor<?xf32>, tensor<?x128xf32>)
        %m1 = tensor.insert_slice %next#0 into %m[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
        %l1 = tensor.insert_slice %next#1 into %l[%i0] [%rows] [1] : tensor<?xf32> into tensor<?xf32>
        %o1 = tensor.insert_slice %next#2 into %o[%i0, 0] [%rows, 128] [1, 1] : tensor<?x128xf32> into tensor<?x128xf32>
        scf.yield %m1, %l1, %o1 : tensor<?xf32>, tensor<?xf32>, tensor<?x128xf32>
      }
      scf.yield %s#0, %s#1, %s#2 : tensor<?xf32>, tensor<?xf32>, tensor<?x128xf32>
    }
    %rows16 = tensor.empty(%Sq) : tensor<?x128xbf16>
    %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%r#2 : tensor<?x128xf32>) outs(%rows16 : tensor<?x128xbf16>) {
    ^bb0(%x: f32, %out: bf16):
      %rounded = arith.truncf %x : f32 to bf16
      linalg.yield %rounded : bf16
    } -> tensor<?x128xbf16>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %rounded into %all[%b, %h, 0, 0] [1, 1, %Sq, 128] [1, 1, 1, 1] : tensor<?x128xbf16> into tensor<1x4x?x128xbf16>
    }
  }
  return %all_heads : tensor<1x4x?x128xbf16>
}
