// The protocol of both roles: what hopper-verify refuses, and that it takes what
// is right. What the schedules of attention do is verified wherever PTX is made.

// RUN: fa-opt %s --split-input-file --hopper-verify --verify-diagnostics

// A loop of any length, and a slot from outside that its last trip gives back.

func.func @right(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %q = hopper.ring "q" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    %r = hopper.ring "r" at 9216 barriers 144 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %q bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 2 registers 112 {
      %s0 = hopper.acquire %q of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %some = arith.cmpi slt, %c0, %n : index
      scf.if %some {
        hopper.poll %r : <2, tensor<64x64xf16>>
      }
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t polled : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.turn_begin
        %a = hopper.wgmma %s0, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %b = hopper.wgmma %s0, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        hopper.turn_end
        %x = hopper.wait_group 1, %a : !hopper.pending<tensor<64x64xf32>>
        %next = arith.addi %j, %c64 : index
        %more = arith.cmpi slt, %next, %n : index
        %last = arith.cmpi sge, %next, %n : index
        scf.if %more {
          hopper.poll %r : <2, tensor<64x64xf16>>
        }
        %y = hopper.wait_group 0, %b : !hopper.pending<tensor<64x64xf32>>
        hopper.release %s : <tensor<64x64xf16>>
        hopper.release %s0 if %last : <tensor<64x64xf16>>
      }
      %none = arith.cmpi sge, %c0, %n : index
      hopper.release %s0 if %none : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @given_back_too_early(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        // expected-note @below {{this one}}
        %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        // expected-error @below {{'hopper.release' op gives back a slot that a product in flight reads; wait for it first}}
        hopper.release %s : <tensor<64x64xf16>>
        %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      }
    }
  }
  return
}

// -----

func.func @read_afterwards(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        // expected-note @below {{here}}
        hopper.release %s : <tensor<64x64xf16>>
        // expected-error @below {{'hopper.wgmma' op reads a slot that was given back}}
        %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      }
    }
  }
  return
}

// -----

