"""The page as one HTML file with its data, script and style, and a content security policy that
admits nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from ...model import FamilyModel
from ...render.svg.poster.poster_svg import FORMATS, PREVIEW
from ..without_script import model_without_script

if TYPE_CHECKING:
    from ..page_data.live.live_data import LiveParts

LIVE_BUNDLE = "page_live"
"""The page with the views of a model that runs in it."""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='-2 -2 26 26'%3E"
    "%3Crect x='-2' y='-2' width='26' height='26' rx='5' fill='%23fcfbf8'/%3E"
    "%3Cpath d='M0 9.5h22v3H0zM2 2h4v7H2zM9 2h4v7H9zM16 2h4v7h-4zM3 13h2v6H3zM10 13h2v6h-2z"
    "M17 13h2v6h-2z' fill='%2314171c'/%3E%3C/svg%3E"
)
"""The mark of the header, on paper: it is in the page, so that nothing is asked for."""
_SHARED_SCRIPT, _SHARED_STYLE = "page_shared.js", "page.css"
STATIC_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "static")


def model_page(models: Sequence[FamilyModel], live: LiveParts | None = None) -> str:
    """Return one self-contained file for one or two models; with `live` the page runs the first
    one.
    """
    # much is imported, which the server itself does not need
    from ..forms.page_forms import with_family_forms
    from ..page_data.page_data import build_page_data

    return page_from_data(with_family_forms(build_page_data(models, live)), live)


def page_from_data(
    data: Mapping[str, Any], live: LiveParts | None = None, *, connects: bool = False
) -> str:
    """Return the page for data from `build_page_data`; one that `connects` may send configs to
    its server.
    """
    title = " and ".join(x["name"] for x in data["models"])
    without_script = [
        f"{escape(x['name'])}: {int(x['counts'][0]['value']):,} parameters" for x in data["models"]
    ]
    bundle = "page_pair" if len(data["models"]) > 1 else "page" if live is None else LIVE_BUNDLE
    return document(title, data, bundle, without_script, live, connects=connects)


def document(
    title: str,
    data: Mapping[str, Any],
    bundle: str,
    without_script: Sequence[str],
    live: LiveParts | None = None,
    *,
    connects: bool = False,
) -> str:
    """Return a page with its data, and the script and style of a bundle of `web/`; `without_script`
    is shown without JavaScript.

    A page that `connects` may ask the server that it came from; one that is `live` has the script
    with the engine before its own.
    """
    code, style = read_asset(f"{bundle}.js"), read_asset(f"{bundle}.css")
    scripts = (code,) if live is None else (live_script(), code)
    return html_document(
        title,
        data,
        without_script,
        policy=content_security_policy(
            scripts, style, connects=connects, compiles=live is not None
        ),
        style=f"<style>{style}</style>",
        script="\n".join(
            [
                *(() if live is None else live_elements(live)),
                *(f'<script type="module">{x}</script>' for x in scripts),
            ]
        ),
    )


def live_elements(live: LiveParts) -> Iterator[str]:
    """Yield the elements with the program and the weights: the low bytes of each 16 bits, which
    are as good as random, and the high ones, compressed.
    """
    for name, content in (
        ("program", _compressed(live.program)),
        ("low", b64encode(live.weights[::2]).decode()),
        ("high", _compressed(live.weights[1::2])),
    ):
        yield f'<script type="text/plain" id="live-{name}">{content}</script>'


@cache
def live_script() -> str:
    """Return the script that runs a model: the engine's module and what opens it."""
    with open(os.path.join(STATIC_FOLDER, "engine.wasm"), "rb") as file:
        engine = _compressed(file.read())
    return f'const LLAMATH_ENGINE="{engine}";{read_asset("live.js")}'


