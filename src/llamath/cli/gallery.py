"""`llamath gallery`."""

from __future__ import annotations

import click

from ..render.progress import CountBar
from .command_group import command as make_command
from .model_options import MODEL, force_option
from .output import echo, echo_json

_EXAMPLES = ("llamath gallery -o site", "llamath gallery llama-2-7b llama-3-8b ./my-model -o site")


@make_command("gallery", _EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL …]", type=MODEL)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FOLDER",
    help="The folder to write; one that is no gallery is refused.",
)
@force_option
def command(models: tuple[str, ...], *, output: str, force: bool, form: str | None) -> None:
    """Write a static site of all presets, or of some models: a table, cards, plots, comparisons,
    and a page for each model.

    It works from the disk and on any web server. A gallery that is there is replaced; its other
    files stay.
    """
    if "-" in models:
        raise click.UsageError("a gallery is of presets and files, not of standard input")
    from ..web.gallery.site_files import write_gallery

    with CountBar("models") as bar:
        site = write_gallery(output, models, force=force, on_progress=bar.update)
    if form == "json":
        echo_json(site.to_json())
    else:
        echo(f"wrote {output}: {site.summary}", err=True)
