"""`llamath fit`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..model import Model
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    kv_dtype_option,
    note_context,
    on_option,
    print_inference,
    svg_option,
    takes_model,
)
from .output import TABLES, PictureFiles, echo_report

if TYPE_CHECKING:
    from ..analysis.fit.fit_report import FitReport

_EXAMPLES = (
    "llamath fit llama-3.1-8b  # which GPUs can run it",
    "llamath fit llama-3.1-8b --on rtx-4090 --context 32k",
    "llamath fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2",
    "llamath fit qwen3-8b --on 'mem=16GiB bw=500GB/s' --dtype q4_k_m",
    "llamath fit llama-3.1-8b --on 3060,4090,h100  # each of them",
    "llamath fit llama-3.3-70b --on 4090+3060 --dtype q4_k_m  # both in one machine",
    "llamath fit minimax-m2 --on 8xh100 --engine vllm  # will vLLM start?",
)


@make_command("fit", _EXAMPLES, brief=True, formats=TABLES)
@partial(takes_model, reads_files=True)
@on_option(
    "GPUs: rtx-4090, 8xh100, 4090+3060 in one machine, several machines 3060,4090, or "
    "'mem=24GiB bw=1TB/s'."
)
@dtype_option()
@kv_dtype_option
@context_option("Tokens of each sequence: 8192, 128k, max.")
@batch_option
@click.option(
    "--layout",
    metavar="SPEC",
    help="Tensor and pipeline parallelism: tp=8,pp=2; chosen if not given.",
)
@click.option(
    "--offload",
    default="",
    metavar="SIZE",
    help="Weights of each GPU that stay in the memory of the host: 6GiB.",
)
@click.option(
    "--engine",
    default="",
    metavar="NAME",
    help="Will vllm, vllm@0.19.1, sglang, llama.cpp, transformers or trtllm start?",
)
@click.option(
    "--memory-fraction",
    type=float,
    metavar="F",
    help="With --engine: share of the memory that it may use.",
)
@click.option(
    "--kv-memory",
    metavar="SIZE",
    help="With --engine: memory for the KV cache, as its log prints it.",
)
@click.option(
    "--calibration",
    metavar="FILE",
    help="The machine of this file, which `llamath measure` wrote, instead of --on.",
)
@svg_option("Also draw the roofline.")
def command(
    model: Model,
    *,
    on: str | None,
    layout: str | None,
    offload: str,
    calibration: str | None,
    engine: str,
    svg: PictureFiles | None,
    form: str | None,
    **settings: Any,
) -> int:
    """Does MODEL fit on these GPUs, and how fast can it be at most? Exit code 0: it fits, 1: it
    does not.

    Without --on: which GPUs of the catalog can run it, smallest first. Machines in a list are
    compared (exit code 0: one of them fits); different GPUs of one machine, joined by +, form a
    pipeline in which each holds layers in proportion to its memory.
    """
    from ..analysis.fit.fit_comparison import FitComparison
    from ..api import fit
    from ..hardware import split_machines

    engine_settings = {name: settings.pop(name) for name in ("memory_fraction", "kv_memory")}
    if engine:
        if svg is not None or on is None:
            raise click.UsageError(
                "--engine needs GPUs: --on 8xh100"
                if on is None
                else "--svg draws no report of an engine"
            )
        with Progress("checking the engine's rules"):
            started = fit(
                model, on=on, layout=layout or "", engine=engine, **engine_settings, **settings
            )
        echo_report(started, form)
        return int(not started)
    if given := [name for name, value in engine_settings.items() if value is not None]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} is for --engine")
    if calibration is not None:
        if engine or svg is not None or on is not None or layout is not None or offload:
            raise click.UsageError(
                "--calibration stands for a machine: not with --on, --layout, "
                "--offload, --engine or --svg"
            )
        here = fit(model, calibration=calibration, **settings)
        note_context(model, here.context, settings["context"], form)
        print_inference(here, form)
        return int(not here)
    if on is None and (svg is not None or layout is not None or offload):
        raise click.UsageError("--svg, --layout and --offload need GPUs: --on 2xh100")
    if on is None:
        with Progress("sizing the model for each GPU"):
            ranking = fit(model, **settings)
        note_context(model, ranking.context, settings["context"], form)
        print_inference(ranking, form)
        return int(not ranking)
    machines = split_machines(on)
    if len(machines) > 1 and svg is not None:
        raise click.UsageError("--svg draws the roofline of one machine")
    with Progress("sizing the model"):
        report = fit(
            model,
            on=machines if len(machines) > 1 else on,
            layout=layout or "",
            offload=offload or 0,
            **settings,
        )
    note_context(model, report.context, settings["context"], form)
    print_inference(report, form)
    if svg is not None and not isinstance(report, FitComparison):
        svg.write(_roofline(report, settings))
    return int(not report)


def _roofline(report: FitReport, settings: Mapping[str, Any]) -> str:
    from ..analysis.inference.checkpoint_weights import read_stored_weights
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..render.svg.roofline_svg import roofline_svg

    request = MemoryRequest(**{**settings, "context": report.context})
    stored = None if request.dtype else read_stored_weights(report.model)
    return roofline_svg(report.model, MemoryCalculator(report.model, request, stored), report)
