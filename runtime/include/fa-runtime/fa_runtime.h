/* Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
 */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/*
 * The fa runtime: loads a program image that the fa compiler wrote and
 * launches it on the caller's CUDA stream.
 *
 * The library needs no CUDA toolkit. The NVIDIA driver (libcuda.so.1) is
 * opened at the first call that needs a GPU; until then every other function
 * works on a machine without one.
 *
 * Rules that hold for the whole API:
 *  - A function that can fail returns an fa_rt_status. FA_RT_OK is 0. After any
 *    other status fa_rt_last_error() holds a sentence for the user on the
 *    thread that made the call. Out-parameters are written only on FA_RT_OK.
 *  - All functions may be called from any thread. A program is immutable after
 *    it was loaded: several threads may launch the same one at once.
 *  - Work runs in the device's primary context, the one that the CUDA runtime
 *    API, PyTorch, JAX and CuPy use, so their pointers and streams are valid
 *    here. The calling thread's current context is the same after a call as
 *    it was before.
 *  - A stream is a CUstream/cudaStream_t passed as void *. NULL is the legacy
 *    default stream.
 *  - Sizes are in bytes, shapes and strides in elements, times in
 *    milliseconds, unless said otherwise.
 *
 * Environment variables (read when the driver is opened, a program is loaded
 * or the cache is used):
 *   FA_CUDA_DRIVER     path of the driver library in place of libcuda.so.1
 *   FA_CACHE=0         turns the on-disk cache off
 *   FA_CACHE_DIR       directory of the cache; else $XDG_CACHE_HOME/fa, else
 *                      $HOME/.cache/fa
 *   FA_VERBOSE=1       like fa_rt_load_options.verbose for every load
 *   FA_CHECK_POINTERS=1  like fa_rt_load_options.check_pointers for every load
 */
#ifndef FA_RUNTIME_FA_RUNTIME_H
#define FA_RUNTIME_FA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define FA_RT_API __attribute__((visibility("default")))
#else
#define FA_RT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------- */
/* Version and errors                                                         */
/* -------------------------------------------------------------------------- */

#define FA_RT_VERSION_MAJOR 0
#define FA_RT_VERSION_MINOR 1
#define FA_RT_VERSION_PATCH 0

/** The version of image headers that this runtime reads: `//!fa.program
 * version=N` with N in 1..FA_RT_IMAGE_VERSION. */
#define FA_RT_IMAGE_VERSION 5

/** The largest rank of a tensor. */
#define FA_RT_MAX_RANK 8

/** The result of a call. The numbers are stable. */
typedef enum fa_rt_status {
  FA_RT_OK = 0,
  /** An argument of the call is wrong: a tensor that does not fit the program,
   * a device that does not exist or cannot run the image, a NULL. */
  FA_RT_INVALID_ARGUMENT = 1,
  /** libcuda.so.1 cannot be opened or does not start. */
  FA_RT_NO_DRIVER = 2,
  /** The driver works but sees no GPU. */
  FA_RT_NO_DEVICE = 3,
  /** The driver lacks something that the runtime or the image needs. */
  FA_RT_DRIVER_TOO_OLD = 4,
  /** The image or its header is malformed, or newer than this runtime. */
  FA_RT_BAD_IMAGE = 5,
  /** The driver refused the code, or another call that should work. */
  FA_RT_DRIVER_REJECTED = 6,
  /** Device or host memory ran out. */
  FA_RT_OUT_OF_MEMORY = 7,
  /** The driver refused a launch, or earlier work on the device failed. */
  FA_RT_LAUNCH_FAILED = 8,
  /** A file cannot be read or written. */
  FA_RT_IO_ERROR = 9,
  /** A bug in the runtime. */
  FA_RT_INTERNAL = 10
} fa_rt_status;

/** The version as "major.minor.patch"; static storage. */
FA_RT_API const char *fa_rt_version(void);

/** The name of a status, "FA_RT_OK" and so on; static storage. A number that
 * is no status gives "FA_RT_UNKNOWN". */
