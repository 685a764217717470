"""Two models side by side: sizes equal the library's, causes sum to the difference, and every number opens its derivation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.fit.fit_report import fit
from llamath.analysis.size.fit.fit_rules import headroom_of
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.understand.diff.model_diff import diff
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.hardware import find_device
from llamath.web.server.page_html import page_from_data
from support.browser_page import Tab, at_widths, browser, go_to, wait_until_drawn
from support.page_models import data_of, page_of
from support.page_numbers import unexplained_numbers

__all__ = ["browser"]
PAIRS = [
    ("llama-2-7b", "llama-3-8b"),
    ("deepseek-v3", "qwen3-next-80b-a3b"),
    ("gpt2", "gpt-oss-20b"),
    ("mistral-7b", "mixtral-8x7b"),
]


def number(text: str) -> int:
    return int(text.rpartition(": ")[2].replace(",", "").replace("−", "-").replace("+", ""))


COVERED = """() => {
  const texts = [...document.querySelectorAll('#opened svg text')].map((x) => [x.textContent, x.getBoundingClientRect()]);
  return [...document.querySelectorAll('#opened .mark-badge circle')].flatMap((x) => {
    const a = x.getBoundingClientRect();
    return texts.filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top + 4 < a.bottom).map(([text]) => text);
  });
}"""
"""Labels of the layers that a badge lies on."""


@pytest.mark.parametrize("pair", PAIRS)
def test_waterfall_leads_from_one_total_to_the_other(
    browser: Any, tmp_path: Path, pair: tuple[str, str]
) -> None:
    a, b = map(llamath.load, pair)
    report = diff(a, b)
    with Tab(browser, tmp_path, page_of(*pair)) as tab:
        first, *deltas, last = map(
            number, tab.locator(".waterfall tr:not(.axis) td.n").all_text_contents()
        )
        assert (first, last) == (a.parameters.total, b.parameters.total)
        assert deltas == [x.delta for x in report.causes] and first + sum(deltas) == last
        assert number(tab.text_content("[data-part=delta]")) == report.delta
        for x in report.causes:
            if x.label == "experts instead of an FFN":
                bar = tab.locator(".waterfall tr", has_text=x.label).locator("td.bar svg")
                assert bar.locator("text").all_text_contents() == ["Routed experts"]
                assert bar.locator(".data").get_attribute("fill") == "var(--c-experts)"
        along = [x for x in report.causes if (x.delta > 0) is (report.delta > 0)]
        along.sort(key=lambda x: abs(x.delta), reverse=True)
        heading = tab.text_content("#causes-title")
        named = [x.cause for x in along]
        # the largest first
        assert heading.index(named[0]) == min(heading.index(x) for x in named if x in heading)


def test_method_stands_clear_of_what_is_not_counted(browser: Any, tmp_path: Path) -> None:
    page = page_of("llama-2-7b", "llama-3-8b")
    with Tab(browser, tmp_path, page, "#view=difference", width=1440) as tab:
        for width in at_widths(tab, 1440, 390):
            method, box = (tab.locator(x).bounding_box() for x in (".method", ".method + .callout"))
            assert box["y"] - method["y"] - method["height"] >= 8, width


def test_bars_are_to_the_scale_of_the_stated_axis(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), width=1440) as tab:
        assert "in part offset by fewer KV heads" in tab.text_content("#causes-title")
        # how it was measured stands below the picture
        assert tab.evaluate(
            "document.querySelector('.waterfall').getBoundingClientRect().bottom <= document.querySelector('#causes .method').getBoundingClientRect().top"
        )
        assert re.search(
            r"The axis starts at 6\.\d+B parameters, where the bars are broken",
            tab.text_content("#causes"),
        )
        widths = tab.evaluate(
            "[...document.querySelectorAll('.waterfall tr:not(.total, .axis) td.bar svg')].map((x) => { const b = [...x.querySelectorAll('.data')].map((y) => y.getBBox()); return Math.max(...b.map((y) => y.x + y.width)) - Math.min(...b.map((y) => y.x)); })"
        )
        deltas = [
            abs(number(x))
            for x in tab.locator(".waterfall tr:not(.total, .axis) td.n").all_text_contents()
        ]
        ratios = [width / delta for width, delta in zip(widths, deltas, strict=True)]
        assert max(ratios) / min(ratios) < 1.02
    with Tab(browser, tmp_path, page_of("deepseek-v3", "qwen3-next-80b-a3b"), width=1440) as tab:
        assert "broken" not in tab.text_content("#causes")


@pytest.mark.parametrize("pair", PAIRS)
def test_sizes_equal_the_library(browser: Any, tmp_path: Path, pair: tuple[str, str]) -> None:
    models = [llamath.load(x) for x in pair]
    data = data_of(*pair)
    tokens = min(x.tree.context for x in models)
    is_sparse = any(x.parameters.has_sparse_layers for x in models)
    with Tab(browser, tmp_path, page_from_data(data), "#dtype=bf16&kv=bf16") as tab:
        cells = tab.evaluate(
            "[...document.querySelectorAll('.measures tbody tr')].map((x) => [...x.querySelectorAll('td')].map((y) => y.textContent.split(': ').pop()))"
        )
        for i, model in enumerate(models):
            memory = MemoryCalculator(model, MemoryRequest(dtype="bf16", kv_dtype="bf16")).at(
                tokens, 1
            )
            expected = [
                f"{model.parameters.total:,}",
                *([f"{model.parameters.active:,}"] if is_sparse else []),
                f"{memory.weights / 2**30:,.2f} GiB",
                f"{memory.kv_cache / 2**30:,.2f} GiB",
                f"{int(llamath.flops(model, context=tokens).decode.total):,}",
            ]
            assert [x[i] for x in cells[:-1]] == expected, pair[i]
        assert f"{tokens:,} tokens" in tab.text_content(".measures")


def test_a_ghost_has_the_size_of_the_other_model(browser: Any, tmp_path: Path) -> None:
    sizes = "(side) => Object.fromEntries([...document.querySelectorAll('.shapes')[side].querySelectorAll('.matrix')].map((x) => [x.querySelector('.bold').textContent, ['.own', '.ghost'].map((y) => { const b = x.querySelector(y)?.getBBox(); return b && [Math.round(b.width), Math.round(b.height)]; })]))"
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), width=1440) as tab:
        a, b = tab.evaluate(sizes, 0), tab.evaluate(sizes, 1)
        assert set(a) == set(b) == {"embed", "head", "q", "k", "v", "o", "gate", "up", "down"}
        for name in a:
            own, ghost = a[name]
            assert (ghost is None) == (name in ("q", "o")) and (ghost or own) == b[name][0], name
        assert abs(a["k"][0][1] / b["k"][0][1] - 4) < 0.2
    with Tab(browser, tmp_path, page_of("deepseek-v3", "qwen3-next-80b-a3b"), width=1440) as tab:
        assert (
            tab.evaluate(sizes, 0)["query"][0] is None
            and tab.evaluate(sizes, 0)["query"][1] is not None
        )


@pytest.mark.parametrize("pair", [("llama-2-7b", "llama-3-8b"), ("deepseek-v3", "llama-3-8b")])
def test_pair_begins_with_the_smallest_hardware_of_both(pair: tuple[str, str]) -> None:
    at = data_of(*pair)["settings"]
    card, count = at["card"][0], int(at["gpus"][0])
    alone = [fact_sheet(llamath.load(x)).runs_on[0].gpu for x in pair]
    most = max((x for x in alone if x), key=lambda x: (x.count, x.nominal))
    assert (card, count) == (most.device.name, most.count)
    for slug in pair:
        assert llamath.fit(slug, on=f"{count}x{card}", context=int(at["context"][0])).fits


def test_speed_is_only_of_what_fits(browser: Any, tmp_path: Path) -> None:
    at, text = "#card=h100-sxm&gpus=16", page_of("deepseek-v3", "qwen3-next-80b-a3b")
    with Tab(browser, tmp_path, text, at) as tab:
        assert tab.text_content("#memory .title").count("GiB on each of 16 GPUs") == 2
        row = tab.locator(".measures tbody tr").last.text_content()
        gpus = re.search(r"upper bound on (\d+) × H100", row)
        assert gpus is not None and row.count("tokens/s") == 2 and "does not fit" not in row
    request, gpu = MemoryRequest(context=163_840), find_device("h100-sxm")
    calculators = [MemoryCalculator(llamath.load(x), request) for x in PAIRS[1]]
    # the fewest that run both
    assert [
        all(headroom_of(gpu.memory, fit(x, gpu, count).total) >= 0 for x in calculators)
        for count in (int(gpus[1]), int(gpus[1]) // 2)
    ] == [True, False]


def test_a_model_with_itself_is_said_to_be_the_same(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b", "llama-3-8b")) as tab:
        assert "These are the same model" in tab.text_content("main")
        assert tab.locator(".waterfall").count() == 0 and tab.locator(".sheets").count() == 1


@pytest.mark.parametrize("pair", [PAIRS[0], PAIRS[1]])
def test_every_number_has_a_derivation(browser: Any, tmp_path: Path, pair: tuple[str, str]) -> None:
    data = data_of(*pair)
    excluded = [
        ".waterfall .axis",  # ticks
        ".cause, .waterfall .caption",  # the numbers of a cause, which its derivation repeats
        ".measures .caption",  # settings
    ]
    with Tab(browser, tmp_path, page_from_data(data), width=1440) as tab:
        go_to(tab, "#view=difference&batch=2")
        tab.evaluate("document.querySelectorAll('.folded').forEach((x) => { x.open = true })")
        left = [
            y
            for within in (".waterfall", ".measures", "#aligned tbody")
            for y in unexplained_numbers(tab, data, "#view=difference&batch=2", within, excluded)
        ]
        left = [
            x
            for x in left
            if not (x[-1].startswith('<td role="cell" data-label') and "no key" in x)
        ]
    assert not left, left


@pytest.mark.parametrize("pair", PAIRS[:3])
def test_nothing_is_cut_off(browser: Any, tmp_path: Path, pair: tuple[str, str]) -> None:
    cut = """() => [...document.querySelectorAll('#causes svg text, #opened svg text, #shapes svg text')].filter((x) => {
      const [a, b] = [x.getBoundingClientRect(), x.closest('svg').getBoundingClientRect()];
      return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1 || parseFloat(getComputedStyle(x).fontSize) < 12;
    }).map((x) => x.textContent)"""
    numbers = "[...document.querySelectorAll('#causes .number, #opened .number, #opened td, #sizes .number, #facts td, #aligned .number, #configs td')].filter((x) => { const b = x.getBoundingClientRect(); return b.width && (b.left < 0 || b.right > innerWidth + 1); }).map((x) => x.textContent)"
    with Tab(browser, tmp_path, page_of(*pair), width=390, unfold=False) as tab:
        # a phone begins with the findings
        assert tab.locator("#opened svg, #shapes svg").count() == 0
        tab.evaluate("document.querySelectorAll('.unfold').forEach((x) => x.click())")
        wait_until_drawn(tab)
        for width in at_widths(tab, 320, 390, 768, 1024, 1440):
            assert tab.evaluate(cut) == [], width
            assert tab.evaluate(numbers) == [], width


@pytest.mark.parametrize("pair", PAIRS)
def test_opened_layers_differ_as_the_library_says(
    browser: Any, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """Every step of both layers corresponds or is only in one, and the differences sum to that of the layers."""
    data = data_of(*pair)
    with Tab(browser, tmp_path, page_from_data(data), width=1440) as tab:
        kinds = tab.evaluate(
            "[0, 1].map((i) => document.querySelector(`#kind-${i}`)?.value ?? '0')"
        )
        models = [
            (x["plate"]["kinds"][int(kind)], x["passes"]["prompt"])
            for x, kind in zip(data["models"], kinds, strict=True)
        ]
        stages = [passes[kind["stage"]] for kind, passes in models]
        sizes = [int(kind["sizes"]["parameters"]) for kind, _ in models]
        assert [number(tab.text_content(f"[data-opened='{i}']")) for i in (0, 1)] == sizes
        assert number(tab.text_content("[data-opened=delta]")) == sizes[1] - sizes[0]
        steps = [{x["name"]: x for x in stage["steps"]} for stage in stages]
        shown = tab.evaluate(
            "[...document.querySelectorAll('[data-step-pair]')].map((x) => [x.dataset.stepPair, x.querySelector('.number')?.textContent ?? '', x.querySelector('.mark-text').textContent])"
        )
        for name, delta, mark in shown:
            a, b = (x.get(name) for x in steps)
            assert (mark == "+") == (a is None or b is None), name
            expected = int(b["parameters"] if b else 0) - int(a["parameters"] if a else 0)
            assert (number(delta) if delta else 0) == expected, name
        for name in set(steps[0]) | set(steps[1]) - {x[0] for x in shown}:
            a, b = (x.get(name) for x in steps)
            if name not in {x[0] for x in shown}:
                assert (
                    a
                    and b
                    and a["parameters"] == b["parameters"]
                    and [x["shape"] for x in a["uses"]] == [x["shape"] for x in b["uses"]]
                )
        scales = tab.eval_on_selector_all(
            "#opened .layer-picture", "xs => xs.map((x) => x.dataset.scale)"
        )
        assert len(scales) == 2 and scales[0] == scales[1]


def test_opened_layers_mark_each_matrix(browser: Any, tmp_path: Path) -> None:
    marks = """(i) => Object.fromEntries([...document.querySelectorAll('#opened .layer-picture')[i].querySelectorAll('[data-matrix]')].map((x) => {
      const box = (y) => { const b = x.querySelector(y)?.getBBox(); return b && [b.width, b.height].map(Math.round); };
      return [x.dataset.matrix, [x.querySelector('.mark-badge') ? 'marked' : 'same', box('.own'), box('.ghost')]];
    }))"""
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), width=1440) as tab:
        a, b = tab.evaluate(marks, 0), tab.evaluate(marks, 1)
        assert (
            set(a)
            == set(b)
            == {
                f"{x}.weight"
                for x in ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down")
            }
        )
        for path, (mark, own, ghost) in a.items():
            same = path in ("attn.q.weight", "attn.o.weight")
            assert (
                (mark == "same") == same == (ghost is None)
                and (ghost or own) == b[path][1]
                and (b[path][2] or own) == own
            ), path
        for width in at_widths(tab, 1280, 1440):
            left, right = (tab.locator(".opened-layer").nth(i).bounding_box() for i in (0, 1))
            assert left["y"] == right["y"] and max(left["height"], right["height"]) < 780, width
        assert "Of 7 matrices, 2 are the same, 5 differ in size" in tab.text_content(
            "#opened-title"
        )
        tab.focus("#opened .layer-picture [data-node='attn.q']")
        label = tab.get_attribute("#opened .layer-picture [data-node='attn.q']", "aria-label")
        assert "same in the other model" in label
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("Enter")
        assert "32·128·4,096" in tab.text_content(
            "dialog[open]"
        ) or "8·128·4,096" in tab.text_content("dialog[open]")


def test_corresponding_layers_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3", "qwen3-next-80b-a3b"), width=1440) as tab:
        chosen = (
            "[0, 1].map((i) => document.querySelector(`#kind-${i}`).selectedOptions[0].textContent)"
        )
        assert tab.evaluate(chosen) == ["58 × MLA + MoE", "12 × attention + MoE"]
        tab.select_option("#kind-1", label="36 × DeltaNet + MoE")
        assert tab.evaluate(chosen) == ["58 × MLA + MoE", "36 × DeltaNet + MoE"]
        tab.select_option("#kind-0", label="3 × MLA + FFN")
        assert tab.evaluate(chosen)[0] == "3 × MLA + FFN"
        assert "Not here, but in" in tab.text_content("#opened")
        assert tab.locator("#opened .mark-badge").count() > 10 and tab.evaluate(COVERED) == []


def test_both_pictures_are_shown(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("deepseek-v3", "qwen3-next-80b-a3b"), width=1440) as tab:
        assert tab.locator("#pictures figure .sub").all_text_contents() == [
            "DeepSeek V3",
            "Qwen3 Next 80B A3B",
        ]
        assert tab.locator("#pictures figure svg").count() >= 2


@pytest.mark.parametrize(
    "pair",
    [("llama-2-7b", "llama-3-8b"), ("deepseek-v3", "qwen3-next-80b-a3b")],
)
def test_bars_of_both_models_are_in_one_scale(
    browser: Any, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """A layer, and an embedding that is not drawn broken, are as high as their parameters, in both."""
    heights = """(kinds) => [...document.querySelectorAll('#pictures .skyline')].map((x, i) => {
      const bars = x.querySelector(`[data-bars="${kinds[i]}"]`);
      const parts = [bars, x.querySelector('[data-part-name] path')];
      return parts.map((y) => y.getBBox().height);
    })"""
    plates = [x["plate"] for x in data_of(*pair)["models"]]
    kinds = [x["order"][-1][0] for x in plates]
    with Tab(browser, tmp_path, page_of(*pair), width=1440) as tab:
        shown = tab.evaluate(heights, kinds)
    scales = []
    for plate, kind, found in zip(plates, kinds, shown, strict=True):
        last = int(plate["kinds"][kind]["sizes"]["parameters"])
        scales += [last / found[0], int(plate["before"][0]["parameters"]) / found[1]]
    assert scales == pytest.approx([scales[0]] * 4, rel=0.02)


def test_models_are_named_above_their_costs(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), width=1440) as tab:
        heads = tab.locator(".measures thead th")
        assert heads.all_inner_texts()[1:] == ["Llama 2 7B", "Llama 3 8B", "ratio"]
        right = [heads.nth(i).bounding_box() for i in (1, 2)]
        cells = [tab.locator(".measures tbody td").nth(i).bounding_box() for i in (0, 1)]
        assert [x["x"] for x in right] == [x["x"] for x in cells]
        assert all(x["height"] > 12 for x in right)


def test_embedding_maps_the_vocabulary_to_the_width(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), "#view=a", width=1440) as tab:
        go_to(tab, "#view=a&layer=embedding&shapes=numbers")
        assert "32,000 → 4,096" in tab.text_content(".plate-panel")
        go_to(tab, "#view=a&layer=head&shapes=numbers")
        assert "4,096 → 32,000" in tab.text_content(".plate-panel")
        go_to(tab, "#view=difference&section=shapes")
        table = tab.locator("#aligned tr", has_text="embed.weight")
        assert table.text_content().count("→ 4,096") == 2
        assert tab.locator("[aria-label^='embed: 32,000 → 4,096, 128,256 → 4,096']").count()
