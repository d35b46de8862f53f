// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions: a block of accumulators in registers, one broadcast element of
// A and a row of B per step (the outer-product kernel of Goto and van de
// Geijn, "Anatomy of high-performance matrix multiplication", 2008).

#include "Schedule.h"

#include "fa/Dialect/FA/IR/Builders.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/ValueBoundsOpInterface.h"

using namespace mlir;
using namespace fa;

namespace {

/// C[i,j] += sum_k A * B as found.
struct Contraction {
  Value a, b, c;
  /// A is [k,i] rather than [i,k]; B is [j,k] rather than [k,j].
  bool aTransposed = false, bTransposed = false;
};

class ContractionScheduler {
public:
  ContractionScheduler(RewriterBase &rewriter, linalg::LinalgOp op,
                       const VectorUnit &unit,
                       SmallVectorImpl<linalg::LinalgOp> &remaining)
      : b(rewriter), op(op), loc(op.getLoc()), unit(unit),
        remaining(remaining) {}
  LogicalResult match();
  void emit();

private:
  LogicalResult matchBody();
  Value index(int64_t x) { return arith::ConstantIndexOp::create(b, loc, x); }
  Value add(Value x, int64_t y) {
    return y ? Value(arith::AddIOp::create(b, loc, x, index(y))) : x;
  }
  Value roundDown(Value x, int64_t to) { return fa::roundDown(b, loc, x, to); }
  /// Whether a buffer needs no conversion to what is computed in.
  bool isWide(Value buffer) { return getElementTypeOrSelf(buffer) == real; }
  bool hasFewRows();
  bool readsInPlace();
  int64_t chooseVectors(int64_t rows);
  int64_t chooseSplit(int64_t rows, int64_t vectors);
  int64_t chooseUnroll(int64_t rows, int64_t vectors);
  /// A buffer of what is computed in.
  Value allocate(ArrayRef<int64_t> shape, ValueRange dynamic);
  /// A copy of a buffer in what is computed in.
  Value widen(Value buffer);
  /// B as [k,j] with contiguous rows.
  Value packTransposed();
  /// Memory for that.
  Value allocatePacked();
  void packInto(Value packed);
  scf::ForOp loopThatReuses(Value buffer);
  Value packOnce(scf::ForOp around, Value isFew);
  void takeFill();
  void transposeBlock(Value from, Value to, Value j, Value k);
  void copyElements(Value from, Value to, Value j0, Value j1, Value k0,
                    Value k1);
  void emitForRows(bool isFew);
  void emitBlocks(Value first, Value end, int64_t rows, Value from, Value to,
                  int64_t vectors, bool masked);
  void emitKernel(Value i, Value j, int64_t rows, int64_t vectors, Value mask);
  scf::ForOp loop(Value from, Value to, int64_t step) {
    return scf::ForOp::create(b, loc, from, to, index(step));
  }

  RewriterBase &b;
  linalg::LinalgOp op;
  Location loc;
  VectorUnit unit;
  SmallVectorImpl<linalg::LinalgOp> &remaining;
  Contraction t;
  /// What is computed in, and how many of it a register has.
  Type real;
  int64_t lanes = 0;
  Value m, n, k;
  /// B packed where a loop around uses it again.
  Value packed;
  /// The sums start from 0 rather than from what is in C.
  bool startsAtZero = false;
};

} // namespace

/// Strips a widening conversion.
static Value stripExtension(Value v) {
  if (auto ext = v.getDefiningOp<arith::ExtFOp>())
    return ext.getIn();
  return v;
}

LogicalResult ContractionScheduler::matchBody() {
  Block *body = op.getBlock();
  Value yielded = body->getTerminator()->getOperand(0);
  auto sum = yielded.getDefiningOp<arith::AddFOp>();
  if (!sum)
    return failure();
  Value accumulator = body->getArgument(2);
  Value other = sum.getLhs() == accumulator   ? sum.getRhs()
                : sum.getRhs() == accumulator ? sum.getLhs()
                                              : Value();
  auto product = other ? other.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!product)
    return failure();
  Value x = stripExtension(product.getLhs()),
        y = stripExtension(product.getRhs());
  Value a = body->getArgument(0), c = body->getArgument(1);
  return success((x == a && y == c) || (x == c && y == a));
}

