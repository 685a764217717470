"""Recurrent mixers: the gated delta rule, Mamba and Mamba-2, and short convolutions. Their state
does not grow with the sequence.

Letters: c kernel size of the convolution; Hk, hk key heads and their size; Hv, hv value heads and
their size; G groups, N state size, Hm, m heads and their size; i channels and R rank of the time
steps of Mamba.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from ..utils.named_tuple import NamedTuple
from .blocks import MLP, Attention, Layer, Linear, Norm, RMSNorm, apply_optional
from .constructors import linear, rms, weight
from .expr import Expr
from .machine import Machine, X
from .tree import Block, Cut, Weight


class Convolution(Block):
    """A causal depthwise convolution: y at t is Σ w[:, i] · x at (t − c + 1 + i), plus b;
    positions before the first are zero.
    """

    weight: Weight  # [channels, c]
    bias: Weight | None = None
    dilation: int = 1  # only every so many positions are read

    def forward(self, m: Machine[X], x: X) -> X:
        return m.causal_conv(self, x, self.weight, self.bias, self.dilation)


class GroupedRMSNorm(RMSNorm):
    """x is split into as many groups as the weight `[groups, size]` has rows, and each group is
    normalized by itself.
    """

    def forward(self, m: Machine[X], x: X) -> X:
        return m.rms_norm(x, self.weight, self.eps, self.offset, grouped=True)


class RecurrentMixer(Block):
    """Base of the mixers with a state of fixed size."""

    group: ClassVar[str] = "mixer"


class GatedDeltaNet(RecurrentMixer):
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464): each value head keeps a matrix S
    `[key_dim, value_dim]`.

    The concatenation of q, k and v passes the convolution and the activation; q and k are divided
    by their norm, √(Σx² + l2_eps), and q by √key_dim; each key head serves r = value_heads /
    key_heads consecutive value heads. With the decay g = −exp(a_log) · softplus(alpha x + dt_bias)
    and the step s = sigmoid(beta x): S ← exp(g) · S; S ← S + k ⊗ s · (v − Sᵀk); y = Sᵀq. The result
    is out(norm(y) · silu(z x)), y normalized per head.
    """

    short_name: ClassVar[str] = "DeltaNet"
    layout_sizes: ClassVar[dict[str, str]] = {
        "groups": "key_heads",
        "values_per_key": "values_per_key",
        "value_channels": "value_channels",
    }
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("query", "key", "conv", "query_conv", "key_conv"), Cut(0, "key_heads")),
        **dict.fromkeys(
            ("value", "value_conv", "z", "beta", "alpha", "dt_bias", "a_log"), Cut(0, "value_heads")
        ),
        "out": Cut(1, "value_heads"),
    }
    query: Linear
    key: Linear
    value: Linear
    z: Linear
    beta: Linear
    alpha: Linear
    conv: Convolution | None  # None: q, k and v have one each
    query_conv: Convolution | None = None
    key_conv: Convolution | None = None
    value_conv: Convolution | None = None
    dt_bias: Weight
    a_log: Weight
    norm: Norm
    out: Linear
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    activation: str
    l2_eps: float = 1e-6
    beta_factor: float = 1.0  # of the steps (OLMo Hybrid)
    gate_activation: str = "silu"

    @property
    def values_per_key(self) -> int:
        """Value heads that each key head serves."""
        return self.value_heads // self.key_heads

    @property
    def value_channels(self) -> int:
        """Channels of all value heads."""
        return self.value_heads * self.value_dim

    def forward(self, m: Machine[X], x: X) -> X:
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        q, k, v = self.query(m, x), self.key(m, x), self.value(m, x)
        if self.conv is not None:
            q, k, v = m.split(
                m.to_float32(m.act(self.conv(m, m.concat(q, k, v)), self.activation)),
                keys,
                keys,
                values,
            )
        else:
            assert (
                self.query_conv is not None
                and self.key_conv is not None
                and self.value_conv is not None
            )
            q, k, v = self.query_conv(m, q), self.key_conv(m, k), self.value_conv(m, v)
            q, k, v = (m.to_float32(m.act(y, self.activation)) for y in (q, k, v))
        # (B, T, Hk, hk)
        q = m.scale(m.l2_norm(m.split_heads(q, self.key_dim), self.l2_eps), self.key_dim**-0.5)
        k, v = (
            m.l2_norm(m.split_heads(k, self.key_dim), self.l2_eps),
            m.split_heads(v, self.value_dim),
        )
        g = m.decay(m.softplus(self.alpha(m, x), self.dt_bias), self.a_log)  # (B, T, Hv)
        beta = m.scale(m.act(m.to_float32(self.beta(m, x)), "sigmoid"), self.beta_factor)
        # (B, T, Hv, hv)
        y = self.norm(m, m.to_model_dtype(m.gated_delta_rule(self, q, k, v, g, beta)))
        z = m.act(m.to_float32(m.split_heads(self.z(m, x), self.value_dim)), self.gate_activation)
        return self.out(m, m.merge_heads(m.to_model_dtype(m.multiply(m.to_float32(y), z))))


