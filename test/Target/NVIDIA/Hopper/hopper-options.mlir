// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options of the schedule that are none: an error that names the option.
//
// RUN: not fa-opt %S/Inputs/gradient.mlir --fa-schedule-hopper=companions=7 2>&1 | FileCheck %s --check-prefix=SEVEN
// RUN: not fa-opt %S/Inputs/gradient.mlir --fa-schedule-hopper=spare=-2 2>&1 | FileCheck %s --check-prefix=SPARE
// RUN: not fa-opt %S/Inputs/gradient.mlir --fa-schedule-hopper=heads=0 2>&1 | FileCheck %s --check-prefix=HEADS
// RUN: not fa-opt %S/Inputs/gradient.mlir --fa-schedule-hopper=ping-pong=2 2>&1 | FileCheck %s --check-prefix=TURNS
// RUN: fa-opt %S/Inputs/gradient.mlir --fa-schedule-hopper="companions=0 spare=60 heads=4 ping-pong=0" -o /dev/null

// SEVEN: error: expected companions to be 0 or 1, or -1 to choose, got 7
// SPARE: error: expected spare to be at least 0, or -1 to choose, got -2
// HEADS: error: expected heads to be at least 1, or -1 to choose, got 0
// TURNS: error: expected ping-pong to be 0 or 1, or -1 to choose, got 2

// What cannot be together with dQ computed transposed, of 80 rows at head dim 128, where memory is
// left for it.
//
// RUN: not fa-opt %S/Inputs/wide-gradient-80.mlir --fa-schedule-hopper=stages=3 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not fa-opt %S/Inputs/wide-gradient-80.mlir --fa-schedule-hopper=persistent=0 2>&1 | FileCheck %s --check-prefix=STAYS
// RUN: not fa-opt %S/Inputs/wide-gradient-80.mlir --fa-schedule-hopper=teams=2 2>&1 | FileCheck %s --check-prefix=TEAMS
// RUN: fa-opt %S/Inputs/wide-gradient.mlir --fa-schedule-hopper=persistent=0 -o /dev/null

// STAGES: error: 'scf.forall' op needs 232448 bytes of shared memory a block with 3 stages, and sm_90a has 191488; choose smaller tiles, or fewer stages
// STAYS: error: 'scf.forall' op has a product of 80 rows, no multiple of 64: it is computed transposed, and added by adders, which a block has that persists and has one team; choose rows in multiples of 64, or leave persistent out
// TEAMS: error: 'scf.forall' op has a product of 80 rows, no multiple of 64: {{.*}} or leave teams out
