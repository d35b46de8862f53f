// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layouts as encodings of types.

#include "Layouts.h"

#include "fa/Dialect/Hopper/Transforms/Utils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

namespace {
class Writer {
public:
  Writer(const BlockProgram &program, const Layouts &layouts)
      : program(program), layouts(layouts) {}
  void write();

private:
  void writeTypes();
  void writeType(Value value);
  void agree(OpOperand &operand, Type type);
  void agreeAll(Operation *op);

  const BlockProgram &program;
  const Layouts &layouts;
};
} // namespace

void Writer::writeType(Value value) {
  if (!isa<hopper::PendingType>(value.getType()) && !program.isComputed(value))
    return;
  std::optional<FragmentLayout> layout = layouts.of(value);
  if (!layout)
    return;
  FragmentAttr fragment = encodeLayout(value.getContext(), *layout);
  RankedTensorType type =
      hopper::getTileType(value.getType()).cloneWithEncoding(fragment);
  if (isa<hopper::PendingType>(value.getType()))
    value.setType(hopper::PendingType::get(value.getContext(), type));
  else
    setTileType(value, type);
}

/// What only passes a tile on has its layout.
static void copyTypes(Operation *op) {
  if (auto pin = dyn_cast<hopper::PinOp>(op)) {
    for (auto [value, result] : llvm::zip(pin.getValues(), pin.getResults()))
      result.setType(value.getType());
  } else if (auto wait = dyn_cast<hopper::WaitGroupOp>(op)) {
    for (auto [value, result] : llvm::zip(wait.getValues(), wait.getResults()))
      result.setType(hopper::getTileType(value.getType()));
  } else if (auto stage = dyn_cast<hopper::StageOp>(op)) {
    RankedTensorType type = stage.getResult().getType();
    stage.getResult().setType(stage.getTurned() ? type.dropEncoding()
                                                : stage.getTile().getType());
  }
}

void Writer::writeTypes() {
  Operation *forall = program.getForall();
  forall->walk<WalkOrder::PreOrder>([&](Operation *op) {
    // Bodies of linalg operations are of scalars.
    if (op != forall && !isa<linalg::LinalgOp>(op))
      for (Region &region : op->getRegions())
        for (Value argument : region.getArguments())
          writeType(argument);
    if (op != forall)
      for (Value result : op->getResults())
        writeType(result);
    copyTypes(op);
  });
}

/// An operand that must be of this type is made so: of one value throughout
/// there is one of any layout, anything else is read as what is wanted.
void Writer::agree(OpOperand &operand, Type type) {
  Value value = operand.get();
  if (value.getType() == type || !isa<RankedTensorType>(type))
    return;
  OpBuilder b(operand.getOwner());
  auto tile = cast<RankedTensorType>(type);
  auto make = [&](Value from) -> Value {
    Operation *op = from.getDefiningOp();
    auto constant = dyn_cast_if_present<arith::ConstantOp>(op);
    bool isSplat = constant && isa<SplatElementsAttr>(constant.getValue());
    if (!isSplat && !isa_and_present<tensor::EmptyOp>(op))
      return {};
    Value made = b.clone(*op)->getResult(0);
    setTileType(made, tile);
    return made;
  };
  Value made = make(value);
  if (auto fill = value.getDefiningOp<linalg::FillOp>(); fill && !made)
    if (Value init = make(fill.getDpsInits()[0]))
      made = linalg::FillOp::create(b, fill.getLoc(), fill.getInputs()[0], init)
                 .getResult(0);
  if (!made)
    made = ConvertLayoutOp::create(b, value.getLoc(), type, value);
  operand.set(made);
}

void Writer::agreeAll(Operation *op) {
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [i, argument] : llvm::enumerate(loop.getRegionIterArgs())) {
      agree(loop.getInitArgsMutable()[i], argument.getType());
      agree(loop.getYieldedValuesMutable()->slice(i, 1)[0], argument.getType());
    }
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    for (auto [i, result] : llvm::enumerate(branch.getResults()))
      for (Region *region : branch.getRegions())
        agree(region->front().getTerminator()->getOpOperand(i),
              result.getType());
  } else if (auto role = dyn_cast<hopper::ConsumersOp>(op)) {
    Operation *yield = role.getBody().front().getTerminator();
    for (auto [i, result] : llvm::enumerate(role.getResults()))
      agree(yield->getOpOperand(i), result.getType());
  } else if (auto sums = dyn_cast<hopper::PartialSumsOp>(op)) {
    agree(sums.getAccMutable(), sums.getResult().getType());
  } else if (auto product = dyn_cast<hopper::WgmmaOp>(op)) {
    for (auto [init, result] :
         llvm::zip(product.getInitsMutable(), product.getResults()))
      if (isa<RankedTensorType>(init.get().getType()))
        agree(init, hopper::getTileType(result.getType()));
  } else if (isa<linalg::LinalgOp>(op)) {
    auto linalgOp = cast<DestinationStyleOpInterface>(op);
    for (auto [i, result] : llvm::enumerate(op->getResults()))
      agree(*linalgOp.getDpsInitOperand(i), result.getType());
  }
}

void Writer::write() {
  writeTypes();
  program.getForall().walk([&](Operation *op) {
    // One value throughout has any layout, and no type says which.
    if (!isa<linalg::FillOp>(op))
      agreeAll(op);
  });
  hopper::eraseDead(*program.getForall().getBody());
}

void fa::nvidia::writeLayouts(const BlockProgram &program,
                              const Layouts &layouts) {
  Writer(program, layouts).write();
}

void fa::nvidia::writeBlock(const BlockProgram &program,
                            const NVIDIATarget &target, unsigned warps,
                            unsigned teams, int64_t sharedBytes) {
  scf::ForallOp forall = program.getForall();
  forall->setAttr(NVIDIADialect::blockName,
                  BlockAttr::get(forall.getContext(), target.chip, warps, teams,
                                 sharedBytes));
}

LogicalResult fa::nvidia::checkShared(const BlockProgram &program,
                                      const NVIDIATarget &target,
                                      int64_t sharedBytes) {
  if (sharedBytes > target.sharedMemory)
    return program.getForall().emitOpError("needs ")
           << sharedBytes << " bytes of shared memory a block, and "
           << target.chip << " has " << target.sharedMemory
           << "; choose smaller tiles";
  return success();
}
