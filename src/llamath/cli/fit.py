"""`llamath fit`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ..model import FamilyModel
from ..questions.fit_questions import (
    EngineQuestion,
    EnginesQuestion,
    FitQuestion,
    MachinesQuestion,
    RankQuestion,
)
from ..questions.serving_questions import CostQuestion, PairQuestion, PlaceQuestion
from ..questions.shared_fields import names_file
from ..render.progress import Progress
from ..utils.errors import Argument, ArgumentError
from .command_group import command as make_command
from .model_options import (
    MODEL,
    load_model,
    note_context,
    picture_option,
    print_inference,
    takes_model,
)
from .output import LONG, PictureFile, echo_report
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.size.fit.fit_report import FitReport
    from ..questions.settings import Question

_EXAMPLES = (
    "llamath fit llama-3.1-8b  # which GPUs can run it",
    "llamath fit llama-3.1-8b --on rtx-4090 --context 32k",
    "llamath fit llama-3.1-8b --on this  # this machine",
    "llamath fit llama-3.1-405b --on 16xh100 --layout tp=8,pp=2",
    "llamath fit qwen3-8b --on 'mem=16GiB bw=500GB/s' --dtype q4_k_m",
    "llamath fit llama-3.1-8b --on 3090,4090,h100  # each of them",
    "llamath fit llama-3.3-70b --on 4090+3090 --dtype q4_k_m  # both in one machine",
    "llamath fit minimax-m2 --on 8xh100 --engine vllm  # will vLLM start?",
    "llamath fit minimax-m2 --on 8xh100 --engine vllm@0.28.0,vllm  # what changed?",
    "llamath fit gpt-oss-120b --on rtx-3060-12gb --ram 64GiB --dtype mxfp4_moe  # what is in RAM?",
    "llamath fit llama-3.3-70b --on 4xh100 --price '$2.5/h'  # what does it cost?",
    "llamath fit llama-3.1-70b --draft llama-3.2-1b  # does the draft belong to it?",
)
_HEADS = ("eagle", "eagle3", "mtp")


@make_command("fit", _EXAMPLES, brief=True, formats=LONG)
@partial(takes_model, reads_files=True)
@asks(FitQuestion, EngineQuestion, PlaceQuestion, CostQuestion, PairQuestion)
@click.option(
    "--draft",
    metavar="DRAFT",
    type=MODEL,
    help="Does DRAFT belong to MODEL for speculative decoding? A model, or eagle, eagle3 or mtp.",
)
@picture_option
def command(
    model: FamilyModel,
    *,
    asked: Asked,
    draft: str | None,
    picture: PictureFile | None,
    form: str | None,
) -> int:
    """Does MODEL fit on these GPUs, and how fast can it be at most? Exit code 0: it fits, 1: it
    does not.

    Without --on: which GPUs of the catalog can run it, smallest first. Machines in a list are
    compared (exit code 0: one of them fits); different GPUs of one machine, joined by +, form a
    pipeline in which each holds layers in proportion to its memory.

    With --ram: where each weight goes on GPUs, RAM and disk, with flags for llama.cpp, transformers
    and KTransformers. With --price: price, energy and CO₂ of a million tokens, and with --tokens of
    a training run. With --draft: whether it has the same tokens, and the best-case speed-up.
    -o draws the roofline, or with --ram where each weight goes.
    """
    from ..hardware import split_machines

    question = _other_question(asked, draft)
    if question is not None:
        if picture is not None and question is not PlaceQuestion:
            raise click.UsageError(f"there is no picture of {question.about}")
        if question is PlaceQuestion:
            return _place(model, asked, picture, form)
        if question is CostQuestion:
            return _cost(model, asked, form)
        return _pair(model, draft or "", asked, form)

    if "engine" in asked.given:
        return _fit_engine(model, asked, picture, form)
    if of_engine := asked.names_only(EngineQuestion):
        raise ArgumentError(of_engine[0], f" is for an engine: {Argument('engine', 'vllm')}")
    if "on" not in asked.given:
        return _rank(model, asked, picture, form)
    if names_file(asked.given["on"]):
        if picture is not None:
            raise click.UsageError("a picture is the roofline of GPUs that are named")
        return _fit(model, asked.parse(FitQuestion), None, form)
    machines = split_machines(asked.given["on"])
    if len(machines) == 1:
        return _fit(model, asked.parse(FitQuestion), picture, form)
    if picture is not None:
        raise click.UsageError("a picture is the roofline of one machine")
    return _compare(model, asked.parse(MachinesQuestion, on=machines), form)


def _other_question(asked: Asked, draft: str | None) -> type[Question] | None:
    """Return the question whose own options are given: of placement, cost or a draft; None: it is
    whether the model fits.
    """
    given: dict[type[Question], str] = {
        question: names[0]
        for question in (PlaceQuestion, CostQuestion)
        if (names := asked.names_only(question))
    }
    if draft is not None:
        given[PairQuestion] = "draft"
    if len(given) > 1:
        first, second = list(given.items())[:2]
        raise ArgumentError(second[1], f" is for {second[0].about}, not for {first[0].about}")
    return next(iter(given), None)


def _place(model: FamilyModel, asked: Asked, picture: PictureFile | None, form: str | None) -> int:
    from ..api import answer_place
    from ..render.svg.placement_svg import placement_svg

    with Progress("placing the weights"):
        report = answer_place(model, asked.parse(PlaceQuestion))
    echo_report(report, form)
    if picture is not None:
        picture.write(placement_svg(report))
    return int(not report)


def _cost(model: FamilyModel, asked: Asked, form: str | None) -> int:
    from ..api import answer_cost

    question = asked.parse(CostQuestion)
    with Progress("sizing the model"):
        report = answer_cost(model, question)
    note_context(model, report.generation.prompt + report.generation.output, question.context, form)
    echo_report(report, form)
    return 0


def _pair(model: FamilyModel, draft: str, asked: Asked, form: str | None) -> int:
    from ..api import answer_pair

    other = draft if draft in _HEADS else load_model(draft, {}, None)
    report = answer_pair(model, other, asked.parse(PairQuestion))
    echo_report(report, form)
    return int(not report.accepted)


def _compare(model: FamilyModel, question: MachinesQuestion, form: str | None) -> int:
    from ..api import answer_compare_machines

    with Progress("sizing the model"):
        report = answer_compare_machines(model, question)
    note_context(model, report.context, question.context, form)
    print_inference(report, form)
    return int(not report.fits)


def _fit(
    model: FamilyModel, question: FitQuestion, picture: PictureFile | None, form: str | None
) -> int:
    from ..api import answer_fit

    with Progress("sizing the model"):
        report = answer_fit(model, question)
    own, longest = model.tree.context, report.max_context
    fits_whole = report.fits and (longest is None or longest >= int(own or 0))
    note_context(model, report.context, question.context, form, enough=fits_whole)
    print_inference(report, form)
    if picture is not None:
        picture.write(_roofline(report, question))
    return int(not report.fits)


def _rank(model: FamilyModel, asked: Asked, picture: PictureFile | None, form: str | None) -> int:
    from ..api import answer_rank_gpus

    if picture is not None:
        raise click.UsageError(f"-o needs GPUs: {Argument('on', '2xh100')}")
    if used := next((x for x in ("layout", "offload") if x in asked.given), ""):
        raise ArgumentError(used, f" needs GPUs: {Argument('on', '2xh100')}")
    question = asked.parse(RankQuestion)
    with Progress("sizing the model for each GPU"):
        ranking = answer_rank_gpus(model, question)
    note_context(model, ranking.context, question.context, form)
    print_inference(ranking, form)
    return int(not ranking.fits)


def _fit_engine(
    model: FamilyModel, asked: Asked, picture: PictureFile | None, form: str | None
) -> int:
    from ..api import answer_compare_engines, answer_fit_engine
    from ..hardware import split_machines

    if picture is not None:
        raise click.UsageError("there is no picture of an engine's report")
    if "on" not in asked.given:
        raise ArgumentError("engine", f" needs GPUs: {Argument('on', '8xh100')}")
    if len(split_machines(asked.given["on"])) > 1:
        raise ArgumentError("on", " lists several machines; an engine is asked about one")
    names = [x.strip() for x in asked.given["engine"].split(",") if x.strip()]
    if len(names) > 1:
        with Progress("checking the rules of each engine"):
            compared = answer_compare_engines(model, asked.parse(EnginesQuestion, engine=names))
        echo_report(compared, form)
        return int(not compared.starts)
    with Progress("checking the engine's rules"):
        report = answer_fit_engine(model, asked.parse(EngineQuestion))
    echo_report(report, form)
    return int(not report.starts)


def _roofline(report: FitReport, question: FitQuestion) -> str:
    from ..analysis.check.checkpoint_weights import read_stored_weights
    from ..analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
    from ..render.svg.roofline_svg import roofline_svg

    request = MemoryRequest(
        dtype=question.dtype,
        kv_dtype=question.kv_dtype,
        context=report.context,
        batch=question.batch,
    )
    stored = None if request.dtype else read_stored_weights(report.model)
    return roofline_svg(report.model, MemoryCalculator(report.model, request, stored), report)
