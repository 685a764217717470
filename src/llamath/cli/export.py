"""`llamath export`."""

from __future__ import annotations

import click

from ..render.progress import CountBar, Progress
from ..utils.errors import safe
from .command_group import command as make_command
from .model_options import MODEL, force_option, note_broken_files
from .output import echo, echo_json, write_file

_EXAMPLES = (
    "llamath export llama-3-8b -o page.html",
    "llamath export llama-2-7b llama-3-8b -o compare.html",
    "llamath export -o site",
)


@make_command("export", _EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL …]", type=MODEL)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="PATH",
    help="The HTML file to write, or the folder; one that is no gallery is refused.",
)
@force_option
def command(models: tuple[str, ...], *, output: str, force: bool, form: str | None) -> None:
    """Write the interactive page of one or two models as a single HTML file that needs no
    network.

    Without MODEL a gallery of all presets, with three and more of these: a folder with a table,
    cards, plots, comparisons, and a page for each model, which works from the disk and on any web
    server. A gallery that is there is replaced; its other files stay.
    """
    if not 1 <= len(models) <= 2:
        _write_gallery(models, output, force=force, as_json=form == "json")
        return
    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")
    from ..web.page_data.checkpoint_data import load_with_checkpoint
    from ..web.server.model_ids import refuse_huge
    from ..web.server.page_html import model_page

    with Progress("building the page"):
        loaded = [load_with_checkpoint(x) for x in models]
        for model in loaded:
            refuse_huge(model)
        text = model_page(loaded)
    note_broken_files(*models)
    write_file(output, text, overwrite=force)
    if form == "json":
        echo_json(
            {"model": models[0], "models": models, "output": output, "bytes": len(text.encode())}
        )


def _write_gallery(models: tuple[str, ...], output: str, *, force: bool, as_json: bool) -> None:
    if output.endswith((".html", ".htm")):
        raise click.UsageError(
            f"{safe(output)} is no name for the folder of a gallery; a page is of one MODEL or two"
        )
    if "-" in models:
        raise click.UsageError("a gallery is of presets and files, not of standard input")
    from ..web.gallery.site_files import write_gallery

    with CountBar("models") as bar:
        site = write_gallery(output, models, force=force, on_progress=bar.update)
    if as_json:
        echo_json(site.to_json())
    else:
        echo(f"wrote {output}: {site.summary}", err=True)
