"""`llamath memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model import FamilyModel, Model, with_family
from ..questions.memory_questions import MemoryQuestion, TrainingQuestion
from ..render.progress import Progress
from ..utils.errors import Argument, Call, Name, safe
from .command_group import command as make_command
from .model_options import note_context, print_inference, takes_checkpoint
from .output import LONG, echo_report, note, warn
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.understand.count.header_count import HeaderCount
    from ..hardware import Device

_EXAMPLES = (
    "llamath memory llama-3.1-70b --context 128k --kv-dtype fp8",
    "llamath memory llama-3.1-8b --dtype q4_k_m --on 'mem=12GiB'",
    "llamath memory llama-3-8b --training recompute=full --layout tp=2,dp=4,zero=1",
    "llamath memory llama-3-8b --lora r=16,targets=attention --dtype bnb-nf4",
)


@make_command("memory", _EXAMPLES, brief=True, formats=LONG)
@takes_checkpoint
@asks(MemoryQuestion, TrainingQuestion)
def command(model: Model | HeaderCount, *, asked: Asked, form: str | None) -> int:
    """Memory for inference or training with MODEL: weights, KV cache, activations and logits, each
    with its formula.

    For a checkpoint, the weights are the bytes stored in its files, unless --dtype is given. Exit
    code 1: it does not fit on --on.
    """
    of_training = asked.names_only(TrainingQuestion)
    if not isinstance(model, Model):
        return _print_header(model, form, bool(asked.typed))
    if of_training == ["layout"]:
        split = Call("fit", Name("model"), on=Name("gpus"))
        raise click.UsageError(
            f"{Argument('layout')} is for training: add {Argument('training')}. "
            f"{split} splits a model for inference"
        )
    if of_training:
        return _train(with_family(model), asked.parse(TrainingQuestion), form)
    return _infer(model, asked.parse(MemoryQuestion), form)


def _infer(model: Model, question: MemoryQuestion, form: str | None) -> int:
    from ..analysis.size.memory.inference_memory import WeightsReport
    from ..api import answer_memory

    with Progress("sizing the model"):
        report = answer_memory(model, question)
    if isinstance(report, WeightsReport):
        echo_report(report, form)
        return 0
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


def _print_header(model: HeaderCount, form: str | None, has_options: bool) -> int:
    """Print the weights of a checkpoint of an unknown family."""
    if has_options:
        raise click.UsageError(
            f"{model.reason}; without a family only the bytes of the weights are known"
        )
    from ..analysis.size.memory.inference_memory import WeightsReport
    from ..analysis.storage.weight_bytes import stored_weights

    lines = stored_weights(model.listing).lines
    echo_report(WeightsReport(name=safe(model.name), lines=lines, reason=model.reason), form)
    return 0


def _train(model: FamilyModel, question: TrainingQuestion, form: str | None) -> int:
    from ..api import answer_training_memory

    with Progress("sizing a training step"):
        report = answer_training_memory(model, question)
    note_context(model, report.context, question.context, form)
    echo_report(report, form)
    for line in report.model.notes if form == "brief" else ():
        if line not in model.notes:  # on files that differ from the config
            warn(line)
    return int(not report)