LogicalResult ContractionScheduler::match() {
  if (op.getNumLoops() != 3 || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !op.hasPureBufferSemantics() ||
      failed(matchBody()))
    return failure();
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (AffineMap map : maps)
    if (map.getNumResults() != 2 || !map.isProjectedPermutation())
      return failure();
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  unsigned i = maps[2].getDimPosition(0), j = maps[2].getDimPosition(1);
  unsigned k = 3 - i - j;
  if (iterators[k] != utils::IteratorType::reduction ||
      !maps[0].isFunctionOfDim(i) || !maps[0].isFunctionOfDim(k) ||
      !maps[1].isFunctionOfDim(j) || !maps[1].isFunctionOfDim(k))
    return failure();
  t = {op.getDpsInputs()[0], op.getDpsInputs()[1], op.getDpsInits()[0],
       maps[0].getDimPosition(0) == k, maps[1].getDimPosition(0) == j};
  real = getElementTypeOrSelf(t.c);
  lanes = unit.lanesOf(real);
  for (Value v : {t.a, t.b, t.c}) {
    Type element = getElementTypeOrSelf(v);
    if (!isa<FloatType>(element) || getComputeType(element) != real)
      return failure();
  }
  return success(hasUnitInnerStride(t.c));
}

/// Up to so many rows a copy of the right operand, packed or widened, costs
/// more than it saves (measured, head dims 64 and 128).
static constexpr int64_t kFewRows = 16;

/// Whether there are never more than few rows.
bool ContractionScheduler::hasFewRows() {
  FailureOr<int64_t> bound = ValueBoundsConstraintSet::computeConstantBound(
      presburger::BoundType::UB, {t.c, 0},
      /*stopCondition=*/nullptr, /*closedUB=*/true);
  return succeeded(bound) && *bound <= kFewRows;
}

/// Registers in a row of a kernel of so many rows: as many accumulators as in
/// the full one, in equal parts of the row.
int64_t ContractionScheduler::chooseVectors(int64_t rows) {
  constexpr int64_t kMost = 8;
  std::optional<int64_t> columns = constantOf(n);
  if (rows == unit.rows || !columns)
    return unit.columns;
  int64_t all = *columns / lanes;
  int64_t vectors = std::min(unit.rows * unit.columns / rows, kMost);
  while (vectors > 1 && all % vectors != 0)
    --vectors;
  return vectors;
}

/// Into how many sums each accumulator is split: a sum of its own for each step
/// in flight where there are few accumulators.
int64_t ContractionScheduler::chooseSplit(int64_t rows, int64_t vectors) {
  constexpr int64_t kInFlight = 8;
  std::optional<int64_t> steps = constantOf(k);
  int64_t split = 1;
  while (steps && *steps % (2 * split) == 0 &&
         2 * split * rows * vectors <= kInFlight)
    split *= 2;
  return split;
}

/// How many steps an iteration has: those of a block that fills the registers
/// are alike.
int64_t ContractionScheduler::chooseUnroll(int64_t rows, int64_t vectors) {
  constexpr int64_t kSteps = 4;
  return rows * vectors == unit.rows * unit.columns ? kSteps : 1;
}

Value ContractionScheduler::allocate(ArrayRef<int64_t> shape,
                                     ValueRange dynamic) {
  return memref::AllocOp::create(b, loc, MemRefType::get(shape, real), dynamic,
                                 b.getI64IntegerAttr(64));
}

