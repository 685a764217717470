"""The steps of one decoder layer: the attention and MLP branches with their norms and residual connections."""

from __future__ import annotations

from collections.abc import Callable

from ...core.blocks import Attention, LatentAttention, Layer, NormedResidualLayer, PostNormLayer, ScaledLayer, TwoNormLayer
from ...core.mixers import GatedDeltaNet, Mamba2, ShortConv
from ...core.tree import Block
from .attention_steps import attention_steps, latent_attention
from .graph_builder import GraphBuilder
from .mlp_steps import mlp_steps, per_layer_input_steps
from .state_space_steps import gated_delta_net, mamba2, short_conv

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
