// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a function with an fa.attention, runs it on generated inputs and
// judges the result. fa-run is a thin main over this.

#ifndef FA_RUN_RUN_H
#define FA_RUN_RUN_H

#include "fa/Pipelines/Pipelines.h"
#include "fa/Run/Compare.h"
#include "fa/Target/CPU/TensorRef.h"

#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace mlir {
class ModuleOp;
} // namespace mlir

namespace fa {
namespace run {

struct Options {
  /// The function; empty: the only public one.
  std::string function;
  /// Where the last stage runs: `cpu`, or an NVIDIA target, whose kernel then
  /// runs on device 0. The stages before the last run on the CPU.
  std::string target = "cpu";
  bool check = false;
  /// The function's gradient in its place. What the forward gives it is
  /// computed in float64, and the gradients of its results are normal.
  bool backward = false;
  bool eachStage = false;
  bool io = false;
  /// 0: all that the machine has.
  unsigned threads = 0;
  /// Bits of the vectors that the code uses, 0: what this machine has.
  unsigned vectorBits = 0;
  /// How far code of the CPU is optimized, 0 to 3.
  unsigned optimize = 3;
  /// Sizes of dynamic dimensions: B, Sq, Sk of attention's operands, or
  /// argN.D for dimension D of argument N.
  std::map<std::string, int64_t> shape;
  uint64_t seed = 0;
  /// telling, normal, uniform, large (deviation 10) or zero. The mean of many
  /// normal values is near 0 and hides mistakes; `telling` ones are as
  /// `telling` in test/python/naive.py makes them: of the values every second
  /// column has mean 1, the others are 3 for every eighth key, which scores 2
  /// more, and -3 for the rest, and the last row sees little but some eight
  /// keys.
  std::string data = "telling";
  /// bhsd (contiguous), bshd (heads inside of the length) or strided (gaps in
  /// every dimension).
  std::string layout = "bhsd";
  /// 0: once on the CPU, 10 samples on a GPU.
  unsigned repeat = 0;
  /// The passes to run before execution.
  std::vector<Stage> stages;
};

/// What happened to one stage.
struct Result {
  std::string stage;
  /// Best of the repetitions; on a GPU their median.
  double seconds = 0;
  /// Without regard to the mask: 2 B Hq Sq Sk (D + Dv) / time.
  double gigaflops = 0;
  /// -1: not known.
  int64_t temporaryBytes = 0;
  bool checked = false, passed = true;
  double error = 0, limit = 0;
  std::optional<double> lseError;
  /// From the IO model: bytes read, written, temporary; -1 where unknown.
  std::optional<std::vector<int64_t>> io;
  /// Where and how it differs; empty if it doesn't.
  std::string difference;
  /// What it ran on, for a kernel; else empty.
  std::string note;
};

/// Splits "a,b{x=1,y=2},c" into stages. The stages of a target come from
/// `fa::getStages`.
llvm::Expected<std::vector<Stage>> parseStages(const std::string &text);
/// "B=2,Sq=333" as a map.
llvm::Expected<std::map<std::string, int64_t>>
parseShape(const std::string &text);

/// Runs the module's function as the options say. One result a stage executed;
/// with `check` each is judged against a float64 reference.
llvm::Expected<std::vector<Result>> run(mlir::ModuleOp module,
                                        const Options &options);

/// Prints the results as a table and, of the first that is wrong, where.
/// Returns whether all are right.
bool report(llvm::raw_ostream &os, const std::vector<Result> &results,
            const Options &options);

} // namespace run
} // namespace fa

#endif // FA_RUN_RUN_H
