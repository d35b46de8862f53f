// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many warps a block has, how they divide its tiles, and what they keep in
// registers.

#include "Plan.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Schedule/Pressure.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Budget
//===----------------------------------------------------------------------===//

int64_t AmperePlan::registersWith(unsigned warps) const {
  return estimateRegisters(
      program, warps, [&](Value tile) { return layouts.warpsOf(tile, warps); });
}

/// Warps that can divide a tile's rows and columns, at most; 0 for any.
int64_t AmperePlan::mostWarps(Value tile) const {
  auto type = dyn_cast<RankedTensorType>(tile.getType());
  if (!type || type.getRank() != 2 || !type.hasStaticShape())
    return 0;
  auto powerOf2 = [](int64_t x) { return x & -x; };
  int64_t rows = powerOf2(type.getDimSize(0) / 16);
  int64_t columns = type.getDimSize(1);
  return layouts.isWhole(tile) || columns % 8 ? rows
                                              : rows * powerOf2(columns / 8);
}

LogicalResult AmperePlan::chooseWarps() {
  int64_t divisor = 0;
  Operation *bad = nullptr;
  auto visit = [&](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    if (!type || type.getRank() != 2 || !type.hasStaticShape() ||
        program.isLoadedTile(v) || program.isGlobal(v))
      return;
    // Of tiles of 16 rows.
    int64_t rows = type.getDimSize(0);
    if (rows % 16)
      bad = v.getDefiningOp();
    divisor = std::gcd(divisor, rows % 16 ? rows : 16 * mostWarps(v));
  };
  program.getForall().walk([&](linalg::LinalgOp op) {
    // One value throughout has any layout.
    if (isa<linalg::FillOp>(op))
      return;
    for (Value v : op->getResults())
      visit(v);
    for (OpOperand *operand : op.getDpsInputOperands())
      if (!matchContraction(op) && program.isLoadedTile(operand->get()))
        if (auto type = dyn_cast<RankedTensorType>(operand->get().getType()))
          if (type.getRank() == 2 && type.hasStaticShape())
            divisor = std::gcd(divisor, type.getDimSize(0));
  });
  if (!divisor)
    program.getForall().walk([&](linalg::LinalgOp op) {
      for (Value v : op->getResults())
        if (auto type = dyn_cast<RankedTensorType>(v.getType()))
          if (type.getRank() == 1 && type.hasStaticShape())
            divisor = std::gcd(divisor, type.getDimSize(0));
    });
  if (!divisor)
    divisor = 64;
  if (bad || divisor % 16)
    return (bad ? bad : program.getForall().getOperation())
               ->emitOpError("expected tiles whose number of rows is a "
                             "multiple of 16, got ")
           << divisor << "; choose another tile size";
  int64_t most = (divisor / 16) & -(divisor / 16);
  if (options.warps) {
    if ((divisor / 16) % options.warps)
      return program.getForall().emitOpError("expected warps to divide ")
             << divisor / 16 << " (tiles of 16 rows in a block), got "
             << options.warps;
    numWarps = options.warps;
  } else {
    numWarps = std::min<int64_t>(4, most);
    while (registersWith(numWarps) > options.target->registers &&
           numWarps < 8 && most >= 2 * numWarps)
      numWarps *= 2;
  }
  layouts.setWarps(numWarps);
  estimate = registersWith(numWarps);
  // It is an estimate, and coordinates may take less: what is some above the
  // limit may spill a little, or nothing. There are no smaller tiles than of 16
  // rows: they spill.
  int64_t least = estimate - estimate / 8 - kCoordinateRegisters;
  if (least > options.target->registers && divisor > 16)
    return program.getForall().emitOpError("needs about ")
           << estimate << " registers a thread with " << numWarps
           << " warps, and " << options.target->chip << " has "
           << options.target->registers << "; choose smaller tiles";
  return success();
}

