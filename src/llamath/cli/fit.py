"""`llamath fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.key_values import integer, parse_key_values
from ..hardware import parse_devices
from ..model import Model
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    kv_dtype_option,
    on_option,
    svg_option,
    takes_model,
    warn_context,
    warn_quantization,
)
from .output import echo, echo_json, note, write_file

if TYPE_CHECKING:
    from ..analysis.inference.inference_memory import MemoryCalculator

EXAMPLES = (
    "llamath fit llama-3.1-8b  # which GPUs can run it",
    "llamath fit llama-3.1-8b --on rtx-4090 --context 32k",
    "llamath fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2",
    "llamath fit qwen3-8b --on 'mem=16GiB bw=500GB/s' --dtype q4_k_m",
    "llamath fit llama-3.1-8b --on 3060,4090  # in one machine",
)
DEFAULT_CONTEXT = 4096
"""Tokens of a sequence if neither --context nor a shorter context of the model's own says otherwise."""


@make_command("fit", EXAMPLES, brief=True)
@takes_model
@on_option("GPUs: rtx-4090, 8xh100, a machine with several (3060,4090), or 'mem=24GiB bw=1TB/s bf16=300TF'.")
@dtype_option()
@kv_dtype_option
@context_option(f"Tokens of each sequence: 8192, 8k, 128k.  [default: {DEFAULT_CONTEXT}]")
@batch_option
@click.option("--layout", metavar="SPEC", help="Tensor and pipeline parallelism: tp=8,pp=2; chosen if not given.")
@svg_option("Also draw the roofline.")
@click.pass_context
def command(
    ctx: click.Context, /, model: Model, *, on: str | None, layout: str | None, svg: str | None, force: bool, form: str | None, **asked: Any
) -> int:
    """Does MODEL fit on these GPUs, and how fast can it be at most? Exit code 0: it fits, 1: it does not.

    Without --on: which GPUs of the catalog can run it, smallest first. Different GPUs in one list are one machine, in which each GPU
    counts as the least of them in memory, bandwidth and FLOP/s.
    """
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights

    if on is None and (svg is not None or layout is not None):
        raise click.UsageError("--svg and --layout need GPUs: --on 2xh100")
    if asked["context"] is None:
        asked["context"] = min(model.tree.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
        if on is not None and form is None:
            note(f"assuming a context of {asked['context']:,} tokens; --context changes it")
    request = MemoryRequest(**asked)
    calculator = MemoryCalculator(model, request, None if request.dtype else read_stored_weights(str(ctx.params.get("model") or "")))
    warn_quantization(calculator)
    if on is None:
        return _rank(calculator, form)
    return _fit(calculator, on, layout or "", form, svg, force)


def _fit(calculator: MemoryCalculator, on: str, layout: str, form: str | None, svg: str | None, force: bool) -> int:
    from ..analysis.inference.fit_report import fit
    from ..render.text.fit_text import fit_text

    split = parse_key_values(layout, "--layout", {"tp": integer(), "pp": integer()}) if layout else {}
    count, gpu = parse_devices(on)
    report = fit(calculator, gpu, count, **split)
    warn_context(calculator.model, calculator.context)
    if form == "json":
        echo_json(report.to_json())
    elif form == "brief":
        echo(report.summary)
    else:
        echo(fit_text(report))
    if svg is not None:
        from ..render.svg.roofline_svg import roofline_svg

        write_file(svg, roofline_svg(calculator.model, calculator, report), overwrite=force)
    return int(not report.fits)


def _rank(calculator: MemoryCalculator, form: str | None) -> int:
    from ..analysis.inference.gpu_ranking import rank_gpus
    from ..render.text.fit_text import gpu_ranking_text

    ranking = rank_gpus(calculator)
    if form == "json":
        echo_json(ranking.to_json())
    else:
        echo(ranking.summary if form == "brief" else gpu_ranking_text(ranking))
    return int(not ranking.fits)