class LowRank(Block):
    """up(down x): a matrix of low rank, as an adapter (LoRA, arXiv:2106.09685)."""

    cuts: ClassVar[dict[str, Cut]] = {"up": Cut(0, "heads", "copy")}
    down: Linear
    up: Linear
    heads: int  # of the queries, keys or values that are its output

    def forward(self, m: Machine[X], x: X) -> X:
        return self.up(m, self.down(m, x))


class KimiDeltaAttention(RecurrentMixer):
    """The delta rule with a decay for each channel of a key (Kimi Linear, arXiv:2510.26692); each
    head keeps S `[head_dim, head_dim]`.

    q, k and v pass a convolution each and the activation; q and k are divided by their norm, and q
    by √head_dim. The decay is g = −exp(a_log) · softplus(forget x + dt_bias), or with a lower bound
    g = bound · sigmoid(exp(a_log) · (forget x + dt_bias)); the step is s = sigmoid(beta x): S ←
    diag(exp(g)) S; S ← S + k ⊗ s · (v − Sᵀk); y = Sᵀq. The result is out(norm(y) · sigmoid(gate
    x)), y normalized per head. The projections `forget` and `gate` are one matrix each, or two
    narrow ones: with `forget_down` and `gate_down`, or as a `LowRank`.
    """

    short_name: ClassVar[str] = "KDA"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(
            (
                "query",
                "key",
                "value",
                "query_conv",
                "key_conv",
                "value_conv",
                "beta",
                "dt_bias",
                "a_log",
            ),
            Cut(0, "heads"),
        ),
        **dict.fromkeys(("forget", "gate"), Cut(0, "heads")),
        "out": Cut(1, "heads"),
    }
    query: Linear
    key: Linear
    value: Linear
    query_conv: Convolution
    key_conv: Convolution
    value_conv: Convolution
    forget_down: Linear | None = None
    forget: Linear | LowRank
    dt_bias: Weight
    a_log: Weight
    beta: Linear
    gate_down: Linear | None = None
    gate: Linear | LowRank
    norm: Norm
    out: Linear
    heads: int
    head_dim: int
    activation: str
    lower_bound: float | None = None
    l2_eps: float = 1e-6
    beta_factor: float = 1.0  # of the steps; 2: the state's eigenvalues may be negative

    def forward(self, m: Machine[X], x: X) -> X:
        h = self.head_dim
        q, k, v = (
            self.query_conv(m, self.query(m, x)),
            self.key_conv(m, self.key(m, x)),
            self.value_conv(m, self.value(m, x)),
        )
        # (B, T, H, h)
        q, k, v = (m.split_heads(m.to_float32(m.act(y, self.activation)), h) for y in (q, k, v))
        q, k = m.scale(m.l2_norm(q, self.l2_eps), h**-0.5), m.l2_norm(k, self.l2_eps)
        forget = self.forget(m, apply_optional(self.forget_down, m, x))
        if self.lower_bound is None:
            # (B, T, H, h)
            g = m.decay(m.split_heads(m.softplus(forget, self.dt_bias), h), self.a_log)
        else:
            g = m.bounded_decay(forget, self.a_log, self.dt_bias, h, self.lower_bound)
        beta = m.scale(m.act(m.to_float32(self.beta(m, x)), "sigmoid"), self.beta_factor)
        y = self.norm(m, m.to_model_dtype(m.gated_delta_rule(self, q, k, v, g, beta)))
        gate = m.act(
            m.to_float32(m.split_heads(self.gate(m, apply_optional(self.gate_down, m, x)), h)),
            "sigmoid",
        )
        return self.out(m, m.merge_heads(m.to_model_dtype(m.multiply(m.to_float32(y), gate))))


