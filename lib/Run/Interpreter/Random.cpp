// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.random_bits.

#include "Lanes.h"

#include "fa/Dialect/FA/IR/FA.h"

#include <array>

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;

using Words = std::array<uint32_t, 4>;

/// Rounds of Philox4x32.
static void mix(Words &counter, std::array<uint32_t, 2> &key, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    uint64_t x = uint64_t(0xD2511F53u) * counter[0],
             y = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {static_cast<uint32_t>(y >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(y),
               static_cast<uint32_t>(x >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(x)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

/// The op's definition, which also says what the numbers are.
static int64_t bitsAt(uint64_t seed, uint32_t b, uint32_t h, uint32_t i,
                      uint32_t j) {
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                 static_cast<uint32_t>(seed >> 32)};
  Words counter = {8 * (i / 16) + i % 8, 8 * (j / 64) + j % 8 / 2 * 2, h, b};
  mix(counter, key, 7);
  Words high = counter;
  mix(counter, key, 2);
  unsigned place = 8 * (2 * (i / 8 % 2) + j % 2) + 7 - j / 8 % 8;
  unsigned bits = 0;
  for (unsigned n = 0; n < 4; ++n) {
    bits |= (counter[n] >> place & 1) << n;
    bits |= (high[n] >> place & 1) << (n + 4);
  }
  return wrap(bits, 8);
}

static void randomBits(const Scalar &scalar, ArrayRef<const Lanes *> in,
                       Lanes &out, int64_t count) {
  bool uniform =
      llvm::all_of(in, [](const Lanes *x) { return x->isUniform(); });
  int64_t n = uniform ? 1 : count;
  int64_t *to = out.makeInts(n, uniform);
  auto at = [&](unsigned operand, int64_t lane) {
    return in[operand]->ints()[lane * in[operand]->step()];
  };
  for (int64_t lane = 0; lane < n; ++lane)
    to[lane] = bitsAt(
        static_cast<uint64_t>(at(0, lane)), static_cast<uint32_t>(at(1, lane)),
        static_cast<uint32_t>(at(2, lane)), static_cast<uint32_t>(at(3, lane)),
        static_cast<uint32_t>(at(4, lane)));
}

Kernel interpreter::lookupRandomBits(Operation *op) {
  return isa<fa::RandomBitsOp>(op) ? randomBits : nullptr;
}
