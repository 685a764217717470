"""`llamath export`."""

from __future__ import annotations

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import MODEL, force_option, note_broken_files
from .output import echo_json, write_file

_EXAMPLES = (
    "llamath export llama-3-8b -o page.html",
    "llamath export llama-2-7b llama-3-8b -o compare.html",
)


@make_command("export", _EXAMPLES)
@click.argument("models", nargs=-1, required=True, metavar="MODEL [MODEL]", type=MODEL)
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write.")
@force_option
def command(models: tuple[str, ...], *, output: str, force: bool, form: str | None) -> None:
    """Write the interactive page of one or two models as a single HTML file that needs no
    network.
    """
    if len(models) > 2:
        raise click.UsageError("a page shows one MODEL or two")
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