Value ContractionScheduler::widen(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<Value> dynamic;
  for (unsigned d = 0; d < 2; ++d)
    if (type.isDynamicDim(d))
      dynamic.push_back(dimOf(b, loc, buffer, d));
  Value copy = allocate(type.getShape(), dynamic);
  AffineMap maps[] = {b.getMultiDimIdentityMap(2), b.getMultiDimIdentityMap(2)};
  SmallVector<utils::IteratorType> iterators(2, utils::IteratorType::parallel);
  remaining.push_back(cast<linalg::LinalgOp>(
      linalg::GenericOp::create(
          b, loc, buffer, copy, maps, iterators,
          [&](OpBuilder &nested, Location l, ValueRange args) {
            linalg::YieldOp::create(nested, l,
                                    convertFloat(nested, l, args[0], real));
          })
          .getOperation()));
  return copy;
}

/// Elements of [j0,j1) x [k0,k1), one at a time.
void ContractionScheduler::copyElements(Value from, Value to, Value j0,
                                        Value j1, Value k0, Value k1) {
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp js = loop(j0, j1, 1);
  b.setInsertionPointToStart(js.getBody());
  scf::ForOp ks = loop(k0, k1, 1);
  b.setInsertionPointToStart(ks.getBody());
  Value j = js.getInductionVar(), kk = ks.getInductionVar();
  Value x = memref::LoadOp::create(b, loc, from, ValueRange{j, kk});
  x = convertFloat(b, loc, x, real);
  memref::StoreOp::create(b, loc, x, to, ValueRange{kk, j});
}

/// A square block of a register's width, transposed in registers: log2(width)
/// rounds, each interleaving row r with row r + width/2.
void ContractionScheduler::transposeBlock(Value from, Value to, Value j,
                                          Value kk) {
  int64_t width = lanes;
  auto source = VectorType::get(
      {width}, cast<MemRefType>(from.getType()).getElementType());
  auto type = VectorType::get({width}, real);
  SmallVector<Value> rows;
  for (int64_t r = 0; r < width; ++r) {
    Value row =
        vector::LoadOp::create(b, loc, source, from, ValueRange{add(j, r), kk});
    if (source != type)
      row = arith::ExtFOp::create(b, loc, type, row);
    rows.push_back(row);
  }
  SmallVector<int64_t> low, high;
  for (int64_t lane = 0; lane < width / 2; ++lane) {
    low.append({lane, width + lane});
    high.append({width / 2 + lane, width + width / 2 + lane});
  }
  for (int64_t round = 1; round < width; round *= 2) {
    SmallVector<Value> next;
    for (int64_t r = 0; r < width / 2; ++r) {
      Value x = rows[r], y = rows[r + width / 2];
      next.push_back(vector::ShuffleOp::create(b, loc, x, y, low));
      next.push_back(vector::ShuffleOp::create(b, loc, x, y, high));
    }
    rows = next;
  }
  for (int64_t r = 0; r < width; ++r)
    vector::StoreOp::create(b, loc, rows[r], to, ValueRange{add(kk, r), j});
}

Value ContractionScheduler::allocatePacked() {
  auto type = cast<MemRefType>(t.b.getType());
  SmallVector<Value> dynamic;
  for (unsigned d : {1, 0})
    if (type.isDynamicDim(d))
      dynamic.push_back(dimOf(b, loc, t.b, d));
  return allocate({type.getDimSize(1), type.getDimSize(0)}, dynamic);
}

void ContractionScheduler::packInto(Value to) {
  Value zero = index(0);
  if (!hasUnitInnerStride(t.b))
    return copyElements(t.b, to, zero, n, zero, k);
  Value n0 = roundDown(n, lanes), k0 = roundDown(k, lanes);
  {
    OpBuilder::InsertionGuard guard(b);
    scf::ForOp js = loop(zero, n0, lanes);
    b.setInsertionPointToStart(js.getBody());
    scf::ForOp ks = loop(zero, k0, lanes);
    b.setInsertionPointToStart(ks.getBody());
    transposeBlock(t.b, to, js.getInductionVar(), ks.getInductionVar());
  }
  copyElements(t.b, to, zero, n0, k0, k);
  copyElements(t.b, to, n0, n, zero, k);
}

