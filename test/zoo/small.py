# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small configurations of any model of transformers, by the names of their attributes.

A rule gives a size to each name that it matches. Two sizes of one configuration that
must agree (a hidden size and a projection's) agree because one rule gives both the same
number. OVERRIDES has the families for which names alone are not enough.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from transformers import PreTrainedConfig

HIDDEN, HEADS, HEAD_DIM, LAYERS, VOCABULARY, IMAGE = 64, 4, 16, 2, 160, 64
MOST_LAYERS = 4
"""Of a model whose layers are of several kinds."""

Rule = tuple[re.Pattern[str], int]


def _rules(*pairs: tuple[str, int]) -> list[Rule]:
    return [(re.compile(f"^(?:{pattern})$"), size) for pattern, size in pairs]


KEPT = re.compile(
    "num_hidden_layers_per.*|.*_start_layer|chunk_size_feed_forward|.*_index|.*layer_id|"
    ".*kernel_size|.*_ratio.*|.*_stride|.*feature_layer|num_labels|vocab_offset|"
    ".*head_in_index|max_window_layers|num_layers_per.*|.*_cost|.*loss.*|head_init_scale|"
    "num_feat_extract_layers|patch_embed_hidden_size|char_vocab_size|keypoint_decoder_dim"
)
"""Names that no rule may change."""

SCALARS = _rules(
    (".*vocab(?:ulary)?_size.*|.*vocab_sizes?", VOCABULARY),
    (".*(?:rope|rotary)_(?:head_)?dim", 8),
    ("qk_nope_head_dim", 8),
    (".*head_(?:dim|size).*|d_kv|dim_head|kv_channels|d_head|.*dim_head|.*_d_head", HEAD_DIM),
    (".*lora_rank|.*_rank", 32),
    ("mamba_n_heads|mamba_num_heads", 8),
    (".*n_groups|n_group|topk_group|num_expert_group", 1),
    ("(?:.*_)?d_state|state_size|.*_state_(?:size|dim)", 16),
    (".*_num_key_heads", 2),
    (".*(?:key_value|kv)_heads|.*attention_groups", 2),
    (".*heads|n_heads?|.*_n_heads?", HEADS),
    ("index_topk", 8),
    (".*experts_per_tok(?:en)?|moe_top_?k|moe_k|top_?k(?:_experts)?|.*_topk", 2),
    (".*shared_experts?", 1),
    (".*experts", 4),
    ("num_kv_shared_layers", 0),
    ("first_k_dense_replace|num_dense_layers", 1),
    ("num_residual_layers|num_nextn_predict_layers", 1),
    ("num_pos_feats", 32),
    (".*(?:^|_)layers|n_layers?|(?:.*_)?depth|num_blocks|.*_num_blocks|.*n_layers?", LAYERS),
    (".*(?:intermediate|ffn|feed_?forward|inner).*(?:size|dim|dims)?", 128),
    (".*(?:ffn_dim|mlp_dim|d_ff|d_inner|mlp_hidden_size|hidden_size_mlp)", 128),
    ("sliding_window(?:_size)?|attention_chunk_size|local_attention|.*window_size", 8),
    ("attention_window|chunk_size|mamba_chunk_size|ssm_chunk_size|block_size", 8),
    ("max_source_positions", 32),
    (".*position_embeddings|n_positions|n_ctx|max_target_positions|max_seq_len.*", 128),
    ("num_conv_pos_embeddings", 16),
    ("num_conv_pos_embedding_groups", 4),
    (".*codebook_size|num_embeddings|num_codevectors_per_group", 32),
    (".*num_codebooks|num_quantizers", 4),
    ("num_queries|num_query_tokens|.*_queries|num_latents|.*num_latents", 8),
    ("image_size|pretrain_image_size|img_size|input_image_size", IMAGE),
    ("upsample_groups", HIDDEN),
    ("num_mel_bins|n_mels", 32),
    ("max_length", 64),
    (
        ".*(?:hidden|projection|proj|embedding|embed|emb|model|out|output|text|vision|pooler)_(?:size|dim)",
        HIDDEN,
    ),
    ("(?:.*_)?hidden_size(?:_.*)?|d_model|n_embd|dim|width|(?:.*_)?embed_dim|hidden_dim", HIDDEN),
    (".*fusion_hidden_size|classifier_proj_size|codevector_dim|adapter_out_dim|d_embed", HIDDEN),
    (".*_channels", HIDDEN),
    (".*num_denoising|prompt_length", 8),
    (".*_dim|.*_hidden_units|.*_size", HIDDEN),
)
"""The size that a number gets that is above it, by the first pattern that matches."""

LISTS = _rules(
    ("depths|.*num_blocks|.*blocks?_repeats?|num_layers|.*stage_num_layers|depth", 1),
    (".*heads", 2),
    (".*(?:hidden_sizes|embed_dims?|dims?|widths?|hidden_size|hidden_channels)", 32),
    (".*_channels|conv_dim|tdnn_dim", 32),
    (".*image_size", IMAGE),
    (".*experts", 4),
    (".*intermediate_size", 64),
)
"""The same for each number of a list."""

SMALL_CHANNELS = {"num_channels", "in_channels", "audio_channels", "input_channels", "in_chans"}

_RESNET = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 16, 32, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_DETR = {
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {**_RESNET, "out_features": ["stage4"]},
}
_DEFORMABLE = {**_DETR, "backbone_config": {**_RESNET, "out_indices": [2, 3, 4]}}

OVERRIDES: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "conditional_detr": _DETR,
    "dab-detr": _DETR,
    "deformable_detr": _DEFORMABLE,
    "detr": _DETR,
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "cvt": {"depth": [1, 2, 3]},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lilt": {"hidden_size": 96},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "mistral4": {"head_dim": 16},
    "mllama_vision_model": {"intermediate_layers_indices": [0], "vision_output_dim": 128},
    "perceiver": {
        "d_latents": 64,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    "sam2_hiera_det_model": {"hidden_size": 96},
    "table-transformer": _DETR,
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"attention_hidden_size": 128, "attention_head_dim": 32},
}
"""Attributes of a model type, where names alone give a model that cannot be built."""

