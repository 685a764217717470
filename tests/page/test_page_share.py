"""Copying and saving from the page: text equals the command line's output, and pictures are self-contained."""

from __future__ import annotations

import csv
import json
import re
import struct
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from llamath.web.server.page_html import model_page, page_from_data
from llamath.web.without_script import COLORS
from support.browser_page import Tab, browser, go_to, new_context, wait_until_drawn
from support.page_models import as_made, data_of, page_of, write_checkpoint
from support.release import usual

__all__ = ["browser"]
SVG = "{http://www.w3.org/2000/svg}"
TAKE = "globalThis.taken = []; navigator.clipboard.writeText = (text) => (taken.push(text), Promise.resolve()); null"


def copied_text(tab: Any, press: str, menu: str = "[aria-label='Copy the page']") -> str:
    """Return the text that an item of a menu copies."""
    tab.evaluate(TAKE)
    tab.click(f"button{menu}")
    tab.click(press)
    assert tab.locator(".export-items").count() == 0, "the menu closes"
    return str(tab.evaluate("taken[0]"))


def section_menu(section: str) -> str:
    return f"[aria-label^='Copy or save']:is(#{section} *)"


def command_output(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, args)
    assert done.exit_code == 0
    return done.stdout.rstrip("\n")


def markdown_output(*args: str) -> str:
    """Return what a command prints as Markdown, without the line that names the command."""
    summary, _, command, _, *rest = command_output(*args, "--format", "markdown").splitlines()
    assert command.endswith(f" {' '.join(args)}`")
    return "\n".join([summary, "", *rest])


@pytest.mark.parametrize(
    "slug", usual("deepseek-v2-lite", "gemma-3-27b", release=["llama-3-8b", "qwen3-next-80b-a3b"])
)
def test_copy_equals_output_of_count(browser: Any, tmp_path: Path, slug: str) -> None:
    outputs = {
        "text": command_output("count", slug),
        "Markdown": markdown_output("count", slug),
        "JSON": command_output("count", slug, "--json"),
    }
    with Tab(browser, tmp_path, page_of(slug)) as tab:
        for form, output in outputs.items():
            assert copied_text(tab, f"[aria-label='Copy as {form}']") == output
            tab.wait_for_selector(".status-line:has-text('Copied')")