FA_RT_API const char *fa_rt_status_name(fa_rt_status status);

/**
 * The message of the last call that failed on this thread: the value, the limit
 * and the remedy. "" if none failed yet; a call that succeeds does not change
 * it. Valid until the next failing call on the same thread.
 */
FA_RT_API const char *fa_rt_last_error(void);

/* -------------------------------------------------------------------------- */
/* Tensors                                                                    */
/* -------------------------------------------------------------------------- */

/** Element types. 0 is no type, so a tensor whose type was forgotten is
 * refused. The numbers are stable. */
typedef enum fa_rt_dtype {
  FA_RT_F32 = 1,
  FA_RT_F16 = 2,
  FA_RT_BF16 = 3,
  FA_RT_F64 = 4,
  /** One byte an element, 0 or 1. */
  FA_RT_I1 = 5,
  FA_RT_I8 = 6,
  FA_RT_I16 = 7,
  FA_RT_I32 = 8,
  FA_RT_I64 = 9,
  FA_RT_U8 = 10,
  FA_RT_U16 = 11,
  FA_RT_U32 = 12,
  FA_RT_U64 = 13,
  FA_RT_F8E4M3FN = 14,
  FA_RT_F8E5M2 = 15
} fa_rt_dtype;

/** Bytes of one element, 0 if `dtype` is no element type. */
FA_RT_API size_t fa_rt_dtype_size(int32_t dtype);

/** The name that image headers use ("bf16"), "?" if `dtype` is no element
 * type; static storage. */
FA_RT_API const char *fa_rt_dtype_name(int32_t dtype);

/**
 * A view of a tensor in device memory. The struct is only read during a call.
 * `data` points at the element whose indices are all 0; it may be NULL if one
 * of the sizes is 0. Strides may be of any value that the program's
 * requirements permit; the stride of a dimension of size 1 is not looked at.
 */
typedef struct fa_rt_tensor {
  void *data;
  /** An fa_rt_dtype. */
  int32_t dtype;
  /** 0..FA_RT_MAX_RANK. */
  int32_t rank;
  /** Elements, the outermost dimension first. */
  int64_t shape[FA_RT_MAX_RANK];
  /** Elements, not bytes. */
  int64_t strides[FA_RT_MAX_RANK];
} fa_rt_tensor;

/** The largest size of a dimension that a launch takes. Kernels count with 32
 * bits, and the compiler's proofs about masks hold for coordinates in that
 * range. Offsets have 64 bits: a tensor may have more elements. */
#define FA_RT_MAX_EXTENT ((INT64_C(1) << 30) - 1)

/** A row-major contiguous view of `data`. `shape` has `rank` entries. A rank
 * outside 0..FA_RT_MAX_RANK is kept in the result, for the launch to refuse. */
FA_RT_API fa_rt_tensor fa_rt_tensor_contiguous(void *data, int32_t dtype,
                                               int32_t rank,
                                               const int64_t *shape);

/* -------------------------------------------------------------------------- */
/* Devices                                                                    */
/* -------------------------------------------------------------------------- */

typedef struct fa_rt_device_desc {
  char name[128];
  /** Compute capability: 9 and 0 for sm_90. */
  int32_t cc_major;
  int32_t cc_minor;
  int32_t sm_count;
  /** Shared memory that one block can opt into, bytes. */
  int32_t smem_optin;
  /** L2 cache, bytes. */
  int32_t l2_size;
  /** CUDA version that the driver supports: 12040 for 12.4. */
  int32_t driver_version;
} fa_rt_device_desc;

/** The number of GPUs that the driver sees.
 * Errors: NO_DRIVER, NO_DEVICE (never OK with a count of 0), DRIVER_TOO_OLD. */
FA_RT_API fa_rt_status fa_rt_device_count(int *count);

/** Describes device `device`, 0 <= device < count.
 * Errors: INVALID_ARGUMENT and those of fa_rt_device_count. */
