"""The steps of one decoder layer: two branches, in the order of its kind, each added to the stream."""

from __future__ import annotations

from collections.abc import Callable

from ...core.blocks import Attention, LatentAttention, Layer, NormedResidualLayer, PostNormLayer, ScaledLayer, TwoNormLayer
from ...core.mixers import GatedDeltaNet, Mamba2, ShortConv
from ...core.tree import Block
from .attention_steps import attention, latent_attention
from .graph_builder import Trail
from .mlp_steps import beside, feed
from .state_space_steps import delta, mamba, short

MIXERS: dict[type[Block], Callable[..., str]] = {
    Attention: attention,
    LatentAttention: latent_attention,
    GatedDeltaNet: delta,
    Mamba2: mamba,
    ShortConv: short,
}


def layer(t: Trail, block: Layer, x: str) -> str:
    """One layer, whatever its kind."""
    for kind, steps in KINDS.items():
        if isinstance(block, kind):
            return steps(t, block, x)
    return _plain(t, block, x)


def _mixed(t: Trail, block: Layer, x: str) -> str:
    """The branch in which positions meet."""
    assert block.attn is not None
    steps = next(steps for kind, steps in MIXERS.items() if isinstance(block.attn, kind))
    return t.norm("attn_out_norm", block.attn_out_norm, steps(t, "attn", block.attn, x))


def _fed(t: Trail, block: Layer, x: str) -> str:
    """The branch in which each position is alone."""
    assert block.mlp is not None
    return t.norm("mlp_out_norm", block.mlp_out_norm, feed(t, "mlp", block.mlp, x))


def _added(block: Layer) -> str:
    return "added to the stream" if block.residual_multiplier == 1.0 else f"× {block.residual_multiplier:g}, added to the stream"


def _plain(t: Trail, block: Layer, x: str) -> str:
    read, mixed = t.norm("attn_norm", block.attn_norm, x), x
    if block.attn is not None:
        y = _mixed(t, block, read)
        if block.parallel and block.mlp is not None:
            return _together(t, block, (x, read, y))
        mixed = t.add("attn_add", x, y, _added(block), _before(block))
    if block.mlp is None:
        return mixed
    return t.add("mlp_add", mixed, _fed(t, block, t.norm("mlp_norm", block.mlp_norm, mixed)), _added(block), _after(block))


def _together(t: Trail, block: Layer, made: tuple[str, str, str]) -> str:
    x, read, y = made
    z = _fed(t, block, read if block.mlp_norm is None else t.norm("mlp_norm", block.mlp_norm, x))
    return t.lay("add", "add", (t.B, t.T, t.d), (x, y, z), does=f"both branches {_added(block)}", seen=_after(block))


def _before(block: Layer) -> str:
    """Where the stream between the branches is met."""
    return _after(block) if block.mlp is None else ">mlp_norm" if block.mlp_norm else ">mlp"


def _after(block: Layer) -> str:
    if isinstance(block, ScaledLayer):
        return ">per_layer.gate" if block.per_layer else ""
    return ">"


def _post(t: Trail, block: Layer, x: str) -> str:
    x = t.norm("attn_norm", block.attn_norm, t.add("attn_add", x, _mixed(t, block, x), _added(block), ">attn_norm"))
    return t.norm("mlp_norm", block.mlp_norm, t.add("mlp_add", x, _fed(t, block, x), _added(block), ">mlp_norm"))


def _normed(t: Trail, block: Layer, x: str) -> str:
    x = t.norm("attn_norm", block.attn_norm, x)
    x = t.add("attn_add", x, _mixed(t, block, x), "added to the normed x", ">mlp_norm")
    x = t.norm("mlp_norm", block.mlp_norm, x)
    return t.add("mlp_add", x, _fed(t, block, x), "added to the normed x", ">")


def _two(t: Trail, block: TwoNormLayer, x: str) -> str:
    y = _mixed(t, block, t.norm("attn_branch_norm", block.attn_branch_norm, x))
    z = _fed(t, block, t.norm("mlp_branch_norm", block.mlp_branch_norm, x))
    return t.lay("add", "add", (t.B, t.T, t.d), (x, y, z), does=f"both branches {_added(block)}", seen=">")


def _scaled(t: Trail, block: ScaledLayer, x: str) -> str:
    x = _plain(t, block, x)
    if block.per_layer is not None:
        x = t.add("per_layer_add", x, beside(t, block.per_layer, x))
    return t.lay("scalar", "multiply", (t.B, t.T, t.d), (x,), does="times one stored number", uses=("scalar",), seen=">")


KINDS: dict[type[Layer], Callable[..., str]] = {
    PostNormLayer: _post,
    NormedResidualLayer: _normed,
    TwoNormLayer: _two,
    ScaledLayer: _scaled,
}
