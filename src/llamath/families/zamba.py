"""Zamba: layers of Mamba, before some of which one shared transformer block reads the hidden
states and the embeddings.
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from ..config_keys import any_name
from ..core.blocks import Attention, Decoder, Linear
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.mixers import (
    Convolution,
    RecurrentMixer,
    SharedBlockLayer,
    SharedTransformer,
    StateLayer,
    convolution,
)
from ..core.tree import Stack, Weight, repeat, tie
from .layers_shared import layers_from, listed_layers
from .mamba_shared import auto_dim
from .registry import family
from .zamba_shared import MAMBA_MODULES, hybrid_kinds, shared_attention, zamba_names


class MambaHead(RecurrentMixer):
    """The state space of some channels u of Mamba, whose time steps, b and c are projections of
    these channels alone.
    """

    # not modules of their own
    unquantized: ClassVar[frozenset[str]] = frozenset({"dt_down", "b", "c", "dt_up"})
    dt_down: Linear
    b: Linear
    c: Linear
    dt_up: Linear
    dt_bias: Weight
    a_log: Weight
    skip: Weight

    def forward(self, m: Machine[X], u: X) -> X:
        dt = m.softplus(self.dt_up(m, self.dt_down(m, u)), self.dt_bias)
        return m.selective_scan(self, u, self.b(m, u), self.c(m, u), dt, self.a_log, self.skip)


class MambaWithHeads(RecurrentMixer):
    """Mamba whose channels are divided among heads; each has matrices of its own for time steps,
    b and c (Zamba, arXiv:2405.16712).
    """

    x: Linear
    z: Linear
    conv: Convolution
    per_head: Stack
    out: Linear
    num_heads: int
    head_dim: int
    activation: str

    def forward(self, m: Machine[X], x: X) -> X:
        u = m.split(
            m.act(self.conv(m, self.x(m, x)), self.activation), *(self.head_dim,) * self.num_heads
        )
        # (B, T, i)
        y = m.concat(*[head(m, part) for head, part in zip(self.per_head, u, strict=True)])
        return self.out(m, m.to_model_dtype(m.multiply(y, m.act(self.z(m, x), "silu"))))


def mamba_with_heads(
    d: int,
    n: Expr,
    m: Expr,
    N: Expr,
    R: Expr,
    kernel: int,
    *,
    bias: bool,
    conv_bias: bool,
    activation: str,
) -> MambaWithHeads:
    """Mamba with n heads of m channels each, a state of N numbers for each channel and time
    steps of rank R.
    """
    channels, state = Expr.const(n) * m, linear(N, m)
    head = MambaHead(
        dt_down=linear(R, m),
        b=state,
        c=state,
        dt_up=linear(m, R),
        dt_bias=weight(m, role="bias"),
        a_log=weight(m, N, role="scale"),
        skip=weight(m, role="scale"),
    )
    into = linear(channels, d, bias)
    return MambaWithHeads(
        x=into,
        z=into,
        conv=convolution(channels, kernel, conv_bias),
        per_head=repeat(head, n),
        out=linear(d, channels, bias),
        num_heads=n,
        head_dim=m,
        activation=activation,
    )


_MAMBA = {
    **dict.fromkeys(("x", "z"), "in_proj"),
    "conv": "conv1d",
    **dict.fromkeys((f"per_head.{{e}}.{x}.weight" for x in ("dt_down", "b", "c")), "x_proj_weight"),
    "per_head.{e}.dt_up.weight": "dt_proj_weight",
    "per_head.{e}.dt_bias": "dt_proj_bias",
    "per_head.{e}.a_log": "A_log",
    "per_head.{e}.skip": "D",
    "out": "out_proj",
}
NAMES = zamba_names(
    "shared_transf",
    {
        f"{path}.{x}": f"{module}.{name}"
        for path, module in MAMBA_MODULES.items()
        for x, name in _MAMBA.items()
    },
    layouts={"x": "rows", "z": "rows", "conv.weight": "unit"},
)
MAX_HEADS = 64


@family(hf=NAMES, causal_class="ZambaForCausalLM")
def zamba(c: Config) -> Decoder:
    d, V, L, eps = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("L", "num_hidden_layers"),
        c.get("rms_norm_eps", 1e-5),
    )
    if c.get("attention_hidden_size", 2 * int(d)) not in (0, 2 * d):
        raise c.error(
            "attention_hidden_size",
            f"is {c['attention_hidden_size']}: hidden states "
            f"and embeddings are {2 * d} wide together",
        )
    norm, mixer = rms(d, eps), _mamba(c, d)
    mlp = swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act", "gelu"))
    shared = SharedTransformer(norm=rms(2 * d, eps), attn=_attention(c, d), mlp_norm=norm, mlp=mlp)
    kinds = hybrid_kinds(c, L, _default_kinds(c, L))
    first = kinds.index("hybrid") if "hybrid" in kinds else -1
    state = StateLayer(attn_norm=norm, attn=mixer)

    def layer(kind: str, owner: bool) -> StateLayer | SharedBlockLayer:
        if kind == "mamba":
            return state
        block = shared if owner else tie(shared, f"layers.{first}.shared")
        return SharedBlockLayer(shared=block, link=linear(d, d), mixer_norm=norm, mixer=mixer)

    layers = layers_from(layer, kinds, (i == first for i in range(len(kinds))), count_dim=L)
    c.ignore(
        "num_logits_to_keep",
        "use_associative_scan",
        "use_mamba_kernels",
        "time_step_floor",
        "time_step_max",
        "time_step_min",
    )
    c.require("tie_word_embeddings", True, "layers would share no blocks in transformers")
    context = c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied=True, context=context).replace(
        layers_read_embeddings=True
    )


def _default_kinds(c: Config, L: int) -> list[str]:
    period, offset = c.positive_int("attn_layer_period", 6), c.get("attn_layer_offset", 4)
    later = ["hybrid" if i % period == offset else "mamba" for i in listed_layers(c, L - 3)]
    return ["mamba", "mamba", "hybrid", *later]


def _attention(c: Config, d: Expr) -> Attention:
    H = c.dim("H", "num_attention_heads")
    h = c.dim("h", "attention_head_dim|head_dim", default=Expr.const(2 * d // H))
    return shared_attention(d, H, c.dim("K", "num_key_value_heads", default=16), h)


def _mamba(c: Config, d: Expr) -> MambaWithHeads:
    i, n = Expr("i", c.get("mamba_expand", 2) * d), c.dim("n", "n_mamba_heads", default=2)
    if n > MAX_HEADS or i % n:
        raise c.error(
            "n_mamba_heads",
            f"is {n}: it should divide the {i} channels of Mamba and be at most {MAX_HEADS}",
        )
    N, R, m = (
        c.dim("N", "mamba_d_state", default=16),
        auto_dim(c, "R", "mamba_dt_rank", ceil(d / 16)),
        Expr("m", i // n),
    )
    return mamba_with_heads(
        d,
        n,
        m,
        N,
        R,
        c.dim("c", "mamba_d_conv", default=4),
        bias=c.get("mamba_proj_bias", False),
        conv_bias=c.get(any_name("mamba_conv_bias"), True),
        activation=c.activation("hidden_mamba_act"),
    )
