// Every diagnostic of the dialect's verifiers.

// RUN: fa-opt %s --split-input-file --verify-diagnostics

func.func private @no_stages(
  // expected-error @below {{expected 1 to 8 stages, got 0}}
  !hopper.ring<0, tensor<64x64xf16>>
)

// -----

func.func private @many_stages(
  // expected-error @below {{expected 1 to 8 stages, got 9}}
  !hopper.ring<9, tensor<64x64xf16>>
)

// -----

func.func private @ring_rank(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16, got 'tensor<2x64x64xf16>'}}
  !hopper.ring<2, tensor<2x64x64xf16>>
)

// -----

func.func private @ring_of_bits(
  // expected-error @below {{expected a static vector of at most 16384 numbers of 8, 16, 32 or 64 bits, got 'tensor<64xi1>'}}
  !hopper.ring<2, tensor<64xi1>>
)

// -----

func.func private @ring_of_long_vectors(
  // expected-error @below {{expected a static vector of at most 16384 numbers of 8, 16, 32 or 64 bits, got 'tensor<16385xf32>'}}
  !hopper.ring<2, tensor<16385xf32>>
)

// -----

func.func private @ring_of_dynamic_vectors(
  // expected-error @below {{expected a static vector of at most 16384 numbers of 8, 16, 32 or 64 bits, got 'tensor<?xf32>'}}
  !hopper.ring<2, tensor<?xf32>>
)

// -----

func.func @computed_vector() {
  scf.forall (%i) in (1) {
    // expected-error @below {{has `computed`, which rings of vectors do not}}
    %r = hopper.ring "r" at 1024 barriers 0 computed : <2, tensor<64xf32>>
  }
  return
}

// -----

func.func @read_other_vector(%v: tensor<64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64xf32>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %s = hopper.acquire %r of %v : <2, tensor<64xf32>> -> <tensor<64xf32>>
      // expected-error @below {{'hopper.read' op expected the slot's vector 'tensor<64xf32>', got 'tensor<32xf32>'}}
      %x = hopper.read %s : <tensor<64xf32>> -> tensor<32xf32>
    }
  }
  return
}

// -----

func.func @product_of_vector(%v: tensor<64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64xf32>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %s = hopper.acquire %r of %v : <2, tensor<64xf32>> -> <tensor<64xf32>>
      // expected-error @below {{'hopper.wgmma' op expected static tiles of rank 2}}
      %x = hopper.wgmma %s, %s : (!hopper.slot<tensor<64xf32>>, !hopper.slot<tensor<64xf32>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func private @ring_dynamic(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16, got 'tensor<?x64xf16>'}}
  !hopper.ring<2, tensor<?x64xf16>>
)

// -----

func.func private @ring_wide_elements(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16, got 'tensor<64x64xf32>'}}
  !hopper.ring<2, tensor<64x64xf32>>
)

// -----

func.func private @ring_integers(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16, got 'tensor<64x64xi16>'}}
  !hopper.ring<2, tensor<64x64xi16>>
)

// -----

func.func private @ring_indices(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16, got 'tensor<64x64xindex>'}}
  !hopper.ring<2, tensor<64x64xindex>>
)

// -----

func.func private @ring_rows(
  // expected-error @below {{expected a multiple of 8 rows, at most 256 (the largest box of TMA), got 12}}
  !hopper.ring<2, tensor<12x64xf16>>
)

// -----

func.func private @ring_no_rows(
  // expected-error @below {{got 0}}
  !hopper.ring<2, tensor<0x64xf16>>
)

// -----

func.func private @ring_many_rows(
  // expected-error @below {{at most 256 (the largest box of TMA), got 264}}
  !hopper.ring<2, tensor<264x64xf16>>
)

// -----

func.func private @ring_columns(
  // expected-error @below {{expected a multiple of 8 columns (16 bytes), at most 14528, got 20}}
  !hopper.ring<2, tensor<64x20xf16>>
)

// -----

func.func private @ring_no_columns(
  // expected-error @below {{expected a multiple of 8 columns}}
  !hopper.ring<2, tensor<64x0xf16>>
)

// -----

func.func private @ring_many_columns(
  // expected-error @below {{at most 14528, got 9223372036854775800}}
  !hopper.ring<2, tensor<8x9223372036854775800xf16>>
)

// -----

func.func private @slot_rank(
  // expected-error @below {{expected a static tile of rank 2 with elements f16 or bf16}}
  !hopper.slot<tensor<1x64x64xf16>>
)

// -----

func.func private @slot_rows(
  // expected-error @below {{expected a multiple of 8 rows}}
  !hopper.slot<tensor<60x64xf16>>
)

// -----

