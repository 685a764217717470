"""The steps of attention: queries, keys and values of each position alone; then the scores, where positions meet and no weight is used."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.blocks import Attention, LatentAttention, Norm
from ...core.expr import Dim, total
from ...core.positions import Rope
from ..inference.cache_bytes import cache_spec
from .graph_builder import Shape, Trail

SO_FAR = "over the keys so far"


def attention(t: Trail, path: str, block: Attention, x: str) -> str:
    """Softmax attention with grouped queries."""
    H, h, B, T = Dim.const(block.heads), Dim.const(block.head_dim), t.B, t.T
    q = _turned(t, f"{path}.q", block, t.linear(f"{path}.q", block.q, x))
    k, v = _keys(t, path, block, x)
    met = _met(t, path, block, (q, k, v), (H, t.keys(block.window.max_lookback), h))
    y = t.lay(
        f"{path}.concat", "view", (B, T, H * h), (met,), does="the heads side by side: one vector a position", seen=_into(path, block)
    )
    if block.gate is not None:
        gate = t.linear(f"{path}.gate", block.gate, x)
        y = t.lay(f"{path}.gated", "multiply", (B, T, H * h), (y, gate), does="· sigmoid(gate)", seen=f">{path}.o")
    return t.linear(f"{path}.o", block.o, y)


def _into(path: str, block: Attention) -> str:
    """Where the joined heads are met: at the output projection, if no gate comes between."""
    return f">{path}.o" if block.gate is None else f"{path}:joined"


def _turned(t: Trail, path: str, block: Attention, x: str) -> str:
    """Queries or keys in heads, normed and rotated, in the family's order."""
    part = path.rpartition(".")[2]
    heads = Dim.const(block.heads if part == "q" else block.kv_heads)
    shape = (t.B, t.T, heads, Dim.const(block.head_dim))
    norm, rope = getattr(block, f"{part}_norm"), block.rope
    if not block.qk_preprocess.after_rope:
        x = _normed(t, path, norm, (x, block.qk_preprocess.across_heads), shape)
    kind, name = ("rope", f"{path}_rope") if rope else ("view", f"{path}_heads")
    done = norm is None or not block.qk_preprocess.after_rope
    x = t.lay(name, kind, shape, (x,), does=", ".join(_turning(part, block)), seen=f"{path.rpartition('.')[0]}:{part}" if done else "")
    return x if done else _normed(t, path, norm, (x, block.qk_preprocess.across_heads), shape)


def _turning(part: str, block: Attention) -> Iterator[str]:
    yield "cut into heads"
    if block.rope:
        yield rotation(block.rope, block.head_dim)
    if part == "q" and block.score_transform.temperature:
        yield "scaled by position"
    if block.qk_preprocess.clip:
        yield f"kept within ± {block.qk_preprocess.clip.limit:g}"


def rotation(rope: Rope, size: int) -> str:
    """A rotary embedding in words."""
    kind = type(rope).__name__.removesuffix("Rope")
    part = "" if rope.dim == size else f" in {int(rope.dim)} of {int(size)}"
    return f"rotated by position{part}" + (f" ({kind})" if kind else "")


def _normed(t: Trail, path: str, norm: object, x: tuple[str, bool], shape: Shape) -> str:
    if norm is None:
        return x[0]
    B, T, heads, h = shape
    if isinstance(norm, Norm):
        wide = (B, T, heads * h) if x[1] else shape
        kind = type(norm).__name__
        return t.lay(f"{path}_norm", "norm", wide, (x[0],), does=kind, uses=(f"{path}_norm",), seen=f"{path}_norm>")
    return t.lay(f"{path}_norm", "norm", shape, (x[0],), does="a norm for each head", uses=(f"{path}_norm",))


def _keys(t: Trail, path: str, block: Attention, x: str) -> tuple[str, str]:
    """Keys and values of all positions so far."""
    K, h, M = Dim.const(block.kv_heads), Dim.const(block.head_dim), t.keys(block.window.max_lookback)
    if block.k is None:
        does = f"keys and values of layer {block.kv_layer}, read again"
        k = t.lay(f"{path}.keys", "cache", (t.B, M, K, h), (), does=does, seen=f"{path}:keys")
        return k, t.lay(f"{path}.values", "cache", (t.B, M, K, h), (), does=does, seen=f"{path}:values")
    first = t.linear(f"{path}.k", block.k, x)
    k, v = _turned(t, f"{path}.k", block, first), first if block.v is None else t.linear(f"{path}.v", block.v, x)
    if block.v_norm is not None:
        v = t.norm(f"{path}.v_norm", block.v_norm, v, (t.B, t.T, K, h))
    kept = cache_spec(block)
    assert kept is not None
    k_size, v_size = (t.B * kept.tokens(t.at.context) * row for row in kept.rows)
    does = "remembered" if t.at.tokens == t.at.context else "with those remembered"
    k = t.lay(f"{path}.keys", "cache", (t.B, M, K, h), (k,), does=does, keeps=k_size, seen=f"{path}:keys")
    return k, t.lay(f"{path}.values", "cache", (t.B, M, K, h), (v,), does=does, keeps=v_size, seen=f"{path}:values")


