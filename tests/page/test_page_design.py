"""The page's design view: it counts and refuses dimensions like the library, and shows their configuration."""

from __future__ import annotations

import json
import random
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.catalog import read_preset
from llamath.cli import cli
from llamath.utils.errors import LlamathError
from llamath.utils.units import parse_quantity
from llamath.web.forms.design_data import build_design
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import model_page, page_from_data
from support.browser_page import NARROW, Tab, browser, go_to, wait_until_drawn
from support.page_expressions import active_of, evaluate, total_of
from support.page_models import as_made, page_of
from support.reference_data import computed_slugs, tiny_configs

__all__ = ["browser"]
PAIRS = [
    ("llama-3-8b", "qwen3-30b-a3b"),
    ("deepseek-v3", "gemma-3-1b"),
    ("gpt2", "mixtral-8x7b"),
    ("falcon-40b", "gpt-oss-20b"),
]


def random_sizes(rng: random.Random, found: dict[str, Any]) -> str:
    """Return random dimensions in the form of the URL fragment; many are invalid."""
    answers = {x["letter"]: int(x["value"]) for x in found["letters"]}
    at = {
        x: n if rng.random() < 0.4 else max(int(n * 2 ** rng.uniform(-3, 3)), 1)
        for x, n in answers.items()
    }
    if "K" in at and rng.random() < 0.6:
        at["H"] = at["K"] * rng.randint(1, 16)
    if "H" in at and rng.random() < 0.6:
        at["d"] = at["H"] * rng.randint(1, 200)
    tied = f".tied{rng.randint(0, 1)}" if found["tied"] is not None else ""
    return ".".join(f"{x}{min(n, 2**32 - 1)}" for x, n in at.items()) + tied


def designed(tab: Any) -> str:
    """Return the total that the page shows."""
    return str(tab.text_content("[data-part=designed]")).rpartition(": ")[2]


def test_every_design_is_counted_or_refused_like_the_library(browser: Any, tmp_path: Path) -> None:
    rng, made, refused = random.Random(11), 0, 0
    for pair in PAIRS:
        data = build_page_data([llamath.load(x) for x in pair])
        asks = [
            [i, random_sizes(rng, data["models"][i]["design"])] for i in (0, 1) for _ in range(15)
        ]
        with Tab(browser, tmp_path, page_from_data(data), width=NARROW) as tab:
            answers = tab.evaluate(
                "asks => asks.map(([i, sizes]) => pageTest.design(i, sizes))", asks
            )
        for (i, sizes), found in zip(asks, answers, strict=True):
            config = json.loads(found["config"])
            try:
                model = llamath.load(config)
            except LlamathError:
                assert found["broken"], (pair[i], sizes)
                refused += 1
                continue
            if not found["broken"]:
                assert (
                    found["total"]
                    == str(model.parameters.total)
                    == str(sum(map(int, found["groups"])))
                ), (pair[i], sizes)
                assert found["live"] == str(model.parameters.active), (pair[i], sizes)
                made += 1
    assert made > 60 and refused > 12


def test_command_line_counts_the_shown_configuration(browser: Any, tmp_path: Path) -> None:
    with Tab(
        browser,
        tmp_path,
        page_of("llama-3-8b"),
        "#view=design&sizes=L126.d16384.F53248.H128&target=405B",
    ) as tab:
        assert designed(tab) == "405,853,388,800"
        away = tab.text_content("[data-part=away]")
        assert "+853,388,800 parameters" in away and "+0.21%" in away
        path = tmp_path / "config.json"
        path.write_text(tab.text_content("pre[aria-label='config.json']"))
        done = CliRunner().invoke(cli, ["count", str(path), "--json"])
        assert (
            done.exit_code == 0
            and json.loads(done.stdout)["parameters"]["total"] == 405_853_388_800
        )
        tab.click("[data-part=designed]")
        symbols, numbers, total = tab.text_content("dialog[open] pre").split("\n= ")
        assert (
            symbols.startswith("V·d + L·(2·d")
            and numbers.startswith("128,256·16,384 + 126·(2·16,384")
            and total == "405,853,388,800"
        )


