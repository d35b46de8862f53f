# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fa as an attention implementation of Hugging Face's transformers, from version 5 on.

    import fa.transformers

    fa.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fa")

fa then computes attention of models that use transformers' attention interface: grouped
heads, softcap, sinks, position biases, windows, chunks, packed sequences, padding, dynamic
and static caches. It traces their mask functions and makes no matrix of a mask. PyTorch
computes calls that fa does not take, and `statistics` counts them. docs/transformers.md has
more.

Importing this module imports transformers 5.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fa import scores as fa_scores
from fa._attention import attention
from fa._run.call import Call
from fa._torch import compile as _compile  # noqa: F401 (registers the operators)
from fa._torch import op
from fa._torch.sdpa import MAX_HEAD_DIM, slower, training_of, why_left
from fa._torch.statistics import Calls, listed
from fa._trace.trace import key_length, query_length, trace
from fa._ways import short

try:
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers import __version__ as _version
    from transformers.masking_utils import causal_mask_function, sdpa_mask
    from transformers.utils.import_utils import is_tracing
except ImportError as _reason:
    raise ImportError(
        f"expected transformers 5 with its attention interface for fa.transformers, got: {_reason}; "
        "pip install 'transformers>=5'"
    ) from _reason

Mask = Callable[[Any, Any, Any, Any], Any]

# --- Counts of calls -------------------------------------------------------------------


@dataclass
class Statistics(Calls):
    """Counts of the attention calls of models.

    In compiled code a call is counted when it is compiled, not when it runs.

    Attributes:
        routed: number of calls that fa computed.
        fell_back: number of calls that PyTorch computed, by reason, as in
            `fa.torch.SdpaStatistics`.
        mask_tensors: number of matrices [B, 1, Sq, Sk] made of mask functions, by reason:
            "fell back", "not traced", "read" by the model itself, or "cropped".
        own_attention: number of models made for fa whose own code computes attention
            without the attention interface, by class.
    """

    mask_tensors: Counter[str] = field(default_factory=Counter)
    own_attention: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        text = super().__str__()
        if self.mask_tensors:
            text += f", mask tensors: {listed(self.mask_tensors)}"
        if self.own_attention:
            text += f", models with attention of their own: {listed(self.own_attention)}"
        return text


_lock = threading.Lock()
_total = Statistics()
_said: set[str] = set()


def statistics() -> Statistics:
    """The counts of all calls so far in the process; a copy."""
    with _lock:
        own = (_total.fell_back, _total.mask_tensors, _total.own_attention)
        return Statistics(_total.routed, *map(Counter, own))


@torch.compiler.assume_constant_result
def _count(reason: str | None) -> None:
    with _lock:
        _total.count(reason)
    if reason in _REMEDIES:
        _say(
            f"{reason} of attention",
            f'attn_implementation="fa" left a call of attention to PyTorch for the reason '
            f"{reason!r}: {_REMEDIES[reason]}",
        )


_REMEDIES = {
    "gradient": "the call records a gradient, and PyTorch computes forward and backward in less "
    "time (see docs/pytorch.md); call the model under torch.no_grad() for inference",
    "dtype": "fa takes float16, bfloat16 and float32, and float64 on the CPU; load the model in "
    "one of them",
    "head dim": "fa takes head dims up to 256; PyTorch computes larger ones",
    "deterministic": "on a GPU fa does not compute gradients of sinks or of a position bias with the "
    "same bits each time; leave out torch.use_deterministic_algorithms to have fa compute the call",
}
"""Remedies for the reasons that are worth a warning, which is given once for each."""


@torch.compiler.assume_constant_result
def _count_matrix(reason: str) -> None:
    with _lock:
        _total.mask_tensors[reason] += 1


