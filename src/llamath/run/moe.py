"""Mixtures of experts: routing, and the weighted sum of the experts' outputs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import ModuleList, Parameter

from ..core import blocks
from .basic_layers import MLP, Linear, Norm
from .module import Module, module_for


@module_for(blocks.MoE)
class MoE(Module):
    """Σ weight · expert(x) over the `top_k` experts that the router chooses for a token, plus the shared experts."""

    spec: blocks.MoE
    router: Linear
    correction: Tensor | None
    experts: ModuleList
    shared: MLP | None
    shared_gate: Linear | None

    def forward(self, x: Tensor) -> Tensor:
        y = self.combine_experts(x, *self.route(x))
        if self.shared is not None:
            shared = self.shared(x)
            y = y + (shared if self.shared_gate is None else torch.sigmoid(self.shared_gate(x)) * shared)
        return y

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the chosen experts of each token and their weights, `(B, T, k)` each."""
        s, logits = self.spec, self.router(x).float()
        scores = logits.sigmoid() if s.scoring == "sigmoid" else logits.softmax(-1)
        chosen = self.ranking_scores(scores).topk(s.top_k, -1).indices
        weights = scores.gather(-1, chosen)
        if s.norm_topk_prob and s.routing != "input":
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, weights * s.routed_scaling_factor

    def ranking_scores(self, scores: Tensor) -> Tensor:
        """Return the scores that experts are ranked by: with the correction bias, and zero in all groups but the best."""
        if self.correction is not None:
            scores = scores + self.correction
        if self.spec.expert_groups is None:
            return scores
        groups, kept, best = self.spec.expert_groups
        grouped = scores.unflatten(-1, (groups, -1))
        top_groups = grouped.topk(best, -1).values.sum(-1).topk(kept, -1).indices
        kept_groups = torch.zeros(grouped.shape[:-1], dtype=torch.bool, device=scores.device).scatter(-1, top_groups, True)
        return grouped.masked_fill(~kept_groups[..., None], 0.0).flatten(-2)

    def combine_experts(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Run each expert on its tokens and sum the outputs; weights apply to the experts' outputs, or inputs if `routing` is "input"."""
        tokens, chosen, weights = x.flatten(0, -2), chosen.flatten(0, -2), weights.flatten(0, -2)
        if x.is_meta:  # no values to route by: run as many experts as a token has
            return sum((expert(x) for expert in self.experts[: self.spec.top_k]), torch.zeros_like(x))
        y = torch.zeros_like(tokens, dtype=torch.float32)
        for e in chosen.unique().tolist():
            at, slot = torch.where(chosen == e)
            expert, inputs, weight = self.experts[e], tokens[at], weights[at, slot, None]
            out = expert((inputs * weight).to(x.dtype)) if self.spec.routing == "input" else expert(inputs) * weight
            y = y.index_add(0, at, out.float())
        return y.to(x.dtype).view(x.shape)


@module_for(blocks.SparseMixerMoE)
class SparseMixerMoE(MoE):
    """Two experts chosen in turn, each weighted by its softmax among the logits that are close to it (arXiv:2409.12136)."""

    spec: blocks.SparseMixerMoE

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.router(x).float()
        remaining, found = logits, []
        for _ in range(self.spec.top_k):
            best, expert = remaining.max(-1, keepdim=True)
            far = (best - logits) / logits.abs().maximum(best) > 2 * self.spec.jitter
            found.append((expert, remaining.masked_fill(far, -torch.inf).softmax(-1).gather(-1, expert)))
            remaining = remaining.scatter(-1, expert, -torch.inf)
        chosen, weights = zip(*found, strict=True)
        return torch.cat(chosen, -1), torch.cat(weights, -1)


@module_for(blocks.LatentMoE)
class LatentMoE(MoE):
    """Experts in a latent space: x is projected down before them, and their sum up after them."""

    latent_down: Linear
    latent_up: Linear

    def combine_experts(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return self.latent_up(super().combine_experts(self.latent_down(x), chosen, weights))


@module_for(blocks.ScaledMoE)
class ScaledMoE(MoE):
    """Router and experts have their own input norms, and each expert a learned scale."""

    spec: blocks.ScaledMoE
    router_norm: Norm
    expert_norm: Norm
    expert_scale: Parameter

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen, weights = super().route(self.router_norm(x) * self.spec.factor)
        return chosen, weights * self.expert_scale[chosen]

    def combine_experts(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return super().combine_experts(self.expert_norm(x), chosen, weights)


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
