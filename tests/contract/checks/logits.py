"""Logits and greedy generation of a configuration against transformers: whole, cached, in chunks, padded, and in bfloat16."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from llamath.core.positions import LongRope
from llamath.torch import Generation, GenerationLimits, Sampling
from llamath.utils.errors import LlamathError
from support.contract import Contract, check
from support.transformers_pair import (
    generated_by_transformers,
    is_bidirectional,
    logits,
    logits_match,
)

LONG = 44  # beyond every window of the tiny configurations
NEW = 12


@check("text", computed=True)
@torch.no_grad()
def logits_equal_transformers(case: Contract) -> None:
    both = case.pair
    ids = both.ids(LONG)
    assert logits_match(both.ours(ids), logits(both.theirs, ids), both, ids)


def rope(layer: Any) -> object:
    return getattr(getattr(layer.attn, "spec", None), "rope", None)


@check("text", computed=True)
@torch.no_grad()
def cached_passes_equal_one_pass(case: Contract) -> None:
    if not (case.is_first or case.has_new_block):
        return
    both = case.pair
    ids = both.ids(LONG)
    end = ids.shape[1]
    if is_bidirectional(case.config):
        with pytest.raises(LlamathError, match="bidirectional"):
            both.ours.new_cache(end)
        return
    cache = both.ours.new_cache(end)
    ropes = [
        x
        for x in map(rope, both.ours.layers)
        if isinstance(x, LongRope) and x.original_context < end
    ]
    first = max(
        (x.original_context + 1 for x in ropes), default=5
    )  # no reading on over the border between its two sets of angles
    cuts = [
        0,
        first,
        first + 2,
        *range(first + 3, min(first + (12 if case.is_thorough else 5), end - 6)),
        end - 4,
        *range(end - 3, end + 1),
    ]
    results = [both.ours(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)]
    assert logits_match(torch.cat(results, 1), both.ours(ids), both, ids)
    with pytest.raises(LlamathError, match=r"room for \d+ tokens"):
        both.ours(ids[:, :1], cache)


@check("text", computed=True, new=True)
@torch.no_grad()
def padding_does_not_change_a_row(case: Contract) -> None:
    both = case.pair
    ids = both.ids(LONG, rows=3)
    end, pads = ids.shape[1], torch.tensor([0, 3, 17])
    alone = [logits(both.theirs, row[None, pad:]) for row, pad in zip(ids, pads, strict=True)]
    if is_bidirectional(case.config):
        actual = both.ours(ids, None, pads)
    else:
        cache = both.ours.new_cache(end)
        actual = torch.cat(
            [
                both.ours(ids[:, : end - 3], cache, pads),
                *(both.ours(ids[:, t : t + 1], cache) for t in range(end - 3, end)),
            ],
            1,
        )
    for row, pad, expected in zip(actual, pads, alone, strict=True):
        assert logits_match(row[None, pad:], expected, both, ids)


@check("text", computed=True)
@torch.no_grad()
def bfloat16_is_as_accurate_as_transformers(case: Contract) -> None:
    if not case.is_new:
        return
    exact, both = case.pair, case.bfloat16_pair
    ids = both.ids(30, rows=16)
    expected = logits(exact.theirs, ids)
    ours, theirs = (
        (x.float() - expected).abs().median() for x in (both.ours(ids), logits(both.theirs, ids))
    )
    assert (
        ours < 1.1 * theirs
    )  # the median, and a margin: where two experts are nearly tied, either may be chosen


def generated(module: Any, prompts: list[list[int]]) -> list[list[int]]:
    """The greedily generated tokens of each prompt."""
    generation = Generation(module, prompts, Sampling(), GenerationLimits(max_tokens=NEW))
    assert all(piece.row >= 0 for piece in generation)
    return [row.ids for row in generation.rows]


@check("text", computed=True)
def greedy_generation_equals_transformers(case: Contract) -> None:
    both = case.pair
    context = both.ours.spec.context or 99
    long, short = both.ids(min(40, context - NEW)).tolist()  # beyond every window
    if is_bidirectional(case.config):
        with pytest.raises(LlamathError, match="bidirectional"):
            generated(both.ours, [long])
        return
    if not case.is_thorough:
        return
    prompts = [long, short[:5], short[:19]]
    for prompt, found in zip(prompts, generated(both.ours, prompts), strict=True):
        known = both.ours.per_layer.embed.weight.shape[0] if both.ours.per_layer else max(found) + 1
        comparable = max(found) < known and both.ours.spec.vocab <= known
        assert found == (
            generated_by_transformers(both.theirs, prompt, NEW) if comparable else found
        )
