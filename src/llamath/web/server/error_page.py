"""The error page of the server."""

from __future__ import annotations

from html import escape

from .page_html import content_security_policy, read_asset


def error_page(title: str, text: str, link_prefix: str) -> str:
    """Return a page with an error message and a link back."""
    style = read_asset("gallery.css")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{content_security_policy("", style)}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)} · llamath</title><style>{style}</style></head>
<body><main id="page" class="wrap gallery"><h1>{escape(title)}</h1><p>{escape(text)}</p>
<p><a href="{escape(link_prefix)}choose">Choose a model</a></p></main></body></html>
"""
