"""The page to choose a model, and the error page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from ...catalog import presets
from ...model import Model
from ...utils.errors import safe
from ...utils.number_format import short_count
from .page_html import content_security_policy, document, read_asset


def chooser_page(own: Sequence[Model], hub: bool) -> str:
    """Return the page that lists the models of this launch and the presets, to search, open and compare."""
    preset_entries = [
        {"id": x.slug, "name": x.name, "parameters": str(x.parameters), "everyday": short_count(x.parameters), "also": list(x.ids)}
        for x in presets()
    ]
    own_entries = [
        {"id": f"~{i}", "name": safe(x.name), "parameters": str(int(n)), "everyday": short_count(n), "also": []}
        for i, x in enumerate(own, 1)
        for n in [x.parameters.total]
    ]
    preset_entries.sort(key=lambda x: str(x["name"]).lower())
    links = [f'<a href="model/{quote(str(x["id"]))}">{escape(str(x["name"]))}</a>' for x in (*own_entries, *preset_entries)]
    return document("Choose a model", {"own": own_entries, "presets": preset_entries, "hub": hub}, "chooser", links)


def error_page(title: str, text: str, link_prefix: str) -> str:
    """Return a page with an error message and a link back."""
    style = read_asset("chooser.css")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{content_security_policy("", style)}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)} · llamath</title><style>{style}</style></head>
<body><main id="page"><h1>{escape(title)}</h1><p>{escape(text)}</p>
<p><a href="{escape(link_prefix)}choose">Choose a model</a></p></main></body></html>
"""