func.func @offset(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.ring' op expected an offset that is a multiple of 1024 (the descriptors' alignment), at most 232448, got 1536}}
  %r = hopper.ring "r" at 1536 barriers 0 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @negative_offset(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{got -1024}}
  %r = hopper.ring "r" at -1024 barriers 0 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @huge_offset(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{at most 232448, got 9223372036854774784}}
  %r = hopper.ring "r" at 9223372036854774784 barriers 0 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @barriers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.ring' op expected barriers at a multiple of 8, at most 232448, got 4}}
  %r = hopper.ring "r" at 1024 barriers 4 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @negative_barriers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{got -8}}
  %r = hopper.ring "r" at 1024 barriers -8 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @huge_barriers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{got 9223372036854775800}}
  %r = hopper.ring "r" at 1024 barriers 9223372036854775800 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @barriers_in_tiles(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.ring' op has barriers inside its tiles: 8192}}
  %r = hopper.ring "r" at 1024 barriers 8192 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @barriers_reach_into_tiles(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{has barriers inside its tiles: 1016}}
  %r = hopper.ring "r" at 1024 barriers 1016 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func private @turned_vector(
  // expected-error @below {{expected a tile of rank 2 to be turned, got 'tensor<64xf32>'}}
  !hopper.ring<1, tensor<64xf32>, turned>)

// -----

func.func private @turned_columns(
  // expected-error @below {{expected a multiple of 8 rows, at most 256 (the largest box of TMA), got 20}}
  !hopper.ring<1, tensor<64x20xf16>, turned>)

// -----

func.func private @other_word(
  // expected-error @below {{expected 'turned'}}
  !hopper.ring<1, tensor<64x64xf16>, upright>)

// -----

func.func @turned_loaded(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.ring' op has turned tiles, and TMA loads them as they lie in memory; have it `computed`, or not `turned`}}
  %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x80xf16>, turned>
  return
}

// -----

func.func @turned_ones() {
  // expected-error @below {{'hopper.ring' op has turned tiles, beside which a panel of ones is no further columns of theirs; leave out `ones`}}
  %r = hopper.ring "r" at 1024 barriers 0 ones computed : <1, tensor<64x80xf16>, turned>
  return
}

// -----

func.func @stage_vector(%t: tensor<64xf16>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a static tile of rank 2, got 'tensor<64xf16>'}}
      %o = hopper.stage %t at 1024 : tensor<64xf16>
    }
  }
  return
}

// -----

func.func @turned_share(%t: tensor<64x24xf16>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 computed : <1, tensor<64x24xf16>, turned>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.share' op expected a tile of 64 rows for each warpgroup, or of columns in parts of a multiple of 16, got 'tensor<64x24xf16>' in 1 warpgroups}}
      hopper.share %t into %r : tensor<64x24xf16>, <1, tensor<64x24xf16>, turned>
    }
  }
  return
}

// -----

func.func @spare_free() {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to spare 0 to 40 registers where no product reads registers, got 48}}
    hopper.consumers 1 registers 240 spare 40 free 48 {
    }
  }
  return
}

// -----

func.func @exchange_aligned() {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to exchange at a multiple of 16, up to byte 232448 of shared memory, got bytes 1032 to 3080; choose another offset}}
    hopper.consumers 2 registers 240 exchange 1032 {
    }
  }
  return
}

// -----

func.func @exchange_beyond() {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to exchange at a multiple of 16, up to byte 232448 of shared memory, got bytes 231440 to 233488; choose another offset}}
    hopper.consumers 2 registers 240 exchange 231440 {
    }
  }
  return
}

// -----

func.func @exchange_in_ring() {
  scf.forall (%i) in (1) {
    // expected-note @below {{by this, from 1024 to 9216}}
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op takes bytes 8192 to 9216 of shared memory, some of which are taken; choose another offset}}
    hopper.consumers 1 registers 240 exchange 8192 {
    }
  }
  return
}

// -----

func.func @stage_in_exchange(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-note @below {{by this, from 2048 to 3072}}
    hopper.consumers 1 registers 240 exchange 2048 {
      // expected-error @below {{'hopper.stage' op takes bytes 1024 to 9216 of shared memory, some of which are taken; choose another offset}}
      %o = hopper.stage %t at 1024 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @turned_alone(%t: tensor<64x80xf32>) {
  scf.forall (%i) in (1) {
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a turned tile to be of f32, with adders, got 'tensor<64x80xf32>' without}}
      %o = hopper.stage %t turned at 1024 : tensor<64x80xf32>
    }
  }
  return
}

// -----

func.func @turned_narrow(%t: tensor<64x80xf16>) {
  scf.forall (%i) in (1) {
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{op expected a turned tile to be of f32, with adders}}
      %o = hopper.stage %t turned at 1024 : tensor<64x80xf16>
    }
  }
  return
}

// -----

func.func @turned_divided(%t: tensor<64x80xf32>) {
  scf.forall (%i) in (1) {
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a turned tile of 64 rows and a multiple of 8 columns for each of 2 warpgroups, and no `by`, got 'tensor<64x80xf32>'}}
      %o = hopper.stage %t turned at 1024 adders 128 : tensor<64x80xf32>
    }
  }
  return
}

