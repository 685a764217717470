"""The page in Firefox: the same numbers and headings as in Chromium, no errors, nothing wider than the window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser_page import UNTIL_WHOLE, Tab, browser
from support.firefox import FIREFOX, Firefox
from support.page_models import page_of

__all__ = ["browser"]
TEXTS = """[...document.querySelectorAll("h1, h2, h3, button.number")]
    .filter((x) => x.checkVisibility?.() ?? true).map((x) => x.textContent)"""
MODELS = ["deepseek-v3", "gemma-3-27b"]


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    if FIREFOX is None:
        pytest.skip("Firefox is not installed (as root, `make browser` installs it)")
    with Firefox(tmp_path_factory.mktemp("firefox")) as found:
        yield found


@pytest.mark.parametrize("slug", MODELS)
def test_page_shows_the_same_as_in_chromium(
    firefox: Firefox, browser: Any, tmp_path: Path, slug: str
) -> None:
    text = page_of(slug)
    path = tmp_path / "firefox.html"
    path.write_text(text)
    firefox.open(path.as_uri(), width=1100, height=800)
    with Tab(browser, tmp_path, text, unfold=False) as page:
        assert set(firefox.evaluate(TEXTS)) == set(page.evaluate(TEXTS))
    assert not firefox.errors


def test_nothing_is_wider_than_the_window(firefox: Firefox, tmp_path: Path) -> None:
    path = tmp_path / "firefox.html"
    path.write_text(page_of("deepseek-v3"))
    firefox.open(path.as_uri(), width=1440)
    for width in (1440, 768, 500):
        firefox.resize(width)
        assert firefox.evaluate("document.documentElement.scrollWidth") <= width


def test_slider_changes_the_numbers(firefox: Firefox, tmp_path: Path) -> None:
    path = tmp_path / "firefox.html"
    path.write_text(page_of("gpt-oss-20b"))
    firefox.open(path.as_uri())
    set_batch = """(() => { const input = document.getElementById("batch");
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, "64");
        input.dispatchEvent(new Event("input", { bubbles: true }));
        return new Promise((done) => setTimeout(done)); })()"""
    firefox.evaluate(set_batch)
    firefox.evaluate(UNTIL_WHOLE)
    assert (
        firefox.evaluate("document.querySelector('#experts-title').textContent")
        == "64 sequences together read 32 of 32 experts"
    )
    address = "new Promise((done) => { const look = () => location.hash ? done(location.hash) : setTimeout(look, 20); look(); })"
    assert firefox.evaluate(address).startswith("#batch=64")
