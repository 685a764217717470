"""`llamath export`."""

from __future__ import annotations

import click

from .save_file import save


@click.command("export")
@click.argument("models", nargs=-1, required=True, metavar="MODEL [MODEL]")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the page goes: page.html.")
@click.option("--force", is_flag=True, help="Write over a file.")
def command(models: tuple[str, ...], *, output: str, force: bool) -> None:
    """Write a page of one model, or of two side by side: one file that needs no network."""
    if len(models) > 2:
        raise click.UsageError("a page shows one MODEL or two")
    if models.count("-") > 1:
        raise click.UsageError("standard input is one MODEL, not two")
    from ..web.page_data.checkpoint_data import opened
    from ..web.server.page_html import model_page

    save(output, model_page([opened(x) for x in models]), force)
