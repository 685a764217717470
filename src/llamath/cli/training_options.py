"""The options of `llamath memory` for training: `--train`, `--lora`, and how the model is laid out over GPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, nearest, safe
from ..core.units import parse_bytes, parse_tokens, tokens_note
from ..model import Model
from .output import say

if TYPE_CHECKING:
    from ..analysis.parallel_layout import Layout
    from ..analysis.training.training_memory import TrainReport, TrainRequest

AXES = ("tp", "pp", "cp", "ep", "etp", "dp", "zero", "interleave", "microbatches")
SWITCHES = {"sp": "sequence_parallel"}
OWN = ("optimizer", "layout", "recompute", "flash", "kernels", "dropout", "gradients", "master")
INFERENCE = {"kv_dtype": "", "chunk": "", "imatrix": None}
"""Options of inference that a training step has no use for, as they are where nobody gives them."""


def trains(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; with `--train` or `--lora` the question is another one, and the command itself is not called."""

    @wraps(command)
    def wrapper(model: Any, /, *, train: bool, lora: str | None, **rest: Any) -> None:
        own = {name: rest.pop(name) for name in OWN}
        if train or lora is not None:
            _train(model, lora, own, rest)
            return
        if given := [name for name, value in own.items() if value not in (None, False)]:
            name = {"gradients": "grad-dtype"}.get(given[0], given[0])
            raise click.UsageError(f"--{name} is of training: say --train or --lora as well")
        command(model, **rest)

    for option in reversed(OPTIONS):
        wrapper = option(wrapper)
    return wrapper


OPTIONS = (
    click.option("--train", is_flag=True, help="What a training step needs, --batch sequences at a time on each GPU."),
    click.option("--lora", metavar="SPEC", help="Train adapters alone: r=16,targets=q,v; also qv, attention, mlp, all; saved=embed."),
    click.option("--optimizer", metavar="NAME", help="adamw (as it is), adamw8bit, adafactor, muon, momentum, sgd."),
    click.option("--layout", metavar="SPEC", help="Over GPUs: tp=8,pp=4,interleave=2,cp=2,ep=8,dp=16,zero=3,microbatches=32,sp=no."),
    click.option("--recompute", type=click.Choice(["none", "selective", "full"]), help="What the backward pass computes again."),
    click.option("--flash/--no-flash", default=None, help="Attention that never writes its scores (as it is), or that does."),
    click.option("--kernels", type=click.Choice(["eager", "fused"]), help="transformers' own code (as it is), or fused norms and SwiGLU."),
    click.option("--dropout", is_flag=True, help="With dropout after scores, attention and MLP."),
    click.option("--grad-dtype", "gradients", metavar="NAME", help="What gradients are in, if not what the weights are."),
    click.option("--master/--no-master", default=None, help="A copy of the weights in fp32 (as it is for 16 bits), or none."),
)


def _train(model: Any, lora: str | None, own: dict[str, Any], rest: dict[str, Any]) -> None:
    if not isinstance(model, Model):
        raise LlamathError(f"{model.reason}; without a family nothing is known but the bytes of the weights")
    for name, value in INFERENCE.items():
        if rest[name] != value:
            raise click.UsageError(f"--{name.replace('_', '-')} is of inference: not with --train or --lora")
    from ..analysis.training.training_memory import training

    request = _request(model, lora, own, rest)
    report = training(model, request)
    from .memory import warn

    warn(model, report.context)
    fitting = None if rest["within"] is None else _fitting(model, report, parse_bytes(rest["within"]))
    if rest["form"] == "json":
        import json

        from ..render.text.training_text import training_json

        say(json.dumps(training_json(model, report, fitting)))
    else:
        from ..render.text.training_text import training_text

        say(training_text(model, report, fitting))


def _request(model: Model, lora: str | None, own: dict[str, Any], rest: dict[str, Any]) -> TrainRequest:
    from ..analysis.inference.inference_memory import declared_dtype
    from ..analysis.training.training_memory import TrainRequest, training_dtype

    chosen = {name: own[name] for name in ("optimizer", "gradients") if own[name]}
    text = rest["context"]
    if "," in text:
        raise click.UsageError("--train wants one --context")
    if note := tokens_note(text) if text else "":
        say(f"note: {note}", err=True)
    return TrainRequest(
        dtype=rest["dtype"] or (declared_dtype(model) if lora is not None else training_dtype(model)),
        master=own["master"],
        context=parse_tokens(text) if text else None,
        layout=_layout(own, rest["batch"]),
        dropout=own["dropout"],
        fused=own["kernels"] == "fused",
        **chosen,
        **(_lora(lora) if lora is not None else {}),
    )


def _layout(own: dict[str, Any], batch: int) -> Layout:
    from ..analysis.parallel_layout import Layout

    facts: dict[str, Any] = {"microbatch": batch}
    for part in (own["layout"] or "").replace("×", ",").split(",") if own["layout"] is not None else ():
        name, _, value = (x.strip() for x in part.partition("="))
        if SWITCHES.get(name, name) in facts:
            raise LlamathError(f"{name} comes twice in a layout")
        if name in SWITCHES and value in ("yes", "no"):
            facts[SWITCHES[name]] = value == "yes"
        elif name in AXES and value.isascii() and value.isdecimal() and len(value) < 10:
            facts[name] = int(value)
        else:
            near = nearest(name, (*AXES, *SWITCHES))
            known = f"did you mean {near[0]}?" if near and name not in (*AXES, *SWITCHES) else "like tp=8,pp=4,dp=2,zero=1,sp=no"
            raise LlamathError(f"{safe(repr(part.strip()), 40)} is no part of a layout", hint=known)
    if own["recompute"]:
        facts["recompute"] = own["recompute"]
    if own["flash"] is not None:
        facts["flash"] = own["flash"]
    return Layout(**facts)


def _lora(text: str) -> dict[str, Any]:
    """`r=16,targets=q,v`: a word without `=` goes on with the list before it."""
    found: dict[str, list[str]] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = (x.strip() for x in part.partition("="))
        last, value = (name, value) if equals else (last, name)
        if last not in ("r", "targets", "saved") or not value:
            raise LlamathError(f"{safe(repr(part.strip()), 40)} is no part of --lora", hint="like r=16,targets=q,v or r=8,targets=all")
        found.setdefault(last, []).append(value)
    rank = "=".join(found.get("r", []))
    if not (rank.isascii() and rank.isdecimal()) or not 1 <= int(rank[:11]) < 2**31:
        raise LlamathError("--lora wants a rank, one integer from 1 to 2,147,483,647", hint="like r=16,targets=q,v")
    return {"rank": int(rank), "targets": tuple(found.get("targets", ["all"])), "saved": tuple(found.get("saved", ()))}


def _fitting(model: Model, report: TrainReport, within: int) -> tuple[int, int | None]:
    from ..analysis.inference.inference_memory import largest_fitting
    from ..analysis.training.training_memory import TrainingJob

    job = TrainingJob(model, report.request)

    def fits(n: int) -> bool:
        return job.with_layout(job.layout.replace(microbatch=n)).report(every=False).largest_stage.total <= within

    return within, largest_fitting(fits, 2**40)