/// Captured tensors' sums go behind a step's products, whose results are on
/// their way while lanes exchange terms, where registers hold the terms for so
/// long (measured at D=64: a table's gradient adds 0.19 of the time, and 0.31
/// before the products).
void AmperePlan::delaySums() {
  program.getForall().walk([&](scf::ForOp loop) {
    Operation *last = nullptr;
    SmallVector<AccumulateOp> sums;
    for (Operation &op : *loop.getBody()) {
      if (matchContraction(&op))
        last = &op;
      if (auto sum = dyn_cast<AccumulateOp>(op))
        sums.push_back(sum);
    }
    // The last first: what reads another's result stays behind it.
    for (AccumulateOp sum : llvm::reverse(sums)) {
      if (!last || !sum->isBeforeInBlock(last))
        continue;
      // Of a user in a region the operation that the region is of counts.
      if (llvm::any_of(sum->getUsers(), [&](Operation *user) {
            Operation *at = loop.getBody()->findAncestorOpInBlock(*user);
            return at == last || at->isBeforeInBlock(last);
          }))
        continue;
      Operation *next = sum->getNextNode();
      sum->moveAfter(last);
      int64_t later = registersWith(numWarps);
      if (later > options.target->registers)
        sum->moveBefore(next);
      else
        estimate = later;
    }
  });
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

void AmperePlan::addConversion(OpOperand *operand) {
  converted.insert(operand);
  PlannedLoad conversion;
  conversion.layout =
      sharedLayoutOf(cast<RankedTensorType>(operand->get().getType()));
  conversions.insert({operand->get(), conversion});
}

/// Whether the first operand of a product has the layout in registers that its
/// instruction wants: rows where the result has them, with all columns.
bool AmperePlan::isTakenFromRegisters(const Contraction &c) const {
  return c.tensorCore() && !c.aOuterK &&
         layouts.of(c.a->get())->isOperandOf(*layouts.of(c.op->getResult(0)));
}

/// How many warps may divide the rows of a class, the most first.
SmallVector<unsigned> AmperePlan::optionsOf(const Layouts::Class &c) const {
  SmallVector<unsigned> result;
  unsigned most = FragmentLayout::mostRowWarps(c.rows, numWarps);
  for (unsigned rows = most; rows >= 1; rows /= 2) {
    bool fits = numWarps % rows == 0 && c.rows % (16 * rows) == 0 &&
                (rows == numWarps || c.cols % (8 * (numWarps / rows)) == 0);
    if (fits || rows == most)
      result.push_back(rows);
    if (c.whole || rows % 2)
      break;
  }
  return result;
}

/// Clocks of a step's products, roughly: the bytes that warps read and write in
/// shared memory (128 a clock), what tensor cores multiply, and barriers.
/// The most there is where shared memory does not suffice.
int64_t AmperePlan::costOfLayouts() const {
  constexpr int64_t kBytesAClock = 128, kProductsAClock = 1024, kBarrier = 64;
  int64_t bytes = 0, products = 0, barriers = 0, shared = 0;
  for (auto &[tile, load] : loads)
    shared += load.layout.size() * (load.ringIndex >= 0 ? 2 : 1);
  DenseSet<Value> stored;
  for (const Contraction &c : contractions) {
    FragmentLayout result = *layouts.of(c.op->getResult(0));
    int64_t rows = c.m / result.rowWarps(), cols = c.n / result.colWarps();
    int64_t size = c.elementType.getIntOrFloatBitWidth() / 8;
    bool isComputedA = !load(c.a->get());
    if (!isComputedA || !isTakenFromRegisters(c)) {
      bytes += numWarps * rows * c.k * size;
      if (isComputedA)
        stored.insert(c.a->get());
    }
    if (!load(c.b->get()))
      stored.insert(c.b->get());
    bytes += numWarps * cols * c.k * size;
    products += numWarps * rows * cols * c.k;
  }
  for (Value v : stored) {
    auto type = cast<RankedTensorType>(v.getType());
    int64_t size = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    bytes += size;
    shared += size;
    barriers += kBarrier;
  }
  if (shared > options.target->sharedMemory)
    return std::numeric_limits<int64_t>::max();
  // Another block of threads hides what this one waits for.
  int64_t blocks = std::min<int64_t>(
      2, blocksPerSM(options.target->info, 32 * numWarps, estimate, shared));
  return (bytes / kBytesAClock + products / kProductsAClock + barriers) * 2 /
         std::max<int64_t>(1, blocks);
}

/// Warps divide the rows of tiles, as many as can, if nothing speaks for their
/// columns: a product whose warps have 32 x 64 of its result reads less than
/// one whose warps have 16 x 128.
void AmperePlan::chooseLayouts() {
  SmallVector<SmallVector<unsigned>> choices;
  int64_t combinations = 1;
  bool anyWhole = false;
  for (Layouts::Class &c : layouts.getClasses()) {
    choices.push_back(optionsOf(c));
    c.rowWarps = choices.back().front();
    anyWhole |= c.whole;
    if (c.cols)
      combinations *= choices.back().size();
  }
  bool tensorCores = llvm::all_of(
      contractions, [](const Contraction &c) { return c.tensorCore(); });
  constexpr int64_t kMostCombinations = 4096;
  if (tensorCores && !contractions.empty() && !anyWhole &&
      combinations <= kMostCombinations) {
    SmallVector<unsigned> best;
    int64_t least = 0;
    for (int64_t n = 0; n < combinations; ++n) {
      int64_t rest = n;
      for (auto [c, own] : llvm::zip(layouts.getClasses(), choices)) {
        if (!c.cols)
          continue;
        c.rowWarps = own[rest % own.size()];
        rest /= own.size();
      }
      int64_t cost = costOfLayouts();
      if (!best.empty() && cost >= least)
        continue;
      least = cost;
      best.clear();
      for (const Layouts::Class &c : layouts.getClasses())
        best.push_back(c.rowWarps);
    }
    for (auto [c, rowWarps] : llvm::zip(layouts.getClasses(), best))
      c.rowWarps = rowWarps;
  }
  for (const Contraction &c : contractions)
    if (!load(c.a->get()) && !converted.contains(c.a) &&
        !isTakenFromRegisters(c))
      addConversion(c.a);
}

/// Fragments of an operand that was loaded outside the loop stay in registers
/// while the budget allows.
void AmperePlan::chooseHoisted() {
  for (const Contraction &c : contractions) {
    const PlannedLoad *a = load(c.a->get());
    auto loop = c.op->getParentOfType<scf::ForOp>();
    if (!a || !loop || !c.tensorCore() || a->loop == loop ||
        (a->loop && loop->isAncestor(a->loop)))
      continue;
    int64_t regs =
        layouts.of(c.op->getResult(0))->rowTiles() * ((c.k + 15) / 16) * 4;
    if (estimate + regs > options.hoistRegisters)
      continue;
    estimate += regs;
    hoistedOperands.insert(c.a);
  }
}
