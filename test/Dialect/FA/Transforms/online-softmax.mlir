// The inputs are the output of --fa-decompose for one head: the standard algorithm.
// RUN: fa-opt %s --fa-online-softmax | FileCheck %s --check-prefix=ONE
// RUN: fa-opt %s --fa-online-softmax=passes=2 | FileCheck %s --check-prefix=TWO

#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#vec = affine_map<(i) -> (i)>

// One pass over the scores: the merge takes S and V, no exponential is left.
// ONE-LABEL: func @causal_dynamic
// ONE: arith.select
// ONE: %[[NEG:.*]] = linalg.fill {{.*}} -> tensor<?xf32>
// ONE: %[[M:.*]], %[[L:.*]], %[[O:.*]] = fa.online_softmax ins(%{{.*}}, %{{.*}} : tensor<?x?xf32>, tensor<?x64xbf16>)
// ONE-NOT: math.exp
// ONE: math.log
// ONE-NOT: arith.maxnumf

// Two passes: maximum and sum in one reduction; P is still written.
// TWO-LABEL: func @causal_dynamic
// TWO: arith.maxnumf
// TWO: arith.truncf {{.*}} to bf16
// TWO: -> tensor<?x?xbf16>
// TWO-NOT: fa.online_softmax
func.func @causal_dynamic(%q: tensor<?x64xbf16>, %k: tensor<?x64xbf16>, %v: tensor<?x64xbf16>) -> (tensor<?x64xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %k, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %scaled = arith.mulf %x, %scale : f32
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %seen = arith.cmpi sle, %j, %i : index
    %score = arith.select %seen, %scaled, %none : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<?x?xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%x: f32, %max: f32):
    %larger = arith.maxnumf %x, %max : f32
    linalg.yield %larger : f32
  } -> tensor<?xf32>
  %shift = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%m : tensor<?xf32>) outs(%vector : tensor<?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %nothing = arith.cmpf oeq, %x, %none : f32
    %finite = arith.select %nothing, %zero, %x : f32
    linalg.yield %finite : f32
  } -> tensor<?xf32>
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %shift : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %below = arith.subf %x, %y : f32
    %exp = math.exp %below : f32
    linalg.yield %exp : f32
  } -> tensor<?x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<?x?xf32>) outs(%l0 : tensor<?xf32>) {
  ^bb0(%x: f32, %part: f32):
    %sum = arith.addf %x, %part : f32
    linalg.yield %sum : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<?x?xf32>
  %matrix16 = tensor.empty(%Sq, %Sk) : tensor<?x?xbf16>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%weights : tensor<?x?xf32>) outs(%matrix16 : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %out: bf16):
    %rounded = arith.truncf %x : f32 to bf16
    linalg.yield %rounded : bf16
  } -> tensor<?x?xbf16>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<?x?xbf16>, tensor<?x64xbf16>) outs(%o0 : tensor<?x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x64xf32>
  %lse = linalg.generic {indexing_maps = [#vec, #vec, #vec], iterator_types = ["parallel"]}
      ins(%m, %l : tensor<?xf32>, tensor<?xf32>) outs(%vector : tensor<?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %log = math.log %y : f32
    %sum = arith.addf %x, %log : f32
    linalg.yield %sum : f32
  } -> tensor<?xf32>
  return %o, %lse : tensor<?x64xf32>, tensor<?xf32>
}

// The pass takes what it finds: without the standard algorithm, nothing.
// ONE-LABEL: func @nothing_to_do
// ONE-NEXT: return
func.func @nothing_to_do(%x: f32) -> f32 {
  return %x : f32
}

// What decides on weights becomes the merge's region; the factor stays outside.
// Two passes keep it on P.
// ONE-LABEL: func @dropout
// ONE: fa.online_softmax ins({{.*}}) outs({{.*}}) keep {
// ONE-NEXT: ^bb0(%[[I:.*]]: index, %[[J:.*]]: index):
// ONE: fa.random_bits %{{.*}} at{{ ?}}[%{{.*}}, %{{.*}}, %[[I]], %[[J]]]
// ONE: fa.yield %{{.*}} : i1
// ONE: arith.mulf %{{.*}}, %cst
// TWO-LABEL: func @dropout
// TWO: fa.random_bits
// TWO: arith.select
// TWO-NOT: fa.online_softmax
func.func @dropout(%q: tensor<?x64xbf16>, %seed: tensor<i64>, %b: index, %h: index) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %limit = arith.constant 26 : i8
  %times = arith.constant 1.110000e+00 : f32
  %zero16 = arith.constant 0.0 : bf16
  %scale = arith.constant 1.250000e-01 : f32
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %Sq = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %Sk = tensor.dim %q, %c0 : tensor<?x64xbf16>
  %matrix = tensor.empty(%Sq, %Sk) : tensor<?x?xf32>
  %vector = tensor.empty(%Sq) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%matrix : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#ik, #jk, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %q : tensor<?x64xbf16>, tensor<?x64xbf16>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %scores = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %score = arith.mulf %x, %scale : f32
    linalg.yield %score : f32
  } -> tensor<?x?xf32>
  %m0 = linalg.fill ins(%none : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%scores : tensor<?x?xf32>) outs(%m0 : tensor<?xf32>) {
  ^bb0(%x: f32, %max: f32):
    %larger = arith.maxnumf %x, %max : f32
    linalg.yield %larger : f32
  } -> tensor<?xf32>
  %shift = linalg.generic {indexing_maps = [#vec, #vec], iterator_types = ["parallel"]} ins(%m : tensor<?xf32>) outs(%vector : tensor<?xf32>) {
  ^bb0(%x: f32, %out: f32):
    %nothing = arith.cmpf oeq, %x, %none : f32
    %finite = arith.select %nothing, %zero, %x : f32
    linalg.yield %finite : f32
  } -> tensor<?xf32>
  %e = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%scores, %shift : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %below = arith.subf %x, %y : f32
    %exp = math.exp %below : f32
    linalg.yield %exp : f32
  } -> tensor<?x?xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%vector : tensor<?xf32>) -> tensor<?xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<?x?xf32>) outs(%l0 : tensor<?xf32>) {
  ^bb0(%x: f32, %part: f32):
    %sum = arith.addf %x, %part : f32
    linalg.yield %sum : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %l : tensor<?x?xf32>, tensor<?xf32>) outs(%matrix : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %empty = arith.cmpf oeq, %y, %zero : f32
    %quotient = arith.divf %x, %y : f32
    %value = arith.select %empty, %zero, %quotient : f32
    linalg.yield %value : f32
  } -> tensor<?x?xf32>
  %matrix16 = tensor.empty(%Sq, %Sk) : tensor<?x?xbf16>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%weights : tensor<?x?xf32>) outs(%matrix16 : tensor<?x?xbf16>) {
  ^bb0(%x: f32, %out: bf16):
    %rounded = arith.truncf %x : f32 to bf16
    linalg.yield %rounded : bf16
  } -> tensor<?x?xbf16>
  %kept_p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<?x?xbf16>) outs(%matrix16 : tensor<?x?xbf16>) {
  ^bb0(%x: bf16, %out: bf16):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %s = tensor.extract %seed[] : tensor<i64>
    %bits = fa.random_bits %s at [%b, %h, %i, %j]
    %kept = arith.cmpi uge, %bits, %limit : i8
    %weight = arith.select %kept, %x, %zero16 : bf16
    linalg.yield %weight : bf16
  } -> tensor<?x?xbf16>
  %rows = tensor.empty(%Sq) : tensor<?x64xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%rows : tensor<?x64xf32>) -> tensor<?x64xf32>
  %o = linalg.generic {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%kept_p, %q : tensor<?x?xbf16>, tensor<?x64xbf16>) outs(%o0 : tensor<?x64xf32>) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %x32 = arith.extf %x : bf16 to f32
    %y32 = arith.extf %y : bf16 to f32
    %product = arith.mulf %x32, %y32 : f32
    %sum = arith.addf %acc, %product : f32
    linalg.yield %sum : f32
  } -> tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%o : tensor<?x64xf32>) outs(%rows : tensor<?x64xf32>) {
  ^bb0(%x: f32, %out: f32):
    %more = arith.mulf %x, %times : f32
    linalg.yield %more : f32
  } -> tensor<?x64xf32>
  return %r : tensor<?x64xf32>
}
