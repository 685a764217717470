"""`llamath flops`."""

from __future__ import annotations

from typing import Any

import click

from ..model import Model
from ..utils.errors import LlamathError, safe
from ..utils.key_values import number, parse_key_values, plain
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    images_option,
    kv_dtype_option,
    on_option,
    takes_model,
)
from .output import TABLES, echo, echo_json, echo_report

_EXAMPLES = (
    "llamath flops llama-3.1-405b --context 8k",
    "llamath flops llama-3-8b --on 64xh100 --mfu tokens_per_second=600000",
    "llamath flops google/gemma-3-4b-it --context 4k --images 2x1024",
    "llamath flops llama-2-70b --on 2048xa100 --mfu tflops=150,counted_by=palm",
)
_MFU = {
    "tokens_per_second": number(1e-9, 1e18),
    "tflops": number(1e-9, 1e18),
    "counted_by": plain,
    "precision": plain,
}
_ATTENTION = {"causal": "full", "absorbed": "unpacked", "eager": "flash"}
"""Default of --attention -> the other choice."""


@make_command("flops", _EXAMPLES, brief=True, formats=(*TABLES, "conventions"))
@takes_model
@context_option("Tokens of each sequence: 8192, 128k, max.")
@batch_option
@images_option
@on_option("GPUs for an MFU: h100, 16384xh100, or 'mem=80GiB bf16=989TF'.")
@click.option(
    "--mfu",
    metavar="SPEC",
    help="Throughput for an MFU: tokens_per_second=N of all GPUs, or tflops=N of each; "
    "counted_by=palm, precision=bf16.",
)
@click.option(
    "--attention",
    default="",
    metavar="LIST",
    help="full: no causal skip; flash: scores recomputed in training; unpacked: MLA not absorbed.",
)
@click.option(
    "--recompute",
    type=click.Choice(["none", "selective", "full"]),
    default="none",
    help="Activation checkpointing in training.",
)
@dtype_option("Dtype of the weights, for FLOPs per byte.")
@kv_dtype_option
def command(
    model: Model,
    *,
    on: str | None,
    mfu: str | None,
    attention: str,
    form: str | None,
    **settings: Any,
) -> None:
    """Count the FLOPs of MODEL exactly (prefill, decode, a training step), and by the formulas
    of publications.
    """
    from ..api import flops

    chosen = _attention(attention)
    speed = parse_key_values(mfu or "", "--mfu", _MFU)
    if on is not None:
        from ..hardware import parse_devices

        parse_devices(on)
    if (on, mfu) != (None, None) and (
        on is None or ("tokens_per_second" in speed) == ("tflops" in speed)
    ):
        raise click.UsageError(
            "an MFU needs --on GPUS and --mfu with either tokens_per_second=N or tflops=N"
        )
    model = model.computable
    report = flops(
        model,
        attention="full" if "full" in chosen else "causal",
        unpacked="unpacked" in chosen,
        flash="flash" in chosen,
        on=on,
        **speed,
        **settings,
    )
    if form == "json":
        echo_json({"model": model.name, **report.to_json()})
    elif form == "conventions":
        from ..analysis.flops.flops_tables import convention_parts
        from ..render.report_text import parts_lines

        echo("\n".join(parts_lines(convention_parts(report))))
    else:
        echo_report(report, form)


def _attention(text: str) -> set[str]:
    chosen = {x.strip() for x in text.split(",")} if text else set()
    known = {*_ATTENTION, *_ATTENTION.values()}
    if unknown := sorted(chosen - known):
        raise LlamathError(
            f"--attention: unknown {safe(repr(unknown[0]), 40)}",
            hint=f"some of {', '.join(sorted(known))}",
        )
    for default, other in _ATTENTION.items():
        if {default, other} <= chosen:
            raise LlamathError(f"--attention: either {default} or {other}, not both")
    return chosen
