# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of examples/training, with small sizes on the CPU: they run, and their checks fail
where attention is wrong."""

from __future__ import annotations

import gc
import json
import math
import pathlib
import random
import subprocess
import sys

import fa
import pytest
from libraries import DEVICE

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "training"
sys.path.insert(0, str(FOLDER))

import common  # noqa: E402
import long_context  # noqa: E402
import paper_benchmark  # noqa: E402

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(DEVICE != "cpu", reason="the small sizes are for the CPU"),
]

RIGHT = fa.attention


@pytest.fixture(scope="module")
def gpt2():
    pytest.importorskip("transformers", minversion="5")
    import gpt2

    return gpt2


@pytest.fixture(scope="module")
def learned_bias():
    pytest.importorskip("transformers", minversion="5")
    import learned_bias

    return learned_bias


def run(example, path, *options):
    """An example's exit status and what it wrote, a plot among that."""
    status = example.main([*options, "--out", str(path / "result.json")])
    assert (path / "result.png").stat().st_size > 1000
    return status, json.loads((path / "result.json").read_text())


class Times(torch.autograd.Function):
    """x, with a gradient that is multiplied with a factor: a mistake of a backward."""

    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return context.factor * gradient, None


# --- What they share ---------------------------------------------------------------------


def test_the_rule_is_that_of_gradients():
    import right

    assert (common.ERRORS, common.FLOOR) == (right.NAIVE_GRADIENT_ERRORS, right.ABSOLUTE)
    assert common.FLOOR == right.RELATIVE["float32"]
    assert common.limit(0.5, 2.0) == 1.5 + 2e-5


def test_results_are_json_with_numbers_that_are_none(tmp_path):
    common.write(tmp_path / "a" / "x.json", {"a": [math.nan, math.inf, 1.5, None]})
    assert json.loads((tmp_path / "a" / "x.json").read_text()) == {"a": ["nan", "inf", 1.5, None]}


