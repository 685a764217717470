"""Latent attention (DeepSeek-V2, arXiv:2405.04434), and its sparse form, in which an indexer
chooses the keys (DeepSeek-V3.2).

Letters: H heads, n and p the parts of a query without and with rotation, r the size of the latent
vectors, Hi and hi the heads of the indexer and their size, ki the keys that it keeps.
"""

from __future__ import annotations

from typing import ClassVar

from ..utils.named_tuple import NamedTuple
from .attention_facts import ScoreTransform
from .blocks import AttentionBase, Linear, Norm, apply_optional
from .constructors import layer_norm, linear, rms
from .expr import Expr
from .machine import Machine, X
from .positions import Rope
from .tree import Block, Cut, Weight

_PLAIN_SCORES = ScoreTransform()


class LatentAttention(AttentionBase):
    """Multi-head latent attention: keys and values are projected from one latent vector for each
    token.
    """

    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("q", "q_up", "k_up", "v_up"), Cut(0, "heads")),
        "o": Cut(1, "heads"),
    }
    short_name: ClassVar[str] = "MLA"
    layout_sizes: ClassVar[dict[str, str]] = {"groups": "heads"}
    computes_on_shards: ClassVar[bool] = True
    cached_rows: ClassVar[tuple[str, ...]] = ("latents",)
    rotary_part: ClassVar[str] = "rope_dim"
    q: Linear | None = None  # either one matrix
    q_down: Linear | None = None  # or two with a norm between
    q_norm: Norm | None = None
    q_up: Linear | None = None
    # to the latent vector and the rotary key that all heads share; None: those of another layer are
    # used
    kv_down: Linear | None
    kv_norm: Norm | None
    k_up: Linear
    v_up: Linear
    o: Linear
    heads: int
    nope_dim: int
    rope_dim: int  # 0: neither queries nor keys have a part that rotates
    v_dim: int
    kv_lora_rank: int
    q_factor: float = 1.0  # factor of the queries
    latent_factor: float = 1.0  # factor of the normalized latent vectors

    @property
    def shared_rows(self) -> tuple[tuple[int, int], ...]:
        return ((1, self.kv_lora_rank + self.rope_dim),)

    def forward(self, m: Machine[X], x: X) -> X:
        q, q_rope = queries_of(self, m, query_latent_of(self, m, x))
        return self.o(m, m.merge_heads(attend(self, m, q, q_rope, latents_of(self, m, x))))


class Indexer(AttentionBase):
    """Chooses the keys of each query: the `top_k` with the largest Σ wₕ · relu(qₕ · k / √hi) over
    few small heads, which share one key.

    The choice has no derivative; an indexer learns from a loss of its own.
    """

    cached_rows: ClassVar[tuple[str, ...]] = ("keys",)
    without_gradient: ClassVar[bool] = True
    unquantized: ClassVar[frozenset[str]] = frozenset({"head_weights"})
    q: Linear  # of the latent vector of the queries
    k: Linear | None  # None: keys of windows
    k_norm: Norm | None
    head_weights: Linear
    heads: int
    head_dim: int
    top_k: int
    ratio: int = 1  # tokens of a key
    rope_last: bool = False  # the last channels of a head rotate, not the first

    def forward(self, m: Machine[X], x: X, latent: X) -> X:
        assert self.k is not None and self.k_norm is not None
        q = rotate_part(self, m, m.split_heads(self.q(m, latent), self.head_dim))  # (B, T, Hi, hi)
        # (B, T, 1, hi)
        k = rotate_part(self, m, m.split_heads(self.k_norm(m, self.k(m, x)), self.head_dim))
        (k,) = m.update_cache(self, k)
        weights = m.scale(self.head_weights(m, m.to_float32(x)), self.heads**-0.5)  # (B, T, Hi)
        return m.select_keys(self, q, k, weights)


