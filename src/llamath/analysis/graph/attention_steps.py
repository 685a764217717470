"""The steps of attention: projections, rotary embeddings, cache, scores, softmax and the weighted sum of values."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.blocks import Attention, LatentAttention, Norm
from ...core.expr import Expr, total
from ...core.positions import Rope
from .graph_builder import GraphBuilder, Shape
from .old_counts import cache_spec

OVER_CACHED_KEYS = "over all previous keys"


def attention_steps(t: GraphBuilder, path: str, block: Attention, x: str) -> str:
    """Add the steps of grouped-query attention."""
    H, h, B, T = Expr.const(block.heads), Expr.const(block.head_dim), t.B, t.T
    q = _heads_step(t, f"{path}.q", block, t.linear(f"{path}.q", block.q, x))
    k, v = _keys(t, path, block, x)
    met = _mix_tokens(t, path, block, (q, k, v), (H, t.keys(block.window.max_lookback), h))
    y = t.add_step(
        f"{path}.concat",
        "view",
        (B, T, H * h),
        (met,),
        description="heads concatenated per token",
        hook_point=_joined_hook(path, block),
    )
    if block.gate is not None:
        gate = t.linear(f"{path}.gate", block.gate, x)
        y = t.add_step(f"{path}.gated", "multiply", (B, T, H * h), (y, gate), description="· sigmoid(gate)", hook_point=f">{path}.o")
    return t.linear(f"{path}.o", block.o, y)


def _joined_hook(path: str, block: Attention) -> str:
    """The hook point of the concatenated heads: the input of the output projection, unless there is a gate."""
    return f">{path}.o" if block.gate is None else f"{path}:joined"


def _heads_step(t: GraphBuilder, path: str, block: Attention, x: str) -> str:
    """Split queries or keys into heads, with norm and rotary embedding in the family's order."""
    part = path.rpartition(".")[2]
    heads = Expr.const(block.heads if part == "q" else block.kv_heads)
    shape = (t.B, t.T, heads, Expr.const(block.head_dim))
    norm, rope = getattr(block, f"{part}_norm"), block.rope
    if not block.qk_preprocess.after_rope:
        x = _normed(t, path, norm, (x, block.qk_preprocess.across_heads), shape)
    kind, name = ("rope", f"{path}_rope") if rope else ("view", f"{path}_heads")
    done = norm is None or not block.qk_preprocess.after_rope
    x = t.add_step(
        name,
        kind,
        shape,
        (x,),
        description=", ".join(_heads_description(part, block)),
        hook_point=f"{path.rpartition('.')[0]}:{part}" if done else "",
    )
    return x if done else _normed(t, path, norm, (x, block.qk_preprocess.across_heads), shape)


def _heads_description(part: str, block: Attention) -> Iterator[str]:
    yield "split into heads"
    if block.rope:
        yield rotation(block.rope, block.head_dim)
    if part == "q" and block.score_transform.temperature:
        yield "scaled by position (temperature)"
    if block.qk_preprocess.clip:
        yield f"clamped to ± {block.qk_preprocess.clip.limit:g}"


def rotation(rope: Rope, size: int) -> str:
    """Describe a rotary embedding."""
    kind = type(rope).__name__.removesuffix("Rope")
    part = "" if rope.dim == size else f" in {int(rope.dim)} of {int(size)}"
    return f"rotated by position{part}" + (f" ({kind})" if kind else "")


def _normed(t: GraphBuilder, path: str, norm: object, x: tuple[str, bool], shape: Shape) -> str:
    if norm is None:
        return x[0]
    B, T, heads, h = shape
    if isinstance(norm, Norm):
        wide = (B, T, heads * h) if x[1] else shape
        kind = type(norm).__name__
        return t.add_step(f"{path}_norm", "norm", wide, (x[0],), description=kind, weights=(f"{path}_norm",), hook_point=f"{path}_norm>")
    return t.add_step(f"{path}_norm", "norm", shape, (x[0],), description="per-head norm", weights=(f"{path}_norm",))


