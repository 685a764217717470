"""The steps of mixers that carry a state of fixed size: the gated delta rule, Mamba-2, the short convolution."""

from __future__ import annotations

from ...core.blocks import Linear
from ...core.expr import Dim
from ...core.mixers import GatedDeltaNet, Mamba2, RecurrentMixer, ShortConv
from ..inference.cache_bytes import cache_spec
from .graph_builder import Trail


def _images(t: Trail, path: str, block: RecurrentMixer, x: str) -> dict[str, str]:
    """The linear images of x, by name; the output is no such image."""
    found = {name: part for name in block.fields if name != "out" and isinstance(part := getattr(block, name), Linear)}
    return {name: t.linear(f"{path}.{name}", part, x) for name, part in found.items()}


def _convolved(t: Trail, path: str, block: GatedDeltaNet | Mamba2 | ShortConv, takes: tuple[str, ...]) -> str:
    kept = cache_spec(block)
    assert kept is not None and kept.conv_state is not None
    channels, taps = block.conv.weight.shape
    does = f"each channel's last {int(taps)}, weighed"
    keeps, used = t.B * kept.conv_state, (f"{path}.conv",)
    return t.lay(f"{path}.conv", "conv", (t.B, t.T, channels), takes, does=does, uses=used, keeps=keeps, seen=f"{path}.conv>")


def delta(t: Trail, path: str, block: GatedDeltaNet, x: str) -> str:
    """The gated delta rule."""
    Hv, hk, hv = (Dim.const(n) for n in (block.value_heads, block.key_dim, block.value_dim))
    made = _images(t, path, block, x)
    read = _convolved(t, path, block, (made["query"], made["key"], made["value"]))
    does = "what each state keeps and takes up"
    pace = t.lay(
        f"{path}.pace",
        "act",
        (t.B, t.T, Hv),
        (made["alpha"], made["beta"]),
        does=does,
        uses=(f"{path}.dt_bias", f"{path}.a_log"),
        seen=f"{path}.alpha>",
    )
    state = t.lay(f"{path}.state", "state", (t.B, Hv, hk, hv), (read, pace), **_state(t, path, block))
    y = t.lay(f"{path}.read", "mix", (t.B, t.T, Hv, hv), (state,), does="Sᵀ q at each position", seen=f">{path}.norm")
    y = t.norm(f"{path}.norm", block.norm, y, (t.B, t.T, Hv, hv))
    y = t.lay(f"{path}.gated", "multiply", (t.B, t.T, Hv * hv), (y, made["z"]), does="· silu(z), heads side by side", seen=f">{path}.out")
    return t.linear(f"{path}.out", block.out, y)


def mamba(t: Trail, path: str, block: Mamba2, x: str) -> str:
    """Mamba-2."""
    H, m, N = (Dim.const(n) for n in (block.heads, block.head_dim, block.state_size))
    made = _images(t, path, block, x)
    read = _convolved(t, path, block, (made["x"], made["b"], made["c"]))
    does = "what each state keeps and takes up"
    pace = t.lay(
        f"{path}.pace", "act", (t.B, t.T, H), (made["dt"],), does=does, uses=(f"{path}.dt_bias", f"{path}.a_log"), seen=f"{path}.dt>"
    )
    state = t.lay(f"{path}.state", "state", (t.B, H, m, N), (read, pace), **_state(t, path, block))
    does = "S c + skip · x at each position, · silu(z)"
    y = t.lay(f"{path}.read", "mix", (t.B, t.T, H * m), (state, read, made["z"]), does=does, uses=(f"{path}.skip",), seen=f">{path}.norm")
    return t.linear(f"{path}.out", block.out, t.norm(f"{path}.norm", block.norm, y, (t.B, t.T, H * m)))


def _state(t: Trail, path: str, block: RecurrentMixer) -> dict[str, object]:
    """What is true of any step of a state."""
    kept, (_, flops) = cache_spec(block), t.mixing(path, block)
    assert kept is not None and kept.state is not None
    does = "a matrix for each head, carried from position to position"
    return {"does": does, "flops": flops, "keeps": t.B * kept.state, "seen": f"{path}:state"}


def short(t: Trail, path: str, block: ShortConv, x: str) -> str:
    """The short convolution between two gates."""
    made = _images(t, path, block, x)
    wide = (t.B, t.T, block.x.weight.shape[0])
    y = t.lay(f"{path}.product", "multiply", wide, (made["b"], made["x"]), does="b · x", seen=f">{path}.conv")
    y = t.lay(f"{path}.gated", "multiply", wide, (_convolved(t, path, block, (y,)), made["c"]), does="· c", seen=f">{path}.out")
    return t.linear(f"{path}.out", block.out, y)
