"""`llamath memory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..model import Model
from ..render.progress import Progress
from ..utils.errors import safe
from ..utils.key_values import Reader, choice, parse_key_values, plain, yes_or_no
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    images_option,
    is_generic,
    kv_dtype_option,
    note_context,
    on_option,
    print_inference,
    takes_checkpoint,
)
from .output import TABLES, echo_report, note, warn

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount

_EXAMPLES = (
    "llamath memory llama-3.1-70b --context 128k --kv-dtype fp8",
    "llamath memory llama-3.1-8b --dtype q4_k_m --on 'mem=12GiB'",
    "llamath memory llama-3-8b --train --layout tp=2,dp=4,zero=1 --training recompute=full",
    "llamath memory llama-3-8b --lora r=16,targets=attention --dtype bnb-nf4",
)
_TRAINING: Mapping[str, Reader] = {
    "optimizer": plain,
    "recompute": choice("none", "selective", "op", "full"),
    "attention": choice("flash", "eager"),
    "kernels": choice("eager", "fused"),
    "loss": plain,
    "dropout": yes_or_no,
    "grad_dtype": plain,
    "master": yes_or_no,
    "fp8": plain,
    "adapter_dtype": plain,
    "accumulate": yes_or_no,
    "offload": yes_or_no,
}


@make_command("memory", _EXAMPLES, brief=True, formats=TABLES)
@takes_checkpoint
@on_option("What fits on this GPU: the longest context, the largest batch. Names or 'mem=24GiB'.")
@dtype_option(
    "Dtype of the weights, if not MODEL's own. GGUF mixes also as q4_k_m:imatrix or "
    "q4_k_m:no-imatrix."
)
@kv_dtype_option
@context_option("Tokens of each sequence: 8192, 128k, max; repeat it for a table.", multiple=True)
@batch_option
@images_option
@click.option(
    "--chunk",
    default="",
    metavar="TOKENS",
    help="Prompt tokens per forward pass, or all.  [default: 2048]",
)
@click.option(
    "--train", is_flag=True, help="Memory of a training step with --batch sequences on each GPU."
)
@click.option(
    "--lora",
    metavar="SPEC",
    help="Train adapters only: r=16,targets=q,v; or attention, mlp, all; saved=embed.",
)
@click.option(
    "--layout",
    metavar="SPEC",
    help="Training over GPUs: tp=8,pp=4,dp=16,zero=3; also cp, ep, "
    "etp, interleave, microbatches, sp.",
)
@click.option(
    "--training",
    metavar="SPEC",
    help="Settings of training: optimizer=adamw8bit, recompute=full, attention=eager, "
    "kernels=fused, loss=chunked, "
    "dropout=yes, grad_dtype=fp32, master=no.",
)
def command(model: Model | HeaderCount, *, form: str | None, train: bool, **options: Any) -> int:
    """Memory for inference or training with MODEL: weights, KV cache, activations and logits, each
    with its formula.

    For a checkpoint, the weights are the bytes stored in its files, unless --dtype is given. Exit
    code 1: not even one token fits on --on.
    """
    lora, layout, training = (options.pop(x) for x in ("lora", "layout", "training"))
    asks_training = train or any(x is not None for x in (lora, layout, training))
    is_plain = not isinstance(model, Model) or is_generic(
        model if asks_training else model.computable
    )
    if is_plain:
        dtype = options.pop("dtype") if isinstance(model, Model) else ""
        has_options = any(
            x not in ("", None, 1, (), False)
            for x in (train, lora, layout, training, *options.values())
        )
        return _weights_only(model, form, has_options, dtype)
    assert isinstance(model, Model)
    if train or lora is not None or training is not None:
        return _train(model, options | {"lora": lora or "", "layout": layout or ""}, training, form)
    if layout is not None:
        raise click.UsageError(
            "--layout is for training: add --train. `llamath fit` splits a model for inference"
        )
    return _infer(model, options, form)


def _infer(model: Model, options: dict[str, Any], form: str | None) -> int:
    from ..api import memory

    with Progress("sizing the model"):
        report = memory(model, **options | {"chunk": options["chunk"] or None})
    if options["on"] is not None:
        _note_gpus(options["on"])
    note_context(report.model, report.context, options["context"], form)
    print_inference(report, form)
    return int(report.limit is not None and report.limit.max_context == 0)


def _note_gpus(on: str) -> None:
    from ..hardware import parse_devices

    count, device = parse_devices(on)
    if count > 1:
        note(
            f"{count:,} GPUs are counted as one of {count * device.memory / 2**30:,.1f} GiB; "
            "`llamath fit` splits the model over them"
        )


def _weights_only(
    model: HeaderCount | Model, form: str | None, has_options: bool, dtype: str
) -> int:
    """Print the weights of a checkpoint of an unknown family, or of a model without one."""
    if has_options:
        reason = (
            f"counted {model.claim}"
            if isinstance(model, Model) and is_generic(model)
            else getattr(model, "reason", "")
        )
        raise click.UsageError(
            f"{reason}; without a family only the bytes of the weights are known"
        )
    from ..analysis.generic.state_dict_count import weights_memory
    from ..analysis.inference.inference_memory import WeightsReport
    from ..analysis.inference.weight_bytes import stored_weights

    if isinstance(model, Model):
        assert is_generic(model)
        report = weights_memory(model, dtype)
    else:
        report = WeightsReport(
            name=safe(model.name), lines=stored_weights(model.listing).lines, reason=model.reason
        )
    echo_report(report, form)
    return 0


def _train(model: Model, options: dict[str, Any], training: str | None, form: str | None) -> int:
    from ..api import memory

    for name in ("kv_dtype", "chunk"):
        if options.pop(name):
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for inference: leave it out "
                "with --train, --training or --lora"
            )
    first, *more = options.pop("context") or [None]
    if more:
        raise click.UsageError("training has one --context")
    settings = parse_key_values(training or "", "--training", _TRAINING)
    with Progress("sizing a training step"):
        report = memory(model, train=True, context=first, **options, **settings)
    note_context(model, report.context, first, form)
    echo_report(report, form)
    for line in report.model.notes if form == "brief" else ():
        if line not in model.notes:  # on files that differ from the config
            warn(line)
    return int(report.limit is not None and report.limit.max_batch == 0)
