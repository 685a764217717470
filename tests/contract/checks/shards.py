"""Layouts: shards join to the whole, and every matrix is split or declared whole."""

from __future__ import annotations

import re
from collections import Counter

from llamath.analysis.storage.parallel_layout import layout_problems, pipeline_stages, weight_shards
from llamath.core.tree import fold
from llamath.questions.layout import Layout
from support.contract import Contract, check

WHOLE = re.compile(
    r"(q_down|kv_down|attn\.kv|compressor\.\w+|indexer\.(keys\.)?\w+|\w+_norm\.gate_(down|up)|router|shared_gate|latent_(down|up)|per_layer\.\w+"
    r"|projection|positions|(embed|head)\.projection|attn\.(forget|gate)_down|attn\.(depthwise|grouped)|altup\.\w+|laurel\.\w+|expand\.{l}|contract\.{l}|\w+_hc\.\w+"
    r"|collapse\.\w+|ngrams\.\w+(\.{e})?|link|adapters\.{e}\.down|head\.dense)\.weight$"
)
"""Matrices that every rank has whole."""


@check("text")
def shards_join_to_the_whole(case: Contract) -> None:
    tree = case.tree
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
            assert spare == 0 or (
                x.split.on_indivisible == "pad"
                and 0 < spare < tp * numbers[pattern] // x.split.parts
            ), pattern


@check("text")
def every_matrix_is_split_or_declared_whole(case: Contract) -> None:
    together = case.model_type in (
        "diffllama",
        "zamba",
    )  # the halves of its heads; the heads of Mamba
    for x in fold(case.tree):
        if x.weight.role in ("matmul", "lookup") and not (
            together and re.search(r"\.(attn|mixer)\.", x.pattern)
        ):
            either = x.pattern in ("per_layer.embed.weight", "layers.{l}.mlp.table")
            assert either or bool(x.split) != bool(WHOLE.search(x.pattern)), x.pattern
        if x.group == "norm":
            assert x.split is None or len(x.weight.shape) == 2, x.pattern


@check("multimodal")
def shards_hold_every_tower_once_or_on_every_rank(case: Contract) -> None:
    model = case.model
    for pp in (1, 2):
        stages = pipeline_stages(model.tree, Layout(pp=pp))
        sizes = [
            sum(x.elements for x in weight_shards(model.tree, stage, Layout(pp=pp)))
            for stage in stages
        ]
        tied = (
            sum(
                int(x.weight.size)
                for x in model.weights
                if x.weight.tied and x.path in ("head.weight", "head.extra")
            )
            if pp > 1
            else 0
        )
        assert sum(sizes) == model.parameters.total + tied
        towers = {
            x.pattern.partition(".")[0]
            for x in weight_shards(model.tree, stages[-1], Layout(pp=pp))
        } & {"vision", "projector"}
        assert not towers or pp == 1
