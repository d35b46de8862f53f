// RUN: fa-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// One case per diagnostic of fa.attention and fa.random_bits; the label of the
// violated constraint is that of the op's documentation.

// c1: query of rank 3
func.func @f(%q: tensor<2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query of rank 4 [B,H,S,D], got rank 3 (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: key of rank 5
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected key of rank 4 [B,H,S,D], got rank 5 (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: value of rank 3
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<2x8x16xf32>) {
  // expected-error @+1 {{expected value of rank 4 [B,H,S,D], got rank 3 (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: out of rank 3
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected out of rank 4 [B,H,S,D], got rank 3 (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<2x8x16xf32>
  return
}

// -----

// c1: key of another element type
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf16>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected key of element type 'f32' like query, got 'f16' (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: value of another element type
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xbf16>) {
  // expected-error @+1 {{expected value of element type 'f32' like query, got 'bf16' (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xbf16>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: out of another element type
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected out of element type 'f32' like query, got 'f16' (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf16>
  return
}

// -----

// c1: lse of rank 4
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected lse of rank 3 [B,Hq,Sq], got rank 4 (fa_attention_c1)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8x1xf32>)
  return
}

// -----

// c1: an element type that no target takes
func.func @f(%q: tensor<1x2x8x16xi32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{operand #0 must be ranked tensor of 16-bit float or bfloat16 type or 32-bit float or 64-bit float values, but got 'tensor<1x2x8x16xi32>'}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xi32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: an unranked tensor
func.func @f(%q: tensor<*xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{operand #0 must be ranked tensor of 16-bit float or bfloat16 type or 32-bit float or 64-bit float values, but got 'tensor<*xf32>'}}
  %o = fa.attention %q, %k, %v : (tensor<*xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c1: an f64 query beside f32 keys
func.func @f(%q: tensor<1x2x8x16xf64>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf64>) {
  // expected-error @+1 {{expected key of element type 'f64' like query, got 'f32' (fa_attention_c1)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf64>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf64>) -> tensor<1x2x8x16xf64>
  return
}

// -----

// c1: lse of f64 attention in f32, and of f16 attention in f64
func.func @f(%q: tensor<1x2x8x16xf64>, %h: tensor<1x2x8x16xf16>) {
  // expected-error @+1 {{expected lse of element type 'f64', which 'f64' is computed in, got 'f32' (fa_attention_c1)}}
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>) -> (tensor<1x2x8x16xf64>, tensor<1x2x8xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x2x8x16xf16>) {
  // expected-error @+1 {{expected lse of element type 'f32', which 'f16' is computed in, got 'f64' (fa_attention_c1)}}
  %o, %lse = fa.attention %q, %q, %q : (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) -> (tensor<1x2x8x16xf16>, tensor<1x2x8xf64>)
  return
}

// -----

// c6: f32 scores of f64 attention
func.func @f(%q: tensor<1x2x8x16xf64>) {
  // expected-error @+1 {{expected the score region to take ('f64', 'index', 'index', 'index', 'index'), got ('f32', 'index', 'index', 'index', 'index') (fa_attention_c6)}}
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    fa.yield %s : f32
  } : (tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>, tensor<1x2x8x16xf64>) -> tensor<1x2x8x16xf64>
  return
}

// -----

// c1: lse in 16 bits
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{result #1 must be ranked tensor of 32-bit float or 64-bit float values, but got 'tensor<1x2x8xf16>'}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x8xf16>)
  return
}

// -----

// c2: dynamic query heads
func.func @f(%q: tensor<1x?x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number for query heads, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x?x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: dynamic key heads
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x?x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number for key heads, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x?x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: dynamic value heads
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x?x8x16xf32>) {
  // expected-error @+1 {{expected a static number for value heads, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x?x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: dynamic query head dim
func.func @f(%q: tensor<1x2x8x?xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number for query head dim, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x?xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: dynamic key head dim
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x?xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number for key head dim, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x?xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: dynamic value head dim
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x?xf32>) {
  // expected-error @+1 {{expected a static number for value head dim, got a dynamic dimension; only batch and lengths may be dynamic (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x?xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: three key heads for eight query heads
func.func @f(%q: tensor<1x8x8x16xf32>, %k: tensor<1x3x8x16xf32>, %v: tensor<1x3x8x16xf32>) {
  // expected-error @+1 {{expected the number of key heads to divide the number of query heads, got 3 and 8 (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x8x8x16xf32>, tensor<1x3x8x16xf32>, tensor<1x3x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: more key heads than query heads
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x4x8x16xf32>, %v: tensor<1x4x8x16xf32>) {
  // expected-error @+1 {{expected the number of key heads to divide the number of query heads, got 4 and 2 (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x4x8x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: no key heads
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x0x8x16xf32>, %v: tensor<1x0x8x16xf32>) {
  // expected-error @+1 {{expected the number of key heads to divide the number of query heads, got 0 and 2 (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x0x8x16xf32>, tensor<1x0x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c2: no query heads
func.func @f(%q: tensor<1x0x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the number of key heads to divide the number of query heads, got 2 and 0 (fa_attention_c2)}}
  %o = fa.attention %q, %k, %v : (tensor<1x0x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c3: head dim over the limit
func.func @f(%q: tensor<1x2x8x257xf32>, %k: tensor<1x2x8x257xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a head dim in [1, 256], got 257; use heads of a size in it (fa_attention_c3)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x257xf32>, tensor<1x2x8x257xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c3: a length that no offset reaches
func.func @f(%q: tensor<1x1x9223372036854775807x64xf32>) {
  // expected-error @+1 {{expected query of at most 140737488355328 elements, got 'tensor<1x1x9223372036854775807x64xf32>'; split the batch, the heads or the length (fa_attention_c3)}}
  %o = fa.attention %q, %q, %q : (tensor<1x1x9223372036854775807x64xf32>, tensor<1x1x9223372036854775807x64xf32>, tensor<1x1x9223372036854775807x64xf32>) -> tensor<1x1x9223372036854775807x64xf32>
  return
}

// -----

// c3: a length that coordinates of 32 bits don't reach
func.func @f(%q: tensor<1x1x16x64xf32>, %k: tensor<1x1x1073741824x64xf32>) {
  // expected-error @+1 {{expected sizes of key of at most 1073741823 (2^30 - 1), got 'tensor<1x1x1073741824x64xf32>'; kernels count with 32 bits: split it, or give a captured tensor more dimensions and indices (fa_attention_c3)}}
  %o = fa.attention %q, %k, %k : (tensor<1x1x16x64xf32>, tensor<1x1x1073741824x64xf32>, tensor<1x1x1073741824x64xf32>) -> tensor<1x1x16x64xf32>
  return
}

// -----

// c3: such a size of a captured tensor
func.func @f(%q: tensor<1x1x16x64xf32>, %table: tensor<2147483648xi1>) {
  %o = fa.attention %q, %q, %q mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{expected sizes of a captured tensor of at most 1073741823 (2^30 - 1), got 'tensor<2147483648xi1>'}}
    %seen = tensor.extract %table[%j] : tensor<2147483648xi1>
    fa.yield %seen : i1
  } : (tensor<1x1x16x64xf32>, tensor<1x1x16x64xf32>, tensor<1x1x16x64xf32>) -> tensor<1x1x16x64xf32>
  return
}

// -----

// c3: sizes whose product overflows
func.func @f(%q: tensor<4294967296x4294967296x8x64xf32>, %k: tensor<4294967296x1x?x64xf32>) {
  // expected-error @+1 {{expected query of at most 140737488355328 elements, got 'tensor<4294967296x4294967296x8x64xf32>'; split}}
  %o = fa.attention %q, %k, %k : (tensor<4294967296x4294967296x8x64xf32>, tensor<4294967296x1x?x64xf32>, tensor<4294967296x1x?x64xf32>) -> tensor<4294967296x4294967296x8x64xf32>
  return
}

// -----

// c3: head dim 0
func.func @f(%q: tensor<1x2x8x0xf32>, %k: tensor<1x2x8x0xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a head dim in [1, 256], got 0; use heads of a size in it (fa_attention_c3)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x0xf32>, tensor<1x2x8x0xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c3: value dim over the limit
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x512xf32>) {
  // expected-error @+1 {{expected a value dim in [1, 256], got 512; use heads of a size in it (fa_attention_c3)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x512xf32>) -> tensor<1x2x8x512xf32>
  return
}

// -----

// c4: batch of query and key
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<3x2x8x16xf32>, %v: tensor<3x2x8x16xf32>) {
  // expected-error @+1 {{expected query and key to have the same batch size, got 1 and 3 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32>, tensor<3x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: batch of key and value
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<3x2x8x16xf32>) {
  // expected-error @+1 {{expected key and value to have the same batch size, got 1 and 3 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<3x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: batch of query and value through a dynamic key
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<?x2x8x16xf32>, %v: tensor<3x2x8x16xf32>) {
  // expected-error @+1 {{expected query and value to have the same batch size, got 1 and 3 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<?x2x8x16xf32>, tensor<3x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: batch of query and out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and out to have the same batch size, got 1 and 3 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<3x2x8x16xf32>
  return
}

// -----

// c4: heads of key and value
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x1x8x16xf32>) {
  // expected-error @+1 {{expected key and value to have the same number of heads, got 2 and 1 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x1x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: heads of query and out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and out to have the same number of heads, got 2 and 4 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x4x8x16xf32>
  return
}

// -----

// c4: length of key and value
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x128x16xf32>, %v: tensor<1x2x127x16xf32>) {
  // expected-error @+1 {{expected key and value to have the same length, got 128 and 127 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x127x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: length of query and out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and out to have the same length, got 8 and 9 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x9x16xf32>
  return
}

// -----

// c4: head dim of query and key
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x32xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and key to have the same head dim, got 16 and 32 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x32xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: head dim of value and out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x32xf32>) {
  // expected-error @+1 {{expected value and out to have the same head dim, got 32 and 16 (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x32xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: a dynamic length out of nowhere
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected dimension 2 of out to be static exactly where its operand's is (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x?x16xf32>
  return
}

// -----

// c4: a static batch out of nowhere
func.func @f(%q: tensor<?x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected dimension 0 of out to be static exactly where its operand's is (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<?x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c4: dynamic heads in out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number of heads and value dim in out (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x?x8x16xf32>
  return
}

// -----

// c4: dynamic value dim in out
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number of heads and value dim in out (fa_attention_c4)}}
  %o = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x?xf32>
  return
}

// -----

// c4: batch of query and lse
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and lse to have the same batch size, got 1 and 2 (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<2x2x8xf32>)
  return
}

