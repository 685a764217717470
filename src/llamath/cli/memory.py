"""`llamath memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model import Model
from ..questions.memory_questions import MemoryQuestion, TrainingQuestion
from ..render.progress import Progress
from ..utils.errors import Argument, Call, Name, safe
from .command_group import command as make_command
from .model_options import is_generic, note_context, print_inference, takes_checkpoint
from .output import TABLES, echo_report, note, warn
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount
    from ..hardware import Device

_EXAMPLES = (
    "llamath memory llama-3.1-70b --context 128k --kv-dtype fp8",
    "llamath memory llama-3.1-8b --dtype q4_k_m --on 'mem=12GiB'",
    "llamath memory llama-3-8b --training recompute=full --layout tp=2,dp=4,zero=1",
    "llamath memory llama-3-8b --lora r=16,targets=attention --dtype bnb-nf4",
)


@make_command("memory", _EXAMPLES, brief=True, formats=TABLES)
@takes_checkpoint
@asks(MemoryQuestion, TrainingQuestion)
def command(model: Model | HeaderCount, *, asked: Asked, form: str | None) -> int:
    """Memory for inference or training with MODEL: weights, KV cache, activations and logits, each
    with its formula.

    For a checkpoint, the weights are the bytes stored in its files, unless --dtype is given. Exit
    code 1: it does not fit on --on.
    """
    of_training = asked.names_only(TrainingQuestion)
    is_plain = not isinstance(model, Model) or is_generic(
        model if of_training else model.computable
    )
    if is_plain:
        more = asked.given.keys() - ({"dtype"} if isinstance(model, Model) else ())
        return _weights_only(model, form, bool(more), asked.given.get("dtype", ""))
    assert isinstance(model, Model)
    if of_training == ["layout"]:
        split = Call("fit", Name("model"), on=Name("gpus"))
        raise click.UsageError(
            f"{Argument('layout')} is for training: add {Argument('training')}. "
            f"{split} splits a model for inference"
        )
    if of_training:
        return _train(model, asked.parse(TrainingQuestion), form)
    return _infer(model, asked.parse(MemoryQuestion), form)


def _infer(model: Model, question: MemoryQuestion, form: str | None) -> int:
    from ..api import answer_memory

    with Progress("sizing the model"):
        report = answer_memory(model, question)
    if question.on is not None:
        _note_gpus(*question.on)
    note_context(report.model, report.context, question.context, form)
    print_inference(report, form)
    return int(not report)


def _note_gpus(count: int, device: Device) -> None:
    if count > 1:
        split = Call("fit", Name("model"), on=Name("gpus"))
        note(
            f"{count:,} GPUs are counted as one of {count * device.memory / 2**30:,.1f} GiB; "
            f"{split} splits the model over them"
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


def _train(model: Model, question: TrainingQuestion, form: str | None) -> int:
    from ..api import answer_training_memory

    with Progress("sizing a training step"):
        report = answer_training_memory(model, question)
    note_context(model, report.context, question.context, form)
    echo_report(report, form)
    for line in report.model.notes if form == "brief" else ():
        if line not in model.notes:  # on files that differ from the config
            warn(line)
    return int(not report)