Value ContractionScheduler::packTransposed() {
  Value fresh = allocatePacked();
  packInto(fresh);
  return fresh;
}

/// What a buffer is a view of: an allocation, or an argument of the function;
/// null where that is not known.
static Value rootOf(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  auto argument = dyn_cast<BlockArgument>(buffer);
  bool isKnown =
      argument ? isa<FunctionOpInterface>(argument.getOwner()->getParentOp())
               : isa<memref::AllocOp>(buffer.getDefiningOp());
  return isKnown ? buffer : Value();
}

/// Whether nothing in a loop writes to a buffer. Arguments that are written to
/// overlap no other.
static bool isReadOnlyIn(scf::ForOp loop, Value buffer) {
  Value root = rootOf(buffer);
  if (!root)
    return false;
  WalkResult walk = loop.getBody()->walk([&](Operation *op) {
    auto interface = dyn_cast<MemoryEffectOpInterface>(op);
    if (!interface)
      return op->hasTrait<OpTrait::HasRecursiveMemoryEffects>()
                 ? WalkResult::advance()
                 : WalkResult::interrupt();
    SmallVector<MemoryEffects::EffectInstance> effects;
    interface.getEffects(effects);
    for (MemoryEffects::EffectInstance &effect : effects) {
      if (!isa<MemoryEffects::Write>(effect.getEffect()))
        continue;
      Value written = effect.getValue() ? rootOf(effect.getValue()) : Value();
      if (!written || written == root)
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return !walk.wasInterrupted();
}

/// The loop around, directly, whose iterations all read the same in a buffer.
scf::ForOp ContractionScheduler::loopThatReuses(Value buffer) {
  auto around = dyn_cast<scf::ForOp>(op->getParentOp());
  if (!around || !around.isDefinedOutsideOfLoop(buffer) ||
      !isReadOnlyIn(around, buffer))
    return nullptr;
  return around;
}

/// B packed in the first iteration of a loop, unless that is the only one and
/// `isFew` holds.
Value ContractionScheduler::packOnce(scf::ForOp around, Value isFew) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(around);
  Value shared = allocatePacked();
  b.setInsertionPoint(op);
  Value at = around.getInductionVar();
  Value condition = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at,
                                          around.getLowerBound());
  if (isFew) {
    Value next = arith::AddIOp::create(b, loc, at, around.getStep());
    Value hasNext = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                          next, around.getUpperBound());
    // The first, and where it has few rows, not the last.
    condition = arith::AndIOp::create(
        b, loc, condition,
        arith::SelectOp::create(b, loc, isFew, hasNext, condition));
  }
  auto first = scf::IfOp::create(b, loc, condition);
  b.setInsertionPointToStart(first.thenBlock());
  packInto(shared);
  return shared;
}

/// Takes the fill with zeros of a fresh C, which the kernels start from.
void ContractionScheduler::takeFill() {
  if (!t.c.getDefiningOp<memref::AllocOp>() ||
      t.c.getParentBlock() != op->getBlock())
    return;
  linalg::FillOp fill;
  for (Operation *user : t.c.getUsers()) {
    Operation *here = op->getBlock()->findAncestorOpInBlock(*user);
    if (here == op || (here && op->isBeforeInBlock(here)))
      continue;
    auto before = dyn_cast<linalg::FillOp>(user);
    if (!before || fill || before.getOutputs()[0] != t.c)
      return;
    fill = before;
  }
  if (!fill || !matchPattern(fill.getInputs()[0], m_PosZeroFloat()))
    return;
  llvm::erase(remaining, cast<linalg::LinalgOp>(fill.getOperation()));
  b.eraseOp(fill);
  startsAtZero = true;
}

