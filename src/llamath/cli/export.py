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
    "llamath export llama-3-8b --poster a3 -o poster.svg",
    "llamath export -o site",
)


@make_command("export", _EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL …]", type=MODEL)
@shared_option("--output")
@click.option(
    "--live",
    is_flag=True,
    help="Put the weights of a small checkpoint into the page, which runs it.",
)
@click.option(
    "--poster",
    is_flag=False,
    flag_value="wide",
    metavar="[wide|square|a3][-dark]",
    help="Write a picture of one model, SVG or PNG; of a gallery, its address: links to its pages "
    "show pictures.",
)
@force_option
def command(
    models: tuple[str, ...],
    *,
    output: str | None,
    live: bool,
    poster: str | None,
    force: bool,
    form: str | None,
) -> None:
    """Write the interactive page of one or two models to -o, a single HTML file that needs no
    network. The page of the bundled model, `embedded`, runs it as well.

    With --poster, one picture of a model: its name, its exact count, a layer with its matrices to
    scale, all layers, and its facts.

    Without MODEL a gallery of all presets, with three and more of these: a folder with a table,
    cards, plots, comparisons, and a page for each model, which works from the disk and on any web
    server. A gallery that is there is replaced; its other files stay. A folder that is no gallery
    is refused.
    """
    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    from ..web.page_export import export, poster_of

    is_gallery = not 1 <= len(models) <= 2
    if poster and not models and output is None:
        raise click.UsageError("which MODEL? It stands before --poster")
    if output is None:
        if not poster or is_gallery or live or form:
            raise click.UsageError("missing -o FILE")
        echo(poster_of(models, poster)[-1], end="")
        return
    with CountBar("models") if is_gallery else Bar("building the page") as bar:
        report = export(
            models, output, live=live, poster=poster or "", force=force, progress=bar.update
        )
    if not is_gallery:
        note_broken_files(*models)
    if form == "json":
        echo_json(report.to_json())
    what = f": {report.summary}" if is_gallery else ""
    echo(f"wrote {safe(output)}{what}", err=True)
