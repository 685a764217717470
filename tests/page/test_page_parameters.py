"""Where the parameters are, and the table of tensors: totals equal the library's, and every number opens its derivation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.web.server.page_html import page_from_data
from support.browser_page import Tab, at_widths, browser, go_to, wait_until_drawn
from support.page_models import data_of, page_of
from support.page_numbers import unexplained_numbers
from support.release import usual

__all__ = ["browser"]
MODELS = [
    "llama-3-8b",
    "deepseek-v3",
    "gpt2",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "falcon-mamba-7b",
    "llama-3.2-11b-vision",
]
MEASURES = ["parameters", "bytes", "flops", "cache"]


@pytest.mark.parametrize(
    "slug", usual("llama-3-8b", "deepseek-v3", "llama-3.2-11b-vision", release=MODELS)
)
def test_areas_sum_to_what_the_library_reports(browser: Any, tmp_path: Path, slug: str) -> None:
    """The first level of the picture, what is too small to draw, and the total, for each measure and grouping."""
    model, data = llamath.load(slug), data_of(slug)
    request = MemoryRequest(dtype="bf16", kv_dtype="bf16", context=5000, batch=3)
    memory = MemoryCalculator(model, request).at(5000, 3)
    expected = {
        "parameters": model.parameters.total,
        "bytes": memory.weights,
        "flops": int(llamath.flops(model, context=5000).decode.total),
        "cache": memory.kv_cache,
    }
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        for measure in MEASURES:
            for by in ("part", "kind"):
                go_to(tab, f"#context=5000&batch=3&dtype=bf16&kv=bf16&map={measure}&by={by}")
                total = tab.text_content("#parameters [data-part=area]").rpartition(": ")[2]
                assert total == f"{expected[measure]:,}", (measure, by)
                tab.click("#parameters [data-part=area]")
                parts = tab.text_content("dialog[open] pre >> nth=0").split("\n= ")
                assert (
                    sum(int(x.replace(",", "")) for x in parts[-2].split(" + "))
                    == expected[measure]
                )
                tab.keyboard.press("Escape")


@pytest.mark.parametrize(
    "at", ["gpus=1", "gpus=8", "gpus=8&mode=train&trainers=64", "gpus=16&tp=8"]
)
def test_cache_is_that_of_all_sequences(browser: Any, tmp_path: Path, at: str) -> None:
    """However many replicas share the sequences, the picture is of as many as it says."""
    request = MemoryRequest(context=5000, batch=8)
    expected = MemoryCalculator(llamath.load("llama-3-8b"), request).at(5000, 8).kv_cache
    with Tab(
        browser,
        tmp_path,
        page_of("llama-3-8b"),
        f"#context=5000&batch=8&map=cache&{at}",
    ) as tab:
        assert f"{expected:,}" in tab.text_content("#parameters [data-part=area]")
        assert "5,000 tokens × batch 8" in tab.text_content("#parameters .lead")


@pytest.mark.parametrize(
    "slug",
    usual("deepseek-v3", "llama-3.2-11b-vision", release=["llama-3-8b", "qwen3-next-80b-a3b"]),
)
def test_every_area_is_labelled_or_named_in_words(
    browser: Any, tmp_path: Path, slug: str, request: pytest.FixtureRequest
) -> None:
    """A rectangle without a label is shown again by the lens, and labels stay inside their rectangles.

    The parameters at each width, other measures at two of them; before a release at each.
    """
    every, ends = (320, 390, 1024, 1440), (320, 1440)
    measured = """() => [...document.querySelectorAll('#parameters .cell')].map((x) => {
      const box = x.querySelector('rect').getBoundingClientRect();
      const inside = [...x.querySelectorAll('text')].every((y) => { const b = y.getBoundingClientRect(); return b.left >= box.left && b.right <= box.right + 0.6 && b.bottom <= box.bottom + 1 && b.top >= box.top - 1; });
      const small = [...x.querySelectorAll('text')].some((y) => parseFloat(getComputedStyle(y).fontSize) < 12);
      return [x.dataset.name, x.querySelectorAll('text').length, inside, small];
    })"""
    with Tab(browser, tmp_path, page_of(slug), width=320) as tab:
        for at in ("#map=parameters", "#map=flops", "#map=bytes&by=kind", "#map=cache"):
            go_to(tab, at)
            is_first = at == "#map=parameters" or request.config.getoption("--all")
            for width in at_widths(tab, *(every if is_first else ends)):
                cells = tab.evaluate(measured)
                labelled = {y for x in cells if x[1] for y in x[0].split(", ")}
                words = (
                    tab.text_content("#parameters .words")
                    if tab.locator("#parameters .words").count()
                    else ""
                )
                assert cells and all(x[2] and not x[3] for x in cells), (
                    width,
                    at,
                    [x for x in cells if not x[2]],
                )
                unnamed = {y for x in cells if not x[1] for y in x[0].split(", ")} - labelled
                assert all(x in words or "the others" in words for x in unnamed), (
                    width,
                    at,
                    unnamed,
                )
                assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_keys_and_values_are_in_the_picture(browser: Any, tmp_path: Path) -> None:
    """k and v are named at every width, nothing is a bare number of others, and no part is a hole."""
    texts = "[...document.querySelectorAll('#parameters .cell text')].map((x) => x.textContent)"
    ends = """[1, 2].map((level) => Math.max(...[...document.querySelectorAll('#parameters .cell > rect:first-of-type')]
      .map((x) => x.getBBox()).map((x) => innerWidth < 640 ? x.y + x.height : x.x + x.width)))"""
    for slug in ("llama-3-8b", "gemma-3-27b", "llama-3.2-11b-vision"):
        with Tab(browser, tmp_path, page_of(slug), width=1440) as tab:
            for width in at_widths(tab, 1440, 1024, 768, 390):
                shown = tab.evaluate(texts)
                assert {"k", "v"} <= {y for x in shown for y in x.split(", ")}, (slug, width)
                assert not any(x.startswith("+") for x in shown)
                end = tab.evaluate(ends)[0]
                room = tab.locator("#parameters svg").bounding_box()
                assert room["height" if width < 640 else "width"] - end < 4, (slug, width)


def test_a_lens_states_its_factor(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=1440) as tab:
        text = tab.text_content("#parameters svg")
        share, factor = re.search(r"The other ([\d.]+)%, magnified (\d+) ×", text).groups()  # type: ignore[union-attr]
        assert abs(100 / float(share) - int(factor)) < 1
        assert "97.4" in tab.text_content(
            "#parameters-title"
        ) and "8 of 256 experts (3.13%)" in tab.text_content("#parameters-title")
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        assert tab.text_content("#parameters-title") == "Seven of ten parameters are in the FFN"
        assert "magnified" not in tab.text_content("#parameters svg")


@pytest.mark.parametrize("slug", usual("deepseek-v3", "falcon-mamba-7b", release=["llama-3-8b"]))
def test_every_number_has_a_derivation(browser: Any, tmp_path: Path, slug: str) -> None:
    data = data_of(slug)
    excluded = [
        "#parameters .set",  # settings
        "#parameters .lens-text",  # the factor of a picture
        "#parameters .name",  # names of layers, and numbers of areas that words name
        ".path",
        ".fold",
        "#tensors-title",
    ]
    states = [f"#context=5000&batch=3&map={x}&by={y}" for x in MEASURES for y in ("part", "kind")]
    with Tab(browser, tmp_path, page_from_data(data), width=1440) as tab:
        left = [
            y for at in states for y in unexplained_numbers(tab, data, at, "#parameters", excluded)
        ]
        left += unexplained_numbers(tab, data, "#names=gguf&sort=total", "#tensors", excluded)
    assert not left, left


def test_keyboard_moves_between_areas_and_opens_them(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        assert tab.locator("#parameters .cell[tabindex='0']").count() == 1
        tab.focus("#parameters .cell[tabindex='0']")
        tab.keyboard.press("ArrowRight")
        label = tab.text_content(":focus title")
        assert "layers.{l}.mlp.gate.weight, 4,096 → 14,336 × 32: 1,879,048,192 parameters" in label
        tab.keyboard.press("Enter")
        assert "1,879,048,192 parameters" in tab.text_content("dialog[open] pre >> nth=0")
        tab.keyboard.press("Escape")
        assert tab.text_content(":focus title") == label


def test_tensors_are_found_sorted_and_named(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        wait_until_drawn(tab)
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "find"
        tab.keyboard.type("norm")
        paths = ["layers.{l}.attn_norm.weight", "layers.{l}.mlp_norm.weight", "norm.weight"]
        assert tab.locator("#tensors .path").all_text_contents() == paths
        tab.click("#names [data-value=gguf]")
        assert tab.locator("#tensors .path").all_text_contents() == [
            "blk.{l}.attn_norm.weight",
            "blk.{l}.ffn_norm.weight",
            "output_norm.weight",
        ]
        tab.fill("#find", "")
        tab.click("[data-sort=total]")
        assert tab.locator("th[aria-sort=descending]").count() == 1
        totals = tab.evaluate(
            "[...document.querySelectorAll('#tensors tbody:nth-of-type(2) tr:not(.group) td:nth-of-type(4)')].map((x) => Number(x.textContent.split(': ').pop().replaceAll(',', '')))"
        )
        assert totals == sorted(totals, reverse=True) and len(totals) == 9
        tab.focus("button[data-section='1']")
        tab.keyboard.press("ArrowLeft")
        assert (
            tab.get_attribute("button[data-section='1']", "aria-expanded") == "false"
            and tab.locator("#tensors .path").count() == 3
        )
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.dataset.section") == "2"


def test_the_table_is_one_tab_stop(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        stops = "[...document.querySelectorAll('#tensors tbody button')].filter((x) => x.tabIndex === 0).length"
        assert tab.evaluate(stops) == 1
        tab.focus("#tensors [data-column='2']")
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert "128,256·4,096" in tab.text_content("dialog[open] pre")


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3"])
def test_letters_have_their_values_and_origins(browser: Any, tmp_path: Path, slug: str) -> None:
    model = llamath.load(slug)
    with Tab(browser, tmp_path, page_of(slug)) as tab:
        for letter, value in model.count.formula.letters.items():
            assert tab.text_content(f"[data-letter='{letter}']").endswith(f": {value:,}"), letter
        tab.click("[data-letter=d]")
        assert "hidden_size" in tab.text_content("dialog[open] pre")


def test_phone_shows_every_number_of_a_tensor_in_full(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=320) as tab:
        cut = "[...document.querySelectorAll('#tensors .number')].filter((x) => { const b = x.getBoundingClientRect(); return b.width && (b.left < 0 || b.right > innerWidth); }).length"
        assert (
            tab.evaluate(cut) == 0 and tab.evaluate("document.documentElement.scrollWidth") <= 320
        )