FILLED = {
    "head_dim": HEAD_DIM,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "vocab_size": VOCABULARY,
    "prediction_length": 8,
    "sliding_window": 8,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "topk_group": 1,
    "n_group": 1,
}
"""For attributes whose default is None, where a model needs a number."""

SECTIONS = ([2, 3, 3], [1, 1, 2])
"""Of rotary frequencies for time, height and width: all of a head dim, and half of it."""

WAYS: list[dict[str, Any]] = [{}, {"fill": True}, *({"fill": True, "section": s} for s in SECTIONS)]
"""Options of `small` to try, the plainest first."""

LAYERS_NAMES = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "depth")
STAGES = ("depths", "hidden_sizes", "stage_in_channels")
"""Lists of one element a stage: a model that has one is a pyramid."""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _limit(rules: list[Rule], name: str) -> int | None:
    return next((size for pattern, size in rules if pattern.match(name)), None)


def _token(name: str, value: int) -> int:
    """An id below the vocabulary's size: those of usual tokens stay, others get one by name."""
    return value if value < 10 else 100 + zlib.crc32(name.encode()) % 50


def _patch(value: int) -> int:
    return 16 if value >= 8 else value


def _scalar(name: str, value: int) -> int:
    if name.endswith(("_token_id", "_token_index", "_token_ids")):
        return _token(name, value)
    if name in SMALL_CHANNELS or KEPT.match(name):
        return value
    if name in ("patch_size", "vit_patch_size"):
        return _patch(value)
    limit = _limit(SCALARS, name)
    return value if limit is None else min(value, limit)


def _list(name: str, values: list[Any]) -> list[Any]:
    if name.endswith(("_token_id", "_token_ids")):
        return [_token(name, value) for value in values]
    if name == "patch_size":
        return [_patch(value) for value in values]
    if name == "mrope_section":
        return [2, 3, 3] if len(values) == 3 else values
    limit = None if KEPT.match(name) else _limit(LISTS, name)
    return values if limit is None else [min(value, limit) for value in values]


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    return {str(key): _value(str(key), value) for key, value in values.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, PreTrainedConfig):
        return small(value)
    if _is_count(value):
        return _scalar(name, value)
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(item, PreTrainedConfig) for item in value):
            return [small(item) for item in value]
        if all(_is_count(item) for item in value):
            return type(value)(_list(name, list(value)))
    if isinstance(value, dict) and name.startswith("rope"):
        return {
            key: _nested(inner) if isinstance(inner, dict) else _value(key, inner)
            for key, inner in value.items()
        }
    return value


def _per_layer(config: PreTrainedConfig, count: int) -> dict[str, list[Any]]:
    """Lists of one element a layer, and never of a size a stage."""
    return {
        name: list(value)
        for name, value in vars(config).items()
        if isinstance(value, (list, tuple))
        and len(value) == count
        and not name.startswith("_")
        and (_limit(LISTS, name) is None or name.endswith("intermediate_size"))
    }


