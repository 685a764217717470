"""The documentation site: Sphinx reads the Markdown files of this folder as they are on GitHub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from html import escape, unescape
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/llamath/llamath/blob/main"
PROJECT_PAGES = {
    "SECURITY.md": "security",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
}
"""Files at the root that are pages of the site, with the names of their pages under project/."""

POSTER = "llama-3-8b"
"""The model whose poster links to the documentation show."""

project = "llamath"
author = "the llamath authors"
copyright = "the llamath authors, Apache-2.0"  # noqa: A001, the name that Sphinx reads
release = metadata.version("llamath")
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"llamath {release}"
html_static_path = ["_static"]
html_css_files = ["llamath.css"]
html_baseurl = os.environ.get("SITE_URL", "")  # where the site will be, if it is known
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "source_repository": "https://github.com/llamath/llamath/",
    "source_branch": "main",
    "source_directory": "docs/",
}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?", re.MULTILINE)
_FENCE = re.compile(r"^```(?:bench|speed|reading)$", re.MULTILINE)
"""Blocks whose contents tools/docs.py generates."""
_LIVE = re.compile(r"^<!-- live (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
"""A picture, in place of which the site shows the page of a model in its gallery."""


def rewrite_links(text: str, path: Path, page: Path) -> str:
    """Return the text of `path`, shown as `page`, its relative links as they are from there."""

    def link(match: re.Match[str]) -> str:
        target = (path.parent / match[2]).resolve()
        root_path = target.relative_to(ROOT).as_posix()
        if root_path in PROJECT_PAGES:
            target = DOCS / "project" / f"{PROJECT_PAGES[root_path]}.md"
        shown = (
            os.path.relpath(target, page.parent)
            if target.is_relative_to(DOCS)
            else f"{REPOSITORY}/{root_path}"
        )
        return f"{match[1]}{shown}{match[3] or ''}"

    return _LINK.sub(link, text)


def live_page(match: re.Match[str]) -> str:
    """Return a frame with the page of a model."""
    address = f"gallery/models/{match[1]}.html"
    return (
        f'<iframe class="live" src="{address}" title="The page of {match[1]}" loading="lazy">'
        f'</iframe>\n<p><a href="{address}">Open it in a page of its own</a></p>'
    )


def navigation(text: str) -> str:
    """Return the table of contents: the sections of the index page, with the pages they link to."""
    trees = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        caption, _, body = section.partition("\n")
        pages = dict.fromkeys(re.findall(r"\]\(([\w/.-]+\.md)", body))
        trees.append(_tree(caption, pages))
    return "\n".join(trees)


def _tree(caption: str, pages: Iterable[str]) -> str:
    return "\n".join(
        [
            "```{toctree}",
            ":hidden:",
            *([f":caption: {caption}"] if caption else []),
            "",
            *pages,
            "```",
            "",
        ]
    )


def rewrite_source(app: Any, name: str, source: list[str]) -> None:  # noqa: ARG001
    """Adapt a page that Sphinx reads; the pages of project/ are files at the root."""
    page = DOCS / f"{name}.md"
    path = next(
        (
            ROOT / root_path
            for root_path, stem in PROJECT_PAGES.items()
            if name == f"project/{stem}"
        ),
        page,
    )
    text = source[0] if path == page else path.read_text(encoding="utf-8")
    source[0] = _FENCE.sub("```text", rewrite_links(text, path, page))
    source[0] = source[0].replace(
        "<!-- the gallery of this site -->",
        '<p><a href="gallery/index.html">Open the gallery</a></p>',
    )
    source[0] = _LIVE.sub(live_page, source[0])
    if name == "index":
        source[0] += f"\n{navigation(source[0])}"
    elif name == "decisions/README":
        source[0] += f"\n{_tree('', (x.name for x in sorted(page.parent.glob('0*.md'))))}"
    if name.startswith("decisions/"):  # history, which would hide what is true now
        source[0] = f"---\nno-search: true\n---\n\n{source[0]}"


def link_preview(title: str, body: str, site: str) -> str:
    """Return the elements by which a link to a page shows its beginning, and a poster of the
    gallery if the address of the site is known.
    """
    first = re.search("<p>(.*?)</p>", body, re.DOTALL)
    text = " ".join(unescape(re.sub("<[^>]*>", "", first[1] if first else "")).split())
    elements = [
        ("og:title", unescape(re.sub("<[^>]*>", "", title))),
        ("og:description", text if len(text) <= 200 else f"{text[:199]}…"),
    ]
    if site:
        elements += [
            ("og:image", f"{site.rstrip('/')}/gallery/models/{POSTER}.png"),
            ("og:image:width", "1200"),
            ("og:image:height", "630"),
            ("og:image:alt", f"The poster of {POSTER}"),
        ]
    return "\n".join(
        f'<meta property="{name}" content="{escape(content)}">' for name, content in elements
    )


def add_link_preview(
    app: Any,  # noqa: ARG001
    name: str,  # noqa: ARG001
    template: str,  # noqa: ARG001
    context: dict[str, Any],
    document: Any,
) -> None:
    """Add the preview to the head of a page."""
    if document is not None:
        preview = link_preview(context["title"], context["body"], html_baseurl)
        context["metatags"] = f"{context.get('metatags', '')}\n{preview}"


def setup(app: Any) -> None:
    """Connect with Sphinx."""
    app.connect("source-read", rewrite_source)
    app.connect("html-page-context", add_link_preview)
