"""Zamba2: layers of Mamba-2, before some of which shared transformer blocks take turns; each use
has low-rank adapters of its own.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from ..core.blocks import MLP, Attention, Decoder, Linear, apply_optional
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.mixers import (
    LowRank,
    Mamba2,
    MambaSizes,
    SharedBlockLayer,
    SharedTransformer,
    StateLayer,
    mamba2,
)
from ..core.tree import Block, Cut, Stack, cycle, sequence, tie
from .mamba_shared import MAMBA2_LAYOUTS, checked_sizes, mamba2_names
from .registry import family
from .rope_shared import read_rope
from .zamba_shared import MAMBA_MODULES, hybrid_kinds, shared_attention, zamba_names


class NoAdapter(Block):
    """The place of an adapter that another block has."""

    def forward(self, m: Machine[X], x: X) -> X:  # noqa: ARG002
        return x


class AdaptedLinear(Linear):
    """W x + b plus one of its adapters: layers share W, and each has an adapter of its own
    (Zamba2).
    """

    adapters: Stack
    adapter: int  # number of the one that is used here

    def forward(self, m: Machine[X], x: X) -> X:
        return m.add(
            Linear.forward(self, m, x), apply_optional([*self.adapters][self.adapter], m, x)
        )


class MLPAdapter(Block):
    """gate(down x) and up(down x), which are added to the projections of an MLP."""

    group: ClassVar[str] = "mlp"
    cuts: ClassVar[dict[str, Cut]] = {"gate": Cut(0), "up": Cut(0)}
    down: Linear
    gate: Linear
    up: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        """Return down x, which gate and up read."""
        return self.down(m, x)


class AdaptedMLP(MLP):
    """An MLP that layers share, each with an adapter of its own for gate and up (Zamba2)."""

    adapters: Stack
    adapter: int  # number of the one that is used here

    def forward(self, m: Machine[X], x: X) -> X:
        gate, up = _adapted_projections(self, [*self.adapters][self.adapter], m, x)
        return self.down(m, m.gated(gate, up, self.activation))


def _adapted_projections(mlp: AdaptedMLP, adapter: MLPAdapter, m: Machine[X], x: X) -> tuple[X, X]:
    """Return the projections gate and up of an MLP, each with its adapter's product added."""
    assert mlp.gate is not None
    low = adapter(m, x)
    return m.add(mlp.gate(m, x), adapter.gate(m, low)), m.add(mlp.up(m, x), adapter.up(m, low))


_MLP = "shared_transformer.feed_forward.gate_up_proj"
_ADAPTER = "shared_transformer.self_attn.linear_{x}_adapter_list.{{e}}.{i}"
NAMES = zamba_names(
    "shared_transformer",
    {
        **{
            x: name
            for path, module in MAMBA_MODULES.items()
            for x, name in mamba2_names(module, path).items()
        },
        **{
            f"shared.attn.{x}.adapters.{{e}}.{half}": _ADAPTER.format(x=x, i=i)
            for x in "qkv"
            for i, half in enumerate(("down", "up"))
        },
        **dict.fromkeys(("shared.mlp.gate", "shared.mlp.up"), _MLP),
        **{
            f"shared.mlp.adapters.{{e}}.{x}": f"{_MLP}_adapter_list.{{e}}.{i}"
            for x, i in (("down", 0), ("gate", 1), ("up", 1))
        },
    },
    layouts={path.removeprefix("attn."): layout for path, layout in MAMBA2_LAYOUTS.items()},
)
MAX_USES = 256
"""Layers with a shared block at most: each block has a place for the adapters of all."""
_DEFAULT_HYBRIDS = (6, 12, 18, 24, 30, 36, 42, 47, 51)
_DERIVED = "attention_head_dim attention_hidden_size kv_channels num_query_groups"
_UNUSED = (
    "chunk_size num_logits_to_keep use_conv_bias use_mamba_kernels use_mem_eff_path "
    "time_step_floor time_step_max"
)


