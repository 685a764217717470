"""Model repositories on the Hub: an id and a revision are resolved to a commit, whose files are a
`Folder`.

Only documented routes are used: `/api/models/{id}/revision/{revision}` for the commit and the file
names, and `/{id}/resolve/{commit}/{file}` for the bytes. Weights are downloaded by huggingface_hub;
see `download`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from ...utils.errors import Call, FormatError, RemoteError, safe
from ..formats.checkpoint_files import MAX_SHARDS
from ..formats.folder import check_file_name
from ..formats.source import Source
from ..hub_cache import hub_home
from ..repo_id import Repo, endpoint, is_commit, is_enabled, is_offline
from .http_client import Limits, Session
from .http_file import HttpFile, fetch_json
from .remote_folder import RemoteFolder
from .urls import Url, parse_url, quote_url

_MAX_API_BYTES = 8 << 20
"""Maximum bytes of a response of the Hub's API; those for the largest repositories have one
million."""
_MAX_TOKEN_BYTES = 4096


def new_session(limits: Limits | None = None) -> Session:
    """Return a session with the endpoint and its token."""
    if is_offline():
        raise RemoteError(
            "offline",
            "the Hub is disabled by HF_HUB_OFFLINE",
            hint="unset it, or give the path of a local copy",
        )
    return Session(parse_url(endpoint(), "url", "HF_ENDPOINT"), find_token(), limits)


def find_token() -> str:
    """Return the token for the endpoint as huggingface_hub finds it, or an empty string:
    HF_TOKEN, else that of `hf auth login`.
    """
    if is_enabled(os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return ""
    text = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or _stored_token()
    if not re.fullmatch("[!-~]*", text := text.strip()):
        raise RemoteError(
            "token",
            "the token for the Hub contains invalid characters",
            hint="see HF_TOKEN, or `hf auth login`",
        )
    return text


def _stored_token() -> str:
    """Return the token of `hf auth login`; huggingface_hub, where it is installed, renews one
    that expires.
    """
    path = os.path.expandvars(
        os.path.expanduser(os.environ.get("HF_TOKEN_PATH") or os.path.join(hub_home(), "token"))
    )
    try:
        with open(path, encoding="utf-8") as file:
            stored = file.read(_MAX_TOKEN_BYTES)
    except (OSError, ValueError):
        stored = ""
    if not stored and not os.environ.get("HF_OIDC_RESOURCE"):
        return ""
    try:
        from huggingface_hub import get_token
    except ImportError:
        return stored
    try:
        return get_token() or stored
    except Exception as error:  # its message might contain a token
        raise RemoteError(
            "token",
            f"huggingface_hub cannot get a token: {type(error).__name__}",
            hint="set HF_TOKEN",
        ) from None


class WebFolder(RemoteFolder):
    """A folder on a web server, which cannot be listed."""

    def __init__(self, session: Session, url: Url, name: str = "") -> None:
        path, _, last = url.path.rpartition("/")
        self._session, self._named, self._path = session, url, path
        self.file = unquote(last)
        self.name = name or url.site + path

    def names(self) -> Sequence[str]:
        """Raise: web servers do not list files."""
        raise RemoteError("listing", f"{safe(self.name)} cannot be listed: give the URL of a file")

    def open(self, name: str) -> Source | None:
        """Open a file; None if the server reports that it does not exist."""
        try:
            return HttpFile(self.url_of(name).url, self._session, name=self.path(name))
        except RemoteError as error:
            if error.code != "missing":
                raise
            return None

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON object."""
        return fetch_json(self._session, self.url_of(name))

    def url_of(self, name: str) -> Url:
        """Return the URL of a file: the given one with its query, or one in the same folder."""
        if self.file and name == self.file:
            return self._named
        return self._named._replace(
            path=f"{self._path}/{quote_url(check_file_name(name))}", query=""
        )


