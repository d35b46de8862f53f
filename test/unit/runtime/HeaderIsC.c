/* Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
 */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */

/* Compiles only if the public header is C, and by itself. */
#include "fa-runtime/fa_runtime.h"

typedef char fa_rt_tensor_has_no_holes
    [sizeof(fa_rt_tensor) == 16 + 2 * 8 * FA_RT_MAX_RANK ? 1 : -1];

fa_rt_status faHeaderIsC(void);
fa_rt_status faHeaderIsC(void) { return FA_RT_OK; }
