// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random changes of when and by whom a schedule does something, and of what it
// loads: each is refused by hopper-verify (or a verifier before it), or
// computes what the schedule computed, in the interpreter and at all lengths.
//
//   fa-hopper-mutants FILE.mlir... --lengths=200x330,64x0 --mutants=1000
//   fa-hopper-mutants FILE.mlir... --mutants=20000 --store=CORPUS --each=3
//   fa-hopper-mutants FILE.mlir... --corpus=CORPUS
//
// The second stores a few mutants of each outcome of each program, and of each
// kind of change: a line `PROGRAM SEED OUTCOME CHANGE`, where a
// program is called as its file. The third runs those of the files that are
// given. What a seed changes depends on the schedule: after a change of
// fa-schedule-hopper a corpus is another sample, no less right, and is to be
// stored anew.
//
// A file has one function with roles, as fa-schedule-hopper leaves it; lengths
// are of the first argument's first dynamic size and of all others. What
// products multiply and what is computed of tiles stays as it is: a program
// that computes something else is not wrong.

#include "fa/Dialect/Hopper/Transforms/Passes.h"
#include "fa/Pipelines/Registration.h"
#include "fa/Run/Compare.h"
#include "fa/Run/Interpreter.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/LineIterator.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cstring>
#include <random>

using namespace mlir;
using namespace fa::hopper;
using namespace fa::run;
using fa::cpu::DType;
using fa::cpu::TensorRef;
namespace cl = llvm::cl;

namespace {

//===----------------------------------------------------------------------===//
// Changes
//===----------------------------------------------------------------------===//

class Mutator {
public:
  Mutator(func::FuncOp function, uint64_t seed)
      : function(function), random(seed) {}
  /// Changes something; says what, or nothing where nothing was found.
  std::string change();

private:
  uint64_t draw(uint64_t count) { return random() % count; }
  template <typename Range> auto pick(const Range &range) {
    return range[draw(range.size())];
  }
  /// An operation that a change is for.
  Operation *find(llvm::function_ref<bool(Operation *)> is);
  /// Another value of the same type that is defined before an operation.
  Value another(Operation *at, Value v);
  Value negated(Operation *at, Value condition);
  Block *anyBlock(Operation *role);

  bool erase();
  bool repeat();
  bool moveInBlock();
  bool moveToBlock();
  bool pending();
  bool conditionOfRelease();
  bool conditionOfBranch();
  bool polled();
  bool predicate();
  bool bound();
  bool coordinate();
  bool slotOfRelease();
  bool ringOf();
  bool stages();
  bool tileOfLoad();

  func::FuncOp function;
  std::mt19937_64 random;
};

} // namespace

/// What gives nothing that others use.
static bool isFree(Operation *op) {
  return isa<LoadOp, ShareOp, PollOp, ReleaseOp, TurnBeginOp, TurnEndOp>(op);
}