// -----

func.func @barriers_in_ones(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{has barriers inside its tiles: 9216}}
  %r = hopper.ring "r" at 1024 barriers 9216 ones : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @shared_memory(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.ring' op ends at byte 263168 of shared memory, and a block has 232448; choose fewer stages or smaller tiles}}
  %r = hopper.ring "r" at 1024 barriers 0 : <8, tensor<256x64xf16>>
  return
}

// -----

func.func @barriers_behind_shared_memory(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{ends at byte 232456 of shared memory}}
  %r = hopper.ring "r" at 1024 barriers 232440 : <1, tensor<64x64xf16>>
  return
}

// -----

func.func @load_other_tile(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.load' op expected a tile of the ring's type 'tensor<64x64xf16>', got 'tensor<64x64xf32>'}}
      hopper.load %f into %r bytes 8192 : tensor<64x64xf32>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @load_bytes(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.load' op expects 8191 bytes, but the panels of the tile have 8192}}
      hopper.load %t into %r bytes 8191 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @load_in_consumers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.load' op expected to be in hopper.producer}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @load_ring_of_another_block(%t: tensor<64x64xf16>) {
  %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.load' op expected a hopper.ring beside the role}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @acquire_other_tile(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.acquire' op expected a slot of the ring's tile 'tensor<64x64xf16>', got 'tensor<64x64xbf16>'}}
      %s1 = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xbf16>>
    }
  }
  return
}

// -----

func.func @acquire_in_producer(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.acquire' op expected to be in hopper.consumers}}
      %s1 = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @acquire_ring_of_an_argument(%r: !hopper.ring<2, tensor<64x64xf16>>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<64x64xf16>
      // expected-error @below {{'hopper.acquire' op expected a hopper.ring beside the role}}
      %s = hopper.acquire %r of %tile0 : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @poll_in_producer(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.poll' op expected to be in hopper.consumers}}
      hopper.poll %r : <2, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @ring_in_a_role() {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
      // expected-error @below {{'hopper.poll' op expected a hopper.ring beside the role}}
      hopper.poll %r : <2, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @release_of_an_argument(%s: !hopper.slot<tensor<64x64xf16>>) {
  // expected-error @below {{'hopper.release' op expected slots that are results of hopper.acquire}}
  hopper.release %s : <tensor<64x64xf16>>
  return
}

// -----

func.func @producer_outside() {
  // expected-error @below {{'hopper.producer' op expects parent op 'scf.forall'}}
  hopper.producer registers 24 {
  }
  return
}

// -----

func.func @consumers_outside() {
  // expected-error @below {{'hopper.consumers' op expects parent op 'scf.forall'}}
  hopper.consumers 1 registers 240 {
  }
  return
}

// -----

func.func @few_producer_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.producer' op expected registers to be a multiple of 8 from 24 to 256 (setmaxnreg), got 16}}
    hopper.producer registers 16 {
    }
  }
  return
}

// -----

func.func @odd_producer_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.producer' op expected registers to be a multiple of 8 from 24 to 256 (setmaxnreg), got 36}}
    hopper.producer registers 36 {
    }
  }
  return
}

// -----

func.func @many_producer_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.producer' op expected registers to be a multiple of 8 from 24 to 256 (setmaxnreg), got 264}}
    hopper.producer registers 264 {
    }
  }
  return
}

// -----

func.func @consumer_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected registers to be a multiple of 8 from 24 to 256 (setmaxnreg), got 0}}
    hopper.consumers 1 registers 0 {
    }
  }
  return
}

// -----

func.func @warpgroups_0(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected 1 to 4 warpgroups, got 0 in 1 team}}
    hopper.consumers 0 registers 24 {
    }
  }
  return
}

// -----

func.func @warpgroups_5(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected 1 to 4 warpgroups, got 5 in 1 team}}
    hopper.consumers 5 registers 24 {
    }
  }
  return
}

// -----

func.func @register_file(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op asks with its producer for 80896 registers, and a block of 640 threads has 61440}}
    hopper.consumers 4 registers 152 {
    }
  }
  return
}

// -----

func.func @no_producer(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.consumers' op expected a hopper.producer before it}}
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @producer_behind(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.consumers' op expected a hopper.producer before it}}
    hopper.consumers 1 registers 240 {
    }
    hopper.producer registers 24 {
    }
  }
  return
}

// -----

func.func @two_producers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected one hopper.producer and one hopper.consumers in a block}}
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @two_consumers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected one hopper.producer and one hopper.consumers in a block}}
    hopper.consumers 1 registers 240 {
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @yield_type(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to yield values of its results' types}}
    %o = hopper.consumers 1 registers 240 -> (tensor<64x64xf32>) {
      hopper.yield %t : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @yield_count(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to yield values of its results' types}}
    %o = hopper.consumers 1 registers 240 -> (tensor<64x64xf32>) {
    }
  }
  return
}

// -----

func.func @results_0(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected one or two results, got 0}}
      "hopper.wgmma"(%a, %a) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>}> : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> ()
    }
  }
  return
}

