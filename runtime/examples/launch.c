/* Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
 */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/*
 * Loads a program that fa wrote, gives it tensors, launches and times it.
 *
 *   cc launch.c -lfa_runtime -o launch
 *   ./launch attention.ptx [size]
 *
 * Sizes that the program leaves free become `size` (256 by default). Inputs of
 * type f32, f16 and bf16 are filled with values in [-1, 1); others with zero.
 */
#include <fa-runtime/fa_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 64 };

/* Ends the program with the runtime's message if a call failed. */
static void check(fa_rt_status status) {
  if (status == FA_RT_OK)
    return;
  fprintf(stderr, "%s: %s\n", fa_rt_status_name(status), fa_rt_last_error());
  exit(1);
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* Multiples of 1/64 in [-1, 1): exact in each of the three types. */
static float input_value(size_t index) {
  return (float)((int)(index * 2654435761u % 128) - 64) / 64.0f;
}

static uint16_t to_half(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) == 0)
    return (uint16_t)(bits >> 16);
  return (uint16_t)((bits >> 16 & 0x8000u) |
                    ((bits >> 23 & 0xffu) - 112u) << 10 |
                    (bits >> 13 & 0x3ffu));
}

static float from_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 0) {
    float value = (float)fraction / 16777216.0f;
    return sign ? -value : value;
  }
  if (exponent == 31)
    return float_of(sign | 0x7f800000u | fraction << 13);
  return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
}

static void store(void *data, int32_t dtype, size_t i, float value) {
  if (dtype == FA_RT_F32)
    ((float *)data)[i] = value;
  else if (dtype == FA_RT_F16)
    ((uint16_t *)data)[i] = to_half(value);
  else if (dtype == FA_RT_BF16)
    ((uint16_t *)data)[i] = (uint16_t)(bits_of(value) >> 16);
}

static float load(const void *data, int32_t dtype, size_t i) {
  if (dtype == FA_RT_F32)
    return ((const float *)data)[i];
  if (dtype == FA_RT_F16)
    return from_half(((const uint16_t *)data)[i]);
  if (dtype == FA_RT_BF16)
    return float_of((uint32_t)((const uint16_t *)data)[i] << 16);
  return 0.0f;
}

static size_t elements(const fa_rt_tensor *tensor) {
  size_t count = 1;
  int i;
  for (i = 0; i < tensor->rank; ++i)
    count *= (size_t)tensor->shape[i];
  return count;
}

/* Makes the tensor of an argument, with its data on the device. */
static fa_rt_tensor make_tensor(const fa_rt_arg_desc *arg, int64_t size) {
  int64_t shape[FA_RT_MAX_RANK];
  fa_rt_tensor tensor;
  size_t count, bytes, i;
  void *data, *host;
  int d;
  for (d = 0; d < arg->rank; ++d)
    shape[d] = arg->shape[d] < 0 ? size : arg->shape[d];
  tensor = fa_rt_tensor_contiguous(NULL, arg->dtype, arg->rank, shape);
  count = elements(&tensor);
  bytes = count * fa_rt_dtype_size(arg->dtype);
  host = calloc(count + 1, fa_rt_dtype_size(arg->dtype));
  if (!host) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  for (i = 0; (arg->role & 1) && i < count; ++i)
    store(host, arg->dtype, i, input_value(i));
  check(fa_rt_alloc(0, bytes, &data));
  check(fa_rt_copy_to_device(0, data, host, bytes));
  free(host);
  tensor.data = data;
  return tensor;
}

static void print_tensor(const fa_rt_arg_desc *arg,
                         const fa_rt_tensor *tensor) {
  size_t count = elements(tensor), i;
  size_t bytes = count * fa_rt_dtype_size(tensor->dtype);
  void *host = malloc(bytes + 1);
  if (!host)
    exit(1);
  check(fa_rt_copy_to_host(0, host, tensor->data, bytes));
  printf("%s:", arg->name);
  for (i = 0; i < count && i < 8; ++i)
    printf(" %g", load(host, tensor->dtype, i));
  printf("%s\n", count > 8 ? " ..." : "");
  free(host);
}

int main(int argc, char **argv) {
  fa_rt_program *program;
  fa_rt_program_desc desc;
  fa_rt_arg_desc args[MAX_ARGS];
  fa_rt_tensor tensors[MAX_ARGS];
  int64_t size = argc > 2 ? atol(argv[2]) : 256;
  float milliseconds;
  int i;
  if (argc < 2 || size < 0) {
    fprintf(stderr, "usage: %s program.ptx [size]\n", argv[0]);
    return 2;
  }

  check(fa_rt_program_load_file(0, argv[1], NULL, &program));
  check(fa_rt_program_info(program, &desc));
  printf("%s for %s\n", desc.name, desc.target);
  for (i = 0; i < desc.num_launches; ++i) {
    fa_rt_launch_desc launch;
    check(fa_rt_program_launch_info(program, i, &launch));
    printf("  %s: %d threads, %d+%d bytes of shared memory, %d registers, "
           "%d bytes local\n",
           launch.kernel, launch.block, launch.dynamic_smem, launch.static_smem,
           launch.registers, launch.local_bytes);
  }

  for (i = 0; i < desc.num_args; ++i) {
    check(fa_rt_program_arg_info(program, i, &args[i]));
    tensors[i] = make_tensor(&args[i], size);
  }
  check(fa_rt_program_launch(program, tensors, desc.num_args, NULL));
  check(fa_rt_stream_synchronize(0, NULL));
  for (i = 0; i < desc.num_args; ++i)
    if (args[i].role & 2)
      print_tensor(&args[i], &tensors[i]);

  check(fa_rt_program_time(program, tensors, desc.num_args, NULL, 20,
                           &milliseconds));
  printf("time of a launch: %.4f ms\n", milliseconds);
  for (i = 0; i < desc.num_args; ++i)
    check(fa_rt_free(0, tensors[i].data));
  fa_rt_program_free(program);
  return 0;
}