def _say(key: str, text: str) -> None:
    """Warns once for each key in the process."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    warnings.warn(text, UserWarning, stacklevel=2)


# --- Masks -------------------------------------------------------------------------------


class AttentionMask:
    """A mask [B, 1, Sq, Sk] as a function, which models pass to their layers for `fa`.

    Attention uses the function. Other code sees the tensor of the implementation "eager",
    made at its first use: numbers that are added to scores, 0 where a key is seen and the
    type's smallest number elsewhere. Logical operations and PyTorch's
    scaled_dot_product_attention see its booleans, true where a key is seen. An
    AttentionMask exists wherever "eager" has a tensor, so None means to every model that
    all keys are seen.

    Args:
        function: mask(b, h, q_idx, kv_idx) of indices that count from 0.
        arguments: the arguments of transformers' `sdpa_mask` that make the tensor.
        dtype: the type of the numbers.
        is_causal_alone: whether the causal mask alone says everything, or a single query
            sees all keys, so that attention needs no function.
    """

    ndim = 4

    def __init__(
        self,
        function: Mask,
        arguments: dict[str, Any],
        dtype: torch.dtype = torch.float32,
        is_causal_alone: bool = False,
    ) -> None:
        self.function = function
        self.dtype = dtype
        self.is_causal_alone = is_causal_alone
        self.is_known = False
        """Whether the function was traced."""
        self._arguments = arguments
        self._seen: Tensor | None = None
        self._numbers: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """[B, 1, Sq, Sk]."""
        at = self._arguments
        return torch.Size((at["batch_size"], 1, at["q_length"], at["kv_length"]))

    @property
    def device(self) -> torch.device:
        """The device of the arrays that the function reads."""
        return torch.device(self._arguments["device"])

    def size(self, dim: int | None = None) -> Any:
        """The shape or one size, as of a tensor."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The rank, 4."""
        return 4

    def __len__(self) -> int:
        return self.shape[0]

    def contiguous(self, *args: Any, **options: Any) -> AttentionMask:
        """Itself."""
        return self

    def to(self, *args: Any, **options: Any) -> Any:
        """Itself if device and type stay the same, else a tensor."""
        for asked in (*args, *options.values()):
            if asked is None or isinstance(asked, bool) or asked is self.dtype:
                continue
            place = torch.device(asked) if isinstance(asked, (str, int, torch.device)) else None
            own = self.device
            if place is None or place.type != own.type or place.index not in (None, own.index):
                source = self.seen if torch.bool in (asked, *options.values()) else self.numbers
                return source("read").to(*args, **options)
        return self

    def bool(self) -> Tensor:
        """The booleans, as a tensor."""
        return self.seen("read")

    def seen(self, reason: str) -> Tensor:
        """The booleans [B, 1, Sq, Sk], made once; true where a key is seen.

        Args:
            reason: the key that `Statistics.mask_tensors` counts.
        """
        if self._seen is None:
            _count_matrix(reason)
            self._seen = sdpa_mask(
                **self._arguments, allow_is_causal_skip=False, allow_is_bidirectional_skip=False
            )
        return self._seen

    def numbers(self, reason: str) -> Tensor:
        """The numbers [B, 1, Sq, Sk] that are added to scores, of the mask's type, made once.

        Args:
            reason: the key that `Statistics.mask_tensors` counts.
        """
        if self._numbers is None:
            seen = self.seen(reason)
            zero = torch.zeros((), dtype=self.dtype, device=seen.device)
            self._numbers = torch.where(seen, zero, torch.finfo(self.dtype).min)
        return self._numbers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        tensor = self.seen("read") if name in _LOGICAL else self.numbers("read")
        return getattr(tensor, name)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "").strip("_")
        takes_seen = name in _LOGICAL or name in _TAKE_A_MASK

        def tensor(mask: AttentionMask) -> Tensor:
            return mask.seen("read") if takes_seen else mask.numbers("read")

        given = torch.utils._pytree.tree_map_only(cls, tensor, (args, kwargs or {}))
        return function(*given[0], **given[1])


_LOGICAL = frozenset(
    "and rand or ror xor rxor invert all any logical_and logical_or logical_xor logical_not "
    "bitwise_and bitwise_or bitwise_xor bitwise_not".split()
)
"""The functions of booleans, without the underscores of operators."""
_TAKE_A_MASK = frozenset(("where", "masked_fill", "masked_fill_", "scaled_dot_product_attention"))
"""Functions that take a mask beside tensors."""


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: AttentionMask, *others: Any) -> Any:
        tensor = self.seen("read") if name in _LOGICAL else self.numbers("read")
        return getattr(tensor, f"__{name}__")(*others)

    return apply