class IndexedAttention(LatentAttention):
    """Latent attention to the keys that an indexer chooses.

    A layer without an indexer uses the choice of the nearest earlier layer that has one
    (IndexCache, arXiv:2603.12201).
    """

    short_name: ClassVar[str] = "sparse MLA"
    computes_on_shards: ClassVar[bool] = True
    cuts: ClassVar[dict[str, Cut]] = {
        **LatentAttention.cuts,
        **dict.fromkeys(("gate", "sinks"), Cut(0, "heads")),
    }
    gate: Linear | None = None  # its sigmoid multiplies the output of the heads
    sinks: Weight | None = None  # one learned logit per head, an attention sink without a value
    indexer: Block | None = None
    top_k: int

    def forward(self, m: Machine[X], x: X) -> X:
        latent = query_latent_of(self, m, x)
        q, q_rope = queries_of(self, m, latent)
        cached = latents_of(self, m, x)
        chosen = m.reuse_selection(self) if self.indexer is None else self.indexer(m, x, latent)
        y = m.merge_heads(attend(self, m, q, q_rope, cached, chosen, self.sinks))
        if self.gate is not None:
            y = m.multiply(y, m.act(self.gate(m, x), "sigmoid"))
        return self.o(m, y)


class WindowKeys(AttentionBase):
    """One key for each window of `ratio` tokens, the mean of theirs, weighted by a gate if there
    is one.
    """

    unquantized: ClassVar[frozenset[str]] = frozenset({"gate"})  # not a module of its own
    bias: Weight | None = None  # by the token's place in its window
    gate: Linear | None = None
    k: Linear
    k_norm: Norm | None = None
    mean_norm: Norm | None = None
    head_dim: int
    ratio: int
    overlap: bool = False

    def forward(self, m: Machine[X], x: X) -> X:
        k = apply_optional(self.k_norm, m, self.k(m, x))
        gate = None if self.gate is None else self.gate(m, x)
        y = apply_optional(self.mean_norm, m, m.compress(self, k, gate, self.bias))  # (B, W, 1, h)
        return m.update_windows(self, m.rope_windows(self, y, self.rope))


def query_latent_of(attn: LatentAttention, m: Machine[X], x: X) -> X:
    """Return what the queries are projected from: the normalized latent vector, or x itself."""
    return x if attn.q_down is None else apply_optional(attn.q_norm, m, attn.q_down(m, x))


def queries_of(attn: LatentAttention, m: Machine[X], latent: X) -> tuple[X, X | None]:
    """Return the parts of the queries without and with rotation, `(B, T, H, n)` and `(B, T, H,
    p)`.
    """
    q = apply_optional(attn.q_up, m, apply_optional(attn.q, m, latent))  # one of both
    q = m.scale_by_position(
        m.split_heads(m.scale(q, attn.q_factor), attn.nope_dim + attn.rope_dim),
        attn.score_transform.temperature,
    )
    if not attn.rope_dim:
        return q, None
    q, q_rope = m.split(q, attn.nope_dim, attn.rope_dim)
    return q, m.rope(q_rope, attn.rope)


def latents_of(attn: LatentAttention, m: Machine[X], x: X) -> X:
    """Return the latent vectors of all tokens with their rotary keys, `(B, S, 1, r + p)`."""
    if attn.kv_down is None or attn.kv_norm is None:
        (cached,) = m.read_cache(attn)
        return cached
    down = m.split_heads(attn.kv_down(m, x), attn.kv_lora_rank + attn.rope_dim)  # one head for all
    latent, k_rope = (
        (down, None) if not attn.rope_dim else m.split(down, attn.kv_lora_rank, attn.rope_dim)
    )
    latent = m.scale(attn.kv_norm(m, latent), attn.latent_factor)
    (cached,) = m.update_cache(
        attn, latent if k_rope is None else m.concat(latent, m.rope(k_rope, attn.rope))
    )
    return cached


