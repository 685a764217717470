"""Mistral 4 (in Mistral Small 4): DeepSeek's attention and mixture, queries scaled by their
position, experts stored as stacks.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, ExpertGroups, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from ..core.positions import TemperatureTuning
from .deepseek_shared import Routing, deepseek_moe, latent_attention
from .gguf_record import DEEPSEEK_MOE, GROUPED_ROUTING, MLA, GGUFMetadata
from .gguf_shared import mla_keys, read_ministral_rope
from .layers_shared import dense_first
from .registry import family
from .rope_shared import rope_from

GATE_UP = ("mlp.experts.{e}.gate", "mlp.experts.{e}.up")
NAMES = HF_LATENT.with_changes(
    inside={
        **{f"{x}.weight": "mlp.experts.gate_up_proj" for x in GATE_UP},
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
    }
)
FUSED = GGUF_LATENT.with_changes(inside=dict.fromkeys(GATE_UP, "ffn_gate_up_exps"))
YARN = {
    "rope_type": "yarn",
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


@family(
    hf=NAMES,
    gguf=FUSED,
    gguf_arch="mistral4",
    gguf_metadata=GGUFMetadata(
        keys=f"{MLA} {DEEPSEEK_MOE} {GROUPED_ROUTING}",
        read=read_ministral_rope,
        write=mla_keys,
        unstated="how queries are scaled with the position; using the family's default",
    ),
    causal_class="Mistral4ForCausalLM",
)
def mistral4(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    s = c.sub("rope_parameters") if "rope_parameters" in c else Config(YARN)
    s.ignore("type", "partial_rotary_factor", "max_position_embeddings")
    p, interleaved = c.dim("p", "qk_rope_head_dim"), c.get("rope_interleave", True)
    positions = rope_from(c, s, theta=c.get("rope_theta", 10000.0), dim=p, interleaved=interleaved)
    temperature = TemperatureTuning(
        scale=s.get("llama_4_scaling_beta", 0.1), floor=s["original_max_position_embeddings"]
    )
    c.ignore("mlp_bias", "sliding_window")
    n_group, topk_group = c.get("n_group", 1), c.get("topk_group", 1)
    moe = deepseek_moe(
        c,
        d,
        Routing(expert_groups=ExpertGroups(n_group, topk_group, 2) if n_group > 1 else None),
        shared=1,
        norm_topk_prob=c.get("norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", 1.0),
    )
    mlp = swiglu(d, F, c.activation("hidden_act"))
    dense = Layer(
        attn_norm=norm,
        attn=latent_attention(c, d, positions, temperature, q_rank=1024),
        mlp_norm=norm,
        mlp=mlp,
    )
    layers = dense_first(c, dense, dense.replace(mlp=moe), default=0)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