// -----

func.func @results_3(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected one or two results, got 3}}
      %c:3 = "hopper.wgmma"(%a, %a) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>}> : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> (!hopper.pending<tensor<64x64xf32>>, !hopper.pending<tensor<64x8xf32>>, !hopper.pending<tensor<64x8xf32>>)
    }
  }
  return
}

// -----

func.func @inits(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected an init of each result's type, or none}}
      %c = hopper.wgmma %a, %a init(%s) : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>, tensor<64x8xf32>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @conditional_inits(%true: i1) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<64x64xf16>
      %a = hopper.acquire %r of %tile0 : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected inits where it has a condition, which says whether they count}}
      %c = hopper.wgmma %a, %a if %true : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>, i1) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @result_rank(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{expected a static tile of rank 2 with elements f32, as products are, got 'tensor<64xf32>'}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64xf32>>
    }
  }
  return
}

// -----

func.func @result_dynamic(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{expected a static tile of rank 2 with elements f32, as products are, got 'tensor<?x64xf32>'}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<?x64xf32>>
    }
  }
  return
}

// -----

func.func @operand_f32(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected f16 or bf16 operands alike, got 'f32' and 'f16'}}
      %c = hopper.wgmma %f, %a : (tensor<64x64xf32>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @operands_differ(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %x = tensor.empty() : tensor<64x64xbf16>
      // expected-error @below {{got 'bf16' and 'f16'}}
      %c = hopper.wgmma %x, %a : (tensor<64x64xbf16>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @result_f16(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{expected a static tile of rank 2 with elements f32, as products are, got 'tensor<64x64xf16>'}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @shapes(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op operands of 'tensor<64x64xf16>' and 'tensor<64x64xf16>' do not make 'tensor<64x128xf32>'}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x128xf32>>
    }
  }
  return
}

// -----

func.func @rows(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<32x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<32x64xf16>
      %a = hopper.acquire %r of %tile0 : <2, tensor<32x64xf16>> -> <tensor<32x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected rows in multiples of 64 and 8 to 256 columns in multiples of 8 for each warpgroup, got 32 and 32 for 1}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<32x64xf16>>, !hopper.slot<tensor<32x64xf16>>) -> !hopper.pending<tensor<32x32xf32>>
    }
  }
  return
}

// -----

func.func @columns(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x264xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<64x264xf16>
      %a = hopper.acquire %r of %tile0 : <1, tensor<64x264xf16>> -> <tensor<64x264xf16>>
      // expected-error @below {{got 64 and 264}}
      %c = hopper.wgmma %t, %a transposed : (tensor<64x64xf16>, !hopper.slot<tensor<64x264xf16>>) -> !hopper.pending<tensor<64x264xf32>>
    }
  }
  return
}

// -----

func.func @keys(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<24x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<24x64xf16>
      %a = hopper.acquire %r of %tile0 : <1, tensor<24x64xf16>> -> <tensor<24x64xf16>>
      %x = tensor.empty() : tensor<64x24xf16>
      // expected-error @below {{'hopper.wgmma' op expected a multiple of 16 keys, got 24}}
      %c = hopper.wgmma %x, %a transposed : (tensor<64x24xf16>, !hopper.slot<tensor<24x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @sums_shape(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 ones : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected sums of 64x8 f32, got 'tensor<64x4xf32>'}}
      %c:2 = hopper.wgmma %t, %a transposed : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> (!hopper.pending<tensor<64x64xf32>>, !hopper.pending<tensor<64x4xf32>>)
    }
  }
  return
}

// -----

func.func @sums_without_ones(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected b transposed, from a ring with ones, for a second result}}
      %c:2 = hopper.wgmma %t, %a transposed : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> (!hopper.pending<tensor<64x64xf32>>, !hopper.pending<tensor<64x8xf32>>)
    }
  }
  return
}

// -----

func.func @sums_not_transposed(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 ones : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{expected b transposed, from a ring with ones}}
      %c:2 = hopper.wgmma %t, %a : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> (!hopper.pending<tensor<64x64xf32>>, !hopper.pending<tensor<64x8xf32>>)
    }
  }
  return
}

// -----

func.func @slot_of_an_argument(%t: tensor<64x64xf16>, %b: !hopper.slot<tensor<64x64xf16>>) {
  // expected-error @below {{'hopper.wgmma' op expected slots that are results of hopper.acquire}}
  %c = hopper.wgmma %t, %b : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
  return
}

// -----

