"""Small constructors that families compose: a linear map, a norm, grouped-query attention, a decoder."""

from __future__ import annotations

from typing import Any

from .blocks import MLP, Attention, Decoder, Embedding, LatentAttention, LayerNorm, Linear, Norm, RMSNorm
from .expr import Dim
from .tree import Role, Stack, Weight


def weight(*shape: int, role: Role = "matmul", tied: str = "") -> Weight:
    """A leaf of this shape."""
    return Weight(shape=tuple(map(Dim.const, shape)), role=role, tied=tied)


def linear(out: int, into: int, bias: bool = False) -> Linear:
    """`[out, into]`, with a bias or without."""
    return Linear(weight=weight(out, into), bias=weight(out, role="bias") if bias else None)


def embedding(rows: int, d: int, scale: float = 1.0) -> Embedding:
    """`[rows, d]`."""
    return Embedding(weight=weight(rows, d, role="lookup"), scale=scale)


def rms(d: int, eps: float, offset: float = 0.0) -> RMSNorm:
    """A scale of d numbers."""
    return RMSNorm(weight=weight(d, role="scale"), eps=eps, offset=offset)


def layer_norm(d: int, eps: float, bias: bool = True) -> LayerNorm:
    """A scale and a shift of d numbers."""
    return LayerNorm(weight=weight(d, role="scale"), bias=weight(d, role="bias") if bias else None, eps=eps)


def gqa(d: int, heads: tuple[int, int, int], bias: bool = False, o_bias: bool | None = None, **facts: Any) -> Attention:
    """Grouped-query attention with `heads` = (H, K, h); further facts go to Attention as they are."""
    H, K, h = heads
    q, k, v = linear(H * h, d, bias), linear(K * h, d, bias), linear(K * h, d, bias)
    o = linear(d, H * h, bias if o_bias is None else o_bias)
    parts: dict[str, Any] = {"q": q, "k": k, "v": v, "o": o, "heads": H, "kv_heads": K, "head_dim": h}
    return Attention(**parts | facts)


def mla(d: int, heads: tuple[Dim, Dim, Dim, Dim], ranks: tuple[Dim | None, Dim], bias: bool = False, **facts: Any) -> LatentAttention:
    """Latent attention with `heads` = (H, a key's size of content, of position, a value's size) and `ranks` of q's and kv's latents."""
    (H, n, p, v), (s, r) = heads, ranks
    q = {"q": linear(H * (n + p), d)}
    low = {} if s is None else {"q_down": linear(s, d, bias), "q_norm": rms(s, 1e-6), "q_up": linear(H * (n + p), s)}
    kv = {"kv_down": linear(r + p, d, bias), "kv_norm": rms(r, 1e-6), "k_up": linear(H * n, r), "v_up": linear(H * v, r)}
    parts: dict[str, Any] = {**(low or q), **kv, "o": linear(d, H * v, bias)}
    return LatentAttention(**parts, heads=H, nope_dim=n, rope_dim=p, v_dim=v, kv_lora_rank=r, **facts)


def swiglu(d: int, F: int, activation: str = "silu", bias: bool = False) -> MLP:
    """Three matrices: gate and up `[F, d]`, down `[d, F]`."""
    return MLP(gate=linear(F, d, bias), up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def mlp(d: int, F: int, activation: str, bias: bool = False) -> MLP:
    """Two matrices: up `[F, d]`, down `[d, F]`."""
    return MLP(up=linear(F, d, bias), down=linear(d, F, bias), activation=activation)


def unembedding(V: int, d: int, tied: bool, bias: bool = False) -> Linear:
    """The head `[V, d]`; a tied one has no matrix of its own."""
    return Linear(weight=weight(V, d, tied="embed.weight" if tied else ""), bias=weight(V, role="bias") if bias else None)


def decoder(V: int, d: int, layers: Stack, norm: Norm | None, tied: bool, **more: Any) -> Decoder:
    """Embedding, layers, norm and head; a tied head has no numbers of its own."""
    head = unembedding(V, d, tied)
    parts: dict[str, Any] = {"embed": embedding(V, d), "layers": layers, "norm": norm, "head": head, "width": d, "vocab": V}
    return Decoder(**parts | more)
