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
    on_option,
    print_inference,
    svg_option,
    takes_model,
    warn_context,
)
from .output import echo, echo_json, note, write_file

if TYPE_CHECKING:
    from ..analysis.inference.fit_report import FitReport
    from ..analysis.serving.engine_report import EngineReport

_EXAMPLES = (
    "llamath fit llama-3.1-8b  # which GPUs can run it",
    "llamath fit llama-3.1-8b --on rtx-4090 --context 32k",
    "llamath fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2",
    "llamath fit qwen3-8b --on 'mem=16GiB bw=500GB/s' --dtype q4_k_m",
    "llamath fit llama-3.1-8b --on 3060,4090  # in one machine",
    "llamath fit minimax-m2 --on 8xh100 --engine vllm  # will vLLM start?",
)
_DEFAULT_CONTEXT = 4096
"""Tokens of a sequence if neither --context nor a shorter context of the model's own says otherwise."""


@make_command("fit", _EXAMPLES, brief=True)
@partial(takes_model, reads_files=True)
@on_option("GPUs: rtx-4090, 8xh100, a machine with several (3060,4090), or 'mem=24GiB bw=1TB/s bf16=300TF'.")
@dtype_option()
@kv_dtype_option
@context_option(f"Tokens of each sequence: 8192, 8k, 128k.  [default: {_DEFAULT_CONTEXT}]")
@batch_option
@click.option("--layout", metavar="SPEC", help="Tensor and pipeline parallelism: tp=8,pp=2; chosen if not given.")
@click.option("--engine", default="", metavar="NAME", help="Will vllm, vllm@0.19.1, sglang, llama.cpp, transformers or trtllm start?")
@click.option("--memory-fraction", type=float, metavar="F", help="With --engine: share of the memory that it may use.")
@click.option("--kv-memory", metavar="SIZE", help="With --engine: memory for the KV cache, as its log prints it.")
@svg_option("Also draw the roofline.")
def command(
    model: Model, *, on: str | None, layout: str | None, engine: str, svg: str | None, force: bool, form: str | None, **settings: Any
) -> int:
    """Does MODEL fit on these GPUs, and how fast can it be at most? Exit code 0: it fits, 1: it does not.

    Without --on: which GPUs of the catalog can run it, smallest first. Different GPUs in one list are one machine, in which each GPU
    counts as the least of them in memory, bandwidth and FLOP/s.
    """
    from ..api import fit
    from ..render.text.fit_text import fit_text, gpu_ranking_text

    engine_settings = {name: settings.pop(name) for name in ("memory_fraction", "kv_memory")}
    if engine:
        if svg is not None or on is None:
            raise click.UsageError("--engine needs GPUs: --on 8xh100" if on is None else "--svg draws no report of an engine")
        with Progress("checking the engine's rules"):
            started = fit(model, on=on, layout=layout or "", engine=engine, **engine_settings, **settings)
        _print_engine(started, form)
        return int(not started.starts)
    if given := [name for name, value in engine_settings.items() if value is not None]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} is for --engine")
    if on is None and (svg is not None or layout is not None):
        raise click.UsageError("--svg and --layout need GPUs: --on 2xh100")
    if on is None:
        with Progress("sizing the model for each GPU"):
            ranking = fit(model, **settings)
        print_inference(ranking, form, gpu_ranking_text)
        return int(not ranking.fits)
    with Progress("sizing the model"):
        report = fit(model, on=on, layout=layout or "", **settings)
    if settings["context"] is None and form is None:
        note(f"assuming a context of {report.context:,} tokens; --context changes it")
    warn_context(model, report.context)
    print_inference(report, form, fit_text)
    if svg is not None:
        write_file(svg, _roofline(report, settings), overwrite=force)
    return int(not report.fits)


def _print_engine(report: EngineReport, form: str | None) -> None:
    from ..render.text.engine_text import engine_text

    if form == "json":
        echo_json(report.to_json())
    else:
        echo(report.summary if form == "brief" else engine_text(report))


def _roofline(report: FitReport, settings: Mapping[str, Any]) -> str:
    from ..analysis.inference.checkpoint_weights import read_stored_weights
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..render.svg.roofline_svg import roofline_svg

    request = MemoryRequest(**{**settings, "context": report.context})
    stored = None if request.dtype else read_stored_weights(report.model)
    return roofline_svg(report.model, MemoryCalculator(report.model, request, stored), report)