for _name in (
    "and rand or ror xor rxor invert getitem neg add radd sub rsub mul rmul truediv rtruediv "
    "eq ne lt le gt ge".split()
):
    setattr(AttentionMask, f"__{_name}__", _operator(_name))


def _at_offsets(
    mask: Mask, padding: Tensor | None, q_offset: Any, kv_offset: Any, ends_together: bool
) -> Mask:
    """Turns a mask of positions into one of indices, and hides padding.

    Args:
        mask: a mask function of positions in the sequence.
        padding: booleans [B, >= Sk] by position, false for padding; or None.
        q_offset: the position of the first query: a tensor of one element, or None for 0.
        kv_offset: the position of the first key, likewise.
        ends_together: the last query and the last key have the same position, so the
            lengths imply q_offset and no number changes from one token to the next.
    """

    def seen(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        query = q_idx if q_offset is None else q_idx + q_offset
        if ends_together:
            query = q_idx + (key_length() - query_length())
            query = query if kv_offset is None else query + kv_offset
        key = kv_idx if kv_offset is None else kv_idx + kv_offset
        result = mask(b, h, query, key)
        return result if padding is None else result & padding[b, key]

    return seen


def _offset(offset: Any, device: Any) -> Tensor | None:
    """A position in the form that the kernel reads: None for 0, else an int32 tensor.

    A tensor is copied, because a static cache increments its own in place before attention
    uses the mask.
    """
    if isinstance(offset, Tensor):
        return offset.to(device=device, dtype=torch.int32, copy=True)
    return None if offset == 0 else torch.full((), offset, dtype=torch.int32, device=device)


def _is_causal_alone(
    padding: Tensor | None,
    q_length: Any,
    kv_length: Any,
    q_offset: Any,
    kv_offset: Any,
    local_size: int | None,
) -> bool:
    """Whether the causal mask from the upper left suffices, or no mask for a single query.

    Reads values, except in compiled code.
    """
    if local_size is not None and kv_length >= local_size:
        return False
    if is_tracing(padding) or (isinstance(q_offset, Tensor) and is_tracing(q_offset)):
        # Sizes say enough where there is nothing to read.
        if padding is not None or isinstance(q_offset, Tensor):
            return False
    if not isinstance(q_offset, Tensor) and q_offset + q_length == kv_offset + kv_length:
        if q_length == 1 or q_length == kv_length:
            return padding is None or bool(padding[:, kv_offset : kv_offset + kv_length].all())
    # The first tokens of a static cache: later keys are beyond the causal mask.
    if kv_offset == 0 and 1 < q_length <= kv_length and bool(q_offset == 0):
        return padding is None or bool(padding[:, :q_length].all())
    return False


def _is_all(padding: Tensor | None, kv_length: Any, local_size: int | None) -> bool:
    """Whether every query sees every key, if the only mask function is a window."""
    if local_size is not None and kv_length >= local_size:
        return False
    return padding is None or (not is_tracing(padding) and bool(padding.all()))


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Mask = causal_mask_function,
    attention_mask: Tensor | AttentionMask | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> AttentionMask | None:
    """The mask of a model's layers, with the signature of transformers' AttentionMaskInterface.

    Args:
        batch_size: B.
        q_length: Sq.
        kv_length: Sk.
        q_offset: the first query's position, a number or (static caches) a tensor of one
            element.
        kv_offset: the first key's position, likewise.
        mask_function: mask(b, h, q_idx, kv_idx) of positions.
        attention_mask: bool [B, <= kv_offset + Sk], false where a key is padding.
        local_size: the size of a window or a chunk in tokens, which hides nothing if it
            exceeds Sk.
        allow_is_causal_skip: whether the function may be left out for a causal mask that
            starts at the upper left, or for one query that sees all keys.
        allow_is_bidirectional_skip: whether the result may be None if all keys are seen.
        device: the device on which masks are read.
        kwargs: arguments of other implementations; `dtype` is the type of the layers' inputs.

    Returns:
        An `AttentionMask`, or None where "eager" has no mask either.
    """
    if isinstance(attention_mask, AttentionMask):
        return attention_mask  # made before the forward, as `generate` does
    has_numbers = not isinstance(q_offset, Tensor) and not isinstance(kv_offset, Tensor)
    ends_together = has_numbers and q_offset != 0 and q_offset + q_length == kv_offset + kv_length
    q_position = None if ends_together else _offset(q_offset, device)
    kv_position = _offset(kv_offset, device)
    arguments = {
        "batch_size": batch_size,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": q_position if isinstance(q_offset, Tensor) else q_offset,
        "kv_offset": kv_position if isinstance(kv_offset, Tensor) else kv_offset,
        "mask_function": mask_function,
        "attention_mask": attention_mask,
        "device": device,
        "use_vmap": kwargs.get("use_vmap", False),
    }
    padding = attention_mask
    if padding is not None and kv_offset + kv_length > padding.shape[-1]:
        missing = kv_offset + kv_length - padding.shape[-1]
        padding = torch.nn.functional.pad(padding, (0, missing))
    is_causal_alone = allow_is_causal_skip and _is_causal_alone(
        padding, q_length, kv_length, q_offset, kv_offset, local_size
    )
    if allow_is_bidirectional_skip and _is_all(padding, kv_length, local_size):
        return None
    function = _at_offsets(mask_function, padding, q_position, kv_position, bool(ends_together))
    return AttentionMask(function, arguments, kwargs.get("dtype", torch.float32), is_causal_alone)


# --- Attention ------------------------------------------------------------------------------


@functools.lru_cache(64)
def _known_softcap(cap: float) -> Any:
    return fa_scores.softcap(cap)


def _softcap(cap: Any) -> Any:
    """A softcap function, the same one for the same number, so that fa need not trace it again."""
    is_known = isinstance(cap, (int, float)) and not torch.compiler.is_compiling()
    return _known_softcap(cap) if is_known else fa_scores.softcap(cap)


def _read(values: Tensor) -> Mask:
    """A mask function that reads a matrix, which broadcasts to [B, Hq, Sq, Sk]."""
    single = tuple([True if size == 1 else False for size in values.shape])

    def element(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        at = (b, h, q_idx, kv_idx)[4 - len(single) :]
        return values[tuple([0 if one else index for one, index in zip(single, at)])]

    return element


def _added(values: Tensor) -> Any:
    """A score function that adds a matrix."""
    element = _read(values)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + element(b, h, q_idx, kv_idx)

    return score_mod


def _rows(matrix: Tensor) -> Tensor:
    """The matrix with contiguous rows, copied if necessary."""
    return matrix.contiguous() if matrix.stride(-1) != 1 else matrix


_NOT_TAKEN = {
    "output_attentions": "the weights are never made",
    "indices": "keys chosen by an indexer are not taken as a list",
    "block_indices": "blocks chosen by an indexer are not taken as a list",
    "sinks": "sinks for each query are not taken",
    "cache": "paged caches are not taken",
}
"""Arguments of some models that fa refuses, with the reason."""


def _refuse(module: torch.nn.Module, kwargs: dict[str, Any]) -> None:
    """Raises NotImplementedError for arguments that change the result and that fa does not take."""
    for name, why in _NOT_TAKEN.items():
        given = kwargs.get(name)
        if given is not None and given is not False:
            kind = "True" if given is True else f"a {type(given).__name__}"
            raise NotImplementedError(
                f'expected attention without {name} for attn_implementation="fa", got {kind} from '
                f"{type(module).__name__}: {why}; "
                'use model.set_attn_implementation("eager") for this model'
            )


def _reason(
    tensors: tuple[Tensor | None, ...],
    others: tuple[Any, ...],
    options: tuple[Any, ...],
    has_function: bool,
    has_softcap: bool,
) -> str | None:
    """The reason to leave a call to PyTorch, a key of `Statistics.fell_back`, or None.

    Only this function decides: a call is left if `fa.torch.sdpa` does not take it, or if
    PyTorch computes it in less time.

    Args:
        tensors: query, key, value and the matrix that is added or hides.
        others: sinks and position bias.
        options: dropout, is_causal and scaling.
        has_function: whether there is a mask function.
        has_softcap: whether there is a softcap.
    """
    reason = why_left(tensors, (*options, True), others)
    if reason is None and not any(x is not None for x in others) and not has_softcap:
        # With these PyTorch would write the matrix of scores.
        return slower(*tensors[:3], None, training_of(tensors, *options[:2], has_function))
    return reason


def _known(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scaling: float | None
) -> Tensor | None:
    """The short way of a usual call that fa computes faster than PyTorch; None for any other.

    `_reason` has nothing against a call that this takes, so it need not be asked. That saves
    host time, for which the GPU waits: a model's layers repeat one call many times.
    """
    if torch.compiler.is_compiling():
        return None
    if max(query.shape[-1], value.shape[-1]) > MAX_HEAD_DIM:
        return None
    training = training_of((query, key, value, None), 0.0, is_causal)
    if slower(query, key, value, None, training) is not None:
        return None
    return short(Call(query, key, value, is_causal=is_causal, scale=scaling), None)


def _by_torch(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    matrix: Tensor | None,
    is_causal: bool,
    scaling: float | None,
    dropout: float,
    softcap: float | None,
    s_aux: Tensor | None,
    position_bias: Tensor | None,
) -> Tensor:
    """The call computed by PyTorch: scaled_dot_product_attention if possible, else the formula."""
    if softcap is None and s_aux is None:
        by_sdpa = AttentionInterface()["sdpa"]
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        return by_sdpa(module, query, key, value, matrix, position_bias=position_bias, **options)[0]
    groups = query.shape[1] // key.shape[1]
    if groups != 1:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    weights = (
        query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    )
    if softcap is not None:
        weights = softcap * torch.tanh(weights / softcap)
    if position_bias is not None:
        weights = weights + position_bias
    if matrix is None and is_causal:
        matrix = torch.ones(weights.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if matrix is not None:
        is_bool = matrix.dtype == torch.bool
        least = torch.finfo(weights.dtype).min
        weights = weights.masked_fill(~matrix, least) if is_bool else weights + matrix
    if s_aux is not None:
        sinks = s_aux.reshape(1, -1, 1, 1).expand(*weights.shape[:-1], 1)
        weights = torch.cat((weights, sinks.to(weights.dtype)), -1)
    weights = torch.softmax(weights, -1, dtype=torch.float32).to(query.dtype)
    weights = weights if s_aux is None else weights[..., :-1]
    weights = torch.nn.functional.dropout(weights, dropout)
    return (weights @ value).transpose(1, 2).contiguous()


def _with_sinks(out: Tensor, lse: Tensor, s_aux: Tensor) -> Tensor:
    """Attention with one more key for each head, with score s_aux and value 0.

    The sum of weights grows from e^lse to e^lse + e^s_aux, so the output gets the factor
    sigmoid(lse - s_aux), computed in the type of lse. A row that sees no key (lse -inf) stays
    0, also without a sink (s_aux -inf).

    Args:
        out: the output without sinks, [B, Hq, Sq, Dv].
        lse: its log-sum-exp, [B, Hq, Sq], float32, or float64 if the query is.
        s_aux: the sinks, [Hq].
    """
    least = torch.finfo(lse.dtype).min
    sinks = s_aux.reshape(1, -1, 1).to(lse.dtype).clamp(min=least)
    return (out * torch.sigmoid(lse - sinks)[..., None]).to(out.dtype)


def _split_mask(
    module: torch.nn.Module, mask: AttentionMask | Tensor | None, queries: Tensor, key: Tensor
) -> tuple[bool, Mask | None, Tensor | None]:
    """A layer's mask in one of three forms: only causal, a function, or a matrix.

    The function serves the sizes that the mask was made for, the matrix all others.

    Raises:
        ValueError: the layer has more keys than its mask.
    """
    batch, length, keys = queries.shape[0], queries.shape[2], key.shape[2]
    if isinstance(mask, AttentionMask):
        sizes = mask.shape
        if keys > sizes[-1]:
            raise ValueError(
                f'expected a mask of all keys of a layer for attn_implementation="fa", got one of '
                f"{sizes[-1]} keys for {keys} keys in {type(module).__name__}, which adds keys "
                'after the mask was made; use model.set_attn_implementation("eager") for this model'
            )
        if mask.is_causal_alone and sizes[-2] == length:
            return length > 1, None, None
        # A function reads arrays of its mask's own batch size and lengths.
        if sizes[0] == batch and sizes[-2] == length and sizes[-1] == keys:
            return False, mask.function, None
        mask = mask.seen("cropped")
    # Models give more keys than there are, and mean the first ones.
    if mask is not None and mask.dim() > 0 and mask.shape[-1] > keys:
        mask = mask[..., :keys]
    return False, None, mask


def _is_causal_layer(module: torch.nn.Module) -> bool:
    """Whether a layer without a mask is causal.

    A layer with a configuration belongs to a model, for which None means no mask, as with
    "eager". Any other layer has an attribute `is_causal`, as for PyTorch's
    scaled_dot_product_attention.
    """
    return getattr(module, "config", None) is None and bool(getattr(module, "is_causal", False))


def _can_be_traced(function: Mask) -> bool:
    """Whether fa can trace a mask function; if not, warns once for each function."""
    try:
        trace(mask_mod=function)
    except Exception as reason:
        text = str(reason)
        _say(
            text.partition("; ")[0],
            "fa can't trace a mask function of this model and reads a matrix [B, 1, Sq, Sk] made "
            f"of it: {type(reason).__name__}: {text}",
        )
        return False
    return True


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | AttentionMask | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a model's layer, with the signature of transformers' AttentionInterface.

    Args:
        module: the layer; its attribute `is_causal` counts if the argument is None and the
            layer has no configuration.
        query: [B, Hq, Sq, D].
        key: [B, H, Sk, D]; H divides Hq.
        value: [B, H, Sk, Dv].
        attention_mask: a result of `mask`, or a tensor that broadcasts to
            [B, Hq, Sq, Sk]: bool, true where a key is seen, or a float that is added.
        scaling: factor of the products; 1/sqrt(D) if None.
        dropout: the probability of dropping a weight.
        is_causal: without a mask and with more than one query, query i sees keys j <= i.
        softcap: scores become softcap * tanh(score / softcap).
        s_aux: sinks [Hq]: the score of one more key of each head, whose value is 0.
        position_bias: [1 or B, Hq, Sq, Sk], added to the scores.
        kwargs: arguments of other implementations.

    Returns:
        (output [B, Sq, Hq, Dv], row-major; None instead of the weights).

    Raises:
        NotImplementedError: output_attentions, indices of sparse attention, sinks of each
            query, paged caches.
        ValueError: the layer has more keys than its mask.
    """
    _refuse(module, kwargs)
    queries, keys = query.shape[2], key.shape[2]
    is_alone, function, matrix = _split_mask(module, attention_mask, query, key)
    if is_causal is None and attention_mask is None:
        is_causal = _is_causal_layer(module)
    is_causal = is_alone or bool(queries > 1 and attention_mask is None and is_causal)
    others = (function, matrix, softcap, s_aux, position_bias)
    if dropout == 0.0 and all([x is None for x in others]):
        known = _known(query, key, value, is_causal, scaling)
        if known is not None:
            _count(None)
            return known.transpose(1, 2).contiguous(), None
    if position_bias is not None and position_bias.shape[-1] > keys:
        position_bias = position_bias[..., :keys]
    query, key, value = op.autocast(query, key, value)
    reason = _reason(
        (query, key, value, matrix),
        (s_aux, position_bias),
        (dropout, is_causal, scaling),
        function is not None,
        softcap is not None,
    )
    _count(reason)
    if reason is not None:
        if function is not None:
            matrix = attention_mask.seen("fell back")
        options = (is_causal, scaling, dropout, softcap, s_aux, position_bias)
        return _by_torch(module, query, key, value, matrix, *options), None
    if query.shape[0] != key.shape[0]:  # learned queries, one for all of a batch
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (x.expand(batch, -1, -1, -1) for x in (query, key, value))
    score_mods = []
    if softcap is not None:
        score_mods.append(_softcap(softcap))
    if position_bias is not None:
        score_mods.append(_added(_rows(position_bias)))
    if matrix is not None:
        if matrix.dtype == torch.bool:
            function = _read(_rows(matrix))
        else:
            score_mods.append(_added(_rows(matrix)))
    score_mod = None
    if score_mods:
        score_mod = score_mods[0] if len(score_mods) == 1 else fa_scores.compose(*score_mods)
    options = {
        "score_mod": score_mod,
        "is_causal": is_causal,
        "scale": scaling,
        "dropout_p": dropout,
        "return_lse": s_aux is not None,
    }
    is_of_model = isinstance(attention_mask, AttentionMask) and attention_mask.function is function
    if is_of_model and not torch.compiler.is_compiling():
        out = _with_mask(attention_mask, query, key, value, options)
    else:
        out = attention(query, key, value, mask_mod=function, **options)
    if s_aux is not None:
        out = _with_sinks(*out, s_aux)
    return out.transpose(1, 2).contiguous(), None


def _with_mask(
    mask: AttentionMask, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> Any:
    """Attention with the model's mask function, or with its matrix if fa cannot trace that."""
    try:
        out = attention(query, key, value, mask_mod=mask.function, **options)
    except Exception:
        if mask.is_known or _can_be_traced(mask.function):
            raise
        mask.function = _read(mask.seen("not traced"))
        out = attention(query, key, value, mask_mod=mask.function, **options)
    mask.is_known = True
    return out


# --- The one line -----------------------------------------------------------------------------


_names: set[str] = set()
"""The names of fa in transformers."""


def _asks_interface(kind: type) -> bool:
    """Whether a class of models can use transformers' attention interface.

    The modules of the class and its bases decide. Either one of them uses the interface and
    has no table of layers by the implementations' names, or none has its own attention, as
    in a model made of other models.
    """
    modules = {base.__module__ for base in kind.__mro__ if issubclass(base, PreTrainedModel)}
    modules.discard(PreTrainedModel.__module__)
    namespaces = [(name, vars(sys.modules[name])) for name in modules if name in sys.modules]
    if any("ALL_ATTENTION_FUNCTIONS" in names for _, names in namespaces):
        tables = [x for _, names in namespaces for x in names.values() if type(x) is dict]
        return not any(isinstance(table.get("eager"), type) for table in tables)
    return not any(
        isinstance(value, type) and value.__module__ == name and "Attention" in value.__name__
        for name, names in namespaces
        for value in names.values()
    )


def _leave_own_attention() -> None:
    """Makes models whose attention uses no interface compute as without fa.

    transformers accepts a registered name for every class. A class that ignores the name
    would add no mask, or one of another form, to its scores. A class that looks up layers by
    the name would find none.
    """
    choose = PreTrainedModel.get_correct_attn_implementation
    if getattr(choose, "leaves_own_attention", False):
        return

    @functools.wraps(choose)
    def chosen(self: Any, requested_attention: str | None, *args: Any, **options: Any) -> str:
        if requested_attention not in _names or _asks_interface(type(self)):
            return choose(self, requested_attention, *args, **options)
        name = type(self).__name__
        own = choose(self, None, *args, **options)
        with _lock:
            _total.own_attention[name] += 1
        more = "; fa.torch.use_sdpa() has fa compute its calls" if own == "sdpa" else ""
        _say(
            f"{name} has attention of its own",
            f"attention of {name} is its own code, which asks no attention interface: with "
            f'attn_implementation={requested_attention!r} it computes as with "{own}"{more}',
        )
        return own

    chosen.leaves_own_attention = True
    PreTrainedModel.get_correct_attn_implementation = chosen


def register(name: str = "fa") -> None:
    """Makes fa an attention implementation of transformers: `attn_implementation="fa"`.

    It applies to `from_pretrained`, `from_config` and `model.set_attn_implementation` in the
    whole process. A second call changes nothing. Models whose attention uses no attention
    interface compute as without fa; a warning and `statistics` name them.

    Args:
        name: the name of the implementation.

    Raises:
        ValueError: transformers has another implementation of that name.
        ImportError: transformers is too old for fa's mask interface.
    """
    missing = {"q_length", "q_offset"} - set(inspect.signature(sdpa_mask).parameters)
    if missing:
        raise ImportError(
            f"expected a transformers whose masks are made from q_length and q_offset, got "
            f"{_version}; pip install -U transformers"
        )
    for known, own in ((AttentionInterface(), attention_forward), (AttentionMaskInterface(), mask)):
        if name == "eager" or (name in known and known[name] is not own):
            raise ValueError(
                f"expected a name that transformers has no attention for, got {name!r}; "
                'take another one, like "fa"'
            )
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, mask)
    _names.add(name)
    _leave_own_attention()


__all__ = ["AttentionMask", "Statistics", "attention_forward", "mask", "register", "statistics"]
