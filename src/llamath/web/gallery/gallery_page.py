"""The page of the gallery: its data and settings, for the static site and for the local server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from ..page_data.file_formats import file_formats
from ..page_data.ui_strings import UI_STRINGS

VIEWS = ("cards", "wall", "table", "timeline", "kinship", "plot", "compare")
"""The views of the gallery; it opens on the first."""


def gallery_data(
    entries: Sequence[Mapping[str, Any]],
    *,
    link: str,
    pair_link: str = "",
    chunks: int = 0,
    hub: bool = False,
    forms: str = "",
    causes: Mapping[str, Any] | None = None,
    library: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the data of the page.

    `link` is the address of a model's page, with `{id}`; `pair_link` that of a comparison, with
    `{a}` and `{b}`, if Python makes one; `chunks` the number of requests that bring the rest of the
    entries; `forms` the address of the script with the closed forms; `causes` why the second model
    of a pair has another size; and `library` the page that counts with the library itself.
    """
    return ({} if library is None else {"library": dict(library)}) | {
        "models": list(entries),
        "settings": {"view": [VIEWS[0], list(VIEWS)], "sort": ["-released"]},
        "link": link,
        "pair_link": pair_link,
        "chunks": chunks,
        "hub": hub,
        "forms": forms,
        "causes": dict(causes or {}),
        "files": file_formats(),
        "words": UI_STRINGS,
        "version": version("llamath"),
    }


def plain_links(entries: Sequence[Mapping[str, Any]], link: str) -> list[str]:
    """Return the list of models for browsers without JavaScript."""
    addresses = (escape(link.format(id=quote(str(x["id"])))) for x in entries)
    return [
        f'<a href="{address}">{escape(str(x["name"]))}</a>: {int(x["total"]):,} parameters'
        for address, x in zip(addresses, entries, strict=True)
    ]
