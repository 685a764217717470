"""The first screen of the page: the fact sheet equals the library's reports, and every number opens its derivation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.utils.number_format import short_bytes
from llamath.web.page_data.facts_data import facts_data
from support.browser_page import Tab, at_widths, browser
from support.page_models import model_of, page_of
from support.release import usual

__all__ = ["browser"]

SAMPLE = [
    "llama-3-8b",
    "deepseek-v3",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "openelm-1.1b",
    "falcon-mamba-7b",
    "qwen2-vl-7b",
]


@pytest.mark.parametrize("slug", SAMPLE)
def test_rows_state_the_facts(slug: str) -> None:
    model = model_of(slug)
    facts = fact_sheet(model)
    data = facts_data(facts)
    values = {x["name"]: x["value"] for x in data["rows"]}
    assert values["Layers"] == f"{facts.layers:,}"
    assert values["Hidden size"] == f"{facts.width:,}"
    assert values["Vocabulary"] == f"{facts.vocabulary:,}"
    assert {x["dtype"]: int(x["bytes"]) for x in data["weights"]} == {
        x.dtype: x.bytes for x in facts.weights
    }
    rows = {x["name"]: x for x in data["rows"]}
    assert rows["KV cache"]["of"][0][-2] == f"{facts.kv_per_token:,} bytes"
    assert rows["Decode"]["of"][0][-2] == f"{facts.flops_first_token:,} FLOPs"


# what follows needs Chromium


def test_first_screen_shows_total_active_and_hardware(browser: Any, tmp_path: Path) -> None:
    model = model_of("deepseek-v3")
    with Tab(browser, tmp_path, page_of("deepseek-v3")) as tab:
        assert tab.text_content("[data-part=parameters]").endswith(f"{model.parameters.total:,}")
        assert f"({model.parameters.active:,});" in tab.text_content(".active .caption")
        tab.click("[data-part=active-without-embeddings]")
        without = f"{model.parameters.active_without_embeddings:,}"
        assert without in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        assert tab.text_content(".active .caption").startswith("active parameters: 37.6B")
        share = tab.evaluate(
            "(x => x[1].getBoundingClientRect().width / x[0].getBoundingClientRect().width)(document.querySelectorAll('.active rect'))"
        )
        assert share == pytest.approx(model.parameters.active / model.parameters.total, rel=0.02)
        assert tab.get_attribute(".runs", "href") == "#hardware"


@pytest.mark.parametrize("slug", ["llama-3-8b", "gemma-3-27b"])
def test_numbers_of_the_sheet_open_their_derivations(
    browser: Any, tmp_path: Path, slug: str
) -> None:
    model = model_of(slug)
    facts = fact_sheet(model)
    with Tab(browser, tmp_path, page_of(slug)) as tab:
        tab.click("[data-fact='KV cache']")
        assert tab.text_content("dialog[open] pre >> nth=0").endswith(
            f"= {facts.kv_per_token:,} bytes\n= {short_bytes(facts.kv_per_token)}"
        )
        assert tab.text_content("dialog[open] pre >> nth=1").endswith(
            f"= {facts.kv_full_context:,} bytes\n= {short_bytes(facts.kv_full_context)}"
        )
        tab.keyboard.press("Escape")
        decode = tab.text_content(".facts > div:has([data-fact=Decode])")
        assert re.search(r"\d\u00a0[GT]FLOPs at", decode), "a number stays with its unit"
        tab.click("[data-fact='Hidden size']")
        assert tab.text_content("dialog[open] pre") == f"d\n= hidden_size\n= {facts.width:,}"
        tab.keyboard.press("Escape")
        tab.click("[data-fact=Attention]")
        heads, kv_heads = (facts.mixers[0].heads, facts.mixers[0].kv_heads)
        assert tab.text_content("dialog[open] pre >> nth=2") == (
            f"H / K\n= {heads} / {kv_heads}\n= {heads // kv_heads} query heads per KV head"
        )
        tab.keyboard.press("Escape")
        tab.click("[data-fact=Decode]")
        assert "its query meets each key" in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        for size in facts.weights:
            tab.click(f"[data-weights={size.dtype}]")
            assert tab.text_content("dialog[open] pre >> nth=0").endswith(
                f"= {size.bytes:,} bytes"
            ), size.dtype
            tab.keyboard.press("Escape")


@pytest.mark.parametrize(
    "slug",
    usual(
        "deepseek-v3",
        "gemma-3-27b",
        "gpt-oss-20b",
        release=["qwen3-next-80b-a3b", "llama-3-8b", "embedded"],
    ),
)
def test_all_facts_are_on_the_first_screen(browser: Any, tmp_path: Path, slug: str) -> None:
    with Tab(browser, tmp_path, page_of(slug), width=1440) as tab:
        box = tab.locator(".facts").bounding_box()
        assert box["y"] + box["height"] <= 900
        assert tab.locator(".facts [data-weights]").count() >= 3
        lines = "[...document.querySelectorAll('.weights .number')].map((x) => x.getBoundingClientRect().top)"
        assert len(set(tab.evaluate(lines))) == 1, "all weights on one line"


@pytest.mark.parametrize("slug", ["deepseek-v3", "llama-4-scout"])
def test_no_number_is_clipped_at_any_width(browser: Any, tmp_path: Path, slug: str) -> None:
    with Tab(browser, tmp_path, page_of(slug), width=320) as tab:
        clipped = """[...document.querySelectorAll('.sheet *')].filter((x) => {
          const box = x.getBoundingClientRect();
          return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5 || x.scrollWidth > x.clientWidth + 1 && getComputedStyle(x).overflowX !== 'visible');
        }).filter((x) => !x.closest('.hidden')).map((x) => x.outerHTML.slice(0, 80))"""
        for width in at_widths(tab, 320, 390, 768, 1024, 1440, 2560):
            assert tab.evaluate(clipped) == [], width
