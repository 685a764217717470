"""The HTML of a static site: a page with its data, whose script and style are files that all
pages share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..server.page_html import html_document, read_asset

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
"""Pages of a site load its own scripts and style, and nothing else; the one trusted type is the
address of `known_forms`' script."""


def site_assets() -> dict[str, str]:
    """Return the script and style of each bundle by the file name, which contains a hash of the
    content.
    """
    return {
        asset_name(f"{bundle}.{kind}"): read_asset(f"{bundle}.{kind}")
        for bundle in BUNDLES
        for kind in ("js", "css")
    }


def asset_name(name: str) -> str:
    """Return the file name of an asset in a site: `page-0123456789ab.js`."""
    stem, _, kind = name.partition(".")
    return f"{stem}-{hashlib.sha256(read_asset(name).encode()).hexdigest()[:12]}.{kind}"


def site_page(
    title: str, data: Mapping[str, Any], bundle: str, up: str, without_script: Sequence[str]
) -> str:
    """Return a page of a site; `up` leads from it to the site's root."""
    script, style = (f"{up}assets/{asset_name(f'{bundle}.{kind}')}" for kind in ("js", "css"))
    return html_document(
        title,
        data,
        without_script,
        policy=SITE_POLICY,
        style=f'<link rel="stylesheet" href="{style}">',
        script=f'<script src="{script}" defer></script>',
    )
