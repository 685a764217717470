"""`llamath gpus`."""

from __future__ import annotations

import click

from ..hardware import find_devices


@click.command("gpus")
@click.argument("words", nargs=-1)
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List the GPUs and other accelerators whose name, title or vendor has all these WORDS; of one alone, everything that is known."""
    from ..render.text.gpus_text import gpus_csv, gpus_text

    found = find_devices(words)
    if form == "json":
        import json

        click.echo(json.dumps(found.to_json()))
    elif form == "csv":
        click.echo("\n".join(gpus_csv(found)))
    else:
        click.echo(gpus_text(found))
