"""`llamath verify`."""

from __future__ import annotations

import sys

import click

from . import answers
from .model_options import changed


@click.command("verify")
@click.argument("path")
@click.option("--as", "model", metavar="MODEL", help="What it should be; default: what the configuration beside it says.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a configuration key; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(path: str, *, model: str | None, changes: tuple[str, ...], as_json: bool) -> None:
    """Check the checkpoint at PATH against its configuration: exit code 0 whole, 1 findings, 2 unreadable."""
    sys.exit(answers.verify(path, model=model, changes=dict(changed(x) for x in changes), as_json=as_json))