def _keys(t: GraphBuilder, path: str, block: Attention, x: str) -> tuple[str, str]:
    """Add the keys and values of all positions so far, including the cache."""
    K, h, M = Expr.const(block.kv_heads), Expr.const(block.head_dim), t.keys(block.window.max_lookback)
    if block.k is None:
        does = f"keys and values shared with layer {block.kv_layer}"
        k = t.add_step(f"{path}.keys", "cache", (t.B, M, K, h), (), description=does, hook_point=f"{path}:keys")
        return k, t.add_step(f"{path}.values", "cache", (t.B, M, K, h), (), description=does, hook_point=f"{path}:values")
    first = t.linear(f"{path}.k", block.k, x)
    k, v = _heads_step(t, f"{path}.k", block, first), first if block.v is None else t.linear(f"{path}.v", block.v, x)
    if block.v_norm is not None:
        v = t.norm(f"{path}.v_norm", block.v_norm, v, (t.B, t.T, K, h))
    kept = cache_spec(block)
    assert kept is not None
    k_size, v_size = (t.B * kept.tokens(t.at.context) * row for row in kept.rows)
    does = "written to the KV cache" if t.at.tokens == t.at.context else "appended to the KV cache"
    k = t.add_step(f"{path}.keys", "cache", (t.B, M, K, h), (k,), description=does, cached=k_size, hook_point=f"{path}:keys")
    return k, t.add_step(f"{path}.values", "cache", (t.B, M, K, h), (v,), description=does, cached=v_size, hook_point=f"{path}:values")


def _mix_tokens(t: GraphBuilder, path: str, block: Attention, qkv: tuple[str, str, str], sizes: Shape) -> str:
    """Add scores, softmax and the weighted sum of values: the only steps that mix tokens."""
    (q, k, v), (H, M, h), (score, share) = qkv, sizes, t.mixing(path, block)
    groups = int(block.heads) // int(block.kv_heads)
    does = "q · k of every pair, scaled" + (f"; {groups} query heads per KV head" if groups > 1 else "")
    x = t.add_step(f"{path}.scores", "scores", (t.B, H, t.T, M), (q, k), description=does, flops=score, hook_point=f"{path}:scores")
    sinks = (f"{path}.sinks",) if block.sinks else ()
    x = t.add_step(
        f"{path}.softmax",
        "softmax",
        (t.B, H, t.T, M),
        (x,),
        description=", ".join(_score_description(block)),
        weights=sinks,
        hook_point=f"{path}:shares",
    )
    return t.add_step(
        f"{path}.mix", "mix", (t.B, H, t.T, h), (x, v), description="values weighted by attention", flops=share, hook_point=f"{path}:mixed"
    )


def _score_description(block: Attention) -> Iterator[str]:
    """Describe the mask and the transforms of the scores."""
    reach = block.window
    if reach.size is not None:
        yield f"over the last {reach.size:,} keys" if reach.causal else f"over keys less than {reach.size:,} away, including later ones"
    elif reach.chunk is not None:
        yield f"over the keys of its chunk of {reach.chunk:,}"
    else:
        yield OVER_CACHED_KEYS if reach.causal else "over all keys, including later ones"
    if block.score_transform.softcap is not None:
        yield f"capped at {block.score_transform.softcap:g}"
    if block.score_transform.alibi is not None:
        yield "ALiBi bias added"
    if block.sinks is not None:
        yield "one attention sink per head"


