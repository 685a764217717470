"""Errors of the server: `PageError`, and its JSON and its page."""

from __future__ import annotations

import json
from html import escape

from ...utils.errors import LlamathError
from .page_html import content_security_policy, read_asset

_CODES = {400: "usage", 404: "missing", 408: "too_slow", 429: "busy", 503: "busy"}
_TITLES = {404: "No such model", 424: "The hub did not answer", 429: "Busy", 503: "Busy"}
RETRY_AFTER = {429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}
"""The headers of a response by its status."""


class PageError(LlamathError):
    """A request that cannot be answered, with the HTTP status of the response and the code of
    its JSON.
    """

    def __init__(self, status: int, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.code = status, code or _CODES.get(status, "bad_input")


def error_json(error: PageError) -> str:
    """Return an error in the form in which the command line prints it."""
    return (
        json.dumps({"error": {"message": str(error), "hint": error.hint, "code": error.code}})
        + "\n"
    )


def error_page(error: PageError, link_prefix: str) -> str:
    """Return a page with an error message and a link back."""
    title, text = _TITLES.get(error.status, "This model cannot be shown"), str(error)
    style = read_asset("gallery.css")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{content_security_policy([""], style)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · llamath</title><style>{style}</style></head>
<body><main id="page" class="wrap gallery"><h1>{escape(title)}</h1><p>{escape(text)}</p>
<p><a href="{escape(link_prefix)}choose">Choose a model</a></p></main></body></html>
"""
