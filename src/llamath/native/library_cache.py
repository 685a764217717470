"""The native library of a checkout, which is compiled into the user's cache.

`make` compiles it as `python -m llamath.native.library_cache`, with `--own` for this processor
alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from llamath_native.build import (
    LIBRARY,
    CompilerError,
    build,
    find_compiler,
    own_paths,
    source_hash,
)

from ..utils.private_folder import find_foreign, make_private_folder, user_folder


def cached_library(paths: Sequence[str] = ()) -> Path | None:
    """Return where a checkout of the sources keeps its library for these instruction sets, or
    for all; None without a cache folder.
    """
    folder = user_folder("XDG_CACHE_HOME", ".cache")
    return (
        None
        if folder is None
        else Path(folder) / f"native-{source_hash(find_compiler() or '', paths)}" / LIBRARY
    )


def find_cached(paths: Sequence[str] = ()) -> tuple[Path | None, str]:
    """Return the library in the cache, if it is there, and why it must not be loaded or written,
    if others could change it.
    """
    library = cached_library(paths)
    if library is None:
        return None, "there is no cache folder: HOME is not set"
    problem = find_foreign(str(library.parent)) or find_foreign(str(library))
    return (library if not problem and library.is_file() else None), problem


def build_cached(paths: Sequence[str] = ()) -> Path:
    """Compile the library into the cache, whose folders are made for this user alone;
    `find_cached` says before whether it can be.
    """
    library = cached_library(paths)
    problem = (
        "there is no cache folder" if library is None else make_private_folder(str(library.parent))
    )
    if problem or library is None:
        raise CompilerError(problem)
    return build(library, paths=paths)


def find_foreign_temporary() -> str:
    """Return why another user could change files in a new temporary folder, in which objects are
    compiled, or an empty string.
    """
    return find_foreign(os.path.join(tempfile.gettempdir(), "llamath"))


def main(arguments: Sequence[str]) -> None:
    """Compile the library into the cache unless it is there."""
    paths = own_paths() if "--own" in arguments else ()
    try:
        if find_cached(paths)[0] is None and find_cached()[0] is None:
            build_cached(paths)
    except CompilerError as error:
        raise SystemExit(f"{error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