class HubFolder(WebFolder):
    """The files of a commit of a repository, or of a folder in it."""

    is_read_by_transformers = True

    def __init__(self, session: Session, repo: Repo) -> None:
        site, path = endpoint(), f"{repo.id}/revision/{quote_url(repo.revision)}"
        self._repo = repo
        self.commit, files = resolve_commit(
            fetch_json(session, session.parse_url(f"{site}/api/models/{path}"), _MAX_API_BYTES),
            repo,
        )
        inner = _folder_of(repo.path, files)
        self._start = start = f"{inner}/" if inner else ""
        self._names = frozenset(
            x[len(start) :] for x in files if x.startswith(start) and "/" not in x[len(start) :]
        )
        path = quote_url(repo.path if repo.path in files else start, "/")
        url = session.parse_url(f"{site}/{repo.id}/resolve/{self.commit}/{path}")
        super().__init__(session, url, f"hf://{repo.id}@{self.commit}/{start}".rstrip("/"))

    def names(self) -> Sequence[str]:
        """Return the names that the Hub lists."""
        return sorted(self._names)

    def open(self, name: str) -> Source | None:
        """Open a file if it is listed."""
        return super().open(name) if check_file_name(name) in self._names else None

    def inner(self, path: str) -> HubFolder:
        """Return a folder in this one, at the same commit."""
        folder = HubFolder(self._session, Repo(self._repo.id, self.commit, f"{self._start}{path}"))
        folder.max_files = self.max_files
        return folder

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON object if it is listed."""
        if check_file_name(name) not in self._names:
            raise RemoteError("missing", f"{safe(self.name)} has no {safe(name)}")
        return super().json(name)


def resolve_commit(data: dict[str, Any], repo: Repo) -> tuple[str, set[str]]:
    """Return the commit of a revision, and the paths of its files."""
    commit, siblings = data.get("sha"), data.get("siblings", [])
    if (
        not isinstance(commit, str)
        or not is_commit(commit)
        or not isinstance(siblings, list)
        or len(siblings) > MAX_SHARDS
    ):
        raise RemoteError(
            "api",
            f"{endpoint()} returned no commit and files for {repo.id}",
            hint="check HF_ENDPOINT",
        )
    if is_commit(repo.revision) and commit != repo.revision:
        raise RemoteError(
            "api", f"{endpoint()} returned commit {commit} of {repo.id} instead of {repo.revision}"
        )
    paths = {
        x["rfilename"]
        for x in siblings
        if isinstance(x, dict) and isinstance(x.get("rfilename"), str)
    }
    return commit, {x for x in paths if _is_plain_path(x)}


def fetch_sums(session: Session, repo: Repo) -> dict[str, str]:
    """Return the entity tags of the files next to each other in a repository, or in a folder of
    it, by file name.
    """
    path = f"{repo.id}/revision/{quote_url(repo.revision)}"
    data = fetch_json(
        session, session.parse_url(f"{endpoint()}/api/models/{path}?blobs=true"), _MAX_API_BYTES
    )
    _, files = resolve_commit(data, repo)
    inner = _folder_of(repo.path, files)
    start = f"{inner}/" if inner else ""
    sums = {}
    for x in data["siblings"]:
        name, lfs = (x.get("rfilename"), x.get("lfs")) if isinstance(x, dict) else (None, None)
        if name in files and name.startswith(start) and "/" not in name[len(start) :]:
            tag = lfs.get("sha256") if isinstance(lfs, dict) else x.get("blobId")
            if isinstance(tag, str):
                sums[name[len(start) :]] = tag
    if not sums:
        raise RemoteError(
            "api",
            f"{endpoint()} returned no sums of the files of {repo.id}",
            hint="check HF_ENDPOINT",
        )
    return sums


def _is_plain_path(path: str) -> bool:
    """Whether every part of a path is a plain file name; other files are ignored."""
    try:
        return all(check_file_name(x) for x in path.split("/"))
    except FormatError:
        return False


def _folder_of(path: str, files: set[str]) -> str:
    """Return the folder at a path in a repository, or the folder of the file there."""
    if path in files:
        return path.rpartition("/")[0]
    if path and not any(x.startswith(f"{path}/") for x in files):
        raise RemoteError(
            "missing",
            f"the repository has no {safe(path)}",
            hint=f"{Call('ls', 'hf://owner/name')} lists its files",
        )
    return path