/// rows x vectors accumulators, carried over all of k.
void ContractionScheduler::emitKernel(Value i, Value j, int64_t rows,
                                      int64_t vectors, Value mask) {
  auto type = VectorType::get({lanes}, real);
  auto load = [&](Value buffer, ValueRange at) -> Value {
    Type element = cast<MemRefType>(buffer.getType()).getElementType();
    auto stored = VectorType::get({lanes}, element);
    Value x;
    if (mask) {
      Value nothing = arith::ConstantOp::create(b, loc, b.getZeroAttr(stored));
      x = vector::MaskedLoadOp::create(b, loc, stored, buffer, at, mask,
                                       nothing);
    } else {
      x = vector::LoadOp::create(b, loc, stored, buffer, at);
    }
    return element == real ? x : arith::ExtFOp::create(b, loc, type, x);
  };
  int64_t split = chooseSplit(rows, vectors);
  SmallVector<Value> is, js, accumulators;
  for (int64_t r = 0; r < rows; ++r)
    is.push_back(add(i, r));
  for (int64_t v = 0; v < vectors; ++v)
    js.push_back(add(j, v * lanes));
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  for (Value row : is)
    for (Value column : js)
      accumulators.push_back(startsAtZero ? zero : load(t.c, {row, column}));
  accumulators.append(rows * vectors * (split - 1), zero);
  auto emitSteps = [&](Value from, Value to, int64_t count) {
    auto steps = scf::ForOp::create(
        b, loc, from, to, index(count), accumulators,
        [&](OpBuilder &, Location, Value first, ValueRange carried) {
          SmallVector<Value> next(carried);
          for (int64_t s = 0; s < count; ++s) {
            Value kk = add(first, s);
            SmallVector<Value> columns;
            for (Value column : js)
              columns.push_back(load(t.b, {kk, column}));
            auto *sum = next.begin() + s % split * rows * vectors;
            for (int64_t r = 0; r < rows; ++r) {
              Value at[] = {is[r], kk};
              if (t.aTransposed)
                std::swap(at[0], at[1]);
              Value x = memref::LoadOp::create(b, loc, t.a, at);
              Value splat = vector::BroadcastOp::create(b, loc, type, x);
              for (Value column : columns) {
                *sum = vector::FMAOp::create(b, loc, splat, column, *sum);
                ++sum;
              }
            }
          }
          scf::YieldOp::create(b, loc, next);
        });
    accumulators.assign(steps.getResults().begin(), steps.getResults().end());
  };
  // Several steps share what computes addresses, which takes the multipliers'
  // ports.
  int64_t unrolled = std::max(split, chooseUnroll(rows, vectors));
  Value whole = roundDown(k, unrolled);
  emitSteps(index(0), whole, unrolled);
  std::optional<int64_t> constant = constantOf(k);
  if (!constant || *constant % unrolled != 0)
    emitSteps(whole, k, 1);
  for (size_t size = accumulators.size() / 2; size >= size_t(rows * vectors);
       size /= 2)
    for (size_t x = 0; x < size; ++x)
      accumulators[x] = arith::AddFOp::create(b, loc, accumulators[x],
                                              accumulators[x + size]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Value result = accumulators[r * vectors + v];
      Value at[] = {is[r], js[v]};
      if (mask)
        vector::MaskedStoreOp::create(b, loc, t.c, at, mask, result);
      else
        vector::StoreOp::create(b, loc, result, t.c, at);
    }
}

/// The rows [first,end), `rows` at a time, of the columns [from,to).
void ContractionScheduler::emitBlocks(Value first, Value end, int64_t rows,
                                      Value from, Value to, int64_t vectors,
                                      bool masked) {
  std::optional<int64_t> x = constantOf(from), y = constantOf(to);
  if (x && y && *x >= *y)
    return;
  OpBuilder::InsertionGuard guard(b);
  scf::ForOp columns = loop(from, to, vectors * lanes);
  b.setInsertionPointToStart(columns.getBody());
  Value j = columns.getInductionVar(), mask;
  if (masked) {
    Value rest = arith::SubIOp::create(b, loc, to, j);
    mask = vector::CreateMaskOp::create(
        b, loc, VectorType::get({lanes}, b.getI1Type()), rest);
  }
  scf::ForOp blocks = loop(first, end, rows);
  b.setInsertionPointToStart(blocks.getBody());
  emitKernel(blocks.getInductionVar(), j, rows, vectors, mask);
}

