"""The HTML of a static site: a page with packed data, whose script and style are files that all pages share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..server.packed_json import pack_json
from ..server.page_html import read_asset

BUNDLES = ("gallery", "page")
SITE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types llamath-forms",
    )
)
"""Pages of a site load its own scripts and style, and nothing else; the one trusted type is the address of `known_forms`' script."""


def site_assets() -> dict[str, str]:
    """Return the script and style of each bundle by the file name, which contains a hash of the content."""
    return {asset_name(f"{bundle}.{kind}"): read_asset(f"{bundle}.{kind}") for bundle in BUNDLES for kind in ("js", "css")}


def asset_name(name: str) -> str:
    """Return the file name of an asset in a site: `page-0123456789ab.js`."""
    stem, _, kind = name.partition(".")
    return f"{stem}-{hashlib.sha256(read_asset(name).encode()).hexdigest()[:12]}.{kind}"


def site_page(title: str, data: Mapping[str, Any], bundle: str, up: str, without_script: Sequence[str]) -> str:
    """Return a page of a site; `up` leads from it to the site's root."""
    script, style = (f"{up}assets/{asset_name(f'{bundle}.{kind}')}" for kind in ("js", "css"))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{SITE_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)} · llamath</title>",
            f'<link rel="stylesheet" href="{style}">',
            "</head>",
            "<body>",
            f'<div id="page"><main><h1>{escape(title)}</h1></main></div>',
            "<noscript><ul>",
            *(f"<li>{x}</li>" for x in without_script),
            "</ul></noscript>",
            f'<script type="text/x-lzma-base64" id="data">{pack_json(data)}</script>',
            f'<script src="{script}" defer></script>',
            "</body>",
            "</html>",
            "",
        ]
    )
