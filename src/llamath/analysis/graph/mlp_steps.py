"""The steps of feed-forward blocks: a dense MLP, or a router and its experts."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.blocks import MLP, ClampedMLP, DenseAndMoE, LatentMoE, MoE, PerLayerInput, ScaledMoE
from ...core.expr import Dim, product
from ...core.tree import Block
from .graph_builder import GraphBuilder


def mlp(t: GraphBuilder, path: str, block: MLP, x: str, rows: Sequence[int] = ()) -> str:
    """down(act(gate x) · up x), or without a gate."""
    rows = rows or (t.B, t.T)
    gate = None if block.gate is None else t.linear(f"{path}.gate", block.gate, x, rows)
    up = t.linear(f"{path}.up", block.up, x, rows)
    takes = (up,) if gate is None else (gate, up)
    y = t.add_step(
        f"{path}.act", "act", (*rows, block.up.weight.shape[0]), takes, description=_activated(block), hook_point=f">{path}.down"
    )
    return t.linear(f"{path}.down", block.down, y, rows)


def _activated(block: MLP) -> str:
    """Describe the activation; gated ones by name (Shazeer 2020, arXiv:2002.05202)."""
    act = block.activation
    if block.gate is None:
        return f"{act}(up)"
    if isinstance(block, ClampedMLP):
        return f"(up + 1) · g · sigmoid({block.alpha:g} · g), both within {block.limit:g}"
    name = "SwiGLU: " if act in ("silu", "swish") else "GeGLU: " if act.startswith("gelu") else ""
    return f"{name}{act}(gate) · up"


def moe(t: GraphBuilder, path: str, block: MoE, x: str) -> str:
    """Add the steps of a mixture of experts: router, selected experts and shared experts."""
    chosen = _chosen(t, path, block, x)
    kinds = block.experts.distinct()
    rows = (product((t.B, t.T, block.top_k)),)
    read, wide = x, t.d
    if isinstance(block, LatentMoE):
        read, wide = t.linear(f"{path}.latent_down", block.latent_down, x), block.latent_down.weight.shape[0]
    if isinstance(block, ScaledMoE):
        read = t.norm(f"{path}.expert_norm", block.expert_norm, x)
    t.add_step(f"{path}.dealt", "view", (*rows, wide), (read, chosen), description=_dealing(block), hook_point=f">{path}.experts.{{e}}.up")
    expert = kinds[0][0]
    assert isinstance(expert, MLP)
    given = _expert(t, f"{path}.experts.{{l}}", expert, (f"{path}.dealt", *rows))
    parts = [given, chosen]
    if isinstance(block, LatentMoE):
        total = t.add_step(
            f"{path}.sum",
            "sum",
            (t.B, t.T, wide),
            parts,
            description="weighted sum of the experts",
            hook_point=f">{path}.latent_up",
        )
        parts = [t.linear(f"{path}.latent_up", block.latent_up, total)]
    if block.shared is not None:
        parts.append(_shared(t, path, block, x))
    elif isinstance(block, LatentMoE):
        return parts[0]
    does = "weighted sum of the experts" + (" plus shared experts" if block.shared else "")
    return t.add_step(f"{path}.out", "sum", (t.B, t.T, t.d), parts, description=does, hook_point=f"{path}>")


def _chosen(t: GraphBuilder, path: str, block: MoE, x: str) -> str:
    read = t.norm(f"{path}.router_norm", block.router_norm, x) if isinstance(block, ScaledMoE) else x
    logits = t.linear(f"{path}.router", block.router, read, description="router logits")
    used = [f"{path}.{name}" for name in ("correction", "expert_scale") if getattr(block, name, None) is not None]
    does = f"top {int(block.top_k)} of {int(block.experts.n):,} experts with their weights ({block.scoring})"
    if block.expert_groups:
        does = f"{does}, from the best {block.expert_groups.kept} of {block.expert_groups.groups} groups"
    return t.add_step(
        f"{path}.choice",
        "choice",
        (t.B, t.T, Dim.const(block.top_k)),
        (logits,),
        description=does,
        weights=used,
        hook_point=f"{path}:chosen",
    )


def _dealing(block: MoE) -> str:
    return "tokens dispatched to their experts" + (", scaled by the router" if block.routing == "input" else "")


def _expert(t: GraphBuilder, path: str, block: MLP, at: tuple[str, int]) -> str:
    """Add the steps of all selected experts: one row per token and expert."""
    before = len(t.steps)
    y = mlp(t, path, block, at[0], at[1:])
    names = {x.name: x.name.replace("{l}", "{e}") for x in t.steps[before:]}
    for i, step in enumerate(t.steps[before:], before):
        takes = tuple(names.get(name, name) for name in step.inputs)
        t.steps[i] = step.replace(name=names[step.name], inputs=takes, hook_point=step.hook_point.replace("{l}", "{e}"))
    return names[y]


def _shared(t: GraphBuilder, path: str, block: MoE, x: str) -> str:
    assert block.shared is not None
    y = mlp(t, f"{path}.shared", block.shared, x)
    if block.shared_gate is None:
        return y
    gate = t.linear(f"{path}.shared_gate", block.shared_gate, x)
    return t.add_step(f"{path}.shared_out", "multiply", (t.B, t.T, t.d), (y, gate), description="· sigmoid(shared_gate)")


def both(t: GraphBuilder, path: str, block: DenseAndMoE, x: str) -> str:
    """Add a dense MLP and experts in parallel."""
    y = mlp(t, f"{path}.dense", block.dense, t.norm(f"{path}.dense_norm", block.dense_norm, x))
    y = t.norm(f"{path}.dense_out_norm", block.dense_out_norm, y)
    z = t.norm(f"{path}.moe_out_norm", block.moe_out_norm, moe(t, f"{path}.moe", block.moe, x))
    return t.add_step(f"{path}.out", "sum", (t.B, t.T, t.d), (y, z), description="sum of both", hook_point=f"{path}>")


def per_layer_input_steps(t: GraphBuilder, block: PerLayerInput, x: str) -> str:
    """Add the per-layer embedding branch (PLE)."""
    path, p = "per_layer", block.gate.weight.shape[0]
    gate = t.linear(f"{path}.gate", block.gate, x)
    y = t.add_step(
        f"{path}.act",
        "act",
        (t.B, t.T, p),
        (gate, "per_layer_inputs"),
        description=f"{block.activation}(gate) · per-layer embedding",
        hook_point=f">{path}.out",
    )
    return t.norm(f"{path}.norm", block.norm, t.linear(f"{path}.out", block.out, y))


def mlp_steps(t: GraphBuilder, path: str, block: Block, x: str) -> str:
    """Add the steps of a feed-forward block of any kind."""
    if isinstance(block, DenseAndMoE):
        return both(t, path, block, x)
    if isinstance(block, MoE):
        return moe(t, path, block, x)
    assert isinstance(block, MLP)
    return mlp(t, path, block, x)
