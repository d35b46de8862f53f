// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What fa-schedule-hopper chooses for a block: who computes with how many
// registers, what runs under what, and what lies where in shared memory.

#include "HopperSchedule.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

/// A block enters with 65536 registers for all its threads, in multiples of 8
/// each, and gives them out again.
RoleRegisters fa::nvidia::roleRegisters(int64_t warpgroups) {
  static constexpr RoleRegisters table[] = {
      {56, 256}, {40, 232}, {32, 160}, {32, 112}};
  return table[warpgroups - 1];
}

/// Roles and what they do at the same time.
static FailureOr<HopperShape> chooseRoles(HopperProgram &program,
                                          const HopperOptions &options) {
  const Contraction &first = program.first, &second = program.second;
  HopperShape shape;
  shape.warpgroups = first.m / warpgroupRows;
  shape.persistent = options.persistent != 0;
  // Softmax under the second product needs the registers of S, P and O at
  // once, and pays where a warpgroup's softmax is longer than its neighbour's
  // products.
  int64_t live = first.n / 2 + first.n / 4 + second.n / 2;
  // Two teams where half of a block's registers and memory do for one: while
  // one is at a tile's ends the other multiplies.
  bool isSmall = live <= 80 && first.k <= RingType::panelCols;
  if (options.teams > 0)
    shape.teams = options.teams;
  else if (shape.persistent && shape.warpgroups == 2 && isSmall &&
           options.stages <= 2)
    shape.teams = 2;
  int64_t warpgroups = shape.teams * shape.warpgroups;
  if (warpgroups > maxWarpgroups || (shape.teams > 1 && !shape.persistent))
    return program.forall.emitOpError("has ")
           << shape.teams << " teams of " << shape.warpgroups
           << " warpgroups; a block has at most " << maxWarpgroups
           << " warpgroups, and one team where it does not persist: choose "
              "fewer teams or rows";
  RoleRegisters registers = roleRegisters(warpgroups);
  shape.producerRegisters = registers.producer;
  shape.consumerRegisters = registers.consumers;
  shape.overlap =
      options.overlap >= 0 ? options.overlap : warpgroups <= 2 && live <= 170;
  shape.pingPong =
      options.pingPong >= 0
          ? options.pingPong
          : shape.warpgroups > 1 && shape.teams == 1 && second.n <= 128;
  if (shape.pingPong && shape.warpgroups < 2)
    return program.forall.emitOpError("has one warpgroup for its ")
           << first.m << " rows, and with ping-pong=1 two or more take turns: "
           << "choose " << 2 * warpgroupRows
           << " rows or more, or leave ping-pong out";
  return shape;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Barriers take the first bytes of shared memory.
static constexpr int64_t firstTile = tileAlignment;

int64_t fa::nvidia::tileBytes(Value tile) {
  auto type = cast<RankedTensorType>(tile.getType());
  return RingType::get(type.getContext(), 1, type).tileBytes();
}

FailureOr<HopperShape> fa::nvidia::chooseShape(HopperProgram &program,
                                               const HopperOptions &options) {
  const Contraction &first = program.first, &second = program.second;
  FailureOr<HopperShape> roles = chooseRoles(program, options);
  if (failed(roles))
    return failure();
  HopperShape shape = *roles;
  int64_t qBytes = tileBytes(first.a->get());
  int64_t begin = firstTile + llvm::alignTo(qBytes, tileAlignment);
  int64_t ofTeam = options.target->sharedMemory / shape.teams;
  if (shape.teams > 1)
    ofTeam = llvm::alignDown(ofTeam, tileAlignment);
  int64_t available = ofTeam - begin;
  int64_t perStage = tileBytes(first.b->get()) + tileBytes(second.b->get());
  int64_t panelOfOnes = second.k * RingType::rowBytes;
  shape.ones = program.sums && options.ones != 0 &&
               second.n % RingType::panelCols == 0 && second.n <= 128 &&
               2 * (perStage + panelOfOnes) <= available;
  if (shape.ones)
    perStage += panelOfOnes;
  // The output is staged where two stages leave room for it, in as few
  // sections as fit there.
  int64_t panels = llvm::divideCeil(second.n, RingType::panelCols),
          panelBytes = first.m * RingType::rowBytes,
          room = std::max<int64_t>(0, available - 2 * perStage) / panelBytes;
  if (options.stage >= 0)
    room = std::min<int64_t>(room, options.stage);
  if (room > 0 && findStageable(program.forall))
    shape.stagedPanels =
        llvm::divideCeil(panels, llvm::divideCeil(panels, room));
  available -= shape.stagedPanels * panelBytes;
  shape.stages = options.stages > 0
                     ? options.stages
                     : std::min<int64_t>(4, available / perStage);
  if (options.stages <= 0 && shape.teams > 1)
    shape.stages =
        llvm::bit_floor<uint64_t>(std::max<int64_t>(0, shape.stages));
  if (shape.stages < 1 || shape.stages > 8 ||
      shape.stages * perStage > available) {
    int64_t stages = std::max<int64_t>(shape.stages, 1);
    return program.forall.emitOpError("needs ")
           << begin + stages * perStage + shape.stagedPanels * panelBytes
           << " bytes of shared memory a "
           << (shape.teams > 1 ? "team" : "block") << " with " << stages
           << " stages, and " << options.target->chip << " has " << ofTeam
           << "; choose smaller tiles";
  }
  return shape;
}

HopperRings fa::nvidia::placeRings(OpBuilder &b, HopperProgram &program,
                                   const HopperShape &shape) {
  HopperRings rings;
  rings.tilesEnd = firstTile;
  auto make = [&](StringRef name, Value tile, unsigned stages, bool ones) {
    auto type = RingType::get(b.getContext(), stages,
                              cast<RankedTensorType>(tile.getType()));
    auto ring = RingOp::create(b, tile.getLoc(), type, name, rings.tilesEnd,
                               rings.barriersEnd, ones);
    rings.tilesEnd += llvm::alignTo(ring.bytes(), tileAlignment);
    rings.barriersEnd = ring.barriersEnd();
    return ring;
  };
  const Contraction &first = program.first, &second = program.second;
  rings.q = make("q", first.a->get(), 1, false);
  rings.k = make("k", first.b->get(), shape.stages, false);
  rings.v = make("v", second.b->get(), shape.stages, shape.ones);
  return rings;
}
