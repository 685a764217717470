"""`llamath plan`."""

from __future__ import annotations

import re
from typing import Any

import click

from ..core.errors import LlamathError, safe
from ..core.key_values import choice, integer, parse_key_values, plain
from ..core.units import parse_count, parse_tokens
from ..hardware import parse_devices
from ..model import Model
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import context_option, dtype_option, kv_dtype_option, on_option, takes_model, warn_context, warn_quantization
from .output import echo, echo_json

EXAMPLES = (
    "llamath plan llama-3.1-405b --on 16384xh100 --batch-tokens 16M --tokens 15.6T",
    "llamath plan llama-3-70b --on 64xh100 --layout tp=8",
    "llamath plan llama-3.1-70b --on 8xh100 --serve --latency 50ms",
)
TRAINING_OPTIONS = {"batch_tokens": "", "tokens": "", "layout": "", "training": ""}
SERVING_OPTIONS = {"latency": "", "kv_dtype": ""}
"""Options that only one of the two questions has -> their defaults."""
TRAINING = {"optimizer": plain, "grad_dtype": plain, "attention": choice("flash", "eager")}
LATENCY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)", re.ASCII)
MAX_PLANS = 1000
MAX_TOKENS = 10**18


@make_command("plan", EXAMPLES, brief=True)
@takes_model
@on_option("GPUs: 16384xh100, or '8x mem=80GiB bw=2TB/s bf16=300TF'. `llamath gpus` lists them.", required=True)
@click.option("--train/--serve", default=True, help="Plan for training (default), or for inference.")
@context_option("Tokens of each sequence: 8192, 128k.")
@click.option("--batch-tokens", default="", metavar="TOKENS", help="Training tokens per step: 16M is 16·2²⁰.")
@click.option("--tokens", default="", metavar="COUNT", help="Training tokens in all, for the duration: 15.6T.")
@click.option("--layout", default="", metavar="SPEC", help="Keep these fixed: tp=8,pp=16; also cp, ep, dp, zero, microbatch, interleave.")
@click.option("--training", default="", metavar="SPEC", help="optimizer=adamw8bit, grad_dtype=bf16, attention=eager.")
@click.option("--latency", default="", metavar="TIME", help="With --serve: maximum time per token, such as 50ms.")
@dtype_option("Dtype of the weights, if not MODEL's own.")
@kv_dtype_option
@click.option("--top", type=int, default=10, show_default=True, metavar="N", help="Number of plans to show.")
@click.pass_context
def command(ctx: click.Context, /, model: Model, *, on: str, train: bool, form: str | None, top: int, **options: Any) -> int:
    """Rank the ways to split MODEL over a cluster: TP × PP × CP × EP × DP, with memory and predicted MFU. Exit code 1: none fits."""
    for name, value in (SERVING_OPTIONS if train else TRAINING_OPTIONS).items():
        if options[name] != value:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {'--serve' if train else 'training'}")
    if not 1 <= top <= MAX_PLANS:
        raise LlamathError(f"--top {top:,}: expected 1 to {MAX_PLANS:,} plans")
    _, device = parse_devices(on)
    if not device.bandwidth:
        raise LlamathError(f"a plan needs the memory bandwidth of {device.title}", hint="like 8x mem=80GiB bw=2TB/s bf16=300TF")
    if train:
        return _train(model, on, form, top, options)
    return _serve(model, on, form, top, options, str(ctx.params.get("model") or ""))


def _train(model: Model, on: str, form: str | None, top: int, options: dict[str, Any]) -> int:
    from ..analysis.plan import PlanRequest, plan
    from ..analysis.plan.layout_space import LAYOUT_AXES, LAYOUT_OPTIONS
    from ..render.text.plan_text import plan_text

    axes = {name: integer() for name in (*LAYOUT_AXES, *LAYOUT_OPTIONS)} | {"zero": integer(0, 3)}
    settings = parse_key_values(options["training"], "--training", TRAINING) if options["training"] else {}
    tokens = parse_count(options["tokens"]) if options["tokens"] else None
    if tokens and tokens >= MAX_TOKENS:
        raise LlamathError(f"--tokens {safe(options['tokens'], 40)}: more text than exists", hint="like 15.6T")
    chosen = {"optimizer": settings.get("optimizer"), "gradients": settings.get("grad_dtype")}
    request = PlanRequest(
        tokens=tokens,
        dtype=options["dtype"],
        context=options["context"],
        batch_tokens=parse_tokens(options["batch_tokens"]) if options["batch_tokens"] else None,
        flash=settings.get("attention", "flash") == "flash",
        fixed=parse_key_values(options["layout"], "--layout", axes) if options["layout"] else {},
        top=top,
        **{name: x for name, x in chosen.items() if x},
    )
    with Progress("searching layouts"):
        report = plan(model, parse_devices(on), request)
    warn_context(model, report.context)
    if form == "json":
        echo_json(report.to_json())
    elif form == "brief":
        echo(report.summary)
    else:
        echo(plan_text(model, report, tokens))
    return int(not report.plans)


def _serve(model: Model, on: str, form: str | None, top: int, options: dict[str, Any], name: str) -> int:
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights
    from ..analysis.plan.serving_plan import plan_serving
    from ..render.text.serving_plan_text import serving_text

    request = MemoryRequest(dtype=options["dtype"], kv_dtype=options["kv_dtype"], context=options["context"])
    sizes = MemoryCalculator(model, request, None if request.dtype else read_stored_weights(name))
    with Progress("searching layouts"):
        report = plan_serving(model, sizes, parse_devices(on), _seconds(options["latency"]))
    warn_context(model, sizes.context)
    warn_quantization(sizes)
    if form == "json":
        echo_json(report.to_json())
    elif form == "brief":
        echo(report.summary)
    else:
        echo(serving_text(model, report, top))
    return int(not report.plans)


def _seconds(text: str) -> float | None:
    if not text:
        return None
    found = LATENCY.fullmatch(text.strip())
    if not found or not float(found[1]):
        raise LlamathError(f"{safe(repr(text), 40)} is not a latency", hint="--latency 50ms, or 0.05s")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)