func.func @slot_of_a_branch(%i: i1) {
  scf.forall (%n) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %tile0 = tensor.empty() : tensor<64x64xf16>
      %a = hopper.acquire %r of %tile0 : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %tile1 = tensor.empty() : tensor<64x64xf16>
      %b = hopper.acquire %r of %tile1 : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %e = arith.select %i, %a, %b : !hopper.slot<tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected slots that are results of hopper.acquire}}
      %c = hopper.wgmma %e, %b : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @never_awaited(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected one use of a pending result, by a hopper.wait_group or as another product's init, got 0}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @awaited_twice(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected one use of a pending result, by a hopper.wait_group or as another product's init, got 2}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %d = hopper.wait_group 0, %c : !hopper.pending<tensor<64x64xf32>>
      %e = hopper.wait_group 0, %c : !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @read_before_the_wait(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-note @below {{prior use here}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      // expected-error @below {{use of value '%c' expects different type than prior uses: 'tensor<64x64xf32>' vs '!hopper.pending<tensor<64x64xf32>>'}}
      %p = hopper.pin %c : tensor<64x64xf32>
    }
  }
  return
}

// -----

func.func @pending_as_something_else(%t: tensor<64x64xf16>, %f: i1, %g: !hopper.pending<tensor<64x64xf32>>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected a pending result to be awaited or another product's init, got arith.select}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %e = arith.select %f, %c, %g : !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @awaited_in_a_branch(%t: tensor<64x64xf16>, %f: i1) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected its result to be awaited in its own block}}
      %c = hopper.wgmma %a, %a : (!hopper.slot<tensor<64x64xf16>>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      scf.if %f {
        // expected-note @below {{and not here}}
        %d = hopper.wait_group 0, %c : !hopper.pending<tensor<64x64xf32>>
      }
    }
  }
  return
}

// -----

func.func @pending_negative(%t: tensor<64x64xf16>, %f: !hopper.pending<tensor<64x64xf32>>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.wait_group' op expected 0 to 7 groups in flight, got -1}}
  %o = hopper.wait_group -1, %f : !hopper.pending<tensor<64x64xf32>>
  return
}

// -----

func.func @pending_many(%t: tensor<64x64xf16>, %f: !hopper.pending<tensor<64x64xf32>>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.wait_group' op expected 0 to 7 groups in flight, got 8}}
  %o = hopper.wait_group 8, %f : !hopper.pending<tensor<64x64xf32>>
  return
}

// -----

func.func @wait_for_f16(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{expected a static tile of rank 2 with elements f32, as products are, got 'tensor<64x64xf16>'}}
  %o = hopper.wait_group 0, %t : !hopper.pending<tensor<64x64xf16>>
  return
}

// -----

func.func @wait_for_nothing(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.wait_group' op expected at least one tile}}
  "hopper.wait_group"() {pending = 0 : i64} : () -> ()
  return
}

// -----

func.func @pin_nothing(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.pin' op expected at least one tile}}
  "hopper.pin"() : () -> ()
  return
}

// -----

func.func @pin_vector(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<64xf32>
  // expected-error @below {{'hopper.pin' op expected static tiles of rank 2, got 'tensor<64xf32>'}}
  %o = hopper.pin %d : tensor<64xf32>
  return
}

// -----

func.func @exceeds_cube(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<64x8x8xf32>
  // expected-error @below {{'hopper.exceeds' op expected a static tile or vector, got 'tensor<64x8x8xf32>'}}
  %o = hopper.exceeds %d limit 2.0 : tensor<64x8x8xf32>
  return
}

// -----

func.func @turn_begin_outside(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.turn_begin' op expected to be in hopper.consumers}}
  hopper.turn_begin
  return
}

// -----

func.func @turn_end_outside(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.turn_end' op expected to be in hopper.consumers}}
  hopper.turn_end
  return
}

// -----

func.func @turn_of_one(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.turn_begin' op expected at least 2 warpgroups to take turns}}
      hopper.turn_begin
    }
  }
  return
}

// -----

func.func @sums_columns(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<64x12xf32>
  // expected-error @below {{'hopper.partial_sums' op expected a tile whose columns are a multiple of 8 and sums of 8 f32 for each row, got 'tensor<64x12xf32>' and 'tensor<64x8xf32>'}}
  %o = hopper.partial_sums %d, %s : tensor<64x12xf32>, tensor<64x8xf32> -> tensor<64x8xf32>
  return
}

// -----

func.func @sums_rows(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<128x64xf32>
  // expected-error @below {{'hopper.partial_sums' op expected a tile whose columns are a multiple of 8 and sums of 8 f32 for each row}}
  %o = hopper.partial_sums %d, %s : tensor<128x64xf32>, tensor<64x8xf32> -> tensor<64x8xf32>
  return
}

// -----

func.func @sums_f16(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<64x8xf16>
  // expected-error @below {{'hopper.partial_sums' op expected a tile whose columns are a multiple of 8 and sums of 8 f32 for each row}}
  %o = hopper.partial_sums %f, %d : tensor<64x64xf32>, tensor<64x8xf16> -> tensor<64x8xf16>
  return
}

