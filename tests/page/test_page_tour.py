"""The tour in the page: its stops by keyboard and button, what they light, on paper, and with live values."""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.learn.tour.stop_questions import stop_exercises
from llamath.analysis.learn.tour.tour import Stop, tour_of
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.example_numbers import TEMPERATURES, softmax
from llamath.web.page_data.live.tour_example import (
    EXAMPLE_FILE,
    SHOWN_NUMBERS,
    bundled_tables,
    examples_of,
)
from support.browser_page import Tab, at_widths, browser, go_to, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import data_of, live_page, model_of, page_of
from support.printed_pages import filled_shares
from support.release import usual

assert browser
PARK = "Ben was in the park. He had a red ball. He played with the"
BAR = ".tour"
PLACE = ".plate-path"
IN_SIGHT = """() => {
  const bar = document.querySelector(".tour").getBoundingClientRect();
  const lit = [...document.querySelectorAll(".plate-panel .active")].map((x) => x.getBoundingClientRect());
  return bar.height > 0 && bar.bottom <= innerHeight + 1 && lit.some((x) => x.top >= 0 && x.top < bar.top);
}"""
IN_VIEW = """(selector) => [...document.querySelectorAll(selector)].map((x) => {
  const { top, bottom } = x.getBoundingClientRect();
  const bar = x.closest(".tour") ? innerHeight : document.querySelector(".tour").getBoundingClientRect().top;
  return top >= 0 && bottom <= bar + 1;
})"""
"""Whether parts are on the screen, and those of the picture above the bar."""
TOPS = """[".tour-text", ".tour-values", ".tour-question"].map((x) => {
  const { left, top } = document.querySelector(`.tour ${x}`).getBoundingClientRect();
  return innerWidth > 1000 ? left : top;
})"""
GAPS = """() => [...document.querySelectorAll(".tour .paired > div")].flatMap((column) =>
  [...column.children].slice(1).map((x) => x.getBoundingClientRect().top - x.previousElementSibling.getBoundingClientRect().bottom))"""
"""What is empty between the parts of the two columns."""
NEXT = "(() => { const { x, y } = document.querySelector('[data-tour-go=next]').getBoundingClientRect(); return [x, y].map(Math.round); })()"
INNER = "(() => { const { scrollHeight, clientHeight } = document.querySelector('.tour'); return scrollHeight - clientHeight; })()"
DIMMED = """(() => {
  const brightness = (color) => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((x) => (x <= 10 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = brightness(getComputedStyle(document.querySelector(".plate-panel")).backgroundColor);
  return [...document.querySelectorAll(".plate-panel .dim text")].map((x) => {
    let opacity = 1;
    for (let y = x; y; y = y.parentElement) opacity *= Number(getComputedStyle(y).opacity);
    const text = opacity < 1 ? paper : brightness(getComputedStyle(x).fill);
    return (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05);
  });
})()"""
"""The contrast to the panel of words that step back."""
LIT = """() => [...document.querySelectorAll(".plate-panel .active")].map((x) => x.dataset.steps ?? x.dataset.stream)"""


@cache
def stops_of(slug: str) -> tuple[Stop, ...]:
    return tour_of(model_of(slug)).stops


