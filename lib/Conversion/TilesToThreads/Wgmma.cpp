// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of the hopper dialect and what works on their registers.
//
// Descriptors and fragments: "Parallel Thread Execution ISA", asynchronous
// warpgroup level matrix instructions.

#include "KernelEmitter.h"
#include "PTXText.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Elements of a k-step of wgmma on 16-bit operands.
static constexpr int64_t stepK = 16;
/// Bytes of a row of a panel.
static constexpr int64_t rowBytes = RingType::rowBytes;

/// Bytes of what descriptors count.
static constexpr int64_t unitBytes = 16;

/// A product's operand in shared memory: `number` times `size` of its rows or,
/// where it is transposed, columns are skipped. Its ring may have it lie the
/// other way round.
///
/// Its descriptor: where it begins, the leading and the stride offset, the
/// 128-byte swizzle. What a step adds stays in the low word, of whose lower
/// half shared memory takes 14 bits.
KernelEmitter::SharedOperand KernelEmitter::sharedOperand(Value slot,
                                                          bool isTransposed,
                                                          Value number,
                                                          int64_t size) {
  Slot held = slots[slot];
  RingType type = held.ring.getRing().getType();
  isTransposed ^= type.getTurned();
  int64_t panelBytes = type.panelBytes(), panelUnits = panelBytes / unitBytes;
  Value units = mulC(held.stage, held.ring.stageBytes() / unitBytes);
  if (number && !isTransposed) {
    units = add(units, mulC(number, size * rowBytes / unitBytes));
  } else if (number && size % RingType::panelCols == 0) {
    units = add(units, mulC(number, size / RingType::panelCols * panelUnits));
  } else if (number) {
    constexpr int64_t unitCols = unitBytes / 2;
    Value first = mulC(number, size);
    units = add(units, mulC(divC(first, RingType::panelCols), panelUnits));
    units = add(units, divC(remC(first, RingType::panelCols), unitCols));
  }
  constexpr int64_t groupBytes = 8 * rowBytes;
  int64_t leading = isTransposed ? panelUnits : 1;
  Value low = addC(add(divC(smemAddress, unitBytes), again(units)),
                   held.ring.getOffset() / unitBytes + (leading << 16));
  uint32_t high = groupBytes / unitBytes | 1u << 30;
  return {low, high, panelBytes, isTransposed};
}

/// What a step adds to the descriptor: along the columns of panels, or down
/// their rows.
int64_t KernelEmitter::stepOf(const SharedOperand &operand, int64_t step) {
  constexpr int64_t perPanel = RingType::panelCols / stepK;
  int64_t bytes = operand.isTransposed ? step * stepK * rowBytes
                                       : step / perPanel * operand.panelBytes +
                                             step % perPanel * stepK * 2;
  return bytes >> 4;
}

/// Whether only products, and what touches no registers of theirs, come between
/// the product before and this one.
static bool followsProduct(WgmmaOp op) {
  for (Operation *before = op->getPrevNode(); before;
       before = before->getPrevNode()) {
    if (isa<WgmmaOp>(before))
      return true;
    bool isNumber =
        llvm::none_of(before->getResultTypes(), llvm::IsaPred<TensorType>) &&
        isMemoryEffectFree(before);
    if (!isNumber && !isa<AcquireOp, ReleaseOp, tensor::ExtractSliceOp,
                          tensor::PadOp, tensor::CastOp>(before))
      return false;
  }
  return false;
}

