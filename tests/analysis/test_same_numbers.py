"""A number is the same in every report: `fit`, `memory`, `quants`, `rank_gpus`, `plan_serving`, `cost`, `facts` and training."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

import llamath
from llamath.analysis.size.fit.fit_report import FitReport
from llamath.hardware import find_device
from llamath.model import Model
from llamath.utils.errors import LlamathError
from support.random_questions import GPUS, MODELS, NUMBERS, sequences, without


@cache
def model_of(name: str) -> Model:
    return llamath.load(name)


def check_one_gpu(model: Model, gpu: str, asked: dict[str, Any], fit: FitReport) -> None:
    """`memory --on` counts what `fit` counts on one GPU."""
    report = llamath.memory(model, on=gpu, **asked)
    assert report.limit is not None and bool(report) is fit.fits
    assert (report.total, report.limit.max_context, report.limit.max_batch) == (
        fit.total,
        fit.max_context,
        fit.max_batch,
    )


def check_dtypes(model: Model, on: str, asked: dict[str, Any], fit: FitReport) -> bool:
    """The row of the dtype in `quants` has the bytes of `memory` and the verdict of `fit`."""
    report = llamath.quants(model, on=on, **without(asked, "dtype"))
    row = next((x for x in report.quants if x.dtype == fit.dtype), None)
    if row is None:  # fp32, int8 and the like are not listed
        return False
    assert row.bytes == llamath.memory(model, **asked).weights
    assert (row.fits, row.total) == (fit.fits, fit.total if fit.fits else None)
    return True


def check_ranking(model: Model, gpu: str, asked: dict[str, Any]) -> None:
    """A ranked GPU has the memory, the split and the speed of `fit`; what is not ranked does not fit."""
    ranking = llamath.rank_gpus(model, **asked)
    device = find_device(gpu)
    entry = next((x for x in ranking.gpus if x.device.name == device.name), None)
    if entry is None:
        largest = max(n for n in (1, 2, 4, 8) if n <= device.node)
        report = llamath.fit(model, on=f"{largest}x{gpu}", **asked)
        assert not report.fits or report.replicas > 1
        return
    report = llamath.fit(model, on=f"{entry.count}x{gpu}", **asked)
    assert report.fits and report.ceilings is not None
    assert (entry.total, entry.layout, entry.decode_ceiling) == (
        report.total,
        report.layout,
        report.ceilings.decode.tokens_per_second,
    )


@pytest.mark.slow
def test_random_questions_have_one_answer(request: pytest.FixtureRequest) -> None:
    """Eight questions, and before a release 1,000."""
    rng, listed, alone = random.Random(5), 0, 0
    for i in range(1000 if request.config.getoption("--all") else 8):
        model, gpu, count = model_of(rng.choice(MODELS)), rng.choice(GPUS), rng.choice(NUMBERS)
        asked, on = sequences(rng), f"{count}x{gpu}"
        try:
            fit = llamath.fit(model, on=on, **asked)
        except LlamathError:  # a dtype that a model cannot be stored in
            continue
        assert llamath.compare_machines(model, on=[on], **asked).machines[0] == fit
        if count == 1:
            alone += 1
            check_one_gpu(model, gpu, asked, fit)
        if asked.get("batch", 1) == 1:
            plan = llamath.plan_serving(model, on=on, **without(asked, "batch"))
            assert bool(plan) is fit.fits
        if i % 3 == 0:
            listed += check_dtypes(model, on, asked, fit)
            check_ranking(model, gpu, asked)
    assert listed and alone


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt-oss-20b", "deepseek-v3"])
@pytest.mark.slow
def test_facts_are_those_of_other_reports(name: str) -> None:
    model = model_of(name)
    facts = llamath.facts(model)
    for x in facts.weights:
        assert x.bytes == llamath.memory(model, dtype=x.dtype).weights
    for x in facts.runs_on:
        assert x.gpu is not None
        fit = llamath.fit(model, on=f"{x.gpu.count}x{x.gpu.device.name}", dtype=x.dtype)
        assert fit.fits and (fit.total, fit.context) == (x.gpu.total, x.context)
    assert facts.kv_per_token == llamath.memory(model).to_json()["kv_per_token"]


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v3.2", "kimi-k2", "minimax-m2"])
@pytest.mark.slow
def test_name_of_the_own_dtype_is_the_own_dtype(name: str) -> None:
    """A recipe leaves other tensors in 16 bits than a scheme of the same name does."""
    model = model_of(name)
    assert llamath.memory(model, dtype="fp8").weights == llamath.memory(model).weights
    if name != "deepseek-v3.2":  # one list of 90,000 tensors is enough
        return
    named, own = (llamath.names(model, dtype=x).quantized for x in ("fp8", ""))
    assert named is not None and own is not None
    assert named.listing.total.bytes == own.listing.total.bytes


@pytest.mark.parametrize("name", ["llama-3.2-1b", "mixtral-8x7b"])
@pytest.mark.slow
def test_plans_need_the_memory_of_a_training_step(name: str) -> None:
    model = model_of(name)
    for plan in llamath.plan(model, on="16xh200", context=2048).plans[:3]:
        layout = plan.layout
        step = llamath.training_memory(
            model,
            context=2048,
            batch=layout.microbatch,
            layout=layout,
            training=f"kernels=fused,grad_dtype=fp32,recompute={layout.recompute}",
        )
        assert step.largest_stage.total == plan.memory