// -----

// c4: heads of query and lse
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and lse to have the same number of heads, got 2 and 1 (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x1x8xf32>)
  return
}

// -----

// c4: length of query and lse
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected query and lse to have the same length, got 8 and 16 (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x16xf32>)
  return
}

// -----

// c4: a dynamic batch of lse out of nowhere
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected dimension 0 of lse to be static exactly where its operand's is (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<?x2x8xf32>)
  return
}

// -----

// c4: a dynamic length of lse out of nowhere
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected dimension 2 of lse to be static exactly where its operand's is (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x2x?xf32>)
  return
}

// -----

// c4: dynamic heads in lse
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a static number of heads in lse (fa_attention_c4)}}
  %o, %lse = fa.attention %q, %k, %v : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> (tensor<1x2x8x16xf32>, tensor<1x?x8xf32>)
  return
}

// -----

// c5: scale inf
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite scale, got inf; give a finite number or leave it out for 1/sqrt(D) (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v scale 0x7FF0000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: scale -inf
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite scale, got -inf; give a finite number or leave it out for 1/sqrt(D) (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v scale 0xFFF0000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: scale nan
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite scale, got nan; give a finite number or leave it out for 1/sqrt(D) (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v scale 0x7FF8000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: times inf
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite times, got inf; give a finite number or leave it out for 1 (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } times 0x7FF0000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: times -inf
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite times, got -inf; give a finite number or leave it out for 1 (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } times 0xFFF0000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: times nan
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected a finite times, got nan; give a finite number or leave it out for 1 (fa_attention_c5)}}
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } times 0x7FF8000000000000 : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c5: times without keep, which only the generic form can say
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected times only with a keep region; scale the values instead (fa_attention_c5)}}
  %o = "fa.attention"(%q, %k, %v) <{times = 2.0 : f64}> ({}, {}, {}) : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: score without the score
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the score region to take ('f32', 'index', 'index', 'index', 'index'), got ('index', 'index', 'index', 'index') (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v score {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant 0.0 : f32
    fa.yield %c : f32
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: mask with an i32
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the mask region to take ('index', 'index', 'index', 'index'), got ('index', 'index', 'index', 'i32') (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: i32):
    %c = arith.constant true
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: mask without arguments
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the mask region to take ('index', 'index', 'index', 'index'), got () (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v mask {
    %c = arith.constant true
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: score yields the mask's type
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c = arith.cmpi sle, %j, %i : index
    // expected-error @+1 {{expected the score region to yield 'f32', got 'i1' (fa_attention_c6)}}
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: mask yields a score
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant 1.0 : f32
    // expected-error @+1 {{expected the mask region to yield 'i1', got 'f32' (fa_attention_c6)}}
    fa.yield %c : f32
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: another terminator
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the mask region to end in fa.yield (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    "test.end"() : () -> ()
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: a call may do anything
func.func private @other(index) -> i1
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{has side effects or is not understood in a mask region; only pure arith, math, scf.if and tensor.extract ops may be used there (fa_attention_c6)}}
    %c = func.call @other(%j) : (index) -> i1
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: a side effect hidden in a branch
func.func private @other(index)
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c = arith.cmpi sle, %j, %i : index
    // expected-error @+1 {{has side effects or is not understood in a score region}}
    scf.if %c {
      func.call @other(%j) : (index) -> ()
    }
    fa.yield %s : f32
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: keep with a weight
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the keep region to take ('index', 'index', 'index', 'index'), got ('f32', 'index', 'index', 'index', 'index') (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%w: f32, %b: index, %h: index, %i: index, %j: index):
    %c = arith.constant true
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: keep yields a weight
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %c = arith.constant 1.0 : f32
    // expected-error @+1 {{expected the keep region to yield 'i1', got 'f32' (fa_attention_c6)}}
    fa.yield %c : f32
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: keep ends in something else
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  // expected-error @+1 {{expected the keep region to end in fa.yield (fa_attention_c6)}}
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    "test.end"() : () -> ()
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// c6: keep draws a number from elsewhere
func.func private @random() -> i1
func.func @f(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x16xf32>) {
  %o = fa.attention %q, %k, %v keep {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    // expected-error @+1 {{has side effects or is not understood in a keep region; only pure arith, math, scf.if and tensor.extract ops may be used there (fa_attention_c6)}}
    %c = func.call @random() : () -> i1
    fa.yield %c : i1
  } : (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return
}

// -----

// fa_random_bits_c1: a tile of one size
func.func @f(%seed: i64, %i: index) {
  // expected-error @+1 {{expected a tile of two sizes of at least 1, got [16] (fa_random_bits_c1)}}
  %x = fa.random_bits %seed at [%i, %i, %i, %i] tile [16]
  return
}

// -----

// fa_random_bits_c1: a tile without columns
func.func @f(%seed: i64, %i: index) {
  // expected-error @+1 {{expected a tile of two sizes of at least 1, got [16, 0] (fa_random_bits_c1)}}
  %x = fa.random_bits %seed at [%i, %i, %i, %i] tile [16, 0]
  return
}
