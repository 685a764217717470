"""`fit`, `plan --serve` and `memory` give one answer: on random questions, and on machines with different GPUs."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from llamath import hardware
from llamath.analysis.size.fit.fit_report import fit
from llamath.analysis.size.fit.format_support import supported_formats, supported_kv_dtypes
from llamath.analysis.size.fit.gpu_ranking import rank_gpus
from llamath.analysis.size.fit.mixed_machine import MixedMachine
from llamath.analysis.size.fit.suggestions import Suggester
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.plan.serving_plan import plan_serving
from llamath.analysis.storage.parallel_layout import PipelineStage
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError
from support.loaded_models import LoadedModels

NAMES = (
    *(
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.2-1b",
        "qwen2.5-0.5b",
        "mixtral-8x7b",
        "deepseek-v3",
        "gemma-3-27b",
        "gpt-oss-20b",
        "gpt2",
    ),
    *("qwen3-next-80b-a3b", "llama-1-30b", "phi-4"),
)
MODELS = LoadedModels(*NAMES)
GPUS = ("rtx-3060-12gb", "rtx-4090", "a100-40gb", "l4", "h100", "h200", "b200", "mi300x", "t4")


@pytest.mark.slow
def test_fit_and_plan_agree_on_random_questions(request: pytest.FixtureRequest) -> None:
    """15 questions, and before a release 500."""
    rng = random.Random(0)
    for _ in range(500 if request.config.getoption("--all") else 15):
        name, count, device = (
            rng.choice(NAMES),
            rng.choice((1, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24)),
            hardware.find_device(rng.choice(GPUS)),
        )
        context = rng.choice((None, 1, 700, 4096, 20_000, 131_072, 2_000_000))
        question = MemoryRequest(
            dtype=rng.choice(("", "bf16", "awq", "q4_k_m", "bnb-nf4")),
            context=context,
            kv_dtype=rng.choice(("", "fp8")),
        )
        sizes = MemoryCalculator(MODELS[name], question)
        plan, found = plan_serving(MODELS[name], sizes, (count, device)), fit(sizes, device, count)
        assert plan.fits is found.fits and plan.context == found.context, (
            name,
            count,
            device.name,
            question,
        )
        assert found.fits is (found.max_context is None or found.max_context >= found.context)
        assert bool(found.instead) is not found.fits or not found.fits
        for x in plan.plans[:3]:
            asked = MemoryCalculator(MODELS[name], question.replace(batch=x.batch))
            one = fit(asked, device, x.layout.gpus, tp=x.layout.tp, pp=x.layout.pp)
            assert one.fits and one.total == x.memory
            assert one.max_batch is None or x.batch <= one.max_batch < x.batch + max(x.layout.pp, 1)
            assert fit(
                MemoryCalculator(MODELS[name], question.replace(batch=x.batch * x.replicas)),
                device,
                count,
            ).fits


@pytest.mark.slow
def test_ranking_agrees_with_fit() -> None:
    for name in ("gpt-oss-20b", "llama-1-30b"):
        sizes = MemoryCalculator(MODELS[name], MemoryRequest())
        ranked = {x.device.name: x for x in rank_gpus(sizes).gpus}
        for device in list(hardware.devices())[::9]:
            counts = [n for n in (1, 2, 4, 8) if n <= device.node]
            fitting = [n for n in counts if (x := fit(sizes, device, n)).fits and x.replicas == 1]
            assert (ranked[device.name].count if device.name in ranked else None) == next(
                iter(fitting), None
            )


@pytest.mark.slow
def test_splits_are_tried_until_one_fits() -> None:
    # 8 KV heads: TP 16 keeps two copies of the cache, TP 8 x PP 2 does not
    sizes = MemoryCalculator(MODELS["llama-3.1-70b"], MemoryRequest(context=131_072, batch=64))
    device = hardware.find_device("gb200")
    widest, chosen = fit(sizes, device, 16, tp=16), fit(sizes, device, 16)
    assert not widest.fits and chosen.fits and chosen.layout == Layout(tp=8, pp=2)
    replicas = fit(
        MemoryCalculator(MODELS["gpt2"], MemoryRequest(batch=26)), hardware.find_device("h100"), 13
    )
    assert (replicas.replicas, replicas.layout, replicas.stages[0].gpus) == (13, Layout(), 1)
    assert (
        replicas.stages[0].kv_cache * 13
        == fit(
            MemoryCalculator(MODELS["gpt2"], MemoryRequest(batch=26)), hardware.find_device("h100")
        )
        .stages[0]
        .kv_cache
    )


@pytest.mark.parametrize(
    "gpu", ["rtx-3060-12gb", "rtx-4090", "t4", "h100", "b200", "mi300x", "m3-max-128gb", "tpu-v5e"]
)
@pytest.mark.slow
def test_suggested_dtypes_are_supported(gpu: str) -> None:
    device = hardware.find_device(gpu)
    sizes = MemoryCalculator(MODELS["llama-3.1-70b"], MemoryRequest(context=131_072, batch=8))
    for x in Suggester(sizes, device, 1).suggestions():
        change = dict(zip(x.change.split()[::2], x.change.split()[1::2], strict=True))
        assert change.get("--dtype", "") in ("", *supported_formats(device)) and change.get(
            "--kv-dtype", ""
        ) in (
            "",
            *supported_kv_dtypes(device),
        )
    assert ("fp8" in supported_formats(device)) is ("fp8" in device.flops)
    assert ("nvfp4" in supported_formats(device)) is (gpu == "b200")
    assert ("q4_k_m" in supported_formats(device)) is (gpu != "tpu-v5e")


@pytest.mark.slow
def test_suggestions_combine_changes_and_none_beats_another() -> None:
    sizes = MemoryCalculator(MODELS["llama-3.1-8b"], MemoryRequest(context=131_072))
    changes = [x.change for x in Suggester(sizes, hardware.find_device("l4"), 1).suggestions()]
    assert "--dtype fp8 --kv-dtype fp8" in changes and any(
        "--context" in x and "--dtype" in x for x in changes
    )
    small = MemoryCalculator(MODELS["llama-3.1-8b"], MemoryRequest())
    (first, *_) = Suggester(small, hardware.find_device("rtx-3060-12gb"), 1).suggestions()
    assert first.change == "--dtype q8_0"  # not fewer bits, nor fewer tokens


@pytest.mark.slow
def test_offload_is_bytes_of_weights_and_bounds_decode() -> None:
    sizes, device = (
        MemoryCalculator(MODELS["llama-3.1-8b"], MemoryRequest()),
        hardware.find_device("rtx-3060-12gb"),
    )
    whole, moved = fit(sizes, device), fit(sizes, device, offload=6 * 2**30)
    assert whole.total - moved.total == 6 * 2**30
    moved_layers = 6 * 2**30 - 2 * 128_256 * 4096  # a pass reads one row of the embedding
    assert moved.ceilings is not None and moved.ceilings.decode.seconds == pytest.approx(
        moved_layers / device.link, rel=1e-5
    )
    mixture = MemoryCalculator(MODELS["mixtral-8x7b"], MemoryRequest())
    speed = fit(mixture, device, offload=40 * 2**30).ceilings
    assert (
        speed is not None and speed.decode.seconds < 40 * 2**30 / device.link / 3
    )  # a token uses 2 of 8 experts
    with pytest.raises(LlamathError, match="shares its memory"):
        fit(sizes, hardware.find_device("m3-max-128gb"), offload=1)


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("llama-3.2-1b", "3060-12gb+4090"),
        ("gpt-oss-20b", "4090+3060-12gb"),
        ("gpt2", "t4+l4+3060-12gb"),
        ("deepseek-v3", "8xh100+4xh200"),
    ],
)
@pytest.mark.slow
def test_different_gpus_hold_the_whole_model(name: str, on: str) -> None:
    count, gpu = hardware.parse_devices(on)
    report = fit(MemoryCalculator(MODELS[name], MemoryRequest(context=1000, batch=3)), gpu, count)
    alone = fit(
        MemoryCalculator(MODELS[name], MemoryRequest(context=1000, batch=3)),
        hardware.find_device("h200"),
    )
    copies = MODELS[name].tree.head is not None and MODELS[name].tree.head.weight.tied
    embedding = alone.stages[0].weights - sum(x.weights for x in report.stages)
    assert (abs(embedding) <= count) is not copies and sum(
        x.kv_cache for x in report.stages
    ) == alone.stages[0].kv_cache
    assert [x.runs[0][0] for x in report.stages] == [0, *(x.runs[0][1] for x in report.stages[:-1])]
    assert report.stages[-1].runs[0][1] == int(MODELS[name].tree.layers.n)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b"])
@pytest.mark.slow
def test_layers_are_spread_over_different_gpus_as_evenly_as_possible(name: str) -> None:
    tree = MODELS[name].tree
    gpus = [hardware.parse_device(f"mem={n}GiB") for n in (2, 1, 3)]
    sizes = MemoryCalculator(MODELS[name], MemoryRequest(context=700, batch=2))
    machine, layers = MixedMachine(sizes, gpus), int(tree.layers.n)

    def fullest(starts: tuple[int, ...]) -> float:
        stages = [
            PipelineStage(index=i, runs=((starts[i], starts[i + 1]),), first=i == 0, last=i == 2)
            for i in range(3)
        ]
        memory = ShardedModel(sizes, Layout(pp=3), stages=stages).stage_memory(700, 2)
        return max(x.total / gpu.memory for x, gpu in zip(memory, gpus, strict=True))

    best = min(fullest((0, *cuts, layers)) for cuts in combinations(range(1, layers), 2))
    chosen = machine.shards(700, 2).stage_memory(700, 2)
    assert max(x.total / gpu.memory for x, gpu in zip(chosen, gpus, strict=True)) == pytest.approx(
        best, rel=1e-6
    )
    assert machine.fits(700, 2) is (best <= 1)


def test_serving_plans_are_for_equal_gpus() -> None:
    count, gpu = hardware.parse_devices("3060-12gb+4090")
    with pytest.raises(LlamathError, match="different GPUs"):
        plan_serving(
            MODELS["gpt2"], MemoryCalculator(MODELS["gpt2"], MemoryRequest()), (count, gpu)
        )
