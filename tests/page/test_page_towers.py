"""Towers and projectors on the page: their stages, sizes and FLOPs equal the library's, and every level opens."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from test_page_plate import BOXES, WRONG_TEXT

import llamath
from llamath.analysis.graph.flop_count import forward_flops
from llamath.analysis.graph.image_pass import Images, image_pass
from llamath.core.tree import fold
from llamath.utils.errors import LlamathError
from llamath.web.page_data.tower_data import build_towers
from support.browser_page import Tab, at_widths, browser, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import data_of, page_of
from support.release import usual

assert browser
SAMPLE = "qwen3-vl-8b qwen2.5-vl-7b llava-1.5-7b gemma-4-31b internvl2.5-1b ministral-3-3b".split()
DRAWN = "llava-1.5-7b qwen3-vl-8b gemma-4-31b".split()
IMAGE = Images(count=1, width=1024, height=1024)


def towers_of(slug: str) -> dict[str, Any]:
    found: dict[str, Any] = data_of(slug)["models"][0]["towers"]
    return found


def stages_of(slug: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return every stage with its part and its number."""
    return [
        (part["name"], i, x)
        for part in towers_of(slug)["parts"]
        for i, x in enumerate(part["stages"])
    ]


def tower_tab(
    browser: Any, tmp_path: Path, slug: str, at: str = "", width: int = 1440, **how: Any
) -> Tab:
    return Tab(browser, tmp_path, page_of(slug), at, width=width, **how)


@pytest.mark.parametrize("slug", SAMPLE)
def test_stages_sum_to_the_pass_of_an_image(slug: str) -> None:
    found = image_pass(llamath.load(slug).tree, IMAGE)
    sums = [
        evaluate(step["flops"], {}) * int(stage["times"])
        for _, _, stage in stages_of(slug)
        for step in stage["steps"]
    ]
    assert sum(sums) == int(found.flops.total) > 0
    assert {part["image"] for part in towers_of(slug)["parts"]} == {found.summary}


@pytest.mark.parametrize("slug", SAMPLE)
def test_stages_have_the_weights_of_their_parts(slug: str) -> None:
    tree = llamath.load(slug).tree
    for part in towers_of(slug)["parts"]:
        own = sum(
            int(x.weight.parameters) * int(x.copies) for x in fold(getattr(tree, part["name"]))
        )
        used = sum(int(x["parameters"]) * int(x["times"]) for x in part["stages"])
        assert used + sum(int(n) for _, n in part["unread"]) == own, part["name"]
        assert [x for x, _ in part["unread"]] == (
            ["vision.norm_after.weight", "vision.norm_after.bias"]
            if (slug, part["name"]) == ("llava-1.5-7b", "vision")
            else []
        )
        for stage in part["stages"]:
            if stage["kind"] is not None:
                assert stage["kind"]["sizes"]["parameters"] == stage["parameters"]


def test_layers_with_windows_have_their_name() -> None:
    """Patches attend to all others in the layers 7, 15, 23 and 31: `fullatt_block_indexes` of Qwen2.5-VL."""
    layers = {x["name"]: x["times"] for _, _, x in stages_of("qwen2.5-vl-7b") if x["layers"]}
    assert layers == {"window attention layer": "28", "full attention layer": "4"}


def test_stages_of_every_kind_of_tower_sum_to_its_pass() -> None:
    """Each tiny multimodal configuration whose text and images can be recorded."""
    opened = 0
    for path in sorted((Path(__file__).parent.parent / "tiny_multimodal").glob("*.json")):
        for name, config in json.loads(path.read_text()).items():
            model = llamath.load(config)
            if not model.tree.is_multimodal:
                continue
            try:
                found = image_pass(model.tree, IMAGE)
            except LlamathError:  # counted, but not computed
                continue
            parts = build_towers(model)["parts"]
            stages = [x for part in parts for x in part["stages"]]
            drawn = sum(
                evaluate(y["flops"], {}) * int(x["times"]) for x in stages for y in x["steps"]
            )
            assert drawn == int(forward_flops(found.graph).total) > 0, (path, name)
            assert all(
                ("the pass of the whole image" in x["image"]) == (found.beside is not None)
                for x in parts
                if x["stages"]
            )
            for part in parts:
                own = sum(
                    int(x.weight.parameters) * int(x.copies)
                    for x in fold(getattr(model.tree, part["name"]))
                )
                used = sum(int(x["parameters"]) * int(x["times"]) for x in part["stages"]) + sum(
                    int(n) for _, n in part["unread"]
                )
                assert not part["stages"] or used == own, (path, name, part["name"])
            opened += bool(stages)
    assert opened > 60


def test_inputs_of_a_stage_are_steps_or_named() -> None:
    given = {"x", "pixels", "features", "output of the layers"}
    for slug in SAMPLE:
        for _, _, stage in stages_of(slug):
            names = {x["name"] for x in stage["steps"]}
            for step in stage["steps"]:
                assert step["takes"] and set(step["takes"]) <= names | given, (slug, step)