// -----

func.func @sums_result(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.partial_sums' op expected a tile whose columns are a multiple of 8 and sums of 8 f32 for each row}}
  %o = hopper.partial_sums %f, %s : tensor<64x64xf32>, tensor<64x8xf32> -> tensor<64x64xf32>
  return
}

// -----

func.func @sums_vector(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  %d = tensor.empty() : tensor<64xf32>
  // expected-error @below {{'hopper.partial_sums' op expected a tile whose columns are a multiple of 8 and sums of 8 f32 for each row}}
  %o = hopper.partial_sums %d, %s : tensor<64xf32>, tensor<64x8xf32> -> tensor<64x8xf32>
  return
}

// -----

func.func @adders_f16(%h: tensor<64x64xf16>, %f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a tile of f32 for adders, got 'tensor<64x64xf16>'}}
      %o = hopper.stage %h at 17408 adders 128 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @adders_many(%h: tensor<64x64xf16>, %f: tensor<192x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 3 registers 160 {
      // expected-error @below {{'hopper.stage' op expected at most 2 warpgroups where each has an adder, got 3}}
      %o = hopper.stage %f at 17408 adders 128 : tensor<192x64xf32>
    }
  }
  return
}

// -----

func.func @adders_place(%h: tensor<64x64xf16>, %f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected the adders' bytes at a multiple of 8, at most 232384, got 129}}
      %o = hopper.stage %f at 17408 adders 129 : tensor<64x64xf32>
    }
  }
  return
}

// -----

func.func @adders_taken(%h: tensor<64x64xf16>, %f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    // expected-note @below {{by this, from 32 to 128}}
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op takes bytes 64 to 128 of shared memory, some of which are taken; choose another offset}}
      %o = hopper.stage %f at 17408 adders 64 : tensor<64x64xf32>
    }
  }
  return
}

// -----

func.func @adders_in_tile(%f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 32
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op takes bytes 17408 to 17472 of shared memory for adders, where its tile lies; choose another offset}}
      %o = hopper.stage %f at 17408 adders 17408 : tensor<64x64xf32>
    }
  }
  return
}

// -----

func.func @adders_alone(%h: tensor<64x64xf16>, %f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a block with adders to take tiles from a hopper.tile_queue without teams}}
      %o = hopper.stage %f at 17408 adders 128 : tensor<64x64xf32>
    }
  }
  return
}

// -----

func.func @stage_f32(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected a tile of f32 of 64 rows and a multiple of 16 columns for each of 1 warpgroups, and no `by`, got 'tensor<64x8xf32>'}}
      %o = hopper.stage %s at 17408 : tensor<64x8xf32>
    }
  }
  return
}

// -----

func.func @stage_rows(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %x = tensor.empty() : tensor<32x64xf16>
      // expected-error @below {{'hopper.stage' op expected rows in multiples of 64, got 32}}
      %o = hopper.stage %x at 17408 : tensor<32x64xf16>
    }
  }
  return
}

// -----

func.func @stage_offset(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected an offset that is a multiple of 1024, at most 224256, got 1000}}
      %o = hopper.stage %t at 1000 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @stage_negative(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{got -1024}}
      %o = hopper.stage %t at -1024 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @stage_end(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{at most 224256, got 225280}}
      %o = hopper.stage %t at 225280 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @stage_outside(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  // expected-error @below {{'hopper.stage' op expected to be in hopper.consumers}}
  %o = hopper.stage %t at 17408 : tensor<64x64xf16>
  return
}

// -----

func.func @stage_columns_panel(%t: tensor<64x128xf16>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected columns in multiples of 64, fewer than the tile's 128, got 32}}
      %o = hopper.stage %t at 1024 by 32 : tensor<64x128xf16>
    }
  }
  return
}

// -----

func.func @stage_columns_all(%t: tensor<64x128xf16>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected columns in multiples of 64, fewer than the tile's 128, got 128}}
      %o = hopper.stage %t at 1024 by 128 : tensor<64x128xf16>
    }
  }
  return
}

// -----

func.func @stage_columns_none(%t: tensor<64x128xf16>) {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op expected columns in multiples of 64, fewer than the tile's 128, got 0}}
      %o = hopper.stage %t at 1024 by 0 : tensor<64x128xf16>
    }
  }
  return
}

// -----

func.func @queue_outside() {
  // expected-error @below {{'hopper.tile_queue' op expects parent op 'scf.forall'}}
  hopper.tile_queue barriers 0
  return
}

// -----

func.func @queue_barriers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.tile_queue' op expected barriers at a multiple of 8, at most 232352, got 4}}
    hopper.tile_queue barriers 4
  }
  return
}

// -----

func.func @queue_end(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{at most 232352, got 232432}}
    hopper.tile_queue barriers 232432
  }
  return
}

