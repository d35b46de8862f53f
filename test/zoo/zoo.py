# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every model family of the installed transformers, with `attn_implementation="fa"` and "eager".

An entry is a model type of transformers' auto mappings, built small and random
(small.py), with inputs from its forward's signature (inputs.py), and asked for what
runs.py has. Each entry runs in a process of its own; `run` gives its verdict.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import json
import os
import resource
import select
import signal
import time
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import fa.transformers as fa_transformers
import torch
import transformers
from inputs import BATCH, Inputs, candidates
from runs import Run, error, forward, own_noise, runs_of
from small import WAYS, small
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

SECONDS, MEMORY = 180, 6 << 30
"""Limits of an entry's process."""
MOST_NOISE = 0.05
"""A difference above it is wrong, whatever eager's own noise is."""
VERDICTS = ("all", "part", "own", "none", "refused", "wrong", "not built")

MOST_CLASSES = 3
"""That are tried for a family until eager runs."""

# --- Families ---------------------------------------------------------------------------

DECODER = "+decoder"
"""Ends the name of an entry of an encoder that its configuration makes a decoder."""

PREFERRED = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING",
    "MODEL_FOR_KEYPOINT_MATCHING_MAPPING",
    "MODEL_MAPPING",
    "MODEL_FOR_BACKBONE_MAPPING",
)
"""Mappings whose class stands for a family that several have; the others follow."""

ROUTINGS: dict[str, str] = {
    "llama": "a plain decoder",
    "mistral": "a window",
    "gemma2": "softcap",
    "gpt_oss": "sinks",
    "llama4_text": "chunks",
    "bert": "an encoder",
    "t5": "an encoder and decoder with a position bias",
    "vit": "vision",
    "clip": "two towers",
    "hubert": "audio",
    "deberta-v2": "attention of the model's own, which never reaches the interface",
    "falcon": "a class chosen by the implementation's name",
    "bloom": "own arithmetic with the mask, of a decoder",
    "rembert": "own arithmetic with the mask, of an encoder",
    "deepseek_v4": "keys that the mask does not have",
    "deepseek_v32": "keys chosen by an indexer",
}
"""One cheap family for each way that attention takes, and the way: what CI runs."""


def _mappings() -> dict[str, Any]:
    names = [name for name in vars(modeling_auto) if name.endswith("_MAPPING")]
    ordered = [*PREFERRED, *sorted(set(names) - set(PREFERRED))]
    return {name: getattr(modeling_auto, name) for name in ordered if name in names}


def _types(mapping: Any) -> set[str]:
    return set(mapping._model_mapping)


def families() -> list[str]:
    """The entries of the installed transformers, by name."""
    encoders = _types(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING)
    encoders |= _types(modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING)
    decoders = _types(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING)
    both = [
        name + DECODER
        for name in encoders & decoders
        if hasattr(CONFIG_MAPPING[name], "is_decoder")
    ]
    return sorted([*CONFIG_MAPPING_NAMES, *both])


def _of_module(config: type[PreTrainedConfig]) -> type[PreTrainedModel] | None:
    """The first class of a configuration's own module that takes it."""
    name = config.__module__.replace(".configuration_", ".modeling_")
    try:
        found = vars(importlib.import_module(name)).values()
    except ImportError:
        return None
    for kind in found:
        is_model = inspect.isclass(kind) and issubclass(kind, PreTrainedModel)
        if is_model and getattr(kind, "config_class", None) is config:
            if kind.forward is not PreTrainedModel.forward and "PreTrained" not in kind.__name__:
                return kind
    return None


