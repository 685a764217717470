"""Copying and saving from the page: text equals the command line's output, and pictures are self-contained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import model_page, page_from_data
from support.browser_page import Tab, browser, new_context

__all__ = ["browser"]
SVG = "{http://www.w3.org/2000/svg}"
TAKE = "globalThis.taken = []; navigator.clipboard.writeText = (text) => (taken.push(text), Promise.resolve()); null"


def copied_text(tab: Any, press: str) -> str:
    """Return the copied text."""
    tab.evaluate(TAKE)
    tab.click(press)
    return str(tab.evaluate("taken[0]"))


def command_output(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, args)
    assert done.exit_code == 0
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v2-lite", "gemma-3-27b", "qwen3-next-80b-a3b"])
def test_copy_equals_output_of_count(browser: Any, tmp_path: Path, slug: str) -> None:
    with Tab(browser, tmp_path, model_page([llamath.load(slug)])) as tab:
        assert copied_text(tab, "[aria-label='Copy as text']") == command_output("count", slug)
        assert copied_text(tab, "[aria-label='Copy as Markdown']") == command_output("count", slug, "--format", "markdown")
        assert copied_text(tab, "[aria-label='Copy as JSON']") == command_output("count", slug, "--json")
        tab.wait_for_selector(".status-line:has-text('Copied')")


def test_copy_of_a_comparison_equals_output_of_diff(browser: Any, tmp_path: Path) -> None:
    pair = ("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, model_page([llamath.load(x) for x in pair])) as tab:
        for form, option in (("text", []), ("Markdown", ["--format", "markdown"]), ("JSON", ["--json"])):
            assert copied_text(tab, f"[aria-label='Copy as {form}']") == command_output("diff", *pair, *option), form


def test_copy_of_a_section_equals_its_tables(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, model_page([llamath.load("llama-3-8b")]), "#context=4096&batch=2") as tab:
        cells = tab.evaluate("[...document.querySelectorAll('section[aria-labelledby=memory] td.n')].map(x => x.textContent)")
        for form in ("text", "Markdown"):
            text = copied_text(tab, f"section[aria-labelledby=memory] .takes [aria-label$='as {form}']")
            assert len(cells) > 20 and all(x in text for x in cells)
        rows = [x for x in text.splitlines() if x.startswith("|")]
        head = rows[0].count("|")
        assert head > 3 and re.fullmatch(r"\|( ---:? \|| -+:? \|)+", rows[1])
        tab.fill("#find", "norm")
        text = copied_text(tab, "section[aria-labelledby=tensors] .takes [aria-label$='as Markdown']")
        assert "attn_norm" in text and "embed.weight" not in text


def test_hostile_cells_stay_one_markdown_row(browser: Any, tmp_path: Path) -> None:
    model = llamath.load("llama-3-8b")
    data = build_page_data([model])
    data["models"][0]["sections"][0]["rows"][0]["path"] = "a|b\n| <img src=x onerror=pwned()> [x](javascript:1) `c`"
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        text = copied_text(tab, "section[aria-labelledby=tensors] .takes [aria-label$='as Markdown']")
    rows = [x for x in text.splitlines() if x.startswith("|")]
    assert len({x.count("|") for x in rows}) == 1 and "<img" not in text and "](" not in text


def test_without_clipboard_the_text_is_selected(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, model_page([llamath.load("gpt2")])) as tab:
        tab.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('no')); null")
        tab.click("[aria-label='Copy as text']")
        tab.wait_for_selector("dialog[open] textarea")
        text = command_output("count", "gpt2")
        assert tab.input_value("dialog[open] textarea") == text
        assert tab.evaluate("(x => x.selectionEnd - x.selectionStart)(document.querySelector('dialog[open] textarea'))") == len(text)
        tab.keyboard.press("Escape")
        tab.locator("textarea").wait_for(state="detached")


def saved_pictures(tab: Any, part: str) -> list[tuple[str, str]]:
    """Return the pictures of a section: file names and contents."""
    press = f"section[aria-labelledby={part}] .takes [aria-label$='as SVG']"
    found = []
    with tab.expect_download() as first:
        tab.click(press)
        names = tab.locator("dialog[open] li button")
        count = names.count()
        if count:
            names.nth(0).click()
    found.append(first.value)
    for i in range(1, count):
        with tab.expect_download() as other:
            tab.click(press)
            tab.locator("dialog[open] li button").nth(i).click()
        found.append(other.value)
    return [(x.suggested_filename, Path(x.path()).read_text()) for x in found]


def parse_picture(text: str) -> ElementTree.Element:
    """Check that a picture is self-contained: well-formed, titled, sized, without external references and without classes."""
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("viewBox") and int(root.get("width", 0)) > 100
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    for x in root.iter():
        assert x.tag in {f"{SVG}{name}" for name in KNOWN}, x.tag
        assert not {"class", "style", "tabindex"} & set(x.attrib) and not any(y.startswith("on") for y in x.attrib)
        assert not [y for y in x.attrib.values() if "http" in y or "var(" in y or "url(file" in y]
    return root


KNOWN = "svg g title desc rect text tspan line path circle ellipse polygon polyline defs marker use clipPath pattern linearGradient stop".split()


@pytest.mark.parametrize(("at", "parts"), [("#view=a", ["where", "memory"]), ("#view=difference", ["causes", "differences"]), ("#view=design", ["dimensions"]), ("#view=a&focus=1", ["where"])])  # fmt: skip
def test_saved_pictures_are_self_contained(browser: Any, tmp_path: Path, at: str, parts: list[str]) -> None:
    text = model_page([llamath.load("llama-2-7b"), llamath.load("llama-3-8b")])
    with Tab(browser, tmp_path, text, at) as tab:
        found = [(part, *x) for part in parts for x in saved_pictures(tab, part)]
        shown = tab.text_content("main")
    for part, name, svg in found:
        root = parse_picture(svg)
        assert re.fullmatch(r"[A-Za-z0-9._-]+\.svg", name), name
        assert len({x.get(look) for x in root.iter() for look in ("fill", "stroke")}) > 4, (part, name)
        words = ["".join(x.itertext()) for x in root.iter(f"{SVG}text")]
        assert words and all(x.split()[0] in shown for x in words if x.strip()), part


def test_saved_picture_keeps_its_colors(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, model_page([llamath.load("llama-3-8b")])) as tab:
        ((_, svg), *_) = saved_pictures(tab, "where")
        color = tab.evaluate("getComputedStyle(document.querySelector('.tile rect')).fill")
    path = tmp_path / "picture.svg"
    path.write_text(svg)
    alone = new_context(browser).new_page()
    alone.goto(path.as_uri())
    boxes = alone.evaluate("[...document.querySelectorAll('g rect')].map(x => [getComputedStyle(x).fill, x.getBoundingClientRect().width])")
    alone.context.close()
    assert boxes[0][0] == color and boxes[0][1] > 50


def test_hostile_names_give_valid_svg(browser: Any, tmp_path: Path) -> None:
    data = build_page_data([llamath.load("gpt2")])
    data["models"][0]["name"] = "</text><script>pwned()</script>\u0000\u0008\ufffe../../x"
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        for name, svg in saved_pictures(tab, "where"):
            assert "<script" not in svg and "/" not in name
            parse_picture(svg)


def test_configuration_of_a_design_is_copied_and_saved(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, model_page([llamath.load("gpt2")]), "#view=design&sizes=L20") as tab:
        text = copied_text(tab, "text=Copy config.json")
        with tab.expect_download() as given:
            tab.click("text=Save config.json")
        assert given.value.suggested_filename == "config.json" and Path(given.value.path()).read_text() == text
        expected = llamath.load("gpt2", changes={"n_layer": 20}).parameters.total
        assert llamath.load(json.loads(text)).parameters.total == expected
