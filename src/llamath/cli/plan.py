"""`llamath plan`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import click

from ..core.errors import LlamathError, nearest, safe
from ..core.units import parse_count, parse_tokens, tokens_note
from ..hardware import parse_devices
from ..model import Model
from .memory import doubt, warn
from .model_options import takes_model
from .output import say

TRAINING = {"batch_tokens": "", "tokens": "", "layout": "", "optimizer": "", "gradients": "", "flash": True}
SERVING = {"latency": "", "kv_dtype": ""}
"""What belongs to one of the two questions, as it is where nobody gives it."""
LATENCY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)", re.ASCII)
MOST = 1000
TOKENS = 10**18


@click.command("plan")
@takes_model
@click.option(
    "--gpus", "on", required=True, metavar="GPUS", help="16384xh100 (llamath gpus lists them), or '8x mem=80GiB bw=2TB/s bf16=300TF'."
)
@click.option("--train", is_flag=True, help="To train it, which is meant if nothing is said.")
@click.option("--serve", is_flag=True, help="To serve it: TP × PP × replicas, by ceilings of decoding.")
@click.option("--context", default="", metavar="TOKENS", help="Tokens of each sequence: 8192, 128k.")
@click.option("--batch-tokens", default="", metavar="TOKENS", help="Tokens of a step: 16M is 16·2²⁰.")
@click.option("--tokens", default="", metavar="COUNT", help="How long a training on so many takes: 15.6T.")
@click.option("--layout", default="", metavar="SPEC", help="Only these: tp=8,pp=16, also cp, ep, dp, zero, microbatch, interleave.")
@click.option("--optimizer", default="", metavar="NAME", help="adamw (as it is), adamw8bit, adafactor, muon, momentum, sgd.")
@click.option("--grad-dtype", "gradients", default="", metavar="NAME", help="What gradients are summed in: fp32 (as it is), bf16.")
@click.option("--flash/--no-flash", default=True, help="Attention that never writes its scores (as it is), or that does.")
@click.option("--latency", default="", metavar="TIME", help="Of --serve: a sequence's next token within 50ms.")
@click.option("--dtype", default="", metavar="NAME", help="What the weights are in, if not what MODEL says.")
@click.option("--kv-dtype", default="", metavar="NAME", help="Of --serve: what keys and values are in: bf16, fp8, …")
@click.option("--top", type=int, default=10, show_default=True, help="So many plans.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.pass_context
def command(ctx: click.Context, /, model: Model, *, on: str, serve: bool, form: str | None, top: int, **asked: Any) -> None:
    """How to lay MODEL over a cluster: TP × PP × CP × EP × DP, memory and predicted MFU of each plan, ranked. Exit code 1: none fits."""
    if asked.pop("train") and serve:
        raise click.UsageError("either --train or --serve, not both")
    for name, value in (TRAINING if serve else SERVING).items():
        if asked[name] != value:
            option = {"gradients": "grad-dtype", "flash": "no-flash"}.get(name, name.replace("_", "-"))
            raise click.UsageError(f"--{option} is of {'training' if serve else '--serve'}")
    if not 1 <= top <= MOST:
        raise LlamathError(f"--top {top:,}: from 1 to {MOST:,} plans")
    context = _tokens(asked["context"])
    if serve:
        _serve(model, on, str(ctx.params.get("model") or ""), asked | {"context": context, "form": form, "top": top})
    else:
        _train(model, on, asked | {"context": context, "form": form, "top": top})


def _train(model: Model, on: str, asked: Mapping[str, Any]) -> None:
    from ..analysis.plan import PlanRequest, plan

    chosen = {name: asked[name] for name in ("optimizer", "gradients") if asked[name]}
    seen = parse_count(asked["tokens"]) if asked["tokens"] else None
    if seen and seen >= TOKENS:
        raise LlamathError(f"--tokens {safe(asked['tokens'], 40)} is more than all that was ever written", hint="like 15.6T")
    request = PlanRequest(
        tokens=seen,
        dtype=asked["dtype"],
        context=asked["context"],
        batch_tokens=_tokens(asked["batch_tokens"]),
        flash=asked["flash"],
        fixed=_layout(asked["layout"]),
        top=asked["top"],
        **chosen,
    )
    report = plan(model, parse_devices(on), request)
    warn(model, report.context)
    if asked["form"] == "json":
        import json

        from ..render.text.plan_data import plan_json

        say(json.dumps(plan_json(model, report, seen)))
    else:
        from ..render.text.plan_text import plan_text

        say(plan_text(model, report, seen))
    _verdict(bool(report.plans))


def _serve(model: Model, on: str, name: str, asked: Mapping[str, Any]) -> None:
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights
    from ..analysis.plan.serving_plan import plan_serving

    request = MemoryRequest(dtype=asked["dtype"], kv_dtype=asked["kv_dtype"], context=asked["context"])
    sizes = MemoryCalculator(model, request, None if request.dtype else read_stored_weights(name))
    report = plan_serving(model, sizes, parse_devices(on), _seconds(asked["latency"]))
    warn(model, sizes.context)
    doubt(sizes)
    if asked["form"] == "json":
        import json

        from ..render.text.plan_data import serving_json

        say(json.dumps(serving_json(model, report)))
    else:
        from ..render.text.serving_plan_text import serving_text

        say(serving_text(model, report, asked["top"]))
    _verdict(bool(report.plans))


def _verdict(fits: bool) -> None:
    if not fits:
        sys.stdout.flush()
        sys.exit(1)


def _tokens(text: str) -> int | None:
    if text and (note := tokens_note(text)):
        say(f"note: {note}", err=True)
    return parse_tokens(text) if text else None


def _seconds(text: str) -> float | None:
    if not text:
        return None
    found = LATENCY.fullmatch(text.strip())
    if not found or not float(found[1]):
        raise LlamathError(f"{safe(repr(text), 40)} is no latency", hint="--latency 50ms, or 0.05s")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def _layout(text: str) -> dict[str, int]:
    from ..analysis.plan.layout_space import LAYOUT_AXES, LAYOUT_OPTIONS

    known, made = (*LAYOUT_AXES, *LAYOUT_OPTIONS), dict[str, int]()
    for part in text.split(",") if text else ():
        name, _, value = (x.strip() for x in part.partition("="))
        if name not in known or not re.fullmatch(r"\d{1,9}", value, re.ASCII) or (not int(value) and name != "zero"):
            near = nearest(name, known) if name not in known else []
            hint = f"did you mean {near[0]}?" if near else f"like tp=8,pp=4; any of {', '.join(known)}"
            raise LlamathError(f"{safe(repr(part.strip()), 40)} is no part of a layout", hint=hint)
        if name in made:
            raise LlamathError(f"{name} comes twice in a layout")
        made[name] = int(value)
    if made.get("zero", 0) > 3:
        raise LlamathError(f"ZeRO has stages 0 to 3, not {made['zero']}")
    return made
