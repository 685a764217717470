"""`llamath diff`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ..loading import load
from ..model import Model
from .model_options import changed

if TYPE_CHECKING:
    from ..analysis.diff.model_diff import MultiDiffReport


@click.command("diff")
@click.argument("models", nargs=-1, required=True, metavar="A B [C …]")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the last MODEL; of one alone: what it does.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="Matrix by matrix, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="For documents.")
@click.option("--svg", metavar="FILE", help="Draw the waterfall as well.")
@click.option("--force", is_flag=True, help="Let --svg write over a file.")
def command(models: tuple[str, ...], *, changes: tuple[str, ...], form: str | None, svg: str | None, force: bool) -> None:
    """Why B has more or fewer parameters than A: the causes, matrix by matrix, and what the configurations say.

    Each is a preset, a public id, a config.json, params.json, a folder, or - for standard input. Of three or more, each is held against
    the first.
    """
    from ..analysis.diff.model_diff import diff_many

    report = diff_many(_loaded(models, changes))
    if svg is not None and len(report.differences) > 1:
        raise click.UsageError("--svg draws the waterfall of two models")
    for line in _shown(report, form):
        click.echo(line)
    if svg is not None:
        from ..render.svg.waterfall_svg import waterfall_svg
        from .save_file import save

        save(svg, waterfall_svg(report.differences[0]), force)


def _loaded(names: tuple[str, ...], changes: tuple[str, ...]) -> list[Model]:
    if names.count("-") > 1:
        raise click.UsageError("standard input is one MODEL, not several")
    new = dict(changed(x) for x in changes)
    if len(names) == 1:
        if not new:
            raise click.UsageError("a second MODEL to compare with, or --set KEY=VALUE")
        one = load(names[0])
        other = load(one.config.data, changes=new) if names[0] == "-" else load(names[0], changes=new)
        said = ", ".join(f"{key} = {value}" for key, value in new.items())
        return [one, other.replace(name=f"with {said}")]
    return [*map(load, names[:-1]), load(names[-1], changes=new)]


def _shown(report: MultiDiffReport, form: str | None) -> Iterable[str]:
    only = report.differences[0] if len(report.differences) == 1 else None
    if form == "json":
        import json

        return [json.dumps((only or report).to_json())]
    from ..render.text import diff_text

    if only is None:
        return diff_text.multi_diff_rows(report, form) if form else [diff_text.multi_diff_text(report)]
    if form:
        return diff_text.diff_csv(only) if form == "csv" else diff_text.diff_markdown(only)
    return [diff_text.diff_text(only)]
