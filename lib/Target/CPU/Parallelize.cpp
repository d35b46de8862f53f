// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Outermost scf.forall -> a function over a range of iterations, and memory
// from the calling thread's arena.

#include "fa/Target/CPU/Passes.h"

#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"

namespace fa {
#define GEN_PASS_DEF_CPUPARALLELIZEPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-cpu-parallelize"

namespace {

/// Turns one scf.forall into a function and a call of the host.
class Outliner {
public:
  Outliner(RewriterBase &rewriter, ModuleOp module, scf::ForallOp forall,
           StringRef name)
      : b(rewriter), module(module), forall(forall), loc(forall.getLoc()),
        name(name), types(rewriter.getContext()) {}
  LogicalResult outline();

private:
  Value index(int64_t x) { return arith::ConstantIndexOp::create(b, loc, x); }
  Value toI64(Value v) {
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), v);
  }
  /// Iterations in each dimension, and their product.
  Value computeCounts();
  /// Stores the values that the body uses; returns the context's address.
  FailureOr<Value> packContext();
  void emitRangeFunction();
  void emitIteration(func::FuncOp function, Value linear, IRMapping &map);

  RewriterBase &b;
  ModuleOp module;
  scf::ForallOp forall;
  Location loc;
  std::string name;
  LLVMTypeConverter types;
  SmallVector<Value> lower, step, counts;
  SetVector<Value> captured;
  LLVM::LLVMStructType contextType;
};

} // namespace

static Value constantOrValue(OpBuilder &b, Location loc, OpFoldResult x) {
  return getValueOrCreateConstantIndexOp(b, loc, x);
}

Value Outliner::computeCounts() {
  Value total = index(1);
  for (auto [lo, hi, by] :
       llvm::zip(forall.getMixedLowerBound(), forall.getMixedUpperBound(),
                 forall.getMixedStep())) {
    Value l = constantOrValue(b, loc, lo), s = constantOrValue(b, loc, by);
    Value extent =
        arith::SubIOp::create(b, loc, constantOrValue(b, loc, hi), l);
    extent = arith::MaxSIOp::create(b, loc, extent, index(0));
    Value padded = arith::AddIOp::create(
        b, loc, extent, arith::SubIOp::create(b, loc, s, index(1)));
    Value count = arith::DivUIOp::create(b, loc, padded, s);
    lower.push_back(l);
    step.push_back(s);
    counts.push_back(count);
    total = arith::MulIOp::create(b, loc, total, count);
  }
  return total;
}

FailureOr<Value> Outliner::packContext() {
  getUsedValuesDefinedAbove(forall.getRegion(), captured);
  captured.insert(lower.begin(), lower.end());
  captured.insert(step.begin(), step.end());
  captured.insert(counts.begin(), counts.end());
  captured.remove_if([](Value v) {
    return v.getDefiningOp() &&
           v.getDefiningOp()->hasTrait<OpTrait::ConstantLike>();
  });
  SmallVector<Type> fields;
  for (Value v : captured) {
    Type field = types.convertType(v.getType());
    if (!field)
      return forall.emitError() << "uses a value of type " << v.getType()
                                << ", which has no form in memory on the CPU; "
                                   "use f32, f16, bf16, f64 or integers";
    fields.push_back(field);
  }
  contextType = LLVM::LLVMStructType::getLiteral(b.getContext(), fields);
  Value context = LLVM::UndefOp::create(b, loc, contextType);
  for (auto [i, v] : llvm::enumerate(captured)) {
    Value field = v;
    if (field.getType() != fields[i])
      field = UnrealizedConversionCastOp::create(b, loc, fields[i], field)
                  .getResult(0);
    context = LLVM::InsertValueOp::create(b, loc, context, field, i);
  }
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value one =
      LLVM::ConstantOp::create(b, loc, b.getI64Type(), b.getI64IntegerAttr(1));
  Value address = LLVM::AllocaOp::create(b, loc, pointer, contextType, one, 64);
  LLVM::StoreOp::create(b, loc, context, address);
  return address;
}

/// One iteration: coordinates from the linear number, then the body.
void Outliner::emitIteration(func::FuncOp function, Value linear,
                             IRMapping &map) {
  Value rest = linear;
  for (int d = static_cast<int>(counts.size()) - 1; d >= 0; --d) {
    Value count = map.lookupOrDefault(counts[d]);
    Value position = rest;
    if (d > 0) {
      position = arith::RemUIOp::create(b, loc, rest, count);
      rest = arith::DivUIOp::create(b, loc, rest, count);
    }
    Value scaled =
        arith::MulIOp::create(b, loc, position, map.lookupOrDefault(step[d]));
    map.map(
        forall.getInductionVar(d),
        arith::AddIOp::create(b, loc, scaled, map.lookupOrDefault(lower[d])));
  }
  for (Operation &op : forall.getBody()->without_terminator())
    b.clone(op, map);
}

