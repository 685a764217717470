"""The page has a first screen and three chapters under one bar of settings, and prints without half-empty pages."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.live_data import bundled_live_parts
from llamath.web.server.page_html import model_page
from support.browser_page import Tab, at_widths, browser, go_to, wait_until_drawn
from support.page_models import page_of
from support.printed_pages import filled_shares

assert browser
CHAPTERS = ["how-it-works", "how-large", "what-it-needs"]
PARTS = {
    ("deepseek-v3",): [
        "attention",
        "experts",
        "positions",
        "parameters",
        "tensors",
        "hardware",
        "memory",
        "speed",
        "layouts",
    ],
    ("llama-2-7b", "llama-3-8b"): [
        "facts",
        "opened",
        "configs",
        "pictures",
        "shapes",
        "sizes",
        "hardware",
        "memory",
    ],
}
MARGIN_MM = 15
HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4')].filter((x) => x.checkVisibility()).map((x) => +x.tagName[1])"
OUTSIDE = """[...document.querySelectorAll("main .chapter :is(select, input[type=range], #context, #batch)")].map((x) => x.id)"""
"""Settings in the parts themselves; a choice of what a part shows is none."""
FOLDED = "(id) => document.getElementById(id).classList.contains('folded-section')"
TOP = "(id) => document.getElementById(id).getBoundingClientRect().top"
HEIGHT = "document.documentElement.scrollHeight"


@cache
def live_page() -> str:
    models = [load_with_checkpoint("embedded")]
    return model_page(models, bundled_live_parts(models))


@pytest.mark.parametrize(
    ("slug", "width", "most"),
    [("llama-3-8b", 1440, 3600), ("deepseek-v3", 1440, 4650), ("llama-3-8b", 390, 6550)],
)
def test_page_is_short_before_anything_opens(
    browser: Any, tmp_path: Path, slug: str, width: int, most: int
) -> None:
    with Tab(browser, tmp_path, page_of(slug), width=width, unfold=False) as tab:
        assert tab.evaluate(HEIGHT) <= most


@pytest.mark.parametrize("slugs", PARTS)
def test_chapters_have_findings_and_all_parts(
    browser: Any, tmp_path: Path, slugs: tuple[str, ...]
) -> None:
    with Tab(browser, tmp_path, page_of(*slugs), "#view=difference", unfold=False) as tab:
        ids = "(of) => [...document.querySelectorAll(of)].map((x) => x.id)"
        assert tab.evaluate(ids, "main .sized > section") == CHAPTERS
        assert tab.evaluate(ids, ".chapter > section") == PARTS[slugs]
        for chapter in CHAPTERS:
            assert re.search(r"\d", tab.text_content(f"h2#{chapter}-title")), chapter
        levels = tab.evaluate(HEADINGS)
        assert levels.count(1) == 1
        assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), levels


@pytest.mark.parametrize("slugs", PARTS)
def test_an_address_opens_the_part_that_it_names(
    browser: Any, tmp_path: Path, slugs: tuple[str, ...]
) -> None:
    view = "view=difference&" if len(slugs) > 1 else ""
    with Tab(browser, tmp_path, page_of(*slugs), f"#{view}batch=2", unfold=False) as tab:
        first = [x for x in PARTS[slugs] if tab.evaluate(FOLDED, x)]
        assert first, "settings that parts share open none"
        for part in first:
            go_to(tab, f"#{view}section={part}")
            assert not tab.evaluate(FOLDED, part) and tab.evaluate(TOP, part) >= -1, part
            assert tab.evaluate("document.activeElement.id") == f"{part}-title"
        assert not [x for x in PARTS[slugs] if tab.evaluate(FOLDED, x)]


@pytest.mark.parametrize(("at", "part"), [("#speed", "speed"), ("#find=attn", "tensors")])
def test_old_addresses_open_a_folded_part(browser: Any, tmp_path: Path, at: str, part: str) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), at, unfold=False) as tab:
        folded = {x: tab.evaluate(FOLDED, x) for x in ("positions", "tensors", "speed", "layouts")}
        assert folded == {x: x != part for x in folded}
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "find", "also of a folded part"


def test_one_bar_has_all_settings_and_their_answer(browser: Any, tmp_path: Path) -> None:
    bar = "document.querySelector('.settings-bar')"
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=1440) as tab:
        assert tab.evaluate(OUTSIDE) == []
        for width in at_widths(tab, 768, 1024, 1440):
            assert tab.evaluate(f"{bar}.offsetHeight") <= 48, width
            cut = f"[...{bar}.querySelectorAll('select, input, .settings-answer')].some((x) => x.getBoundingClientRect().right > innerWidth)"
            assert not tab.evaluate(cut), width
        answer = tab.text_content(".settings-answer")
        assert answer.startswith(tab.text_content(".runs strong"))
        tab.evaluate("scrollTo(0, 3000)")
        wait_until_drawn(tab)
        assert 0 <= tab.evaluate(f"{bar}.getBoundingClientRect().top") < 60, "it stays in sight"
        tab.select_option("#choice-card", "rtx-4090")
        assert "too little" in tab.text_content(".settings-answer")
        tab.click("#mode [data-value=train]")
        assert "trains in" in tab.text_content(".settings-answer")
        assert tab.evaluate(OUTSIDE) == []


def test_a_phone_has_the_answer_in_one_line(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=390, unfold=False) as tab:
        assert tab.evaluate("document.querySelector('.settings-bar').offsetHeight") <= 48
        assert not tab.is_visible("#context")
        tab.click(".settings-bar summary")
        tab.fill("#context", "4k")
        assert "runs it" in tab.text_content(".settings-answer")


def test_first_screen_has_the_whole_layer_of_a_live_model(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, live_page(), width=1440, unfold=False) as tab:
        tab.wait_for_selector(".live-bar[data-live=ready]")
        text, layer = (tab.locator(x).first.bounding_box() for x in (".live-bar", ".layer-picture"))
        assert text["height"] <= 136
        assert layer["y"] + layer["height"] <= 900


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "embedded", "pair"])
def test_printed_pages_are_full_but_the_last(browser: Any, tmp_path: Path, name: str) -> None:
    slugs = ("llama-2-7b", "llama-3-8b") if name == "pair" else (name,)
    text = live_page() if name == "embedded" else page_of(*slugs)
    with Tab(browser, tmp_path, text, width=1440, unfold=False) as tab:
        if name == "embedded":
            tab.wait_for_selector(".live-bar[data-live=ready]")
            wait_until_drawn(tab)
        shares = filled_shares(tab.pdf(format="A4"), MARGIN_MM, MARGIN_MM)
    assert len(shares) >= 3 and min(shares[:-1]) >= 0.7 and shares[-1] >= 0.25, shares


def test_printed_pictures_stay_with_their_tables(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=1440, unfold=False) as tab:
        tab.emulate_media(media="print")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        grid, curve = (tab.locator(".experts-pair > figure").nth(i).bounding_box() for i in (0, 1))
        assert grid["y"] == curve["y"] and grid["x"] + grid["width"] < curve["x"]
        for kept in (".experts-pair", ".settings-bar"):
            whole = f"getComputedStyle(document.querySelector('{kept}')).breakInside"
            assert tab.evaluate(whole) == "avoid", kept
