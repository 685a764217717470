"""`llamath export`."""

from __future__ import annotations

import click

from ..render.progress import Bar, CountBar
from ..utils.errors import safe
from .command_group import command as make_command
from .command_group import shared_option
from .model_options import MODEL, force_option, note_broken_files
from .output import echo, echo_json

_EXAMPLES = (
    "llamath export llama-3-8b -o page.html",
    "llamath export llama-2-7b llama-3-8b -o compare.html",
    "llamath export ./my-model --live -o page.html",
    "llamath export -o site",
)


@make_command("export", _EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL …]", type=MODEL)
@shared_option("--output", required=True)
@click.option(
    "--live",
    is_flag=True,
    help="Put the weights of a small checkpoint into the page, which runs it.",
)
@force_option
def command(
    models: tuple[str, ...], *, output: str, live: bool, force: bool, form: str | None
) -> None:
    """Write the interactive page of one or two models to -o, a single HTML file that needs no
    network. The page of the bundled model, `embedded`, runs it as well.

    Without MODEL a gallery of all presets, with three and more of these: a folder with a table,
    cards, plots, comparisons, and a page for each model, which works from the disk and on any web
    server. A gallery that is there is replaced; its other files stay. A folder that is no gallery
    is refused.
    """
    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    from ..web.page_export import export

    is_gallery = not 1 <= len(models) <= 2
    with CountBar("models") if is_gallery else Bar("building the page") as bar:
        report = export(models, output, live=live, force=force, progress=bar.update)
    if not is_gallery:
        note_broken_files(*models)
    if form == "json":
        echo_json(report.to_json())
    what = f": {report.summary}" if is_gallery else ""
    echo(f"wrote {safe(output)}{what}", err=True)
