// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an image's header says: the tensors, temporary buffers and launches of
// a program, as comment lines in front of the PTX text.
//
//   //!fa.program version=1 name=attention target=sm_80
//   //!fa.arg index=0 name=query role=in type=bf16 shape=?x12x?x64
//   //!fa.temp index=4 type=f32 shape=a0.d0,12,a0.d2
//   //!fa.same a0.d0=a1.d0
//   //!fa.require a0.s3=1
//   //!fa.require a0.align=16
//   //!fa.map index=0 tensor=0 dim=2 rows=128
//   //!fa.launch kernel=k block=128 smem=49152 grid=a0.d2/128*12 args=0,1,4
//     maps=0 waves=1
//   //!fa.launch kernel=l block=512 smem=64 grid=a0.d2/128 args=0,5 prepares=0
//   //!fa.end
//
// Growth: an unknown key is ignored, so a key that must not be ignored raises
// the version; an unknown directive or condition is an error; and an image of
// a higher version is refused as a whole. The compiler writes the lowest
// version that says all it needs.

#ifndef FA_RUNTIME_LIB_IMAGE_H
#define FA_RUNTIME_LIB_IMAGE_H

#include "fa-runtime/fa_runtime.h"

#include <string>
#include <string_view>
#include <vector>

namespace fa::rt {

/// Limits that let a launch work in fixed arrays on the stack.
constexpr int kMaxTensors = 64;
constexpr int kMaxLaunches = 64;
constexpr int kMaxTerms = 16;
constexpr int kMaxMaps = 16;
/// CUDA's limit on the bytes of kernel parameters, for all drivers.
constexpr int kMaxParamBytes = 4096;
/// Words of a tensor of the largest rank: pointer, sizes, strides.
constexpr int kMaxTensorWords = 1 + 2 * FA_RT_MAX_RANK;
/// The largest grid, in blocks.
constexpr int64_t kMaxGrid = 2147483647;

/// A size of a tensor: a<tensor>.d<dim>.
struct DimRef {
  int tensor = 0;
  int dim = 0;
};

/// A factor: the constant `value` if `isConstant`, else the size `ref`
/// divided by `value` and rounded up.
struct Term {
  bool isConstant = true;
  DimRef ref;
  int64_t value = 1;
};

/// A product of factors.
using Expr = std::vector<Term>;

constexpr int kRoleIn = 1;
constexpr int kRoleOut = 2;

/// An argument or a temporary buffer. Both share one space of indices: the
/// arguments come first.
struct TensorDecl {
  bool isTemp = false;
  /// Temporary buffers: fill with zero bytes before the first launch.
  bool isZeroed = false;
  /// Temporary buffers: filled by launches that prepare.
  bool isPrepared = false;
  int role = 0;
  int32_t dtype = 0;
  int32_t rank = 0;
  std::string name;
  /// Arguments: the sizes, -1 where free.
  int64_t shape[FA_RT_MAX_RANK] = {};
  /// Temporary buffers: the sizes.
  std::vector<Expr> dims;
  /// The header's line, for messages.
  int line = 0;
};

/// Two sizes that must be equal.
struct SameDims {
  DimRef lhs, rhs;
  int line = 0;
};

/// A condition on an argument's memory.
struct Requirement {
  enum Kind { Stride, Align };
  Kind kind = Stride;
  int tensor = 0;
  /// Stride: the dimension whose stride must be `value` elements.
  int dim = 0;
  /// Align: the data pointer and all strides but the innermost one must be
  /// multiples of `value` bytes.
  int64_t value = 0;
  int line = 0;
};

/// A tensor map (version 2): boxes of `rows` of dimension `dim` by 64 columns
/// of the last dimension, in the 128-byte swizzle, zeros outside; of f32 by 16
/// columns, as they are, or with cols=32 (version 4) by 32 in that swizzle.
struct MapDecl {
  int tensor = 0, dim = 0, rows = 0;
  /// 0 where the header does not say it.
  int cols = 0;
  int line = 0;
};

/// One kernel launch.
struct LaunchDecl {
  std::string kernel;
  int block = 0;
  int smem = 0;
  Expr grid;
  /// Indices of tensors, in the order of the kernel's parameters.
  std::vector<int> args;
  /// Tensor maps: parameters of 128 bytes after those of the tensors.
  std::vector<int> maps;
  /// At most this many blocks for each multiprocessor, or 0: the kernel's
  /// blocks take more than one tile (version 2).
  int waves = 0;
  /// Blocks of a grid that is empty, where another kernel's is not (version 5).
  int least = 0;
  /// The kernel takes the addresses of a tile counter and of its flag, as two
  /// words after those of the tensors (version 2).
  bool hasQueue = false;
  /// It fills temporary buffers from the elements of the arguments that
  /// `prepares` names ("-": of none) and sizes alone: with the same ones they
  /// may be used again.
  bool prepares = false;
  int line = 0;
};

/// "sm_90a": 90 and 'a'. The suffix is 0 if there is none.
struct Target {
  int number = 0;
  char suffix = 0;
};

struct ImageHeader {
  std::string name;
  std::string targetName;
  Target target;
  /// Arguments, then temporary buffers.
  std::vector<TensorDecl> tensors;
  int numArgs = 0;
  /// Some result is zeroed before the kernels.
  bool zeroesResults = false;
  std::vector<SameDims> same;
  std::vector<Requirement> requirements;
  std::vector<LaunchDecl> launches;
  std::vector<MapDecl> maps;
};

/// Parses "sm_90a". False if `text` is no target.
bool parseTarget(std::string_view text, Target &target);

/// Reads the header at the start of `text`. Throws BAD_IMAGE.
ImageHeader parseHeader(std::string_view text);

/// The code of an image as the driver wants it.
struct Image {
  ImageHeader header;
  /// PTX text (NUL-terminated by std::string) or a cubin.
  std::string code;
  bool isPTX = false;
  /// PTX: from the .version line, 80 for 8.0. 0 if there is none.
  int ptxVersion = 0;
};

/// How many parameters PTX text declares for a kernel, -1 if it does not have
/// it.
int countParameters(std::string_view ptx, std::string_view kernel);

/// Reads header and code. `header` is null if the image has its own. Throws
/// BAD_IMAGE.
Image parseImage(std::string_view image, const char *header);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_IMAGE_H