def html_document(
    title: str,
    data: Mapping[str, Any],
    without_script: Sequence[str],
    *,
    policy: str,
    style: str,
    script: str,
    preview: str = "",
    description: str = "",
) -> str:
    """Return a page with its data; `style` and `script` are elements, and the lines of
    `without_script` are HTML. `preview` is the address of the picture that a link shows, and
    `description` what it says, if that is not of models.
    """
    models = [x for x in data.get("models", ()) if "plate" in x]
    description = description or _description(models, without_script)
    # of a model its page says more than this line
    lines = [x for x in without_script if not models or x.startswith("<a")]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)} · llamath</title>",
            f'<meta name="description" content="{escape(description)}">',
            f'<meta property="og:title" content="{escape(title)}">',
            f'<meta property="og:description" content="{escape(description)}">',
            *(_preview(preview, description) if preview else ()),
            f'<link rel="icon" href="{ICON}">',
            style,
            "</head>",
            "<body>",
            f'<div id="page" data-busy><main class="wrap"><h1>{escape(title)}</h1></main></div>',
            '<noscript><div class="wrap">',
            *(model_without_script(x, is_alone=len(models) == 1) for x in models),
            "<ul>" if lines else "",
            *(f"<li>{x}</li>" for x in lines),
            "</ul>" if lines else "",
            "</div></noscript>",
            f'<script type="text/plain" id="data">{compressed_data(data)}</script>',
            script,
            "</body>",
            "</html>",
            "",
        ]
    )


def _description(models: Sequence[Mapping[str, Any]], without_script: Sequence[str]) -> str:
    """Return what is shown with a link to the page."""
    if not models:
        return f"{len(without_script):,} language models and their sizes, to the parameter"
    return " ".join(
        f"{x['name']}, {int(x['counts'][0]['value']):,} parameters. {x['facts']['description']}"
        for x in models
    )


def _preview(address: str, description: str) -> Iterator[str]:
    """Yield the elements by which a link to the page shows a picture."""
    width, height = FORMATS[PREVIEW].pixels
    for name, content in (
        ("og:type", "website"),
        ("og:image", address),
        ("og:image:type", "image/png"),
        ("og:image:width", str(width)),
        ("og:image:height", str(height)),
        ("og:image:alt", description),
    ):
        yield f'<meta property="{name}" content="{escape(content)}">'
    yield '<meta name="twitter:card" content="summary_large_image">'


def compressed_data(data: Mapping[str, Any]) -> str:
    """Return the data of a page, which makes those of its models from their templates."""
    return compressed_json(
        {
            name: [y.get("template", y) for y in x] if name == "models" else x
            for name, x in data.items()
        }
    )


def compressed_json(data: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return JSON as the browser decompresses it (`DecompressionStream("deflate")`), in base64:
    no HTML parser finds anything in it.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return _compressed(text.encode())


def _compressed(content: bytes) -> str:
    # level 5 of memory: more blocks, each with its own code, make JSON one percent smaller
    deflate = zlib.compressobj(9, memLevel=5)
    return b64encode(deflate.compress(content) + deflate.flush()).decode()


def content_security_policy(
    scripts: Sequence[str], style: str, *, connects: bool = False, compiles: bool = False
) -> str:
    """Return a content security policy that admits only these scripts, this style, and of pictures
    the icon and those that the scripts make, to save them as PNG.

    It admits no requests, or with `connects` only those to the page's own server; with `compiles`
    these scripts may compile WebAssembly, and nothing else from text.
    """
    sources = [f"'{_digest(x)}'" for x in scripts] + ["'wasm-unsafe-eval'"] * compiles
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(sources)}",
            f"style-src '{_digest(style)}'",
            "img-src blob: data:",
            *(["connect-src 'self'"] if connects else []),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


@cache
def read_asset(name: str) -> str:
    """Read a static file of the page. Of a page's script and style, what all pages share stands
    first.
    """
    if name.startswith("page") and name not in (_SHARED_SCRIPT, _SHARED_STYLE):
        shared = _SHARED_SCRIPT if name.endswith(".js") else _SHARED_STYLE
        return _read_static(shared) + _read_static(name)
    return _read_static(name)


def _read_static(name: str) -> str:
    with open(os.path.join(STATIC_FOLDER, name), encoding="utf-8") as file:
        return file.read()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
