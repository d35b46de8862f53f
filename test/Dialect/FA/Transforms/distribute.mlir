// RUN: fa-opt %s --fa-decompose --fa-distribute="target=sm_80" --remarks-filter=fa-distribute --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefixes=SIZES,AMPERE
// RUN: fa-opt %s --fa-decompose --fa-distribute="target=sm_90a algorithm=standard" | FileCheck %s --check-prefix=HOPPER
// RUN: fa-opt %s --fa-decompose --fa-distribute="rows=32 keys=16" | FileCheck %s --check-prefix=GIVEN
// RUN: fa-opt %s --fa-decompose --fa-distribute="rows=32 keys=16" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: fa-opt %s --fa-decompose --fa-distribute="target=sm_80 rows=32" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: fa-opt %s --fa-decompose --fa-distribute="target=sm_80 keys=16" --remarks-filter=fa-distribute --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="target=sm_80 algorithm=fa1" --fa-distribute="target=sm_80 algorithm=fa1" | FileCheck %s --check-prefix=FA1
// RUN: not fa-opt %s --fa-decompose --fa-distribute="target=sm_1" 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not fa-opt %s --fa-decompose --fa-distribute="rows=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not fa-opt %s --fa-decompose --fa-online-softmax --fa-tile="rows=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// The sizes are those that fa-tile chooses, by the target and the algorithm.
// SIZES: remark: [Passed] TileSizes {{.*}}chose 128 rows and 64 keys a tile: K and V are read {{.*}}; 1 stage fits in {{.*}} KiB of shared memory, of which a block can have 163.0 KiB
// BOTH: remark: [Passed] TileSizes {{.*}}took the 32 rows and 16 keys a tile that were asked for
// ROWS: remark: [Passed] TileSizes {{.*}}took the 32 rows that were asked for and chose 64 keys a tile, as for 128x64: K and V are read
// KEYS: remark: [Passed] TileSizes {{.*}}took the 16 keys that were asked for and chose 128 rows a tile, as for 128x64: K and V are read
// AMPERE: scf.forall {{.*}} step (1, 1, 128, 64)
// HOPPER: scf.forall {{.*}} step (1, 1, 128, 64)
// GIVEN: scf.forall {{.*}} step (1, 1, 32, 16)
// The loop of Algorithm 1 stays as it was tiled, rows of the rest as in it.
// FA1: scf.forall {{.*}} step (1, 1, 64)
// FA1: scf.for {{.*}} step %c144
// TARGET: unknown target 'sm_1'; known targets are cpu, sm_80
// NEGATIVE: expected tile sizes of at least 1, or 0 to choose, got rows=-1 keys=0
func.func @heads(%q: tensor<1x4x?x128xbf16>, %k: tensor<1x4x?x128xbf16>, %v: tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16> {
  %o = fa.attention %q, %k, %v : (tensor<1x4x?x128xbf16>, tensor<1x4x?x128xbf16>, tensor<1x4x?x128xbf16>) -> tensor<1x4x?x128xbf16>
  return %o : tensor<1x4x?x128xbf16>
}
