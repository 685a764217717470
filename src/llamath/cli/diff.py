"""`llamath diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..render.progress import Progress
from ..utils.errors import Argument
from .command_group import command as make_command
from .model_options import (
    MODEL,
    note_broken_files,
    parse_changes,
    picture_option,
    set_option,
    via_option,
)
from .output import TABLES, PictureFile, echo, echo_json, echo_report

if TYPE_CHECKING:
    from ..loading import Via
    from ..model import Model

_EXAMPLES = (
    "llamath diff llama-2-7b llama-3-8b",
    "llamath diff llama-3.2-1b llama-3.1-8b llama-3.1-70b",
    "llamath diff llama-3-8b --set tie_word_embeddings=true",
    "llamath diff glm-5 --nearest",
    "llamath diff llama-2-7b dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,vocab_size=128256",
)


@make_command("diff", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("models", nargs=-1, required=True, metavar="A [B …]", type=MODEL)
@click.option(
    "--nearest",
    is_flag=True,
    help="Instead of B, the presets whose architecture is the nearest, by the fewest changes.",
)
@set_option
@via_option
@picture_option
def command(
    models: tuple[str | Model, ...],
    *,
    nearest: bool,
    changes: tuple[str, ...],
    via: Via | None,
    form: str | None,
    picture: PictureFile | None,
) -> None:
    """Why B has more or fewer parameters than A: the causes, the weights, and the config keys.

    Several models are each compared with the first. --set changes the last model; with a single
    MODEL it shows the effect of the change. -o draws the waterfall chart. --nearest lists the
    presets that differ from MODEL by the fewest changes.
    """
    from ..analysis.understand.diff.model_diff import DiffReport
    from ..api import diff

    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    if picture is not None and len(models) > 2:
        raise click.UsageError("a picture is the waterfall of two models")
    if nearest:
        if len(models) > 1 or picture is not None:
            raise click.UsageError("the nearest presets are those of one MODEL, without a picture")
        with Progress("comparing presets"):
            kinship = diff(models[0], changes=parse_changes(changes), via=via, nearest=True)
        note_broken_files(*models)
        echo_report(kinship, form)
        return
    if len(models) == 1 and not changes:
        raise click.UsageError(
            f"diff needs a second MODEL, or {Argument('changes', {'KEY': 'VALUE'})}"
        )
    first, *others = models
    with Progress("comparing models"):
        report = diff(first, *others, changes=parse_changes(changes), via=via)
    note_broken_files(*models)
    if form == "json":
        name = report.a.name if isinstance(report, DiffReport) else report.against
        echo_json({"model": name, **report.to_json()})
    elif form == "brief" and not isinstance(report, DiffReport):
        for x in report.differences:
            echo(x.summary)
    else:
        echo_report(report, form)
    if picture is not None and isinstance(report, DiffReport):
        from ..render.svg.waterfall_svg import waterfall_svg

        picture.write(waterfall_svg(report))