@family(hf=NAMES, causal_class="Zamba2ForCausalLM")
def zamba2(c: Config) -> Decoder:
    d, V, L, eps = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("L", "num_hidden_layers"),
        c.get("rms_norm_eps", 1e-5),
    )
    kinds = hybrid_kinds(c, L, ["hybrid" if i in _DEFAULT_HYBRIDS else "mamba" for i in range(54)])
    hybrids = [i for i, kind in enumerate(kinds) if kind == "hybrid"]
    if len(hybrids) > MAX_USES:
        raise c.error(
            "layers_block_type",
            f"has {len(hybrids)} hybrid layers; at most {MAX_USES} can be counted",
        )
    norm, mixer, blocks = rms(d, eps), _mamba(c, d), c.dim("M", "num_mem_blocks", default=1)
    attn, mlp, rank = (
        _attention(c, d),
        swiglu(d, *_mlp(c, d)),
        c.dim("r", "adapter_rank", default=128),
    )
    into, F, adapted = (
        linear(rank, d),
        mlp.down.weight.shape[1],
        c.get("use_shared_attention_adapter", False),
    )
    if adapted and attn.kv_heads * attn.head_dim != 2 * d:
        raise c.error(
            "num_key_value_heads",
            f"is {attn.kv_heads}: adapters of keys and values are {2 * d} wide",
        )
    mlp_adapter = MLPAdapter(down=into, gate=linear(F, rank), up=linear(F, rank))
    head_adapter = LowRank(
        down=linear(rank, 2 * d), up=linear(attn.heads * attn.head_dim, rank), heads=attn.heads
    )

    def adapters(adapter: Block, own: int) -> Stack:
        """The adapters of all uses, of which a block has those of its own."""
        return cycle(
            [adapter if i == own else NoAdapter() for i in range(min(blocks, len(hybrids)))],
            len(hybrids),
        )

    def layer(use: int) -> SharedBlockLayer:
        own = use % blocks
        stack = adapters(head_adapter, own)
        adapt = (
            {
                x: getattr(attn, x).extended(AdaptedLinear, adapters=stack, adapter=use)
                for x in "qkv"
            }
            if adapted
            else {}
        )
        block = SharedTransformer(
            norm=rms(2 * d, eps),
            attn=attn.replace(**adapt),
            mlp_norm=norm,
            mlp=mlp.extended(AdaptedMLP, adapters=adapters(mlp_adapter, own), adapter=use),
        )
        block = block if use == own else tie(block, f"layers.{hybrids[own]}.shared")
        return SharedBlockLayer(shared=block, link=linear(d, d), mixer_norm=norm, mixer=mixer)

    state, uses = StateLayer(attn_norm=norm, attn=mixer), iter(range(len(hybrids)))
    layers = sequence(
        (layer(next(uses)) if kind == "hybrid" else state for kind in kinds), count_dim=L
    )
    c.ignore(*_DERIVED.split(), *_UNUSED.split())
    c.require("tie_word_embeddings", True, "layers would share no blocks in transformers")
    context = c.positive_int("max_position_embeddings")
    context = 16384 if c.get("use_long_context", False) else context
    return decoder(V, d, layers, norm, tied=True, context=context).replace(
        layers_read_embeddings=True
    )


def _attention(c: Config, d: Expr) -> Attention:
    H = c.dim("H", "num_attention_heads")
    if 2 * d % H:
        raise c.error(
            "num_attention_heads", f"is {H}, which does not divide twice the width, {2 * d}"
        )
    K, h = c.dim("K", "num_key_value_heads", default=H), Expr("h", 2 * d // H)
    return shared_attention(d, H, K, h, read_rope(c, h) if c.get("use_mem_rope", False) else None)


def _mlp(c: Config, d: Expr) -> tuple[Expr, str, bool]:
    return (
        c.dim("F", "intermediate_size", default=4 * d),
        c.activation("hidden_act", "gelu"),
        c.get("add_bias_linear", False),
    )


def _mamba(c: Config, d: Expr) -> Mamba2:
    inner, Hm = d.scaled(c.get("mamba_expand", 2)), c.dim("Hm", "n_mamba_heads", default=8)
    if inner % Hm:
        raise c.error(
            "n_mamba_heads", f"is {Hm}, which does not divide the {inner} channels of Mamba"
        )
    if c.get("mamba_headdim", inner // Hm) != inner // Hm:
        hint = "configs of the first files lack n_mamba_heads, and name other keys otherwise"
        raise c.error(
            "mamba_headdim", f"is {c['mamba_headdim']}, but {Hm} heads are {inner // Hm} wide", hint
        )
    sizes = MambaSizes(
        Hm,
        Expr("m", inner // Hm),
        c.dim("G", "mamba_ngroups", default=1),
        c.dim("N", "mamba_d_state", default=64),
    )
    return mamba2(
        d,
        checked_sizes(c, sizes, inner, "mamba_headdim", "mamba_ngroups"),
        c.dim("c", "mamba_d_conv", default=4),
        1e-5,
        bias=c.get("add_bias_linear", False),
        conv_bias=True,
        activation="silu",
        dt_limits=(c.get("time_step_min", 0.001), inf),
    )
