"""Parse names of model repositories on the Hub: `owner/name`, `owner/name@revision`, a file in
it, `hf://…`, or the URL of a page.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..utils.errors import RemoteError, safe
from .formats.choose_files import EXTENSIONS

_ENDPOINT = "https://huggingface.co"
_SITES = (_ENDPOINT, "https://hf.co", "huggingface.co", "hf.co")
"""The beginnings of pages' URLs, besides that of the endpoint; browsers copy them without the
scheme, too."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REVISION = r"refs/(?:pr|convert)/[^/@\s]{1,100}|[^/@\s]{1,255}"
_BARE = re.compile(
    rf"(?P<id>{_NAME}/{_NAME})(?:@(?P<revision>{_REVISION}))?(?:/(?P<path>[^\s?#]{{1,1000}}))?",
    re.ASCII,
)
_URI = re.compile(
    rf"hf://(?:models/)?(?P<id>{_NAME}(?:/{_NAME})?)(?:@(?P<revision>{_REVISION}))?(?:/(?P<path>.*))?",
    re.ASCII | re.DOTALL,
)
_WITHIN = r"/(?:tree|blob|resolve)/(?P<revision>[^/?#]+)(?:/(?P<path>[^?#]*))?"
_PAGE = re.compile(rf"(?P<id>{_NAME}/{_NAME})(?:{_WITHIN})?/?(?:[?#].*)?", re.ASCII | re.DOTALL)
_OTHERS = (
    "api",
    "blog",
    "buckets",
    "collections",
    "datasets",
    "docs",
    "kernels",
    "papers",
    "spaces",
)
_COMMIT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


class Repo(NamedTuple):
    """A model repository, a revision, and a file or folder in it."""

    id: str
    revision: str = "main"
    path: str = ""

    @property
    def name(self) -> str:
        """The name without the owner."""
        return self.id.rpartition("/")[2]

    @property
    def address(self) -> str:
        """The repository, its revision and the path as `hf://owner/name@revision/path`."""
        return f"hf://{self.id}@{quote(self.revision, safe='')}" + (
            f"/{quote(self.path)}" if self.path else ""
        )


def parse_repo(text: str) -> Repo | None:
    """Parse the name of a repository; None if a text is something else. An existing path takes
    precedence, which the caller checks.

    Without `hf://` or a revision, a path in the repository has to be the name of a checkpoint or a
    JSON file, so that a misspelled local path is rarely taken for a repository.
    """
    if text.startswith("hf://"):
        match = _URI.fullmatch(text)
    elif site := next((x for x in (endpoint(), *_SITES) if text.startswith(f"{x}/")), ""):
        match = _PAGE.fullmatch(text[len(site) + 1 :])
    else:
        match = _BARE.fullmatch(text)
        if match and not match["revision"] and not _is_plain(text, match["path"]):
            match = None
    if match and match["id"].partition("/")[0] not in _OTHERS and ".." not in match["id"]:
        return Repo(
            match["id"],
            unquote(match["revision"] or "main"),
            unquote(match["path"] or "").strip("/"),
        )
    if text.startswith("hf://"):
        raise RemoteError(
            "id",
            f"{safe(text)} is not a model on the Hub",
            hint="hf://owner/name, hf://owner/name@revision or hf://owner/name/file",
        )
    return None


def _is_plain(text: str, path: str | None) -> bool:
    """Whether a text without a scheme and a revision is `owner/name`, or `owner/name/FILE` with
    the extension of a file that is read.
    """
    is_file = text.endswith((*EXTENSIONS, ".json"))
    return not is_file if path is None else is_file and "/" not in path


def endpoint() -> str:
    """Return the Hub's URL."""
    return (os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")


def is_commit(revision: str) -> bool:
    """Whether a revision is the hash of a commit."""
    return _COMMIT.fullmatch(revision) is not None


def is_offline() -> bool:
    """Whether requests to the Hub are forbidden by HF_HUB_OFFLINE."""
    return is_enabled(os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE"))


def is_enabled(value: str | None) -> bool:
    """Whether huggingface_hub takes this value of an environment variable for true."""
    return (value or "").upper() in ("1", "ON", "YES", "TRUE")