@pytest.fixture(params=["llama-3-8b"])
def tab(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with Tab(browser, tmp_path, page_of(request.param), width=1440) as page:
        yield page


def letters_of(slug: str, question: dict[str, Any]) -> dict[str, int]:
    """Return the letters of a question of the page."""
    model = data_of(slug)["models"][0]["letters"]
    return {x["letter"]: int(x["value"]) for x in model} | {
        x: int(n) for x, n in question["given"].items()
    }


def shown(tab: Any) -> str:
    name: str = tab.get_attribute(BAR, "data-tour")
    return name


def start(tab: Any) -> None:
    tab.click(".tour-start")
    wait_until_drawn(tab)


def press(tab: Any, key: str) -> None:
    tab.keyboard.press(key)
    wait_until_drawn(tab)


def ask(tab: Any, kind: str) -> None:
    """Go on to the question of this kind."""
    for _ in range(3):
        if tab.get_attribute(".tour-asked", "data-question") != kind:
            tab.click("[data-tour-ask=next]")
            wait_until_drawn(tab)
    assert tab.get_attribute(".tour-asked", "data-question") == kind


def answer(tab: Any, text: str) -> str:
    """Type an answer, and return the sentence that is said of it, without its full stop."""
    tab.fill(".tour-asked input", text)
    tab.keyboard.press("Enter")
    said = str(tab.text_content(".tour-verdict"))
    assert not said or (said.endswith(".") and not said.endswith(".."))
    return said[:-1]


def test_data_of_the_tour_equals_the_library() -> None:
    for slug in ("llama-3-8b", "deepseek-v3"):
        asked = stop_exercises(tour_of(model_of(slug)))
        for x, y in zip(data_of(slug)["models"][0]["tour"], stops_of(slug), strict=True):
            found = [(q["kind"], evaluate(q["form"], letters_of(slug, q))) for q in x["questions"]]
            assert found == [(q.kind, int(q.answer)) for q in asked[y.name]]
            assert (x["name"], x["what"], x["why"]) == (y.name, y.what, y.why)
            assert int(x["adds"].replace(",", "")) == y.adds.value
            assert int(x["so_far"].replace(",", "")) == y.so_far
    tour = data_of("llama-3-8b")["models"][0]["tour"]
    assert len(json.dumps(tour)) < 40_000


@pytest.mark.parametrize(
    "tab", usual("deepseek-v3", release=["llama-3-8b", "mamba-2.8b"]), indirect=True
)
def test_keys_walk_through_all_stops_and_back(tab: Any, request: pytest.FixtureRequest) -> None:
    slug = request.node.callspec.params["tab"]
    assert tab.locator(BAR).count() == 0
    stops = stops_of(slug)
    layers = []
    for i in range(len(stops)):  # by address, each alone
        go_to(tab, "#")
        go_to(tab, f"#tour={i + 1}")
        layers.append(tab.text_content(PLACE))
    go_to(tab, "#")
    start(tab)
    assert tab.evaluate("document.activeElement.matches('.tour')")
    for i, stop in enumerate(stops):
        assert shown(tab) == stop.name and tab.text_content(PLACE) == layers[i]
        text = tab.text_content(".tour-body")
        assert stop.what in text and stop.why in text
        if stop.formula:
            formula = tab.locator(".tour .mathematics")
            assert formula.get_attribute("data-formula") == stop.formula
            assert signs_of(formula.text_content()) == signs_of(stop.formula)
        assert f"stop {i + 1} of {len(stops)}" in tab.text_content(".tour-controls")
        if stop.adds.value:
            ask(tab, "weights")
            assert f"{stop.so_far:,}" not in tab.text_content(".tour-question")
            tab.click(".tour-question [aria-expanded]")
            text = tab.text_content(".tour-question")
        assert f"{stop.so_far:,}" in text
        assert tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('tour')") == f"{i + 1}"
        if stop.steps:
            lit = " ".join(tab.evaluate(LIT)).split()
            assert set(stop.steps) & set(lit), stop.name
        press(tab, "ArrowRight")
    assert shown(tab) == stops[-1].name
    press(tab, "ArrowLeft")
    assert shown(tab) == stops[-2].name
    press(tab, "Home")
    assert shown(tab) == stops[0].name
    tab.evaluate("document.activeElement.blur()")
    press(tab, "Escape")
    assert tab.locator(BAR).count() == 0 and "tour" not in tab.evaluate("location.hash")
    tab.wait_for_function("document.activeElement.matches('button.tour-start')")


def test_buttons_step_and_end_the_tour(tab: Any) -> None:
    start(tab)
    assert tab.get_attribute("[data-tour-go=back]", "aria-disabled") == "true"
    assert "llamath serve embedded" in tab.text_content(".tour-text")
    tab.click("[data-tour-go=next]")
    wait_until_drawn(tab)
    assert shown(tab) == "embedding"
    assert "llamath serve" not in tab.text_content(".tour-text")
    tab.click("[data-tour-go=back]")
    wait_until_drawn(tab)
    assert shown(tab) == "token"
    press(tab, "End")
    assert tab.get_attribute("[data-tour-go=next]", "aria-disabled") == "true"
    tab.click("[data-tour-go=end]")
    wait_until_drawn(tab)
    assert tab.locator(BAR).count() == 0
    assert tab.get_attribute(".tour-start", "aria-expanded") == "false"


def test_address_opens_a_stop_and_its_place(tab: Any) -> None:
    go_to(tab, "#tour=7")
    assert shown(tab) == "softmax"
    assert "Layer 16" in tab.text_content(".plate-path")
    go_to(tab, "#tour=2")
    assert "Embedding" in tab.text_content(".plate-path")
    go_to(tab, "#tour=12")
    assert "Head" in tab.text_content(".plate-path")
    for wrong in ("0", "99", "1e1", "-1", "x", "<b>"):
        go_to(tab, f"#tour={wrong}")
        assert tab.locator(BAR).count() == 0


@pytest.mark.parametrize("tab", ["deepseek-v3"], indirect=True)
def test_a_stop_opens_a_layer_that_has_it(tab: Any) -> None:
    names = [x.name for x in stops_of("deepseek-v3")]
    go_to(tab, f"#tour={names.index('gate_up') + 1}&layer=30")
    assert "Layer 0" in tab.text_content(".plate-path")
    go_to(tab, f"#tour={names.index('router') + 1}")
    assert "Layer 30" in tab.text_content(".plate-path")
    go_to(tab, f"#tour={names.index('router') + 1}&layer=1")
    assert "Layer 30" in tab.text_content(".plate-path"), "layer 1 is dense"
    go_to(tab, f"#tour={names.index('router') + 1}&layer=5")
    assert tab.text_content(".plate-path").endswith("Layer 5")


def test_code_of_a_stop_has_the_lines_of_the_file(tab: Any) -> None:
    for i, stop in enumerate(stops_of("llama-3-8b")):
        go_to(tab, f"#tour={i + 1}")
        found = tab.evaluate(
            "() => [...document.querySelectorAll('.tour .tour-code li')].map((x) => [x.value, x.textContent])"
        )
        assert [(n, x.strip()) for n, x in found] == [(x.line, x.text.strip()) for x in stop.code]


def test_number_of_a_stop_opens_its_derivation(tab: Any) -> None:
    go_to(tab, "#tour=4")
    assert "How many parameters does this stop add to the count" in tab.text_content(
        ".tour-question"
    )
    assert "805,306,368" not in tab.text_content(BAR)
    tab.focus(".tour-question [aria-expanded]")
    press(tab, " ")
    assert shown(tab) == "qkv" and "805,306,368" in tab.text_content(".tour-count")
    tab.click(".tour .number")
    dialog = tab.text_content("dialog[open]")
    assert "L·(H·h·d + 2·K·h·d)" in dialog and "805,306,368" in dialog


def test_bar_and_lit_steps_are_in_sight_at_every_width(tab: Any) -> None:
    for _ in at_widths(tab, 1440, 1024, 768, 390):
        for stop in (1, 4, 10, 12):
            go_to(tab, f"#tour={stop}")
            tab.wait_for_function(IN_SIGHT)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_paper_has_all_stops_without_controls(tab: Any) -> None:
    go_to(tab, "#tour=3")
    tab.emulate_media(media="print")
    wait_until_drawn(tab)
    text = tab.inner_text("body")
    for stop in stops_of("llama-3-8b"):
        assert stop.title in text and stop.what in text and stop.why in text
        assert f"{stop.so_far:,}" in text
        assert all(
            x.text.strip() in " ".join(text.split())
            for x in stop.code
            if "  " not in x.text.strip()
        )
    assert not tab.is_visible(BAR) and not tab.is_visible("#memory")
    go_to(tab, "#")
    assert not tab.is_visible(".tour-handout") and tab.is_visible("#memory")
    tab.emulate_media(media="screen")


UNBROKEN = """() => {
    const rules = [...document.styleSheets].flatMap((x) => [...x.cssRules]);
    const onPaper = rules.filter((x) => x.media?.mediaText === "print");
    return onPaper.some((x) => [...x.cssRules].some(
        (y) => y.style?.breakInside === "avoid" &&
            document.querySelector(".tour-handout > article").matches(y.selectorText)));
}"""


@pytest.mark.parametrize("tab", ["deepseek-v3"], indirect=True)
def test_handout_begins_with_a_layer_and_ends_with_answers(tab: Any) -> None:
    stops = tour_of(model_of("deepseek-v3"))
    go_to(tab, "#tour=1")
    assert "Embedding" in tab.text_content(PLACE) and tab.evaluate(LIT)
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    wait_until_drawn(tab)
    assert "Layer 30" in tab.text_content(PLACE) and not tab.evaluate(LIT)
    asked = [x for of_stop in stop_exercises(stops).values() for x in of_stop]
    before, _, answers = tab.inner_text(".tour-handout").partition("\nAnswers\n")
    for x in asked:
        assert x.text.rpartition(". ")[2] in before and x.reason in answers
        assert f"{int(x.answer):,}" in answers
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    tab.emulate_media(media="screen")
    wait_until_drawn(tab)
    assert "Embedding" in tab.text_content(PLACE) and tab.evaluate(LIT)
    shares = filled_shares(tab.pdf(format="A4", prefer_css_page_size=True), 15, 15)
    # stops that fit on a page are not broken: the largest needs half of one
    assert len(shares) <= 9 and min(shares[:-2]) >= 0.6, shares
    assert tab.evaluate(UNBROKEN)


def test_handout_of_a_live_model_has_its_values(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, live_page(), "#tour=3&layer=1", width=1440) as tab:
        tab.wait_for_selector("[data-live=ready]")
        tab.emulate_media(media="print")
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        wait_until_drawn(tab)
        text = tab.inner_text(".tour-handout")
        assert "·ball" in text and "x / rms" in text and "silu(gate)" in text and "all: y" in text
        assert tab.locator(".tour-handout table").count() >= 9
        # colours alone are those of the KV cache and of the heads
        shown = tab.locator(".tour-handout .cells").evaluate_all(
            "x => new Set(x.map((y) => y.closest('figure').className)).size"
        )
        assert shown <= 2 and not tab.locator(".tour-handout .live-strip").count()
        assert "Layer 1" in tab.text_content(PLACE)


def test_space_steps_where_motion_is_reduced(browser: Any, tmp_path: Path) -> None:
    page = page_of("llama-3-8b")
    with Tab(browser, tmp_path, page, "#tour=3", reduced_motion="reduce") as tab:
        assert tab.locator("[data-tour-go=play]").count() == 0
        press(tab, " ")
        assert shown(tab) == stops_of("llama-3-8b")[3].name


def test_space_plays_and_a_step_ends_it(tab: Any) -> None:
    start(tab)
    press(tab, " ")
    assert "Pause" in tab.text_content("[data-tour-go=play]")
    tab.wait_for_selector(".tour[data-tour=embedding]")
    press(tab, "ArrowLeft")
    assert shown(tab) == "token" and "Play" in tab.text_content("[data-tour-go=play]")


def test_live_values_stand_beside_their_stops(browser: Any, tmp_path: Path) -> None:
    models = [load_with_checkpoint("embedded")]
    names = [x.name for x in tour_of(models[0]).stops]
    at = lambda name: f"#tour={names.index(name) + 1}"  # noqa: E731
    with Tab(browser, tmp_path, live_page(), width=1440) as tab:
        tab.wait_for_selector("[data-live=ready]")
        for name, selector in (
            ("qkv", ".tour-example tbody tr"),
            ("rope", ".live-clocks li"),
            ("scores", ".live-steps tbody tr"),
            ("softmax", ".live-map-queries span"),
            ("cache", ".live-cache canvas"),
            ("next_token", ".tour-example tbody tr"),
        ):
            go_to(tab, at(name))
            assert tab.locator(f".tour {selector}").count() >= 2, name
        go_to(tab, at("qkv"))
        found = tab.locator(".tour .live-sum").evaluate("x => [x.dataset.sum, x.dataset.output]")
        assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-4, abs=1e-4)
        watched = llamath.watch(PARK, dtype="float32")

        def first(step: str) -> list[str]:
            found = watched[f"layers.3.{step}"].tolist()[-1]
            numbers = found[0] if isinstance(found[0], list) else found
            digits = [f"{x:.{1 if abs(x) >= 10 else 2}f}" for x in numbers[:3]]
            return [x.replace("-", "−") for x in digits]

        for name, steps in (
            ("norm", {"attn_norm": "attn_norm"}),
            ("qkv", {"q": "attn.q", "k": "attn.k", "v": "attn.v"}),
            ("mix", {"all: y": "attn.mix"}),
            ("attention_out", {"o": "attn.o", "attn_add": "attn_add"}),
            ("gate_up", {"gate": "mlp.gate", "up": "mlp.up", "act": "mlp.act"}),
            ("down", {"attn_add": "attn_add", "down": "mlp.down", "mlp_add": "mlp_add"}),
        ):
            go_to(tab, at(name))
            lines = tab.inner_text(".tour .tour-example tbody").split("\n")
            rows = {x[0]: x[1:] for x in (y.split("\t") for y in lines)}
            for row, step in steps.items():
                shown = rows[row][1:] if name == "mix" else rows[row][:3]
                assert shown == first(step), (name, row)
        go_to(tab, at("token"))
        before = tab.text_content(".tour-values")
        tab.click(".live-tokens li:nth-child(3) button")
        wait_until_drawn(tab)
        assert tab.text_content(".tour-values") != before