FA_RT_API fa_rt_status fa_rt_device_info(int device, fa_rt_device_desc *desc);

/* -------------------------------------------------------------------------- */
/* Programs                                                                   */
/* -------------------------------------------------------------------------- */

/** Kernels on one device, ready to launch. */
typedef struct fa_rt_program fa_rt_program;

/** How a program is loaded. Fill in with fa_rt_load_options_init. */
typedef struct fa_rt_load_options {
  /** sizeof(fa_rt_load_options); lets later versions add fields. */
  size_t struct_size;
  /** Not 0: take the compiled code from the on-disk cache and put it there.
   * Default 1. */
  int32_t use_cache;
  /** Not 0: report to stderr the origin of the code, the time that it took, and
   * each kernel's registers and spills. Default 0. */
  int32_t verbose;
  /** Not 0: each launch asks the driver whether every data pointer is memory
   * that this device can reach. It costs about a microsecond a tensor. Default
   * 0: a host pointer then causes an asynchronous fault of the kernel. */
  int32_t check_pointers;
  int32_t reserved;
  /** Header text (the `//!fa.` lines), NUL-terminated, for an image without
   * one, such as a cubin. Default NULL: the image starts with its header. */
  const char *header;
} fa_rt_load_options;

/** Writes the defaults into `options`. */
FA_RT_API void fa_rt_load_options_init(fa_rt_load_options *options);

/**
 * Checks an image's header without a driver or a GPU. It finds the errors that
 * fa_rt_program_load would find in the text. `header` as in fa_rt_load_options.
 * Errors: INVALID_ARGUMENT (NULL image), BAD_IMAGE with the line's number.
 */
FA_RT_API fa_rt_status fa_rt_image_verify(const void *image, size_t size,
                                          const char *header);

/**
 * Loads an image on device `device`.
 *
 * `image` is PTX text of `size` bytes (a NUL at the end may be counted or not),
 * or a cubin with its header in options->header. It may be freed after the
 * call. `options` may be NULL for the defaults. The device's primary context is
 * retained at the first load and kept until the process ends.
 *
 * Errors: BAD_IMAGE; INVALID_ARGUMENT (no such device, or the image is for
 * another kind of device); NO_DRIVER; NO_DEVICE; DRIVER_TOO_OLD;
 * DRIVER_REJECTED with the driver's own log; OUT_OF_MEMORY. A failure of the
 * cache is never an error.
 */
FA_RT_API fa_rt_status fa_rt_program_load(int device, const void *image,
                                          size_t size,
                                          const fa_rt_load_options *options,
                                          fa_rt_program **program);

/** As fa_rt_program_load with the contents of a file. More errors: IO_ERROR. */
FA_RT_API fa_rt_status fa_rt_program_load_file(
    int device, const char *path, const fa_rt_load_options *options,
    fa_rt_program **program);

/** Unloads a program; NULL is ignored. No thread may be launching it and its
 * work on the device must have ended. */
FA_RT_API void fa_rt_program_free(fa_rt_program *program);

/**
 * Enqueues the program on `stream` and returns without waiting for it.
 *
 * `args` has one tensor for each `//!fa.arg` line, in the order of their
 * indices. The call checks number, element type, rank, sizes that the program
 * fixes, sizes that must be equal, strides and alignment that the kernels
 * require, and NULL data; nothing is enqueued if a check fails. A kernel whose
 * grid is empty is skipped.
 *
 * A program without temporary buffers takes no lock, allocates nothing, and
 * may be captured into a CUDA graph. A captured launch keeps its tile counter:
 * graphs that hold it, instantiated twice or cloned, must not run at the same
 * time, and the program must outlive them. Temporary buffers come from the
 * device's stream-ordered allocator and go back to it on the same stream. If
 * the device has no such allocator, the call allocates synchronously and waits
 * for the stream.
 *
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, LAUNCH_FAILED. A fault while the
 * kernel runs shows in a later call, as always with CUDA.
 */
