"""Readers that Qwen's MoE and hybrid families share: experts, sparse layers, gated attention and
the gated delta net.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from math import lcm

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.blocks import Attention, Layer, MoE, Norm
from ..core.config import Config
from ..core.constructors import gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import DeltaHeads, GatedDeltaNet, gated_delta
from ..core.tree import Block, Stack
from .deepseek_shared import mtp_layers
from .layers_shared import every_nth, layer_numbers, layers_by_type
from .rope_shared import read_rope, rotary_dim

MAX_PERIOD = 1000
"""Upper limit of the period of a layer pattern."""

SHARED = {f"mlp.shared.{x}": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")}
NAMES_SHARED = HF.with_changes(inside=SHARED | {"mlp.shared_gate": "mlp.shared_expert_gate"})


def hybrid(inside: dict[str, str], layouts: dict[str, str]) -> Scheme:
    """Return the HF names of a hybrid; `inside` names the input projections of linear attention."""
    delta = {
        "attn.gate": "self_attn.q_proj",
        "attn.conv": "linear_attn.conv1d",
        "attn.dt_bias": "linear_attn.dt_bias",
        "attn.a_log": "linear_attn.A_log",
        "attn.norm": "linear_attn.norm",
        "attn.out": "linear_attn.out_proj",
    }
    return NAMES_SHARED.with_changes(
        inside=delta | inside,
        layouts={"attn.q": "each", "attn.gate": "each", "attn.conv.weight": "unit"} | layouts,
    )


def hybrid_gguf(inside: dict[str, str], layouts: dict[str, str]) -> Scheme:
    """Return the GGUF names of a hybrid, where linear attention is named like a state-space
    model.
    """
    delta = {
        **dict.fromkeys(("attn.query", "attn.key", "attn.value"), "attn_qkv"),
        "attn.gate": "attn_q",
        "attn.z": "attn_gate",
        "attn.conv": "ssm_conv1d",
        "attn.dt_bias": "ssm_dt.bias",
        "attn.a_log": "ssm_a",
        "attn.norm": "ssm_norm",
        "attn.out": "ssm_out",
        "mlp_norm": "post_attention_norm",
    }
    norms = dict.fromkeys(
        ("attn_norm", "mlp_norm", "norm", "attn.q_norm", "attn.k_norm"), "shifted"
    )
    return GGUF.with_changes(
        inside=delta | inside,
        layouts={"attn.q": "each", "attn.gate": "each", "attn.a_log": "decay"} | norms | layouts,
    )


VALUES = (
    "attn.value",
    "attn.z",
    "attn.beta",
    "attn.alpha",
    "attn.conv",
    "attn.dt_bias",
    "attn.out",
)
NAMES_DELTA = hybrid(
    {
        **dict.fromkeys(("attn.query", "attn.key", "attn.value"), "linear_attn.in_proj_qkv"),
        "attn.z": "linear_attn.in_proj_z",
        "attn.beta": "linear_attn.in_proj_b",
        "attn.alpha": "linear_attn.in_proj_a",
        "embed_norm": "/mtp.pre_fc_norm_embedding",
        "hidden_norm": "/mtp.pre_fc_norm_hidden",
        "join": "/mtp.fc",
        "norm": "/mtp.norm",
    },
    {},
).replace(mtp_layer="mtp.layers.{l}.")
"""Qwen3.5's names."""

NAMES_DELTA_GGUF = hybrid_gguf(
    {"attn.beta": "ssm_beta", "attn.alpha": "ssm_alpha"},
    dict.fromkeys(VALUES, "tiled") | {"attn.a_log": "decay tiled"},
)


