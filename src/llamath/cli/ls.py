"""`llamath ls`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from ..errors import ConfigError, RemoteError
from ..formats.manifest import Manifest
from ..reading import addressed, read_checkpoint, read_config
from ..strict import read_json
from ..views.listing import listing

PACKED = frozenset(("U8", "I16", "I32", "I64", "U32"))
"""Dtypes that may hold packed values whose headers leave open how many."""


@click.command("ls")
@click.argument("path")
@click.option("--unfold", is_flag=True, help="Every tensor on a line of its own.")
@click.option("--tree", is_flag=True, help="The names as a tree, with subtotals.")
@click.option("--json", "form", flag_value="json", help="For programs: every tensor, with its file and offset.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
def command(path: str, *, unfold: bool, tree: bool, form: str | None) -> None:
    """What is in the checkpoint at PATH: a file, an index, a folder, an id on the hub, or an address."""
    checkpoint = read_checkpoint(path)
    if checkpoint.note:
        click.echo(checkpoint.note, err=True)
    found = listing(checkpoint.manifest, _quantization(checkpoint.place, checkpoint.manifest))
    if form == "json":
        from ..show.ls_data import ls_json

        lines = [ls_json(found)]
    elif form == "csv":
        from ..show.ls_data import ls_csv

        lines = [ls_csv(found, unfold)]
    else:
        from ..show.ls import ls_text

        lines = list(ls_text(path, found, unfold, tree))
    click.echo("\n".join(lines))


def _quantization(path: str, manifest: Manifest) -> Mapping[str, Any] | None:
    """What the config.json beside the tensors says of the way they are packed; read only where it could matter."""
    beside = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "config.json")
    if manifest.format == "gguf" or not PACKED & {x.dtype for x in manifest.tensors} or not (addressed(beside) or os.path.isfile(beside)):
        return None
    try:
        config = read_config(beside)[0] if addressed(beside) else read_json(beside)
    except (ConfigError, RemoteError) as error:
        click.echo(f"note: {error}; how the values are packed is told from the headers alone", err=True)
        return None
    for part in (config, config.get("text_config")):
        for key in ("quantization_config", "compression_config", "quantization"):
            if isinstance(part, Mapping) and isinstance(found := part.get(key), Mapping):
                return found
    return None