def classes_of(family: str) -> list[type[PreTrainedModel]]:
    """Classes that can stand for a family, the best first; none where it has no model.

    Args:
        family: one of `families`.
    """
    name = family.removesuffix(DECODER)
    config, mappings = CONFIG_MAPPING[name], _mappings()
    is_encoder = name in _types(modeling_auto.MODEL_FOR_MASKED_LM_MAPPING)
    first = "MODEL_MAPPING" if is_encoder else PREFERRED[0]
    first = "MODEL_FOR_CAUSAL_LM_MAPPING" if family.endswith(DECODER) else first
    found = []
    for mapping in (mappings[first], *mappings.values()):
        if name in _types(mapping):
            kind = mapping[config]
            found.append(kind[0] if isinstance(kind, (tuple, list)) else kind)
    found = found or [kind for kind in [_of_module(config)] if kind is not None]
    return list(dict.fromkeys(found))[:MOST_CLASSES]


# --- Models -----------------------------------------------------------------------------


def config_of(family: str, **way: Any) -> PreTrainedConfig:
    """A family's small configuration.

    Args:
        family: one of `families`.
        way: options of `small`.
    """
    config = small(CONFIG_MAPPING[family.removesuffix(DECODER)](), **way)
    if family.endswith(DECODER):
        config.is_decoder = True
    return config


def _fan_in(module: nn.Module, parameter: Tensor) -> int:
    if isinstance(module, nn.Embedding):
        return 1
    is_convolution = isinstance(module, nn.modules.conv._ConvNd)
    return parameter[0].numel() if is_convolution else parameter.shape[-1]


def _randomize(model: PreTrainedModel) -> None:
    """Weights with which attention is far from uniform, and nothing is left out by a zero."""
    random = torch.Generator().manual_seed(1)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(parameter.shape, generator=random)
            if parameter.dim() >= 2:
                gain = 1.0 if isinstance(module, nn.Embedding) else 1.2
                parameter.copy_(noise * gain * _fan_in(module, parameter) ** -0.5)
            elif "sink" in name:
                parameter.copy_(noise)
            elif parameter.numel() and parameter.abs().max() < 0.02:
                parameter.copy_(0.5 + 0.2 * noise if parameter.numel() == 1 else 0.2 * noise)


def model_of(
    kind: type[PreTrainedModel], config: PreTrainedConfig, implementation: str | None
) -> PreTrainedModel:
    """A model; its own random weights are the same for each implementation.

    Args:
        kind: its class.
        config: a small configuration, which is copied.
        implementation: of attention; None for transformers' choice.
    """
    torch.manual_seed(1)
    model = kind._from_config(copy.deepcopy(config), attn_implementation=implementation)
    return model.eval().float()


# --- Verdicts -----------------------------------------------------------------------------


@dataclass
class Entry:
    """What became of a family.

    Attributes:
        family: its name in transformers' auto mappings.
        verdict: one of VERDICTS.
        reason: of a verdict that is not "all", in a few words.
        model: the class.
        runs: the largest difference of each run; a text where there is none.
        seconds: that it took.
    """

    family: str
    verdict: str
    reason: str = ""
    model: str = ""
    runs: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class _Watch(TorchFunctionMode):
    """Counts softmax and attention of matrices that are not fa's.

    A softmax over experts or tokens has rank 2, or the batch as its first size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.own = 0
        self.inside = 0

    def attend(self, *args: Any, **options: Any) -> Any:
        """fa's implementation, during which nothing is counted."""
        self.inside += 1
        try:
            return fa_transformers.attention_forward(*args, **options)
        finally:
            self.inside -= 1

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if not self.inside and name in _ATTENTION and isinstance(args[0], Tensor):
            self.own += name != "softmax" or _is_of_scores(args[0])
        return function(*args, **(kwargs or {}))


_ATTENTION = ("softmax", "scaled_dot_product_attention", "multi_head_attention_forward")


def _is_of_scores(values: Tensor) -> bool:
    many = values.dim() >= 4 or (values.dim() == 3 and values.shape[0] > BATCH)
    return many and values.shape[-1] > 3


def _told(calls: fa_transformers.Statistics, said: list[str]) -> str:
    """What told a user that the model computes attention itself."""
    told = ["a warning"] if said else []
    told += ["a count of own attention"] if calls.own_attention else []
    told += [f"a count of masks {reason}" for reason in sorted(calls.mask_tensors)]
    return f"told by {' and '.join(told)}" if told else "no word of it"


