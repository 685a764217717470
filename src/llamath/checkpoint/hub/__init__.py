"""Remote checkpoints: read headers and configurations from the Hub, web servers and object stores,
never whole files.

Headers need only the standard library. Weights are downloaded by huggingface_hub (extra `hub`), and
object stores read through fsspec (extras `s3` and `gcs`). Nothing here is imported unless a model
is given by URL or Hub id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from ...utils.access import check_address
from ...utils.errors import Call, ConfigError, Name, RemoteError, safe
from ...utils.strict_json import CONFIG_FILES
from ..formats import checkpoint_files as checkpoint
from ..formats.choose_files import gguf_parts
from ..formats.folder import Folder
from ..formats.manifest import Manifest
from ..quantization_section import with_recipe_file
from ..repo_id import endpoint, parse_repo
from .bucket import open_bucket
from .http_client import Limits, Session
from .http_file import HttpFile
from .hub_repo import HubFolder, WebFolder, fetch_sums, new_session
from .remote_folder import RemoteFolder
from .urls import parse_url

__all__ = [
    "HttpFile",
    "HubFolder",
    "Limits",
    "Session",
    "find_config",
    "read_config",
    "read_remote",
    "read_sums",
]


class _RemoteCheckpoint(NamedTuple):
    """The header of a remote checkpoint, and the commit that its revision stands for."""

    manifest: Manifest
    revision: str  # empty where there are no revisions


class _OpenedFolder(NamedTuple):
    """A remote folder, and the file in it that the address names, if any."""

    folder: RemoteFolder
    file: str
    revision: str = ""


def read_remote(
    text: str,
    *,
    problems: checkpoint.Problems = None,
    limits: Limits | None = None,
    max_files: int = checkpoint.MAX_SHARDS,
) -> _RemoteCheckpoint:
    """Read the header of the checkpoint at `hf://owner/name[@revision][/file]`, `owner/name`,
    `https://…` or `s3://…`.

    A checkpoint of more than `max_files` files is refused before any of their headers is read.
    """
    with open_folder(text, limits) as opened:
        folder, file = opened.folder, opened.file
        folder.max_files = max_files
        if not file:
            manifest = checkpoint.read_folder(folder, problems)
        elif file.endswith(".index.json"):
            manifest = checkpoint.read_index(folder, file, problems)
        else:
            manifest = checkpoint.read_files(folder, gguf_parts(file), problems)
        return _RemoteCheckpoint(manifest, opened.revision)


def read_config(text: str, *, limits: Limits | None = None) -> tuple[Mapping[str, Any], str]:
    """Read the configuration at an address or in the repository or folder there; returns it and
    its address with the commit.
    """
    keys, source = find_config(text, limits=limits)
    if keys is None:
        raise ConfigError(
            f"{safe(source)} has neither {' nor '.join(CONFIG_FILES)}",
            hint=f"{Call('ls', Name('path'))} counts the tensors of any checkpoint",
        )
    return keys, source


def find_config(text: str, *, limits: Limits | None = None) -> tuple[Mapping[str, Any] | None, str]:
    """Read the configuration at an address; None and the address of the folder if there is none."""
    with open_folder(text, limits) as opened:
        if opened.file.endswith(".json"):
            keys = opened.folder.json(opened.file)
            return _with_recipe_file(keys, opened.file, opened.folder), opened.folder.path(
                opened.file
            )
        if config := _find_config(opened.folder):
            return _with_recipe_file(config[1], config[0], opened.folder), opened.folder.path(
                config[0]
            )
        return None, opened.folder.name


def _with_recipe_file(keys: Mapping[str, Any], name: str, folder: Folder) -> Mapping[str, Any]:
    """Return a config.json with the recipe in a file next to it; folders on web servers, which
    cannot be listed, are not asked.
    """
    if name != "config.json" or (
        isinstance(folder, WebFolder) and not isinstance(folder, HubFolder)
    ):
        return keys

    def read(other: str) -> Mapping[str, Any] | None:
        try:
            return folder.json(other)
        except RemoteError as error:
            if error.code != "missing":
                raise
            return None

    return with_recipe_file(keys, read)


def read_sums(text: str, *, limits: Limits | None = None) -> Mapping[str, str]:
    """Return the entity tags of the files of a Hub repository, or of the folder in it that the
    address names, by file name.

    A tag is the SHA-256 of a file that is stored with LFS or Xet, and the SHA-1 of the git blob of
    any other.
    """
    repo = parse_repo(text)
    if repo is None:
        raise RemoteError(
            "id",
            f"{safe(text)}: expected a model on the Hub",
            hint="hf://org/name or hf://org/name@revision",
        )
    check_address(text, is_repository=True)
    with closing(new_session(limits)) as session:
        return fetch_sums(session, repo)


def _find_config(folder: Folder) -> tuple[str, dict[str, Any]] | None:
    """Read the configuration in a folder; returns its file name and keys, or None."""
    for name in CONFIG_FILES:
        try:
            return name, folder.json(name)
        except RemoteError as error:
            if error.code != "missing":
                raise
    return None


@contextmanager
def open_folder(text: str, limits: Limits | None = None) -> Iterator[_OpenedFolder]:
    """Open a repository on the Hub, a folder of a bucket, or an address on the web."""
    repo = parse_repo(text)
    check_address(text, is_repository=repo is not None)
    if not repo and not text.startswith(("http://", "https://")):
        yield _OpenedFolder(*open_bucket(text))
        return
    with closing(
        new_session(limits) if repo else Session(parse_url(endpoint()), limits=limits)
    ) as session:
        if repo:
            folder = HubFolder(session, repo)
            yield _OpenedFolder(folder, folder.file, folder.commit)
        else:
            web = WebFolder(session, session.parse_url(text))
            yield _OpenedFolder(web, web.file)
