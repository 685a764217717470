"""`write_whole_file`: a file that is written completely or not at all."""

from __future__ import annotations

import os

from .errors import Argument, LlamathError, safe, writing


def check_target(path: str, *, overwrite: bool = False) -> None:
    """Refuse a path that cannot be written, before what is written is worked out."""
    name, path = safe(path), os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise LlamathError(
            f"{name} is a {'folder' if os.path.isdir(path) else 'device'}, not a file",
            hint="give the name of a file",
        )
    if not overwrite and os.path.lexists(path):
        raise _exists(name)


def _exists(name: str) -> LlamathError:
    return LlamathError(f"{name} already exists", hint=f"{Argument('force', True)} overwrites it")


def write_whole_file(path: str, content: str | bytes, *, overwrite: bool = False) -> None:
    """Write a file completely or not at all; an existing file is replaced only with `overwrite`."""
    check_target(path, overwrite=overwrite)
    name, path = safe(path), os.path.realpath(path)
    with writing(name):
        # not by tempfile, whose import costs every command a tenth of its time
        temporary = os.path.join(os.path.dirname(path), f".llamath-{os.urandom(8).hex()}")
        try:
            with open(temporary, "xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            if overwrite:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        except FileExistsError:
            raise _exists(name) from None
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
