// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TensorMap.h"

#include <algorithm>
#include <cstring>

using namespace fa::rt;

namespace {
/// Of a box of 16-bit elements the columns are 128 bytes, the width of the
/// swizzle; of f32 64 bytes, as they are, or 128 in the swizzle.
struct BoxRow {
  cu::TensorMapType type;
  uint32_t cols, elementBytes;
  int swizzle;
};
constexpr int kMaxMapRank = 5;

struct Key {
  int64_t words[1 + 2 * kMaxMapRank];
  int32_t dtype, rank, dim, rows, cols;
};

/// Of each thread: no lock on the way to a launch.
struct Entry {
  Key key;
  EncodedMap map;
};
constexpr size_t kEntries = 64;
thread_local Entry cache[kEntries];
} // namespace

static size_t slotOf(const Key &key) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int64_t word : key.words)
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15u;
  hash = (hash ^
          static_cast<uint64_t>((key.cols * 16 + key.dim) * 1024 + key.rows)) *
         0x9e3779b97f4a7c15u;
  return (hash >> 32) % kEntries;
}

static BoxRow boxRow(int32_t dtype, int32_t cols) {
  if (dtype == FA_RT_F32)
    return cols == 32 ? BoxRow{cu::kMapF32, 32, 4, cu::kMapSwizzle128}
                      : BoxRow{cu::kMapF32, 16, 4, cu::kMapSwizzleNone};
  return {dtype == FA_RT_BF16 ? cu::kMapBF16 : cu::kMapF16, 64, 2,
          cu::kMapSwizzle128};
}

static void encode(const Driver &driver, const ImageHeader &header,
                   const MapDecl &decl, const Key &key, EncodedMap &map) {
  if (!driver.tensorMapEncodeTiled)
    fail(FA_RT_DRIVER_TOO_OLD,
         "the driver has no cuTensorMapEncodeTiled (CUDA 12.0), which program "
         "'%s' needs; update the driver or compile for sm_90",
         header.name.c_str());
  uint64_t sizes[kMaxMapRank], strides[kMaxMapRank];
  uint32_t box[kMaxMapRank], steps[kMaxMapRank];
  const int64_t *shape = key.words + 1, *stride = shape + key.rank;
  BoxRow row = boxRow(key.dtype, key.cols);
  // A tensor without elements is never read: neither its pointer nor its
  // strides mean anything, but the map must be legal.
  bool isEmpty = std::find(shape, shape + key.rank, 0) != shape + key.rank;
  for (int i = 0; i < key.rank; ++i) {
    int d = key.rank - 1 - i; // the innermost dimension comes first
    sizes[i] = isEmpty ? 1 : static_cast<uint64_t>(shape[d]);
    // Nor does the stride of a dimension of size 1.
    if (i)
      strides[i - 1] = !isEmpty && shape[d] > 1
                           ? static_cast<uint64_t>(stride[d]) * row.elementBytes
                           : 16;
    box[i] = i == 0 ? row.cols : d == key.dim ? uint32_t(key.rows) : 1;
    steps[i] = 1;
  }
  uint64_t address = static_cast<uint64_t>(key.words[0]);
  cu::Result result = driver.tensorMapEncodeTiled(
      &map, row.type, static_cast<uint32_t>(key.rank), isEmpty ? 256 : address,
      sizes, strides, box, steps,
      /*interleave=*/0, row.swizzle, cu::kMapPromotion256,
      /*oobFill=*/0);
  if (result == cu::kSuccess)
    return;
  std::string text;
  for (int d = 0; d < key.rank; ++d)
    text += format("%s%lld by %lld", d ? ", " : "",
                   static_cast<long long>(shape[d]),
                   static_cast<long long>(stride[d]));
  fail(FA_RT_INVALID_ARGUMENT,
       "argument %d (%s): TMA cannot express its sizes and strides (%s "
       "elements; sizes up to 2^32, strides in multiples of 16 bytes below "
       "2^40): %s; make the tensor contiguous",
       decl.tensor,
       header.tensors[static_cast<size_t>(decl.tensor)].name.c_str(),
       text.c_str(), driver.describe(result).c_str());
}

void fa::rt::encodeTensorMap(const Driver &driver, const ImageHeader &header,
                             const MapDecl &decl, const int64_t *words,
                             EncodedMap &map) {
  const TensorDecl &tensor = header.tensors[static_cast<size_t>(decl.tensor)];
  Key key;
  std::memset(&key, 0, sizeof(key));
  std::copy_n(words, 1 + 2 * tensor.rank, key.words);
  key.dtype = tensor.dtype;
  key.rank = tensor.rank;
  key.dim = decl.dim;
  key.rows = decl.rows;
  key.cols = decl.cols;
  Entry &entry = cache[slotOf(key)];
  if (std::memcmp(&entry.key, &key, sizeof(key)) != 0) {
    std::memset(&entry.key, 0, sizeof(key));
    encode(driver, header, decl, key, entry.map);
    entry.key = key;
  }
  map = entry.map;
}
