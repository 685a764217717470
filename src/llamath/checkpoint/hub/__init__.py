"""Checkpoints and configurations that are elsewhere: on the hub, on a web server, in an object store; headers are read, never the rest.

Over http(s) and for hub ids the standard library is enough; huggingface_hub (a stored token) and fsspec (object stores) are the extra
`hub`. Nothing here is reached unless a name says that it is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from ...core.errors import ConfigError, RemoteError, safe
from ...core.strict_json import CONFIG_FILES
from ..formats import checkpoint_files as checkpoint
from ..formats.folder import Folder
from ..formats.manifest import Manifest
from .bucket import open_bucket
from .http_client import Limits, Session
from .http_file import HttpFile
from .hub_repo import HubFolder, Repo, WebFolder, new_session, parse_repo

__all__ = ["HttpFile", "HubFolder", "Limits", "RemoteCheckpoint", "Repo", "Session", "parse_repo", "read_config", "read_remote"]


class RemoteCheckpoint(NamedTuple):
    """The header of a remote checkpoint, and the commit that its revision stands for."""

    manifest: Manifest
    revision: str  # empty where there are no revisions


class Found(NamedTuple):
    """A folder elsewhere, and the file in it that was named, if one was."""

    folder: Folder
    file: str
    revision: str = ""


def read_remote(text: str, *, problems: checkpoint.Problems = None, limits: Limits | None = None) -> RemoteCheckpoint:
    """Read the header of the checkpoint at `hf://org/name[@revision][/file]`, `org/name`, `https://…` or `s3://…`."""
    with _open(text, limits) as found:
        folder, file = found.folder, found.file
        if not file:
            manifest = checkpoint.read_folder(folder, problems)
        elif file.endswith(".index.json"):
            manifest = checkpoint.read_index(folder, file, problems)
        else:
            manifest = checkpoint.read_files(folder, checkpoint.split_parts(file), problems)
        return RemoteCheckpoint(manifest, found.revision)


def read_config(text: str, *, limits: Limits | None = None) -> tuple[Mapping[str, Any], str]:
    """The configuration at this address, or in the repository or folder there; and its own address, with the commit."""
    with _open(text, limits) as found:
        if found.file.endswith(".json"):
            return found.folder.json(found.file), found.folder.path(found.file)
        if beside := _config(found.folder):
            return beside[1], found.folder.path(beside[0])
        raise ConfigError(f"{safe(found.folder.name)} has neither {' nor '.join(CONFIG_FILES)}")


def _config(folder: Folder) -> tuple[str, dict[str, Any]] | None:
    """The configuration in a folder, by its name."""
    for name in CONFIG_FILES:
        try:
            return name, folder.json(name)
        except RemoteError as error:
            if error.code != "missing":
                raise
    return None


@contextmanager
def _open(text: str, limits: Limits | None) -> Iterator[Found]:
    repo = parse_repo(text)
    if not repo and not text.startswith(("http://", "https://")):
        yield Found(*open_bucket(text))
        return
    with closing(new_session(limits) if repo else Session(limits=limits)) as link:
        if repo:
            folder = HubFolder(link, repo)
            yield Found(folder, folder.file, folder.commit)
        else:
            web = WebFolder(link, link.parse_url(text))
            yield Found(web, web.file)
