"""The documentation site: before a release it builds without a warning, and its search finds every page but decisions; links lead
somewhere."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from llamath.web.gallery import site_files

for package in ("sphinx", "myst_parser", "furo"):  # the tests start it, and import none of it
    if find_spec(package) is None:
        pytest.skip(f"could not import '{package}'", allow_module_level=True)

DOCS = Path(__file__).parents[2] / "docs"
APART = {"gallery/index.html", "gallery/models/embedded.html"}
"""Pages that `make site` writes beside those of Sphinx."""
GENERATED = {"genindex", "search"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(folder / "html"),
    ]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.release
def test_every_document_is_a_page(site: Path) -> None:
    documents = {x.relative_to(DOCS).with_suffix("").as_posix() for x in DOCS.rglob("*.md")}
    pages = {x.relative_to(site).with_suffix("").as_posix() for x in site.rglob("*.html")}
    assert documents == pages - GENERATED
    assert len(documents) > 90


@pytest.mark.release
def test_every_link_inside_the_site_leads_to_a_page(site: Path) -> None:
    anchors: dict[Path, set[str]] = {}

    def anchors_of(page: Path) -> set[str]:
        if page not in anchors:
            anchors[page] = {unescape(x) for x in re.findall(r'\bid="([^"]+)"', page.read_text())}
        return anchors[page]

    broken = []
    for page in site.rglob("*.html"):
        for href in re.findall(
            r'<(?:a|iframe|link|img|script)\b[^>]*?\b(?:href|src)="([^"]+)"', page.read_text()
        ):
            address, anchor = urldefrag(unescape(href))
            if re.match(r"[a-z]+:", address):
                continue
            target = (
                (page.parent / unquote(address.partition("?")[0])).resolve() if address else page
            )
            target = target / "index.html" if target.is_dir() else target
            name = (
                target.relative_to(site.resolve()).as_posix()
                if target.is_relative_to(site.resolve())
                else href
            )
            if name in APART:
                continue
            if not target.is_file() or (
                anchor and target.suffix == ".html" and anchor not in anchors_of(target)
            ):
                broken.append(f"{page.relative_to(site)}: {href}")
    assert not broken


def search_index(site: Path) -> tuple[set[str], set[str]]:
    """The pages that the search finds by a word, and all pages."""
    index = json.loads(
        (site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")")
    )
    found: set[int] = set()
    for pages in [*index["terms"].values(), *index["titleterms"].values()]:
        found |= {pages} if isinstance(pages, int) else set(pages)
    names = index["docnames"]
    return {names[i] for i in found}, set(names)


@pytest.mark.release
def test_search_knows_the_words_of_every_page_but_decisions(site: Path) -> None:
    found, names = search_index(site)
    decisions = {x for x in names if x.startswith("decisions/")}
    assert found == names - decisions
    assert len(decisions) > 40 and sum(x.startswith("tutorials/") for x in found) == 12


@pytest.mark.release
def test_the_front_page_shows_a_live_page(site: Path) -> None:
    shown = re.findall(r'<iframe class="live" src="([^"]+)"', (site / "index.html").read_text())
    assert shown == ["gallery/models/embedded.html"] and set(shown) < APART
    assert site_files._LINK.format(id="llama-3-8b") == "models/llama-3-8b.html"


@pytest.mark.release
def test_links_to_pages_show_their_beginning(site: Path) -> None:
    page = (site / "reference/export.html").read_text()
    assert '<meta property="og:title" content="llamath export">' in page
    assert re.search('<meta property="og:description" content="Write the page of one model,', page)
    assert "og:image" not in page, "the address of the site is not known"


def test_every_link_of_a_document_leads_to_a_heading() -> None:
    """As on GitHub: the site rewrites some of them."""
    anchors = {}
    for path in (*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        words = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", x.lower()).replace(" ", "-") for x in words}
        anchors[path] = slugs | set(re.findall(r'\b(?:id|name)="([^"]+)"', text)), text
    broken = []
    for path, (_, text) in anchors.items():
        for href in re.findall(r"(?:\]\(|^\[[^\]]+\]: )(?!\w+:)([^)\s]+)", text, re.MULTILINE):
            address, anchor = urldefrag(href)
            target = (path.parent / unquote(address)).resolve() if address else path
            known = target not in anchors or not anchor or anchor in anchors[target][0]
            if not target.exists() or not known:
                broken.append(f"{path.name}: {href}")
    assert len(anchors) > 90 and not broken


def test_preview_of_a_site_with_an_address_is_a_poster() -> None:
    conf = runpy.run_path(str(DOCS / "conf.py"))
    tags = conf["link_preview"]('A "b" <c>', "<p>x &lt; <b>1</b>\n2</p>", "https://example.org/")
    address = f"https://example.org/gallery/{site_files._LINK.format(id=conf['POSTER'])}"
    assert f'"og:image" content="{address.replace(".html", ".png")}"' in tags
    assert 'content="A &quot;b&quot; "' in tags and 'content="x &lt; 1 2"' in tags


def test_twenty_questions_have_a_command_each() -> None:
    sections = re.split(r"^## ", (DOCS / "questions.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) == 20
    for section in sections:
        assert "```console\n$ llamath " in section, section.splitlines()[0]
        assert "error: " not in section and "Traceback" not in section, section.splitlines()[0]