def test_tokens_are_read_in_layers_alone(browser: Any, tmp_path: Path) -> None:
    names = [x.name for x in tour_of(load_with_checkpoint("embedded")).stops]
    with Tab(browser, tmp_path, live_page(), width=1440) as tab:
        tab.wait_for_selector("[data-live=ready]")
        for name in names:
            go_to(tab, f"#tour={names.index(name) + 1}")
            is_layer = "Layer" in tab.text_content(PLACE)
            titles = tab.locator(".tour .live-tokens button").evaluate_all(
                "x => x.map((y) => y.title)"
            )
            assert any("read with" in x for x in titles) == is_layer, name


def test_scores_of_a_head_stand_beside_undivided_ones(browser: Any, tmp_path: Path) -> None:
    names = [x.name for x in tour_of(load_with_checkpoint("embedded")).stops]
    with Tab(browser, tmp_path, live_page(), width=1440) as tab:
        tab.wait_for_selector("[data-live=ready]")
        go_to(tab, f"#tour={names.index('scores') + 1}")
        tab.wait_for_selector(".tour .live-steps:has-text('Layer 3, head 0')")
        rows = tab.inner_text(".tour .live-steps tbody").split("\n")
        shares = [float(re.findall(r"[\d.]+", x.split("\t")[-2])[0]) for x in rows]
        found = tab.inner_text(".tour .live-steps figcaption")
        rest = re.findall(r"the others share [<>\s]*([\d.]+)", found)
        assert len(rest) == ("most read of" in found)
        assert abs(sum(map(float, [*shares, *rest])) - 100) < 1, found
        go_to(tab, f"#tour={names.index('norm') + 1}&layer=3&head=0")
        go_to(tab, f"#tour={names.index('scores') + 1}&layer=3&head=2")
        found = tab.inner_text(".tour .live-steps")
        assert "if not divided" in found
        go_to(tab, f"#tour={names.index('scores') + 1}&layer=0&head=3")
        assert "wins all the same" not in tab.inner_text(".tour .live-steps")
        first = tab.inner_text(".tour .live-steps tbody tr:last-child").split("\t")
        assert first[-2:] == ["71%", "99.9%"]