void Outliner::emitRangeFunction() {
  OpBuilder::InsertionGuard guard(b);
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(
      b, loc, name, b.getFunctionType({pointer, i64, i64}, {}));
  function.setPrivate();
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  IRMapping map;
  // Constants are made anew.
  SetVector<Value> above;
  getUsedValuesDefinedAbove(forall.getRegion(), above);
  above.insert(lower.begin(), lower.end());
  above.insert(step.begin(), step.end());
  above.insert(counts.begin(), counts.end());
  for (Value v : above)
    if (!captured.contains(v))
      map.map(v, b.clone(*v.getDefiningOp())->getResult(0));
  Value context =
      LLVM::LoadOp::create(b, loc, contextType, entry->getArgument(0));
  for (auto [i, v] : llvm::enumerate(captured)) {
    Value field = LLVM::ExtractValueOp::create(b, loc, context, i);
    if (field.getType() != v.getType())
      field = UnrealizedConversionCastOp::create(b, loc, v.getType(), field)
                  .getResult(0);
    map.map(v, field);
  }
  auto toIndex = [&](Value v) {
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), v);
  };
  Value begin = toIndex(entry->getArgument(1)),
        end = toIndex(entry->getArgument(2));
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1));
  func::ReturnOp::create(b, loc);
  b.setInsertionPointToStart(loop.getBody());
  emitIteration(function, loop.getInductionVar(), map);
}

LogicalResult Outliner::outline() {
  b.setInsertionPoint(forall);
  Value total = computeCounts();
  FailureOr<Value> context = packContext();
  if (failed(context))
    return failure();
  emitRangeFunction();
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  auto functionType = b.getFunctionType({pointer, i64, i64}, {});
  Value function = func::ConstantOp::create(
      b, loc, functionType, SymbolRefAttr::get(b.getContext(), name));
  Value address = UnrealizedConversionCastOp::create(b, loc, pointer, function)
                      .getResult(0);
  func::CallOp::create(b, loc, "fa_cpu_parallel_for", TypeRange(),
                       ValueRange{address, *context, toI64(total)});
  b.eraseOp(forall);
  return success();
}

/// Marks and releases the arena around a block that allocates.
static void releaseAtEnd(RewriterBase &b, Block *block) {
  Location loc = block->getParentOp()->getLoc();
  b.setInsertionPointToStart(block);
  Value mark = func::CallOp::create(b, loc, "fa_cpu_mark",
                                    TypeRange{b.getI64Type()}, ValueRange())
                   .getResult(0);
  b.setInsertionPoint(block->getTerminator());
  func::CallOp::create(b, loc, "fa_cpu_release", TypeRange(), mark);
}

static void declareRuntime(RewriterBase &b, ModuleOp module) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type();
  std::pair<StringRef, FunctionType> functions[] = {
      {"fa_cpu_parallel_for", b.getFunctionType({pointer, pointer, i64}, {})},
      {"fa_cpu_mark", b.getFunctionType({}, {i64})},
      {"fa_cpu_release", b.getFunctionType({i64}, {})}};
  b.setInsertionPointToStart(module.getBody());
  for (auto &[name, type] : functions)
    if (!module.lookupSymbol(name))
      func::FuncOp::create(b, module.getLoc(), name, type).setPrivate();
}

namespace {
struct CPUParallelizePass
    : fa::impl::CPUParallelizePassBase<CPUParallelizePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    IRRewriter b(&getContext());
    declareRuntime(b, module);
    SmallVector<scf::ForallOp> outer, inner;
    module.walk([&](scf::ForallOp op) {
      (op->getParentOfType<scf::ForallOp>() ? inner : outer).push_back(op);
    });
    for (ArrayRef<scf::ForallOp> all : {ArrayRef(outer), ArrayRef(inner)})
      for (scf::ForallOp op : all)
        if (op->getNumResults() != 0 || !op->getParentOfType<func::FuncOp>()) {
          op.emitError("expected an scf.forall on buffers in a function, got "
                       "one with ")
              << op->getNumResults() << " tensor results; run "
              << "fa-cpu-bufferize first";
          return signalPassFailure();
        }
    for (scf::ForallOp op : inner)
      if (failed(scf::forallToForLoop(b, op)))
        return signalPassFailure();
    unsigned number = 0;
    for (scf::ForallOp op : outer) {
      auto parent = op->getParentOfType<func::FuncOp>();
      Outliner outliner(b, module, op,
                        (parent.getName() + "_range" + Twine(number++)).str());
      if (failed(outliner.outline()))
        return signalPassFailure();
    }
    SmallVector<Block *> blocks;
    module.walk([&](Operation *op) {
      auto function = dyn_cast<func::FuncOp>(op);
      if (!isa<scf::ForOp>(op) && !(function && !function.isExternal()))
        return;
      bool allocates = false;
      op->walk([&](memref::AllocOp) { allocates = true; });
      if (allocates)
        blocks.push_back(&op->getRegion(0).front());
    });
    for (Block *block : blocks)
      releaseAtEnd(b, block);
  }
};
} // namespace
