// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fa::nvidia;

#include "fa/Dialect/NVIDIA/IR/NVIDIADialect.cpp.inc"
#include "fa/Dialect/NVIDIA/IR/NVIDIAEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "fa/Dialect/NVIDIA/IR/NVIDIAAttrs.cpp.inc"

void NVIDIADialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "fa/Dialect/NVIDIA/IR/NVIDIAAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "fa/Dialect/NVIDIA/IR/NVIDIAOps.cpp.inc"
      >();
}

#define GET_OP_CLASSES
#include "fa/Dialect/NVIDIA/IR/NVIDIAOps.cpp.inc"

/// Warps of the largest block.
static constexpr unsigned kMostWarps = 32;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

FragmentAttr fa::nvidia::encodeLayout(MLIRContext *context,
                                      const FragmentLayout &layout) {
  FragmentKind kind = FragmentKind::Tile;
  if (layout.kind() == FragmentLayout::Kind::Row)
    kind = FragmentKind::Rows;
  if (layout.kind() == FragmentLayout::Kind::Column)
    kind = FragmentKind::Columns;
  return FragmentAttr::get(context, kind, layout.rowWarps(), layout.warps());
}

std::optional<FragmentLayout> fa::nvidia::layoutOf(RankedTensorType type) {
  auto fragment = dyn_cast_if_present<FragmentAttr>(type.getEncoding());
  if (!fragment)
    return std::nullopt;
  int64_t size = type.getDimSize(0);
  unsigned warps = fragment.getWarps(), rowWarps = fragment.getRowWarps();
  switch (fragment.getKind()) {
  case FragmentKind::Tile:
    return FragmentLayout::accumulator(size, type.getDimSize(1), warps,
                                       rowWarps);
  case FragmentKind::Rows:
    return FragmentLayout::row(size, warps, rowWarps);
  case FragmentKind::Columns:
    return FragmentLayout::column(size, warps, rowWarps);
  }
  return std::nullopt;
}

LogicalResult FragmentAttr::verifyEncoding(
    ArrayRef<int64_t> shape, Type elementType,
    function_ref<InFlightDiagnostic()> emitError) const {
  bool isTile = getKind() == FragmentKind::Tile;
  unsigned rowWarps = getRowWarps(), warps = getWarps();
  if (shape.size() != (isTile ? 2 : 1) || ShapedType::isDynamicShape(shape) ||
      llvm::any_of(shape, [](int64_t size) { return size < 1; }))
    return emitError() << "expected a static shape of rank " << (isTile ? 2 : 1)
                       << " for fragments of "
                       << stringifyFragmentKind(getKind()) << ", got rank "
                       << shape.size();
  if (rowWarps < 1 || warps < 1 || warps > kMostWarps || warps % rowWarps)
    return emitError() << "expected at most " << kMostWarps
                       << " warps, a multiple of those that divide the rows, "
                          "got "
                       << rowWarps << " of " << warps;
  unsigned colWarps = warps / rowWarps;
  if (getKind() != FragmentKind::Columns && shape[0] % (16 * rowWarps))
    return emitError() << "expected rows in multiples of 16 for each of "
                       << rowWarps << " warps, got " << shape[0];
  if (getKind() != FragmentKind::Rows && colWarps > 1 &&
      shape.back() % (8 * colWarps))
    return emitError() << "expected columns in multiples of 8 for each of "
                       << colWarps << " warps, got " << shape.back();
  return success();
}

void fa::nvidia::setTileType(Value value, RankedTensorType type) {
  // A constant says its type twice.
  if (auto constant = value.getDefiningOp<arith::ConstantOp>())
    if (auto elements = dyn_cast<DenseElementsAttr>(constant.getValue()))
      constant.setValueAttr(elements.reshape(type));
  value.setType(type);
}

