"""`llamath diff`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import (
    MODEL,
    note_broken_files,
    parse_changes,
    set_option,
    svg_option,
    via_option,
)
from .output import TABLES, PictureFiles, echo, echo_table

if TYPE_CHECKING:
    from ..analysis.diff.model_diff import DiffReport, MultiDiffReport
    from ..loading import Via
    from ..model import Model

_EXAMPLES = (
    "llamath diff llama-2-7b llama-3-8b",
    "llamath diff llama-3.2-1b llama-3.1-8b llama-3.1-70b",
    "llamath diff llama-3-8b --set tie_word_embeddings=true",
    "llamath diff llama-2-7b dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,vocab_size=128256",
)


@make_command("diff", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("models", nargs=-1, required=True, metavar="A [B …]", type=MODEL)
@set_option
@via_option
@svg_option("Also draw the waterfall chart.")
def command(
    models: tuple[str | Model, ...],
    *,
    changes: tuple[str, ...],
    via: Via | None,
    form: str | None,
    svg: PictureFiles | None,
) -> None:
    """Why B has more or fewer parameters than A: the causes, the weights, and the config keys.

    Several models are each compared with the first. --set changes the last model; with a single
    MODEL it shows the effect of the change.
    """
    from ..analysis.diff.model_diff import DiffReport
    from ..api import diff

    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    if svg is not None and len(models) > 2:
        raise click.UsageError("--svg draws the waterfall of two models")
    if len(models) == 1 and not changes:
        raise click.UsageError("diff needs a second MODEL, or --set KEY=VALUE")
    first, *others = models
    with Progress("comparing models"):
        report = diff(first, *others, changes=parse_changes(changes), via=via)
    note_broken_files(*models)
    if form is not None and form in TABLES:
        echo_table(report.summary, _rows(report, form), form)
    else:
        for line in _lines(report, form):
            echo(line)
    if svg is not None and isinstance(report, DiffReport):
        from ..render.svg.waterfall_svg import waterfall_svg

        svg.write(waterfall_svg(report))


def _rows(report: DiffReport | MultiDiffReport, form: str) -> Iterable[str]:
    from ..analysis.diff.model_diff import DiffReport
    from ..render.text import diff_text

    if isinstance(report, DiffReport):
        return diff_text.diff_csv(report) if form == "csv" else diff_text.diff_markdown(report)
    return diff_text.multi_diff_rows(report, form)


def _lines(report: DiffReport | MultiDiffReport, form: str | None) -> Iterable[str]:
    from ..analysis.diff.model_diff import DiffReport
    from ..render.text import diff_text

    if form == "json":
        first = report.a if isinstance(report, DiffReport) else report.models[0]
        return [json.dumps({"model": first.name, **report.to_json()})]
    if isinstance(report, DiffReport):
        return [report.summary if form else diff_text.diff_text(report)]
    return [x.summary for x in report.differences] if form else [diff_text.multi_diff_text(report)]