def _reasons(calls: fa_transformers.Statistics, own: int, said: list[str]) -> list[str]:
    reasons = [f"PyTorch computed it: {reason}" for reason in sorted(calls.fell_back)]
    if own:
        reasons.append("attention of the model's own")
    if "not traced" in calls.mask_tensors:
        reasons.append("mask not traced")
    if own and not calls.routed:
        reasons.append(_told(calls, said))
    return reasons


def _verdict_of_right(
    calls: fa_transformers.Statistics, own: int, said: list[str]
) -> tuple[str, str]:
    reasons = _reasons(calls, own, said)
    if not calls.routed and not calls.fell_back:
        return ("own", "; ".join(reasons)) if own else ("none", "no attention by softmax")
    return ("part" if reasons else "all"), "; ".join(reasons)


def _said(caught: list[Any]) -> list[str]:
    texts = [str(one.message) for one in caught]
    return [text for text in texts if "attn_implementation=" in text or text.startswith("fa ")]


def _why(reason: BaseException) -> str:
    return f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"


@dataclass
class _Built:
    """A family's model under eager, and inputs that it takes."""

    kind: type[PreTrainedModel]
    config: PreTrainedConfig
    eager: PreTrainedModel
    inputs: Inputs


def _working(model: PreTrainedModel) -> tuple[Inputs, list[Tensor]]:
    """The first inputs that a model takes, and what it makes of them."""
    first: Exception | None = None
    runs = False
    for inputs in candidates(model):
        try:
            values = forward(inputs)(model)
        except Exception as reason:
            first = first or reason
            continue
        if any(x.isfinite().any() for x in values):
            return inputs, values
        runs = True
    if runs:
        raise ValueError("eager gives no finite number")
    raise first or ValueError("no input is known for its forward")


def _expected(
    model: PreTrainedModel, runs: dict[str, Run], entry: Entry
) -> dict[str, list[Tensor]]:
    """Eager's numbers of each run that it takes."""
    expected = {}
    for name, run in runs.items():
        try:
            values = run.compute(model)
            error(run, values, values)
            expected[name] = values
        except Exception as reason:
            entry.runs[name] = f"eager: {_why(reason)}"
    return expected


def _compare(
    built: _Built, ours: PreTrainedModel, entry: Entry, watch: _Watch
) -> dict[str, list[Tensor]]:
    """Fills the entry's runs, and its verdict if that is "refused" or "wrong".

    Returns:
        Of wrong runs, what fa computed.
    """
    runs = runs_of(built.eager, built.inputs)
    wrong, refused, numbers_of = [], [], {}
    for name, values in _expected(built.eager, runs, entry).items():
        try:
            with watch:
                got = runs[name].compute(ours)
        except Exception as reason:
            entry.runs[name] = _why(reason)
            refused.append(f"{_why(reason)} ({name})")
            continue
        entry.runs[name] = by = error(runs[name], got, values)
        if not by <= runs[name].tolerance:
            noise = own_noise(built.eager, runs[name], values)
            entry.runs[f"{name}: eager's own noise"] = noise
            if by > min(10 * noise, MOST_NOISE):
                wrong.append(f"{name} by {by:.1e}")
                numbers_of[name] = got
    if wrong:
        entry.verdict, entry.reason = "wrong", ", ".join(wrong)
    elif refused:
        entry.verdict, entry.reason = "refused", refused[0]
    return numbers_of


def _is_as_default(built: _Built, got: dict[str, list[Tensor]]) -> bool:
    """Whether what transformers takes by itself has fa's numbers where eager has others."""
    try:
        model = model_of(built.kind, built.config, None)
        model.load_state_dict(built.eager.state_dict())
        runs = runs_of(model, built.inputs)
        return all(
            error(runs[name], values, runs[name].compute(model)) <= runs[name].tolerance
            for name, values in got.items()
        )
    except Exception:
        return False


