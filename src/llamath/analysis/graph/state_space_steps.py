"""The steps of recurrent mixers: gated delta net, Mamba-2 and the short convolution."""

from __future__ import annotations

from typing import TypedDict

from ...core.blocks import Linear
from ...core.expr import Dim
from ...core.mixers import GatedDeltaNet, Mamba2, RecurrentMixer, ShortConv
from ..inference.cache_bytes import cache_spec
from .graph_builder import GraphBuilder


class _StateFacts(TypedDict):
    """The keywords that the step of any recurrent state passes to `add_step`."""

    description: str
    flops: Dim
    cached: Dim
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
    Hv, hk, hv = (Dim.const(n) for n in (block.value_heads, block.key_dim, block.value_dim))
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
    H, m, N = (Dim.const(n) for n in (block.heads, block.head_dim, block.state_size))
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
