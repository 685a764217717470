"""Find models in the local Hugging Face cache, which huggingface_hub, transformers and vLLM
fill; without network.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..utils.access import may_read
from ..utils.strict_json import CONFIG_FILES
from .repo_id import Repo, is_commit

_MAX_REF_BYTES = 128


class CachedRepo(NamedTuple):
    """The files of a commit of a repository that are in the cache, perhaps not all of them."""

    repo: Repo
    commit: str
    folder: str

    @property
    def path(self) -> str:
        """The local path of the repository's file or folder."""
        return (
            os.path.join(self.folder, *self.repo.path.split("/")) if self.repo.path else self.folder
        )

    @property
    def address(self) -> str:
        """The file or folder at this commit, for the Hub."""
        return self.repo._replace(revision=self.commit).address

    @property
    def has_config(self) -> bool:
        """Whether the model's configuration is in the cache."""
        if self.path.endswith((".gguf", ".json")):
            return os.path.isfile(self.path)
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        if any(os.path.isfile(os.path.join(folder, x)) for x in CONFIG_FILES):
            return True
        return os.path.isdir(self.path) and any(x.endswith(".gguf") for x in os.listdir(self.path))


def cache_folder() -> str:
    """Return the folder of the cache, as huggingface_hub finds it: HF_HUB_CACHE, else
    HF_HOME/hub, else ~/.cache/huggingface/hub.
    """
    given = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _expand(given) if given else os.path.join(hub_home(), "hub")


def hub_home() -> str:
    """Return the folder of huggingface_hub's files."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return _expand(os.environ.get("HF_HOME") or os.path.join(caches, "huggingface"))


def find_cached(repo: Repo) -> CachedRepo | None:
    """Return the files of a repository in the cache, or None if its revision is not there."""
    folder = os.path.join(cache_folder(), "models--" + repo.id.replace("/", "--"))
    if not may_read(folder):
        return None
    commit = (
        repo.revision
        if is_commit(repo.revision)
        else _read_ref(os.path.join(folder, "refs"), repo.revision)
    )
    if not is_commit(commit) or not os.path.isdir(
        snapshot := os.path.join(folder, "snapshots", commit)
    ):
        return None
    if any(part in ("", ".", "..") for part in repo.path.split("/")) and repo.path:
        return None
    return CachedRepo(repo, commit, snapshot)


def _read_ref(folder: str, revision: str) -> str:
    """Return the commit of a branch or tag when it was downloaded, or an empty string."""
    if ".." in revision.split("/"):
        return ""
    try:
        with open(os.path.join(folder, *revision.split("/")), encoding="ascii") as file:
            return file.read(_MAX_REF_BYTES).strip()
    except (OSError, ValueError):
        return ""


def _expand(path: str) -> str:
    return os.path.expandvars(os.path.expanduser(path))
