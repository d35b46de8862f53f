# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training with `attn_implementation="fa"`, judged by the model's own attention in float64.

The rule is right.py's for gradients: the tokens' losses, or a gradient of a parameter, may be
three times as far from those of the eager model in float64 as those of the eager model in the
type of the test are, and 1e-5 of the largest element more.
"""

from __future__ import annotations

import pytest
import right

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

import fa.transformers as fa_transformers  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from fa._torch import op  # noqa: E402
from libraries import DEVICE  # noqa: E402
from models import IDS, ONES, WINDOW, Calls, inputs_of, model_of  # noqa: E402

pytestmark = pytest.mark.ci

MODELS = {"gpt2": 2, "llama": 2, "t5": 6, "gemma2": 2, "gpt_oss": 2}
"""How many calls of attention each has: causal masks; grouped heads; position biases, whose
gradient is the table's; softcap with windows; sinks, whose gradient is a parameter's."""
ATTENTION = {
    "gpt2": ("c_attn.weight", "c_attn.bias"),
    "llama": ("q_proj", "k_proj", "v_proj"),
    "t5": ("relative_attention_bias", "SelfAttention.q", "EncDecAttention.k"),
    "gemma2": ("q_proj", "k_proj", "v_proj"),
    "gpt_oss": ("sinks", "k_proj.bias", "v_proj"),
}
"""Parts of the names of parameters that only attention's gradients reach, of each model."""
PADDING = ONES.clone()
PADDING[0, -WINDOW + 2 :] = 0  # in every window a key is seen: in float64 eager is NaN else


@pytest.fixture(autouse=True)
def takes_all(request, monkeypatch):
    """Tests are of what fa takes wherever they run; but one, of what it leaves."""
    if request.node.get_closest_marker("leaves") is None:
        monkeypatch.setattr(fa_transformers, "slower", lambda *call: None)


def trained_model(name, implementation, dtype=torch.float32, **options):
    """A model to train; in float64 experts are multiplied one by one, as nothing else takes it."""
    model = model_of(name, implementation, dtype, **options)
    if name == "gpt_oss" and dtype == torch.float64:
        model.set_experts_implementation("eager")
    return model


def batch_of(name):
    """What a model is called with."""
    inputs = inputs_of(name, PADDING)
    return {**inputs, "use_cache": False}


def losses_of(name, logits):
    """The loss of each token that has a next one; of T5 of each of the decoder's."""
    targets = IDS[:, :20] if name == "t5" else IDS.masked_fill(PADDING == 0, -100)[:, 1:]
    logits = logits[:, : targets.shape[1]].float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")


def gradients_of(name, model, call=None):
    """The tokens' losses, and the gradients of their mean by the parameters' names."""
    model.zero_grad(set_to_none=True)
    losses = losses_of(name, (model if call is None else call)(**batch_of(name)).logits)
    losses.mean().backward()
    return {"losses": losses.detach(), **{key: x.grad for key, x in model.named_parameters()}}


def assert_right(got, own, exact):
    """Values by name: fa's, the eager model's in the same type, and in float64."""
    assert got.keys() == own.keys() == exact.keys()
    for name, expected in exact.items():
        assert (got[name] is None) == (expected is None), name
        if expected is None:
            continue
        numbers = [x[name].detach().double().numpy() for x in (got, own, exact)]
        error = right.NAIVE_GRADIENT_ERRORS * right.difference(numbers[1], numbers[2])
        limit = error + right.RELATIVE["float32"] * float(abs(numbers[2]).max())
        share = right.share(numbers[0], numbers[2], max(limit, 1e-30), exact_zeros=False)
        assert share <= 1, f"{name}: {share:.3g} times the limit {limit:.3g}"


def eager_gradients(name):
    """The eager model's in float32 and in float64."""
    types = (torch.float32, torch.float64)
    return [gradients_of(name, trained_model(name, "eager", dtype)) for dtype in types]


# --- What is computed -----------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    """Of a loss with respect to all parameters, by fa alone, without a matrix of the mask."""
    own, exact = eager_gradients(name)
    calls = Calls()
    got = gradients_of(name, trained_model(name, "fa"))
    assert calls.routed == MODELS[name] and not calls.fell_back and not calls.mask_tensors
    assert_right(got, own, exact)
    for part in ATTENTION[name]:
        found = [key for key in got if part in key]
        assert found, part
        for key in found:
            assert got[key].abs().max() > 0, key
            with pytest.raises(AssertionError, match="times the limit"):
                assert_right({**got, key: got[key] * 1.02}, own, exact)


