"""FP8 recipes: what they save and keep, how much faster published runs became, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from llamath import hardware
from llamath.analysis.size.plan.training_run import TrainingCostModel
from llamath.analysis.size.training.fp8_recipes import RECIPES
from llamath.analysis.size.training.training_memory import TrainRequest, training
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError
from support.loaded_models import LoadedModels

B200, H100 = hardware.find_device("b200"), hardware.find_device("h100")
MODELS = LoadedModels("llama-3.1-8b")
WIDTH, FFN, LAYERS, HEADS = 4096, 14336, 32, 4096
LINEAR = LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH * 1024 + 3 * WIDTH * FFN)
"""The weights of the linear layers inside the layers."""


def lines(fp8: str, **request: Any) -> dict[str, int]:
    stage = training(
        MODELS["llama-3.1-8b"], TrainRequest(context=4096, fused=True, fp8=fp8, **request)
    ).largest_stage
    return {x.what: int(x.bytes) for x in stage.lines}


def speed(
    device: hardware.Device, fp8: str, layout: Layout, context: int = 8192, attention: str = "flash"
) -> float:
    run = TrainingCostModel(
        MODELS["llama-3.1-8b"],
        TrainRequest(context=context, fused=True, layout=layout, fp8=fp8),
        device,
        attention,
    )
    return run.plan(layout).tokens


def test_torchao_saves_inputs_in_16_bits() -> None:
    """torchtitan's tables: 77.0 GiB without FP8, 76.8 with it."""
    for recipe in ("tensorwise", "rowwise"):
        assert lines(recipe) == lines("")


def test_transformer_engine_saves_inputs_and_weights_in_fp8() -> None:
    plain, fp8 = lines(""), lines("current")
    tokens = 4096
    # the normalized inputs and that of down are one byte instead of two; that of o is a copy, because attention saves its result, too
    saved = sum(n for what, n in fp8.items() if what not in ("FP8 copies of weights", "overhead"))
    before = sum(n for what, n in plain.items() if what != "overhead")
    assert saved - before == LAYERS * tokens * (-2 * WIDTH - FFN + HEADS)
    assert fp8["FP8 copies of weights"] == 2 * LINEAR


def test_scales_of_blocks_are_counted() -> None:
    mx, block, tokens = lines("mxfp8"), lines("blockwise"), 4096
    inputs = LAYERS * tokens * (2 * WIDTH + FFN + HEADS)
    assert mx["scales of FP8"] == inputs // 32 and block["scales of FP8"] == 4 * inputs // 128
    assert mx["FP8 copies of weights"] == 2 * (LINEAR + LINEAR // 32)
    assert block["FP8 copies of weights"] == 2 * (LINEAR + 4 * LINEAR // 128**2)


def test_zero_3_keeps_no_fp8_copies() -> None:
    assert "FP8 copies of weights" not in lines("current", layout=Layout(dp=8, zero=3))


@pytest.mark.parametrize(
    "recipe, published, within",
    [
        # torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: tokens/s with FP8 over those without
        ("tensorwise", 8532 / 6667, 0.10),
        ("tensorwise", 8380 / 6514, 0.10),
    ],
)
def test_published_speedups_are_predicted(recipe: str, published: float, within: float) -> None:
    layout = Layout(dp=8, zero=3, microbatch=2, microbatches=1, recompute="op")
    assert speed(H100, recipe, layout) / speed(H100, "", layout) == pytest.approx(
        published, rel=within
    )


def test_rowwise_scales_are_slower_than_tensorwise() -> None:
    """pytorch/ao, docs/source/workflows/training.md: 25 % and 10 % faster than bf16."""
    layout = Layout(dp=8, zero=3, microbatches=1, recompute="op")
    plain, row, tensor = (speed(H100, x, layout) for x in ("", "rowwise", "tensorwise"))
    assert plain < row < tensor


def test_every_recipe_is_faster_for_large_products() -> None:
    layout = Layout(tp=1, microbatch=4, microbatches=16)
    plain = speed(B200, "", layout)
    assert all(speed(B200, x, layout) > 1.1 * plain for x in RECIPES)


@pytest.mark.parametrize(
    "device, request_, message",
    [
        ("a100-80gb", {"fp8": "tensorwise"}, "A100 SXM 80GB has no FP8 products"),
        ("h100", {"fp8": "mxfp8"}, "needs the tensor cores of Blackwell"),
        ("h100", {"fp8": "fp9"}, "unknown recipe 'fp9'"),
        ("h100", {"fp8": "current", "rank": 8, "targets": ("all",)}, "adapters are not modeled"),
        ("h100", {"dtype": "fp8"}, "weights in fp8 cannot be trained directly"),
    ],
)
def test_what_does_not_run_is_refused(device: str, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(LlamathError, match=message):
        TrainingCostModel(
            MODELS["llama-3.1-8b"], TrainRequest(**request_), hardware.find_device(device)
        )
