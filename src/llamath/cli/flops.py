"""`llamath flops`."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, safe
from ..core.units import parse_tokens, tokens_note
from ..model import Model
from .model_options import takes_model

if TYPE_CHECKING:
    from ..analysis.flops.flops_report import FlopsReport
    from ..analysis.flops.mfu import Throughput
    from ..hardware import Device

MOST = 1e18
"""Nothing is as fast as this."""


@click.command("flops")
@takes_model
@click.option("--context", metavar="TOKENS", help="Of each sequence: 8192, or 8k for 8,192; the model's own if not said.")
@click.option("--batch", type=int, default=1, show_default=True, help="Sequences at once.")
@click.option("--attention", type=click.Choice(["causal", "full"]), default="causal", help="Pairs the mask lets through, or all.")
@click.option("--unpacked", is_flag=True, help="Latent attention decodes with keys and values unpacked, not in the latent space.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), default="none", help="In training: attention, or layers.")
@click.option("--flash", is_flag=True, help="In training: a fused attention kernel, which works its scores out again.")
@click.option("--dtype", default="", help="Of the weights, for FLOPs per byte: bf16, fp8, nf4, Q4_K_M, …")
@click.option("--kv-dtype", default="", help="Of the cache.")
@click.option("--gpu", metavar="[N×]GPU", help="For an MFU: h100, 16384xh100, or 'mem=80GiB bw=3.35TB/s bf16=989TF'.")
@click.option("--tokens-per-second", type=float, help="For an MFU: how fast all GPUs together train.")
@click.option("--tflops", type=float, help="For an MFU: what each GPU is said to achieve, in 10¹² FLOP/s.")
@click.option("--counted-by", default="exact", show_default=True, help="For --tflops: whose count it is, as --conventions names them.")
@click.option("--precision", default="bf16", show_default=True, help="For an MFU: which of the GPU's rates is the peak.")
@click.option("--conventions", is_flag=True, help="The conventions with formula, meaning and source.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="Product by product, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="The same, for documents.")
def command(model: Model, *, context: str | None, attention: str, conventions: bool, form: str | None, **rest: Any) -> None:
    """Count the FLOPs of MODEL: prefill, decode and a training step, exactly, beside the formulas that publications use."""
    from ..analysis.flops.flops_report import FlopsRequest, count_model_flops

    asked = {name: rest.pop(name) for name in ("batch", "unpacked", "recompute", "flash", "dtype", "kv_dtype")}
    request = FlopsRequest(context=None if context is None else parse_tokens(context), masked=attention == "causal", **asked)
    if context is not None and (note := tokens_note(context)):
        click.echo(f"note: {note}", err=True)
    report = count_model_flops(model, request)
    speed = _speed(report, rest)
    if conventions and form is None:
        from ..render.text.flops_text import conventions_text

        click.echo(conventions_text(report))
    else:
        click.echo(_shown(model, report, speed, form))


def _shown(model: Model, report: FlopsReport, speed: Throughput | None, form: str | None) -> str:
    from ..analysis.flops.mfu import utilization

    found = (speed, utilization(report, speed)) if speed else None
    if form is None:
        from ..render.text.flops_text import flops_text

        return flops_text(model, report, found)
    from ..render.text.flops_data import flops_json, flops_rows

    if form == "json":
        import json

        return json.dumps(flops_json(model, report, found))
    return "\n".join(flops_rows(report, form))


def _speed(report: FlopsReport, told: Mapping[str, Any]) -> Throughput | None:
    """The speed that an MFU is asked for; None where it is not."""
    from ..analysis.flops.mfu import Throughput, speed_of
    from ..hardware import parse_devices

    gpu, rate, tflops = told["gpu"], told["tokens_per_second"], told["tflops"]
    if gpu is None and rate is None and tflops is None:
        return None
    if gpu is None or (rate is None) == (tflops is None):
        raise click.UsageError("an MFU needs --gpu and either --tokens-per-second or --tflops")
    if not 0 < (rate or tflops or 0) < MOST:
        raise click.UsageError("a speed is a number above 0")
    gpus, device = parse_devices(gpu)
    if rate is None:
        rate = gpus * speed_of(report, Fraction(tflops) * 10**12, told["counted_by"])
    return Throughput(
        tokens=Fraction(rate), gpus=gpus, peak=_peak(device, told["precision"]), name=device.title, precision=told["precision"]
    )


def _peak(device: Device, precision: str) -> int:
    if rate := device.flops.get(precision):
        return rate
    hint = f"it has {', '.join(x for x, n in device.flops.items() if n)}"
    raise LlamathError(f"{device.title} has no rate for {safe(repr(precision), 60)}", hint=hint)