LogicalResult KernelEmitter::emitWgmma(WgmmaOp op) {
  Value c = op.getResults()[0];
  bool sums = op.getResults().size() == 2;
  FragmentLayout layout = *view.layout(c);
  int64_t n = layout.cols() / layout.colWarps();
  size_t regs = layout.numRegs(), all = regs + (sums ? 4 : 0);

  // Which rows and columns of the result this warpgroup has.
  int64_t rowGroups = layout.rowWarps() / 4;
  bool divideColumns = layout.colWarps() > 1;
  Value rowGroup = divideColumns ? remC(warpgroup(), rowGroups) : warpgroup();
  Value colGroup = divideColumns ? divC(warpgroup(), rowGroups) : Value();

  RingType bType = slots[op.getB()].ring.getRing().getType();
  bool transposed = op.getTransposed();
  int64_t k = bType.getTile().getDimSize(transposed ? 0 : 1);
  int64_t steps = (k + stepK - 1) / stepK;
  // Columns that lie in two panels are those of several instructions.
  bool liesTransposed = transposed ^ bType.getTurned();
  int64_t piece =
      liesTransposed && divideColumns && !fitsPanels(n) ? n & -n : n;
  SmallVector<SharedOperand> bShared;
  for (int64_t p = 0; p < n / piece; ++p)
    bShared.push_back(sharedOperand(
        op.getB(), transposed,
        colGroup ? addC(mulC(colGroup, n / piece), p) : Value(), piece));
  SharedOperand aShared;

  // Operands: accumulators (tied), then for each step those of A and B.
  SmallVector<Value> operands, a;
  std::string constraints;
  repeat(constraints, "=f", all);
  bool zero = op.getInits().empty();
  for (auto [init, result] : llvm::zip(op.getInits(), op.getResults())) {
    auto values = registers(init, *view.layout(result));
    if (failed(values))
      return failure();
    operands.append(*values);
  }
  if (!zero)
    tie(constraints, all);
  size_t next = zero ? all : 2 * all;
  // Where registers are spared, the descriptors of steps are computed one by
  // one: as operands all would be there at once.
  bool oneByOne = sparesRegisters();
  auto addDescriptor = [&](const SharedOperand &operand) {
    operands.push_back(operand.low);
    constraints += ",r";
    return "$" + std::to_string(next++);
  };
  bool fromShared = isa<SlotType>(op.getA().getType());
  if (fromShared) {
    aShared =
        sharedOperand(op.getA(), op.getATransposed(), rowGroup, warpgroupRows);
  } else {
    auto values = registers(op.getA(), *view.layout(op.getA()));
    if (failed(values))
      return failure();
    a = *values;
    if (a.size() != size_t(4 * steps))
      return op.emitOpError("expected a multiple of 16 columns of a computed "
                            "operand, got ")
             << k;
  }
  bool bf16 = bType.getTile().getElementType().isBF16();
  StringRef element = bf16 ? ".bf16.bf16 " : ".f16.f16 ";
  size_t pieceRegs = all * piece / n;
  std::string name = "wgmma.mma_async.sync.aligned.m64n" +
                     std::to_string(piece + (sums ? 8 : 0)) + "k16.f32" +
                     element.str();
  std::string text;
  if (op.getCondition()) {
    Value condition = scalar(op.getCondition());
    if (!condition)
      return failure();
    operands.push_back(
        arith::ExtUIOp::create(b, loc, b.getI32Type(), condition));
    constraints += ",r";
    text = "{\n.reg .pred p;\nsetp.ne.b32 p, $" + std::to_string(next++) +
           ", 0;\n";
  }
  std::string aBase;
  SmallVector<std::string> bBase(bShared.size());
  if (oneByOne) {
    if (fromShared)
      aBase = addDescriptor(aShared);
    for (auto [base, operand] : llvm::zip(bBase, bShared))
      base = addDescriptor(operand);
    text += "{\n.reg .b32 low;\n.reg .b64 a, b;\n";
  }
  // One fence is enough for products that follow each other.
  if (!oneByOne || !followsProduct(op))
    text += "wgmma.fence.sync.aligned;\n";
  auto descriptorOf = [&](const SharedOperand &operand, int64_t step,
                          StringRef base, StringRef name) {
    int64_t offset = stepOf(operand, step);
    if (oneByOne)
      return "add.s32 low, " + base.str() + ", " + std::to_string(offset) +
             ";\nmov.b64 " + name.str() + ", {low, " +
             std::to_string(operand.high) + "};\n";
    Value low = arith::ExtUIOp::create(b, loc, b.getI64Type(),
                                       addC(operand.low, offset));
    operands.push_back(b.createOrFold<arith::OrIOp>(
        loc, low, i64(int64_t(operand.high) << 32)));
    constraints += ",l";
    return "$" + std::to_string(next++);
  };
  for (size_t p = 0; p < bShared.size(); ++p)
    for (int64_t step = 0; step < steps; ++step) {
      std::string aStep, bStep = "b";
      if (fromShared)
        aStep = descriptorOf(aShared, step, aBase, "a");
      if (oneByOne) {
        text += aStep + descriptorOf(bShared[p], step, bBase[p], "b");
        aStep = "a";
      }
      text += name + registerList(p * pieceRegs, pieceRegs) + ", ";
      if (fromShared) {
        text += aStep;
      } else {
        operands.append(a.begin() + 4 * step, a.begin() + 4 * step + 4);
        constraints += ",r,r,r,r";
        text += registerList(next, 4);
        next += 4;
      }
      if (!oneByOne)
        bStep = descriptorOf(bShared[p], step, bBase[p], "b");
      text += ", " + bStep;
      text += step > 0            ? ", 1"
              : op.getCondition() ? ", p"
              : zero              ? ", 0"
                                  : ", 1";
      text += ", 1, 1";
      if (fromShared)
        text += aShared.isTransposed ? ", 1" : ", 0";
      text += liesTransposed ? ", 1;\n" : ", 0;\n";
    }
  text += "wgmma.commit_group.sync.aligned;";
  if (oneByOne)
    text += "\n}";
  if (op.getCondition())
    text += "\n}";
  SmallVector<Type> types(all, b.getF32Type());
  SmallVector<Value> results = ptx(text, constraints, operands, types);
  bindRegisters(c, ArrayRef(results).take_front(regs));
  if (sums)
    bindRegisters(op.getResults()[1], ArrayRef(results).drop_front(regs));
  return success();
}

