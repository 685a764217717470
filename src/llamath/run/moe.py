"""Mixtures of experts: how a router chooses, and what each token gets of whom."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import ModuleList, Parameter

from ..core import blocks
from .basic_layers import MLP, Linear, Norm
from .module import Module, module_for


@module_for(blocks.MoE)
class MoE(Module):
    """Σ share · expert(x) over the `top_k` experts that the router chooses for a token, and what every token passes besides."""

    spec: blocks.MoE
    router: Linear
    correction: Tensor | None
    experts: ModuleList
    shared: MLP | None
    shared_gate: Linear | None

    def forward(self, x: Tensor) -> Tensor:
        y = self.combine_experts(x, *self.route(x))
        if self.shared is not None:
            always = self.shared(x)
            y = y + (always if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * always)
        return y

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Which experts each token goes to, and each one's share, `(B, T, k)`."""
        s, logits = self.spec, self.router(x).float()
        scores = logits.sigmoid() if s.scoring == "sigmoid" else logits.softmax(-1)
        chosen = self.ranking_scores(scores).topk(s.top_k, -1).indices
        shares = scores.gather(-1, chosen)
        if s.norm_topk_prob and s.routing != "input":
            shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
        return chosen, shares * s.routed_scaling_factor

    def ranking_scores(self, scores: Tensor) -> Tensor:
        """What experts are ranked by: their scores, corrected, and zero in all groups but the best."""
        if self.correction is not None:
            scores = scores + self.correction
        if self.spec.expert_groups is None:
            return scores
        groups, kept, best = self.spec.expert_groups
        grouped = scores.unflatten(-1, (groups, -1))
        first = grouped.topk(best, -1).values.sum(-1).topk(kept, -1).indices
        there = torch.zeros(grouped.shape[:-1], dtype=torch.bool, device=scores.device).scatter(-1, first, True)
        return grouped.masked_fill(~there[..., None], 0.0).flatten(-2)

    def combine_experts(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """Each expert reads its tokens; what it gives is weighed, or what it reads, if `routing` says so."""
        tokens, chosen, shares = x.flatten(0, -2), chosen.flatten(0, -2), shares.flatten(0, -2)
        if x.is_meta:  # nobody knows who is chosen: as many as there would be
            return sum((expert(x) for expert in self.experts[: self.spec.top_k]), torch.zeros_like(x))
        y = torch.zeros_like(tokens, dtype=torch.float32)
        for e in chosen.unique().tolist():
            at, slot = torch.where(chosen == e)
            read, share = tokens[at], shares[at, slot, None]
            given = self.experts[e]((read * share).to(x.dtype)) if self.spec.routing == "input" else self.experts[e](read) * share
            y = y.index_add(0, at, given.float())
        return y.to(x.dtype).view(x.shape)


@module_for(blocks.SparseMixerMoE)
class SparseMixerMoE(MoE):
    """Two experts, one after the other; each one's share is its softmax among the logits that come near it (arXiv:2409.12136)."""

    spec: blocks.SparseMixerMoE

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.router(x).float()
        left, found = logits, []
        for _ in range(self.spec.top_k):
            best, expert = left.max(-1, keepdim=True)
            far = (best - logits) / logits.abs().maximum(best) > 2 * self.spec.jitter
            found.append((expert, left.masked_fill(far, -torch.inf).softmax(-1).gather(-1, expert)))
            left = left.scatter(-1, expert, -torch.inf)
        chosen, shares = zip(*found, strict=True)
        return torch.cat(chosen, -1), torch.cat(shares, -1)


@module_for(blocks.LatentMoE)
class LatentMoE(MoE):
    """The experts read a narrower x, and their sum is widened again."""

    latent_down: Linear
    latent_up: Linear

    def combine_experts(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        return self.latent_up(super().combine_experts(self.latent_down(x), chosen, shares))


@module_for(blocks.ScaledMoE)
class ScaledMoE(MoE):
    """Router and experts read x through norms of their own, and each expert's share has a scale."""

    spec: blocks.ScaledMoE
    router_norm: Norm
    expert_norm: Norm
    expert_scale: Parameter

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen, shares = super().route(self.router_norm(x) * self.spec.factor)
        return chosen, shares * self.expert_scale[chosen]

    def combine_experts(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        return super().combine_experts(self.expert_norm(x), chosen, shares)


@module_for(blocks.DenseAndMoE)
class DenseAndMoE(Module):
    """dense_out_norm(dense(dense_norm x)) + moe_out_norm(moe x)."""

    dense_norm: Norm
    dense: MLP
    dense_out_norm: Norm
    moe: MoE
    moe_out_norm: Norm

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_out_norm(self.dense(self.dense_norm(x))) + self.moe_out_norm(self.moe(x))
