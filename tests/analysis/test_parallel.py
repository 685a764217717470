"""Layouts: splits match transformers' own plans, shards join to the whole, and indivisible dimensions are named."""

from __future__ import annotations

import re
from collections import Counter
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.storage.parallel_layout import (
    check_layout,
    layout_problems,
    pipeline_stages,
    slice_layers,
    weight_shards,
)
from llamath.core.blocks import Block, Norm
from llamath.core.tree import Stack, fold, walk
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError


def test_stage_without_the_first_use_copies_shared_blocks() -> None:
    tree = llamath.load("zamba-7b").tree
    layout = Layout(pp=2)
    first, last = (
        sum(x.elements for x in weight_shards(tree, stage, layout))
        for stage in pipeline_stages(tree, layout)
    )
    shared = sum(int(x.weight.size) for x in fold(tree.layers[2].shared))  # type: ignore[attr-defined]
    assert first + last == llamath.load("zamba-7b").parameters.total + shared + int(
        tree.embed.weight.size
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_stages_copy_layers_of_earlier_passes(depth: int) -> None:
    """Each stage has once what its layers of both passes need."""
    tree, layout = llamath.load("nanbeige-4.2-3b").tree, Layout(pp=depth)
    each = sum(int(x.weight.size) for x in fold(tree.layers[0]))
    for stage in pipeline_stages(tree, layout):
        shards = weight_shards(tree, stage, layout)
        layers = {i % 22 for first, last in stage.runs for i in range(first, last)}
        held = sum(x.elements for x in shards if x.pattern.startswith("layers."))
        assert held == len(layers) * each


def test_every_declared_split_names_a_field() -> None:
    def kinds(one: type[Block]) -> list[type[Block]]:
        return [one, *(y for x in one.__subclasses__() for y in kinds(x))]

    for kind in kinds(Block):
        for name, cut in kind.cuts.items():
            assert name in kind.fields and (not cut.parts or cut.parts in kind.fields), (kind, name)
        assert kind.expert_parallel <= set(kind.fields)
        assert not (issubclass(kind, Norm) and kind.cuts)


@pytest.mark.parametrize(
    "slug, layout, message",
    [
        ("llama-1-30b", Layout(tp=3), "TP 3: 52 heads"),
        ("llama-3-8b", Layout(tp=64), "TP 64: 32 heads"),
        ("llama-3-8b", Layout(pp=64), "PP 64: 32 layers"),
        ("llama-3-8b", Layout(ep=2), "EP 2: the model has no experts"),
        ("mixtral-8x7b", Layout(ep=3, dp=3), "EP 3: 8 experts"),
        ("mixtral-8x7b", Layout(ep=8, dp=4), "EP 8: not a divisor of the 4 ranks"),
        ("llama-3-8b", Layout(tp=0), "TP 0: at least 1"),
        ("llama-3-8b", Layout(pp=4, interleave=2, microbatches=6), "interleave 2: 6 microbatches"),
    ],
)
def test_indivisible_dimensions_are_named(slug: str, layout: Layout, message: str) -> None:
    with pytest.raises(LlamathError, match=re.escape(message)):
        check_layout(llamath.load(slug).tree, layout)


def test_tensor_parallel_degrees_of_llama_30b() -> None:
    tree = llamath.load("llama-1-30b").tree
    assert [
        n
        for n in range(1, 53)
        if not any("heads" in x for x in layout_problems(tree, Layout(tp=n)))
    ] == [1, 2, 4, 13, 26, 52]
    assert [x.layers for x in pipeline_stages(tree, Layout(pp=3))] == [20, 20, 20]


def test_stages_of_llama_405b_match_its_paper() -> None:
    tree = llamath.load("llama-3.1-405b").tree
    assert [x.layers for x in pipeline_stages(tree, Layout(pp=16))] == [7, *[8] * 14, 7]
    stages = pipeline_stages(tree, Layout(pp=16, interleave=8))
    assert [x.layers for x in stages] == [7, *[8] * 14, 7]
    assert sorted(i for x in stages for a, b in x.runs for i in range(a, b)) == list(range(126))


def shard_shapes(slug: str, layout: Layout) -> dict[str, tuple[int, ...]]:
    tree = llamath.load(slug).tree
    return {
        x.pattern: x.shape for x in weight_shards(tree, pipeline_stages(tree, layout)[0], layout)
    }


def test_shard_shapes_from_issue_reports() -> None:
    assert shard_shapes("llama-2-7b", Layout(tp=8))["embed.weight"] == (
        4000,
        4096,
    )  # optimum-neuron#368
    assert shard_shapes("llama-2-13b", Layout(tp=2))["layers.{l}.attn.q.weight"] == (
        2560,
        5120,
    )  # slowllama#16


def test_kv_heads_are_copied_to_more_ranks() -> None:
    by_pattern = shard_shapes("llama-3-8b", Layout(tp=16))
    assert by_pattern["layers.{l}.attn.k.weight"] == (128, 4096) and by_pattern[
        "layers.{l}.attn.q.weight"
    ] == (256, 4096)


def test_vocabulary_is_padded() -> None:
    assert shard_shapes("gpt2", Layout(tp=4))["embed.weight"] == (-(-50257 // 4), 768)


@pytest.mark.parametrize(
    "layout", [Layout(ep=8, dp=8), Layout(ep=4, dp=2, tp=4, etp=2), Layout(ep=2, tp=2, dp=2)]
)
def test_experts_are_distributed(layout: Layout) -> None:
    tree = llamath.load("mixtral-8x7b").tree
    check_layout(tree, layout)
    (stage,) = pipeline_stages(tree, layout)
    experts = sum(x.elements for x in weight_shards(tree, stage, layout) if x.is_expert)
    assert (
        experts * layout.ep * layout.expert_tp
        == llamath.load("mixtral-8x7b").count.groups["experts"]
    )


def test_stages_together_have_the_whole_model() -> None:
    for slug, copies in (("llama-3-8b", 0), ("llama-3.2-1b", 128256 * 2048)):
        model = llamath.load(slug)
        layout = Layout(pp=4)
        sharded = sum(
            x.elements
            for stage in pipeline_stages(model.tree, layout)
            for x in weight_shards(model.tree, stage, layout)
        )
        assert sharded == model.parameters.total + copies


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4), st.data())
@pytest.mark.slow
def test_slice_layers_matches_a_slice(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    blocks = [Norm(eps=float(i)) for i in range(4)]
    stack = Stack(
        *(
            (tuple(data.draw(st.sampled_from(blocks)) for _ in range(period)), times)
            for period, times in runs
        )
    )
    a = data.draw(st.integers(0, len(stack)))
    b = data.draw(st.integers(a, len(stack)))
    counted: Counter[float] = Counter()
    for block, n in slice_layers(stack, a, b):
        counted[block.eps] += n  # type: ignore[attr-defined]
    assert counted == Counter(x.eps for x in list(stack)[a:b])  # type: ignore[attr-defined]


def test_shards_agree_with_folded_weights() -> None:
    tree = llamath.load("deepseek-v3").tree
    (stage,) = pipeline_stages(tree, Layout())
    assert sum(x.elements for x in weight_shards(tree, stage, Layout())) == sum(
        prod(map(int, x.shape)) for x in walk(tree) if not x.weight.tied
    )
