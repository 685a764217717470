"""`llamath diff`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from ..loading import load
from ..model import Model
from .command_group import command as make_command
from .model_options import MODEL, parse_changes, set_option, svg_option
from .output import echo, write_file

if TYPE_CHECKING:
    from ..analysis.diff.model_diff import MultiDiffReport

EXAMPLES = (
    "llamath diff llama-2-7b llama-3-8b",
    "llamath diff llama-3.2-1b llama-3.1-8b llama-3.1-70b",
    "llamath diff llama-3-8b --set tie_word_embeddings=true",
    "llamath diff llama-2-7b dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,vocab_size=128256",
)


@make_command("diff", EXAMPLES, brief=True, formats=("csv", "markdown"))
@click.argument("models", nargs=-1, required=True, metavar="A [B …]", type=MODEL)
@set_option
@svg_option("Also draw the waterfall chart.")
def command(models: tuple[str, ...], *, changes: tuple[str, ...], form: str | None, svg: str | None, force: bool) -> None:
    """Why B has more or fewer parameters than A: the causes, the weights, and the config keys.

    Several models are each compared with the first. --set changes the last model; with a single MODEL it shows the effect of the change.
    """
    from ..analysis.diff.model_diff import diff_many

    report = diff_many(_load_all(models, changes))
    if svg is not None and len(report.differences) > 1:
        raise click.UsageError("--svg draws the waterfall of two models")
    for line in _lines(report, form):
        echo(line)
    if svg is not None:
        from ..render.svg.waterfall_svg import waterfall_svg

        write_file(svg, waterfall_svg(report.differences[0]), overwrite=force)


def _load_all(names: tuple[str, ...], changes: tuple[str, ...]) -> list[Model]:
    if names.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    new = parse_changes(changes)
    if len(names) == 1:
        if not new:
            raise click.UsageError("diff needs a second MODEL, or --set KEY=VALUE")
        one = load(names[0])
        other = load(one.config.data, changes=new) if names[0] == "-" else load(names[0], changes=new)
        return [one, other.replace(name=f"with {', '.join(f'{key} = {value}' for key, value in new.items())}")]
    return [*map(load, names[:-1]), load(names[-1], changes=new)]


def _lines(report: MultiDiffReport, form: str | None) -> Iterable[str]:
    only = report.differences[0] if len(report.differences) == 1 else None
    if form == "json":
        return [json.dumps({"model": report.models[0].name, **(only or report).to_json()})]
    if form == "brief":
        return [x.summary for x in report.differences]
    from ..render.text import diff_text

    if only is None:
        return diff_text.multi_diff_rows(report, form) if form else [diff_text.multi_diff_text(report)]
    if form:
        return diff_text.diff_csv(only) if form == "csv" else diff_text.diff_markdown(only)
    return [diff_text.diff_text(only)]