/// The wait as a data dependency: nothing reads a result before it.
LogicalResult KernelEmitter::emitWaitGroup(WaitGroupOp op) {
  SmallVector<Value> values;
  for (Value v : op.getValues()) {
    auto regs = registers(v, *view.layout(v));
    if (failed(regs))
      return failure();
    values.append(*regs);
  }
  std::string constraints;
  repeat(constraints, "=f", values.size());
  tie(constraints, values.size());
  size_t all = 0;
  for (Value result : op.getResults())
    all += flatSize(result);
  if (all != values.size())
    return op.emitOpError("waits for products of ")
           << values.size() << " registers a thread, and its results have "
           << all << "; choose tiles of other rows";
  SmallVector<Type> types(values.size(), b.getF32Type());
  SmallVector<Value> results = ptx(
      ("wgmma.wait_group.sync.aligned " + Twine(op.getPending()) + ";").str(),
      constraints + ",~{memory}", values, types);
  size_t at = 0;
  for (Value result : op.getResults()) {
    size_t count = flatSize(result);
    bindRegisters(result, ArrayRef(results).slice(at, count));
    at += count;
  }
  return success();
}

LogicalResult KernelEmitter::emitPin(PinOp op) {
  for (auto [v, result] : llvm::zip(op.getValues(), op.getResults())) {
    auto regs = registers(v, *view.layout(v));
    if (failed(regs))
      return failure();
    std::string constraints;
    bool words = regs->front().getType().isInteger(32);
    repeat(constraints, words ? "=r" : "=f", regs->size());
    tie(constraints, regs->size());
    SmallVector<Type> types(regs->size(), regs->front().getType());
    bindRegisters(result, ptx("// pinned", constraints, *regs, types));
  }
  return success();
}

LogicalResult KernelEmitter::emitPartialSums(PartialSumsOp op) {
  FragmentLayout from = *view.layout(op.getTile());
  auto values = registers(op.getTile(), from);
  auto sums = registers(op.getAcc(), *view.layout(op.getAcc()));
  if (failed(values) || failed(sums))
    return failure();
  Type type = getElementTypeOrSelf(op.getTile());
  SmallVector<Value> next = *sums;
  for (unsigned n = 0; n < from.colTiles(); ++n)
    for (unsigned e = 0; e < 4; ++e) {
      Value v = element(*values, from.reg(0, n, e), type, from);
      if (!type.isF32())
        v = arith::ExtFOp::create(b, loc, b.getF32Type(), v);
      next[e] = arith::AddFOp::create(b, loc, next[e], v);
    }
  bindRegisters(op.getResult(), next);
  return success();
}

namespace {
/// Finds values, scalars and tiles, none of which is negative: a zero or a NaN
/// may have a sign.
class SignFinder {
public:
  bool isNonNegative(Value v);

private:
  bool ofArgument(BlockArgument v);
  bool ofResult(OpResult v);
  bool all(ValueRange values) {
    return llvm::all_of(values, [&](Value v) { return isNonNegative(v); });
  }
  /// What was asked for. All of it must hold, so that in a cycle through a loop
  /// it may be assumed.
  DenseSet<Value> asked;
};
} // namespace

