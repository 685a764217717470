"""Ling 3: Kimi's delta attention with a bounded decay, gated latent attention in every sixth
layer, DeepSeek-V3's experts.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Linear
from ..core.config import Config
from ..core.constructors import decoder, linear, rms
from ..core.expr import Expr
from ..core.latent_attention import LatentAttention, attend, latents_of, queries_of, query_latent_of
from ..core.machine import Machine, X
from ..core.mixers import KimiDeltaAttention, kimi_delta
from ..core.tree import Cut
from .deepseek_shared import latent_attention
from .kimi_shared import DELTA_LAYOUTS, delta_hybrid, delta_names, kimi_experts
from .registry import family
from .rope_shared import read_rope


class HeadGatedLatentAttention(LatentAttention):
    """Latent attention in which a sigmoid gate multiplies the output of each head (Ling 3)."""

    cuts: ClassVar[dict[str, Cut]] = {**LatentAttention.cuts, "gate": Cut(0, "heads")}
    gate: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        q, q_rope = queries_of(self, m, query_latent_of(self, m, x))
        y = attend(self, m, q, q_rope, latents_of(self, m, x))  # (B, T, H, v)
        gate = m.to_model_dtype(m.act(m.to_float32(self.gate(m, x)), "sigmoid"))
        return self.o(m, m.merge_heads(m.multiply(y, m.split_heads(gate, 1))))


LATENT = {path: name.replace("self_attn.", "attention.") for path, name in HF_LATENT.inside.items()}
DELTA = delta_names("attention", forget="f_proj", gate="g_proj", out="dense")
NAMES = HF_LATENT.with_changes(
    outside={"embed": "model.word_embeddings"},
    inside=LATENT | DELTA | {"attn.o": "attention.dense", "mlp.correction": "mlp.gate.expert_bias"},
    layouts={**HF_LATENT.layouts, **DELTA_LAYOUTS, "attn.a_log": "flat"},
)


@family(hf=NAMES, causal_class="BailingHybridForCausalLM")
def bailing_hybrid(c: Config) -> Decoder:
    d, V, eps = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.get("rms_norm_eps", 1e-6)
    rope = read_rope(c, c.dim("p", "qk_rope_head_dim"), 6e6, interleaved=True)
    latent = latent_attention(c, d, rope, q_rank=None)
    full = latent.extended(HeadGatedLatentAttention, gate=linear(latent.heads, d))
    every, moe = (
        c.positive_int("layer_group_size", 6),
        kimi_experts(c, d, groups=8, kept=4, factor=2.5),
    )
    layers = delta_hybrid(
        c, d, eps, _delta(c, d, eps), full, moe, first=2, is_full=lambda i: (i + 1) % every == 0
    )
    c.ignore(
        "num_nextn_predict_layers",
        "num_mtp_layers",
        "mtp_loss_scaling_factor",
        "tie_word_embeddings",
    )
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=False,
        context=c.positive_int("model_max_length|max_position_embeddings"),
    )


def _delta(c: Config, d: Expr, eps: float) -> KimiDeltaAttention:
    """Read delta attention, which has the heads of the model; files of transformers 5 repeat
    their size under another key.
    """
    h = (
        c.dim("hk", "linear_head_dim")
        if "linear_head_dim" in c
        else c.dim("hk", "head_dim", default=128)
    )
    H, kernel = c.dim("H", "num_attention_heads"), c.dim("c", "short_conv_kernel_size", default=4)
    bound = c.get("kda_lower_bound", -5.0) if c.get("kda_safe_gate", True) else None
    if c.get("linear_num_heads", H.plain()) != H:
        raise c.error(
            "linear_num_heads",
            f"should be {H}, the number of attention heads",
            "transformers 5 derives it from num_attention_heads",
        )
    c.ignore("head_dim", "linear_conv_kernel_dim", "kda_lower_bound")
    return kimi_delta(
        d, H, h, kernel, eps, c.activation("hidden_act"), low_rank=False, lower_bound=bound
    )