def _build(family: str) -> _Built:
    """The first class and configuration with which eager runs; raises the first reason."""
    first: Exception | None = None
    for kind, way in itertools.product(classes_of(family), WAYS):
        try:
            config = config_of(family, **way)
            eager = model_of(kind, config, "eager")
            with torch.no_grad():
                _randomize(eager)
            return _Built(kind, config, eager, _working(eager)[0])
        except Exception as reason:
            first = first or reason
    raise first or ValueError("no model class")


def entry_of(family: str) -> Entry:
    """The verdict on a family, computed in this process."""
    entry = Entry(family, "not built")
    try:
        built = _build(family)
    except Exception as reason:
        entry.reason = _why(reason)
        return entry
    entry.model = built.kind.__name__
    _judge(entry, built)
    return entry


def _judge(entry: Entry, built: _Built) -> None:
    """Fills a built family's verdict."""
    watch = _Watch()
    AttentionInterface.register("fa", watch.attend)
    before = fa_transformers.statistics()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ours = model_of(built.kind, built.config, "fa")
            ours.load_state_dict(built.eager.state_dict())
        except Exception as reason:
            entry.verdict, entry.reason = "refused", f"{_why(reason)} (made)"
            return
        wrong = _compare(built, ours, entry, watch)
    note = []
    if wrong and _is_as_default(built, wrong):
        entry.verdict, note = "not built", ["as by default, whose numbers eager does not have"]
    if entry.verdict != "not built":
        return
    after = fa_transformers.statistics()
    calls = fa_transformers.Statistics(
        after.routed - before.routed,
        after.fell_back - before.fell_back,
        after.mask_tensors - before.mask_tensors,
        after.own_attention - before.own_attention,
    )
    entry.verdict, reason = _verdict_of_right(calls, watch.own, _said(caught))
    entry.reason = "; ".join(filter(None, [reason, *note]))


# --- Processes ----------------------------------------------------------------------------


def prepare() -> None:
    """Registers fa, with nothing left to PyTorch for its speed; silences transformers."""
    transformers.logging.set_verbosity(50)
    fa_transformers.register()
    fa_transformers.slower = lambda *call: None
    torch.set_num_threads(1)


def _child(family: str, write: int) -> None:
    """Writes the verdict and ends the process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    os.write(write, json.dumps(asdict(entry_of(family))).encode())
    os._exit(0)


def _read(read: int, seconds: float) -> bytes | None:
    """Everything that a process writes; None if it takes longer."""
    end, parts = time.monotonic() + seconds, []
    while (left := end - time.monotonic()) > 0:
        if not select.select([read], [], [], left)[0]:
            break
        part = os.read(read, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def run(family: str) -> Entry:
    """The verdict on a family, computed in a forked process.

    Args:
        family: one of `families`.
    """
    start = time.monotonic()
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            _child(family, write)
        finally:
            os._exit(1)
    os.close(write)
    text = _read(read, SECONDS)
    if text is None:
        os.kill(process, signal.SIGKILL)
    os.close(read)
    _, status = os.waitpid(process, 0)
    if text:
        entry = Entry(**json.loads(text))
    elif text is None:
        entry = Entry(family, "not built", f"longer than {SECONDS} s")
    else:
        entry = Entry(family, "refused", f"the process ended with status {status}")
    entry.seconds = round(time.monotonic() - start, 2)
    return entry


def counts(entries: list[Entry]) -> Counter[str]:
    """The number of entries of each verdict."""
    return Counter(entry.verdict for entry in entries)


def families_without_row(table_text: str) -> list[str]:
    """Families of the installed transformers that a stored table doesn't name.

    Args:
        table_text: the file's, or the table's alone; names are between backquotes.
    """
    named = set(table_text.replace("`", " ").replace(",", " ").split())
    return [family for family in families() if family not in named]
