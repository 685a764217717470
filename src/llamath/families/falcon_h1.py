"""Falcon-H1: attention and Mamba-2 in parallel in every layer, SwiGLU, and a factor (µP) on
nearly every product.
"""

from __future__ import annotations

from ..core.attention_facts import ScoreTransform
from ..core.blocks import MLP, Attention, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.mixers import Mamba2
from ..core.tree import Block, repeat
from ..utils.named_tuple import NamedTuple
from .bamba import NAMES_FEED_FORWARD
from .mamba_shared import mamba2_layer, mamba2_names
from .registry import family
from .rope_shared import read_rope


class BranchMultipliers(NamedTuple):
    """Factors of the inputs and outputs of two branches."""

    attention_in: float = 1.0
    attention_out: float = 1.0
    state_in: float = 1.0
    state_out: float = 1.0


class ParallelMixers(Block):
    """Attention and a recurrent mixer that read the same x; the result is the sum of both, each
    with factors (Falcon-H1).
    """

    attention: Attention
    state: Mamba2
    multipliers: BranchMultipliers = BranchMultipliers()

    def forward(self, m: Machine[X], x: X) -> X:
        by = self.multipliers
        y = m.scale(self.state(m, m.scale(x, by.state_in)), by.state_out)
        return m.add(y, m.scale(self.attention(m, m.scale(x, by.attention_in)), by.attention_out))


class ScaledMLP(MLP):
    """down(act(gate_multiplier · gate x) · up x) · down_multiplier (Falcon-H1)."""

    gate_multiplier: float
    down_multiplier: float

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.gate is not None
        gate = m.scale(self.gate(m, x), self.gate_multiplier)
        return m.scale(
            self.down(m, m.gated(gate, self.up(m, x), self.activation)), self.down_multiplier
        )


ATTENTION = {f"attn.attention.{x}": f"self_attn.{x}_proj" for x in "qkvo"}
LAYOUTS = {"attn.state.conv.weight": "unit", "attn.state.norm": "flat"}
NAMES = NAMES_FEED_FORWARD.with_changes(
    inside=ATTENTION | mamba2_names("mamba", "attn.state"), layouts=LAYOUTS
)


@family(
    hf=NAMES,
    gguf_arch="falcon-h1",
    why_no_gguf="llama.cpp's converter multiplies the factors of the config into the weights, "
    "which then have other values",
    causal_class="FalconH1ForCausalLM",
)
def falcon_h1(c: Config) -> Decoder:
    d, V, eps = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.get("rms_norm_eps", 1e-5)
    norm = rms(d, eps)
    by_gate, by_down = _factors(c, "mlp_multipliers", 2)
    mlp = swiglu(
        d, c.dim("F", "intermediate_size"), c.activation("hidden_act"), c.get("mlp_bias", False)
    )
    multipliers = BranchMultipliers(
        *(
            c.get(f"{x}_multiplier", 1.0)
            for x in ("attention_in", "attention_out", "ssm_in", "ssm_out")
        )
    )
    mixers = ParallelMixers(
        attention=_attention(c, d), state=_state(c, d, eps), multipliers=multipliers
    )
    scaled = mlp.extended(ScaledMLP, gate_multiplier=by_gate, down_multiplier=by_down)
    layers = repeat(
        Layer(attn_norm=norm, attn=mixers, mlp_norm=norm, mlp=scaled),
        c.dim("L", "num_hidden_layers"),
    )
    c.ignore(
        "layer_types",
        "layers_block_type",
        "mamba_chunk_size",
        "mamba_expand",
        "mamba_use_mlp",
        "num_logits_to_keep",
    )
    embed, factor = (
        embedding(V, d, c.get("embedding_multiplier", 1.0)),
        c.get("lm_head_multiplier", 1.0),
    )
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, embed=embed, logit_scale=factor, context=context)


def _attention(c: Config, d: Expr) -> Attention:
    """Read attention; the factor of its keys is one of the scores."""
    heads = c.heads(d, num_kv_heads=8)
    h = heads.head_dim
    scores = ScoreTransform(scale=h**-0.5 * c.get("key_multiplier", 1.0))
    return gqa(
        d, heads, c.get("attention_bias", False), rope=read_rope(c, h), score_transform=scores
    )


def _state(c: Config, d: Expr, eps: float) -> Mamba2:
    """Read Mamba-2, whose heads have a width of their own and may have no norm."""
    mixer = mamba2_layer(c, d, eps, c.nullable("mamba_d_ssm", 1024))
    return mixer.replace(
        norm=mixer.norm if c.get("mamba_rms_norm", False) else None,
        norm_before_gate=c.get("mamba_norm_before_gate", True),
        out=linear(d, mixer.heads * mixer.head_dim, c.get("projectors_bias", False)),
        multipliers=_factors(c, "ssm_multipliers", 5),
    )


def _factors(c: Config, key: str, count: int) -> tuple[float, ...]:
    """Read a list of factors."""
    factors = c.numbers(key) if key in c else (1.0,) * count
    if len(factors) != count:
        raise c.error(key, f"should have {count} numbers, not {len(factors)}")
    return factors