def watched_example() -> dict[str, Any]:
    """Return what the bundled model computes of the text of the example."""
    found = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    watched = llamath.watch(found["text"], dtype="float32")
    layer, head, kv, dim = found["layer"], found["head"], found["kv_head"], found["head_dim"]
    last, shown = len(watched.ids) - 1, slice(SHOWN_NUMBERS)

    def at(name: str) -> Any:
        return watched[name].tolist()

    def of(name: str) -> Any:
        return at(f"layers.{layer}.{name}")

    x = at("embed")[last]
    queries, keys = of("attn.q_rope")[last][head], [y[kv] for y in of("attn.k_rope")]
    before = of("attn.q")[last][head * dim :][:dim]
    logits = list(watched.session.logits(last)[: found["vocab"]])
    best = sorted(range(len(logits)), key=lambda i: -logits[i])[:5]
    by_heat = [softmax([y / t for y in logits]) for t in TEMPERATURES]
    pairs = []
    for i in (0, 1, 4, dim // 2 - 1):
        turned = math.degrees(last * 10000 ** (-2 * i / dim)) % 360
        pairs.append(
            [i, turned, [before[i], before[i + dim // 2]], [queries[i], queries[i + dim // 2]]]
        )
    results = {
        "norm": of("attn_norm")[last],
        "q": before,
        "k": of("attn.k")[last][kv * dim :],
        "v": of("attn.v")[last][kv * dim :],
        "mix": of("attn.mix")[last][head],
        "o": of("attn.o")[last],
        "after_attention": of("attn_add")[last],
        "gate": of("mlp.gate")[last],
        "up": of("mlp.up")[last],
        "act": of("mlp.act")[last],
        "down": of("mlp.down")[last],
        "after_layer": of("mlp_add")[last],
    }
    made: dict[str, Any] = found | {
        "tokens": list(watched.texts),
        "ids": list(watched.ids),
        "width": len(x),
        "rms": math.sqrt(sum(y * y for y in x) / len(x)),
        "numbers": {"x": x[shown], **{k: v[shown] for k, v in results.items()}},
        "pairs": pairs,
        "products": [sum(a * b for a, b in zip(queries, y, strict=True)) for y in keys],
        "shares": [y[head][: i + 1] for i, y in enumerate(of("attn.softmax"))],
        "keys": [y[shown] for y in keys],
        "values": [y[kv * dim :][shown] for y in of("attn.v")],
        "likely": [[watched._text(i), logits[i], [y[i] for y in by_heat]] for i in best],
    }
    return made


def rounded(x: Any) -> Any:
    """Return numbers to four digits."""
    if isinstance(x, dict):
        return {name: rounded(y) for name, y in x.items()}
    if isinstance(x, list):
        return [rounded(y) for y in x]
    return float(f"{x:.4g}") if isinstance(x, float) else x


def flat(x: Any) -> list[Any]:
    """Return numbers and texts in one list."""
    if isinstance(x, dict):
        x = list(x.values())
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def test_example_is_what_the_bundled_model_computes() -> None:
    found = watched_example()
    if os.environ.get("LLAMATH_GOLDEN"):
        lines = (
            f" {json.dumps(name)}: {json.dumps(x, ensure_ascii=False)}"
            for name, x in rounded(found).items()
        )
        EXAMPLE_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    kept = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    assert kept.keys() == found.keys(), "LLAMATH_GOLDEN=1 writes it anew"
    for x, y in zip(flat(kept), flat(found), strict=True):
        if isinstance(y, float):
            y = pytest.approx(y, rel=1e-3, abs=1e-4)
        assert x == y, "LLAMATH_GOLDEN=1 writes it anew"


def test_stops_show_their_steps_in_the_bundled_model(tab: Any) -> None:
    names = [x.name for x in stops_of("llama-3-8b")]
    for name, found in bundled_tables().items():
        go_to(tab, f"#tour={names.index(name) + 1}")
        text = tab.inner_text(".tour .tour-example")
        assert "the bundled model of 804K parameters" in text and found["says"] in text
        assert name == "softmax" or all(x in text for row in found["rows"] for x in row)
    go_to(tab, f"#tour={names.index('scores') + 1}")
    assert "71%\t99.9%" in tab.inner_text(".tour .tour-example")
    go_to(tab, f"#tour={names.index('softmax') + 1}")
    assert tab.locator(".tour .tour-example rect").count() == 17 * 18 // 2
    assert (
        tab.get_attribute(".tour .tour-example svg", "aria-label")
        == "·the reads ·in 4%, ·the 19%, ·the 71%"
    )


@pytest.mark.parametrize("tab", ["deepseek-v3"], indirect=True)
def test_special_stops_show_a_small_model(tab: Any) -> None:
    stops = tour_of(model_of("deepseek-v3")).stops
    names, examples = [x.name for x in stops], examples_of(tour_of(model_of("deepseek-v3")))
    for name in ("compress", "expand", "router", "experts", "shared", "next_layer", "cache"):
        go_to(tab, f"#tour={names.index(name) + 1}")
        text = tab.inner_text(".tour .tour-example")
        assert "a tiny DeepSeek V3 of width 4" in text and examples[name]["says"] in text
        assert all(x in text for row in examples[name]["rows"] for x in row), name
        assert examples[name]["product"] in text


def test_every_stop_of_a_page_has_an_example() -> None:
    for slug in ("llama-3-8b", "deepseek-v3", "gpt2", "falcon-mamba-7b"):
        assert all(x["example"]["rows"] for x in data_of(slug)["models"][0]["tour"]), slug


@pytest.mark.parametrize("tab", ["deepseek-v3"], indirect=True)
def test_a_phone_shows_one_part_of_a_stop(tab: Any) -> None:
    names = [x.name for x in stops_of("deepseek-v3")]
    for _ in at_widths(tab, 390):
        for name in ("router", "compress", "cache"):
            go_to(tab, f"#tour={names.index(name) + 1}")
            assert tab.get_attribute("[role=tab] >> nth=0", "aria-selected") == "true"
            for part, selector in (
                ("What", ".tour-text"),
                ("Values", ".tour-example"),
                ("Question", ".tour-asked"),
            ):
                tab.click(f"[role=tab] >> text={part}")
                wait_until_drawn(tab)
                assert tab.locator("#tour-part").count() == 1 and tab.is_visible(selector)
                assert tab.locator(".tour :is(.tour-text, .tour-example, .tour-asked)").count() == 1
                assert tab.evaluate(IN_VIEW, ".tour-controls") == [True]


@pytest.mark.parametrize("tab", ["qwen3-next-80b-a3b"], indirect=True)
def test_the_same_address_again_shows_the_stop_again(tab: Any) -> None:
    names = [x.name for x in stops_of("qwen3-next-80b-a3b")]
    at = f"#tour={names.index('qkv') + 1}"
    go_to(tab, at)
    layer = tab.text_content(PLACE)
    assert set(" ".join(tab.evaluate(LIT)).split()) >= {"attn.q", "attn.k", "attn.v"}
    tab.evaluate("history.pushState(null, '', '#')")
    go_to(tab, at)
    assert tab.text_content(PLACE) == layer
    tab.wait_for_function(IN_SIGHT)
    tab.evaluate("scrollTo(0, 0)")
    for _ in at_widths(tab, 1024):
        tab.wait_for_function(IN_SIGHT)


def test_columns_of_a_stop_have_no_holes(tab: Any) -> None:
    for _ in at_widths(tab, 1024, 768):
        for name in ("scores", "cache", "qkv"):
            stops = [x.name for x in stops_of("llama-3-8b")]
            go_to(tab, f"#tour={stops.index(name) + 1}")
            gaps = tab.evaluate(GAPS)
            assert len(gaps) >= 3 and all(0 <= x <= 16 for x in gaps), name
            assert tab.evaluate(INNER) == 0, name


def test_edited_model_has_a_tour_of_its_own(tab: Any) -> None:
    go_to(tab, "#edit=sizes&sizes=K32.V1000&tour=4")
    assert "H = 32 heads of h = 128 numbers each" in tab.text_content(BAR)
    assert "share a key" not in tab.text_content(BAR)
    ask(tab, "weights")
    assert answer(tab, "32·4·4096^2") != "Right"
    assert answer(tab, "32·3·4096^2") == "Right" and "1,610,612,736" in tab.text_content(BAR)
    go_to(tab, "#edit=sizes&sizes=K32.V1000&tour=1")
    assert answer(tab, "10") == "Right", "of 1,000 tokens"
    assert tab.evaluate(IN_SIGHT), "the panel gives way to it"


def signs_of(formula: str) -> str:
    """Return a formula without what mathematics is set with."""
    return re.sub(r"[\s_^/√()Σ∑]", "", unicodedata.normalize("NFKC", formula))


def test_typed_answers_are_judged(tab: Any) -> None:
    go_to(tab, "#tour=4")
    assert tab.get_attribute(".tour-asked", "data-question") == "weights"
    assert answer(tab, "2516582") == (
        "Not right: 320 times too small. Counted are the weights of q, k, v, times the layers that have them"
    )
    assert answer(tab, "-1") == (
        "Not right. Counted are the weights of q, k, v, times the layers that have them"
    )
    assert answer(tab, "805306360") == "Not right: about right, but not exact: off by −8"
    assert answer(tab, "813000000").endswith("about right, but not exact: 0.9% too large")
    assert "805,306,368" not in tab.text_content(BAR)
    for wrong, reason in (
        ("25,165,824", "this is one layer; Llama 3 8B has 32"),
        ("1,330,905,088", "this is the count of all stops up to this one"),
        ("4·L·d·d − L·d·d", "all 32 heads have their own K and V here; Llama 3 8B has 8"),
    ):
        assert answer(tab, wrong) == f"Not right: {reason}"
    for wrong, reason in (
        ("16777216", "this is H·h·d alone, without L"),
        ("131,072", "this is H·d alone, without L and h"),
        ("268,435,456", "L·H·h·d is missing"),
        ("805,502,976", "the linear layers of Llama 3 8B have no biases here: weights alone"),
        ("2·L·K·h", "this is 2·L·K·h alone, without d"),  # also 2·K·d, as L·h = d here
        (
            "H (L h d + 2 K h d)",
            "the number is right, but only for these sizes; with other sizes the formula gives another one",
        ),
    ):
        assert answer(tab, wrong) == f"Not right: {reason}"
    for wrong in ("", "d +", "d^99", "q", "((d", "1" * 99, "d/0", "9^999", "<b>"):
        assert "Right" not in answer(tab, wrong)
    rounded = "Right, rounded; exactly 805,306,368"
    for right, verdict in (
        ("805306368", "Right"),
        ("805,306,368", "Right"),
        ("805M", rounded),
        ("0.81 B", rounded),
        ("0.8B", "Not right"),
        ("8.1e8", rounded),
        ("8e8", "Not right"),
        ("805306368e0", "Right"),
        ("L·(H·h·d + 2·K·h·d)", "Right"),
        ("L (d d + 2K h d)", "Right"),
        ("32x6144x4096", "Right"),
        ("L*d^2*3/2", "Right"),
        ("= 0.75·L·d²·2", "Right"),
        ("-(−1610612736)/2", "Right"),
        ("32(4 096² + 2 × 1'024 × 4_096)", "Right"),
    ):
        assert answer(tab, right).startswith(verdict), right
    assert answer(tab, "L (d d + 2K h d)") == "Right"
    assert "805,306,368" in tab.text_content(".tour-count")
    tab.fill(".tour-asked input", "12")
    assert "805,306,368" not in tab.text_content(BAR), "a new try"
    tab.keyboard.press("ArrowLeft")
    assert shown(tab) == "qkv", "arrows move in the text"


def test_stops_ask_of_ideas_shapes_flops_and_the_cache(tab: Any) -> None:
    names = [x.name for x in stops_of("llama-3-8b")]

    def go_and_ask(stop: str, kind: str) -> None:
        go_to(tab, f"#tour={names.index(stop) + 1}")
        ask(tab, kind)

    for stop in names:
        go_to(tab, f"#tour={names.index(stop) + 1}")
        assert tab.locator(".tour-asked input").count() == 1, "each stop asks"
    go_and_ask("token", "shape")
    assert answer(tab, "V").endswith("with b bits there are 2ᵇ ids")
    assert answer(tab, "16") == "Not right: 2^16 ids are fewer than V"
    assert answer(tab, "17") == "Right"
    go_and_ask("softmax", "shape")
    assert answer(tab, "T^2") == "Not right: these are all pairs, the masked ones, too"
    assert answer(tab, "600,000").endswith("keys after a token's own are masked")
    assert answer(tab, "499,500") == "Not right: a token reads its own key, too"
    assert answer(tab, "500,500") == "Right"
    assert tab.inner_text(".tour-why").endswith("each further one reads one more.")
    go_and_ask("embedding", "shape")
    assert answer(tab, "V d").endswith("a token reads one of its rows")
    assert answer(tab, "d") == "Not right: this is one token"
    assert answer(tab, "T d") == "Right"
    go_and_ask("scores", "shape")
    assert answer(tab, "T^2") == "Not right: this is one head, and each has its own"
    for right in ("32,000,000", "32M", "32e6", "3.2e+7"):
        assert answer(tab, right) == "Right", right
    go_and_ask("scores", "flops")
    assert answer(tab, "H h T").endswith("two FLOPs") and answer(tab, "2 H h T") == "Right"
    go_and_ask("gate_up", "flops")
    assert answer(tab, "2*2*d*F") == "Right"
    go_and_ask("cache", "cache")
    assert answer(tab, "2048").startswith("Not right: only the keys are cached here")
    assert answer(tab, "16384").endswith("there are 8 KV heads")
    assert answer(tab, "2·2·K·h") == "Right" and "4,096" in tab.text_content(".tour-question")


@pytest.mark.parametrize("width", [1440, 390])
def test_card_leaves_the_picture_in_sight(browser: Any, tmp_path: Path, width: int) -> None:
    models = [load_with_checkpoint("embedded")]
    with Tab(browser, tmp_path, live_page(), width=width) as tab:
        tab.wait_for_selector("[data-live=ready]")
        places_of_next = set()
        for i in range(len(tour_of(models[0]).stops)):
            go_to(tab, f"#tour={i + 1}")
            places_of_next.add(tuple(tab.evaluate(NEXT)))
            share = tab.evaluate(
                "document.querySelector('.tour').getBoundingClientRect().height / innerHeight"
            )
            assert 0 < share <= 0.45, i
            assert tab.locator(".tour .live-tokens [aria-pressed=true]").is_visible()
            assert tab.evaluate(IN_VIEW, ".tour-controls") == [True]
            tab.evaluate("document.querySelector('.tour').scrollTop = 9999")
            assert tab.evaluate(IN_VIEW, ".tour-controls") == [True], "its buttons stay"
            if width == 1440:
                places = tab.evaluate(TOPS)
                assert places == sorted(places), "words, values, question"
                assert tab.evaluate(INNER) == 0, i
            else:
                assert tab.evaluate(INNER) == 0 and tab.is_visible(".tour-text p >> nth=1"), i
                tab.click("[role=tab] >> text=Question")
                wait_until_drawn(tab)
                assert tab.is_visible(".tour-asked input")
                assert tab.evaluate(INNER) == 0, i
        assert len(places_of_next) == 1, "a hand clicks through"
        if width == 1440:  # the lit part, the whole map and the question at once
            softmax = [x.name for x in tour_of(models[0]).stops].index("softmax") + 1
            go_to(tab, f"#tour={softmax}")
            parts = ".tour .live-map-row, .tour-asked button, .plate-panel .plate-node.active"
            seen = tab.evaluate(IN_VIEW, parts)
            assert len(seen) > 3 and all(seen)
            assert all(x >= 4.5 for x in tab.evaluate(DIMMED)) and tab.evaluate(DIMMED)
