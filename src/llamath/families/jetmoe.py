"""JetMoE: experts of the MLP and of attention, where each chosen expert has a query for every key,
and one bias for all outputs.

The family is counted only: the bias of all experts is not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import AttentionBase, Decoder, Layer, Linear, MoE
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.tree import Block, Cut, Stack, Weight, counted_only, repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        **dict.fromkeys(("attn.k", "attn.v"), "self_attention.kv_proj"),
        "attn.experts.router": "self_attention.experts.router.layer",
        "attn.experts.queries.{e}": "self_attention.experts.input_linear",
        "attn.experts.outputs.{e}": "self_attention.experts.output_linear",
        "attn.experts.bias": "self_attention.experts.bias",
        "mlp.router": "mlp.router.layer",
        **dict.fromkeys(("mlp.experts.{e}.gate", "mlp.experts.{e}.up"), "mlp.input_linear"),
        "mlp.experts.{e}.down": "mlp.output_linear",
        "mlp.bias": "mlp.bias",
    }
)


class BiasedMoE(MoE):
    """A mixture of experts with one bias for all of them."""

    bias: Weight

    forward = counted_only("JetMoE's mixture of experts")


class QueryExpert(Linear):
    """The projection of an expert of attention to its queries."""

    is_linear_layer: ClassVar[bool] = False
    cuts: ClassVar[dict[str, Cut]] = {"weight": Cut(0, "heads")}
    heads: int


class OutputExpert(Linear):
    """The projection of an expert of attention from its heads."""

    is_linear_layer: ClassVar[bool] = False
    cuts: ClassVar[dict[str, Cut]] = {"weight": Cut(1, "heads")}
    heads: int


class AttentionExperts(Block):
    """Experts of attention, of which a router chooses some for each token; each has queries and
    an output.
    """

    group: ClassVar[str] = "attention"
    groups: ClassVar[dict[str, str]] = {"router": "router"}
    router: Linear
    queries: Stack
    outputs: Stack
    bias: Weight  # of the sum of the outputs

    forward = counted_only("JetMoE's mixture of attention experts")


class ExpertAttention(AttentionBase):
    """Softmax attention of experts: each chosen one has a query for every head of the keys,
    which all share (arXiv:2404.07413).
    """

    cuts: ClassVar[dict[str, Cut]] = dict.fromkeys("kv", Cut(0, "kv_heads"))
    experts: AttentionExperts
    k: Linear
    v: Linear
    kv_heads: int
    head_dim: int

    forward = counted_only("JetMoE's mixture of attention experts")


@family(hf=NAMES, causal_class="JetMoeForCausalLM", has_linear_routers=True)
def jetmoe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    K, h = c.dim("K", "num_key_value_heads"), c.dim("h", "kv_channels|head_dim", default=128)
    E, k = c.dim("E", "num_local_experts", default=8), c.dim("k", "num_experts_per_tok", default=2)
    if k > E:
        raise c.error("num_experts_per_tok", f"is {k}, more than the {E} experts")
    router, bias, norm = linear(E, d), weight(d, role="bias"), rms(d, 1e-6)
    experts = AttentionExperts(
        router=router,
        queries=repeat(linear(K * h, d).extended(QueryExpert, heads=K), E, active=k),
        outputs=repeat(linear(d, K * h).extended(OutputExpert, heads=K), E, active=k),
        bias=bias,
    )
    keys = linear(K * h, d)
    layer = Layer(
        attn_norm=norm,
        attn=ExpertAttention(
            experts=experts, k=keys, v=keys, kv_heads=K, head_dim=h, rope=read_rope(c, h)
        ),
        mlp_norm=norm,
        mlp=BiasedMoE(
            router=router,
            experts=repeat(swiglu(d, F, c.activation("activation_function")), E, active=k),
            top_k=k,
            bias=bias,
        ),
    )
    c.ignore("num_attention_heads")
    layers, tied = (
        repeat(layer, c.dim("L", "num_hidden_layers")),
        c.get("tie_word_embeddings", True),
    )
    return decoder(
        V,
        d,
        layers,
        rms(d, c.get("rms_norm_eps", 1e-6)),
        tied,
        context=c.positive_int("max_position_embeddings"),
    )
