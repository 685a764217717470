"""`list_gguf_models`: the GGUF models of a folder, or of a repository on the Hub, of which one
has to be chosen.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ...utils.errors import RemoteError
from ..formats.folder import Folder, LocalFolder
from ..formats.gguf_choices import GGUFChoice, find_choices
from ..hub_cache import find_cached
from ..repo_id import Repo, parse_repo

_MAX_MODELS = 64
"""Models that are listed."""


class GGUFModelFile(NamedTuple):
    """A GGUF model, and the path or the id by which it is opened."""

    location: str
    choice: GGUFChoice


def list_gguf_models(source: str) -> list[GGUFModelFile]:
    """Return the GGUF models of a folder or repository; empty if the source is something else,
    or holds none.
    """
    if os.path.isdir(source):
        return [
            GGUFModelFile(os.path.join(source, x.names[0]), x) for x in _models(LocalFolder(source))
        ]
    repo = None if os.path.exists(source) else parse_repo(source)
    return [] if repo is None or repo.path else _in_repository(source, repo)


def _in_repository(source: str, repo: Repo) -> list[GGUFModelFile]:
    """Return the models that the Hub lists, of which the cache has perhaps some; those of the
    cache if the Hub cannot be asked.
    """
    from ..hub import open_folder

    try:
        with open_folder(source) as (folder, *_):
            return [
                GGUFModelFile(Repo(repo.id, repo.revision, x.names[0]).address, x)
                for x in _models(folder)
            ]
    except RemoteError:
        if (cached := find_cached(repo)) is None:
            raise
        return [
            GGUFModelFile(os.path.join(cached.folder, x.names[0]), x)
            for x in _models(LocalFolder(cached.folder))
        ]


def _models(folder: Folder) -> list[GGUFChoice]:
    names = [x for x in folder.names() if x.endswith(".gguf")]
    return [x for x in find_choices(folder, names) if x.is_model][:_MAX_MODELS]
