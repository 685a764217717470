"""`llamath explain`."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("number")
@click.option("--like", metavar="MODEL", help="The model that it should be about: a preset, config.json, params.json or a folder.")
@click.option("--all", "everything", is_flag=True, help="Every way to it, however far-fetched.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(number: str, *, like: str | None, everything: bool, as_json: bool) -> None:
    """How a program can have come by NUMBER parameters: which model, and what was changed, left out, added or packed.

    A number written out is decoded exactly; one of few digits (685B, 1.5e9) is a name, and the counts that round to it are listed.
    """
    from ..analysis.explain.decode import decode
    from ..render.text.explain_text import explain_json, explain_text

    found = decode(number, like, everything)
    if as_json:
        import json

        click.echo(json.dumps(explain_json(found)))
    else:
        click.echo(explain_text(found))
