// RUN: fa-opt %s --split-input-file --verify-diagnostics

// One case per diagnostic of fa.list_blocks, and text that does not parse.

// tile of one size
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c1) expected tile to be two sizes of at least 1, that of keys even, got [128]}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// no rows
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c1) expected tile to be two sizes of at least 1, that of keys even, got [0, 64]}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [0, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// an odd number of keys
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c1) expected tile to be two sizes of at least 1, that of keys even, got [128, 63]}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 63] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// every of no size
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c2) expected every to be two sizes that divide those of tile [128, 64], got []}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// every of 0
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c2) expected every to be two sizes that divide those of tile [128, 64], got [1, 0]}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 0] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// every that does not divide the tile
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c2) expected every to be two sizes that divide those of tile [128, 64], got [48, 64]}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [48, 64] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// two counts
func.func @f(%n: index, %c: tensor<2xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{(fa_list_blocks_c3) expected count to have one element, got 2}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<2xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// two coordinates
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expected the mask region to take (row, column, key : index)}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// coordinates of another type
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expected the mask region to take (row, column, key : index)}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: i32, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// a score is yielded
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expected the mask region to end in fa.yield of an i1}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %score = arith.constant 1.0 : f32
    fa.yield %score : f32
  }
  return
}

// -----

// another terminator
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expected the mask region to end in fa.yield of an i1}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    llvm.unreachable
  }
  return
}

// -----

// a side effect
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>, %memory: memref<4xi1>) {
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    // expected-error @+1 {{expected no side effects in a mask region}}
    %seen = memref.load %memory[%r] : memref<4xi1>
    fa.yield %seen : i1
  }
  return
}

// -----

// a list of another type
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi64>) {
  // expected-error @+1 {{operand #4 must be 1D tensor of 32-bit signless integer values, but got 'tensor<?xi64>'}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi64>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// a list of rank 2
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<4x4xi32>) {
  // expected-error @+1 {{operand #4 must be 1D tensor of 32-bit signless integer values, but got 'tensor<4x4xi32>'}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<4x4xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// two blocks
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expects region #0 to have 0 or 1 blocks}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  ^bb1:
    %other = arith.constant true
    fa.yield %other : i1
  }
  return
}

// -----

// an empty region
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expects a non-empty block}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  }
  return
}

// -----

// no region
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>)
  // expected-error @+1 {{expected 'mask'}}
  return
}

// -----

// no every
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{expected 'every'}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [128, 64] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  }
  return
}

// -----

// sizes that are no numbers
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+2 {{expected integer value}}
  // expected-error @+1 {{expected ']'}}
  %x, %y = fa.list_blocks rows %n keys %n to %n tile [%n, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  }
  return
}

// -----

// one result
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{operation defines 2 results but was provided 1 to bind}}
  %x = fa.list_blocks rows %n keys %n to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// in generic form, an attribute is missing
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{requires attribute 'every'}}
  %x, %y = "fa.list_blocks"(%n, %n, %n, %c, %e) <{tile = array<i64: 128, 64>}> ({
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    "fa.yield"(%seen) : (i1) -> ()
  }) : (index, index, index, tensor<1xi32>, tensor<?xi32>) -> (tensor<1xi32>, tensor<?xi32>)
  return
}

// -----

// in generic form, a result of another type
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  // expected-error @+1 {{failed to verify that all of {entries, new_entries} have same type}}
  %x, %y = "fa.list_blocks"(%n, %n, %n, %c, %e) <{tile = array<i64: 128, 64>, every = array<i64: 1, 1>}> ({
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    "fa.yield"(%seen) : (i1) -> ()
  }) : (index, index, index, tensor<1xi32>, tensor<?xi32>) -> (tensor<1xi32>, tensor<9xi32>)
  return
}

// -----

// keys that begin within a block
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  %three = arith.constant 3 : index
  // expected-error @+1 {{(fa_list_blocks_c4) expected keys to begin at a multiple of 64 of at least 0, and at least 1 row; got 3 and 1}}
  %x, %y = fa.list_blocks rows %n keys %three to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}

// -----

// no row
func.func @f(%n: index, %c: tensor<1xi32>, %e: tensor<?xi32>) {
  %zero = arith.constant 0 : index
  // expected-error @+1 {{(fa_list_blocks_c4) expected keys to begin at a multiple of 64 of at least 0, and at least 1 row; got 0 and 0}}
  %x, %y = fa.list_blocks rows %zero keys %zero to %n tile [128, 64] every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %col: index, %key: index):
    %seen = arith.constant true
    fa.yield %seen : i1
  }
  return
}