class PaddedKimiDeltaAttention(KimiDeltaAttention):
    """The same whose decays are stored with zeros after those of the heads (Kimi K3)."""

    cuts: ClassVar[dict[str, Cut]] = {
        name: cut for name, cut in KimiDeltaAttention.cuts.items() if name != "a_log"
    }


class Mamba(RecurrentMixer):
    """Mamba (Gu and Dao 2023, arXiv:2312.00752): each channel keeps a state s `[state]` with decays
    of its own.

    u is x after the convolution and the activation; the time step is dt = softplus(dt_up
    norm(dt_down u) + dt_bias), and b and c are projections of u, too. In each channel s ←
    exp(−exp(a_log) · dt) · s + dt · u · b; y = s · c + skip · u. The result is out(y · silu(z)).
    """

    short_name: ClassVar[str] = "Mamba"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("x", "z", "conv", "dt_up", "dt_bias", "a_log", "skip"), Cut(0)),
        **dict.fromkeys(("dt_down", "b", "c", "out"), Cut(1)),
    }
    x: Linear
    z: Linear
    conv: Convolution
    dt_down: Linear
    b: Linear
    c: Linear
    dt_norm: Norm | None = None
    b_norm: Norm | None = None
    c_norm: Norm | None = None
    dt_up: Linear
    dt_bias: Weight
    a_log: Weight
    skip: Weight
    out: Linear
    activation: str

    def forward(self, m: Machine[X], x: X) -> X:
        u = m.act(self.conv(m, self.x(m, x)), self.activation)  # (B, T, i)
        dt = apply_optional(self.dt_norm, m, self.dt_down(m, u))
        b = apply_optional(self.b_norm, m, self.b(m, u))  # (B, T, N)
        c = apply_optional(self.c_norm, m, self.c(m, u))
        dt = m.softplus(self.dt_up(m, dt), self.dt_bias)  # (B, T, i)
        y = m.selective_scan(self, u, b, c, dt, self.a_log, self.skip)
        return self.out(m, m.to_model_dtype(m.multiply(y, m.act(self.z(m, x), "silu"))))


