"""The HTML of a static site: a page with its data, whose script and style are files that all
pages share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..page_data.live.live_data import LiveParts
from ..server.page_html import LIVE_BUNDLE, html_document, live_elements, live_script, read_asset

BUNDLES = ("gallery", "page", LIVE_BUNDLE)
COUNT_ASSETS = ("count.js", "count.css")
"""The script and style of the page that counts with the library itself."""
_LIVE = "live.js"


def site_policy(*, compiles: bool = False, counts: bool = False) -> str:
    """Return the content security policy of a site's page: its own scripts and style, the icon in
    it, pictures that the scripts make, and nothing else; the one trusted type is the address of
    `known_forms`' script. With `compiles` its scripts may compile WebAssembly; one that `counts`
    may also read files of the site, and start a worker, which has the same policy.
    """
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'" + " 'wasm-unsafe-eval'" * (compiles or counts),
            "style-src 'self'",
            "img-src blob: data:",
            *(("connect-src 'self'", "worker-src blob:") if counts else ()),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types llamath-forms" + " llamath-library" * counts,
        )
    )


def site_assets() -> dict[str, str]:
    """Return the script and style of each bundle by the file name, which contains a hash of the
    content.
    """
    names = (*(f"{bundle}.{kind}" for bundle in BUNDLES for kind in ("js", "css")), _LIVE)
    return {asset_name(x): _content(x) for x in names}


def _content(name: str) -> str:
    return live_script() if name == _LIVE else read_asset(name)


def asset_name(name: str) -> str:
    """Return the file name of an asset in a site: `page-0123456789ab.js`."""
    stem, _, kind = name.partition(".")
    return f"{stem}-{hashlib.sha256(_content(name).encode()).hexdigest()[:12]}.{kind}"


def count_page(data: Mapping[str, Any]) -> str:
    """Return the page that counts a config with the library itself and then shows its model."""
    title = "Count a config"
    script, style = COUNT_ASSETS
    return html_document(
        title,
        data,
        ['<a href="index.html">All models</a>'],
        description="A config of any family, counted by the library itself in the browser",
        policy=site_policy(counts=True),
        style="\n".join(
            f'<link rel="stylesheet" href="assets/{asset_name(x)}">' for x in ("page.css", style)
        ),
        script="\n".join(
            f'<script src="assets/{asset_name(x)}" defer></script>' for x in (script, "page.js")
        ),
    )


def site_page(
    title: str,
    data: Mapping[str, Any],
    bundle: str,
    up: str,
    without_script: Sequence[str],
    live: LiveParts | None = None,
    preview: str = "",
) -> str:
    """Return a page of a site; `up` leads from it to the site's root, and `preview` is the address
    of its picture.
    """
    if live is not None:
        bundle = LIVE_BUNDLE
    scripts = (f"{bundle}.js",) if live is None else (_LIVE, f"{bundle}.js")
    return html_document(
        title,
        data,
        without_script,
        preview=preview,
        policy=site_policy(compiles=live is not None),
        style=f'<link rel="stylesheet" href="{up}assets/{asset_name(f"{bundle}.css")}">',
        script="\n".join(
            (
                *(() if live is None else live_elements(live)),
                *(f'<script src="{up}assets/{asset_name(x)}" defer></script>' for x in scripts),
            )
        ),
    )