@pytest.mark.parametrize("name", MODELS)
def test_steps(name):
    """The losses of some steps, each with the parameters that the one before left."""
    losses = []
    for implementation, dtype in (
        ("fa", torch.float32),
        ("eager", torch.float32),
        ("eager", torch.float64),
    ):
        model = trained_model(name, implementation, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        values = {}
        for step in range(4):
            optimizer.zero_grad()
            values[f"step {step}"] = losses_of(name, model(**batch_of(name)).logits)
            values[f"step {step}"].mean().backward()
            optimizer.step()
        losses.append(values)
    assert_right(*losses)
    assert losses[0]["step 3"].mean() < losses[0]["step 0"].mean() - 0.01


@pytest.mark.parametrize("name", MODELS)
def test_autocast(name):
    """Under torch.autocast what reaches fa has several types: it is converted as by PyTorch."""
    with torch.autocast("cpu", torch.bfloat16):
        own = gradients_of(name, trained_model(name, "eager"))
        calls = Calls()
        got = gradients_of(name, trained_model(name, "fa"))
    assert calls.routed == MODELS[name] and not calls.fell_back and not calls.mask_tensors
    assert all(x is None or x.dtype == torch.float32 for x in got.values())
    assert_right(got, own, eager_gradients(name)[1])


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints(name, use_reentrant):
    """What is computed again has the same bits, the weights that dropout drops among it."""
    dropout = {"gpt2": "attn_pdrop", "t5": "dropout_rate"}.get(name, "attention_dropout")
    found = []
    for has_checkpoints in (False, True):
        model = trained_model(name, "fa", **{dropout: 0.25}).train()
        if has_checkpoints:
            options = {"use_reentrant": use_reentrant}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
            assert model.is_gradient_checkpointing
        calls = Calls()
        torch.manual_seed(4)
        found.append(gradients_of(name, model))
        # The forward is computed twice.
        assert calls.routed == MODELS[name] * (1 + has_checkpoints) and not calls.fell_back
    for key, gradient in found[0].items():
        if gradient is not None:
            # Reentrant ones add up what a shared parameter gets in another order, and PyTorch
            # what an expert's gets on a GPU.
            is_in_order = not use_reentrant and (DEVICE == "cpu" or ".experts." not in key)
            limit = 0.0 if is_in_order else 1e-6 * float(gradient.abs().max())
            assert (found[1][key] - gradient).abs().max() <= limit, key


def test_dropout():
    """It is on in training alone, and its gradient is that of what was dropped."""
    model = trained_model("gpt2", "fa", attn_pdrop=0.5, embd_pdrop=0.0, resid_pdrop=0.0)
    model.train()

    def loss():
        return float(losses_of("gpt2", model(**batch_of("gpt2")).logits).mean())

    with torch.no_grad():
        torch.manual_seed(1)
        assert loss() != loss()
    weight = model.transformer.h[0].attn.c_attn.weight
    torch.manual_seed(1)
    gradient = gradients_of("gpt2", model)["transformer.h.0.attn.c_attn.weight"]
    step = 1e-2 * gradient / gradient.norm()
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            weight += sign * step
            torch.manual_seed(1)
            ends.append(loss())
            weight -= sign * step
    assert (ends[0] - ends[1]) / 2e-2 == pytest.approx(float(gradient.norm()), rel=2e-2)


@pytest.mark.parametrize("name", MODELS)
def test_compiled(name):
    """Without graph breaks, forward and backward, through AOTAutograd."""
    torch._dynamo.reset()
    calls, model = Calls(), trained_model(name, "fa")
    if name == "gpt_oss":  # whose gradient of grouped experts does not compile for GPUs
        model.set_experts_implementation("batched_mm")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    got = gradients_of(name, model, compiled)
    assert calls.routed == MODELS[name] and not calls.fell_back and not calls.mask_tensors
    assert_right(got, *eager_gradients(name))


# --- What records nothing ---------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", MODELS)
def test_inference_keeps_its_short_way(name, mode, monkeypatch):
    """Nothing of autograd's is called where nothing is recorded, though weights could be."""

    def refuse(*given):
        raise AssertionError("a gradient was recorded")

    inputs = batch_of(name)
    model = trained_model(name, "fa")
    expected = model(**inputs).logits
    for name_of_way in ("call", "record_eager"):
        monkeypatch.setattr(op, name_of_way, refuse)
    with mode():
        logits = model(**inputs).logits
    assert logits.grad_fn is None and torch.equal(logits, expected)
    with pytest.raises(AssertionError, match="a gradient was recorded"):
        model(**inputs)


# --- What is left to PyTorch --------------------------------------------------------------


@pytest.mark.leaves
@pytest.mark.parametrize("name", MODELS)
def test_short_sequences_are_left(name):
    """Plain attention of 40 float32 tokens is PyTorch's, and said once; what PyTorch would
    write a matrix of scores for is fa's."""
    fa_transformers._said.clear()
    own, exact = eager_gradients(name)
    calls = Calls()
    if name in ("gpt2", "llama"):
        with pytest.warns(UserWarning, match="records a gradient.*no_grad"):
            got = gradients_of(name, trained_model(name, "fa"))
        assert calls.fell_back == {"gradient": 2} and calls.routed == 0
        assert calls.mask_tensors == {"fell back": 1}
    else:
        got = gradients_of(name, trained_model(name, "fa"))
        # The decoder of T5 looks at the encoder without a bias of its own.
        assert calls.routed == MODELS[name] - sum(calls.fell_back.values())
        assert calls.routed >= 2
    assert_right(got, own, exact)


@pytest.mark.leaves
def test_long_sequences_are_taken():
    """By the table in fa._torch.sdpa: a mask function in float32 from 512 keys on."""
    inputs = {"input_ids": IDS.repeat(1, 13)[:, :512], "use_cache": False}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    model = trained_model("llama", "fa", max_position_embeddings=512)
    for padded, length, routed in ((True, 512, 2), (False, 512, 2), (True, 511, 0)):
        inputs["attention_mask"][0, -3:] = int(not padded)
        calls = Calls()
        model(**{key: x[:, -length:] if key != "use_cache" else x for key, x in inputs.items()})
        assert calls.routed == routed, (padded, length)
        assert calls.fell_back == ({} if routed else {"gradient": 2})


def test_a_frozen_model_records_nothing():
    """Nothing of it requires a gradient, though gradients are on."""
    model = trained_model("llama", "fa").requires_grad_(False)
    calls = Calls()
    out = model(input_ids=IDS)
    assert not out.logits.requires_grad and calls.routed == 2