def _met(t: Trail, path: str, block: Attention, qkv: tuple[str, str, str], sizes: Shape) -> str:
    """Scores, softmax, and the values weighed: the one place where positions meet."""
    (q, k, v), (H, M, h), (score, share) = qkv, sizes, t.mixing(path, block)
    groups = int(block.heads) // int(block.kv_heads)
    does = "q · k of every pair, scaled" + (f"; {groups} query heads to a key head" if groups > 1 else "")
    x = t.lay(f"{path}.scores", "scores", (t.B, H, t.T, M), (q, k), does=does, flops=score, seen=f"{path}:scores")
    sinks = (f"{path}.sinks",) if block.sinks else ()
    x = t.lay(f"{path}.softmax", "softmax", (t.B, H, t.T, M), (x,), does=", ".join(_sight(block)), uses=sinks, seen=f"{path}:shares")
    return t.lay(f"{path}.mix", "mix", (t.B, H, t.T, h), (x, v), does="each head's values, weighed", flops=share, seen=f"{path}:mixed")


def _sight(block: Attention) -> Iterator[str]:
    """What is done to the scores, in words."""
    reach = block.window
    if reach.size is not None:
        yield f"over the last {reach.size:,} keys" if reach.causal else f"over keys less than {reach.size:,} away, those ahead too"
    elif reach.chunk is not None:
        yield f"over the keys of its chunk of {reach.chunk:,}"
    else:
        yield SO_FAR if reach.causal else "over all keys, those ahead too"
    if block.score_transform.softcap is not None:
        yield f"capped at {block.score_transform.softcap:g}"
    if block.score_transform.alibi is not None:
        yield "ALiBi's slopes added"
    if block.sinks is not None:
        yield "a sink in each head"


def latent_attention(t: Trail, path: str, block: LatentAttention, x: str) -> str:
    """Multi-head latent attention: several positions unpack keys and values from the latents, a single one stays in their space."""
    H, p, v, r = (Dim.const(n) for n in (block.heads, block.rope_dim, block.v_dim, block.kv_lora_rank))
    q = _latent_query(t, path, block, x)
    does = "the part of each head that holds position, " + ("rotated" if block.rope else "as it is")
    place = t.lay(f"{path}.q_rope", "rope", (t.B, t.T, H, p), (q,), does=does, seen=f"{path}:place")
    down = t.linear(f"{path}.kv_down", block.kv_down, x)
    latent = t.norm(f"{path}.kv_norm", block.kv_norm, down, (t.B, t.T, Dim.const(1), r))
    key = t.lay(f"{path}.k_rope", "rope", (t.B, t.T, Dim.const(1), p), (down,), does="one rotated key for all heads", seen=f"{path}:key")
    kept = cache_spec(block)
    assert kept is not None
    keeps, M = t.B * kept.tokens(t.at.context) * total(kept.rows), t.keys()
    held = t.lay(
        f"{path}.latents",
        "cache",
        (t.B, M, total(kept.rows)),
        (latent, key),
        does="remembered, for all heads at once",
        keeps=keeps,
        seen=f"{path}:kept",
    )
    meet = _absorbed if t.at.absorbed else _unpacked
    y = t.lay(
        f"{path}.concat",
        "view",
        (t.B, t.T, H * v),
        (meet(t, path, block, (q, place, held)),),
        does="the heads side by side: one vector a position",
        seen=f">{path}.o",
    )
    return t.linear(f"{path}.o", block.o, y)


def _latent_query(t: Trail, path: str, block: LatentAttention, x: str) -> str:
    if block.q is not None:
        return t.linear(f"{path}.q", block.q, x)
    assert block.q_down is not None and block.q_up is not None
    x = t.linear(f"{path}.q_down", block.q_down, x)
    x = t.norm(f"{path}.q_norm", block.q_norm, x, (t.B, t.T, block.q_down.weight.shape[0]))
    return t.linear(f"{path}.q_up", block.q_up, x)


def _unpacked(t: Trail, path: str, block: LatentAttention, read: tuple[str, str, str]) -> str:
    q, place, held = read
    M = t.keys()
    k = t.linear(f"{path}.k_up", block.k_up, held, (t.B, M), does="the heads' keys, out of the latents")
    v = t.linear(f"{path}.v_up", block.v_up, held, (t.B, M), does="the heads' values, out of the latents")
    return _weighed(t, path, block, ((q, place, k, held), v), Dim.const(block.v_dim))


def _absorbed(t: Trail, path: str, block: LatentAttention, read: tuple[str, str, str]) -> str:
    q, place, held = read
    H, r, v = Dim.const(block.heads), Dim.const(block.kv_lora_rank), Dim.const(block.v_dim)
    does = "the query taken into the latents' space"
    q = t.lay(f"{path}.k_up", "linear", (t.B, H, t.T, r), (q,), does=does, uses=(f"{path}.k_up",), seen=f"{path}:absorbed")
    y = _weighed(t, path, block, ((q, place, held), held), r)
    does = "the heads' values, out of the weighed latents"
    return t.lay(f"{path}.v_up", "linear", (t.B, H, t.T, v), (y,), does=does, uses=(f"{path}.v_up",), seen=f"{path}:unpacked")


def _weighed(t: Trail, path: str, block: LatentAttention, read: tuple[tuple[str, ...], str], size: Dim) -> str:
    H, M, (score, share) = Dim.const(block.heads), t.keys(), t.mixing(path, block)
    x = t.lay(f"{path}.scores", "scores", (t.B, H, t.T, M), read[0], does="q · k of every pair, scaled", flops=score, seen=f"{path}:scores")
    x = t.lay(f"{path}.softmax", "softmax", (t.B, H, t.T, M), (x,), does=SO_FAR, seen=f"{path}:shares")
    does = "each head's values, weighed" if not t.at.absorbed else "the latents, weighed head by head"
    return t.lay(f"{path}.mix", "mix", (t.B, H, t.T, size), (x, read[1]), does=does, flops=share, seen=f"{path}:mixed")
