"""`llamath count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model import FamilyModel, Model, TensorModel
from ..questions.parameter_questions import CountQuestion
from ..render.progress import Progress
from ..utils.errors import Argument
from .command_group import command as make_command
from .model_options import picture_option, takes_checkpoint, unfold_option
from .output import LONG, PictureFile, echo, echo_report, warn
from .question_options import Asked, asks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..analysis.understand.count.count_report import CountReport
    from ..analysis.understand.count.header_count import HeaderCount
    from ..render.tables import Part

_EXAMPLES = (
    "llamath count llama-3-8b",
    "llamath count dim=4096,n_layers=32,n_heads=32,vocab_size=32000",
    "llamath count llama-3-8b --set tie_word_embeddings=true",
    "llamath count ./my-checkpoint --brief",
    "llamath count google/gemma-3-4b-it --part vision",
    "llamath count ./my-bert --via transformers",
)


@make_command("count", _EXAMPLES, brief=True, formats=(*LONG, "tree", "formula"))
@takes_checkpoint
@asks(CountQuestion)
@unfold_option
@picture_option
def command(
    model: Model | HeaderCount,
    *,
    asked: Asked,
    unfold: bool,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Count the parameters of MODEL, weight by weight, with the formula; for an unknown family,
    from the checkpoint's header.

    A file that holds something else than the config next to it describes, such as one shard, is
    counted by its own header. -o draws the weights to scale, --format tree prints the
    blocks, --format formula writes the formula of the total, in numbers too.
    """
    if unfold and form in ("json", "brief", "tree", "formula"):
        option = f"--{form}" if form in ("json", "brief") else f"--format {form}"
        raise click.UsageError(f"--all is about the table: not with {option}")
    if form == "formula" and not isinstance(model, FamilyModel):
        raise click.UsageError("a model without a family has no formula")
    part = asked.parse(CountQuestion).part
    if isinstance(model, TensorModel):
        _print_tensors(model, part, unfold, picture, form)
        return
    if (
        isinstance(model, FamilyModel)
        and model.location
        and not click.get_current_context().params["changes"]
    ):
        from ..analysis.understand.count.count_files import count_files

        with Progress("reading headers"):
            model, notes = count_files(model)
        for line in notes if form == "brief" else ():
            warn(line)
    if not isinstance(model, FamilyModel):
        given: dict[str, object] = {"part": part, "picture": picture}
        given["format"] = form if form == "tree" else None
        wrong = [str(Argument(x)) for x, value in given.items() if value is not None]
        if wrong:
            raise click.UsageError(
                f"{model.reason}; without a family the whole is counted: not with "
                f"{', '.join(wrong)}"
            )
        echo_report(model, form, model.tables(unfold=unfold))
        return
    from ..analysis.understand.count.count_report import CountReport

    report = CountReport(model=model.part(part) if part else model)
    _print(report, report.tables(unfold=unfold, whole_formula=form == "formula"), picture, form)


def _print(
    report: CountReport, tables: Iterable[Part], picture: PictureFile | None, form: str | None
) -> None:
    if form == "tree":
        from ..render.text.tree_text import tree_text

        echo(tree_text(report.model))
    else:
        echo_report(report, form, tables)
    if picture is not None:
        from ..render.svg.treemap_svg import treemap_svg

        picture.write(treemap_svg(report.model))


def _print_tensors(
    model: TensorModel,
    part: str | None,
    unfold: bool,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Print the count of a model without a family."""
    from ..analysis.understand.count.state_dict_count import count_tensors

    report = count_tensors(model, part)
    if picture is not None:
        raise click.UsageError(f"the model is counted {model.claim}: there is no picture")
    if form == "tree":
        from ..render.text.tree_text import tree_text

        echo(tree_text(model))
        return
    echo_report(report, form, report.tables(unfold=unfold))
