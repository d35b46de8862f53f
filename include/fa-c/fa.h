/* Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
 */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/*
 * The fa compiler behind a C boundary: attention IR in, a kernel out.
 *
 * A kernel for target `cpu` runs here (fa_kernel_run). A kernel for an NVIDIA
 * target is PTX text with a header that describes it (fa_kernel_ptx); the
 * runtime library (fa-runtime/fa_runtime.h) loads and launches it. Both take
 * the same tensor views: the function's arguments in order, then its results.
 *
 * Functions that can fail return 0 on success; after anything else
 * fa_last_error() holds the message for the calling thread. All functions may
 * be called from any thread; a kernel may run on several threads at once.
 */
#ifndef FA_C_FA_H
#define FA_C_FA_H

#include "fa-runtime/fa_runtime.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define FA_API __attribute__((visibility("default")))
#else
#define FA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a call. */
typedef enum fa_status {
  FA_OK = 0,
  /** The options or the tensors are wrong. */
  FA_INVALID_ARGUMENT = 1,
  /** The IR is malformed or not supported; the message has the location. */
  FA_COMPILE_ERROR = 2,
  /** The kernel is for another target, or running it failed. */
  FA_RUN_ERROR = 3
} fa_status;

/** "major.minor.patch"; static storage. */
FA_API const char *fa_version(void);

/** The message of the last call that failed on this thread, "" if none. */
FA_API const char *fa_last_error(void);

/** How to compile. Fill in with fa_compile_options_init. */
typedef struct fa_compile_options {
  /** sizeof(fa_compile_options). */
  size_t struct_size;
  /** "cpu", "sm_80", "sm_90a", ... Default "cpu". */
  const char *target;
  /** "standard", "fa1" or "fa2". Default "fa2". */
  const char *algorithm;
  /** Name of the function in the IR; NULL for its only public one. */
  const char *function;
  /** Rows and keys of a tile; 0 lets the IO model choose. Default 0. */
  int64_t rows, keys;
  /** Whether fa-speculate-max runs: "on", "off" or "auto", which asks the
   * target. Default "auto". */
  const char *speculate;
  /** The order of a row's blocks of keys: "ascending", "descending", or "auto".
   * "auto" takes the largest scores first if it knows them and fa-speculate-max
   * runs. Default "auto". */
  const char *order;
  /** For experts: options of the target's schedule, such as "stages=2
   * spare=64" for fa-schedule-hopper (sm_90a; those of fa-hopper-place) and
   * "warps=8" for fa-schedule-ampere; "by=ampere" compiles for sm_90. With
   * options, a program that the schedule does not take is an error. NULL or ""
   * lets the schedule choose. Default NULL. */
  const char *schedule;
  /** Not NULL: compile the function's gradient instead, with respect to query,
   * key, value and captured tensors: "all" of floats (f64 only if query is
   * f64), "none", or the numbers of arguments, as "3+5". The kernel takes the
   * function's arguments, out [B,Hq,Sq,Dv], lse [B,Hq,Sq], and the gradients
   * with respect to out and, if the function returns it, to lse. Its results
   * follow: the gradients with respect to query, key, value and those tensors,
   * in the order of the arguments. Default NULL. */
  const char *backward;
  /** Not 0: gradients have the same bits each time that a kernel runs on the
   * same device, even if blocks of a GPU's grid add to the same numbers. On the
   * CPU they always have. Default 0. */
  int32_t deterministic;
  /** Threads of the CPU target; 0 for all. Default 0. */
  int32_t threads;
  /** Optimization level of the CPU target, 0 to 3 as a C compiler's -O. 0
   * compiles in a third of the time of 3, to slower code. Default 3. */
  int32_t optimize;
  /** Not 0: keep the IR after each stage (fa_kernel_stage_ir). Default 0. */
  int32_t keep_stages;
} fa_compile_options;

FA_API void fa_compile_options_init(fa_compile_options *options);

typedef struct fa_kernel fa_kernel;

/**
 * Compiles a module with one attention function from MLIR text of `size` bytes.
 * `options` may be NULL for the defaults. The kernel is freed with
 * fa_kernel_free.
 */
FA_API fa_status fa_compile(const char *ir, size_t size,
                            const fa_compile_options *options,
                            fa_kernel **kernel);
FA_API void fa_kernel_free(fa_kernel *kernel);

/** Inputs and results that the kernel takes, in that order. */
FA_API int32_t fa_kernel_num_args(const fa_kernel *kernel);

/** The number of results among them. */
FA_API int32_t fa_kernel_num_results(const fa_kernel *kernel);

/** The stages that were run, in order. Strings live as long as the kernel. */
FA_API int32_t fa_kernel_num_stages(const fa_kernel *kernel);
/** The pass's name, NULL out of range. */
FA_API const char *fa_kernel_stage_name(const fa_kernel *kernel, int32_t i);
/** The IR after it, "" unless keep_stages was set, NULL out of range. */
FA_API const char *fa_kernel_stage_ir(const fa_kernel *kernel, int32_t i);
/** Its HBM traffic: the `fa.io` attribute's text, "" unless keep_stages was
 * set, NULL out of range. */
FA_API const char *fa_kernel_stage_io(const fa_kernel *kernel, int32_t i);

/** PTX with its header, NULL for the CPU target. */
FA_API const char *fa_kernel_ptx(const fa_kernel *kernel);

/** Runs a kernel of the CPU target: inputs, then results, in host memory. */
FA_API fa_status fa_kernel_run(const fa_kernel *kernel,
                               const fa_rt_tensor *args, int32_t nargs);

/** A kernel of the CPU target as bytes for fa_kernel_load: machine code, IR and
 * interface. `*size` is their number. They live as long as the kernel. For
 * another target the result is NULL and `*size` 0. */
FA_API const void *fa_kernel_image(const fa_kernel *kernel, size_t *size);

/** A kernel from the bytes of fa_kernel_image. It runs on `threads` threads (0
 * for all) and has no stages. The bytes must come from the same fa and from a
 * machine with the same fa_host; otherwise, or if they are damaged, the result
 * is FA_INVALID_ARGUMENT. fa_kernel_run executes the bytes as code: load only
 * bytes that you trust. */
FA_API fa_status fa_kernel_load(const void *image, size_t size, int32_t threads,
                                fa_kernel **kernel);

/** The facts on which code of the CPU target depends: LLVM's version, this
 * machine's processor and its features. Static storage. "" if they cannot be
 * determined; then no image can be made. */
FA_API const char *fa_host(void);

#ifdef __cplusplus
}
#endif

#endif /* FA_C_FA_H */
