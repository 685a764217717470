"""Attention to the last tokens, and to compressed windows of tokens farther back (DeepSeek-V4).

Letters: H heads of size h, in G groups; Hi and hi the heads of the indexer and their size; W
windows.
"""

from __future__ import annotations

from typing import ClassVar

from ..blocks import AttentionBase, Linear, Norm
from ..constructors import linear, rms, weight
from ..expr import Expr
from ..latent_attention import Indexer, IndexerSizes, rotate_part
from ..machine import Machine, X
from ..positions import Rope
from ..tree import Cut, Weight


class Compressor(AttentionBase):
    """One vector for each window of `ratio` tokens, a weighted mean of kv x, normalized and rotated
    (DeepSeek-V4).

    With `overlap`, a window also has the tokens of the one before: x is projected twice, for its
    own window and for the next.
    """

    unquantized: ClassVar[frozenset[str]] = frozenset({"kv", "weights"})
    rotates_last: ClassVar[bool] = True
    kv: Linear
    weights: Linear | None  # None: the mean
    bias: Weight | None = None  # by the token's place in its window
    norm: Norm
    head_dim: int
    ratio: int
    overlap: bool = False

    def forward(self, m: Machine[X], x: X) -> X:
        return m.update_windows(self, _rotate_windows(self, m, _vectors_of_windows(self, m, x)))


class CompressedIndexer(Indexer):
    """An indexer whose keys are windows of tokens."""

    compressor: Compressor

    def forward(self, m: Machine[X], x: X, latent: X) -> X:
        k = self.compressor(m, x)
        q = rotate_part(self, m, m.split_heads(self.q(m, latent), self.head_dim))
        weights = m.scale(self.head_weights(m, m.to_float32(x)), self.heads**-0.5)
        return m.select_keys(self, q, k, weights)


class CompressedAttention(AttentionBase):
    """Attention to the last tokens, and to windows of tokens farther back: to all of them, or to
    those that an indexer selects.

    All heads share one key for each token, which is its value, too; the output is rotated back and
    projected in groups of heads (DeepSeek-V4).
    """

    short_name: ClassVar[str] = "compressed attention"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("q_up", "sinks"), Cut(0, "heads")),
        "o_down": Cut(0, "o_groups"),
        "o_up": Cut(1, "o_groups"),
    }
    cached_rows: ClassVar[tuple[str, ...]] = ("keys",)
    rotates_last: ClassVar[bool] = True
    q_down: Linear
    q_norm: Norm
    q_up: Linear
    head_norm: Norm | None  # without a weight
    kv: Linear
    kv_norm: Norm
    o_down: Linear  # of each group of heads
    o_up: Linear
    sinks: Weight
    compressor: Compressor | None = None
    indexer: Indexer | None = None
    heads: int
    head_dim: int
    o_groups: int
    o_rank: int
    group_dim: int  # of the heads of a group together
    reverse: Rope
    ratio: int = 0  # tokens of a window; 0: attention to the last tokens alone
    top_k: int = 0  # windows that an indexer selects; 0: all of them

    def forward(self, m: Machine[X], x: X) -> X:
        latent = self.q_norm(m, self.q_down(m, x))
        q, k = _queries_and_keys(self, m, x, latent)
        if self.compressor is None:
            y = m.attention(self, q, k, k, self.head_dim, self.sinks)
        else:
            windows = self.compressor(m, x)
            chosen = None if self.indexer is None else self.indexer(m, x, latent)
            y = m.compressed_attention(self, q, k, windows, self.head_dim, self.sinks, chosen)
        return _project_groups(self, m, y)


def _queries_and_keys(attn: CompressedAttention, m: Machine[X], x: X, latent: X) -> tuple[X, X]:
    """Return the queries of this pass, `(B, T, H, h)`, and the keys of the last tokens, `(B, S,
    1, h)`.
    """
    q = m.split_heads(attn.q_up(m, latent), attn.head_dim)
    q = _rotate_last(
        attn, m, q if attn.head_norm is None else m.norm_heads(attn.head_norm, q), attn.rope
    )
    k = _rotate_last(
        attn, m, m.split_heads(attn.kv_norm(m, attn.kv(m, x)), attn.head_dim), attn.rope
    )
    (k,) = m.update_cache(attn, k)
    return q, k


def _project_groups(attn: CompressedAttention, m: Machine[X], y: X) -> X:
    """Rotate the heads' output back and project it, first by groups of heads."""
    # (B, T, G, H·h/G)
    y = m.split_heads(m.merge_heads(_rotate_last(attn, m, y, attn.reverse)), attn.group_dim)
    return attn.o_up(m, m.merge_heads(m.per_head_linear(y, attn.o_down.weight, attn.o_rank)))


def _vectors_of_windows(compressor: Compressor, m: Machine[X], x: X) -> X:
    """Return the vectors of the windows that end in this pass, before their rotation, `(B, W, 1,
    h)`.
    """
    kv = compressor.kv(m, x)
    gate = None if compressor.weights is None else compressor.weights(m, x)
    return compressor.norm(m, m.compress(compressor, kv, gate, compressor.bias))


def _rotate_windows(windows: Compressor, m: Machine[X], y: X) -> X:
    """Rotate the last channels of the vectors of windows."""
    assert windows.rope is not None
    plain, rotary = m.split(y, windows.head_dim - windows.rope.dim, windows.rope.dim)
    return m.concat(plain, m.rope_windows(windows, rotary, windows.rope))


def _rotate_last(attn: CompressedAttention, m: Machine[X], x: X, rope: Rope | None) -> X:
    """Rotate the last channels of each head."""
    assert rope is not None
    plain, rotary = m.split(x, attn.head_dim - rope.dim, rope.dim)
    return m.concat(plain, m.rope(rotary, rope))


def compressor(
    d: Expr, h: Expr, ratio: int, eps: float, rope: Rope | None, *, overlap: bool
) -> Compressor:
    """Windows of `ratio` tokens, which a bias for each place in a window weighs, too."""
    width = 2 * h if overlap else h
    kv, bias = linear(width, d), weight(ratio, width, role="bias")
    return Compressor(
        kv=kv,
        weights=kv,
        bias=bias,
        norm=rms(h, eps),
        head_dim=h,
        ratio=ratio,
        overlap=overlap,
        rope=rope,
    )


def compressed_indexer(
    d: Expr, into: Expr, sizes: IndexerSizes, ratio: int, eps: float, rope: Rope | None
) -> CompressedIndexer:
    """An indexer with windows of its own, whose queries are projected from `into` numbers."""
    Hi, hi, ki = sizes
    return CompressedIndexer(
        q=linear(Hi * hi, into),
        k=None,
        k_norm=None,
        head_weights=linear(Hi, d),
        heads=Hi,
        head_dim=hi,
        top_k=ki,
        rope=rope,
        rope_last=True,
        ratio=ratio,
        compressor=compressor(d, hi, ratio, eps, rope, overlap=True),
    )