@pytest.mark.parametrize("name", ["gpt2", "learned_bias", "long_context", "paper_benchmark"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_the_error_names_the_remedy(name, request):
    modules = {"long_context": long_context, "paper_benchmark": paper_benchmark}
    module = modules[name] if name in modules else request.getfixturevalue(name)
    options = [] if name == "paper_benchmark" else ["--device", "cuda"]
    remedy = "--dry-run" if name == "paper_benchmark" else "--device cpu"
    with pytest.raises(SystemExit, match=f"expected a GPU .* got none; .*{remedy}"):
        module.main(options)


# --- GPT-2 ---------------------------------------------------------------------------------

TINY = "--device cpu --layers 2 --heads 2 --context 64 --vocabulary 256 --batch 2 --steps 8".split()
TINY += ["--dtype", "float32", "--learning-rate", "2e-3"]


def test_gpt2_small_is_gpt2_small(gpt2):
    args = gpt2.parse(["--device", "cpu"])
    args.device = "meta"
    with torch.device("meta"):
        model = gpt2.model_of(gpt2.Implementation(gpt2.of_model(gpt2.by_fa)), "bfloat16", args)
    config = model.config
    assert (config.n_layer, config.n_head, config.n_embd, config.n_positions) == (12, 12, 768, 1024)
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gpt2_has_the_loss_of_the_reference(gpt2, tmp_path, dtype):
    status, result = run(gpt2, tmp_path, *TINY, "--dtype", dtype, "--compare")
    check, runs = result["check"], result["runs"]
    assert status == 0 and check["is_within"]
    assert set(runs) == {f"fa {dtype}", f"eager {dtype}", f"sdpa {dtype}", check["reference"]}
    assert check["reference"] == f"eager {gpt2.HIGHER[dtype]}"
    losses = runs[f"fa {dtype}"]["losses"]
    assert len(losses) == 8 and losses[-1] < losses[0] - 0.3
    # Another computation, that is to say: not the reference itself.
    assert 0 < check["largest_relative_differences"][f"fa {dtype}"] <= check["limit"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v, **options: RIGHT(q, k, v, **options | {"scale": 1.02 * options["scale"]}),
        lambda q, k, v, **options: RIGHT(q, k, v, **options | {"is_causal": False}),
        lambda q, k, v, **options: RIGHT(q.detach(), k, v, **options),
        lambda q, k, v, **options: RIGHT(q, Times.apply(k, 0.98), v, **options),
        lambda q, k, v, **options: RIGHT(q, k, Times.apply(v, 0.98), **options),
        lambda q, k, v, **options: math.nan * RIGHT(q, k, v, **options),
    ],
    ids=["scale", "mask", "no gradient of q", "gradient of k", "gradient of v", "nan"],
)
def test_gpt2_tells_wrong_attention(gpt2, tmp_path, monkeypatch, wrong):
    # Python's own library is another one elsewhere, and 2% of a gradient show more or less.
    words = random.Random(4).choices(["def", "return", "self", "None", "(x)", ":\n", "="], k=4000)
    monkeypatch.setattr(gpt2, "library_text", lambda: " ".join(words).encode())
    monkeypatch.setattr(gpt2, "door_trains", lambda args: False)
    monkeypatch.setattr(fa, "attention", wrong)
    status, result = run(gpt2, tmp_path, *TINY)
    assert status == 1 and not result["check"]["is_within"]


def test_gpt2_takes_the_door_of_transformers_where_it_trains(gpt2, tmp_path, monkeypatch):
    from fa import transformers as door

    monkeypatch.setattr(gpt2, "door_trains", lambda args: True)
    before = sum(door.statistics().fell_back.values()) + door.statistics().routed
    status, _ = run(gpt2, tmp_path, *TINY)
    calls = sum(door.statistics().fell_back.values()) + door.statistics().routed - before
    assert (status, calls) == (0, 8 * 2)


class Noted(torch.autograd.Function):
    """x, whose gradient's computation is in the profile as "note"."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        with torch.profiler.record_function("note"):
            return gradient.clone()


def test_gpt2_ranges_of_attention_cover_forward_and_backward(gpt2):
    def attend(query, key, value, scale):
        with torch.profiler.record_function("note"):
            return Noted.apply(gpt2.by_fa(Noted.apply(query), key, value, scale))

    args = gpt2.parse(TINY)
    implementation = gpt2.Implementation(gpt2.of_model(attend))
    events = gpt2.profile(implementation, gpt2.library_text(), args)

    def spans(name):
        found = [event for event in events if event.get("name") == name and "dur" in event]
        return [(event["ts"], event["ts"] + event["dur"]) for event in found]

    marks, notes = spans(gpt2.RANGE), spans("note")
    layers = args.layers * gpt2.PROFILED
    # Of each layer a forward, and in its backward the first and the last that there is to do.
    assert (len(marks), len(notes)) == (2 * layers, 3 * layers)
    assert all(any(a <= x and y <= b for a, b in marks) for x, y in notes)
    # Projections are the model's, before and after.
    products = spans("aten::addmm")
    assert products and not any(a <= x <= b for a, b in marks for x, _ in products)


def test_gpt2_share_of_attention_is_by_launches(gpt2):
    def launch(at, number, thread=1, kind="cuda_runtime"):
        return {"cat": kind, "ts": at, "tid": thread, "args": {"correlation": number}}

    def kernel(duration, number, kind="kernel"):
        return {"cat": kind, "ts": 1e6, "dur": duration, "args": {"correlation": number}}

    mark = {"cat": "user_annotation", "name": gpt2.RANGE, "ts": 10, "dur": 5, "tid": 1}
    events = [mark, {"ph": "M"}, mark | {"name": "another", "dur": 100}]
    events += [launch(12, 1), kernel(30, 1), launch(15, 2, kind="cuda_driver"), kernel(10, 2)]
    events += [launch(12, 3, thread=2), kernel(20, 3), launch(16, 4), kernel(15, 4, "gpu_memset")]
    events += [kernel(25, 5)]
    assert gpt2.share(events) == {"attention": 0.4, "unknown": 0.25}
    assert math.isnan(gpt2.share([])["attention"])


def test_gpt2_difference_is_infinite_without_numbers(gpt2):
    assert gpt2.difference([2.0, 3.0], [2.0, 4.0]) == 0.25
    assert gpt2.difference([2.0, math.nan], [2.0, 4.0]) == math.inf
    with pytest.raises(ValueError, match="zip"):
        gpt2.difference([2.0], [2.0, 4.0])


# --- Learned biases ------------------------------------------------------------------------

SHORT = "--device cpu --length 24 --batch 8 --vocabulary 8 --steps 60".split()


def test_learned_biases_are_learned(learned_bias, tmp_path):
    status, result = run(learned_bias, tmp_path, *SHORT)
    assert status == 0 and set(result["judged"]) == {"t5", "alibi"}
    for kind, found in result["judged"].items():
        losses = [result["runs"][kind][name]["losses"] for name in ("fa", "formula")]
        assert found["is_learned"] and found["last"] < 0.5 * losses[0][0]
        assert max(abs(x - y) for x, y in zip(*losses)) < 1e-3
    table = torch.tensor(result["runs"]["t5"]["fa"]["bias"])
    assert (table.argmax(0) == learned_bias.DISTANCES["t5"]).all()


@pytest.mark.parametrize("kind", ["t5", "alibi"])
def test_learned_biases_tell_a_wrong_gradient(learned_bias, tmp_path, monkeypatch, kind):
    right = learned_bias.by_fa

    def wrong(query, key, value, bias, kind):
        return right(query, key, value, Times.apply(bias, 0.99), kind)

    monkeypatch.setattr(learned_bias, "by_fa", wrong)
    status, result = run(learned_bias, tmp_path, *SHORT, "--bias", kind, "--steps", "30")
    assert status == 1 and not result["judged"][kind]["is_within"]


def test_learned_biases_tell_that_nothing_is_learned(learned_bias, tmp_path):
    status, result = run(learned_bias, tmp_path, *SHORT, "--bias", "t5", "--learning-rate", "0")
    assert status == 1 and not result["judged"]["t5"]["is_learned"]
    assert result["judged"]["t5"]["is_within"]


# --- Long context --------------------------------------------------------------------------


@pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_memory_is_linear(tmp_path):
    # In a process of its own, whose memory nobody else moves.
    command = [sys.executable, str(FOLDER / "long_context.py"), "--device", "cpu"]
    command += "--dtype float32 --lengths 512,1024,2048 --heads 4".split()
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "x.json")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "x.json").read_text())
    lengths, found = result["lengths"], result["bytes"]
    assert result["is_linear"] and (tmp_path / "x.png").exists()
    # Eager attention's two matrices of scores at least; fa's sums of gradients at most, and some.
    assert found["eager"][-1] > 2 * 4 * 4 * 2048**2
    assert found["fa"][-1] < 2 * 4 * 4 * 2048 * 64 + long_context.SLACK["cpu"]
    assert not long_context.is_linear(lengths, found["eager"], long_context.SLACK["cpu"])
    assert result["exponents"]["eager"] > 1.7


def test_memory_that_is_not_linear_is_told(tmp_path, monkeypatch):
    def quadratic(attend, length, args):
        return 8 * length * length if attend is long_context.by_fa else 100 * length

    monkeypatch.setattr(long_context, "measure", quadratic)
    status, result = run(long_context, tmp_path, "--device", "cpu")
    assert status == 1 and not result["is_linear"]
    assert result["exponents"] == pytest.approx({"fa": 2.0, "sdpa": 1.0, "eager": 1.0})


def test_memory_that_does_not_suffice_is_shown(tmp_path, monkeypatch, capsys):
    calls = []

    def measure(attend, length, args):
        calls.append((attend, length))
        if attend is long_context.by_formula and length > 512:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return 100 * length

    monkeypatch.setattr(long_context, "measure", measure)
    status, result = run(long_context, tmp_path, "--device", "cpu")
    assert status == 0 and result["bytes"]["eager"] == [51200, None, None, None]
    assert "out of memory" in capsys.readouterr().out
    assert (long_context.by_formula, 2048) not in calls  # what was too long before is not tried


# --- The paper's benchmark -----------------------------------------------------------------


def test_the_benchmark_runs_dry(tmp_path, capsys):
    status, result = run(paper_benchmark, tmp_path, "--dry-run")
    text = capsys.readouterr().out
    assert status == 0 and result["settings"]["dry_run"]
    shares = result["shares_of_allowed_error"]
    assert 0 < shares["fa"] <= 1 and 0 < shares["fa packed"] <= 1 and 0 < shares["eager"] <= 1
    assert [row["length"] for row in result["rows"]] == [32, 64]
    for row in result["rows"]:
        assert row["ms"]["fa"] > 0 and row["ms"]["eager"] > 0 and row["ms"]["fa packed"] > 0
        assert row["ms"]["cudnn"] is None  # a kernel that no CPU has
    assert "  cudnn: RuntimeError" in text


def test_the_benchmark_tells_wrong_attention(tmp_path, monkeypatch):
    def wrong(p, q, k, v):
        return paper_benchmark.by_fa(p, q, Times.apply(k, 0.99), v)

    monkeypatch.setitem(paper_benchmark.DRY, "fa", paper_benchmark.masked(wrong))
    status, result = run(paper_benchmark, tmp_path, "--dry-run", "--contenders", "fa,eager")
    assert status == 1 and result["shares_of_allowed_error"]["fa"] > 1


def test_the_benchmark_tells_that_fa_refused(tmp_path, monkeypatch):
    def refuse(p):
        raise NotImplementedError("no such thing")

    monkeypatch.setitem(paper_benchmark.DRY, "fa packed", refuse)
    status, result = run(paper_benchmark, tmp_path, "--dry-run", "--contenders", "fa packed,eager")
    assert status == 1
    assert result["rows"][0]["why"] == {"fa packed": "NotImplementedError: no such thing"}


def test_the_benchmark_shows_what_does_not_fit(tmp_path, monkeypatch, capsys):
    def formula(p, q, k, v):
        if q.shape[2] > 32 and p.dropout:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB")
        return paper_benchmark.by_formula(p, q, k, v)

    monkeypatch.setitem(paper_benchmark.DRY, "eager", paper_benchmark.masked(formula))
    status, result = run(paper_benchmark, tmp_path, "--dry-run", "--contenders", "fa,eager")
    text = capsys.readouterr().out
    assert status == 0 and result["rows"][1]["why"] == {"eager": "out of memory"}
    row = next(line for line in text.splitlines() if line.strip().startswith("64 "))
    assert row.split()[2] == "OOM"


def test_the_benchmark_replays_on_a_gpu_alone(capsys):
    with pytest.raises(SystemExit):
        paper_benchmark.parse(["--dry-run", "--graphs"])
    assert "--graphs needs a GPU, got --dry-run; leave one out" in capsys.readouterr().err


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("name", ["fa", "fa packed"])
def test_a_replay_keeps_what_it_reads(name):
    p = paper_benchmark.problem(128, "cuda", torch.float16, 0.0, batch=2)
    wanted = paper_benchmark.CONTENDERS[name](p)()
    replay = paper_benchmark.Replay.of(paper_benchmark.CONTENDERS[name](p))
    gc.collect()
    torch.cuda.empty_cache()
    for one, other in zip(replay(), wanted):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_the_problem_is_the_papers():
    p = paper_benchmark.problem(128, "cpu", torch.float16, 0.1)
    assert p.q.shape == (16, 8, 128, 64) and p.lengths.shape == (16,)
    assert 108 <= p.lengths.min() and p.lengths.max() < 128
    hidden = torch.arange(128) >= p.lengths[:, None]
    assert (p.gradient.transpose(1, 2)[hidden] == 0).all() and p.gradient.count_nonzero() > 0
    assert paper_benchmark.parse(["--dry-run"]).contenders == list(paper_benchmark.DRY)


def test_rounds_follow_the_time_of_the_row_before():
    args = paper_benchmark.parse(["--dry-run"])
    args.rounds, args.seconds = 20, 4.0
    rounds = paper_benchmark.rounds_of
    row = {"length": 1024, "ms": {"fa": 40.0, "eager": None, "flex": 60.0}}
    assert rounds(None, 128, args) == 20
    assert rounds(row, 2048, args) == 10  # 400 ms a round
    assert rounds(row, 8192, args) == 3
    assert rounds({"length": 128, "ms": {"fa": None}}, 256, args) == 20
