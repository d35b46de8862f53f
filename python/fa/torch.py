# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa in PyTorch: a drop-in `sdpa`, and a switch that takes a model's calls to fa.

`import fa.torch`, which imports PyTorch, is for these; `fa.attention` takes
tensors without it, also in functions under torch.compile. docs/pytorch.md has
examples. The operators are `torch.ops.fa.attention` and
`torch.ops.fa.attention_with_lse`.
"""

from fa import _torch_compile  # noqa: F401 (registers the operators)
from fa._torch_routing import (
    SdpaStatistics,
    disable_sdpa,
    enable_sdpa,
    sdpa_statistics,
    use_sdpa,
)
from fa._torch_sdpa import sdpa

__all__ = [
    "SdpaStatistics",
    "disable_sdpa",
    "enable_sdpa",
    "sdpa",
    "sdpa_statistics",
    "use_sdpa",
]
