"""`write_whole_file`: a file that is written completely or not at all."""

from __future__ import annotations

import os
import tempfile

from .errors import Argument, LlamathError, safe, writing


def write_whole_file(path: str, content: str | bytes, *, overwrite: bool = False) -> None:
    """Write a file completely or not at all; an existing file is replaced only with `overwrite`."""
    name, path = safe(path), os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise LlamathError(
            f"{name} is a {'folder' if os.path.isdir(path) else 'device'}, not a file",
            hint="give the name of a file",
        )
    exists = LlamathError(f"{name} already exists", hint=f"{Argument('force', True)} overwrites it")
    if not overwrite and os.path.lexists(path):
        raise exists
    with writing(name):
        handle, temporary = tempfile.mkstemp(prefix=".llamath-", dir=os.path.dirname(path))
        try:
            with open(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            os.chmod(temporary, 0o666 & ~_umask())
            if overwrite:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        except FileExistsError:
            raise exists from None
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
