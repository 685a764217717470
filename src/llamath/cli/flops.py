"""`llamath flops`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, safe
from ..core.key_values import number, parse_key_values, plain
from ..model import Model
from .command_group import command as make_command
from .model_options import batch_option, context_option, dtype_option, kv_dtype_option, on_option, takes_model
from .output import echo, echo_json

if TYPE_CHECKING:
    from ..analysis.flops.flops_report import FlopsReport
    from ..analysis.flops.mfu import Throughput
    from ..hardware import Device

EXAMPLES = (
    "llamath flops llama-3.1-405b --context 8k",
    "llamath flops llama-3-8b --on 64xh100 --mfu tokens_per_second=600000",
    "llamath flops llama-2-70b --on 2048xa100 --mfu tflops=150,counted_by=palm",
)
MFU = {"tokens_per_second": number(1e-9, 1e18), "tflops": number(1e-9, 1e18), "counted_by": plain, "precision": plain}
ATTENTION = {"causal": "full", "absorbed": "unpacked", "eager": "flash"}
"""Default of --attention -> the other choice."""


@make_command("flops", EXAMPLES, brief=True, formats=("csv", "markdown", "conventions"))
@takes_model
@context_option("Tokens of each sequence: 8192, 8k.  [default: MODEL's own context]")
@batch_option
@on_option("GPUs for an MFU: h100, 16384xh100, or 'mem=80GiB bf16=989TF'.")
@click.option(
    "--mfu",
    metavar="SPEC",
    help="Throughput for an MFU: tokens_per_second=N of all GPUs, or tflops=N of each; counted_by=palm, precision=bf16.",
)
@click.option(
    "--attention",
    default="",
    metavar="LIST",
    help="full: no causal skip; flash: scores recomputed in training; unpacked: MLA not absorbed.",
)
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), default="none", help="Activation checkpointing in training.")
@dtype_option("Dtype of the weights, for FLOPs per byte.")
@kv_dtype_option
def command(
    model: Model, *, context: int | None, on: str | None, mfu: str | None, attention: str, form: str | None, **rest: Any
) -> int | None:
    """Count the FLOPs of MODEL exactly (prefill, decode, a training step), and by the formulas of publications."""
    from ..analysis.flops.flops_report import FlopsRequest, count_model_flops
    from ..analysis.flops.mfu import utilization, with_mfu

    chosen = _attention(attention)
    request = FlopsRequest(context=context, masked="full" not in chosen, unpacked="unpacked" in chosen, flash="flash" in chosen, **rest)
    report = count_model_flops(model, request)
    speed = _speed(report, on, mfu)
    found = (speed, utilization(report, speed)) if speed else None
    if speed:
        report = with_mfu(report, speed)
    if form == "json":
        echo_json({"model": model.name, **report.to_json()})
    elif form in ("csv", "markdown"):
        from ..render.text.flops_text import flops_rows

        echo("\n".join(flops_rows(report, form)))
    elif form == "brief":
        echo(report.summary)
    else:
        from ..render.text.flops_text import conventions_text, flops_text

        echo(conventions_text(report) if form == "conventions" else flops_text(model, report, found))
    return None


def _attention(text: str) -> set[str]:
    chosen = {x.strip() for x in text.split(",")} if text else set()
    known = {*ATTENTION, *ATTENTION.values()}
    if unknown := sorted(chosen - known):
        raise LlamathError(f"--attention: unknown {safe(repr(unknown[0]), 40)}", hint=f"some of {', '.join(sorted(known))}")
    for default, other in ATTENTION.items():
        if {default, other} <= chosen:
            raise LlamathError(f"--attention: either {default} or {other}, not both")
    return chosen


def _speed(report: FlopsReport, on: str | None, mfu: str | None) -> Throughput | None:
    """Return the speed for an MFU; None if none is asked for."""
    from ..analysis.flops.mfu import Throughput, speed_of
    from ..hardware import parse_devices

    if on is None and mfu is None:
        return None
    given = parse_key_values(mfu, "--mfu", MFU) if mfu is not None else {}
    if on is None or ("tokens_per_second" in given) == ("tflops" in given):
        raise click.UsageError("an MFU needs --on GPUS and --mfu with either tokens_per_second=N or tflops=N")
    gpus, device = parse_devices(on)
    rate = given.get("tokens_per_second")
    if rate is None:
        rate = gpus * speed_of(report, Fraction(given["tflops"]) * 10**12, given.get("counted_by", "exact"))
    precision = given.get("precision", "bf16")
    return Throughput(tokens=Fraction(rate), gpus=gpus, peak=_peak(device, precision), name=device.title, precision=precision)


def _peak(device: Device, precision: str) -> int:
    if rate := device.flops.get(precision):
        return rate
    known = ", ".join(x for x, n in device.flops.items() if n)
    raise LlamathError(f"{device.title} has no {safe(repr(precision), 60)} FLOP/s", hint=f"it has {known}" if known else "add bf16=989TF")
