# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs for any model of transformers, from the signature of its forward."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

BATCH, LENGTH, TARGETS, SAMPLES, FRAMES = 2, 24, 12, 8000, 64
FIRST_ID, LAST_ID = 10, 90
"""Ids of usual tokens: special ones of small configurations are outside."""

Inputs = dict[str, Any]


def parameters_of(model: PreTrainedModel) -> dict[str, inspect.Parameter]:
    """Those of a model's forward."""
    return dict(inspect.signature(model.forward).parameters)


def configs_of(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """A configuration and those inside it."""
    yield config
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield from configs_of(value)


def number(config: PreTrainedConfig, names: tuple[str, ...], default: int) -> int:
    """The first number that a configuration, or one inside it, has for one of these names."""
    for inner, name in itertools.product(configs_of(config), names):
        value = getattr(inner, name, None)
        if isinstance(value, (list, tuple)) and value and name != "in_channels":
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


class _Maker:
    """Tensors by the names of arguments: a list of alternatives for each."""

    def __init__(self, config: PreTrainedConfig, names: set[str]) -> None:
        self.config, self.names = config, names
        self._random = torch.Generator().manual_seed(3)
        self.channels = number(config, ("num_channels", "in_channels", "in_chans"), 3)
        self.image = number(config, ("image_size", "img_size", "pretrain_image_size"), 64)
        self.patch = number(config, ("patch_size",), 16)
        self.frames = number(config, ("num_frames", "frames_per_clip"), 2)
        self.mels = number(
            config,
            ("num_mel_bins", "n_mels", "input_feat_size", "input_feat_per_channel", "feature_size"),
            32,
        )
        self.hidden = number(config, ("hidden_size", "d_model"), 64)

    def floats(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._random)

    def ids(self, *shape: int) -> Tensor:
        vocabulary = max(number(self.config, ("vocab_size",), LAST_ID), 2)
        last = min(LAST_ID, vocabulary)
        return torch.randint(min(FIRST_ID, last // 2), last, shape, generator=self._random)

    def boxes(self) -> Tensor:
        corner = self.ids(BATCH, LENGTH, 2)
        return torch.cat((corner, corner + self.ids(BATCH, LENGTH, 2) // 2), -1)

    def pixels(self) -> list[Tensor]:
        size, patch = self.image, self.patch
        time = number(self.config, ("temporal_patch_size",), 1)
        patches = self.floats(BATCH * 16, self.channels * time * patch * patch)
        if {"grid_thw", "image_grid_thw", "spatial_shapes", "pixel_position_ids"} & self.names:
            each = patches.unflatten(0, (BATCH, 16))
            twice = torch.cat((patches, patches), 1)
            square = patches.view(-1, self.channels, time * patch, patch)
            if "spatial_shapes" in self.names:
                return [each, patches, square]
            return [patches, each, twice, square[:, :, :patch]]
        video = self.floats(BATCH, self.frames, self.channels, size, size)
        image = self.floats(BATCH, self.channels, size, size)
        if "aspect_ratio_ids" in self.names:
            return [self.floats(BATCH, 1, 4, self.channels, size, size)]
        return [image, video, self.floats(BATCH, 3, 2 * size, 2 * size)]

    def features(self) -> list[Tensor]:
        frames = 2 * number(self.config, ("max_source_positions",), FRAMES // 2)
        mels = self.mels
        return [
            self.floats(BATCH, mels, frames),
            self.floats(BATCH, frames, mels),
            self.floats(mels, frames * BATCH),
            self.floats(BATCH, frames, 160),
            self.floats(BATCH, 1, frames, mels),
        ]

    def samples(self) -> list[Tensor]:
        length = number(self.config, ("max_length",), FRAMES)
        return [
            self.floats(BATCH, SAMPLES),
            self.floats(BATCH, length, self.mels),
            self.floats(BATCH, 1, SAMPLES),
        ]

    def series(self) -> list[Tensor]:
        length = number(self.config, ("context_length",), 32)
        lags = getattr(self.config, "lags_sequence", None) or [0]
        channels = number(self.config, ("num_input_channels",), 1)
        return [self.floats(BATCH, length + max(lags)), self.floats(BATCH, length, channels)]

    def future(self, *last: int) -> list[Tensor]:
        return [self.floats(BATCH, number(self.config, ("prediction_length",), 8), *last)]

    def states(self) -> list[Tensor]:
        frames = self.floats(BATCH, LENGTH, self.hidden)
        return [self.pixels()[0], frames] if "grid_thw" in self.names else [frames]

    def grid(self) -> list[Tensor]:
        return [torch.tensor([[1, 4, 4]] * BATCH), torch.tensor([[4, 4]] * BATCH)]

    def masks(self) -> list[Tensor]:
        return [torch.ones(BATCH, size, dtype=torch.long) for size in (LENGTH, FRAMES, SAMPLES)]


def _table(make: _Maker) -> dict[str, Callable[[], list[Any]]]:
    """Alternatives for each argument that is known, the usual one first."""
    ids = lambda: [make.ids(BATCH, LENGTH)]  # noqa: E731
    codes = number(make.config, ("num_codebooks", "num_quantizers"), 4)
    grid = {name: make.grid for name in ("grid_thw", "image_grid_thw", "spatial_shapes")}
    grid |= {name: make.grid for name in ("target_sizes", "grid_hw", "grid_hws")}
    past = [torch.ones(BATCH, x.shape[1]) for x in make.series()]
    return {
        "input_ids": lambda: [
            make.ids(BATCH, LENGTH),
            make.ids(BATCH, LENGTH, codes) % 30,
            make.ids(BATCH, codes, LENGTH) % 30,
        ],
        "decoder_input_ids": lambda: [
            make.ids(BATCH, TARGETS),
            make.ids(BATCH, TARGETS, number(make.config, ("num_channels",), 4)) % 30,
        ],
        "bbox": lambda: [make.boxes()],
        "pixel_values": make.pixels,
        "pixel_values_videos": lambda: [
            make.floats(BATCH, make.frames, make.channels, make.image, make.image)
        ],
        "flattened_patches": lambda: [make.floats(BATCH, 16, 2 + 3 * make.patch**2).abs()],
        "pixel_attention_mask": lambda: [torch.ones(BATCH, 16, dtype=torch.long)],
        "pixel_position_ids": lambda: [
            torch.stack((torch.arange(16) % 4, torch.arange(16) // 4), -1).expand(BATCH, 16, 2)
        ],
        "input_features": make.features,
        "audio_features": make.features,
        "input_features_mask": lambda: [torch.ones(BATCH, FRAMES, dtype=torch.long)],
        "mask": lambda: [torch.ones(BATCH, FRAMES, dtype=torch.bool)],
        "context": lambda: [make.floats(BATCH, LENGTH, make.hidden)],
        "merge_sizes": lambda: [torch.tensor([2] * BATCH)],
        "aspect_ratio_ids": lambda: [torch.ones(BATCH, 1, dtype=torch.long)],
        "aspect_ratio_mask": lambda: [torch.ones(BATCH, 1, 4, dtype=torch.long)],
        "prompt_pixel_values": make.pixels,
        "prompt_masks": make.pixels,
        "qformer_input_ids": lambda: [make.ids(BATCH, LENGTH)],
        "padding_mask": lambda: [torch.ones(BATCH, SAMPLES, dtype=torch.bool)],
        "past_values_padding": lambda: [torch.zeros(BATCH, 32)],
        "freq": lambda: [torch.zeros(BATCH, 1, dtype=torch.long)],
        "feature_lens": lambda: [torch.tensor([FRAMES, FRAMES])],
        "input_values": make.samples,
        "decoder_input_values": lambda: [make.floats(BATCH, TARGETS, make.mels)],
        "audio_codes": lambda: [make.ids(BATCH, codes, LENGTH) % 30],
        "audio_values": make.samples,
        "past_values": make.series,
        "past_time_features": lambda: [
            make.floats(BATCH, x.shape[1], number(make.config, ("num_time_features",), 0))
            for x in make.series()
        ],
        "past_observed_mask": lambda: past,
        "future_values": lambda: make.future(),
        "future_time_features": lambda: make.future(number(make.config, ("num_time_features",), 0)),
        "hidden_states": make.states,
        "sequence_output": make.states,
        "inputs_embeds": lambda: [make.floats(BATCH, LENGTH, make.hidden)],
        "query_embeds": lambda: [make.floats(BATCH, 8, make.hidden)],
        "encoder_hidden_states": lambda: [make.floats(BATCH, 16, make.hidden)],
        "attention_mask": make.masks,
        "codes": ids,
        "visual_feats": lambda: [
            make.floats(BATCH, 8, number(make.config, ("visual_feat_dim",), 64))
        ],
        "visual_pos": lambda: [make.floats(BATCH, 8, 4).abs()],
        **grid,
    }


PARTNERS = (
    "bbox",
    "decoder_input_ids",
    "decoder_input_values",
    "spatial_shapes",
    "pixel_attention_mask",
    "pixel_position_ids",
    "future_values",
    "past_time_features",
    "past_observed_mask",
    "future_time_features",
    "visual_feats",
    "visual_pos",
    "encoder_hidden_states",
)
"""Arguments that models need with their main input, though they have a default."""

BOTH = ("input_ids", "pixel_values", "input_features", "input_values")
"""Arguments of models that compare two kinds of input."""


def _names(model: PreTrainedModel, known: set[str]) -> list[list[str]]:
    """Sets of arguments to try, of those that are known."""
    parameters = parameters_of(model)
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    main = [model.main_input_name] if model.main_input_name in parameters else []
    partners = [name for name in PARTNERS if name in parameters]
    both = [name for name in BOTH if name in parameters]
    sets = [
        main + required + partners,
        main + required,
        both + required + partners,
        both + required,
        required,
        ["input_ids"] + required,
        ["pixel_values"] + required,
        ["inputs_embeds"] + required,
    ]
    if "decoder_input_ids" in parameters and model.config.is_encoder_decoder:
        sets.insert(1, main + required + ["decoder_input_ids"])
    if not model.can_generate() and len(both) > 1:
        sets.insert(0, both + required + [x for x in partners if "decoder" not in x])
        sets.insert(0, both + required)
    kept = [tuple(dict.fromkeys(n for n in s if n in parameters and n in known)) for s in sets]
    return [list(names) for names in dict.fromkeys(kept) if names]


def candidates(model: PreTrainedModel) -> Iterator[Inputs]:
    """Inputs to try for a model, the likeliest first."""
    make = _Maker(model.config, set(parameters_of(model)))
    table = _table(make)
    for names in _names(model, set(table)):
        lists = [table[name]() for name in names]
        for number_of, values in enumerate(itertools.product(*lists)):
            if number_of < 8:
                yield dict(zip(names, values))


def paddings(inputs: Inputs, side: str) -> tuple[str, Tensor] | None:
    """The name of what is padded and its mask, the first entry's 5/12 padded; or None.

    Args:
        inputs: a model's.
        side: "left" or "right".
    """
    for name in ("input_ids", "input_features", "input_values"):
        if name not in inputs:
            continue
        value = inputs[name]
        length = value.shape[1]
        if name != "input_values" and value.dim() == 3:  # channels on either side
            length = max(value.shape[1:])
        mask = torch.ones(BATCH, length, dtype=torch.long)
        padded = length * 5 // 12
        if side == "left":
            mask[0, :padded] = 0
        else:
            mask[0, length - padded :] = 0
        return name, mask
    return None