static bool holdsSteps(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return isStep(inner) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

static Operation *roleOf(Operation *op) {
  while (op && !isa<ProducerOp, ConsumersOp>(op))
    op = op->getParentOp();
  return op;
}

Operation *Mutator::find(llvm::function_ref<bool(Operation *)> is) {
  SmallVector<Operation *> found;
  function.walk([&](Operation *op) {
    if (roleOf(op) && is(op))
      found.push_back(op);
  });
  return found.empty() ? nullptr : pick(found);
}

Value Mutator::another(Operation *at, Value v) {
  SmallVector<Value> found;
  auto consider = [&](Value other) {
    if (other != v && other.getType() == v.getType())
      found.push_back(other);
  };
  for (Operation *op = at; op && op != function; op = op->getParentOp()) {
    for (Operation *before = op->getPrevNode(); before;
         before = before->getPrevNode())
      llvm::for_each(before->getResults(), consider);
    llvm::for_each(op->getBlock()->getArguments(), consider);
  }
  return found.empty() ? Value() : pick(found);
}

Value Mutator::negated(Operation *at, Value condition) {
  OpBuilder b(at);
  Value yes = arith::ConstantOp::create(b, at->getLoc(), b.getBoolAttr(true));
  return arith::XOrIOp::create(b, at->getLoc(), condition, yes);
}

Block *Mutator::anyBlock(Operation *role) {
  SmallVector<Block *> blocks;
  role->walk([&](Block *block) {
    if (isa<scf::ForOp, scf::IfOp, ProducerOp, ConsumersOp>(
            block->getParentOp()))
      blocks.push_back(block);
  });
  return pick(blocks);
}

bool Mutator::erase() {
  Operation *op = find(isFree);
  if (op)
    op->erase();
  return op;
}

bool Mutator::repeat() {
  Operation *op = find(isFree);
  if (!op)
    return false;
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  for (uint64_t n = draw(6);
       n && b.getInsertionPoint() != op->getBlock()->end(); --n)
    b.setInsertionPoint(op->getBlock(), std::next(b.getInsertionPoint()));
  b.clone(*op);
  return true;
}

bool Mutator::moveInBlock() {
  Operation *op = find(isStep);
  if (!op)
    return false;
  auto all = llvm::make_pointer_range(*op->getBlock());
  SmallVector<Operation *> ops(all.begin(), all.end());
  size_t at = llvm::find(ops, op) - ops.begin();
  // Near: what is far is mostly no program any more.
  size_t to = at + draw(17);
  if (to < 8 || to - 8 >= ops.size() || to - 8 == at)
    return false;
  op->moveBefore(ops[to - 8]);
  return true;
}

bool Mutator::moveToBlock() {
  Operation *op = find(isFree);
  if (!op)
    return false;
  Block *block = anyBlock(roleOf(op));
  if (block == op->getBlock())
    return false;
  bool first = draw(2);
  op->remove();
  if (first || !block->mightHaveTerminator())
    block->getOperations().insert(first ? block->begin() : block->end(), op);
  else
    block->getOperations().insert(Block::iterator(block->getTerminator()), op);
  return true;
}

bool Mutator::pending() {
  auto wait = cast_or_null<WaitGroupOp>(find(llvm::IsaPred<WaitGroupOp>));
  if (wait)
    wait.setPending(draw(4));
  return wait;
}

bool Mutator::conditionOfRelease() {
  auto release = cast_or_null<ReleaseOp>(find(llvm::IsaPred<ReleaseOp>));
  if (!release)
    return false;
  Value old = release.getCondition();
  Value probe = old;
  if (!probe) {
    OpBuilder b(release);
    probe =
        arith::ConstantOp::create(b, release.getLoc(), b.getBoolAttr(false));
  }
  Value made = draw(3) ? another(release, probe) : negated(release, probe);
  if (old && !draw(3))
    made = {};
  else if (!made)
    return false;
  release.getConditionMutable().clear();
  if (made)
    release.getConditionMutable().append(made);
  return true;
}

bool Mutator::conditionOfBranch() {
  auto branch = cast_or_null<scf::IfOp>(find([](Operation *op) {
    return isa<scf::IfOp>(op) && holdsSteps(op) && !op->getNumResults();
  }));
  if (!branch)
    return false;
  Value made = draw(2) ? another(branch, branch.getCondition())
                       : negated(branch, branch.getCondition());
  if (made)
    branch.getConditionMutable().assign(made);
  return made != nullptr;
}

bool Mutator::polled() {
  auto acquire = cast_or_null<AcquireOp>(find(llvm::IsaPred<AcquireOp>));
  if (acquire)
    acquire.setPolled(!acquire.getPolled());
  return acquire;
}

/// A comparison that decides nothing but steps.
bool Mutator::predicate() {
  auto compare = cast_or_null<arith::CmpIOp>(find([](Operation *op) {
    return isa<arith::CmpIOp>(op) && !op->use_empty() &&
           llvm::all_of(op->getUsers(), [](Operation *user) {
             return isa<ReleaseOp>(user) ||
                    (isa<scf::IfOp>(user) && holdsSteps(user) &&
                     !user->getNumResults());
           });
  }));
  if (compare)
    compare.setPredicate(
        *arith::symbolizeCmpIPredicate(static_cast<uint64_t>(draw(10))));
  return compare;
}

bool Mutator::bound() {
  Operation *loop =
      find([](Operation *op) { return isa<scf::ForOp>(op) && holdsSteps(op); });
  if (!loop)
    return false;
  OpOperand &operand = loop->getOpOperand(draw(3));
  Value made = another(loop, operand.get());
  if (!made || draw(2)) {
    OpBuilder b(loop);
    int64_t by[] = {1, -1, 64, -64, 128, -128};
    Value n = arith::ConstantIndexOp::create(b, loop->getLoc(), by[draw(6)]);
    made = arith::AddIOp::create(b, loop->getLoc(), operand.get(), n);
  }
  operand.set(made);
  return true;
}

/// Where the producer loads from.
bool Mutator::coordinate() {
  Operation *op = find([](Operation *op) {
    return isa<ProducerOp>(roleOf(op)) &&
           isa<tensor::ExtractSliceOp, affine::AffineApplyOp,
               affine::AffineMinOp, affine::AffineMaxOp, arith::AddIOp,
               arith::SubIOp, arith::MulIOp, arith::DivUIOp>(op);
  });
  if (!op)
    return false;
  SmallVector<OpOperand *> operands;
  for (OpOperand &operand : op->getOpOperands())
    if (operand.get().getType().isIndex())
      operands.push_back(&operand);
  if (operands.empty())
    return false;
  OpOperand *operand = pick(operands);
  Value made = another(op, operand->get());
  if (made)
    operand->set(made);
  return made != nullptr;
}

bool Mutator::slotOfRelease() {
  auto release = cast_or_null<ReleaseOp>(find(llvm::IsaPred<ReleaseOp>));
  Value made = release ? another(release, release.getSlot()) : Value();
  if (made)
    release.getSlotMutable().assign(made);
  return made != nullptr;
}

bool Mutator::ringOf() {
  Operation *op = find(llvm::IsaPred<LoadOp, ShareOp, PollOp, AcquireOp>);
  if (!op)
    return false;
  for (OpOperand &operand : op->getOpOperands())
    if (isa<RingType>(operand.get().getType()))
      if (Value made = another(roleOf(op), operand.get())) {
        operand.set(made);
        return true;
      }
  return false;
}

bool Mutator::stages() {
  SmallVector<RingOp> rings;
  function.walk([&](RingOp ring) { rings.push_back(ring); });
  RingOp ring = pick(rings);
  RingType type = ring.getRing().getType();
  unsigned stages = type.getStages() + draw(2) * 2 - 1;
  if (!stages)
    return false;
  ring.getRing().setType(
      RingType::get(type.getContext(), stages, type.getTile()));
  return true;
}

bool Mutator::tileOfLoad() {
  auto load = cast_or_null<LoadOp>(find(llvm::IsaPred<LoadOp>));
  Value made = load ? another(load, load.getTile()) : Value();
  if (made)
    load.getTileMutable().assign(made);
  return made != nullptr;
}

std::string Mutator::change() {
  static const std::pair<const char *, bool (Mutator::*)()> changes[] = {
      {"erase", &Mutator::erase},
      {"repeat", &Mutator::repeat},
      {"move", &Mutator::moveInBlock},
      {"move", &Mutator::moveInBlock},
      {"move to a block", &Mutator::moveToBlock},
      {"pending", &Mutator::pending},
      {"condition", &Mutator::conditionOfRelease},
      {"branch", &Mutator::conditionOfBranch},
      {"polled", &Mutator::polled},
      {"predicate", &Mutator::predicate},
      {"bound", &Mutator::bound},
      {"coordinate", &Mutator::coordinate},
      {"slot", &Mutator::slotOfRelease},
      {"ring", &Mutator::ringOf},
      {"stages", &Mutator::stages},
      {"tile", &Mutator::tileOfLoad}};
  for (int tries = 0; tries < 20; ++tries) {
    auto [name, make] = changes[draw(std::size(changes))];
    if ((this->*make)())
      return name;
  }
  return "nothing";
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

namespace {

using Lengths = std::pair<int64_t, int64_t>;
using Bytes = std::vector<std::vector<char>>;

/// A program, with what it computes.
class Program {
public:
  Program(std::string name, OwningOpRef<ModuleOp> module,
          ArrayRef<Lengths> lengths)
      : name(std::move(name)), module(std::move(module)), lengths(lengths) {}
  /// Computes what mutants are compared with.
  llvm::Error prepare();
  OwningOpRef<ModuleOp> copy() {
    return OwningOpRef<ModuleOp>(module->clone());
  }
  /// Nothing where a mutant computes the same; else how it differs.
  std::string compare(ModuleOp mutant, uint64_t seed);

  const std::string name;

private:
  llvm::Expected<Bytes> run(ModuleOp program, Lengths lengths, uint64_t seed,
                            bool adversarial);

  OwningOpRef<ModuleOp> module;
  SmallVector<Lengths> lengths;
  std::vector<Bytes> expected;
};

} // namespace

static func::FuncOp functionOf(ModuleOp module) {
  return *module.getOps<func::FuncOp>().begin();
}

llvm::Expected<Bytes> Program::run(ModuleOp program, Lengths lengths,
                                   uint64_t seed, bool adversarial) {
  func::FuncOp function = functionOf(program);
  std::vector<std::vector<char>> memory;
  auto allocate = [&](DType dtype, std::vector<int64_t> shape) {
    TensorRef t = TensorRef::contiguous(nullptr, dtype, std::move(shape));
    memory.emplace_back(t.size() * fa::cpu::sizeOf(dtype));
    t.data = memory.back().data();
    return t;
  };
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<TensorRef> inputs;
  for (auto [n, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor ||
        !(tensor.getElementType().isBF16() || tensor.getElementType().isF16() ||
          tensor.getElementType().isF32()))
      return llvm::createStringError(
          "expected arguments that are tensors of f16, bf16 or f32");
    std::vector<int64_t> shape = tensor.getShape();
    bool isFirst = n == 0;
    for (int64_t &size : shape)
      if (ShapedType::isDynamic(size)) {
        size = isFirst ? lengths.first : lengths.second;
        isFirst = false;
      }
    DType dtype = tensor.getElementType().isF32()   ? DType::F32
                  : tensor.getElementType().isF16() ? DType::F16
                                                    : DType::BF16;
    inputs.push_back(allocate(dtype, shape));
    for (int64_t i = 0; i < inputs.back().size(); ++i)
      fa::run::storeElement(inputs.back(), i, normal(random));
  }
  InterpreterOptions options;
  options.seed = seed;
  options.adversarial = adversarial;
  options.rare = InterpreterOptions::Rare::Never;
  size_t before = memory.size();
  auto results = interpret(function, inputs, allocate, options);
  if (!results)
    return results.takeError();
  return Bytes(memory.begin() + before, memory.end());
}

llvm::Error Program::prepare() {
  for (Lengths l : lengths) {
    auto result = run(*module, l, 0, false);
    if (!result)
      return result.takeError();
    expected.push_back(std::move(*result));
  }
  return llvm::Error::success();
}

std::string Program::compare(ModuleOp mutant, uint64_t seed) {
  for (auto [l, wanted] : llvm::zip(lengths, expected)) {
    std::string at = std::to_string(l.first) + "x" + std::to_string(l.second);
    auto result = run(mutant, l, seed, true);
    if (!result)
      return at + ": " + llvm::toString(result.takeError());
    if (*result != wanted)
      return at + ": another result";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

namespace {

enum class Outcome { Invalid, Refused, Same, Wrong };

/// A mutant that was judged.
struct Trial {
  std::string changes;
  Outcome outcome;
  /// What refuses it, or how it differs.
  std::string message;
};

struct Counts {
  unsigned tried = 0, invalid = 0, refused = 0, same = 0, wrong = 0, strict = 0;
  /// Those whose outcome is the one that the corpus has.
  unsigned asStored = 0;
};

} // namespace

static StringRef nameOf(Outcome outcome) {
  switch (outcome) {
  case Outcome::Invalid:
    return "invalid";
  case Outcome::Refused:
    return "refused";
  case Outcome::Same:
    return "same";
  case Outcome::Wrong:
    return "wrong";
  }
  llvm_unreachable("an outcome");
}

static llvm::Expected<SmallVector<Lengths>> parseLengths(StringRef text) {
  SmallVector<Lengths> lengths;
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : parts) {
    auto [rows, keys] = part.split('x');
    Lengths l;
    if (rows.getAsInteger(10, l.first) || keys.getAsInteger(10, l.second))
      return llvm::createStringError("expected lengths as 200x330, got '" +
                                     part.str() + "'");
    lengths.push_back(l);
  }
  return lengths;
}

static bool isRefused(ModuleOp module) {
  return module
      .walk([](scf::ForallOp forall) {
        return failed(verifySchedule(forall)) ? WalkResult::interrupt()
                                              : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Makes a mutant by its number and judges it.
static Trial tryMutant(Program &program, uint64_t seed, bool tryRefused,
                       Counts &counts) {
  OwningOpRef<ModuleOp> mutant = program.copy();
  Trial trial;
  {
    std::mt19937_64 random(seed);
    Mutator mutator(functionOf(*mutant), random());
    // Mostly one.
    for (unsigned n = 1 + random() % 4 / 2 * (random() % 3); n; --n)
      trial.changes += (trial.changes.empty() ? "" : ", ") + mutator.change();
  }
  ScopedDiagnosticHandler handler(mutant->getContext(),
                                  [&](Diagnostic &diagnostic) {
                                    if (trial.message.empty())
                                      trial.message = diagnostic.str();
                                    return success();
                                  });
  ++counts.tried;
  if (failed(verify(*mutant))) {
    ++counts.invalid;
    trial.outcome = Outcome::Invalid;
    return trial;
  }
  bool refused = isRefused(*mutant);
  counts.refused += refused;
  trial.outcome = Outcome::Refused;
  if (refused && !tryRefused)
    return trial;
  std::string difference = program.compare(*mutant, seed);
  if (refused) {
    counts.strict += difference.empty();
    if (difference.empty())
      llvm::outs() << "mutant " << seed << " of " << program.name << " ("
                   << trial.changes
                   << ") computes the same and is refused: " << trial.message
                   << "\n";
    return trial;
  }
  ++(difference.empty() ? counts.same : counts.wrong);
  trial.outcome = difference.empty() ? Outcome::Same : Outcome::Wrong;
  if (!difference.empty()) {
    llvm::outs() << "mutant " << seed << " of " << program.name << " ("
                 << trial.changes << ") is accepted, and differs at "
                 << difference << "\n"
                 << *mutant << "\n";
  }
  return trial;
}

/// A message without its numbers and operands.
static std::string general(StringRef message) {
  std::string result;
  for (size_t i = 0; i < message.size(); ++i) {
    bool isNumber = llvm::isDigit(message[i]);
    if (isNumber || message[i] == '%')
      while (i + 1 < message.size() &&
             (llvm::isDigit(message[i + 1]) ||
              (!isNumber && llvm::isAlnum(message[i + 1]))))
        ++i;
    result += isNumber ? 'N' : message[i] == '\n' ? ' ' : message[i];
  }
  return result;
}

namespace {

/// The mutants that a corpus keeps: a few of each message, of each program and
/// kind of change.
class Corpus {
public:
  explicit Corpus(unsigned each) : each(each) {}
  void consider(StringRef program, uint64_t seed, const Trial &trial);
  llvm::Error write(StringRef path) const;

private:
  unsigned each;
  llvm::StringMap<unsigned> counts;
  std::vector<std::string> lines;
};

} // namespace

void Corpus::consider(StringRef program, uint64_t seed, const Trial &trial) {
  std::string outcome = (program + " " + nameOf(trial.outcome)).str();
  std::string message = general(trial.message);
  bool isNew = counts[outcome + ": " + message]++ < each &&
               trial.outcome != Outcome::Same;
  // What several changes do says nothing of one of them.
  if (!StringRef(trial.changes).contains(','))
    isNew |= counts[outcome + " " + trial.changes]++ < each;
  if (isNew)
    lines.push_back((program + " " + Twine(seed) + " " + nameOf(trial.outcome) +
                     " " + trial.changes)
                        .str());
}

llvm::Error Corpus::write(StringRef path) const {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (error)
    return llvm::createFileError(path, error);
  for (const std::string &line : lines)
    out << line << "\n";
  return llvm::Error::success();
}

/// Runs the mutants of a corpus that are of these programs.
static llvm::Error runCorpus(StringRef path,
                             ArrayRef<std::unique_ptr<Program>> programs,
                             bool tryRefused, Counts &counts) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!file)
    return llvm::createFileError(path, file.getError());
  for (llvm::line_iterator line(**file, true, '#'); !line.is_at_end(); ++line) {
    auto [name, rest] = line->split(' ');
    auto [number, rest2] = rest.split(' ');
    StringRef outcome = rest2.split(' ').first;
    uint64_t seed = 0;
    if (number.getAsInteger(10, seed) || outcome.empty())
      return llvm::createStringError(path +
                                     ": expected 'PROGRAM SEED OUTCOME', got "
                                     "'" +
                                     *line + "'");
    auto program = llvm::find_if(
        programs, [&, name = name](auto &p) { return p->name == name; });
    if (program == programs.end())
      continue;
    Trial trial = tryMutant(**program, seed, tryRefused, counts);
    counts.asStored += nameOf(trial.outcome) == outcome;
  }
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::list<std::string> files(cl::Positional, cl::desc("FILE..."),
                              cl::OneOrMore);
  cl::opt<std::string> lengthsText("lengths",
                                   cl::init("200x330,130x64,70x0,300x512"),
                                   cl::desc("rows x keys, ..."));
  cl::opt<unsigned> mutants("mutants", cl::init(1000),
                            cl::desc("how many, of all files together"));
  cl::opt<uint64_t> seed("seed", cl::init(1), cl::desc("of the first mutant"));
  cl::opt<bool> tryRefused("try-refused",
                           cl::desc("run those that are refused, too"));
  cl::opt<bool> progress("progress", cl::desc("say how far it is"));
  cl::opt<std::string> corpusFile("corpus", cl::desc("run stored mutants"));
  cl::opt<std::string> storeFile("store",
                                 cl::desc("store a choice of mutants"));
  cl::opt<unsigned> each("each", cl::init(3),
                         cl::desc("how many of a kind are stored"));
  cl::ParseCommandLineOptions(argc, argv);
  auto fail = [](const Twine &message) {
    llvm::errs() << "fa-hopper-mutants: " << message << "\n";
    return 2;
  };
  auto lengths = parseLengths(lengthsText);
  if (!lengths)
    return fail(llvm::toString(lengths.takeError()));
  DialectRegistry registry;
  fa::registerDialects(registry);
  MLIRContext context(registry);
  std::vector<std::unique_ptr<Program>> programs;
  for (const std::string &file : files) {
    auto module = parseSourceFile<ModuleOp>(file, &context);
    if (!module)
      return 2;
    programs.push_back(std::make_unique<Program>(
        llvm::sys::path::stem(file).str(), std::move(module), *lengths));
    if (llvm::Error error = programs.back()->prepare())
      return fail(file + ": " + llvm::toString(std::move(error)));
  }
  Counts counts;
  if (!corpusFile.empty()) {
    if (llvm::Error error = runCorpus(corpusFile, programs, tryRefused, counts))
      return fail(llvm::toString(std::move(error)));
  } else {
    Corpus corpus(each);
    for (unsigned n = 0; n < mutants; ++n) {
      Program &program = *programs[n % programs.size()];
      Trial trial = tryMutant(program, seed + n, tryRefused, counts);
      corpus.consider(program.name, seed + n, trial);
      if (progress && n % 500 == 499)
        llvm::errs() << n + 1 << " of " << mutants << "\n";
    }
    if (!storeFile.empty())
      if (llvm::Error error = corpus.write(storeFile))
        return fail(llvm::toString(std::move(error)));
  }
  llvm::outs() << counts.tried << " mutants of " << programs.size()
               << " programs: " << counts.invalid << " refused by verifiers, "
               << counts.refused << " by hopper-verify"
               << (tryRefused ? " (of which " + std::to_string(counts.strict) +
                                    " compute the same)"
                              : "")
               << ", " << counts.same << " compute the same, " << counts.wrong
               << " wrong";
  if (!corpusFile.empty())
    llvm::outs() << "; " << counts.asStored << " as they were stored";
  llvm::outs() << "\n";
  return counts.wrong ? 1 : 0;
}
