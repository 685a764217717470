"""`llamath ls`."""

from __future__ import annotations

import click

from . import answers


@click.command("ls")
@click.argument("path")
@click.option("--unfold", is_flag=True, help="Every tensor on a line of its own.")
@click.option("--tree", is_flag=True, help="The names as a tree, with subtotals.")
@click.option("--json", "form", flag_value="json", help="For programs: every tensor, with its file and offset.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
def command(path: str, *, unfold: bool, tree: bool, form: str | None) -> None:
    """What is in the checkpoint at PATH: a file, an index, a folder, an id on the hub, or an address."""
    answers.ls(path, unfold=unfold, tree=tree, form=form)
