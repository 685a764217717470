"""`download`: fetch the files of a checkpoint into the local Hugging Face cache with
huggingface_hub and its progress bars.

The headers are read first, so that a repository without a complete checkpoint is refused before its
weights are downloaded.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable

from ...utils.errors import FormatError, MissingExtra, RemoteError, safe
from ..formats.manifest import Manifest
from ..hub_cache import cache_folder
from ..repo_id import Repo, endpoint, is_commit
from . import read_remote
from .hub_repo import HubFolder, find_token, new_session
from .urls import parse_url

_SMALL_FILES = (".json", ".jinja", ".model", ".tiktoken", "merges.txt", "vocab.txt")
"""Endings of the files beside the weights that are downloaded: configuration, tokenizer and chat
template; never code."""


def download(repo: Repo, report: Callable[[str], object]) -> str:
    """Download the checkpoint that a repository or a path in it names; returns the local path of
    the file or folder.

    `report` is called with a line about the download before it begins.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtra("huggingface_hub", "hub") from None
    manifest, commit = read_remote(repo.address)
    if manifest.index is not None and manifest.index.missing:
        missing = safe(manifest.index.missing[0], 80)
        raise FormatError(
            "unreadable",
            f"hf://{repo.id}@{commit} lacks "
            f"{len(manifest.index.missing):,} files of its index: {missing}, …",
        )
    names = _files(repo._replace(revision=commit), manifest)
    sizes = {x.name.rpartition(f"@{commit}/")[2]: x.size for x in manifest.files}
    folder = cache_folder()
    snapshot = os.path.join(folder, "models--" + repo.id.replace("/", "--"), "snapshots", commit)
    left = sum(
        size for name, size in sizes.items() if not os.path.exists(os.path.join(snapshot, name))
    )
    _check_free_space(folder, left)
    report(
        f"downloading hf://{repo.id}@{commit} to {safe(folder)}: {len(names):,} files, "
        f"{_size(left)} of weights"
    )
    site = parse_url(endpoint(), "url", "HF_ENDPOINT")
    try:
        got = snapshot_download(
            repo.id,
            revision=repo.revision,
            cache_dir=folder,
            allow_patterns=[glob.escape(x) for x in names],
            token=(find_token() or False) if site.is_private else False,
            endpoint=endpoint(),
            library_name="llamath",
        )
    except OSError as error:  # those of requests are OSErrors, too; their texts may repeat headers
        reason = (
            safe(error.strerror, 120)
            if error.strerror and not hasattr(error, "response")
            else type(error).__name__
        )
        raise _failed(repo, reason) from None
    except Exception as error:
        raise _failed(repo, type(error).__name__) from None
    if not is_commit(os.path.basename(got)) or os.path.basename(got) != commit:
        message = (
            f"hf://{repo.id} changed from commit {commit} to {safe(os.path.basename(got))} "
            "while it was downloaded"
        )
        raise RemoteError("changed", message, hint="ask again")
    for name, size in sizes.items():
        path = os.path.join(got, *name.split("/"))
        if not os.path.isfile(path) or os.path.getsize(path) != size:
            raise RemoteError(
                "changed",
                f"{safe(path)}: expected {size:,} bytes, as on the Hub",
                hint="delete it and ask again",
            )
    return os.path.join(got, *repo.path.split("/")) if repo.path else got


def _files(repo: Repo, manifest: Manifest) -> list[str]:
    """Return the paths in the repository of the checkpoint's files: weights, index,
    configuration and tokenizer.
    """
    start = f"hf://{repo.id}@{repo.revision}/"
    weights = {x.name.removeprefix(start) for x in manifest.files}
    if manifest.index is not None:
        weights.add(manifest.index.path.removeprefix(start))
    session = new_session()
    try:
        folder = HubFolder(session, repo)
        inner = f"{folder.name}/".removeprefix(start)
        small = {
            inner + x
            for x in folder.names()
            if x.endswith(_SMALL_FILES) and not x.endswith(".index.json")
        }
    finally:
        session.close()
    return sorted(weights | small)


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 10**8 else f"{size / 1e6:,.2f} MB"


def _check_free_space(folder: str, needed: int) -> None:
    """Raise if a download cannot fit on the disk."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder or ".").free
    if needed > free:
        message = (
            f"{safe(folder)} has {_size(free)} free, and the weights to download have "
            f"{_size(needed)}"
        )
        raise RemoteError("disk", message, hint="set HF_HOME to a folder on a larger disk")


def _failed(repo: Repo, reason: str) -> RemoteError:
    hint = "ask again: finished files are kept"
    return RemoteError(
        "download",
        f"hf://{repo.id}@{safe(repo.revision)} cannot be downloaded: {reason}",
        hint=hint,
    )
