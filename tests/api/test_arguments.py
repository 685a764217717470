"""Arguments of the public functions: units, sources of models, and errors in Python's terms."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath import LlamathError
from llamath.cli import cli

ARGS = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 128256,
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
}


@pytest.fixture(scope="module")
def model() -> llamath.Model:
    return llamath.load("llama-3-8b")


@pytest.mark.parametrize("context", ["128k", 131072, "131,072", "131072", "131_072", "0.125M"])
def test_spellings_of_a_number_of_tokens_are_equal(
    model: llamath.Model, context: int | str
) -> None:
    assert llamath.memory(model, context=context).context == 131072
    assert llamath.flops(model, context=context).request.context == 131072
    assert llamath.fit(model, on="h100", context=context).context == 131072


def test_functions_accept_whatever_load_accepts(tmp_path: Path, model: llamath.Model) -> None:
    (file := tmp_path / "config.json").write_text(json.dumps(dict(model.config.data)))
    sources: list[Any] = [
        model,
        "llama-3-8b",
        str(file),
        file,
        dict(model.config.data),
        llamath.ModelArgs(**ARGS),
    ]
    assert {llamath.count(x).total for x in sources} == {8030261248}
    assert {llamath.memory(x, context="8k").total for x in sources} == {
        llamath.memory(model, context=8192).total
    }


def test_several_contexts_give_a_table(model: llamath.Model) -> None:
    report = llamath.memory(model, context=["8k", 131072])
    assert [x.context for x in report.contexts] == [8192, 131072] and report.context == 131072


def test_weights_of_a_checkpoint_are_its_own_bytes(embedded_copy: Path) -> None:
    stored = sum(x.bytes for x in llamath.ls(embedded_copy).manifest.tensors)
    assert (
        llamath.memory(embedded_copy).weights
        == llamath.memory(llamath.load(embedded_copy)).weights
        == stored
    )


def test_report_of_a_loaded_model_equals_that_of_its_name(model: llamath.Model) -> None:
    assert llamath.memory(model, context="8k") == llamath.memory("llama-3-8b", context=8192)
    assert llamath.count(model) == llamath.count("llama-3-8b")


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gpt2"])
def test_models_pickle_and_compare(name: str) -> None:
    model = llamath.load(name)
    again = pickle.loads(pickle.dumps(model))
    assert again == model == llamath.load(name) and again.parameters == model.parameters
    assert model != llamath.load(name, changes={"vocab_size": 1000})


def test_reports_are_frozen_and_pickle(model: llamath.Model) -> None:
    report = llamath.memory(model, context="8k")
    with pytest.raises(AttributeError, match="frozen"):
        report.batch = 2  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.parametrize("law", ["hoffmann-1", "hoffmann-3"])
def test_designs_by_a_scaling_law_pickle(law: str) -> None:
    report = llamath.design(budget=f"tokens=1e11,law={law}", top=1)
    assert pickle.loads(pickle.dumps(report)) == report


@pytest.mark.slow
def test_floats_are_counts() -> None:
    assert llamath.explain(8030261248.0) == llamath.explain(8030261248)
    assert llamath.design(8e9, top=1).to_json() == llamath.design("8B", top=1).to_json()


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: llamath.memory("gpt2", context="abc"),
        "context: 'abc' is not a number of tokens",
    ),
    (
        lambda: llamath.memory("gpt2", context=0),
        "context should be a number of tokens such as 8192 or '128k', found 0",
    ),
    (
        lambda: llamath.memory("gpt2", context=True),
        "context should be a number of tokens such as 8192 or '128k', found True",
    ),
    (
        lambda: llamath.memory("gpt2", context=1.5),
        "context should be a number of tokens such as 8192 or '128k', found 1.5",
    ),
    (lambda: llamath.memory("gpt2", dtype=4), "dtype should be text such as 'bf16', found 4"),
    (
        lambda: llamath.fit("gpt2", on=3),
        "on should be GPUs such as 'rtx-4090' or '8xh100', or a Device, found 3",
    ),
    (
        lambda: llamath.fit("gpt2", on="h100", layout={"tp": 2}),
        "layout should be text such as 'tp=8,pp=4' or a Layout, found {'tp': 2}",
    ),
    (
        lambda: llamath.fit("gpt2", on="h100", layout=llamath.Layout(tp=2, dp=4)),
        "layout: dp is not taken here",
    ),
    (
        lambda: llamath.load("gpt2", changes="n_layer=3"),
        "changes should be a mapping of config keys, found 'n_layer=3'",
    ),
    (
        lambda: llamath.explain(1.5),
        "number: 1.5 is not a positive whole number",
    ),
    (lambda: llamath.models("zzz"), "no preset matches 'zzz'"),
    (lambda: llamath.memory("gpt2", batch=0), "batch should be a positive integer, found 0"),
    (lambda: llamath.flops("gpt2", batch="x"), "batch should be a positive integer, found 'x'"),
    (
        lambda: llamath.flops("gpt2", mfu="400TFLOP/s"),
        "mfu needs GPUs and one speed, tokens per second or TFLOP/s",
    ),
    (
        lambda: llamath.flops("gpt2", on="h100", mfu=llamath.MeasuredSpeed(tflops=-1)),
        "mfu: tflops=-1: expected a number from 1e-09 to 1e+18",
    ),
    (lambda: llamath.training_memory("gpt2", layout="tq=2"), "layout: unknown key 'tq'"),
    (
        lambda: llamath.training_memory("gpt2", layout="tp=0"),
        "layout: tp=0: expected an integer from 1 to",
    ),
    (lambda: llamath.training_memory("gpt2", layout="tp=2,tp=2"), "layout: tp is given twice"),
    (
        lambda: llamath.plan("gpt2", on="8xh100", layout="zero=4"),
        "layout: zero=4: expected an integer from 0 to 3",
    ),
    (lambda: llamath.fit("gpt2", on="8xh100", layout="dp=4"), "layout: unknown key 'dp'"),
    (
        lambda: llamath.training_memory("gpt2", lora="q,v"),
        "lora: unknown key 'q'",
    ),
    (
        lambda: llamath.training_memory("gpt2", training="recompute=some"),
        "training: recompute=some: expected 'none' or 'selective' or 'op' or 'full'",
    ),
    (lambda: llamath.memory("gpt2", on="h1000"), "'h1000'"),
    (lambda: llamath.fit("gpt2", on="h1000"), "'h1000'"),
    (lambda: llamath.fit("gpt2", layout="tp=2"), "on is missing: the GPUs"),
    (
        lambda: llamath.plan("gpt2", on="8xh100", top=0),
        "top should be an integer from 1 to 1,000, found 0",
    ),
    (
        lambda: llamath.plan_serving("gpt2", on="8xh100", latency="soon"),
        "latency should be a time such as '50ms' or 0.05 seconds",
    ),
    (lambda: llamath.count("lama-3-8b"), "lama-3-8b"),
    (lambda: llamath.count("xyzzy"), "xyzzy"),
    (lambda: llamath.flops("gpt2", on="h1000"), "'h1000'"),
    (lambda: llamath.diff("gpt2"), "diff needs a second model or changes"),
    (lambda: llamath.design(), "design needs a target such as '405B'"),
    (
        lambda: llamath.design("8B", bounds="aspect=wide"),
        "bounds: aspect=wide: expected a ratio such as 3.5 or '8/3', or a range such as (2.5, 4)",
    ),
    (
        lambda: llamath.design("8B", tolerance="a bit"),
        "tolerance should be a share such as 0.005 or '0.5%', at most 50%, found 'a bit'",
    ),
    (lambda: llamath.stored_names("gpt2", names="mlx"), "mlx"),
    (
        lambda: llamath.convert("x", "y", names="mlx"),
        "names should be 'hf' or 'hf-fused' or 'meta' or 'gguf', found 'mlx'",
    ),
    (
        lambda: llamath.convert("x", "y", names="hf", max_shard_size="big"),
        "max_shard_size: 'big' is not a size",
    ),
    (lambda: llamath.ls("nowhere"), "nowhere"),
    (lambda: llamath.verify("nowhere"), "nowhere"),
    (lambda: llamath.gpus("h1000"), "'h1000'"),
]


@pytest.mark.parametrize(
    ("call", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES]
)
def test_error_speaks_of_the_python_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(LlamathError) as found:
        call()
    assert message in str(found.value)
    assert "--" not in (text := f"{found.value} {found.value.hint}") and "llamath " not in text


def test_hints_name_functions_in_python_and_commands_in_the_shell() -> None:
    with pytest.raises(LlamathError) as found:
        llamath.gpus("h1000x")
    assert "llamath.gpus() lists all" in found.value.hint
    assert "`llamath gpus` lists all" in CliRunner().invoke(cli, ["gpus", "h1000x"]).stderr


def test_model_args_name_the_model() -> None:
    assert (
        llamath.load("dim=64,n_layers=2,n_heads=4,vocab_size=512").name
        == "dim=64,n_layers=2,n_heads=4,vocab_size=512"
    )
    assert (
        llamath.load({"dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 9}).name
        == "dim=64,n_layers=2,n_heads=4,vocab_size=9"
    )
    assert (
        llamath.load(llamath.ModelArgs(**ARGS)).name
        == "dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,…"
    )


@pytest.mark.slow
def test_does_not_fit_is_a_verdict() -> None:
    assert not llamath.fit("llama-3.1-405b", on="rtx-4090").fits
    assert llamath.fit("llama-3-8b", on="h100").fits
    assert not llamath.memory("llama-3.1-70b", on="rtx-4090").limit.fits  # type: ignore[union-attr]


def test_count_of_an_unknown_family_points_to_ls(embedded_copy: Path) -> None:
    (embedded_copy / "config.json").write_text('{"model_type": "nobody"}')
    with pytest.raises(llamath.UnknownModel) as found:
        llamath.count(embedded_copy)
    assert f"llamath.ls({str(embedded_copy)!r})" in found.value.hint
    assert llamath.ls(embedded_copy).total.parameters == llamath.count("embedded").total
