"""Files that a command writes beside what it prints: whole or not at all, and never over another without being told to."""

from __future__ import annotations

import os
import tempfile

import click

from ..core.errors import LlamathError, safe


def save(path: str, text: str, force: bool) -> None:
    """Write a text file, and say so on stderr."""
    name, path = safe(path), os.path.realpath(path)
    folder = os.path.dirname(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise LlamathError(f"{name} is no file but a {'folder' if os.path.isdir(path) else 'device'}", hint="give the name of a file")
    taken = LlamathError(f"{name} is there already", hint="--force writes over it")
    if not force and os.path.lexists(path):
        raise taken
    try:
        handle, temporary = tempfile.mkstemp(prefix=".llamath-", dir=folder)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(temporary, 0o666 & ~_umask())
            if force:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise LlamathError(f"{name} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {name}", err=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
