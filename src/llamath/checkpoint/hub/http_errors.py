"""What it means when a server refuses: one error for each status, with a hint at what can be done."""

from __future__ import annotations

from email.message import Message

from ...core.errors import RemoteError
from .web_location import Url

_LOGIN = "if it is gated, accept its terms on its page; then set HF_TOKEN, which is sent over https alone, or run `hf auth login`"
_ACCESS = "your token was sent and does not suffice: accept the model's terms on its page, or give the token read access to gated models"
_MEANINGS: dict[int, tuple[str, str, str]] = {
    401: ("unauthorized", "it is gated or private, or there is no such model", _LOGIN),
    403: ("forbidden", "access is denied", _LOGIN),
    404: ("missing", "there is no such thing", "check the spelling; a private model needs a token that may read it"),
    407: ("proxy", "the proxy wants a password", "see https_proxy"),
    410: ("missing", "it is gone", ""),
    429: ("busy", "too many requests", "wait some minutes; with HF_TOKEN the hub allows more"),
}
_CODES = {
    "GatedRepo": "it is gated",
    "RepoNotFound": "there is no such model, or it is private",
    "RevisionNotFound": "there is no such revision",
    "EntryNotFound": "there is no such file",
}
"""The hub's `X-Error-Code`; its free text is not repeated, since it may repeat what was sent."""


def error_for_status(there: Url, status: int, headers: Message) -> RemoteError:
    """The error for an answer that is neither the bytes nor a redirect to them."""
    later = ("server", "the server has failed", "try again later") if status >= 500 else ("status", "an answer nobody asked for", "")
    code, meaning, hint = _MEANINGS.get(status, later)
    meaning = _CODES.get(headers.get("X-Error-Code", ""), meaning)
    if there.is_trusted and status in (401, 403):
        hint = _ACCESS
    return RemoteError(code, f"{there.display}: {meaning} (status {status})", hint=hint)
