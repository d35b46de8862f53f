// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-schedule-hopper: a tile program's loop, rotated before its
// accumulating contraction, as the program of two roles.
//
//   for n { S = Q K_n; softmax; O = O' + P V_n }
//
// becomes, for the consumers,
//
//   S = Q K_0; softmax
//   for n from 1 { S = Q K_n and O = O' + P V_{n-1} in flight together;
//                  softmax }
//   O = O' + P V_last
//
// and the producer is the slice of that program which feeds its rings. The
// rotation, the ping-pong of warpgroups and the softmax under the second
// product are those of Shah et al. 2024, "FlashAttention-3", section 3.

#include "HopperSchedule.h"
#include "Program.h"

#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_SCHEDULEHOPPERPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Blocks stay and take tiles from a queue.
static void createQueue(OpBuilder &b, HopperProgram &program,
                        const HopperRings &rings, int64_t heads,
                        int64_t teams) {
  // Of a list each tile takes a few of a head's blocks: others are to find
  // these in L2 (a density of 1/8: 15% faster at D=128).
  if (heads <= 0 && followsList(program.loop))
    heads = 1;
  // Measured on an H200 at lengths from 512 to 16384: fewer leave short tiles
  // to the end, more do not share what L2 holds.
  if (heads <= 0)
    heads = std::max(program.first.k, program.second.n) <= 64 ? 32 : 16;
  scf::ForallOp forall = program.forall;
  bool longestFirst = boundsDependOn(forall, forall.getInductionVars().back());
  TileQueueOp::create(b, program.loop.getLoc(), rings.barriersEnd, longestFirst,
                      heads, teams);
}

/// Rewrites the body of a scf.forall that was recognised.
static LogicalResult schedule(HopperProgram &program,
                              const HopperOptions &options) {
  decideByWarp(program.loop);
  findRandomMask(program);
  if (options.split)
    findMask(program);
  splitRowSums(program.loop);
  sinkSums(program.loop);
  findSums(program);
  FailureOr<HopperShape> shape = chooseShape(program, options);
  if (failed(shape))
    return failure();
  if (shape->ones)
    takeWholeSums(program.loop.getResult(program.sumsIndex));
  else
    program.sums = {};
  // Where nothing is to run under the second contraction, its result can be
  // rescaled where the scores are masked: a test less in each block. A result
  // wider than the scores is better rescaled under their exponentials.
  if (!shape->overlap && program.second.n <= program.first.n)
    mergeBranches(program.loop);

  OpBuilder b(program.loop);
  HopperRings rings = placeRings(b, program, *shape);
  if (shape->persistent)
    createQueue(b, program, rings, options.heads, shape->teams);
  auto producer =
      ProducerOp::create(b, program.loop.getLoc(), shape->producerRegisters);
  producer.getBody().emplaceBlock();
  HopperConsumers consumers = buildConsumers(b, program, *shape, rings);
  stageStores(program.forall, consumers.role, rings.tilesEnd,
              shape->stagedPanels);
  buildProducer(producer, consumers.role);
  eraseDead(*program.forall.getBody());
  return success();
}

namespace {
struct ScheduleHopper
    : public fa::impl::ScheduleHopperPassBase<ScheduleHopper> {
  using ScheduleHopperPassBase::ScheduleHopperPassBase;

  void runOnOperation() override {
    HopperOptions options{fa::lookupNVIDIATarget(chip),
                          overlap,
                          pingPong,
                          stages,
                          persistent,
                          stage,
                          ones,
                          split,
                          heads,
                          teams};
    if (!options.target || StringRef(chip) != "sm_90a") {
      getOperation().emitError("expected the target sm_90a, got ") << chip;
      return signalPassFailure();
    }
    for (func::FuncOp func : collectPrograms(getOperation())) {
      splitRandomMasks(func);
      for (auto forall : func.getBody().front().getOps<scf::ForallOp>()) {
        if (!forall.getBody()->getOps<ConsumersOp>().empty())
          continue; // scheduled by rules
        HopperProgram program;
        std::string why;
        if (!matchHopper(forall, program, why)) {
          remark::missed(forall.getLoc(), remark::RemarkOpts::name("schedule")
                                              .category("fa-schedule-hopper"))
              << "left the kernel to the Ampere schedule: " << why;
          continue;
        }
        if (failed(schedule(program, options)))
          return signalPassFailure();
      }
    }
  }
};
} // namespace
