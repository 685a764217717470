"""The block diagram is well-formed, shows every step with its shape, and no edge crosses a box."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest

import llamath
from llamath.analysis.graph.step_table import format_shape
from llamath.analysis.graph.walkthrough import decode_graph, prompt_graph, reads_on, walkthrough
from llamath.render.svg.block_layout import layout_block
from llamath.render.svg.block_svg import block_svg
from llamath.render.svg.svg_shapes import truncate_text
from support.each_case import each
from support.reference_data import TINY, tiny_configs

SVG = "{http://www.w3.org/2000/svg}"
SHOWN = ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt2"]


def tiny_config_params() -> list[Any]:
    return list(
        {x.values[0]["model_type"]: x for x in reversed(tiny_configs(computed=True))}.values()
    )


@each("config", tiny_config_params())
@pytest.mark.slow
def test_edges_do_not_cross_boxes(config: dict[str, Any]) -> None:
    tree = llamath.load(config).tree
    for graph in (prompt_graph(tree, 5), *([decode_graph(tree, 5)] if reads_on(tree) else [])):
        for stage in walkthrough(graph).layers:
            plan = layout_block(stage.steps)
            boxes = {(plan.rows[name], plan.lanes[name]): name for name in plan.rows}
            assert len(boxes) == len(plan.rows)
            ways: dict[tuple[int, int], str] = {}
            for edge in (x for x in plan.edges if not x.arm):
                for row in range(plan.rows[edge.source] + 1, plan.rows[edge.target]):
                    assert (row, edge.lane) not in boxes
                    assert ways.setdefault((row, edge.lane), edge.source) == edge.source
            assert {(x.source, x.target) for x in plan.edges} == {
                (name, x.name) for x in stage.steps for name in x.inputs
            }


@pytest.mark.parametrize("slug", SHOWN)
def test_every_step_is_drawn_with_its_shape(slug: str) -> None:
    model = llamath.load(slug)
    walk = walkthrough(prompt_graph(model.tree, 7))
    for stage in walk.layers:
        svg = block_svg(model, walk.replace(stages=(stage,)), stage.layer)
        root = ElementTree.fromstring(svg)
        labels = [x.text or "" for x in root.iter(f"{SVG}text")]
        for x in stage.steps:
            assert format_shape(x) in labels
            assert x.kind == "add" or any(
                y.startswith(truncate_text(x.name.replace(".{e}", ""), 210)) for y in labels
            ), x.name
        width, height = (float(root.get(name, "0")) for name in ("width", "height"))
        for x in root.iter(f"{SVG}rect"):
            assert (
                float(x.get("x", "")) >= 0
                and float(x.get("x", "")) + float(x.get("width", "")) <= width
            )
            assert (
                float(x.get("y", "")) >= 0
                and float(x.get("y", "")) + float(x.get("height", "")) <= height
            )
        assert (
            "http" not in svg.replace("http://www.w3.org/2000/svg", "")
            and "prefers-color-scheme: dark" in svg
        )


def test_grouped_heads_are_drawn() -> None:
    model = llamath.load("llama-3-8b")
    svg = block_svg(model, walkthrough(prompt_graph(model.tree, 7)))
    assert (
        svg.count("<title>query head</title>") == 32
        and svg.count("<title>key and value head</title>") == 8
    )


def test_model_name_is_escaped(tmp_path: Any) -> None:
    config = next(iter(json.loads((TINY / "llama.json").read_text()).values()))
    model = llamath.load(config).replace(name="<script>&\u202e")
    svg = block_svg(model, walkthrough(prompt_graph(model.tree, 3)))
    assert "<script>" not in svg and "\u202e" not in svg
    ElementTree.fromstring(svg)