bool fa::nvidia::saysLayouts(Operation *root) {
  return root
      ->walk([](scf::ForallOp forall) {
        return forall->hasAttr(NVIDIADialect::blockName)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

void fa::nvidia::dropLayouts(Operation *root) {
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [](RankedTensorType type) { return type.dropEncoding(); });
  root->walk([&](Operation *op) {
    op->removeAttr(NVIDIADialect::blockName);
    op->removeAttr(NVIDIADialect::hoistedName);
    if (auto constant = dyn_cast<arith::ConstantOp>(op))
      if (auto type = dyn_cast<RankedTensorType>(constant.getType()))
        setTileType(constant, type.dropEncoding());
    replacer.replaceElementsIn(op, /*replaceAttrs=*/false,
                               /*replaceLocs=*/false, /*replaceTypes=*/true);
    if (auto convert = dyn_cast<ConvertLayoutOp>(op)) {
      convert.getResult().replaceAllUsesWith(convert.getSource());
      convert.erase();
    }
  });
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

SharedLayout fa::nvidia::sharedLayoutOf(RankedTensorType type) {
  unsigned bytes = type.getElementTypeBitWidth() / 8;
  return type.getRank() == 1
             ? SharedLayout::vector(type.getDimSize(0), bytes)
             : SharedLayout(type.getDimSize(0), type.getDimSize(1), bytes);
}

LogicalResult
SharedAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                           function_ref<InFlightDiagnostic()> emitError) const {
  if (shape.empty() || shape.size() > 2 || ShapedType::isDynamicShape(shape) ||
      llvm::any_of(shape, [](int64_t size) { return size < 1; }))
    return emitError()
           << "expected a static tile or vector in shared memory, got rank "
           << shape.size();
  bool isVector = shape.size() == 1;
  if (isVector ? !elementType.isIntOrFloat() ||
                     elementType.getIntOrFloatBitWidth() != 32
               : !elementType.isF32() && !elementType.isF16() &&
                     !elementType.isBF16())
    return emitError() << "expected elements of f16, bf16 or f32, or of a "
                          "vector numbers of 32 bits, in shared memory, got "
                       << elementType;
  constexpr int64_t kAlignment = 128;
  if (getOffset() < 0 || getOffset() % kAlignment)
    return emitError() << "expected an offset in shared memory that is a "
                          "multiple of "
                       << kAlignment << ", got " << getOffset();
  if (getStages() < 1 || getRing() < -1 ||
      (getRing() < 0 && (getStages() != 1 || getInTurn())))
    return emitError() << "expected a ring's number from 0 and stages from 1, "
                          "or neither, got ring "
                       << getRing() << " of " << getStages() << " stages";
  return success();
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

LogicalResult BlockAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                StringRef chip, unsigned warps, unsigned teams,
                                int64_t shared) {
  if (warps < 1 || teams < 1 || uint64_t(warps) * teams > kMostWarps)
    return emitError() << "expected at most " << kMostWarps
                       << " warps in a block, got " << teams << " times "
                       << warps;
  if (shared < 0 || shared % teams)
    return emitError() << "expected bytes of shared memory that " << teams
                       << " teams divide, got " << shared;
  return success();
}

LogicalResult NVIDIADialect::verifyOperationAttribute(Operation *op,
                                                      NamedAttribute named) {
  if (named.getName() == blockName) {
    if (isa<scf::ForallOp>(op) && isa<BlockAttr>(named.getValue()))
      return success();
    return op->emitOpError("expected ")
           << blockName << " to be a #nvidia.block of an scf.forall";
  }
  if (named.getName() == hoistedName) {
    if (isa<UnitAttr>(named.getValue()) && op->getParentOfType<scf::ForOp>())
      return success();
    return op->emitOpError("expected ")
           << hoistedName << " to be a unit attribute of a product in a loop";
  }
  return op->emitOpError("has an unknown attribute of the nvidia dialect: ")
         << named.getName();
}

LogicalResult ConvertLayoutOp::verify() {
  RankedTensorType from = getSource().getType(), to = getResult().getType();
  if (from.dropEncoding() != to.dropEncoding())
    return emitOpError("expected the tile itself in another layout, got ")
           << from << " and " << to;
  if (!isa_and_present<FragmentAttr, SharedAttr>(to.getEncoding()))
    return emitOpError("expected a result in registers or in shared memory, "
                       "got ")
           << to;
  return success();
}
