"""Posters saved from the page, measured in Chromium, and shown by links to a gallery's pages."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.render.svg.poster.poster_svg import FORMATS, poster_svg
from llamath.utils.errors import LlamathError
from llamath.web.gallery.site_files import write_gallery
from support.browser_page import Tab, browser, lent_page
from support.drawn_texts import drawn_texts
from support.page_models import page_of

assert browser
URL = "https://example.org/models"


def saved(tab: Any, name: str, form: str, theme: str) -> tuple[str, bytes]:
    """Return the name and the content of the file of a poster."""
    tab.click("button[aria-label='Copy the page']")
    tab.click(f"#theme-of-poster [data-value={theme}]")
    with tab.expect_download() as given:
        tab.click(f"[aria-label='Save the poster, {name}, as {form}']")
    assert tab.locator(".export-items").count() == 0, "the menu closes"
    return given.value.suggested_filename, Path(given.value.path()).read_bytes()


def test_page_saves_the_posters_of_the_command(browser: Any, tmp_path: Path) -> None:
    facts = fact_sheet(llamath.load("deepseek-v3"))
    with Tab(browser, tmp_path, page_of("deepseek-v3")) as tab:
        for name in FORMATS:
            for theme in ("light", "dark"):
                file, content = saved(tab, name, "SVG", theme)
                assert file == f"DeepSeek-V3-poster-{name}-{theme}.svg"
                assert content.decode() == poster_svg(facts, name, theme), file
            file, content = saved(tab, name, "PNG", "dark")
            assert struct.unpack(">II", content[16:24]) == FORMATS[name].pixels, file
        assert tab.evaluate("document.documentElement.dataset.theme") == "light"


def test_comparison_offers_no_poster(browser: Any, tmp_path: Path) -> None:
    text = page_of("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, text) as tab:
        tab.click("button[aria-label='Copy the page']")
        assert tab.locator("[aria-label^='Save the poster']").count() == 0
        tab.keyboard.press("Escape")
        tab.click("[data-view=b]")
        tab.click("button[aria-label='Copy the page']")
        assert tab.locator("[aria-label^='Save the poster']").count() == 2 * len(FORMATS)


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3", "jamba-v0.1", "classic-405b"])
def test_browser_draws_text_as_wide_as_reckoned(browser: Any, slug: str) -> None:
    facts = fact_sheet(llamath.load(slug))
    with lent_page(browser, 1300, 1000) as page:
        for name, form in FORMATS.items():
            svg = poster_svg(facts, name)
            page.set_content(f"<body>{svg}</body>")
            boxes = page.evaluate(
                "[...document.querySelectorAll('text')].map((x) => x.getBBox()).map((x) => [x.x, x.width])"
            )
            drawn = list(drawn_texts(svg))
            assert len(boxes) == len(drawn) > 20
            for (x, width), text in zip(boxes, drawn, strict=True):
                assert width <= text.right - text.left + 0.5, text
                assert x >= 0 and x + width <= form.width, text


def test_links_to_pages_of_a_gallery_show_posters(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    for poster, address in ((URL, f"{URL}/models/gpt2.png"), ("wide", "gpt2.png")):
        folder = tmp_path / poster.rpartition("/")[2]
        write_gallery(str(folder), ["gpt2"], poster=poster, processes=1)
        picture = (folder / "models/gpt2.png").read_bytes()
        assert struct.unpack(">II", picture[16:24]) == (1200, 630)
        page = (folder / "models/gpt2.html").read_text()
        said = dict(re.findall(r'<meta (?:property|name)="([^"]*)" content="([^"]*)">', page))
        assert said["og:image"] == address
        assert (said["og:image:width"], said["og:image:height"]) == ("1200", "630")
        assert said["twitter:card"] == "summary_large_image"
        assert said["og:description"] == said["description"] == said["og:image:alt"]
        assert said["description"].startswith("GPT-2 small, 124,439,808 parameters. A dense")


def test_page_without_an_address_names_no_picture(tmp_path: Path) -> None:
    page = page_of("gpt2")
    assert "og:description" in page and "og:image" not in page and "twitter:" not in page


@pytest.mark.parametrize(
    "address",
    ["gpt2", "a3", "//example.org", 'https://x"y', "https://a b", "https://?"]
    + [f"https://x.org/{end}" for end in ("#top", "?b=1", "<b>")],
)
def test_gallery_refuses_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(LlamathError, match="the address at which the gallery will be"):
        write_gallery(str(tmp_path / "site"), ["gpt2"], poster=address, processes=1)
    assert not any(tmp_path.iterdir())