def _chosen(lists: dict[str, list[Any]], count: int) -> list[int]:
    """The first layer of each kind, at least LAYERS and at most MOST_LAYERS."""
    kinds = list(zip(*(map(str, lists[name]) for name in lists if "type" in name)))
    kinds = kinds or [("",)] * count
    first = [at for at, kind in enumerate(kinds) if kind not in kinds[:at]][:MOST_LAYERS]
    others = [at for at in range(count) if at not in first]
    return sorted(first + others[: max(0, LAYERS - len(first))])


def _layers(config: PreTrainedConfig) -> dict[str, Any]:
    """The number of layers, and the lists of one element a layer, of a few of them."""
    own = [type(config).attribute_map.get(name, name) for name in LAYERS_NAMES]
    name = next((name for name in own if _is_count(vars(config).get(name))), None)
    count = 0 if name is None else getattr(config, name)
    if name is None or count <= LAYERS:
        return {}
    lists = _per_layer(config, count)
    chosen = _chosen(lists, count)
    return {
        name: len(chosen),
        **{key: _value(key, [values[at] for at in chosen]) for key, values in lists.items()},
    }


def _agreeing(config: PreTrainedConfig) -> dict[str, Any]:
    """Sizes that depend on more than their own name."""
    at = vars(config)
    result: dict[str, Any] = {}
    for heads, groups in (
        ("num_attention_heads", "num_key_value_heads"),
        ("encoder_num_attention_heads", "encoder_num_key_value_heads"),
        ("decoder_num_attention_heads", "decoder_num_key_value_heads"),
    ):
        if _is_count(at.get(heads)) and at.get(heads) == at.get(groups):
            result[groups] = min(at[heads], HEADS)
    if "qk_rope_head_dim" in at and _is_count(at.get("head_dim")):
        result["head_dim"] = 8  # of rotary frequencies
    if _is_count(at.get("window_size")) and any(name in at for name in STAGES):
        result["window_size"] = 2  # of the last stage's 2 x 2
    elif _is_count(at.get("window_size")) and "patch_size" in at and at["window_size"] >= IMAGE:
        result["window_size"] = IMAGE  # pixels
    return result


def _outputs(config: PreTrainedConfig, is_pyramid: bool) -> dict[str, Any]:
    """Which stages a backbone gives, where it gives several; a layer for each of them."""
    outputs = getattr(config, "out_indices", None)
    if (
        not isinstance(outputs, (list, tuple))
        or len(outputs) < 2
        or "_out_indices" not in vars(config)
    ):
        return {}
    if is_pyramid or "num_hidden_layers" not in vars(config):
        return {"out_indices": list(outputs)}
    return {
        "out_indices": list(range(1, len(outputs) + 1)),
        "num_hidden_layers": max(LAYERS, len(outputs)),
    }


def _filled(config: PreTrainedConfig, section: list[int] | None) -> dict[str, Any]:
    at = vars(config)
    result = {name: size for name, size in FILLED.items() if name in at and at[name] is None}
    rope = at.get("rope_parameters")
    if section is not None and isinstance(rope, dict):
        result["rope_parameters"] = {**_nested(rope), "mrope_section": section}
    return result


def small(
    config: PreTrainedConfig, fill: bool = False, section: list[int] | None = None
) -> PreTrainedConfig:
    """A small configuration of the same class.

    Args:
        config: one as its class makes it.
        fill: gives the numbers of FILLED to attributes that are None.
        section: one of SECTIONS, for rotary parameters, where it fills.
    """
    # A configuration inside another one need not be as its class makes it.
    defaults = vars(type(config)())
    changed: dict[str, Any] = {}
    is_pyramid = any(isinstance(vars(config).get(name), (list, tuple)) for name in STAGES)
    for name, value in vars(config).items():
        if name.startswith("_") or name in ("id2label", "label2id"):
            continue
        if isinstance(value, PreTrainedConfig):
            changed[name] = small(value, fill, section)
            continue
        new = value if is_pyramid and name == "num_layers" else _value(name, value)
        if name in defaults and new != defaults[name]:
            changed[name] = new
    if not is_pyramid:
        changed.update(_layers(config))
    changed.update(_agreeing(config))
    changed.update(_outputs(config, is_pyramid))
    if fill:
        changed.update(_filled(config, section))
    changed.update(OVERRIDES.get(config.model_type, {}))
    return type(config)(**changed)