def experts(c: Config, d: Expr, norm_topk_prob: bool) -> MoE:
    """Read the mixture of experts."""
    E, k, Fe = (
        c.dim("E", any_name("num_experts")),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    if k > E:
        raise c.error("num_experts_per_tok", f"is {k}, more than the {E} experts")
    expert = swiglu(d, Fe, c.activation("hidden_act"))
    return mixture(d, E, k, expert, norm_topk_prob=norm_topk_prob)


def experts_with_shared(c: Config, d: Expr, norm_topk_prob: bool) -> MoE:
    """Read the mixture of experts with a shared expert and its gate."""
    shared = swiglu(d, c.dim("Fs", "shared_expert_intermediate_size"), c.activation("hidden_act"))
    return experts(c, d, norm_topk_prob).replace(shared=shared, shared_gate=linear(1, d))


def sparse_every(
    c: Config, mixers: Stack, layer: Callable[[Block, bool], Layer], dense: tuple[int, ...] = ()
) -> Stack:
    """Return layers with these mixers; every `decoder_sparse_step`-th has experts, except
    `mlp_only_layers`, by default `dense`.
    """
    step, dense, cached_layer = (
        c.get("decoder_sparse_step", 1),
        tuple(layer_numbers(c, "mlp_only_layers", dense)),
        cache(layer),
    )
    if not 1 <= step <= MAX_PERIOD:
        raise c.error("decoder_sparse_step", f"should be from 1 to {MAX_PERIOD}, not {step}")
    runs: list[tuple[tuple[Block, ...], int]] = []
    start = 0
    for pattern, times in mixers.runs:
        end = len(pattern) * times
        cuts = {i - start for x in dense for i in (x, x + 1) if start < i < start + end}
        for a, b in pairwise((0, *sorted(cuts), int(end) if cuts else end)):
            period = lcm(len(pattern), step)
            numbers = range(a, min(a + period, b))
            kinds = tuple(
                cached_layer(
                    pattern[i % len(pattern)],
                    (start + i + 1) % step == 0 and start + i not in dense,
                )
                for i in numbers
            )
            runs += [
                (kinds, b - a if period == 1 else (b - a) // period),
                (kinds[: (b - a) % period], 1),
            ]
        start += int(end)
    return Stack(*runs)


def one_in_four(c: Config, linear_attention: Block, full_attention: Block) -> Stack:
    """Return layers of which every fourth has full attention, unless `full_attention_interval`
    or `layer_types` gives another order.
    """
    nth, L = c.get("full_attention_interval", 4), c.dim("L", "num_hidden_layers")
    if not 1 <= nth <= MAX_PERIOD:
        raise c.error("full_attention_interval", f"should be from 1 to {MAX_PERIOD}, not {nth}")
    kinds = {"linear_attention": linear_attention, "full_attention": full_attention}
    return layers_by_type(c, L, kinds, every_nth(nth, full_attention, linear_attention, L))


def gated_attention(c: Config, d: Expr, eps: float, kv: int = 2) -> Attention:
    """Read softmax attention with per-head norms of q and k, a quarter of each head rotary, and
    an output gate.
    """
    c.require("attn_output_gate", True, "this family has only gated attention")
    heads = H, _, h = c.heads(d, num_kv_heads=kv, head_dim=256)
    bias, norm = c.get("attention_bias", False), rms(h, eps, offset=1.0)
    rotary = read_rope(c, rotary_dim(c, h, 0.25))
    return gqa(d, heads, bias, rope=rotary, gate=linear(H * h, d, bias), q_norm=norm, k_norm=norm)


def qwen_mtp(c: Config, V: Expr, d: Expr, layer: Layer, norm: Norm) -> Stack | None:
    """Read the layer for multi-token prediction, which classes leave out."""
    c.require("mtp_use_dedicated_embeddings", False, "every published model has it")
    if c.get("mtp_num_hidden_layers", 0) > 1:
        raise c.error("mtp_num_hidden_layers", "should be at most 1, as in every published model")
    return mtp_layers(c, V, d, layer, keys="mtp_num_hidden_layers", norm=norm)


def delta_net(c: Config, d: Expr, eps: float) -> GatedDeltaNet:
    """Read the gated delta net."""
    Hk, hk = c.dim("Hk", "linear_num_key_heads"), c.dim("hk", "linear_key_head_dim")
    Hv, hv = c.dim("Hv", "linear_num_value_heads"), c.dim("hv", "linear_value_head_dim")
    if Hv % Hk:
        raise c.error(
            "linear_num_key_heads", f"is {Hk}, which does not divide the {Hv} value heads"
        )
    c.ignore("mamba_ssm_dtype", "output_gate_type", "full_attention_interval")
    return gated_delta(
        d,
        DeltaHeads(Hk, hk, Hv, hv),
        c.dim("c", "linear_conv_kernel_dim"),
        eps,
        c.activation("hidden_act"),
    )