def latent_attention(t: GraphBuilder, path: str, block: LatentAttention, x: str) -> str:
    """Add the steps of multi-head latent attention: prefill decompresses keys and values, decode absorbs the up-projections."""
    H, p, v, r = (Expr.const(n) for n in (block.heads, block.rope_dim, block.v_dim, block.kv_lora_rank))
    q = _latent_query(t, path, block, x)
    does = "the rotary part of each head" + ("" if block.rope else ", unrotated")
    place = t.add_step(f"{path}.q_rope", "rope", (t.B, t.T, H, p), (q,), description=does, hook_point=f"{path}:place")
    down = t.linear(f"{path}.kv_down", block.kv_down, x)
    latent = t.norm(f"{path}.kv_norm", block.kv_norm, down, (t.B, t.T, Expr.const(1), r))
    key = t.add_step(
        f"{path}.k_rope",
        "rope",
        (t.B, t.T, Expr.const(1), p),
        (down,),
        description="one rotary key shared by all heads",
        hook_point=f"{path}:key",
    )
    kept = cache_spec(block)
    assert kept is not None
    keeps, M = t.B * kept.tokens(t.at.context) * total(kept.rows), t.keys()
    held = t.add_step(
        f"{path}.latents",
        "cache",
        (t.B, M, total(kept.rows)),
        (latent, key),
        description="written to the KV cache, shared by all heads",
        cached=keeps,
        hook_point=f"{path}:kept",
    )
    meet = _absorbed if t.at.absorbed else _unpacked
    y = t.add_step(
        f"{path}.concat",
        "view",
        (t.B, t.T, H * v),
        (meet(t, path, block, (q, place, held)),),
        description="heads concatenated per token",
        hook_point=f">{path}.o",
    )
    return t.linear(f"{path}.o", block.o, y)


def _latent_query(t: GraphBuilder, path: str, block: LatentAttention, x: str) -> str:
    if block.q is not None:
        return t.linear(f"{path}.q", block.q, x)
    assert block.q_down is not None and block.q_up is not None
    x = t.linear(f"{path}.q_down", block.q_down, x)
    x = t.norm(f"{path}.q_norm", block.q_norm, x, (t.B, t.T, block.q_down.weight.shape[0]))
    return t.linear(f"{path}.q_up", block.q_up, x)


def _unpacked(t: GraphBuilder, path: str, block: LatentAttention, read: tuple[str, str, str]) -> str:
    q, place, held = read
    M = t.keys()
    k = t.linear(f"{path}.k_up", block.k_up, held, (t.B, M), description="keys decompressed from the latents")
    v = t.linear(f"{path}.v_up", block.v_up, held, (t.B, M), description="values decompressed from the latents")
    return _mix_latents(t, path, block, ((q, place, k, held), v), Expr.const(block.v_dim))


def _absorbed(t: GraphBuilder, path: str, block: LatentAttention, read: tuple[str, str, str]) -> str:
    q, place, held = read
    H, r, v = Expr.const(block.heads), Expr.const(block.kv_lora_rank), Expr.const(block.v_dim)
    does = "query projected into the latent space"
    q = t.add_step(
        f"{path}.k_up", "linear", (t.B, H, t.T, r), (q,), description=does, weights=(f"{path}.k_up",), hook_point=f"{path}:absorbed"
    )
    y = _mix_latents(t, path, block, ((q, place, held), held), r)
    does = "values decompressed from the weighted latents"
    return t.add_step(
        f"{path}.v_up", "linear", (t.B, H, t.T, v), (y,), description=does, weights=(f"{path}.v_up",), hook_point=f"{path}:unpacked"
    )


def _mix_latents(t: GraphBuilder, path: str, block: LatentAttention, read: tuple[tuple[str, ...], str], size: Expr) -> str:
    H, M, (score, share) = Expr.const(block.heads), t.keys(), t.mixing(path, block)
    x = t.add_step(
        f"{path}.scores",
        "scores",
        (t.B, H, t.T, M),
        read[0],
        description="q · k of every pair, scaled",
        flops=score,
        hook_point=f"{path}:scores",
    )
    x = t.add_step(f"{path}.softmax", "softmax", (t.B, H, t.T, M), (x,), description=OVER_CACHED_KEYS, hook_point=f"{path}:shares")
    does = "values weighted by attention" if not t.at.absorbed else "latents weighted by attention, per head"
    return t.add_step(f"{path}.mix", "mix", (t.B, H, t.T, size), (x, read[1]), description=does, flops=share, hook_point=f"{path}:mixed")