def test_sliders_and_fields_update_design_and_address(browser: Any, tmp_path: Path) -> None:
    text = page_of("llama-3-8b")
    with Tab(browser, tmp_path, text, "#view=design") as tab:
        tab.fill("#target", "8.03B")
        tab.fill("#size-L", "40")
        tab.check("#tied")
        tab.focus("#size-d + input, input[aria-label='layers, slider']")
        tab.keyboard.press("ArrowRight")
        tab.wait_for_function("() => document.querySelector('#size-L').value === '41'")
        expected = llamath.load(
            "llama-3-8b", changes={"num_hidden_layers": 41, "tie_word_embeddings": True}
        ).parameters.total
        assert designed(tab) == f"{expected:,}"
        tab.wait_for_function("() => location.hash.includes('L41')")
        at = tab.evaluate("location.hash")
        tab.fill("#size-K", "7")
        assert "num_key_value_heads should divide num_attention_heads" in tab.text_content("main")
        assert tab.locator("[data-part=designed]").count() == 0
        tab.fill("#size-K", "x")
        assert tab.get_attribute("#size-K", "aria-invalid") == "true"
        tab.fill("#target", "8.03Q")
        assert tab.get_attribute("#target", "aria-invalid") == "true"
    with Tab(browser, tmp_path, text, at) as tab:
        assert designed(tab) == f"{expected:,}" and tab.input_value("#target") == "8.03B"
        assert tab.is_checked("#tied")


INVALID = [
    "sizes=<img>",
    "sizes=L0",
    "sizes=L99999999999",
    "sizes=L1.",
    "target=javascript:1",
    "sizes=__proto__1.constructor2",
    "like=b",
]


def test_invalid_address_shows_the_initial_state(browser: Any, tmp_path: Path) -> None:
    """Of a page that is loaded, and of one whose address changes."""
    total = f"{llamath.load('llama-3-8b').parameters.total:,}"
    with Tab(browser, tmp_path, page_of("llama-3-8b"), f"#view=design&{INVALID[0]}") as tab:
        for i, at in enumerate(INVALID):
            if i:
                go_to(tab, "#view=design&sizes=L40")
                assert designed(tab) != total
                go_to(tab, f"#view=design&{at}")
            assert designed(tab) == total, at


COUNTS = "405B 8.03B 1.5e9 500M 8,030,261,248 1e3 0.5 0 0.0005k 12,34 1e99 1.5e+9 7b 2T 3G 1_000_000 -5 1.5 2.5k x 1E2 999999999999999999".split()


