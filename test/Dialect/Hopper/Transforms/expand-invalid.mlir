// A delay by hand that cannot be is an error that names the operation.

// RUN: fa-opt %s --hopper-expand --split-input-file --verify-diagnostics

!t = tensor<64x64xf16>
!s = tensor<64x64xf32>

func.func @negative(%q: !t, %k: tensor<?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (1) {
    %r = hopper.ring "k" at 1024 barriers 0 : <2, !t>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      scf.for %j = %c0 to %n step %c64 {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<?x64xf16> to !t
        // expected-error @below {{'hopper.acquire' op expected a delay of at least 0, got -1}}
        %ks = hopper.acquire %r of %kt {hopper.delay = -1 : i64} : <2, !t> -> <!t>
        hopper.release %ks : <!t>
      }
    }
  }
  return
}

// -----

!t = tensor<64x64xf16>
!s = tensor<64x64xf32>

func.func @before_what_it_uses(%q: !t, %k: tensor<?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (1) {
    %r = hopper.ring "k" at 1024 barriers 0 : <2, !t>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      scf.for %j = %c0 to %n step %c64 {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<?x64xf16> to !t
        // expected-note @below {{this}}
        %ks = hopper.acquire %r of %kt {hopper.delay = 1 : i64} : <2, !t> -> <!t>
        // expected-error @below {{'hopper.release' op has a delay of 0, and uses a value with one of 1; give it no smaller one}}
        hopper.release %ks : <!t>
      }
    }
  }
  return
}

// -----

!t = tensor<64x64xf16>
!s = tensor<64x64xf32>

func.func @in_flight(%q: !t, %k: tensor<?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (1) {
    %r = hopper.ring "k" at 1024 barriers 0 : <2, !t>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      scf.for %j = %c0 to %n step %c64 {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<?x64xf16> to !t
        %ks = hopper.acquire %r of %kt : <2, !t> -> <!t>
        // expected-error @below {{'hopper.wgmma' op has a delay of 0, and the operation that waits for it or adds to it one of 1; no product is in flight where an iteration ends: give both the same}}
        %p = hopper.wgmma %q, %ks : (!t, !hopper.slot<!t>) -> !hopper.pending<!s>
        // expected-note @below {{this}}
        %s = hopper.wait_group 0, %p {hopper.delay = 1 : i64} : !hopper.pending<!s>
        hopper.release %ks {hopper.delay = 1 : i64} : <!t>
      }
    }
  }
  return
}

// -----

!t = tensor<64x64xf16>
!s = tensor<64x64xf32>

func.func @sum_of_another_iteration(%q: !t, %k: tensor<?x64xf16>, %n: index, %z: !s) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  scf.forall (%i) in (1) {
    %r = hopper.ring "k" at 1024 barriers 0 : <2, !t>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %sum = scf.for %j = %c0 to %n step %c64 iter_args(%acc = %z) -> (!s) {
        %kt = tensor.extract_slice %k[%j, 0] [64, 64] [1, 1] : tensor<?x64xf16> to !t
        %ks = hopper.acquire %r of %kt : <2, !t> -> <!t>
        // expected-error @below {{'hopper.wgmma' op has a delay of 0, and takes from the iteration before a value with one of 2; give both the same, or that one more}}
        %p = hopper.wgmma %q, %ks init(%acc) : (!t, !hopper.slot<!t>, !s) -> !hopper.pending<!s>
        // expected-note @below {{this}}
        %s = hopper.wait_group 0, %p {hopper.delay = 2 : i64} : !hopper.pending<!s>
        hopper.release %ks {hopper.delay = 2 : i64} : <!t>
        scf.yield %s : !s
      }
    }
  }
  return
}

// -----

!t = tensor<64x64xf16>

func.func @outside(%k: !t) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "k" at 1024 barriers 0 : <2, !t>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.acquire' op has a delay outside a loop of consumers}}
      %ks = hopper.acquire %r of %k {hopper.delay = 1 : i64} : <2, !t> -> <!t>
      hopper.release %ks : <!t>
    }
  }
  return
}