FA_RT_API fa_rt_status fa_rt_program_launch(const fa_rt_program *program,
                                            const fa_rt_tensor *args,
                                            int32_t nargs, void *stream);

/**
 * The bytes of a program's prepared buffers, 0 if there are none. Some of its
 * launches fill them from arguments that change seldom, and the others read
 * them (lists of the blocks that a mask shows).
 * Errors: INVALID_ARGUMENT, as fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_prepared_size(const fa_rt_program *program,
                                                   const fa_rt_tensor *args,
                                                   int32_t nargs,
                                                   int64_t *bytes);

/**
 * fa_rt_program_launch with the prepared buffers in the caller's device memory:
 * `prepared`, aligned to 256 bytes and of at least
 * fa_rt_program_prepared_size. If `is_prepared` is 0 the call fills them first.
 * Otherwise an earlier launch of this program must have filled them, for
 * arguments of the same sizes; the arguments that the header names after
 * `prepares` must have had the same elements and strides. The caller orders the
 * launches and keeps the memory until they have run.
 * Errors: those of fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_launch_prepared(
    const fa_rt_program *program, const fa_rt_tensor *args, int32_t nargs,
    void *stream, void *prepared, int32_t is_prepared);

/**
 * The bytes of all of a program's temporary buffers for these arguments, 0 if
 * there are none.
 * Errors: INVALID_ARGUMENT, as fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_workspace_size(
    const fa_rt_program *program, const fa_rt_tensor *args, int32_t nargs,
    int64_t *bytes);

/**
 * fa_rt_program_launch with the temporary buffers in the caller's device
 * memory: `workspace`, aligned to 256 bytes, of `bytes` bytes, at least
 * fa_rt_program_workspace_size. The call allocates nothing, and may be captured
 * into a CUDA graph. The caller keeps the memory until the program has run. Its
 * old contents do not matter.
 * Errors: those of fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_launch_in(const fa_rt_program *program,
                                               const fa_rt_tensor *args,
                                               int32_t nargs, void *stream,
                                               void *workspace, int64_t bytes);

/**
 * fa_rt_program_launch_prepared with the other temporary buffers in the
 * caller's device memory, too, as in fa_rt_program_launch_in: `workspace`, of
 * `bytes` bytes, at least fa_rt_program_workspace_size.
 * Errors: those of fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_launch_prepared_in(
    const fa_rt_program *program, const fa_rt_tensor *args, int32_t nargs,
    void *stream, void *prepared, int32_t is_prepared, void *workspace,
    int64_t bytes);

/**
 * Launches once to warm up, then `repeats` times between two events, waits,
 * and writes the mean time of a launch in milliseconds. `repeats` >= 1.
 * Errors: those of fa_rt_program_launch.
 */
FA_RT_API fa_rt_status fa_rt_program_time(const fa_rt_program *program,
                                          const fa_rt_tensor *args,
                                          int32_t nargs, void *stream,
                                          int32_t repeats, float *milliseconds);

/** A program's properties. The strings live as long as the program. */
typedef struct fa_rt_program_desc {
  const char *name;
  /** "sm_90a" */
  const char *target;
  int32_t device;
  int32_t num_args;
  int32_t num_temps;
  int32_t num_launches;
  /** 1 if the machine code came from the on-disk cache. */
  int32_t from_cache;
} fa_rt_program_desc;

/** One `//!fa.launch` line, with the driver's facts about its kernel. */
typedef struct fa_rt_launch_desc {
  const char *kernel;
  /** Threads of a block. */
  int32_t block;
  /** Dynamic shared memory of a block, bytes. */
  int32_t dynamic_smem;
  /** Shared memory declared in the kernel, bytes. */
  int32_t static_smem;
  /** Registers of a thread. */
  int32_t registers;
  /** Local memory of a thread, bytes: spills and stack. */
  int32_t local_bytes;
} fa_rt_launch_desc;

