"""`llamath export`."""

from __future__ import annotations

import click

from ..render.progress import Bar, CountBar
from ..utils.errors import safe
from .command_group import command as make_command
from .command_group import shared_option
from .model_options import MODEL, force_option, note_broken_files
from .output import echo, echo_json, print_error

_EXAMPLES = (
    "llamath export llama-3-8b -o page.html",
    "llamath export llama-2-7b llama-3-8b -o compare.html",
    "llamath export ./my-model --live -o page.html",
    "llamath export llama-3-8b --poster a3 -o poster.svg",
    "llamath export ./my-model --card -o ./my-model/README.md",
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
@click.option(
    "--card",
    is_flag=True,
    help="Write what is in a checkpoint's files for its README, or as JSON-LD to a .json.",
)
@force_option
def command(
    models: tuple[str, ...],
    *,
    output: str | None,
    live: bool,
    poster: str | None,
    card: bool,
    force: bool,
    form: str | None,
) -> int:
    """Write the interactive page of one or two models to -o, a single HTML file that needs no
    network. The page of the bundled model, `embedded`, runs it as well.

    With --poster, one picture of a model: its name, its exact count, a layer with its matrices to
    scale, all layers, and its facts. With --card, the facts of a checkpoint that matches its
    config; in a README that is there they stand between two lines that mark them.

    Without MODEL a gallery of all presets, with three and more of these: a folder with a table,
    cards, plots, comparisons, and a page for each model, which works from the disk and on any web
    server. A gallery that is there is replaced; its other files stay. A folder that is no gallery
    is refused.
    """
    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    if card:
        if live or poster or len(models) != 1:
            raise click.UsageError("--card is of one checkpoint, without --live and --poster")
        return _write_card(models[0], output, force=force, form=form)
    from ..web.page_export import export, poster_of

    is_gallery = not 1 <= len(models) <= 2
    if poster and not models and output is None:
        raise click.UsageError("which MODEL? It stands before --poster")
    if output is None:
        if not poster or is_gallery or live or form:
            raise click.UsageError("missing -o FILE")
        echo(poster_of(models, poster)[-1], end="")
        return 0
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
    return 0


def _write_card(folder: str, output: str | None, *, force: bool, form: str | None) -> int:
    from .model_card import ContradictsConfig, card_of, write_card

    try:
        with Bar("reading weights") as bar:
            card = card_of(folder, bar.update)
    except ContradictsConfig as error:
        print_error(error, as_json=form == "json")
        return 1
    if form == "json":
        echo_json(card.json_ld())
    elif output is None:
        echo(card.markdown(), end="")
    if output is not None:
        write_card(card, output, force=force)
        echo(f"wrote {safe(output)}", err=True)
    return 0