def test_counted_towers_say_why_they_are_not_opened() -> None:
    for slug, tokens in (
        ("video-llava-7b", "computed"),
        ("llama-3.2-11b-vision", "computed (1 image of 1,024 × 1,024 pixels: 1 token)"),
    ):
        parts = towers_of(slug)["parts"]
        assert parts and all(
            not x["stages"] and f"is counted, not {tokens}" in x["unknown"] for x in parts
        )


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3"])
def test_text_models_have_no_towers(slug: str) -> None:
    assert towers_of(slug)["parts"] == []


# what follows needs Chromium


@pytest.mark.parametrize("slug", usual("llava-1.5-7b", "gemma-4-31b", release=DRAWN))
def test_labels_of_towers_are_whole_at_every_width(browser: Any, tmp_path: Path, slug: str) -> None:
    with tower_tab(browser, tmp_path, slug, "#layer=vision") as tab:
        for width in at_widths(tab, 1440, 1024, 390):
            for part, i, _ in stages_of(slug):
                tab.click(f"[data-stage='{part}.{i}']")
                wait_until_drawn(tab)
                assert not tab.evaluate(WRONG_TEXT), (part, i, width)
                assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("slug", usual("llava-1.5-7b", "gemma-4-31b", release=DRAWN))
def test_matrices_of_towers_are_drawn_to_one_scale(browser: Any, tmp_path: Path, slug: str) -> None:
    for part, i, stage in stages_of(slug):
        uses = {
            y["path"]: y
            for x in stage["steps"]
            if x["kind"] in ("linear", "lookup")
            for y in x["uses"]
            if len(y["shape"]) > 1
        }
        with tower_tab(browser, tmp_path, slug, f"#layer={part}.{i}") as tab:
            scale = float(tab.get_attribute(".layer-picture", "data-scale"))
            drawn = tab.evaluate(BOXES)
            assert {x[0] for x in drawn} == set(uses)
            for path, *sides in drawn:
                shape = [int(n) for n in uses[path]["shape"]]
                split = (
                    1 if len(shape) == 4 else -1
                )  # a convolution over patches: all of its inputs
                expected = sorted(max(4, prod(x) * scale) for x in (shape[:split], shape[split:]))
                assert sorted(sides) == pytest.approx(expected, abs=0.01), path


def test_a_tower_opens_down_to_a_head_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with tower_tab(browser, tmp_path, "llava-1.5-7b", reduced_motion="reduce") as tab:
        title = "document.querySelector('.plate-path [aria-current]').textContent"
        tab.focus(".plate-whole-wide [data-part-name=vision]")
        tab.keyboard.press("Enter")
        assert (
            tab.evaluate(title) == "Vision tower"
            and tab.text_content(".plate-panel h2") == "Vision tower: layer"
        )
        assert tab.get_attribute("[data-stage='vision.1']", "aria-pressed") == "true"
        assert "12,596,224" in tab.text_content("[data-layer=parameters]")
        tab.focus(".layer-picture [data-node='attn.q']")
        tab.keyboard.press("Enter")
        facts = {
            x: tab.text_content(f"[data-matrix-fact={x}]") for x in ("shape", "parameters", "flops")
        }
        assert (
            "1,024 × 1,024" in facts["shape"]
            and "1,048,576" in facts["parameters"]
            and "2,097,152" in facts["flops"]
        )
        names = tab.text_content(".matrix-facts")
        assert (
            "vision.layers.{l}.attn.q.weight" in names
            and "vision_tower.vision_model.encoder.layers.{l}.self_attn.q_proj.weight" in names
        )
        tab.focus("[data-head='0']")
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert tab.evaluate(title) == "head 1" and tab.locator("[data-head-weight]").count() == 4
        tab.click("[data-level=layer]")
        tab.focus("[data-stage='projector.0']")
        tab.keyboard.press("Enter")
        assert tab.text_content(
            ".plate-panel h2"
        ) == "Projector" and "20,979,712 parameters" in tab.text_content(".plate-head")
        assert "layer=projector.0" in tab.evaluate(
            "new Promise((done) => setTimeout(() => done(location.hash), 100))"
        )


def test_layers_that_text_skips_show_their_weights(browser: Any, tmp_path: Path) -> None:
    with tower_tab(browser, tmp_path, "llama-3.2-11b-vision", "#layer=3") as tab:
        assert "Text alone skips this layer" in tab.text_content(".plate-panel")
        assert (
            "cross_attn.k4,096 → 1,024" in tab.text_content(".skipped")
            and not tab.locator(".flow, .plate-blocks").count()
        )
        sides = "[...document.querySelectorAll('.skipped i')].map((x) => [x.offsetWidth, x.offsetHeight])"
        q, k, *_ = tab.evaluate(sides)
        assert q[0] == q[1] == k[0] and k[1] == pytest.approx(k[0] / 4, abs=1), "to one scale"


def test_unknown_towers_list_their_weights(browser: Any, tmp_path: Path) -> None:
    with tower_tab(browser, tmp_path, "video-llava-7b", "#layer=vision") as tab:
        assert (
            "is counted, not computed" in tab.text_content(".plate-panel")
            and tab.locator(".skipped li").count() == 12
        )
    for at in ("#layer=vision", "#layer=projector.3", "#layer=audio"):
        with tower_tab(browser, tmp_path, "llama-3-8b", at) as tab:
            assert tab.text_content(".plate-panel h2").startswith("Layer 16")