/** One `//!fa.arg` line. `shape` has -1 where the size is free. */
typedef struct fa_rt_arg_desc {
  const char *name;
  int32_t dtype;
  int32_t rank;
  int64_t shape[FA_RT_MAX_RANK];
  /** Bit 0: the program reads it; bit 1: the program writes it. */
  int32_t role;
} fa_rt_arg_desc;

/** Errors: INVALID_ARGUMENT. */
FA_RT_API fa_rt_status fa_rt_program_info(const fa_rt_program *program,
                                          fa_rt_program_desc *desc);
/** 0 <= index < num_launches. Errors: INVALID_ARGUMENT. */
FA_RT_API fa_rt_status fa_rt_program_launch_info(const fa_rt_program *program,
                                                 int32_t index,
                                                 fa_rt_launch_desc *desc);
/** 0 <= index < num_args. Errors: INVALID_ARGUMENT. */
FA_RT_API fa_rt_status fa_rt_program_arg_info(const fa_rt_program *program,
                                              int32_t index,
                                              fa_rt_arg_desc *desc);

/* -------------------------------------------------------------------------- */
/* Device memory, for users without another CUDA library                      */
/* -------------------------------------------------------------------------- */

/** `bytes` of device memory; 0 bytes give NULL. Errors: OUT_OF_MEMORY, ... */
FA_RT_API fa_rt_status fa_rt_alloc(int device, size_t bytes, void **data);
/** Frees memory from fa_rt_alloc; NULL is ignored. Waits for the device. */
FA_RT_API fa_rt_status fa_rt_free(int device, void *data);
/** Blocking copies between host and device memory. They are ordered with the
 * legacy default stream only: synchronize other streams first. */
FA_RT_API fa_rt_status fa_rt_copy_to_device(int device, void *to,
                                            const void *from, size_t bytes);
FA_RT_API fa_rt_status fa_rt_copy_to_host(int device, void *to,
                                          const void *from, size_t bytes);
/** Whether work on `stream` is captured into a CUDA graph; also 1 if the driver
 * does not say. */
FA_RT_API fa_rt_status fa_rt_stream_is_capturing(int device, void *stream,
                                                 int32_t *is_capturing);
/** Waits for the work on `stream`; LAUNCH_FAILED if it failed. */
FA_RT_API fa_rt_status fa_rt_stream_synchronize(int device, void *stream);

/* -------------------------------------------------------------------------- */
/* The on-disk cache                                                          */
/* -------------------------------------------------------------------------- */

/*
 * A map from byte strings to byte strings in a directory. Entries are written
 * under a new name and renamed into place, and carry a checksum: concurrent
 * writers and torn or damaged files are harmless. The keys are hashed to 128
 * bits; everything that the value depends on belongs into the key. A user who
 * can write the directory can choose the code that runs: it is made with mode
 * 0700.
 */

/**
 * Looks up `key`. A hit gives a copy that the caller frees with
 * fa_rt_cache_release. A miss, a damaged entry and a cache that is off all
 * give OK with *data NULL and *size 0. (A hit is never NULL, even if empty.)
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
 */
FA_RT_API fa_rt_status fa_rt_cache_get(const void *key, size_t key_size,
                                       void **data, size_t *size);
FA_RT_API void fa_rt_cache_release(void *data);
/** Stores `data`, replacing an older entry. OK does nothing if the cache is
 * off. Errors: INVALID_ARGUMENT, IO_ERROR; callers may well ignore the last. */
FA_RT_API fa_rt_status fa_rt_cache_put(const void *key, size_t key_size,
                                       const void *data, size_t size);
/** The path of the entry of `key`, for tools and tests: writes at most
 * `capacity` bytes, NUL included, and *length without the NUL. A cache that is
 * off gives "". Errors: INVALID_ARGUMENT (capacity too small: *length is then
 * written all the same). */
FA_RT_API fa_rt_status fa_rt_cache_path(const void *key, size_t key_size,
                                        char *path, size_t capacity,
                                        size_t *length);

#ifdef __cplusplus
}
#endif

#endif /* FA_RUNTIME_FA_RUNTIME_H */
