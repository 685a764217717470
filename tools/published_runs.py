"""Published training runs, each predicted from its layout, its GPU's data sheet and published
benchmarks of kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import llamath
from llamath import hardware
from llamath.analysis.graph.flop_count import train_flops
from llamath.analysis.graph.recorder import record
from llamath.analysis.size.plan import PlanRequest, plan
from llamath.analysis.size.plan.layout_space import INTERLEAVES, MICROBATCHES
from llamath.analysis.size.plan.training_run import TrainingCostModel, TrainingPlan
from llamath.analysis.size.training.training_memory import TrainRequest, training
from llamath.analysis.storage.parallel_layout import layout_problems
from llamath.questions.layout import Layout

_TRUTH = Path(__file__).parents[1] / "tests" / "truth"
DATA: dict[str, Any] = json.loads((_TRUTH / "published_runs.json").read_text())
RUNS: dict[str, Any] = json.loads((_TRUTH / "training_runs.json").read_text())["tables"]
PALM = {
    "hidden_size": 18432,
    "intermediate_size": 73728,
    "num_hidden_layers": 118,
    "num_attention_heads": 48,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 256000,
    "max_position_embeddings": 2048,
}
"""Cohere's Command R has PaLM's layer: attention and SwiGLU side by side, no biases, a tied
head."""


class Found(NamedTuple):
    """One run: what is printed of it, and what is predicted, in TFLOP/s a GPU by the
    publication's own count."""

    name: str
    plan: TrainingPlan
    room: int  # bytes of a GPU
    printed: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.printed - 1


class Throughput(NamedTuple):
    """One run: tokens per second and GPU, and the memory of a GPU in GiB where it is printed."""

    name: str
    plan: TrainingPlan
    room: int  # bytes of a GPU
    printed: float
    predicted: float
    memory: float | None

    @property
    def error(self) -> float:
        return self.predicted / self.printed - 1


def classic(
    heads: int, width: int, layers: int, vocab: int = 51200, context: int = 2048
) -> llamath.Model:
    sizes = {
        "n_embd": width,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": context,
        "vocab_size": vocab,
    }
    return llamath.load({"model_type": "gpt2", **sizes})


def interleaved(model: llamath.Model, layout: Layout) -> list[Layout]:
    """The layout with every interleaving that goes, where none is printed."""
    runs = [layout.replace(interleave=v) for v in INTERLEAVES] if layout.pp > 1 else []
    return [layout, *(x for x in runs if not layout_problems(model.tree, x))]


