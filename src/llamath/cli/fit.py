"""`llamath fit`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ..model import Model
from ..questions.fit_questions import EngineQuestion, FitQuestion, MachinesQuestion, RankQuestion
from ..render.progress import Progress
from ..utils.errors import ArgumentError
from .command_group import command as make_command
from .model_options import note_context, print_inference, svg_option, takes_model
from .output import TABLES, PictureFiles, echo_report
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.fit.fit_report import FitReport

_EXAMPLES = (
    "llamath fit llama-3.1-8b  # which GPUs can run it",
    "llamath fit llama-3.1-8b --on rtx-4090 --context 32k",
    "llamath fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2",
    "llamath fit qwen3-8b --on 'mem=16GiB bw=500GB/s' --dtype q4_k_m",
    "llamath fit llama-3.1-8b --on 3060,4090,h100  # each of them",
    "llamath fit llama-3.3-70b --on 4090+3060 --dtype q4_k_m  # both in one machine",
    "llamath fit minimax-m2 --on 8xh100 --engine vllm  # will vLLM start?",
)


@make_command("fit", _EXAMPLES, brief=True, formats=TABLES)
@partial(takes_model, reads_files=True)
@asks(FitQuestion, EngineQuestion)
@svg_option("Also draw the roofline.")
def command(model: Model, *, asked: Asked, svg: PictureFiles | None, form: str | None) -> int:
    """Does MODEL fit on these GPUs, and how fast can it be at most? Exit code 0: it fits, 1: it
    does not.

    Without --on: which GPUs of the catalog can run it, smallest first. Machines in a list are
    compared (exit code 0: one of them fits); different GPUs of one machine, joined by +, form a
    pipeline in which each holds layers in proportion to its memory.
    """
    from ..hardware import split_machines

    if "engine" in asked.given:
        return _fit_engine(model, asked, svg, form)
    if of_engine := asked.names_only(EngineQuestion):
        raise ArgumentError(of_engine[0], " is for an engine: --engine vllm")
    if "calibration" in asked.given:
        if svg is not None:
            raise click.UsageError("--svg draws the roofline of a machine that is named")
        return _fit(model, asked.parse(FitQuestion), None, form)
    if "on" not in asked.given:
        return _rank(model, asked, svg, form)
    machines = split_machines(asked.given["on"])
    if len(machines) == 1:
        return _fit(model, asked.parse(FitQuestion), svg, form)
    if svg is not None:
        raise click.UsageError("--svg draws the roofline of one machine")
    return _compare(model, asked.parse(MachinesQuestion, on=machines), form)


def _compare(model: Model, question: MachinesQuestion, form: str | None) -> int:
    from ..api import answer_compare_machines

    with Progress("sizing the model"):
        report = answer_compare_machines(model, question)
    note_context(model, report.context, question.context, form)
    print_inference(report, form)
    return int(not report.fits)


def _fit(model: Model, question: FitQuestion, svg: PictureFiles | None, form: str | None) -> int:
    from ..api import answer_fit

    with Progress("sizing the model"):
        report = answer_fit(model, question)
    note_context(model, report.context, question.context, form)
    print_inference(report, form)
    if svg is not None:
        svg.write(_roofline(report, question))
    return int(not report.fits)


def _rank(model: Model, asked: Asked, svg: PictureFiles | None, form: str | None) -> int:
    from ..api import answer_rank_gpus

    if svg is not None:
        raise click.UsageError("--svg needs GPUs: --on 2xh100")
    if used := next((x for x in ("layout", "offload") if x in asked.given), ""):
        raise ArgumentError(used, " needs GPUs: --on 2xh100")
    question = asked.parse(RankQuestion)
    with Progress("sizing the model for each GPU"):
        ranking = answer_rank_gpus(model, question)
    note_context(model, ranking.context, question.context, form)
    print_inference(ranking, form)
    return int(not ranking.fits)


def _fit_engine(model: Model, asked: Asked, svg: PictureFiles | None, form: str | None) -> int:
    from ..api import answer_fit_engine
    from ..hardware import split_machines

    if svg is not None:
        raise click.UsageError("--svg draws no report of an engine")
    if "on" not in asked.given:
        raise ArgumentError("engine", " needs GPUs: --on 8xh100")
    if len(split_machines(asked.given["on"])) > 1:
        raise ArgumentError("on", " lists several machines; an engine is asked about one")
    with Progress("checking the engine's rules"):
        report = answer_fit_engine(model, asked.parse(EngineQuestion))
    echo_report(report, form)
    return int(not report.starts)


def _roofline(report: FitReport, question: FitQuestion) -> str:
    from ..analysis.inference.checkpoint_weights import read_stored_weights
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..render.svg.roofline_svg import roofline_svg

    request = MemoryRequest(
        dtype=question.dtype,
        kv_dtype=question.kv_dtype,
        context=report.context,
        batch=question.batch,
    )
    stored = None if request.dtype else read_stored_weights(report.model)
    return roofline_svg(report.model, MemoryCalculator(report.model, request, stored), report)
