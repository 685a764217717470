"""`llamath memory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, safe
from ..core.key_values import Reader, choice, integer, parse_key_values, plain, yes_or_no
from ..core.units import parse_tokens
from ..hardware import parse_devices
from ..model import Model
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    kv_dtype_option,
    on_option,
    takes_checkpoint,
    warn_context,
    warn_quantization,
)
from .output import echo, echo_json, note

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount
    from ..analysis.training.training_memory import TrainRequest

EXAMPLES = (
    "llamath memory llama-3.1-70b --context 128k --kv-dtype fp8",
    "llamath memory llama-3.1-8b --dtype q4_k_m --on 'mem=12GiB'",
    "llamath memory llama-3-8b --train --layout tp=2,dp=4,zero=1 --training recompute=full",
    "llamath memory llama-3-8b --lora r=16,targets=attention --dtype bnb-nf4",
)
LAYOUT: Mapping[str, Reader] = {
    **{name: integer() for name in ("tp", "pp", "cp", "ep", "etp", "dp", "interleave", "microbatches")},
    "zero": integer(0, 3),
    "sp": yes_or_no,
}
TRAINING: Mapping[str, Reader] = {
    "optimizer": plain,
    "recompute": choice("none", "selective", "full"),
    "attention": choice("flash", "eager"),
    "kernels": choice("eager", "fused"),
    "dropout": yes_or_no,
    "grad_dtype": plain,
    "master": yes_or_no,
}


@make_command("memory", EXAMPLES, brief=True)
@takes_checkpoint
@on_option("What fits on this GPU: the longest context, the largest batch. Names or 'mem=24GiB'.")
@dtype_option("Dtype of the weights, if not MODEL's own. GGUF mixes also as q4_k_m:imatrix or q4_k_m:no-imatrix.")
@kv_dtype_option
@context_option("Tokens of each sequence: 4096, 8k, 128k. Repeat it for a table.", multiple=True)
@batch_option
@click.option("--chunk", default="", metavar="TOKENS", help="Prompt tokens per forward pass, or all.  [default: 2048]")
@click.option("--train", is_flag=True, help="Memory of a training step with --batch sequences on each GPU.")
@click.option("--lora", metavar="SPEC", help="Train adapters only: r=16,targets=q,v; or attention, mlp, all; saved=embed.")
@click.option(
    "--layout", metavar="SPEC", help="Training over GPUs: tp=8,pp=4,dp=16,zero=3; also cp, ep, etp, interleave, microbatches, sp."
)
@click.option(
    "--training",
    metavar="SPEC",
    help="Settings of training: optimizer=adamw8bit, recompute=full, attention=eager, kernels=fused, dropout=yes, grad_dtype=fp32, "
    "master=no.",
)
@click.pass_context
def command(ctx: click.Context, /, model: Model | HeaderCount, *, form: str | None, train: bool, **options: Any) -> int:
    """Memory for inference or training with MODEL: weights, KV cache, activations and logits, each with its formula.

    For a checkpoint, the weights are the bytes stored in its files, unless --dtype is given. Exit code 1: not even one token fits on --on.
    """
    options["dtype"], options["imatrix"] = _split_imatrix(options["dtype"])
    lora, layout, training = (options.pop(x) for x in ("lora", "layout", "training"))
    if not isinstance(model, Model):
        given = any(x not in ("", None, 1, (), False) for x in (train, lora, layout, training, *options.values()))
        return _weights_only(model, form, given)
    if train or lora is not None or training is not None:
        return _train(model, lora, layout or "", training or "", options, form)
    if layout is not None:
        raise click.UsageError("--layout is for training: add --train. `llamath fit` splits a model for inference")
    return _infer(model, str(ctx.params.get("model") or ""), options, form)


def _split_imatrix(text: str) -> tuple[str, bool | None]:
    name, colon, suffix = text.partition(":")
    if colon and suffix not in ("imatrix", "no-imatrix"):
        raise LlamathError(f"unknown dtype {safe(repr(text), 60)}", hint=f"{safe(name, 40)}:imatrix or {safe(name, 40)}:no-imatrix")
    return name, (suffix == "imatrix") if colon else None


def _infer(model: Model, name: str, options: dict[str, Any], form: str | None) -> int:
    from ..analysis.inference.inference_memory import MAX_TOKENS, PREFILL_CHUNK, MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights
    from ..render.text.memory_text import memory_text

    contexts, on, chunk = options.pop("context"), options.pop("on"), options.pop("chunk")
    tokens = PREFILL_CHUNK if not chunk else MAX_TOKENS - 1 if chunk == "all" else parse_tokens(chunk)
    request = MemoryRequest(**options, chunk=tokens, context=max(contexts, default=None))
    calculator = MemoryCalculator(model, request, None if request.dtype else read_stored_weights(name))
    report = calculator.report(contexts, None if on is None else _budget(on))
    warn_context(model, calculator.context)
    warn_quantization(calculator)
    if form == "json":
        echo_json(report.to_json())
    else:
        echo(report.summary if form == "brief" else memory_text(report))
    return int(report.limit is not None and report.limit.max_context == 0)


def _budget(on: str) -> int:
    """Return the memory of the GPUs, all together."""
    count, device = parse_devices(on)
    if count > 1:
        note(f"{count:,} GPUs are counted as one of {count * device.memory / 2**30:,.1f} GiB; `llamath fit` splits the model over them")
    return count * device.memory


def _weights_only(found: HeaderCount, form: str | None, given: bool) -> int:
    """Print the weights of a checkpoint of an unknown family."""
    if given:
        raise click.UsageError(f"{found.reason}; without a family only the bytes of the weights are known")
    from ..analysis.inference.inference_memory import WeightsReport
    from ..analysis.inference.weight_bytes import stored_weights
    from ..render.text.memory_text import weights_only_text

    report = WeightsReport(name=safe(found.name), lines=stored_weights(found.listing).lines, reason=found.reason)
    if form == "json":
        echo_json(report.to_json())
    else:
        echo(report.summary if form == "brief" else weights_only_text(report))
    return 0


def _train(model: Model, lora: str | None, layout: str, training: str, options: dict[str, Any], form: str | None) -> int:
    for name, default in (("kv_dtype", ""), ("chunk", ""), ("imatrix", None)):
        if options[name] != default:
            raise click.UsageError(f"--{name.replace('_', '-')} is for inference: leave it out with --train, --training or --lora")
    if len(options["context"]) > 1:
        raise click.UsageError("training has one --context")
    from ..analysis.training.training_memory import training as training_memory

    within = None if options["on"] is None else parse_devices(options["on"])[1].memory
    report = training_memory(model, _request(model, lora, layout, training, options), within)
    warn_context(model, report.context)
    if form == "json":
        echo_json(report.to_json())
    elif form == "brief":
        echo(report.summary)
    else:
        from ..render.text.training_text import training_text

        limit = report.limit
        echo(training_text(model, report, None if limit is None else (limit.within, limit.max_batch)))
    return int(report.limit is not None and report.limit.max_batch == 0)


def _request(model: Model, lora: str | None, layout: str, training: str, options: Mapping[str, Any]) -> TrainRequest:
    from ..analysis.inference.inference_memory import declared_dtype
    from ..analysis.parallel_layout import Layout
    from ..analysis.training.training_memory import TrainRequest, training_dtype

    axes = parse_key_values(layout, "--layout", LAYOUT) if layout else {}
    settings = parse_key_values(training, "--training", TRAINING) if training else {}
    if "sp" in axes:
        axes["sequence_parallel"] = axes.pop("sp")
    if "recompute" in settings:
        axes["recompute"] = settings["recompute"]
    if "attention" in settings:
        axes["flash"] = settings["attention"] == "flash"
    chosen = {"optimizer": settings.get("optimizer"), "gradients": settings.get("grad_dtype")}
    return TrainRequest(
        dtype=options["dtype"] or (declared_dtype(model) if lora is not None else training_dtype(model)),
        master=settings.get("master"),
        context=options["context"][0] if options["context"] else None,
        layout=Layout(**axes, microbatch=options["batch"]),
        dropout=settings.get("dropout", False),
        fused=settings.get("kernels") == "fused",
        **{name: x for name, x in chosen.items() if x},
        **(_lora(lora) if lora is not None else {}),
    )


def _lora(text: str) -> dict[str, Any]:
    """Read `r=16,targets=q,v`; a word without `=` continues the list before it."""
    found: dict[str, list[str]] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = (x.strip() for x in part.partition("="))
        last, value = (name, value) if equals else (last, name)
        if last not in ("r", "targets", "saved") or not value:
            raise LlamathError(f"--lora: unexpected {safe(repr(part.strip()), 40)}", hint="like r=16,targets=q,v or r=8,targets=all")
        found.setdefault(last, []).append(value)
    rank = "=".join(found.get("r", []))
    if not (rank.isascii() and rank.isdecimal()) or not 1 <= int(rank[:11]) < 2**31:
        raise LlamathError("--lora needs a rank r, an integer from 1 to 2,147,483,647", hint="like r=16,targets=q,v")
    return {"rank": int(rank), "targets": tuple(found.get("targets", ["all"])), "saved": tuple(found.get("saved", ()))}
