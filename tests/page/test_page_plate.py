"""The picture of the model: parameters, steps, shapes, FLOPs, bytes and wires equal the library's, at every level and width."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamath.analysis.graph.recorder import record
from llamath.analysis.graph.walkthrough import Walkthrough, walkthrough
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.core.tree import fold
from llamath.model import Model
from support.browser_page import Tab, at_widths, browser, go_to, press, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import data_of, model_of, page_of
from support.release import usual

assert browser
SAMPLE = (
    "llama-3-8b mixtral-8x7b deepseek-v3 gemma-3-27b qwen3-next-80b-a3b gpt-oss-20b nemotron-3-super-120b llama-4-scout"
    " gemma-4-26b-a4b gpt2 falcon-mamba-7b"
).split()
MORE = ["lfm2-350m", "command-r7b", "opt-350m"]
DRAWN = "llama-3-8b deepseek-v3 qwen3-next-80b-a3b gemma-4-26b-a4b command-r7b opt-350m gpt2 falcon-mamba-7b nemotron-3-super-120b".split()
UNLIKE = usual("deepseek-v3", "nemotron-3-super-120b", "gemma-4-26b-a4b", release=DRAWN)
"""Models whose blocks differ most: latent attention, recurrences, parallel branches, experts."""
SETTINGS = ((1, 3), (262_145, 5))
MORE_SETTINGS = ((1, 1), (7, 3), (4096, 1))
WEIGHTLESS = ("ids", "probabilities")
CROSSED_LABELS = """() => {
  const picture = document.querySelector('.layer-picture');
  const labels = [...picture.querySelectorAll('.plate-node text')].map((x) => [x.textContent, x.getBoundingClientRect()]);
  return [...picture.querySelectorAll('.plate-wire > path.wire')].flatMap((wire) => {
    const toScreen = wire.getScreenCTM();
    const points = Array.from({ length: Math.ceil(wire.getTotalLength()) }, (_, i) => wire.getPointAtLength(i).matrixTransform(toScreen));
    const isIn = (p, box) => p.x > box.left && p.x < box.right && p.y > box.top + 3 && p.y < box.bottom - 3;
    return labels.filter(([, box]) => points.some((p) => isIn(p, box))).map(([text]) => text);
  });
}"""


def plate_of(slug: str) -> dict[str, Any]:
    found: dict[str, Any] = data_of(slug)["models"][0]["plate"]
    return found


def library_walkthrough(model: Model, name: str, context: int, batch: int) -> Walkthrough:
    if name == "prompt":
        return walkthrough(record(model.tree, batch=batch, new_tokens=context))
    return walkthrough(record(model.tree, batch=batch, past_tokens=context - 1, decode=True))


@pytest.mark.parametrize("slug", usual(*SAMPLE, release=MORE))
def test_block_steps_equal_the_walkthrough(slug: str, request: pytest.FixtureRequest) -> None:
    """At the shortest and at a long context, with two batches; before a release between these."""
    model = model_of(slug)
    settings = SETTINGS + (MORE_SETTINGS if request.config.getoption("--all") else ())
    for name, stages in data_of(slug)["models"][0]["passes"].items():
        for context, batch in settings:
            values = {"T": context, "B": batch}
            found = library_walkthrough(model, name, context, batch)
            assert [int(x["times"]) for x in stages] == [x.times for x in found.stages]
            for stage, details in zip(found.stages, stages, strict=True):
                assert [tuple(x) for x in details["ranges"]] == list(stage.indices)
                for x, y in zip(stage.steps, details["steps"], strict=True):
                    assert (x.name, list(x.inputs), str(x.parameters)) == (
                        y["name"],
                        y["takes"],
                        y["parameters"],
                    )
                    assert [evaluate(form, values) for form in y["shape"]] == [
                        int(d) for d in x.shape
                    ], (x.name, context)
                    assert evaluate(y["flops"], values) == int(x.flops), (x.name, context)
                    assert evaluate(y["keeps"], values) == int(x.cached), (x.name, context)


@pytest.mark.parametrize("slug", [*SAMPLE, "llama-3.2-11b-vision", "qwen2-vl-7b", "jamba-v0.1"])
def test_bars_sum_to_the_model(slug: str) -> None:
    model, plate = model_of(slug), plate_of(slug)
    layers = [kind for kind, n in plate["order"] for _ in range(n)]
    parts = [x for place in ("before", "after", "towers") for x in plate[place]]
    kinds = [x["sizes"] for x in plate["kinds"]]
    assert len(layers) == int(model.tree.layers.n)
    for key, whole in (("parameters", model.parameters.total), ("active", model.parameters.active)):
        if key == "active" and plate["towers"]:
            continue  # a token of text passes no tower
        assert sum(int(x[key]) for x in parts) + sum(int(kinds[i][key]) for i in layers) == whole
    for i, block in zip(layers, model.tree.layers, strict=True):
        assert int(kinds[i]["parameters"]) == sum(
            int(x.weight.parameters) * int(x.copies) for x in fold(block, 1)
        )
        assert sum(int(x["parameters"]) for x in kinds[i]["groups"]) == int(kinds[i]["parameters"])


@pytest.mark.parametrize(
    ("slug", "pattern", "kinds"),
    [
        ("deepseek-v3", ["3 dense + 58 MoE"], [("MLA + FFN", 3), ("MLA + MoE", 58)]),
        (
            "gemma-3-27b",
            ["5 local : 1 global"],
            [("local attention + FFN", 52), ("attention + FFN", 10)],
        ),
        (
            "qwen3-next-80b-a3b",
            ["3 DeltaNet : 1 attention"],
            [("DeltaNet + MoE", 36), ("attention + MoE", 12)],
        ),
        ("falcon-mamba-7b", [], [("Mamba", 64)]),
    ],
)
def test_pattern_is_named(slug: str, pattern: list[str], kinds: list[tuple[str, int]]) -> None:
    plate = plate_of(slug)
    layers = [kind for kind, n in plate["order"] for _ in range(n)]
    assert plate["pattern"] == pattern
    assert [(x["label"], layers.count(i)) for i, x in enumerate(plate["kinds"])] == kinds


# what follows needs Chromium

ROWS = """() => [...document.querySelectorAll("[data-step]")].map((x) => [x.dataset.step, x.lastChild.textContent])"""
NODES = """() => [...document.querySelectorAll(".layer-picture [data-node]")]
  .map((x) => [x.dataset.node, x.dataset.steps.split(" "), !x.classList.contains("dim")])"""
BOXES = """() => [...document.querySelectorAll(".layer-picture [data-matrix]")].map((x) => {
  const box = x.querySelector(".own");
  return [x.dataset.matrix, box.width.baseVal.value, box.height.baseVal.value];
})"""
WRONG_TEXT = """() => {
  const wrong = [];
  for (const picture of document.querySelectorAll(".plate svg:not([aria-hidden])")) {
    const frame = picture.getBoundingClientRect();
    if (!frame.width) continue;
    const all = [...picture.querySelectorAll("text")].filter((x) => x.textContent).map((x) => [x, x.getBoundingClientRect()]);
    for (const [x, a] of all) {
      if (parseFloat(getComputedStyle(x).fontSize) < 12) wrong.push(`small: ${x.textContent}`);
      if (a.left < frame.left - 1 || a.right > frame.right + 1) wrong.push(`out: ${x.textContent}`);
      if (x.textContent.includes("…")) wrong.push(`cut: ${x.textContent}`);
    }
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
    all.forEach(([x, a], i) => all.slice(i + 1).forEach(([y, b]) => { if (meet(a, b)) wrong.push(`${x.textContent} | ${y.textContent}`); }));
  }
  return wrong;
}"""


def plate_tab(
    browser: Any, tmp_path: Path, slug: str, at: str = "", width: int = 1440, **how: Any
) -> Tab:
    return Tab(browser, tmp_path, page_of(slug), at, width=width, **how)


def blocks_of(tab: Any, at: str) -> Iterator[None]:
    """Open every block of the layer at this address, one after the other: the first by its button, the others by the address."""
    go_to(tab, at)
    first, *others = tab.eval_on_selector_all(
        ".plate-blocks [data-zoom]", "xs => xs.map((x) => x.dataset.zoom)"
    )
    tab.click(f".plate-blocks [data-zoom='{first}']")
    wait_until_drawn(tab)
    yield
    for name in others:
        go_to(tab, f"{at}&zoom={name}")
        yield


@pytest.mark.parametrize("drawn", UNLIKE)
def test_blocks_show_every_step_of_the_walkthrough(
    browser: Any, tmp_path: Path, drawn: str
) -> None:
    model, rng = model_of(drawn), random.Random(drawn)
    context, batch = rng.randint(1, 10**6), rng.randint(1, 64)
    with plate_tab(browser, tmp_path, drawn) as tab:
        for name in data_of(drawn)["models"][0]["passes"]:
            for stage in library_walkthrough(model, name, context, batch).layers:
                at = f"#layer={stage.layer}&pass={name}&context={context}&batch={batch}"
                totals = dict.fromkeys(("parameters", "flops", "keeps"), 0)
                shown: list[list[str]] = []
                for _ in blocks_of(tab, at):
                    shown += tab.evaluate(ROWS)
                    for key in totals:
                        totals[key] += int(
                            tab.text_content(f"[data-block={key}]")
                            .partition(":")[2]
                            .replace(",", "")
                        )
                expected = [
                    [x.name, f"[{', '.join(str(int(d)) for d in x.shape)}]"] for x in stage.steps
                ]
                assert sorted(shown) == sorted(expected)
                assert totals == {
                    "parameters": stage.parameters,
                    "flops": stage.flops,
                    "keeps": stage.cached,
                }


WIRES = """() => {
  const picture = document.querySelector('.layer-picture');
  const box = (x) => { const { x: left, y, width, height } = x.getBoundingClientRect(); return [left, y, left + width, y + height]; };
  const ends = [...picture.querySelectorAll('[data-wire]')].map((x) => {
    const path = x.querySelector('path.wire');
    const { x: left, y } = path.getPointAtLength(path.getTotalLength()).matrixTransform(path.getScreenCTM());
    return [x.dataset.wire, [left, y]];
  });
  const heads = picture.querySelector('[data-steps~="attn.scores"]');
  const both = (y) => { const all = [...heads.querySelectorAll(y)].map(box); return [0, 1, 2, 3].map((i) => (i < 2 ? Math.min : Math.max)(...all.map((z) => z[i]))); };
  return { wires: Object.fromEntries(ends), queries: both('circle'), keys: both('rect:not(.hit)'), text: heads.textContent,
    boxes: Object.fromEntries([...picture.querySelectorAll('[data-matrix]')].map((x) => [x.dataset.matrix.split('.')[1], box(x)])) };
}"""


def test_wires_of_a_layer_end_where_they_are_read(browser: Any, tmp_path: Path) -> None:
    """Queries at their heads, keys and values at the cache; gate and up are a fork, in columns as in rows."""
    with plate_tab(browser, tmp_path, "llama-3-8b") as tab:
        for width in at_widths(tab, 1440, 1024, 768, 390):
            found = tab.evaluate(WIRES)
            fork = {"mlp_norm mlp.gate", "mlp_norm mlp.up", "mlp.gate mlp.act", "mlp.up mlp.act"}
            assert fork <= found["wires"].keys() and "mlp.gate mlp.up" not in found["wires"]
            assert "/√128" in found["text"], width
            along = 1 if width >= 768 else 0  # rows below each other, or columns
            order = [found["boxes"][x][along] for x in ("q", "k", "v", "gate", "up")]
            assert order[:3] == sorted(order[:3]) and order[3] < order[4]
            queries, keys = found["queries"], found["keys"]
            ends = {x: found["wires"][f"attn.{x} attn.scores"] for x in "qkv"}
            if along:
                assert queries[0] - 3 < ends["q"][0] < queries[2] + 3
                assert all(keys[1] < ends[x][1] < keys[3] for x in "kv")
                assert all(keys[0] - 4 < ends[x][0] < keys[0] + 4 for x in "kv")
            else:
                assert queries[0] - 3 < ends["q"][0] < keys[0]
                assert all(keys[0] < ends[x][0] < keys[2] for x in "kv")


@pytest.mark.parametrize(
    "slug", ["deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-20b", "gemma-3-27b"]
)
def test_panel_of_a_layer_fits_a_screen(browser: Any, tmp_path: Path, slug: str) -> None:
    right = "Math.max(...[...document.querySelectorAll('.plate-node')].map((x) => x.getBoundingClientRect().right))"
    with plate_tab(browser, tmp_path, slug, width=1440) as tab:
        assert tab.locator(".plate-panel").bounding_box()["height"] <= 900
        box = tab.locator(".layer-picture").bounding_box()
        assert tab.evaluate(right) > box["x"] + 0.8 * box["width"], "the width is used"
        # six lanes of DeltaNet above four of experts are higher than the first screen
        higher = {"qwen3-next-80b-a3b": 945, "gpt-oss-20b": 860}
        first = 900 - tab.locator(".flow").bounding_box()["height"]
        assert box["y"] + box["height"] <= higher.get(slug, first)
        tab.set_viewport_size({"width": 768, "height": 900})
        wait_until_drawn(tab)
        assert tab.evaluate(right) > 480, "the width is used"
        assert tab.locator(".layer-picture").bounding_box()["height"] <= 900


@pytest.mark.parametrize("drawn", UNLIKE)
def test_matrices_are_drawn_to_one_scale(browser: Any, tmp_path: Path, drawn: str) -> None:
    with plate_tab(browser, tmp_path, drawn) as tab:
        for stage in data_of(drawn)["models"][0]["passes"]["prompt"]:
            if not stage["layers"]:
                continue
            go_to(tab, f"#layer={stage['ranges'][0][0]}")
            scale = float(tab.get_attribute(".layer-picture", "data-scale"))
            uses = {
                y["path"]: y
                for x in stage["steps"]
                if x["kind"] in ("linear", "lookup")
                for y in x["uses"]
                if len(y["shape"]) > 1
            }
            drawn = tab.evaluate(BOXES)
            assert {x[0] for x in drawn} == set(uses)
            for path, *sides in drawn:
                expected = sorted(max(4, int(n) * scale) for n in uses[path]["shape"])
                assert sorted(sides) == pytest.approx(expected, abs=0.01), path


@pytest.mark.parametrize(
    "slug", usual("llama-3.2-11b-vision", "qwen3-next-80b-a3b", "deepseek-v3", release=DRAWN)
)
def test_labels_are_whole_at_every_width(
    browser: Any, tmp_path: Path, slug: str, request: pytest.FixtureRequest
) -> None:
    """Those of the longest names at each width; before a release, all names."""
    every = request.config.getoption("--all")
    kinds = plate_of(slug)["kinds"]
    with plate_tab(browser, tmp_path, slug) as tab:
        for width in at_widths(tab, 1440, 1024, 768, 390, 320):
            for i in range(len(kinds)):
                if len(kinds) > 1:
                    press(tab, ".plate-kinds button", i)
                for scheme in ("path", "hf", "gguf") if every or width == 1440 else ("hf",):
                    if kinds[i]["stage"] is not None and tab.locator("#choice-names").count():
                        press(tab, f"#choice-names [data-value={scheme}]")
                    wait_until_drawn(tab)
                    assert not tab.evaluate(WRONG_TEXT), (i, scheme, width)
                    assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    "slug", usual("deepseek-v3", "qwen3-next-80b-a3b", "gemma-3-27b", release=DRAWN)
)
def test_wires_leave_labels_free(browser: Any, tmp_path: Path, slug: str) -> None:
    with plate_tab(browser, tmp_path, slug, width=1440) as tab:
        for i in range(len(plate_of(slug)["kinds"])):
            if i:
                press(tab, ".plate-kinds button", i)
                wait_until_drawn(tab)
            assert tab.evaluate(CROSSED_LABELS) == []


@pytest.mark.parametrize("slug", ["deepseek-v3", "qwen3-next-80b-a3b"])
def test_mixtures_are_composed_on_phones(browser: Any, tmp_path: Path, slug: str) -> None:
    with plate_tab(browser, tmp_path, slug, width=390) as tab:
        for i in range(len(plate_of(slug)["kinds"])):
            press(tab, ".plate-kinds button", i)
            wait_until_drawn(tab)
            assert tab.locator(".layer-picture").count() == 1, "no list of steps"
            assert tab.locator(".layer-picture").bounding_box()["width"] <= 350
            assert tab.evaluate(CROSSED_LABELS) == []


def test_a_wire_joins_only_what_the_graph_joins(browser: Any, tmp_path: Path) -> None:
    for slug in ("deepseek-v3", "qwen3-next-80b-a3b"):
        stage = max(data_of(slug)["models"][0]["passes"]["prompt"], key=lambda x: int(x["times"]))
        with plate_tab(browser, tmp_path, slug) as tab:
            steps = {x["name"]: x for x in stage["steps"]}
            nodes = {name: set(own) for name, own, _ in tab.evaluate(NODES)}
            for node, own in nodes.items():
                tab.focus(f".layer-picture [data-node='{node}']")
                lit = {name for name, _, is_lit in tab.evaluate(NODES) if is_lit}
                near = (
                    own
                    | {y for x in own for y in steps[x]["takes"]}
                    | {x for x, y in steps.items() if own & set(y["takes"])}
                )
                assert lit == {name for name, found in nodes.items() if near & found}, node


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3"])
def test_listed_steps_stand_below_what_they_take(browser: Any, tmp_path: Path, slug: str) -> None:
    """In an order in which they can run; of the outputs read further down, two at most are on their way."""
    stage = next(x for x in data_of(slug)["models"][0]["passes"]["prompt"] if x["layers"])
    takes = {x["name"]: x["takes"] for x in stage["steps"]}
    with plate_tab(browser, tmp_path, slug, "#layer=0&zoom=attn", width=1440) as tab:
        names = [name for name, _ in tab.evaluate(ROWS)]
        lanes = "document.querySelector('.block-rails').width.baseVal.value"
        if slug == "llama-3-8b":
            assert names[1:7] == [
                f"attn.{x}" for x in ("q", "q_rope", "k", "k_rope", "keys", "scores")
            ]
            assert tab.evaluate(lanes) <= 18 + 12 * 3, "the stream and two"
    for i, name in enumerate(names):
        assert not set(takes[name]) & set(names[i:]), name


def test_steps_open_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with plate_tab(
        browser, tmp_path, "llama-3-8b", "#context=1000&batch=2&zoom=attn", width=1100
    ) as tab:
        tab.focus("[data-step='attn_norm']")
        tab.keyboard.press("Enter")
        assert "[2, 1000, 4096]" in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate("document.activeElement.dataset.step") == "attn.q"
        tab.keyboard.press("Enter")
        content = tab.text_content("dialog[open]")
        for part in (
            "attn.q.weight: H·h·d",
            "32·128·4,096",
            "16,777,216 parameters",
            "2·B·T·H·h·d",
            "2·2·1,000·32·128·4,096",
            "67,108,864,000 FLOPs",
        ):
            assert part in content
        tab.keyboard.press("Escape")
        assert tab.evaluate("document.activeElement.dataset.step") == "attn.q"
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert "rotated by position" in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        tab.focus("[data-step='attn.scores']")
        tab.keyboard.press("Enter")
        content = tab.text_content("dialog[open]")
        assert (
            "A: query-key pairs = ⌊(T·T + T) / 2⌋" in content
            and f"{2 * 2 * 32 * 128 * (1000 * 1001 // 2):,} FLOPs" in content
        )
        assert "4 query heads for each of key and value heads" in content


def test_zoom_goes_down_to_a_head_and_back(browser: Any, tmp_path: Path) -> None:
    with plate_tab(browser, tmp_path, "llama-3-8b", reduced_motion="reduce") as tab:
        title = "document.querySelector('.plate-path [aria-current]').textContent"
        tab.focus(".layer-picture [data-node='attn.q']")
        tab.keyboard.press("Enter")
        assert tab.evaluate(title) == "attn.q" and "zoom=attn%2Fattn.q" in tab.url
        focused = "document.activeElement.closest('.plate-path')?.querySelector('[aria-current]').textContent"
        assert tab.evaluate(focused) == "attn.q"
        tab.evaluate("document.activeElement.blur()")
        for at in ("attention", "Layer 16", "Llama 3 8B"):
            tab.keyboard.press("Escape")
            assert tab.evaluate(title) == tab.evaluate(focused) == at
        for _ in range(3):
            tab.go_back()
        assert tab.evaluate(title) == "attn.q"
        assert tab.locator("[data-head]").count() == 32
        facts = {
            x: tab.text_content(f"[data-matrix-fact={x}]")
            for x in ("shape", "parameters", "flops", "bytes")
        }
        assert "4,096 × 4,096" in facts["shape"] and "16,777,216" in facts["parameters"]
        assert "33,554,432" in facts["flops"] and "33,554,432" in facts["bytes"]
        for name in (
            "layers.{l}.attn.q.weight",
            "model.layers.{l}.self_attn.q_proj.weight",
            "blk.{l}.attn_q.weight",
        ):
            assert name in tab.text_content(".matrix-facts")
        tab.focus("[data-head='0']")
        for _ in range(5):
            tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert tab.evaluate(title) == "head 5"
        assert tab.text_content(".head-view p") == "Head 5 reads KV head 1, as heads 4–7 do."
        rows = tab.eval_on_selector_all(
            "[data-head-weight] svg", "xs => xs.map((x) => x.getAttribute('aria-label'))"
        )
        assert rows == [
            "attn.q.weight: rows 640 to 767",
            "attn.k.weight: rows 128 to 255",
            "attn.v.weight: rows 128 to 255",
            "attn.o.weight: columns 640 to 767",
        ]
        for expected in ("attn.q", "Layer 16"):
            tab.go_back()
            assert tab.evaluate(title) == expected
        tab.keyboard.press("Tab")
        tab.focus(".layer-picture [data-node='attn.q']")
        tab.keyboard.press("-")
        assert tab.evaluate(title) == "Llama 3 8B" and not tab.locator(".plate-panel").count()
        tab.click("[aria-label='Zoom in']")
        assert tab.evaluate(title) == "Layer 16"
        go_to(tab, "#shapes=letters")
        text = tab.text_content(".layer-picture")
        for part in ("stream, d wide", "H query heads", "K KV heads", "/√h"):
            assert part in text
        assert not re.search(r"\d", text)
        go_to(tab, "#")
        box = tab.locator(".layer-picture [data-matrix='attn.o.weight']").bounding_box()
        tab.mouse.move(box["x"] + 5, box["y"] + 5)
        tab.keyboard.down("Control")
        tab.mouse.wheel(0, -200)
        tab.keyboard.up("Control")
        assert tab.evaluate(title) == "attn.o"


def test_layers_are_chosen_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with plate_tab(browser, tmp_path, "deepseek-v3") as tab:
        tab.focus(".plate-whole-wide [role=slider]")
        tab.keyboard.press("Home")
        slider = tab.locator(".plate-whole-wide [role=slider]")
        assert slider.get_attribute("aria-valuetext") == "layer 0: MLA + FFN, 583.48M parameters"
        assert tab.text_content(".plate-panel h2") == "Layer 0"
        for _ in range(3):
            tab.keyboard.press("ArrowRight")
        assert (
            slider.get_attribute("aria-valuetext")
            == "layer 3: MLA + MoE, 11.51B parameters, 585.32M active"
        )
        assert "layer=3" in tab.evaluate(
            "new Promise((done) => setTimeout(() => done(location.hash), 100))"
        )


@pytest.mark.parametrize("slug", usual("llama-3-8b", "deepseek-v3", release=["qwen3-next-80b-a3b"]))
def test_walk_counts_the_bytes_of_the_library(browser: Any, tmp_path: Path, slug: str) -> None:
    context, data = 5000, data_of(slug)["models"][0]
    with plate_tab(
        browser,
        tmp_path,
        slug,
        f"#pass=next&context={context}&dtype=bf16&kv=bf16",
        reduced_motion="reduce",
    ) as tab:
        assert not tab.locator("[data-flow=play]").count()
        steps = int(tab.evaluate("llamath.data.models[0].passes.next.length"))
        assert steps > 2
        layer = int(tab.text_content(".plate-panel h2").split()[1])
        kind = plate_of(slug)["kinds"][
            [k for k, n in plate_of(slug)["order"] for _ in range(n)][layer]
        ]
        tab.click("[data-flow=next]")
        total = int(tab.text_content(".flow-text strong").partition(" of ")[2].partition(":")[0])
        for _ in range(total - 1):
            press(tab, "[data-flow=next]")
        weights = 2 * int(kind["sizes"]["active"])
        listed = data["layers"]["kinds"][data["layers"]["order"][layer]]
        cached = evaluate(
            listed["cache"], {"T": context, "B": 1, "kv_block": 1, "kv_bytes": 2, "conv_bytes": 2}
        )
        short = tab.evaluate(
            "([a, b]) => [a, b].map((n) => llamath.shortBytes(n))", [weights, cached]
        )
        fp32_kept = slug == "qwen3-next-80b-a3b"  # its decay parameters stay in fp32
        assert fp32_kept or tab.text_content("[data-flow=weights]").endswith(f": {short[0]}")
        assert tab.text_content("[data-flow=cache]").endswith(f": {short[1]}")
        layers = [data["layers"]["kinds"][i] for i in data["layers"]["order"]]
        values = {"T": context, "B": 1, "kv_block": 1, "kv_bytes": 2, "conv_bytes": 2}
        assert (
            sum(evaluate(x["cache"], values) for x in layers)
            == kv_cache_size(model_of(slug).tree, context, 1).bytes
        )


def test_walk_stops_and_starts(browser: Any, tmp_path: Path) -> None:
    with plate_tab(browser, tmp_path, "llama-3-8b", "#pass=next") as tab:
        assert not tab.locator(".layer-picture.has-active").count()
        tab.click("[data-flow=play]")
        tab.wait_for_selector(".layer-picture.has-active")
        tab.click("[data-flow=play]")
        shown = tab.text_content(".flow-text strong")
        tab.click("[data-flow=next]")
        assert tab.text_content(".flow-text strong") != shown
        tab.click("[data-flow=stop]")
        assert not tab.locator(".layer-picture.has-active").count()


OUT_OF_SIGHT = """async () => {
  const wrong = [];
  const place = (x) => x.getBoundingClientRect();
  for (let last = false; !last; ) {
    document.querySelector("[data-flow=next]").click();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const [bar, header] = [".flow", "header"].map((x) => place(document.querySelector(x)));
    const step = document.querySelector(".flow-text strong").textContent;
    last = /^(\\d+) of \\1:/.test(step);
    if (bar.top < 0 || bar.bottom > innerHeight + 1) wrong.push(`${step}: its controls`);
    const lit = [...document.querySelectorAll(".plate-panel .active")];
    if (!lit.length) wrong.push(`${step}: nothing is lit`);
    for (const box of lit.map(place))
      if (box.top < header.bottom - 1 || box.bottom > bar.top + 1) wrong.push(step);
  }
  return wrong;
}"""
"""Walks from the first step to the last; returns those whose lit part, or whose controls, one does not see."""


@pytest.mark.parametrize(
    "slug",
    usual(
        "deepseek-v3",
        "qwen3-next-80b-a3b",
        "embedded",
        release=["gemma-3-27b", "gpt-oss-20b", "llama-3-8b"],
    ),
)
def test_walk_stays_in_view(browser: Any, tmp_path: Path, slug: str) -> None:
    with plate_tab(browser, tmp_path, slug, "#pass=next", reduced_motion="reduce") as tab:
        for width, height in ((1440, 900), (1024, 768), (768, 1024), (390, 844)):
            tab.set_viewport_size({"width": width, "height": height})
            wait_until_drawn(tab)
            if width == 1440:  # before the first step, nothing lies over the picture
                bar, picture = (
                    tab.locator(x).first.bounding_box() for x in (".flow", ".layer-picture")
                )
                assert picture["y"] + picture["height"] <= bar["y"] + 1
            assert tab.evaluate(OUT_OF_SIGHT) == [], width
            press(tab, "[data-flow=stop]")


def test_unknown_levels_of_an_address_are_ignored(browser: Any, tmp_path: Path) -> None:
    """Of a page that is loaded, and of one whose address changes."""
    first, *others = (
        "#zoom=nothing",
        "#zoom=attn/nothing/3",
        "#zoom=attn/attn.q/99",
        "#layer=9999999",
        "#zoom=%3Cimg%3E",
        "#layer=-1",
    )
    shown = lambda: tab.text_content(".plate-panel h2")  # noqa: E731
    with plate_tab(browser, tmp_path, "llama-3-8b", first) as tab:
        assert shown().startswith("Layer 16")
        for at in others:
            go_to(tab, "#layer=3")
            assert shown().startswith("Layer 3")
            go_to(tab, at)
            assert shown().startswith("Layer 16"), at


def test_stream_has_its_name_and_width_in_both_directions(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        for _ in at_widths(tab, 1440, 390):
            label = tab.locator(".layer-picture text", has_text="residual stream, 4,096 wide")
            assert label.count() == 1 and label.is_visible()
        go_to(tab, "#layer=embedding")
        for _ in at_widths(tab, 1100):
            label = tab.locator(".layer-picture text", has_text="residual stream, 4,096 wide")
            assert label.is_visible() and tab.locator(".layer-picture .stream").count() == 1


def test_first_screen_marks_numbers_that_open(browser: Any, tmp_path: Path) -> None:
    line = "getComputedStyle(document.querySelector('.hero .number')).textDecoration"
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        before = tab.evaluate(line)
        assert "dotted" in before and "rgba(0, 0, 0, 0)" not in before
        tab.hover(".hero .number >> nth=0")
        assert tab.evaluate(line) != before