// -----

func.func @queue_section(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.tile_queue' op expected sections of at least 1, got -1}}
    hopper.tile_queue barriers 0 longest_first section -1
  }
  return
}

// -----

func.func @queue_at_least(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{got 0}}
    hopper.tile_queue barriers 0 longest_first section 0
  }
  return
}

// -----

func.func @queue_teams(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.tile_queue' op expected 1 to 4 teams, got 5}}
    hopper.tile_queue barriers 0 teams 5
  }
  return
}

// -----

func.func @queue_no_team(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{got 0}}
    hopper.tile_queue barriers 0 teams 0
  }
  return
}

// -----

func.func @large_teams() {
  scf.forall (%i) in (1) {
    hopper.tile_queue barriers 0 teams 2
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected 1 to 4 warpgroups, got 3 in 2 teams}}
    hopper.consumers 3 registers 24 {
    }
  }
  return
}

// -----

// The registers of all teams count.
func.func @registers_of_teams() {
  scf.forall (%i) in (1) {
    hopper.tile_queue barriers 0 teams 2
    hopper.producer registers 32 {
    }
    // expected-error @below {{asks with its producer for 65536 registers, and a block of 640 threads has 61440}}
    hopper.consumers 2 registers 120 {
    }
  }
  return
}

// -----

func.func @two_queues(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    // expected-error @below {{'hopper.tile_queue' op expected one hopper.tile_queue in a block}}
    hopper.tile_queue barriers 0
    hopper.tile_queue barriers 96
  }
  return
}

// -----

func.func @rings_overlap() {
  scf.forall (%i) in (1) {
    // expected-note @below {{by this, from 1024 to 17408}}
    %a = hopper.ring "a" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    // expected-error @below {{'hopper.ring' op takes bytes 9216 to 17408 of shared memory, some of which are taken}}
    %b = hopper.ring "b" at 9216 barriers 32 : <1, tensor<64x64xf16>>
  }
  return
}

// -----

func.func @barriers_overlap() {
  scf.forall (%i) in (1) {
    // expected-note @below {{by this, from 0 to 32}}
    %a = hopper.ring "a" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    // expected-error @below {{'hopper.tile_queue' op takes bytes 24 to 120 of shared memory, some of which are taken}}
    hopper.tile_queue barriers 24
  }
  return
}

// -----

func.func @stage_before_sum(%sums: tensor<128x64xf32>, %f: tensor<64x64xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.stage %f at 17408 : tensor<64x64xf32>
      // expected-error @below {{'hopper.stage' op stages a tile from byte 18432 to 34816, where another one, from 17408 to 33792, is added later; add that before, or choose another offset}}
      %b = hopper.stage %f at 18432 : tensor<64x64xf32>
      // expected-note @below {{added here}}
      %0 = fa.accumulate_slice %a into %sums[0, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
      %1 = fa.accumulate_slice %b into %0[64, 0] [64, 64] [1, 1] : tensor<64x64xf32> into tensor<128x64xf32>
    }
  }
  return
}

// -----

func.func @stage_in_a_ring(%t: tensor<64x64xf16>) {
  scf.forall (%i) in (1) {
    // expected-note @below {{by this, from 1024 to 17408}}
    %a = hopper.ring "a" at 1024 barriers 0 : <2, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.stage' op takes bytes 16384 to 24576 of shared memory, some of which are taken}}
      %o = hopper.stage %t at 16384 : tensor<64x64xf16>
    }
  }
  return
}

// -----

func.func @share_into_a_ring_of_the_producer(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.share' op expected a computed ring: the producer fills "r"}}
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @load_into_a_ring_of_the_consumers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 computed : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.load' op expected a ring that is not computed: the consumers fill "r"}}
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @share_another_tile(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 computed : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      // expected-error @below {{'hopper.share' op expected a tile of the ring's type 'tensor<64x64xf16>', got 'tensor<64x64xf32>'}}
      hopper.share %f into %r : tensor<64x64xf32>, <1, tensor<64x64xf16>>
    }
  }
  return
}

// -----

func.func @share_by_the_producer(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 computed : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
      // expected-error @below {{'hopper.share' op expected to be in hopper.consumers}}
      hopper.share %t into %r : tensor<64x64xf16>, <1, tensor<64x64xf16>>
    }
    hopper.consumers 1 registers 240 {
    }
  }
  return
}

// -----

func.func @share_what_warpgroups_cannot_divide(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 computed : <1, tensor<64x24xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 240 {
      %x = tensor.empty() : tensor<64x24xf16>
      // expected-error @below {{'hopper.share' op expected a tile of 64 rows for each warpgroup, or of columns in parts of 16, 32 or a multiple of 64, got 'tensor<64x24xf16>' in 2 warpgroups}}
      hopper.share %x into %r : tensor<64x24xf16>, <1, tensor<64x24xf16>>
    }
  }
  return
}