def test_copy_of_a_comparison_equals_output_of_diff(browser: Any, tmp_path: Path) -> None:
    pair = ("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, page_of(*pair)) as tab:
        printed = {
            "text": command_output("diff", *pair),
            "Markdown": markdown_output("diff", *pair),
            "JSON": command_output("diff", *pair, "--json"),
        }
        for form, text in printed.items():
            assert copied_text(tab, f"[aria-label='Copy as {form}']") == text, form


def test_copy_of_a_section_equals_its_tables(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        cells = tab.evaluate(
            "[...document.querySelectorAll('#tensors td.n')].map((x) => x.textContent.split(': ').pop())"
        )
        for form in ("text", "Markdown"):
            text = copied_text(tab, f"#tensors [aria-label$='as {form}']", section_menu("tensors"))
            assert len(cells) > 20 and all(x in text for x in cells)
            assert (
                text.startswith("Every weight: Llama 3 8B")
                and f"llamath {llamath.__version__}" in text.splitlines()[0]
            )
        rows = [x for x in text.splitlines() if x.startswith("|")]
        head = rows[0].count("|")
        assert head > 3 and re.fullmatch(r"\|( ---:? \|| -+:? \|)+", rows[1])
        tab.fill("#find", "norm")
        text = copied_text(tab, "#tensors [aria-label$='as Markdown']", section_menu("tensors"))
        assert "attn_norm" in text and "embed.weight" not in text


def saved_file(tab: Any, section: str, press: str) -> tuple[str, bytes]:
    """Return the name and the contents of the file that an item of a section's menu saves."""
    tab.click(f"button{section_menu(section)}")
    with tab.expect_download() as given:
        tab.click(press)
    return given.value.suggested_filename, Path(given.value.path()).read_bytes()


def test_saved_csv_has_plain_numbers_and_states_the_model(browser: Any, tmp_path: Path) -> None:
    model = llamath.load("llama-3-8b")
    with Tab(browser, tmp_path, page_of("llama-3-8b"), "#context=5000") as tab:
        name, data = saved_file(tab, "tensors", "#tensors [aria-label$='as CSV']")
    first, *lines = data.decode().splitlines()
    assert name == "Llama-3-8B-tensors.csv" and first.startswith(
        "# Every weight: Llama 3 8B, context 5,000 tokens"
    )
    rows = list(csv.reader(lines))
    assert rows[0][:3] == ["weight", "shape", "parameters"]
    total = rows[0].index("total")
    assert (
        sum(int(x[total]) for x in rows[1:] if x[0].endswith(".weight")) == model.parameters.total
    )


def test_hostile_cells_stay_one_row(browser: Any, tmp_path: Path) -> None:
    data = as_made(deepcopy(data_of("llama-3-8b")))
    rows = data["models"][0]["sections"][0]["rows"]
    rows[0]["path"] = "a|b\n| <img src=x onerror=pwned()> [x](javascript:1) `c`"
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        text = copied_text(tab, "#tensors [aria-label$='as Markdown']", section_menu("tensors"))
    lines = [x for x in text.splitlines() if x.startswith("|")]
    assert len({x.count("|") for x in lines}) == 1 and "<img" not in text and "](" not in text
    rows[0]["path"] = '=cmd("x"), \n-1'
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        _, saved = saved_file(tab, "tensors", "#tensors [aria-label$='as CSV']")
    found = [x for x in csv.reader(saved.decode().splitlines()[1:]) if "cmd" in x[0]]
    assert [x[0] for x in found] == ['\'=cmd("x"), -1']


def test_without_clipboard_the_text_is_selected(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("gpt2")) as tab:
        tab.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('no')); null")
        tab.click("button[aria-label='Copy the page']")
        tab.click("[aria-label='Copy as text']")
        tab.wait_for_selector("dialog[open] textarea")
        text = command_output("count", "gpt2")
        assert tab.input_value("dialog[open] textarea") == text
        wait_until_drawn(tab)
        assert tab.evaluate(
            "(x => x.selectionEnd - x.selectionStart)(document.querySelector('dialog[open] textarea'))"
        ) == len(text)
        tab.keyboard.press("Escape")
        tab.locator("dialog").wait_for(state="detached")
        assert tab.locator("textarea").count() == 0


def saved_pictures(
    tab: Any, part: str, form: str = "SVG", theme: str = "light"
) -> list[tuple[str, bytes]]:
    """Return the pictures of a section: file names and contents."""
    tab.click(f"button{section_menu(part)}")
    count = tab.locator(f"#{part} [data-format={form}]").count()
    tab.keyboard.press("Escape")
    found = []
    for i in range(count):
        tab.click(f"button{section_menu(part)}")
        tab.click(f"#theme-of-{part} [data-value={theme}]")
        with tab.expect_download() as given:
            tab.locator(f"#{part} [data-format={form}]").nth(i).click()
        found.append((given.value.suggested_filename, Path(given.value.path()).read_bytes()))
    assert found
    return found


def parse_picture(text: str) -> ElementTree.Element:
    """Check that a picture is self-contained: well-formed, titled, sized, without external references and without classes."""
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("viewBox") and int(root.get("width", 0)) > 100
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    for x in root.iter():
        assert x.tag in {f"{SVG}{name}" for name in KNOWN}, x.tag
        assert not {"class", "style", "tabindex"} & set(x.attrib) and not any(
            y.startswith("on") for y in x.attrib
        )
        assert not [y for y in x.attrib.values() if "http" in y or "var(" in y or "url(file" in y]
    return root


KNOWN = "svg g title desc rect text tspan line path circle ellipse polygon polyline defs marker use clipPath pattern linearGradient stop".split()


@pytest.mark.parametrize(
    ("at", "parts"),
    [
        ("#view=a&map=bytes&dtype=q4_k_m", ["parameters"]),
        ("#view=difference", ["causes", "shapes"]),
    ],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_saved_pictures_are_self_contained(
    browser: Any, tmp_path: Path, at: str, parts: list[str], theme: str
) -> None:
    text = page_of("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, text, at) as tab:
        shown = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        found = [(part, *x) for part in parts for x in saved_pictures(tab, part, theme=theme)]
        finding = tab.evaluate(
            "(id) => document.querySelector(`#${id}-title`).textContent.split(': ').pop()", parts[0]
        )
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == shown, (
            "the page keeps its theme"
        )
    for part, name, data in found:
        root = parse_picture(data.decode())
        assert re.fullmatch(r"[A-Za-z0-9._-]+\.svg", name) and theme in name, name
        assert len({x.get(look) for x in root.iter() for look in ("fill", "stroke")}) > 4, (
            part,
            name,
        )
        words = ["".join(x.itertext()) for x in root.iter(f"{SVG}text")]
        visible = " ".join(words)
        assert "Llama 2 7B" in visible and "llamath" in visible, part
        assert ("weights q4_k_m" in visible) == (part == "parameters")
        background = next(root.iter(f"{SVG}rect")).get("fill")
        assert background == ("#fcfbf8" if theme == "light" else "#0f131a")
    first = " ".join(
        "".join(x.itertext())
        for x in ElementTree.fromstring(found[0][2].decode()).iter(f"{SVG}text")
    )
    assert finding.split()[-1] in first, "the finding is the title"


def test_every_picture_is_offered_as_svg_and_png(browser: Any, tmp_path: Path) -> None:
    found: dict[str, int] = {}
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b")) as tab:
        for at in ("#view=b", "#view=difference", "#view=design"):
            go_to(tab, at)
            for section in tab.evaluate(
                "[...document.querySelectorAll('section[id]')].map((x) => x.id)"
            ):
                button = tab.locator(f"button{section_menu(section)}")
                if not button.count():
                    continue
                button.first.click()
                counts = [
                    tab.locator(f"#{section} [data-format={x}]").count() for x in ("SVG", "PNG")
                ]
                assert counts[0] == counts[1], (at, section)
                found[section] = counts[0]
                tab.keyboard.press("Escape")
    assert sum(found.values()) >= 10 and found["parameters"] and found["memory"] and found["causes"]


def test_saved_png_shows_the_picture(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        ((name, data), *_) = saved_pictures(tab, "parameters", "PNG")
        width, height = tab.evaluate(
            "(x => [x.width, x.height])(document.querySelector('#parameters figure').getBoundingClientRect())"
        )
    assert name == "Llama-3-8B-parameters-light.png" and data[:8] == b"\x89PNG\r\n\x1a\n"
    size = struct.unpack(">II", data[16:24])
    assert size[0] >= 2 * width and size[1] > 2 * height and len(data) > 5_000


def test_saved_picture_keeps_its_colors(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        ((_, data), *_) = saved_pictures(tab, "parameters")
        color = tab.evaluate(
            "getComputedStyle(document.querySelector('#parameters .cell rect')).fill"
        )
    picture = tmp_path / "picture.svg"
    picture.write_bytes(data)
    alone = new_context(browser).new_page()
    alone.goto(picture.as_uri())
    boxes = alone.evaluate(
        "[...document.querySelectorAll('g rect')].map(x => [getComputedStyle(x).fill, x.getBoundingClientRect().width])"
    )
    cut = "[...document.querySelectorAll('text')].filter((x) => { const b = x.getBoundingClientRect(); return b.right > document.documentElement.clientWidth || parseFloat(getComputedStyle(x).fontSize) < 12; }).map((x) => x.textContent)"
    assert alone.evaluate(cut) == []
    alone.context.close()
    assert boxes[0][0] == color and boxes[0][1] > 50


def test_picture_of_the_model_is_saved_whole(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        ((name, data),) = saved_pictures(tab, "plate")
    words = ["".join(x.itertext()) for x in parse_picture(data.decode()).iter(f"{SVG}text")]
    assert name == "Llama-3-8B-plate-light.svg"
    assert words[0] == "Llama 3 8B: 8,030,261,248 parameters"
    assert {"32 layers, all alike", "Layer 16", "gate", "8 KV heads"} <= set(words)
    assert not {"HF", "First step"} & set(words), "no controls"


def test_without_scripts_the_facts_are_shown(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of("deepseek-v3"))
    page = new_context(browser, java_script_enabled=False).new_page()
    messages: list[str] = []
    page.on("console", lambda x: messages.append(x.text))
    page.goto(path.as_uri())
    assert not messages
    facts = page.locator("noscript .facts").inner_text()
    assert "7,168" in facts and "8 of 256 + 1 shared" in facts
    assert "671,026,419,200 parameters" in page.locator("noscript h2").inner_text()
    length, dash, gap = page.locator("noscript svg g").last.evaluate(
        "x => [x.querySelector('path').getTotalLength(), ...x.getAttribute('stroke-dasharray').split(' ').map(Number)]"
    )
    assert (length - dash) / (dash + gap) + 1 == pytest.approx(58, abs=0.1), "a dash for each layer"
    page.context.close()


def test_colors_without_scripts_are_those_of_the_page() -> None:
    text = (Path(__file__).parents[2] / "web/src/lib/model_parts.ts").read_text()
    colors = dict(re.findall(r'(\w+): part\("[^"]*", "[^"]*", "(\w+)"', text))
    assert colors == COLORS | {"cache": "kv"}
    order = re.findall(r'"(\w+)"', text.partition("STACK_ORDER")[2])
    assert sorted(COLORS, key=lambda x: order.index(COLORS[x])) == list(COLORS)


def test_hostile_names_give_valid_svg(browser: Any, tmp_path: Path) -> None:
    data = as_made(deepcopy(data_of("gpt2")))
    data["models"][0]["name"] = "</text><script>pwned()</script>\u0000\u0008\ufffe../../x"
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        for name, svg in saved_pictures(tab, "parameters"):
            assert b"<script" not in svg and "/" not in name
            parse_picture(svg.decode())


def test_link_to_a_section_keeps_the_state(browser: Any, tmp_path: Path) -> None:
    text = page_of("llama-3-8b")
    with Tab(browser, tmp_path, text, "#map=bytes") as tab:
        link = copied_text(tab, "#tensors >> text=Copy link", section_menu("tensors"))
        assert link.startswith("file:") and "map=bytes" in link and "section=tensors" in link
    with Tab(browser, tmp_path, text, "#" + link.partition("#")[2], unfold=False) as tab:
        wait_until_drawn(tab)
        assert tab.get_attribute("#map [data-value=bytes]", "aria-checked") == "true"
        assert (
            abs(tab.evaluate("document.getElementById('tensors').getBoundingClientRect().top"))
            < 120
        )
        assert tab.evaluate("document.activeElement.id") == "tensors-title"


def test_back_and_forward_move_between_views_and_sections(browser: Any, tmp_path: Path) -> None:
    with Tab(
        browser,
        tmp_path,
        page_of("llama-2-7b", "llama-3-8b"),
        width=1600,
    ) as tab:
        first = tab.text_content("h1")
        tab.click("[data-view=b]")
        assert tab.text_content("h1") == "Llama 3 8B"
        tab.click("nav >> text=How large")
        assert tab.evaluate("document.activeElement.id") == "how-large-title"
        tab.click("[data-view=edit]")
        tab.go_back()
        wait_until_drawn(tab)
        assert tab.text_content("h1") == "Llama 3 8B" and "section=how-large" in tab.evaluate(
            "location.hash"
        )
        tab.go_back()
        tab.go_back()
        wait_until_drawn(tab)
        assert tab.text_content("h1") == first
        tab.go_forward()
        wait_until_drawn(tab)
        assert tab.text_content("h1") == "Llama 3 8B"


def test_back_undoes_a_layer_the_tour_and_a_dialog(browser: Any, tmp_path: Path) -> None:
    layer = lambda: tab.text_content(".plate-path")  # noqa: E731
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        first = layer()
        tab.click("[aria-label='Next layer']")
        tab.click(".tour-start")
        for _ in range(3):
            tab.keyboard.press("ArrowRight")
            wait_until_drawn(tab)
        tab.click(".sheet .number >> nth=0")
        assert tab.is_visible("dialog[open]")
        tab.go_back()
        wait_until_drawn(tab)
        assert tab.locator("dialog").count() == 0
        assert tab.get_attribute(".tour", "data-tour") == "qkv", "the tour is where it was"
        tab.go_back()
        wait_until_drawn(tab)
        assert tab.locator(".tour").count() == 0 and "Layer 17" in layer()
        tab.go_back()
        wait_until_drawn(tab)
        assert layer() == first
        # a setting: the moves of one after each other are one step, and the page does not scroll
        tab.click("nav >> text=What it needs")
        wait_until_drawn(tab)
        tab.evaluate("scrollBy(0, 300)")
        at = tab.evaluate("scrollY")
        for context in ("1000", "2000", "3000"):
            tab.fill("#context", context)
        tab.select_option("#choice-dtype", "fp8")
        wait_until_drawn(tab)
        shown = lambda: [  # noqa: E731
            tab.input_value(x).replace(",", "") for x in ("#choice-dtype", "#context")
        ]
        found = []
        for _ in range(2):
            tab.go_back()
            wait_until_drawn(tab)
            found.append(shown())
        assert found == [["bf16", "3000"], ["bf16", "8192"]]
        assert abs(tab.evaluate("scrollY") - at) < 40
        tab.go_forward()
        wait_until_drawn(tab)
        assert shown() == ["bf16", "3000"]


def test_a_closed_dialog_leaves_no_entry(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        tab.click("[aria-label='Next layer']")
        for close in ("dialog .button", "Escape"):
            tab.click("[data-part=parameters]")
            if close == "Escape":
                tab.keyboard.press(close)
            else:
                tab.click(close)
            wait_until_drawn(tab)
            assert tab.locator("dialog").count() == 0
            assert tab.evaluate("history.state") is None
        tab.go_back()
        wait_until_drawn(tab)
        assert "Layer 16" in tab.text_content(".plate-path")


def test_print_leaves_folded_what_says_little(browser: Any, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    text = model_page([llamath.load(folder)])
    with Tab(browser, tmp_path, text, width=1440, unfold=False) as tab:
        assert tab.is_visible("#memory .unfold")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media="print")
        assert tab.is_visible("#parameters svg") and tab.locator("#speed svg").count() == 0
        assert not tab.is_visible("#memory .unfold")
        tab.emulate_media(media="screen")
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        wait_until_drawn(tab)
        tab.click("#memory .unfold")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media="print")
        assert tab.is_visible("#memory .memory-chart svg")
        assert not tab.is_visible("#memory .folded")
        tab.emulate_media(media="screen")
        tab.evaluate("dispatchEvent(new Event('afterprint'))")


def test_paper_says_model_and_page_number_on_top(browser: Any, tmp_path: Path) -> None:
    head = "getComputedStyle(document.documentElement).getPropertyValue('--running-head')"
    pages = "[...document.styleSheets].flatMap((x) => [...x.cssRules]).flatMap((x) => [...(x.cssRules ?? [])]).filter((x) => x instanceof CSSPageRule).map((x) => x.cssText).join()"
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b")) as tab:
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert tab.evaluate(head) == '"Llama 2 7B → Llama 3 8B"'
        rules = tab.evaluate(pages)
        assert "var(--running-head)" in rules and "counter(page)" in rules
        foot = tab.evaluate(head.replace("head", "foot"))
        assert "var(--running-foot)" in rules and "are estimates" in foot


def test_print_is_laid_out_for_paper(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=1440) as tab:
        tab.click("[data-part=parameters]")
        wait_until_drawn(tab)
        # embedding, dense layers, layers with experts, norm and head: in letters and in numbers
        assert tab.locator("dialog pre >> nth=0").locator("br").count() == 2 * 4
        tab.set_viewport_size({"width": 390, "height": 844})
        end = tab.locator("dialog >> text=Close").bounding_box()
        assert end["y"] + end["height"] < 844, "without scrolling"
        tab.set_viewport_size({"width": 1440, "height": 800})
        wait_until_drawn(tab)
        count = "[...document.querySelectorAll('main *')].filter((x) => x.checkVisibility()).length"
        before = tab.evaluate(count)
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.emulate_media(media="print")
        assert (
            tab.evaluate("document.querySelector('#parameters svg').getBoundingClientRect().width")
            <= 718
        )
        assert tab.is_visible(".printed pre") and not tab.is_visible("dialog")
        drawn = "document.querySelector('main').innerHTML"
        on_paper = tab.evaluate(drawn)
        tab.set_viewport_size({"width": 688, "height": 1000})
        wait_until_drawn(tab)
        assert tab.evaluate(drawn) == on_paper, "a page that is being printed does not change"
        tab.set_viewport_size({"width": 1440, "height": 800})
        assert (
            tab.locator(".export-menu:visible, header:visible, [type=search]:visible").count() == 0
        )
        assert tab.pdf()[:5] == b"%PDF-"
        tab.emulate_media(media="screen")
        tab.evaluate("dispatchEvent(new Event('afterprint'))")
        wait_until_drawn(tab)
        assert not tab.is_visible(".printed") and tab.evaluate(count) == before
        assert (
            tab.evaluate("document.querySelector('#parameters svg').getBoundingClientRect().width")
            > 900
        )


def test_configuration_of_a_design_is_copied_and_saved(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("gpt2"), "#view=design&sizes=L20") as tab:
        tab.evaluate(TAKE)
        tab.click("text=Copy config.json")
        text = str(tab.evaluate("taken[0]"))
        with tab.expect_download() as given:
            tab.click("text=Save config.json")
        assert (
            given.value.suggested_filename == "config.json"
            and Path(given.value.path()).read_text() == text
        )
        expected = llamath.load("gpt2", changes={"n_layer": 20}).parameters.total
        assert llamath.load(json.loads(text)).parameters.total == expected
