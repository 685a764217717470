"""The page as one file: data, script and style inside it, and a policy that lets nothing else in."""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...model import Model
from ...render.svg.svg_shapes import DARK, LIGHT
from ..page_data.page_data import build_page_data

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "static")
MODULES = (
    "forms",
    "dom",
    "derived",
    "state",
    "treemap",
    "table",
    "memory",
    "controls",
    "bar",
    "plane",
    "curve",
    "sizes",
    "speed",
    "where",
    "drawn",
    "heads",
    "block",
    "verdicts",
    "compare",
    "served",
    "share",
    "picture",
    "taking",
    "design",
    "strict",
    "headers",
    "drop",
    "main",
)
"""In the order in which one builds on another."""
MEMORY_COLORS = {"weights": "embedding", "cache": "attention", "activations": "mlp", "logits": "head", "overhead": "norm"}
MEMORY_COLORS |= {"gradients": "router", "master": "experts", "optimizer": "mixer"}
"""The parts of memory, by the colours that they take."""
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
COMMENTS_AND_INDENTATION = re.compile(r"^[ \t]*(?://.*)?\n|^[ \t]+", re.MULTILINE)
"""What only readers of the source need: indentation, blank lines, comments on lines of their own."""
CSS_SPACES = re.compile(r"\s*([{};])\s*|([:,]) +")
"""Space that a stylesheet does without."""
EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function) (\w+))", re.MULTILINE)


def model_page(models: Sequence[Model]) -> str:
    """One self-contained file for one or two models."""
    return page_from_data(build_page_data(models))


def page_from_data(data: Mapping[str, Any]) -> str:
    """The same of data that is there already."""
    title = " and ".join(x["name"] for x in data["models"])
    plain = [f"{escape(x['name'])}: {int(x['counts'][0]['value']):,} parameters" for x in data["models"]]
    return document(title, data, bundle_script(), plain)


def document(title: str, data: Mapping[str, Any], code: str, plain: Sequence[str]) -> str:
    """A page around data and the script that shows them; `plain` is markup for whoever runs no scripts."""
    look = build_style()
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy(code, look)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)} · llamath</title>",
            f"<style>{look}</style>",
            "</head>",
            "<body>",
            f'<main id="page"><h1>{escape(title)}</h1></main>',
            "<noscript><ul>",
            *(f"<li>{x}</li>" for x in plain),
            "</ul></noscript>",
            f'<script type="application/json" id="data">{html_safe_json(data)}</script>',
            f'<script type="module">{code}</script>',
            "</body>",
            "</html>",
            "",
        ]
    )


def bundle_script(names: Sequence[str] = MODULES) -> str:
    """The modules in one script, each a function that gives what it exports."""
    return "\n" + "\n".join(_module(name, read_asset(f"{name}.js")) for name in names)


def _module(name: str, text: str) -> str:
    inside = COMMENTS_AND_INDENTATION.sub("", EXPORT.sub("", IMPORT.sub(r"const \1 = \2Module;", text)))
    return f"const {name}Module = (() => {{\n{inside}return {{ {', '.join(EXPORT.findall(text))} }};\n}})();"


def build_style() -> str:
    """The stylesheet, with the colours of every picture here."""
    look = COMMENTS_AND_INDENTATION.sub("", f"{_color_rules()}\n{read_asset('page.css')}")
    return f"\n{CSS_SPACES.sub(lambda x: x[1] or x[2], look)}\n"


def content_security_policy(code: str, look: str) -> str:
    """What the page may do: run this script, wear this style, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(code)}'",
            f"style-src '{_digest(look)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def html_safe_json(data: Mapping[str, Any]) -> str:
    """JSON that no parser of HTML takes for anything else."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def read_asset(name: str) -> str:
    """A file of the page."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _color_rules() -> str:
    def said(theme: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {colour};" for name, colour in theme.items())

    areas = {name: name for name in LIGHT if name not in ("page", "ink", "faint", "line")} | MEMORY_COLORS | {"more": "up", "fewer": "down"}
    fills = [
        f"rect.{name}, circle.{name}, .key.{name} {{ fill: var(--{colour}); background: var(--{colour}); }}"
        for name, colour in areas.items()
    ]
    return "\n".join(
        [
            f":root {{ {said(LIGHT)} }}",
            f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {said(DARK)} }} }}",
            f"@media screen {{ :root[data-theme='dark'] {{ {said(DARK)} }} }}",
            *fills,
        ]
    )