bool SignFinder::isNonNegative(Value v) {
  if (!asked.insert(v).second)
    return true;
  FloatAttr constant;
  if (matchPattern(v, m_Constant(&constant)))
    return !constant.getValue().isNegative() || constant.getValue().isZero();
  if (auto argument = dyn_cast<BlockArgument>(v))
    return ofArgument(argument);
  return ofResult(cast<OpResult>(v));
}

bool SignFinder::ofArgument(BlockArgument v) {
  Operation *parent = v.getOwner()->getParentOp();
  if (auto op = dyn_cast<linalg::LinalgOp>(parent))
    return isNonNegative(parent->getOperand(v.getArgNumber()));
  auto loop = dyn_cast<scf::ForOp>(parent);
  if (!loop || v == loop.getInductionVar())
    return false;
  return isNonNegative(loop.getTiedLoopInit(v)->get()) &&
         isNonNegative(loop.getTiedLoopYieldedValue(v)->get());
}

bool SignFinder::ofResult(OpResult v) {
  Operation *op = v.getOwner();
  unsigned n = v.getResultNumber();
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return isNonNegative(branch.thenYield().getOperand(n)) &&
           isNonNegative(branch.elseYield().getOperand(n));
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return isNonNegative(loop.getInitArgs()[n]) &&
           isNonNegative(loop.getYieldedValues()[n]);
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return isNonNegative(generic.getBody()->getTerminator()->getOperand(n));
  if (isa<PinOp>(op))
    return isNonNegative(op->getOperand(n));
  if (isa<linalg::FillOp>(op))
    return isNonNegative(op->getOperand(0));
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  if (!scalar)
    return false;
  // Of any operands, or of some that are not negative.
  SmallVector<NumberRange> ranges(op->getNumOperands());
  if (scalar.inferRange(ranges).isNonNegative())
    return true;
  SmallVector<Value> numbers;
  for (auto [operand, range] : llvm::zip(op->getOperands(), ranges)) {
    if (!isa<FloatType>(operand.getType()))
      continue;
    range.lo = 0;
    numbers.push_back(operand);
  }
  return scalar.inferRange(ranges).isNonNegative() && all(numbers);
}

LogicalResult KernelEmitter::emitExceeds(ExceedsOp op) {
  FragmentLayout layout = *view.layout(op.getTile());
  auto values = registers(op.getTile(), layout);
  if (failed(values))
    return failure();
  Type type = getElementTypeOrSelf(op.getTile());
  double limit = op.getLimit().convertToDouble();
  // Two numbers a word, or one, as in vectors of any type.
  bool packed = isPacked(type, layout);
  Value top = values->front(), found;
  ArrayRef<Value> rest = ArrayRef(*values).drop_front();
  if (!packed) {
    for (Value v : rest)
      top = arith::MaximumFOp::create(b, loc, top, v);
  } else if (limit == 2 && SignFinder().isNonNegative(op.getTile())) {
    // In both formats the highest bit of the exponent says it, where there is
    // no sign, as in weights.
    for (Value v : rest)
      top = arith::OrIOp::create(b, loc, top, v);
    Value bits = arith::AndIOp::create(b, loc, top, i32(0x40004000));
    found =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bits, i32(0));
  } else {
    for (Value v : rest)
      top = ptx(maximumOfWords(type.isBF16()), "=r,r,r", {top, v},
                b.getI32Type(), false)
                .front();
  }
  if (!found) {
    Value bound =
        arith::ConstantOp::create(b, loc, b.getFloatAttr(type, limit));
    SmallVector<Value> words{top};
    for (unsigned e = 0; e < (packed ? 2 : 1); ++e) {
      Value over =
          arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGE,
                                element(words, e, type, layout), bound);
      found = found ? Value(arith::OrIOp::create(b, loc, found, over)) : over;
    }
  }
  scalars.map(op.getResult(),
              NVVM::VoteSyncOp::create(b, loc, b.getI1Type(), i32(-1), found,
                                       NVVM::VoteSyncKind::any)
                  .getResult());
  return success();
}