def attend(
    attn: LatentAttention,
    m: Machine[X],
    q: X,
    q_rope: X | None,
    cached: X,
    chosen: X | None = None,
    sinks: Weight | None = None,
) -> X:
    """Return the outputs of the heads, `(B, T, H, v)`."""
    latent, k_rope = (
        (cached, None) if q_rope is None else m.split(cached, attn.kv_lora_rank, attn.rope_dim)
    )
    if m.absorbs:  # the up-projections are applied to the queries and to the result
        # (B, T, H, r + p)
        q = _joined(
            m, m.per_head_linear(q, attn.k_up.weight, attn.nope_dim, transposed=True), q_rope
        )
        y = m.attention(attn, q, cached, latent, attn.nope_dim + attn.rope_dim, sinks, chosen)
        return m.per_head_linear(y, attn.v_up.weight, attn.v_dim)
    latent = m.merge_heads(latent)  # the latent vectors are expanded to keys and values
    k = _joined(m, m.split_heads(attn.k_up(m, latent), attn.nope_dim), k_rope)  # (B, S, H, n + p)
    v = m.split_heads(attn.v_up(m, latent), attn.v_dim)
    return m.attention(
        attn, _joined(m, q, q_rope), k, v, attn.nope_dim + attn.rope_dim, sinks, chosen
    )


def _joined(m: Machine[X], x: X, rotary: X | None) -> X:
    """Return both parts of queries or keys."""
    return x if rotary is None else m.concat(x, rotary)


def rotate_part(indexer: Indexer, m: Machine[X], x: X) -> X:
    """Rotate some channels of each head."""
    if not indexer.rope_last or indexer.rope is None:
        return m.rope(x, indexer.rope)
    plain, rotary = m.split(x, indexer.head_dim - indexer.rope.dim, indexer.rope.dim)
    return m.concat(plain, m.rope(rotary, indexer.rope))


class LatentSizes(NamedTuple):
    """The sizes of latent attention: heads, parts of a head, and the ranks of the latent vectors
    (None: queries have none).
    """

    num_heads: Expr
    nope_dim: Expr
    rope_dim: Expr
    v_dim: Expr
    q_rank: Expr | None
    kv_rank: Expr


def mla(
    d: int,
    sizes: LatentSizes,
    bias: bool = False,
    *,
    rope: Rope | None,
    score_transform: ScoreTransform = _PLAIN_SCORES,
    eps: float = 1e-6,
) -> LatentAttention:
    """Multi-head latent attention; the norms of its latent vectors have this eps."""
    H, n, p, v, s, r = sizes
    return LatentAttention(
        q=linear(H * (n + p), d) if s is None else None,
        q_down=None if s is None else linear(s, d, bias),
        q_norm=None if s is None else rms(s, eps),
        q_up=None if s is None else linear(H * (n + p), s),
        kv_down=linear(r + p, d, bias),
        kv_norm=rms(r, eps),
        k_up=linear(H * n, r),
        v_up=linear(H * v, r),
        o=linear(d, H * v, bias),
        heads=H,
        nope_dim=n,
        rope_dim=p,
        v_dim=v,
        kv_lora_rank=r,
        rope=rope,
        score_transform=score_transform,
    )


class IndexerSizes(NamedTuple):
    """The heads of an indexer, their size, and the number of keys that it keeps: Hi, hi and ki."""

    heads: Expr
    head_dim: Expr
    top_k: Expr


def indexer(
    d: int,
    into: int,
    sizes: IndexerSizes,
    eps: float,
    *,
    rope: Rope | None,
    rope_last: bool = False,
) -> Indexer:
    """An indexer whose queries are projected from `into` numbers."""
    Hi, hi, ki = sizes
    return Indexer(
        q=linear(Hi * hi, into),
        k=linear(hi, d),
        k_norm=layer_norm(hi, eps),
        head_weights=linear(Hi, d),
        heads=Hi,
        head_dim=hi,
        top_k=ki,
        rope=rope,
        rope_last=rope_last,
    )
