"""The page as one HTML file with its data, script and style, and a content security policy that admits nothing else."""

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

STATIC_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "static")
_MODULES = (
    "expressions",
    "dom",
    "derivations",
    "url_state",
    "treemap",
    "tensor_table",
    "gpu_memory",
    "controls",
    "memory_bars",
    "axes",
    "memory_curve",
    "memory_view",
    "speed",
    "treemap_view",
    "block_diagram",
    "head_sharing",
    "block_view",
    "checkpoint_status",
    "comparison",
    "page_links",
    "clipboard",
    "svg_export",
    "copy_buttons",
    "design",
    "strict_json",
    "file_headers",
    "dropped_file",
    "main",
)
"""The JavaScript modules in the order of their imports."""
_MEMORY_COLORS = {"weights": "embedding", "cache": "attention", "activations": "mlp", "logits": "head", "overhead": "norm"}
_MEMORY_COLORS |= {"gradients": "router", "master": "experts", "optimizer": "mixer"}
"""The colors of the parts of memory."""
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_COMMENTS_AND_INDENTATION = re.compile(r"^[ \t]*(?://.*)?\n|^[ \t]+", re.MULTILINE)
"""Indentation, blank lines and whole-line comments, which are stripped."""
_CSS_SPACES = re.compile(r"\s*([{};])\s*|([:,]) +")
"""Optional white space of a stylesheet."""
_EXPORT = re.compile(r"^export (?=(?:const|(?:async )?function) (\w+))", re.MULTILINE)


def model_page(models: Sequence[Model]) -> str:
    """Return one self-contained file for one or two models."""
    return page_from_data(build_page_data(models))


def page_from_data(data: Mapping[str, Any]) -> str:
    """Return the page for data from `build_page_data`."""
    title = " and ".join(x["name"] for x in data["models"])
    without_script = [f"{escape(x['name'])}: {int(x['counts'][0]['value']):,} parameters" for x in data["models"]]
    return document(title, data, bundle_script(), without_script)


def document(title: str, data: Mapping[str, Any], code: str, without_script: Sequence[str]) -> str:
    """Return a page with its data and script; `without_script` is the markup shown without JavaScript."""
    style = build_style()
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy(code, style)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)} · llamath</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            f'<main id="page"><h1>{escape(title)}</h1></main>',
            "<noscript><ul>",
            *(f"<li>{x}</li>" for x in without_script),
            "</ul></noscript>",
            f'<script type="application/json" id="data">{html_safe_json(data)}</script>',
            f'<script type="module">{code}</script>',
            "</body>",
            "</html>",
            "",
        ]
    )


def bundle_script(names: Sequence[str] = _MODULES) -> str:
    """Bundle the modules into one script, each as a function that returns its exports."""
    return "\n" + "\n".join(_module(name, read_asset(f"{name}.js")) for name in names)


def _module(name: str, text: str) -> str:
    body = _COMMENTS_AND_INDENTATION.sub("", _EXPORT.sub("", _IMPORT.sub(r"const \1 = \2Module;", text)))
    return f"const {name}Module = (() => {{\n{body}return {{ {', '.join(_EXPORT.findall(text))} }};\n}})();"


def build_style() -> str:
    """Return the stylesheet with the color variables."""
    css = _COMMENTS_AND_INDENTATION.sub("", f"{_color_rules()}\n{read_asset('page.css')}")
    return f"\n{_CSS_SPACES.sub(lambda x: x[1] or x[2], css)}\n"


def content_security_policy(code: str, style: str) -> str:
    """Return a content security policy that admits only this script and this style."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(code)}'",
            f"style-src '{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def html_safe_json(data: Mapping[str, Any]) -> str:
    """Encode JSON without characters that an HTML parser could interpret."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def read_asset(name: str) -> str:
    """Read a static file of the page."""
    with open(os.path.join(STATIC_FOLDER, name), encoding="utf-8") as file:
        return file.read()


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _color_rules() -> str:
    def variables(theme: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {color};" for name, color in theme.items())

    color_by_class = (
        {name: name for name in LIGHT if name not in ("page", "ink", "faint", "line")} | _MEMORY_COLORS | {"more": "up", "fewer": "down"}
    )
    fills = [
        f"rect.{name}, circle.{name}, .key.{name} {{ fill: var(--{color}); background: var(--{color}); }}"
        for name, color in color_by_class.items()
    ]
    return "\n".join(
        [
            f":root {{ {variables(LIGHT)} }}",
            f"@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {{ {variables(DARK)} }} }}",
            f"@media screen {{ :root[data-theme='dark'] {{ {variables(DARK)} }} }}",
            *fills,
        ]
    )
