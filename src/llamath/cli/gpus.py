"""`llamath gpus`."""

from __future__ import annotations

import click

from ..hardware import Device, devices, find_device, normalize_name


@click.command("gpus")
@click.argument("words", nargs=-1)
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="For spreadsheets.")
def command(words: tuple[str, ...], *, form: str | None) -> None:
    """List the GPUs and other accelerators whose name, title or vendor has all these WORDS; of one alone, everything that is known."""
    from ..render.text.gpus_text import gpus_csv, gpus_json, gpus_text

    found = _found(words)
    if form == "json":
        import json

        click.echo(json.dumps(gpus_json(found)))
    elif form == "csv":
        click.echo("\n".join(gpus_csv(found)))
    else:
        click.echo(gpus_text(found))


def _found(words: tuple[str, ...]) -> list[Device]:
    """One by its very name, else all that have the words, else one by a name that a driver says; an error with the nearest."""
    if same := [x for x in devices() if [x.name] == [word.lower() for word in words]]:
        return same
    some = [x for x in devices() if all(_has(x, word) for word in words)]
    return some or [find_device(" ".join(words))]


def _has(x: Device, word: str) -> bool:
    return normalize_name(word) in normalize_name(f"{x.name} {x.title}") or word.lower() == x.vendor.lower()