class Mamba2(RecurrentMixer):
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060): each head keeps a matrix S `[head_dim, state]`.

    The concatenation of x, b and c passes the convolution and the activation; b and c of each group
    serve heads / state_groups consecutive heads. With the step s = softplus(dt + dt_bias), clamped
    to `dt_limits`: S ← exp(−exp(a_log) · s) · S + s · x ⊗ b; y = S c + skip · x. The result is
    out(norm(y · silu(z))), with `norm_before_gate` out(norm(y) · silu(z)). The projections z, x, b,
    c and dt are multiplied by `multipliers`.
    """

    short_name: ClassVar[str] = "Mamba-2"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("z", "x", "dt", "dt_bias", "a_log", "skip"), Cut(0, "heads")),
        **dict.fromkeys(("b", "c", "conv", "norm"), Cut(0, "state_groups")),
        "out": Cut(1, "heads"),
    }
    z: Linear
    x: Linear
    b: Linear
    c: Linear
    dt: Linear
    conv: Convolution
    dt_bias: Weight
    a_log: Weight
    skip: Weight
    norm: Norm | None = None
    out: Linear
    heads: int
    head_dim: int
    state_groups: int
    state_size: int
    activation: str
    dt_limits: tuple[float, float] = (0.0, inf)
    multipliers: tuple[float, ...] = (1.0,) * 5
    norm_before_gate: bool = False

    def forward(self, m: Machine[X], x: X) -> X:
        inner, states = self.heads * self.head_dim, self.state_groups * self.state_size
        by_z, by_x, by_b, by_c, by_dt = self.multipliers
        v, b, c = (
            m.scale(self.x(m, x), by_x),
            m.scale(self.b(m, x), by_b),
            m.scale(self.c(m, x), by_c),
        )
        mixed = m.act(self.conv(m, m.concat(v, b, c)), self.activation)
        v, b, c = m.split(m.to_float32(mixed), inner, states, states)
        v, b, c = (
            m.split_heads(v, self.head_dim),
            m.split_heads(b, self.state_size),
            m.split_heads(c, self.state_size),
        )
        dt = m.softplus(m.scale(self.dt(m, x), by_dt), self.dt_bias, *self.dt_limits)  # (B, T, Hm)
        # (B, T, Hm · m)
        y = m.merge_heads(
            m.add(m.ssm_scan(self, v, b, c, dt, self.a_log), m.scale_by_weight(v, self.skip))
        )
        gate = m.act(m.to_float32(m.scale(self.z(m, x), by_z)), "silu")
        if self.norm_before_gate:
            return self.out(m, m.to_model_dtype(m.multiply(apply_optional(self.norm, m, y), gate)))
        return self.out(m, apply_optional(self.norm, m, m.to_model_dtype(m.multiply(y, gate))))


class SharedTransformer(Block):
    """mlp(mlp_norm(attn(norm [x; e]))) of hidden states x and embeddings e: a block that several
    layers share (Zamba).
    """

    norm: Norm
    attn: Attention
    mlp_norm: Norm
    mlp: MLP

    def forward(self, m: Machine[X], x: X, e: X) -> X:
        y = self.attn(m, self.norm(m, m.concat(x, e)))
        return self.mlp(m, self.mlp_norm(m, y))


class StateLayer(Layer):
    """A layer that also gets the embeddings of the tokens, which it does not read (Zamba)."""

    def forward(self, m: Machine[X], x: X, *embeddings: X) -> X:  # noqa: ARG002
        return Layer.forward(self, m, x)


class SharedBlockLayer(Layer):
    """x + mixer(norm(x + link(shared(x, e)))) with the embeddings e of the tokens; other layers
    have the same `shared` (Zamba).
    """

    groups: ClassVar[dict[str, str]] = {"link": "mlp"}
    shared: SharedTransformer
    link: Linear
    mixer_norm: Norm
    mixer: RecurrentMixer

    def forward(self, m: Machine[X], x: X, *embeddings: X) -> X:
        y = m.add(x, self.link(m, self.shared(m, x, *embeddings)))
        return m.add(x, self.mixer(m, self.mixer_norm(m, y)))


class ShortConv(RecurrentMixer):
    """out(c · conv(b · x)), with b, c and x three projections of the input (LFM2)."""

    short_name: ClassVar[str] = "short conv"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(("b", "c", "x", "conv"), Cut(0)),
        "out": Cut(1),
    }
    b: Linear
    c: Linear
    x: Linear
    conv: Convolution
    out: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return self.out(
            m, m.multiply(self.c(m, x), self.conv(m, m.multiply(self.b(m, x), self.x(m, x))))
        )


def convolution(channels: int, kernel: int, bias: bool = False) -> Convolution:
    """A causal convolution `[channels, kernel]`, with or without a bias."""
    return Convolution(
        weight=weight(channels, kernel), bias=weight(channels, role="bias") if bias else None
    )


class DeltaHeads(NamedTuple):
    """The numbers and sizes of key heads and of value heads: Hk, hk, Hv and hv."""

    key_heads: Expr
    key_dim: Expr
    value_heads: Expr
    value_dim: Expr


def gated_delta(
    d: int, heads: DeltaHeads, kernel: int, eps: float, activation: str
) -> GatedDeltaNet:
    """A gated delta net with a convolution of this kernel size."""
    Hk, hk, Hv, hv = heads
    query, value, each = linear(Hk * hk, d), linear(Hv * hv, d), linear(Hv, d)
    return GatedDeltaNet(
        query=query,
        key=query,
        value=value,
        z=value,
        beta=each,
        alpha=each,
        conv=convolution(2 * Hk * hk + Hv * hv, kernel),
        dt_bias=weight(Hv, role="bias"),
        a_log=weight(Hv, role="scale"),
        norm=rms(hv, eps),
        out=linear(d, Hv * hv),
        key_heads=Hk,
        value_heads=Hv,
        key_dim=hk,
        value_dim=hv,
        activation=activation,
    )


def split_gated_delta(
    d: int, heads: DeltaHeads, kernel: int, eps: float, activation: str
) -> GatedDeltaNet:
    """A gated delta net with a convolution of this kernel size each for q, k and v."""
    conv, value_conv = (
        convolution(heads.key_heads * heads.key_dim, kernel),
        convolution(heads.value_heads * heads.value_dim, kernel),
    )
    joined = gated_delta(d, heads, kernel, eps, activation)
    return joined.replace(conv=None, query_conv=conv, key_conv=conv, value_conv=value_conv)


def kimi_delta(
    d: int,
    H: Expr,
    h: Expr,
    kernel: int,
    eps: float,
    activation: str,
    *,
    low_rank: bool = True,
    lower_bound: float | None = None,
) -> KimiDeltaAttention:
    """Kimi's delta attention with convolutions of this kernel size; `low_rank` for forget and
    output gates of two narrow matrices.
    """
    into, down = linear(H * h, d), linear(h, d) if low_rank else None
    gate = linear(H * h, h) if low_rank else into
    conv = convolution(H * h, kernel)
    return KimiDeltaAttention(
        query=into,
        key=into,
        value=into,
        query_conv=conv,
        key_conv=conv,
        value_conv=conv,
        forget_down=down,
        forget=gate,
        dt_bias=weight(H * h, role="bias"),
        a_log=weight(H, 1, role="scale"),
        beta=linear(H, d),
        gate_down=down,
        gate=gate,
        norm=rms(h, eps),
        out=linear(d, H * h),
        heads=H,
        head_dim=h,
        activation=activation,
        lower_bound=lower_bound,
    )


def mamba(
    d: int,
    i: Expr,
    N: Expr,
    R: Expr,
    kernel: int,
    *,
    bias: bool,
    conv_bias: bool,
    activation: str,
    norm_eps: float | None = None,
) -> Mamba:
    """Mamba with i channels, a state of N numbers for each and time steps of rank R; `norm_eps`
    normalizes time steps, b and c.
    """
    inner, state = linear(i, d, bias), linear(N, i)
    norm = None if norm_eps is None else RMSNorm(eps=norm_eps)
    return Mamba(
        x=inner,
        z=inner,
        conv=convolution(i, kernel, conv_bias),
        dt_down=linear(R, i),
        b=state,
        c=state,
        dt_norm=norm,
        b_norm=norm,
        c_norm=norm,
        dt_up=linear(i, R),
        dt_bias=weight(i, role="bias"),
        a_log=weight(i, N, role="scale"),
        skip=weight(i, role="scale"),
        out=linear(d, i, bias),
        activation=activation,
    )


class MambaSizes(NamedTuple):
    """The number and size of Mamba-2's heads, its groups and its state size: Hm, m, G and N."""

    heads: Expr
    head_dim: Expr
    groups: Expr
    state_size: Expr