func.func @given_back_twice(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        // expected-note @below {{before, here}}
        hopper.release %s : <tensor<64x64xf16>>
        // expected-error @below {{'hopper.release' op gives a slot back twice}}
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @not_given_back(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      // expected-error @below {{'hopper.acquire' op gets a slot that is not given back in this tile, and the block has others}}
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// Without other tiles a stage may stay full.

func.func @need_not_be_given_back(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @not_given_back_in_a_loop(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        // expected-error @below {{'hopper.acquire' op is reached again before its slot was given back: its stage is lost}}
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @given_back_by_each_trip(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      scf.for %j = %c0 to %n step %c64 {
        // expected-error @below {{'hopper.release' op gives a slot back twice}}
        // expected-note @below {{before, here}}
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @too_many_pending(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        // expected-note @below {{this one}}
        %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %b = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        // expected-error @below {{'hopper.wait_group' op leaves 2 products in flight, among them one whose result it gives; let fewer be pending}}
        %x = hopper.wait_group 2, %a : !hopper.pending<tensor<64x64xf32>>
        %y = hopper.wait_group 0, %b : !hopper.pending<tensor<64x64xf32>>
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @second_pending(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        // expected-note @below {{this one}}
        %b = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        // expected-error @below {{'hopper.wait_group' op leaves 1 products in flight}}
        %x:2 = hopper.wait_group 1, %a, %b : !hopper.pending<tensor<64x64xf32>>, !hopper.pending<tensor<64x64xf32>>
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @awaited_by_an_inner_loop(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %q = hopper.ring "q" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    %r = hopper.ring "r" at 9216 barriers 144 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %q bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      %s0 = hopper.acquire %q of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %a = hopper.wgmma %s0, %s0 : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      // expected-error @below {{'scf.for' op ends with 0 products in flight and began with 1}}
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        %b = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
        %y = hopper.wait_group 0, %b : !hopper.pending<tensor<64x64xf32>>
        hopper.release %s : <tensor<64x64xf16>>
      }
      %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      hopper.release %s0 : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @branch_under_a_product(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 2 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      scf.if %f {
        // expected-error @below {{'hopper.turn_begin' op is in a branch that begins while a product is in flight; only hopper.poll may be}}
        hopper.turn_begin
        hopper.turn_end
      }
      %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @polled_by_nobody(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      // expected-error @below {{'hopper.acquire' op takes a stage as full that no hopper.poll waited for}}
      %s = hopper.acquire %r of %t polled : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @another_ring_first(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %q = hopper.ring "q" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    %r = hopper.ring "r" at 9216 barriers 144 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %q bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      // expected-note @below {{polled here}}
      hopper.poll %r : <2, tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op takes a tile of ring "q", and the one that was polled is the next}}
      %s0 = hopper.acquire %q of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %s = hopper.acquire %r of %t polled : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      hopper.release %s0 : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @polls_of_two_rings(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %q = hopper.ring "q" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    %r = hopper.ring "r" at 9216 barriers 144 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %q bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      hopper.poll %r : <2, tensor<64x64xf16>>
      // expected-error @below {{'hopper.poll' op polls ring "q" before the tile of ring "r" that was polled is taken}}
      hopper.poll %q : <1, tensor<64x64xf16>>
      %s = hopper.acquire %r of %t polled : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %s0 = hopper.acquire %q of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      hopper.release %s0 : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @poll_past_the_end(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %s : <tensor<64x64xf16>>
        // expected-error @below {{'hopper.poll' op waits for a tile of ring "r" that is not taken afterwards}}
        hopper.poll %r : <2, tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @condition_of_tiles(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      %large = hopper.exceeds %x limit 2.0 : tensor<64x64xf32>
      // expected-error @below {{'hopper.release' op expected a condition the same for all threads where rings, products or turns follow it, got a value computed from tiles}}
      hopper.release %s if %large : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @branch_by_tiles(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      %large = hopper.exceeds %x limit 2.0 : tensor<64x64xf32>
      // expected-error @below {{'scf.if' op expected a condition the same for all threads where rings, products or turns follow it, got a value computed from tiles}}
      scf.if %large {
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @bounds_of_tiles(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %a = hopper.wgmma %s, %s : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %x = hopper.wait_group 0, %a : !hopper.pending<tensor<64x64xf32>>
      %large = hopper.exceeds %x limit 2.0 : tensor<64x64xf32>
      %end = arith.select %large, %c64, %c0 : index
      hopper.release %s : <tensor<64x64xf16>>
      // expected-error @below {{'scf.for' op expected bounds the same for all threads where rings, products or turns follow it, got a value computed from tiles}}
      scf.for %j = %c0 to %end step %c64 {
        %u = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %u : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

// Floats of what both roles know give bounds, too: the same in both.
func.func @bounds_of_floats(%t: tensor<64x64xf16>, %s: tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %h = %c0 to %c4 step %c1 {
        %x = tensor.extract %s[%h] : tensor<4xf32>
        %seen = arith.cmpf ogt, %x, %zero : f32
        %end = arith.select %seen, %c64, %c0 : index
        scf.for %j = %c0 to %end step %c64 {
          hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        }
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %h = %c0 to %c4 step %c1 {
        %x = tensor.extract %s[%h] : tensor<4xf32>
        %seen = arith.cmpf ogt, %x, %zero : f32
        %end = arith.select %seen, %c64, %c0 : index
        scf.for %j = %c0 to %end step %c64 {
          %u = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
          hopper.release %u : <tensor<64x64xf16>>
        }
      }
    }
  }
  return
}

// -----

func.func @bounds_of_other_floats(%t: tensor<64x64xf16>, %s: tensor<4xf32>, %b: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this happens where a arith.cmpf is}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    // expected-error @below {{'hopper.producer' op expected as many loads of ring "r" as the consumers take of its tiles}}
    hopper.producer registers 24 {
      scf.for %h = %c0 to %c4 step %c1 {
        %x = tensor.extract %s[%h] : tensor<4xf32>
        %seen = arith.cmpf ogt, %x, %zero : f32
        %end = arith.select %seen, %c64, %c0 : index
        scf.for %j = %c0 to %end step %c64 {
          hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        }
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %h = %c0 to %c4 step %c1 {
        %x = tensor.extract %s[%h] : tensor<4xf32>
        %seen = arith.cmpf ogt, %x, %b : f32
        %end = arith.select %seen, %c64, %c0 : index
        scf.for %j = %c0 to %end step %c64 {
          %u = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
          hopper.release %u : <tensor<64x64xf16>>
        }
      }
    }
  }
  return
}

// -----

func.func @step_of_nothing(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      // expected-error @below {{'scf.for' op expected a step of at least 1, got 0}}
      scf.for %j = %c0 to %c64 step %c0 {
        %u = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %u : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @a_load_too_few(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    // expected-error @below {{'hopper.producer' op expected as many loads of ring "r" as the consumers take of its tiles}}
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      scf.for %j = %c0 to %n step %c64 {
        %u = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %u : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

// One stage, and two tiles are wanted at the same time.

func.func @too_few_stages(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      // expected-note @below {{the producer waits here}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op waits for ever}}
      %u = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      hopper.release %u : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// The second tile of one ring is loaded before the first of the other.

func.func @another_order(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %q = hopper.ring "q" at 1024 barriers 128 : <1, tensor<64x64xf16>>
    %r = hopper.ring "r" at 9216 barriers 144 : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      // expected-note @below {{the producer waits here}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      hopper.load %t into %q bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op waits for ever}}
      %u = hopper.acquire %q of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      hopper.release %u : <tensor<64x64xf16>>
      %w = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %w : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @turn_in_a_turn(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      hopper.turn_begin
      // expected-error @below {{'hopper.turn_begin' op begins a turn in a turn}}
      hopper.turn_begin
      hopper.turn_end
    }
  }
  return
}

// -----

func.func @turn_without_end(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      // expected-error @below {{'hopper.turn_begin' op begins a turn that does not end}}
      hopper.turn_begin
    }
  }
  return
}

// -----

func.func @turn_of_nobody(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      // expected-error @below {{'hopper.turn_end' op ends a turn that was not begun}}
      hopper.turn_end
    }
  }
  return
}

// -----

func.func @turn_over_the_end_of_a_trip(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %c64 step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      }
    }
    hopper.consumers 2 registers 112 {
      hopper.turn_begin
      // expected-error @below {{'scf.for' op ends with another turn than it began with}}
      scf.for %j = %c0 to %c64 step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %s : <tensor<64x64xf16>>
        hopper.turn_end
      }
    }
  }
  return
}

// -----

// The producer is a tile ahead of what the consumers take.

func.func @another_tile(%x: tensor<256x64xf16>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens where the tile's coordinate 0 is}}
  scf.forall (%i) = (0) to (192) step (64) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      %next = arith.addi %i, %c64 : index
      %t = tensor.extract_slice %x[%next, 0] [64, 64] [1, 1] : tensor<256x64xf16> to tensor<64x64xf16>
      // expected-error @below {{'hopper.load' op brings another tile of ring "r" than the consumers take, as number 0}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %t = tensor.extract_slice %x[%i, 0] [64, 64] [1, 1] : tensor<256x64xf16> to tensor<64x64xf16>
      // expected-note @below {{taken here}}
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// Two slices that are computed in other ways, of the same numbers.

func.func @the_same_tile(%x: tensor<256x64xf16>) {
  %c64 = arith.constant 64 : index
  scf.forall (%i) = (0) to (192) step (64) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      %next = arith.addi %i, %c64 : index
      %t = tensor.extract_slice %x[%next, 0] [64, 64] [1, 1] : tensor<256x64xf16> to tensor<64x64xf16>
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %next = affine.apply affine_map<(d0) -> (d0 + 64)>(%i)
      %t = tensor.extract_slice %x[%next, 0] [64, 64] [1, 1] : tensor<256x64xf16> to tensor<64x64xf16>
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// A tile that the consumers compute is nowhere to be loaded from.

func.func @computed_tile(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %e = tensor.empty() : tensor<64x64xf16>
      // expected-error @below {{'hopper.acquire' op expected a slice of a tensor that both roles can read, at coordinates the same for all threads}}
      %s = hopper.acquire %r of %e : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// Nothing but scf.for and scf.if is around what roles do together.

func.func @another_loop(%t: tensor<64x64xf16>, %f: i1) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
      // expected-error @below {{'scf.while' op expected loops that are scf.for, and branches that are scf.if, around operations on rings, products or turns}}
      scf.while : () -> () {
        scf.condition(%f)
      } do {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        scf.yield
      }
    }
  }
  return
}

// -----

// What the consumers fill themselves.

func.func @shared(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 computed : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
        %s = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @taken_before_it_is_shared(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 computed : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      // expected-error @below {{'hopper.acquire' op takes a tile of ring "r" that no hopper.share before it has filled}}
      %s = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @shared_and_not_taken(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    // expected-error @below {{'hopper.ring' op is filled with 1 tiles more than the consumers take}}
    %r = hopper.ring "r" at 1024 barriers 128 computed : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @shared_twice_in_one_stage(%t: tensor<64x64xf16>, %n: index, %f: i1) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 computed : <1, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    // expected-note @below {{the producer waits here}}
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      // expected-error @below {{'hopper.share' op waits for ever}}
      // expected-note @below {{another warpgroup waits here}}
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
      %s = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
      %s1 = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s1 : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// What comes with a tile is read while that is held.

func.func @with_a_tile(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
        %y = hopper.read %x : <tensor<64xf32>> -> tensor<64xf32>
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @read_after_its_tile(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
        // expected-note @below {{here}}
        hopper.release %s : <tensor<64x64xf16>>
        // expected-error @below {{'hopper.read' op reads a slot that was given back}}
        %y = hopper.read %x : <tensor<64xf32>> -> tensor<64xf32>
      }
    }
  }
  return
}

// -----

func.func @taken_after_its_tile(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
      }
    }
    hopper.consumers 1 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        // expected-note @below {{given back here}}
        hopper.release %s : <tensor<64x64xf16>>
        // expected-error @below {{'hopper.acquire' op takes tile 0 of ring "w" with one that was given back of ring "r"; take it with its own, while that is held}}
        %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
      }
    }
  }
  return
}

// -----

func.func @taken_with_another_tile(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
    }
    hopper.consumers 1 registers 112 {
      %o = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op takes tile 0 of ring "w" with tile 1 of ring "r"; take it with its own, while that is held}}
      %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
      hopper.release %s : <tensor<64x64xf16>>
      hopper.release %o : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @fewer_than_its_tiles(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    // expected-error @below {{'hopper.ring' op is with ring "r", of which 1 tiles are taken, and of its own 0; take one with each}}
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}

// -----

// A stage is given back before another one is filled, and awaited.

func.func @unguarded(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (4) {
    %p = hopper.ring "p" at 1024 barriers 128 computed unguarded : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        hopper.share %t into %p : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        %s = hopper.acquire %p of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %s : <tensor<64x64xf16>>
      }
    }
  }
  return
}

// -----

func.func @unguarded_and_held(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-note @below {{this happens}}
  scf.forall (%i) in (4) {
    %p = hopper.ring "p" at 1024 barriers 128 computed unguarded : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 112 {
      scf.for %j = %c0 to %n step %c64 {
        // expected-error @below {{'hopper.share' op fills a stage of ring "p", and nothing shows that all warpgroups have given it back: give it back before another one is filled and awaited, or leave out `unguarded`}}
        hopper.share %t into %p : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        %s = hopper.acquire %p of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.share %t into %p : tensor<64x64xf16>, <2, tensor<64x64xf16>>
        %o = hopper.acquire %p of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
        hopper.release %s : <tensor<64x64xf16>>
        hopper.release %o : <tensor<64x64xf16>>
      }
    }
  }
  return
}
