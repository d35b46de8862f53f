# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of transformers made from configurations, and what became of their calls."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import fa.transformers as fa_transformers  # noqa: E402

transformers.logging.set_verbosity_error()
fa_transformers.register()

BATCH, LENGTH, WINDOW = 2, 40, 8
SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0}
IDS = torch.randint(5, 100, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
ONES = torch.ones_like(IDS)
RIGHT, LEFT = ONES.clone(), ONES.clone()
RIGHT[0, 27:] = 0
LEFT[0, :13] = 0


DECODERS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 16}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": WINDOW}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            **GROUPED,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "query_pre_attn_scalar": 1,
        },
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            **GROUPED,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**GROUPED, "head_dim": 16, "sliding_window": WINDOW, "num_local_experts": 4},
    ),
    "llama4": (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {
            **GROUPED,
            "head_dim": 16,
            "intermediate_size_mlp": 128,
            "num_local_experts": 2,
            "attention_chunk_size": WINDOW,
        },
    ),
}
T5 = {
    "vocab_size": 128,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
WHISPER = {
    "vocab_size": 128,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "num_mel_bins": 8,
    "max_source_positions": 50,
    "max_target_positions": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
VIT = {key: SMALL[key] for key in SMALL if key not in ("vocab_size", "max_position_embeddings")}
GPT2 = {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
OTHERS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "bert": ("BertModel", "BertConfig", SMALL),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "vit": ("ViTModel", "ViTConfig", {**VIT, "image_size": 32, "patch_size": 4}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
}


def model_of(name, implementation, dtype=torch.float32, **more):
    """The same weights for each implementation, no smaller than what softmax shows."""
    kind, config, options = {**DECODERS, **OTHERS}[name]
    options = {**options, **more}
    torch.manual_seed(1)
    config = getattr(transformers, config)(**options)
    model = getattr(transformers, kind)._from_config(config, attn_implementation=implementation)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if any(part in parameter_name for part in ("q_proj", "qkv_proj", ".query.")):
                parameter.mul_(20)  # weights far from uniform
            if "lm_head" in parameter_name or "shared" in parameter_name:
                parameter.copy_(torch.randn(parameter.shape) / 8)  # tokens that differ
            if "sinks" in parameter_name:
                parameter.copy_(torch.randn(parameter.shape))
    return model.eval().to(dtype)


def result_of(model, inputs):
    with torch.no_grad():
        out = model(**inputs)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def inputs_of(name, padding=None):
    generator = torch.Generator().manual_seed(3)
    if name == "vit":
        return {"pixel_values": torch.randn(BATCH, 3, 32, 32, generator=generator)}
    if name == "whisper":
        features = torch.randn(BATCH, 8, 100, generator=generator)
        return {"input_features": features, "decoder_input_ids": IDS[:, :20]}
    inputs = {"input_ids": IDS}
    if padding is not None:
        inputs["attention_mask"] = padding
    if name == "t5":
        inputs["decoder_input_ids"] = IDS[:, :20]
    return inputs


def error(got, expected, rows=None):
    difference = (got.float() - expected.float()).abs()
    return (difference if rows is None else difference[rows.bool()]).max().item()


class Calls:
    """What became of calls since it was made."""

    def __init__(self):
        self._before = fa_transformers.statistics()

    @property
    def routed(self):
        return fa_transformers.statistics().routed - self._before.routed

    @property
    def fell_back(self):
        return dict(fa_transformers.statistics().fell_back - self._before.fell_back)

    @property
    def mask_tensors(self):
        return dict(fa_transformers.statistics().mask_tensors - self._before.mask_tensors)