def llama3() -> Iterator[Found]:
    model, h100 = llamath.load("llama-3.1-405b"), hardware.find_device("h100")
    for gpus, tp, cp, pp, dp, context, batch, _, printed, _ in DATA["llama3"]["rows"]:
        layout = Layout(tp=tp, cp=cp, pp=pp, dp=gpus // (tp * cp * pp), zero=2, microbatches=batch)
        assert layout.dp == dp or cp == 16
        run = TrainingCostModel(
            model, TrainRequest(context=context, gradients="fp32", fused=True, layout=layout), h100
        )
        best = run.fastest_fitting(interleaved(model, layout))
        yield Found(
            f"{gpus:,} H100, {context:,} tokens", best, h100.memory, printed, best.rate / 1e12
        )


def rank(row: list[Any]) -> int | None:
    """Return the rank of the published layout among the plans for its cluster, if it is among
    the first ten."""
    gpus, tp, cp, pp, _, context, *_ = row
    report = plan(
        llamath.load("llama-3.1-405b"),
        (gpus, hardware.find_device("h100")),
        PlanRequest(context=context, batch_tokens=16 * 2**20),
    )
    axes = [(x.layout.tp, x.layout.cp, x.layout.pp) for x in report.plans]
    return axes.index((tp, cp, pp)) + 1 if (tp, cp, pp) in axes else None


def megatron() -> Iterator[Found]:
    """Microbatch and interleaving are not published: use the fastest that fits; full
    recomputation."""
    a100, facts = hardware.find_device("a100-80gb"), DATA["megatron"]
    for billions, heads, width, layers, tp, pp, gpus, batch, printed, *_ in facts["rows"]:
        model, dp, s = classic(heads, width, layers), gpus // (tp * pp), facts["s"]
        base = Layout(tp=tp, pp=pp, dp=dp, recompute="full", flash=False, sequence_parallel=False)
        sizes = [n for n in MICROBATCHES if batch % (dp * n) == 0]
        layouts = [base.replace(microbatch=n, microbatches=batch // dp // n) for n in sizes]
        run = TrainingCostModel(
            model,
            TrainRequest(context=s, gradients="fp32", fused=True, dropout=True, layout=base),
            a100,
        )
        best = run.fastest_fitting([y for x in layouts for y in interleaved(model, x)])
        work = (
            96
            * batch
            * s
            * layers
            * width**2
            * (1 + s / (6 * width) + facts["v"] / (16 * layers * width))
        )
        yield Found(
            f"{billions:g}B on {gpus:,} A100",
            best,
            a100.memory,
            printed,
            work / best.timing.step / gpus / 1e12,
        )


def korthikanti() -> Iterator[Found]:
    """Each model twice: full recomputation without sequence parallelism, selective recomputation
    with it."""
    a100, facts, s = (
        hardware.find_device("a100-80gb"),
        DATA["korthikanti"],
        DATA["korthikanti"]["s"],
    )
    for (name, heads, width, layers, tp, pp, gpus, batch, size), (_, full, selective) in zip(
        facts["configs"]["rows"], facts["seconds"]["rows"], strict=True
    ):
        model = classic(heads, width, layers)
        common = {
            "tp": tp,
            "pp": pp,
            "microbatch": size,
            "microbatches": batch // size,
            "flash": False,
        }
        common["interleave"] = facts["interleave"].get(name, 1)
        work = (
            72
            * batch
            * layers
            * s
            * width**2
            * (1 + s / (6 * width) + facts["v"] / (12 * width * layers))
            / gpus
            / 1e12
        )
        for again, seconds in (("full", full), ("selective", selective)):
            layout = Layout(recompute=again, sequence_parallel=again != "full", **common)  # type: ignore[arg-type]
            run = TrainingCostModel(
                model,
                TrainRequest(context=s, gradients="fp32", fused=True, dropout=True, layout=layout),
                a100,
            )
            best = run.plan(layout)
            yield Found(
                f"{name} on {gpus:,} A100, {again}",
                best,
                a100.memory,
                work / seconds,
                work / best.timing.step,
            )


def palm() -> Iterator[Found]:
    facts, tpu = DATA["palm"], hardware.find_device("tpu-v4")
    model = llamath.load("command-r", changes=PALM)
    each = facts["sequences"] // facts["dp"]
    base = Layout(tp=facts["tp"], dp=facts["dp"], zero=3, recompute="full")
    layouts = [
        base.replace(microbatch=n, microbatches=each // n) for n in MICROBATCHES if each % n == 0
    ]
    run = TrainingCostModel(
        model,
        TrainRequest(context=facts["context"], gradients="fp32", fused=True, layout=base),
        tpu,
    )
    best = run.fastest_fitting(layouts)
    work = train_flops(
        record(model.tree, batch=facts["sequences"], new_tokens=facts["context"]), masked=False
    ).model
    peak = tpu.flops["bf16"] / 1e12
    yield Found(
        "540B on 6,144 TPU v4",
        best,
        tpu.memory,
        facts["MFU"] * peak,
        work / best.timing.step / facts["chips"] / 1e12,
    )


def deepseek() -> Found:
    """A run that is outside of the model: in FP8, and its all-to-all hidden behind work."""
    facts, h800, model = DATA["deepseek"], hardware.find_device("h800"), llamath.load("deepseek-v3")
    pp, ep, dp = (facts[x] for x in ("pp", "ep", "dp"))
    layout = Layout(pp=pp, ep=ep, etp=1, dp=dp, zero=1, microbatches=facts["sequences"] // dp)
    best = TrainingCostModel(
        model,
        TrainRequest(context=facts["context"], gradients="fp32", fused=True, layout=layout),
        h800,
    ).plan(layout)
    return Found("DeepSeek-V3", best, h800.memory, facts["TFLOPs/GPU"], best.rate / 1e12)


def throughput(key: str) -> Iterator[Throughput]:
    """Yield the runs of a table, each as it was run."""
    for name, model, gpu, gpus, context, layout, recompute, settings, printed, memory in RUNS[key][
        "rows"
    ]:
        device, options = (
            hardware.parse_device(gpu),
            dict(x.split("=") for x in settings.split(",") if x),
        )
        loaded = llamath.load(model) if isinstance(model, str) else classic(*model, context=context)
        at = Layout(
            recompute=recompute,
            **{axis: int(n) for axis, n in (x.split("=") for x in layout.split(","))},
        )
        assert at.gpus == gpus, name
        request = TrainRequest(
            context=context,
            gradients=options.get("grad_dtype", "fp32"),
            fused=options.get("kernels", "fused") == "fused",
            loss=options.get("loss", "whole"),
            fp8=options.get("fp8", ""),
            layout=at,
        )
        plan_ = TrainingCostModel(loaded, request, device, options.get("attention", "flash")).plan(
            at
        )
        yield Throughput(name, plan_, device.memory, printed, plan_.tokens / gpus, memory)


def recipes() -> Iterator[tuple[str, str, float, float]]:
    """Yield the memory of fine-tuning recipes: name, loss, GiB as published, and GiB of the
    lines that an allocator sees."""
    for (
        what,
        slug,
        dtype,
        recompute,
        kernels,
        loss,
        batch,
        tokens,
        rank_,
        targets,
        settings,
        printed,
    ) in DATA["training_memory"]["rows"]:
        options = dict(x.split("=") for x in settings.split(",") if x)
        request = TrainRequest(
            dtype=dtype,
            master=False,
            context=tokens,
            layout=Layout(microbatch=batch, recompute=recompute),
            fused=kernels == "fused",
            loss=loss,
            rank=rank_,
            targets=tuple(targets.split(",")) if targets else (),
            adapter_dtype=options.get("adapter_dtype", "fp32"),
            accumulate=options.get("accumulate") != "no",
            offload=options.get("offload") == "yes",
        )
        stage = training(llamath.load(slug), request).largest_stage
        yield what, loss, printed, sum(x.bytes for x in stage.lines if x.what != "overhead") / 2**30
