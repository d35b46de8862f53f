# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa in PyTorch: `sdpa`, `flex_attention`, and a switch that takes a model's calls to fa.

`import fa.torch` imports PyTorch. `fa.attention` takes tensors without it, also under
torch.compile. docs/pytorch.md has examples. The operators in a compiled graph are
`torch.ops.fa.attention` and `torch.ops.fa.attention_with_lse`.
"""

from fa._torch import compile as _compile  # noqa: F401 (registers the operators)
from fa._torch.flex import flex_attention
from fa._torch.routing import (
    SdpaStatistics,
    disable_sdpa,
    enable_sdpa,
    sdpa_statistics,
    use_sdpa,
)
from fa._torch.sdpa import sdpa

__all__ = [
    "SdpaStatistics",
    "disable_sdpa",
    "enable_sdpa",
    "flex_attention",
    "sdpa",
    "sdpa_statistics",
    "use_sdpa",
]
