"""Layouts: splits match transformers' own plans, shards join to the whole, and indivisible dimensions are named."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.parallel_layout import Layout, check_layout, layout_problems, pipeline_stages, slice_layers, weight_shards
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.core.blocks import Block, Norm
from llamath.core.tree import Stack, fold, walk
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs

GATHERED = {"linear_attn.out_proj"}
"""transformers splits the outputs of this layer and gathers; Megatron and llamath split the inputs, which are already sharded."""

WHOLE = {"indexer.index_qk_proj", "input_mix_weight_down"}
"""Small matrices of Qwen4-Exp that every rank has whole here."""

OTHER_NAMES = {
    "granitemoe",
    "granitemoehybrid",
    "granitemoeshared",
    "jamba",
    "lfm2_moe",
}
"""Their plans name only experts, by their module names, or nothing that is stored under this name."""


def tp_plan_of(config: dict[str, Any]) -> dict[str, str]:
    """Return the published plan of a class: the split of each stored name, with `*` for the layer."""
    import transformers

    hf_config = transformers.AutoConfig.for_model(**config)
    return getattr(hf_config, "base_model_tp_plan", None) or {}


def split_axis_of(style: str) -> int | None:
    words = {"colwise": 0, "rowwise": 1}
    return next((n for word, n in words.items() if word in style), None)


@pytest.mark.transformers
@pytest.mark.parametrize("config", tiny_configs())
def test_splits_match_the_plans_of_transformers(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    styles = tp_plan_of(config)
    if not styles:
        pytest.skip("transformers has no plan for this class")
    splits = {x.pattern: x.split for x in fold(model.tree)}
    stored = {x.name: x for scheme in (model.family.hf, fused_scheme(model.family.hf)) if scheme for x in scheme.tensors(model.tree)}
    compared = 0
    for name, x in stored.items():
        plain = re.sub(r"\.\d+\.", ".*.", re.sub(r"^(model|backbone|transformer|gpt_neox)\.", "", name.removesuffix(".weight")))
        if (style := styles.get(plain)) is None or plain.endswith(tuple(GATHERED | WHOLE)):
            continue
        theirs = 0 if style == "embedding_rowwise" else split_axis_of(style)
        if theirs is not None and "flip" in x.layout:
            theirs = 1 - theirs
        ours = {splits[part.pattern] for part in x.parts}
        assert {s.axis if s else None for s in ours} == {theirs}, (name, style, ours)
        compared += 1
    assert compared or config["model_type"] in OTHER_NAMES


@pytest.mark.parametrize("source", tiny_configs())
def test_shards_join_to_the_whole(source: Any) -> None:
    tree = llamath.load(source).tree
    for tp in (1, 2, 4):
        layout = Layout(tp=tp)
        if layout_problems(tree, layout):
            continue
        (stage,) = pipeline_stages(tree, layout)
        whole = {x.pattern: x for x in fold(tree) if not x.weight.tied}
        sharded = Counter[str]()
        for x in weight_shards(tree, stage, layout):
            sharded[x.pattern] += x.elements
        numbers = Counter[str]()
        for x in fold(tree):
            numbers[x.pattern] += int(x.weight.parameters) * int(x.copies)
        assert set(sharded) == set(whole)
        for pattern, x in whole.items():
            if x.split is None or (x.split.on_indivisible == "copy" and x.split.parts < tp):
                continue
            spare = sharded[pattern] * tp - numbers[pattern]
            assert spare == 0 or (x.split.on_indivisible == "pad" and 0 < spare < tp * numbers[pattern] // x.split.parts), pattern


def test_stage_without_the_first_use_copies_shared_blocks() -> None:
    tree = llamath.load("zamba-7b").tree
    layout = Layout(pp=2)
    first, last = (sum(x.elements for x in weight_shards(tree, stage, layout)) for stage in pipeline_stages(tree, layout))
    shared = sum(int(x.weight.size) for x in fold(tree.layers[2].shared))  # type: ignore[attr-defined]
    assert first + last == llamath.load("zamba-7b").parameters.total + shared + int(tree.embed.weight.size)


@pytest.mark.parametrize("source", tiny_configs())
def test_every_matrix_is_split_or_declared_whole(source: Any) -> None:
    whole = re.compile(
        r"(q_down|kv_down|attn\.kv|compressor\.\w+|indexer\.(keys\.)?\w+|\w+_norm\.gate_(down|up)|router|shared_gate|latent_(down|up)|per_layer\.\w+"
        r"|projection|positions|(embed|head)\.projection|attn\.(forget|gate)_down|altup\.\w+|laurel\.\w+|expand\.{l}|contract\.{l}|\w+_hc\.\w+"
        r"|collapse\.\w+|ngrams\.\w+(\.{e})?|link|adapters\.{e}\.down|head\.dense)\.weight$"
    )
    together = source["model_type"] in ("diffllama", "zamba")  # the halves of its heads; the heads of Mamba
    for x in fold(llamath.load(source).tree):
        if x.weight.role in ("matmul", "lookup") and not (together and re.search(r"\.(attn|mixer)\.", x.pattern)):
            assert bool(x.split) != bool(whole.search(x.pattern)) or x.pattern in ("per_layer.embed.weight", "layers.{l}.mlp.table"), (
                x.pattern
            )


def test_only_per_head_norms_are_split() -> None:
    for config in tiny_configs():
        for x in fold(llamath.load(config.values[0]).tree):
            if x.group == "norm":
                assert x.split is None or len(x.weight.shape) == 2, x.pattern


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
    assert [n for n in range(1, 53) if not any("heads" in x for x in layout_problems(tree, Layout(tp=n)))] == [1, 2, 4, 13, 26, 52]
    assert [x.layers for x in pipeline_stages(tree, Layout(pp=3))] == [20, 20, 20]


def test_stages_of_llama_405b_match_its_paper() -> None:
    tree = llamath.load("llama-3.1-405b").tree
    assert [x.layers for x in pipeline_stages(tree, Layout(pp=16))] == [7, *[8] * 14, 7]
    stages = pipeline_stages(tree, Layout(pp=16, interleave=8))
    assert [x.layers for x in stages] == [7, *[8] * 14, 7]
    assert sorted(i for x in stages for a, b in x.runs for i in range(a, b)) == list(range(126))


def shard_shapes(slug: str, layout: Layout) -> dict[str, tuple[int, ...]]:
    tree = llamath.load(slug).tree
    return {x.pattern: x.shape for x in weight_shards(tree, pipeline_stages(tree, layout)[0], layout)}


def test_shard_shapes_from_issue_reports() -> None:
    assert shard_shapes("llama-2-7b", Layout(tp=8))["embed.weight"] == (4000, 4096)  # optimum-neuron#368
    assert shard_shapes("llama-2-13b", Layout(tp=2))["layers.{l}.attn.q.weight"] == (2560, 5120)  # slowllama#16


def test_kv_heads_are_copied_to_more_ranks() -> None:
    by_pattern = shard_shapes("llama-3-8b", Layout(tp=16))
    assert by_pattern["layers.{l}.attn.k.weight"] == (128, 4096) and by_pattern["layers.{l}.attn.q.weight"] == (256, 4096)


def test_vocabulary_is_padded() -> None:
    assert shard_shapes("gpt2", Layout(tp=4))["embed.weight"] == (-(-50257 // 4), 768)


@pytest.mark.parametrize("layout", [Layout(ep=8, dp=8), Layout(ep=4, dp=2, tp=4, etp=2), Layout(ep=2, tp=2, dp=2)])
def test_experts_are_distributed(layout: Layout) -> None:
    tree = llamath.load("mixtral-8x7b").tree
    check_layout(tree, layout)
    (stage,) = pipeline_stages(tree, layout)
    experts = sum(x.elements for x in weight_shards(tree, stage, layout) if x.is_expert)
    assert experts * layout.ep * layout.expert_tp == llamath.load("mixtral-8x7b").count.groups["experts"]


def test_stages_together_have_the_whole_model() -> None:
    for slug, copies in (("llama-3-8b", 0), ("llama-3.2-1b", 128256 * 2048)):
        model = llamath.load(slug)
        layout = Layout(pp=4)
        sharded = sum(x.elements for stage in pipeline_stages(model.tree, layout) for x in weight_shards(model.tree, stage, layout))
        assert sharded == model.parameters.total + copies


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4), st.data())
def test_slice_layers_matches_a_slice(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    blocks = [Norm(eps=float(i)) for i in range(4)]
    stack = Stack(*((tuple(data.draw(st.sampled_from(blocks)) for _ in range(period)), times) for period, times in runs))
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
