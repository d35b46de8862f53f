/* Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
 */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/*
 * Compiles one attention for the CPU and for a GPU; runs it on the CPU and
 * compares with loops. No GPU is needed.
 *
 *   ./attention [attention.ptx]
 *
 * The PTX can be launched with the example launch.c.
 */
#include <fa-c/fa.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Causal, scores capped at 20, two queries' heads for one of keys; batch and
 * lengths are known only when the kernel runs. */
static const char *const kAttention =
    "func.func @attention(\n"
    "    %q: tensor<?x4x?x32xf32>, %k: tensor<?x2x?x32xf32>,\n"
    "    %v: tensor<?x2x?x32xf32>)\n"
    "    -> (tensor<?x4x?x32xf32>, tensor<?x4x?xf32>) {\n"
    "  %o, %lse = fa.attention %q, %k, %v scale 0.17677669\n"
    "    score {\n"
    "    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):\n"
    "      %cap = arith.constant 20.0 : f32\n"
    "      %x = arith.divf %s, %cap : f32\n"
    "      %t = math.tanh %x : f32\n"
    "      %y = arith.mulf %t, %cap : f32\n"
    "      fa.yield %y : f32\n"
    "    }\n"
    "    mask {\n"
    "    ^bb0(%b: index, %h: index, %i: index, %j: index):\n"
    "      %seen = arith.cmpi sle, %j, %i : index\n"
    "      fa.yield %seen : i1\n"
    "    } : (tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>,\n"
    "         tensor<?x2x?x32xf32>)\n"
    "     -> (tensor<?x4x?x32xf32>, tensor<?x4x?xf32>)\n"
    "  return %o, %lse : tensor<?x4x?x32xf32>, tensor<?x4x?xf32>\n"
    "}\n";

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, LENGTH = 77, DIM = 32 };

/* Ends the program with the compiler's message if a call failed. */
static void check(fa_status status) {
  if (status == FA_OK)
    return;
  fprintf(stderr, "fa: %s\n", fa_last_error());
  exit(1);
}

static fa_kernel *compile(const char *target) {
  fa_compile_options options;
  fa_kernel *kernel = NULL;
  fa_compile_options_init(&options);
  options.target = target;
  check(fa_compile(kAttention, strlen(kAttention), &options, &kernel));
  return kernel;
}

/* A row-major tensor of BATCH x heads x LENGTH x dim, or without dim if 0. */
static fa_rt_tensor view(float *data, int64_t heads, int64_t dim) {
  const int64_t shape[] = {BATCH, heads, LENGTH, dim};
  return fa_rt_tensor_contiguous(data, FA_RT_F32, dim ? 4 : 3, shape);
}

/* `count` values in [-1, 1). */
static float *random_values(size_t count, uint32_t seed) {
  float *values = malloc(count * sizeof(*values));
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

/* One row by its definition; the output goes to `row`. */
static double reference_row(const float *q, const float *k, const float *v,
                            int i, double *row) {
  double sum = 0, max = -INFINITY, weights[LENGTH];
  for (int j = 0; j <= i; ++j) {
    double s = 0;
    for (int d = 0; d < DIM; ++d)
      s += (double)q[i * DIM + d] * k[j * DIM + d];
    weights[j] = 20 * tanh(s * 0.17677669 / 20);
    max = fmax(max, weights[j]);
  }
  memset(row, 0, DIM * sizeof(*row));
  for (int j = 0; j <= i; ++j) {
    double weight = exp(weights[j] - max);
    sum += weight;
    for (int d = 0; d < DIM; ++d)
      row[d] += weight * v[j * DIM + d];
  }
  for (int d = 0; d < DIM; ++d)
    row[d] /= sum;
  return max + log(sum);
}

/* The largest error of output and log-sum-exp. */
static double largest_error(const float *q, const float *k, const float *v,
                            const float *o, const float *lse) {
  double worst = 0;
  for (int head = 0; head < BATCH * HEADS; ++head) {
    const int shared = head * KV_HEADS / HEADS * LENGTH * DIM;
    for (int i = 0; i < LENGTH; ++i) {
      double row[DIM];
      double exact = reference_row(q + head * LENGTH * DIM, k + shared,
                                   v + shared, i, row);
      worst = fmax(worst, fabs(exact - lse[head * LENGTH + i]));
      for (int d = 0; d < DIM; ++d)
        worst = fmax(worst, fabs(row[d] - o[(head * LENGTH + i) * DIM + d]));
    }
  }
  return worst;
}

static double run_on_cpu(void) {
  const size_t queries = (size_t)BATCH * HEADS * LENGTH * DIM;
  const size_t keys = (size_t)BATCH * KV_HEADS * LENGTH * DIM;
  float *q = random_values(queries, 1), *k = random_values(keys, 2),
        *v = random_values(keys, 3);
  float *o = calloc(queries, sizeof(*o));
  float *lse = calloc(queries / DIM, sizeof(*lse));
  fa_kernel *kernel = compile("cpu");
  /* Inputs, then results; the results' memory is the caller's, too. */
  fa_rt_tensor args[] = {view(q, HEADS, DIM), view(k, KV_HEADS, DIM),
                         view(v, KV_HEADS, DIM), view(o, HEADS, DIM),
                         view(lse, HEADS, 0)};
  check(fa_kernel_run(kernel, args, 5));
  fa_kernel_free(kernel);
  double error = largest_error(q, k, v, o, lse);
  free(q), free(k), free(v), free(o), free(lse);
  return error;
}

/* What a mistake looks like: the message has the line and the column. */
static void show_an_error(void) {
  const char *text = "func.func @f() {\n  fa.attention\n  return\n}\n";
  fa_kernel *kernel = NULL;
  fa_status status = fa_compile(text, strlen(text), NULL, &kernel);
  printf("status %d: %s\n", status, fa_last_error());
}

int main(int argc, char **argv) {
  double error = run_on_cpu();
  printf("fa %s, cpu: largest error %.1e, %s\n", fa_version(), error,
         error < 1e-5 ? "ok" : "WRONG");

  fa_kernel *kernel = compile("sm_90a");
  const char *ptx = fa_kernel_ptx(kernel);
  printf("sm_90a: %zu bytes of PTX, %.*s\n", strlen(ptx),
         (int)strcspn(ptx, "\n"), ptx);
  if (fa_rt_image_verify(ptx, strlen(ptx), NULL) != FA_RT_OK) {
    fprintf(stderr, "fa runtime: %s\n", fa_rt_last_error());
    return 1;
  }
  if (argc > 1) {
    FILE *file = fopen(argv[1], "w");
    if (!file || fputs(ptx, file) < 0 || fclose(file) != 0) {
      perror(argv[1]);
      return 1;
    }
  }
  fa_kernel_free(kernel);

  show_an_error();
  return error < 1e-5 ? 0 : 1;
}
