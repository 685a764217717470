"""The choice of experts in written files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus


def route(
    logits: Tensor,
    top_k: int,
    *,
    correction: Tensor | None = None,
    scoring: str = "softmax",
    by_logits: bool = False,
    grouped: bool = False,
    groups: int = 1,
    kept_groups: int = 1,
    top_scores: int = 1,
    other_score: float = -torch.inf,
    normalize: bool = True,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose top_k experts for each token: their indices and their weights, (B, T, top_k) each."""
    if scoring == "sigmoid":
        scores = logits.sigmoid()  # (B, T, experts)
    elif scoring == "sqrtsoftplus":
        scores = softplus(logits).sqrt()  # (B, T, experts)
    else:
        scores = logits.softmax(-1)  # (B, T, experts)
    ranked = logits if by_logits else scores
    if correction is not None:
        ranked = ranked + correction  # for the choice alone
    if grouped:  # a token's experts are in its best groups
        in_groups = ranked.unflatten(-1, (groups, -1))
        best = in_groups.topk(top_scores, -1).values.sum(-1).topk(kept_groups, -1).indices
        eligible = torch.zeros_like(in_groups[..., 0]).scatter(-1, best, 1).bool()
        ranked = in_groups.masked_fill(~eligible[..., None], other_score).flatten(-2)
    chosen = ranked.topk(top_k, -1).indices
    weights = scores.gather(-1, chosen)
    if normalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    if factor is not None:
        weights = weights * factor
    return chosen, weights


def run_experts(
    experts: Sequence[Callable[[Tensor], Tensor]],
    x: Tensor,
    chosen: Tensor,
    weights: Tensor,
    *,
    weigh_inputs: bool = False,
    zero_experts: bool = False,
) -> Tensor:
    """Sum the outputs of each token's experts by their weights, in float32: x (B, T, size)."""
    y = torch.zeros_like(x, dtype=torch.float32)
    for e in chosen.unique().tolist():  # each expert computes the tokens that chose it
        b, t, slot = torch.where(chosen == e)
        weight = weights[b, t, slot, None]
        if zero_experts and e >= len(experts):  # an expert without weights
            y[b, t] += x[b, t] * weight
        elif weigh_inputs:
            y[b, t] += experts[e]((x[b, t] * weight).type_as(x))
        else:
            y[b, t] += experts[e](x[b, t]) * weight
    return y.type_as(x)