def mamba2(
    d: int,
    sizes: MambaSizes,
    kernel: int,
    eps: float,
    *,
    bias: bool,
    conv_bias: bool,
    activation: str,
    dt_limits: tuple[float, float] = (0.0, inf),
) -> Mamba2:
    """Mamba-2 with a convolution of this kernel size."""
    Hm, m, G, N = sizes
    inner, state = linear(Hm * m, d, bias), linear(G * N, d, bias)
    return Mamba2(
        z=inner,
        x=inner,
        b=state,
        c=state,
        dt=linear(Hm, d, bias),
        conv=convolution(Hm * m + 2 * G * N, kernel, conv_bias),
        dt_bias=weight(Hm, role="bias"),
        a_log=weight(Hm, role="scale"),
        skip=weight(Hm, role="scale"),
        norm=GroupedRMSNorm(weight=weight(G, Expr("i", Hm * m // G), role="scale"), eps=eps),
        out=linear(d, Hm * m, bias),
        heads=Hm,
        head_dim=m,
        state_groups=G,
        state_size=N,
        activation=activation,
        dt_limits=dt_limits,
    )


def short_conv(d: int, kernel: int, bias: bool) -> ShortConv:
    """A short convolution; the bias is on the convolution and its projections."""
    part = linear(d, d, bias)
    return ShortConv(b=part, c=part, x=part, conv=convolution(d, kernel, bias), out=part)