def test_targets_are_parsed_like_the_library(browser: Any, tmp_path: Path) -> None:
    total = 8_030_261_248
    with Tab(browser, tmp_path, page_of("gpt2"), width=NARROW) as tab:
        answers = tab.evaluate(
            "([texts, total]) => texts.map((x) => pageTest.quantity(x, total) || null)",
            [COUNTS, str(total)],
        )
    for text, found in zip(COUNTS, answers, strict=True):
        try:
            target = parse_quantity(text).value
        except LlamathError:
            assert found is None, text
            continue
        off = Fraction(total - target, target) * 10**7
        tenths = int(
            Decimal(off.numerator * 10**30 // off.denominator)
            .scaleb(-30)
            .quantize(Decimal(1), ROUND_HALF_EVEN)
        )
        assert found[0] == str(target)
        assert (
            found[1].replace(",", "").replace("−", "-")
            == f"{'+' if tenths > 0 else ''}{Decimal(tenths) / 10:.1f} ppm"
        ), text


def test_sliders_match_what_the_library_accepts(request: pytest.FixtureRequest) -> None:
    """At random points the expression equals the count, or a constraint is violated: for every
    model type, as a preset and tiny, with `--all`; by default for every tenth.
    """
    rng, known, points = random.Random(3), dict[str, Any](), 0
    every = request.config.getoption("--all")
    for slug in computed_slugs():
        known.setdefault(f"preset of {read_preset(slug).config['model_type']}", slug)
    for x in tiny_configs(computed=True):
        known.setdefault(x.values[0]["model_type"], x.values[0])
    without = set[str]()
    for source in list(known.values())[:: 1 if every else 10]:
        model = llamath.load(source)
        found = build_design(model)
        if not found["letters"]:
            if not model.tree.is_multimodal:
                without.add(model.family.name)
            continue
        agreeing = 0
        for _ in range(12):
            at = {
                x["letter"]: max(int(int(x["value"]) * 2 ** rng.uniform(-1, 1)), 1)
                for x in found["letters"]
            }
            if agreeing == 4 or any(
                evaluate(x["form"], at) > evaluate(x["most"]["form"], at) for x in found["rules"]
            ):
                continue
            one = next(x for x in found["totals"] if x["tied"] is found["tied"])
            config = {
                x["key"]: json.loads(x["text"]) if x["form"] is None and x["text"] else None
                for x in found["config"]
            }
            config |= {
                x["key"]: evaluate(x["form"], at) for x in found["config"] if x["form"] is not None
            }
            config |= {x["key"]: found["tied"] for x in found["config"] if x["tied"]}
            loaded = llamath.load(config)
            assert loaded.parameters.total == total_of(one, at), (model.name, at)
            assert loaded.parameters.active == active_of(one, at), (model.name, at)
            agreeing += 1
        points += agreeing
    assert points > (300 if every else 50) and not without, (points, without)


@pytest.mark.parametrize("slug", ["gemma-3-4b", "gpt2"])
def test_model_without_a_form_has_no_empty_design(browser: Any, tmp_path: Path, slug: str) -> None:
    data = as_made(build_page_data([llamath.load(slug)]))
    if slug == "gpt2":
        data["models"][0]["design"] = {"letters": []}
    assert not data["models"][0]["design"]["letters"]
    with Tab(browser, tmp_path, page_from_data(data), "#view=design") as tab:
        assert tab.locator("[data-view=design], [data-view=edit]").count() == 0
        assert tab.get_attribute("[data-view=a]", "aria-pressed") == "true"
        assert tab.is_visible("#parameters"), "its own page"
        why = "models of text alone" if slug != "gpt2" else "no closed form"
        assert why in tab.text_content("[data-part=no-edit]")


def test_hostile_configuration_is_shown_as_text(browser: Any, tmp_path: Path) -> None:
    words = (
        "</script><script>pwned()</script>",
        "<img src=x onerror=pwned()>",
        "\u202e\u2028`${pwned()}",
    )
    data = {**llamath.load("llama-3-8b").config.data, **{f"_{x}": [x, {x: x}] for x in words}}
    model = llamath.load(data).replace(name=words[1])
    with Tab(browser, tmp_path, model_page([model]), "#view=design") as tab:
        config = json.loads(tab.text_content("pre[aria-label='config.json']"))
        assert config == data
        assert (
            tab.locator("img").count() == 0
            and tab.locator("script").count() == 2
            and words[1] in tab.text_content("main")
        )


def test_sliders_have_names_and_values_in_real_units(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), "#view=design") as tab:
        texts = tab.evaluate(
            "[...document.querySelectorAll('.dimension [type=range]')].map((x) => x.getAttribute('aria-valuetext'))"
        )
        assert "layers: 32" in texts and "vocabulary: 128,256" in texts and len(texts) > 5
        tab.focus("input[aria-label='layers, slider']")
        tab.keyboard.press("ArrowRight")
        wait_until_drawn(tab)
        assert (
            tab.get_attribute("input[aria-label='layers, slider']", "aria-valuetext")
            == "layers: 33"
        )