// -----

func.func @transposed_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 240 {
      %a = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected a slot as a transposed first operand; registers hold rows}}
      %c = hopper.wgmma %t transposed, %a : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %d = hopper.wait_group 0, %c : !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @columns_divided_of_registers(%t: tensor<64x64xf16>, %f: tensor<64x64xf32>, %s: tensor<64x8xf32>) {
  scf.forall (%i) in (1) {
    %r = hopper.ring "r" at 1024 barriers 0 : <1, tensor<64x64xf16>>
    hopper.producer registers 24 {
    }
    hopper.consumers 2 registers 240 {
      %a = hopper.acquire %r of %t : <1, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.wgmma' op expected a first operand in shared memory and no sums where warpgroups divide columns}}
      %c = hopper.wgmma %t, %a : (tensor<64x64xf16>, !hopper.slot<tensor<64x64xf16>>) -> !hopper.pending<tensor<64x64xf32>>
      %d = hopper.wait_group 0, %c : !hopper.pending<tensor<64x64xf32>>
    }
  }
  return
}

// -----

func.func @spare() {
  scf.forall (%i) in (1) {
    hopper.producer registers 24 {
    }
    // expected-error @below {{'hopper.consumers' op expected to spare 0 registers or more, got -8}}
    hopper.consumers 1 registers 112 spare -8 {
    }
  }
  return
}

// -----

func.func @with_other_stages(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    // expected-error @below {{expected the 2 stages and the barriers at 128 of ring "r", got 1 and 128}}
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <1, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
    }
  }
  return
}


// -----

func.func @with_other_barriers(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    // expected-error @below {{expected the 2 stages and the barriers at 128 of ring "r", got 2 and 192}}
    %w = hopper.ring "w" at 17408 barriers 192 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
    }
  }
  return
}


// -----

func.func @with_a_computed_ring(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 computed : <2, tensor<64x64xf16>>
    // expected-error @below {{expected to be with a ring of the block that the producer fills, as this one, and that is with no other}}
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
    }
  }
  return
}


// -----

func.func @with_one_that_is_with_another(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    // expected-error @below {{expected to be with a ring of the block that the producer fills, as this one, and that is with no other}}
    %u = hopper.ring "u" at 18432 barriers 128 with %w : !hopper.ring<2, tensor<64xf32>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
    }
  }
  return
}


// -----

func.func @unguarded_of_the_producer(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    // expected-error @below {{expected `computed` with `unguarded`: the producer waits for empty stages}}
    %r = hopper.ring "r" at 1024 barriers 128 unguarded : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
    }
  }
  return
}


// -----

func.func @companion_without_its_slot(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op expected the slot that the tile comes with: that of the ring that its ring is with}}
      %x = hopper.acquire %w of %v : <2, tensor<64xf32>> -> <tensor<64xf32>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}


// -----

func.func @slot_of_no_companion(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 192 : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
      hopper.load %t into %r bytes 8192 : tensor<64x64xf16>, <2, tensor<64x64xf16>>
      hopper.load %v into %w bytes 256 : tensor<64xf32>, <2, tensor<64xf32>>
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op has a slot that the tile comes with, and its ring is with no other; leave it out}}
      %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
      hopper.release %s : <tensor<64x64xf16>>
    }
  }
  return
}


// -----

func.func @slot_of_another_ring(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    %u = hopper.ring "u" at 18432 barriers 192 : <2, tensor<64x64xf16>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %u of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      // expected-error @below {{'hopper.acquire' op expected a slot of ring "r", which its ring is with}}
      %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
    }
  }
  return
}


// -----

func.func @companion_polled(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
      // expected-error @below {{'hopper.poll' op polls a ring that is with another one; poll that}}
      hopper.poll %w : <2, tensor<64xf32>>
    }
  }
  return
}


// -----

func.func @companion_given_back(%t: tensor<64x64xf16>, %v: tensor<64xf32>, %n: index) {
  scf.forall (%i) in (4) {
    %r = hopper.ring "r" at 1024 barriers 128 : <2, tensor<64x64xf16>>
    %w = hopper.ring "w" at 17408 barriers 128 with %r : !hopper.ring<2, tensor<64x64xf16>> in : <2, tensor<64xf32>>
    hopper.tile_queue barriers 0
    hopper.producer registers 24 {
    }
    hopper.consumers 1 registers 112 {
      %s = hopper.acquire %r of %t : <2, tensor<64x64xf16>> -> <tensor<64x64xf16>>
      %x = hopper.acquire %w of %v with %s : !hopper.slot<tensor<64x64xf16>> in : <2, tensor<64xf32>> -> <tensor<64xf32>>
      // expected-error @below {{'hopper.release' op gives back a slot of a ring that is with another one, with whose slots its own are given back; leave it out}}
      hopper.release %x : <tensor<64xf32>>
    }
  }
  return
}