/// Whether the strides let few rows use the right operand as it lies.
bool ContractionScheduler::readsInPlace() {
  if (!hasUnitInnerStride(t.b))
    return false;
  return !t.bTransposed || (!t.aTransposed && hasUnitInnerStride(t.a));
}

/// With the right operand as it lies for few rows, else in the form that many
/// rows read fastest.
void ContractionScheduler::emitForRows(bool isFew) {
  Value from = t.a, with = t.b;
  if (isFew && t.bTransposed && readsInPlace()) {
    if (startsAtZero) {
      Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(real));
      auto fill = linalg::FillOp::create(b, loc, zero, t.c);
      remaining.push_back(cast<linalg::LinalgOp>(fill.getOperation()));
    }
    return emitDots(b, loc, t.a, t.b, t.c, unit);
  }
  if (!isWide(t.a))
    t.a = widen(t.a);
  if (t.bTransposed)
    t.b = packed ? packed : packTransposed();
  else if (!readsInPlace() || (!isWide(t.b) && !isFew))
    t.b = widen(t.b);
  // What is left of them one by one: beside a vector from memory for each
  // product that takes little longer, and each number of rows more would be a
  // kernel more to compile. Values to be widened are shared by some rows.
  constexpr int64_t kSharing = 4;
  Value done = index(0);
  for (int64_t rows : {isWide(t.b) ? unit.rows : kSharing, int64_t(1)}) {
    Value until = roundDown(m, rows);
    std::optional<int64_t> x = constantOf(done), y = constantOf(until);
    if (x && y && *x >= *y)
      continue;
    int64_t vectors = chooseVectors(rows);
    Value whole = roundDown(n, vectors * lanes);
    emitBlocks(done, until, rows, index(0), whole, vectors, /*masked=*/false);
    emitBlocks(done, until, rows, whole, n, 1, /*masked=*/true);
    done = until;
  }
  t.a = from;
  t.b = with;
}

void ContractionScheduler::emit() {
  m = dimOf(b, loc, t.c, 0);
  n = dimOf(b, loc, t.c, 1);
  k = dimOf(b, loc, t.a, t.aTransposed ? 0 : 1);
  std::optional<int64_t> constant = constantOf(m);
  bool isFew = constant ? *constant <= kFewRows : hasFewRows();
  takeFill();
  // Whether the number of rows makes a difference.
  bool isCopied = t.bTransposed || !isWide(t.b);
  bool isKnown = constant || isFew || !isCopied || !readsInPlace();
  Value choice;
  if (!isKnown)
    choice = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, m,
                                   index(kFewRows));
  if (t.bTransposed && !(isFew && readsInPlace()))
    if (scf::ForOp around = loopThatReuses(t.b))
      packed = packOnce(around, choice);
  if (isKnown)
    return emitForRows(isFew);
  // One program for any number of rows.
  auto branch = scf::IfOp::create(b, loc, choice, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  emitForRows(/*isFew=*/true);
  b.setInsertionPointToStart(branch.elseBlock());
  emitForRows(/*isFew=*/false);
}

LogicalResult
fa::scheduleContraction(RewriterBase &rewriter, linalg::LinalgOp op,
                        const VectorUnit &unit,
                        SmallVectorImpl<linalg::LinalgOp> &remaining) {
  ContractionScheduler scheduler(rewriter, op, unit, remaining);
  if (failed(scheduler.match()))
    return failure();
  scheduler.emit();
  rewriter.eraseOp(op);
  return success();
}
