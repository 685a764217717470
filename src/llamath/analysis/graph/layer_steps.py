"""The steps of one decoder layer: the attention and MLP branches with their norms and residual connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from ...core.blocks import (
    MLP,
    Attention,
    ClampedMLP,
    DenseAndMoE,
    LatentAttention,
    LatentMoE,
    Layer,
    Linear,
    MoE,
    NormedResidualLayer,
    PerLayerInput,
    PostNormLayer,
    ScaledLayer,
    ScaledMoE,
    TwoNormLayer,
)
from ...core.expr import Expr, product
from ...core.mixers import GatedDeltaNet, Mamba2, RecurrentMixer, ShortConv
from ...core.tree import Block
from .attention_steps import attention_steps, latent_attention
from .graph_builder import GraphBuilder
from .old_counts import cache_spec


class _StateFacts(TypedDict):
    """The keywords that the step of any recurrent state passes to `add_step`."""

    description: str
    flops: Expr
    cached: Expr
    hook_point: str


def _input_projections(t: GraphBuilder, path: str, block: RecurrentMixer, x: str) -> dict[str, str]:
    """Add the input projections and return their names."""
    found = {name: part for name in block.fields if name != "out" and isinstance(part := getattr(block, name), Linear)}
    return {name: t.linear(f"{path}.{name}", part, x) for name, part in found.items()}


def _conv_step(t: GraphBuilder, path: str, block: GatedDeltaNet | Mamba2 | ShortConv, takes: tuple[str, ...]) -> str:
    kept = cache_spec(block)
    assert kept is not None and kept.conv_state is not None
    channels, taps = block.conv.weight.shape
    does = f"causal convolution over {int(taps)} tokens per channel"
    keeps, used = t.B * kept.conv_state, (f"{path}.conv",)
    return t.add_step(
        f"{path}.conv", "conv", (t.B, t.T, channels), takes, description=does, weights=used, cached=keeps, hook_point=f"{path}.conv>"
    )


def gated_delta_net(t: GraphBuilder, path: str, block: GatedDeltaNet, x: str) -> str:
    """Add the steps of a gated delta net."""
    Hv, hk, hv = (Expr.const(n) for n in (block.value_heads, block.key_dim, block.value_dim))
    made = _input_projections(t, path, block, x)
    read = _conv_step(t, path, block, (made["query"], made["key"], made["value"]))
    does = "decay and input gate of each state"
    pace = t.add_step(
        f"{path}.pace",
        "act",
        (t.B, t.T, Hv),
        (made["alpha"], made["beta"]),
        description=does,
        weights=(f"{path}.dt_bias", f"{path}.a_log"),
        hook_point=f"{path}.alpha>",
    )
    state = t.add_step(f"{path}.state", "state", (t.B, Hv, hk, hv), (read, pace), **_state_facts(t, path, block))
    y = t.add_step(f"{path}.read", "mix", (t.B, t.T, Hv, hv), (state,), description="Sᵀ q for each token", hook_point=f">{path}.norm")
    y = t.norm(f"{path}.norm", block.norm, y, (t.B, t.T, Hv, hv))
    y = t.add_step(
        f"{path}.gated",
        "multiply",
        (t.B, t.T, Hv * hv),
        (y, made["z"]),
        description="· silu(z), heads concatenated",
        hook_point=f">{path}.out",
    )
    return t.linear(f"{path}.out", block.out, y)


def mamba2(t: GraphBuilder, path: str, block: Mamba2, x: str) -> str:
    """Add the steps of a Mamba-2 mixer."""
    H, m, N = (Expr.const(n) for n in (block.heads, block.head_dim, block.state_size))
    made = _input_projections(t, path, block, x)
    read = _conv_step(t, path, block, (made["x"], made["b"], made["c"]))
    does = "decay and input gate of each state"
    pace = t.add_step(
        f"{path}.pace",
        "act",
        (t.B, t.T, H),
        (made["dt"],),
        description=does,
        weights=(f"{path}.dt_bias", f"{path}.a_log"),
        hook_point=f"{path}.dt>",
    )
    state = t.add_step(f"{path}.state", "state", (t.B, H, m, N), (read, pace), **_state_facts(t, path, block))
    does = "S c + skip · x for each token, · silu(z)"
    y = t.add_step(
        f"{path}.read",
        "mix",
        (t.B, t.T, H * m),
        (state, read, made["z"]),
        description=does,
        weights=(f"{path}.skip",),
        hook_point=f">{path}.norm",
    )
    return t.linear(f"{path}.out", block.out, t.norm(f"{path}.norm", block.norm, y, (t.B, t.T, H * m)))


def _state_facts(t: GraphBuilder, path: str, block: RecurrentMixer) -> _StateFacts:
    """Return the facts shared by the state steps of all mixers."""
    kept, (_, flops) = cache_spec(block), t.mixing(path, block)
    assert kept is not None and kept.state is not None
    does = "one state matrix per head, updated token by token"
    return {"description": does, "flops": flops, "cached": t.B * kept.state, "hook_point": f"{path}:state"}


def short_conv(t: GraphBuilder, path: str, block: ShortConv, x: str) -> str:
    """Add the steps of a short convolution between two gates."""
    made = _input_projections(t, path, block, x)
    wide = (t.B, t.T, block.x.weight.shape[0])
    y = t.add_step(f"{path}.product", "multiply", wide, (made["b"], made["x"]), description="b · x", hook_point=f">{path}.conv")
    y = t.add_step(
        f"{path}.gated", "multiply", wide, (_conv_step(t, path, block, (y,)), made["c"]), description="· c", hook_point=f">{path}.out"
    )
    return t.linear(f"{path}.out", block.out, y)


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
        (t.B, t.T, Expr.const(block.top_k)),
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


_MIXERS: dict[type[Block], Callable[..., str]] = {
    Attention: attention_steps,
    LatentAttention: latent_attention,
    GatedDeltaNet: gated_delta_net,
    Mamba2: mamba2,
    ShortConv: short_conv,
}


def layer_steps(t: GraphBuilder, block: Layer, x: str) -> str:
    """Add the steps of a layer of any kind."""
    for kind, steps in KINDS.items():
        if isinstance(block, kind):
            return steps(t, block, x)
    return _pre_norm_layer(t, block, x)


def _attn_branch(t: GraphBuilder, block: Layer, x: str) -> str:
    """Add the attention branch, in which tokens mix."""
    assert block.attn is not None
    steps = next(steps for kind, steps in _MIXERS.items() if isinstance(block.attn, kind))
    return t.norm("attn_out_norm", block.attn_out_norm, steps(t, "attn", block.attn, x))


def _mlp_branch(t: GraphBuilder, block: Layer, x: str) -> str:
    """Add the MLP branch, which treats each token alone."""
    assert block.mlp is not None
    return t.norm("mlp_out_norm", block.mlp_out_norm, mlp_steps(t, "mlp", block.mlp, x))


def _residual_description(block: Layer) -> str:
    added = "added to the residual stream"
    return added if block.residual_multiplier == 1.0 else f"× {block.residual_multiplier:g}, {added}"


def _pre_norm_layer(t: GraphBuilder, block: Layer, x: str) -> str:
    read, mixed = t.norm("attn_norm", block.attn_norm, x), x
    if block.attn is not None:
        y = _attn_branch(t, block, read)
        if block.parallel and block.mlp is not None:
            return _parallel_branches(t, block, (x, read, y))
        mixed = t.add_residual("attn_add", x, y, _residual_description(block), _hook_between_branches(block))
    if block.mlp is None:
        return mixed
    return t.add_residual(
        "mlp_add",
        mixed,
        _mlp_branch(t, block, t.norm("mlp_norm", block.mlp_norm, mixed)),
        _residual_description(block),
        _hook_after_layer(block),
    )


def _parallel_branches(t: GraphBuilder, block: Layer, made: tuple[str, str, str]) -> str:
    x, read, y = made
    z = _mlp_branch(t, block, read if block.mlp_norm is None else t.norm("mlp_norm", block.mlp_norm, x))
    return t.add_step(
        "add",
        "add",
        (t.B, t.T, t.d),
        (x, y, z),
        description=f"both branches {_residual_description(block)}",
        hook_point=_hook_after_layer(block),
    )


def _hook_between_branches(block: Layer) -> str:
    """The hook point of the residual stream between the branches."""
    return _hook_after_layer(block) if block.mlp is None else ">mlp_norm" if block.mlp_norm else ">mlp"


def _hook_after_layer(block: Layer) -> str:
    if isinstance(block, ScaledLayer):
        return ">per_layer.gate" if block.per_layer else ""
    return ">"


def _post_norm_layer(t: GraphBuilder, block: Layer, x: str) -> str:
    x = t.norm(
        "attn_norm", block.attn_norm, t.add_residual("attn_add", x, _attn_branch(t, block, x), _residual_description(block), ">attn_norm")
    )
    return t.norm(
        "mlp_norm", block.mlp_norm, t.add_residual("mlp_add", x, _mlp_branch(t, block, x), _residual_description(block), ">mlp_norm")
    )


def _normed_residual_layer(t: GraphBuilder, block: Layer, x: str) -> str:
    x = t.norm("attn_norm", block.attn_norm, x)
    x = t.add_residual("attn_add", x, _attn_branch(t, block, x), "added to the normalized x", ">mlp_norm")
    x = t.norm("mlp_norm", block.mlp_norm, x)
    return t.add_residual("mlp_add", x, _mlp_branch(t, block, x), "added to the normalized x", ">")


def _two_norm_layer(t: GraphBuilder, block: TwoNormLayer, x: str) -> str:
    y = _attn_branch(t, block, t.norm("attn_branch_norm", block.attn_branch_norm, x))
    z = _mlp_branch(t, block, t.norm("mlp_branch_norm", block.mlp_branch_norm, x))
    return t.add_step("add", "add", (t.B, t.T, t.d), (x, y, z), description=f"both branches {_residual_description(block)}", hook_point=">")


def _scaled_layer(t: GraphBuilder, block: ScaledLayer, x: str) -> str:
    x = _pre_norm_layer(t, block, x)
    if block.per_layer is not None:
        x = t.add_residual("per_layer_add", x, per_layer_input_steps(t, block.per_layer, x))
    return t.add_step(
        "scalar", "multiply", (t.B, t.T, t.d), (x,), description="multiplied by a stored scalar", weights=("scalar",), hook_point=">"
    )


KINDS: dict[type[Layer], Callable[..., str]] = {
    PostNormLayer: _post_norm_layer,
    NormedResidualLayer: _normed_residual_layer,
    TwoNormLayer: _two_norm_layer,
    ScaledLayer: _scaled_layer,
}
