"""GPT-OSS: biases everywhere, every other layer with a window, a sink in each head, clamped
experts stored as stacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import Keys, expert_width_keys
from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import ClampedMLP, Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, weight
from ..core.tree import cycle, repeat
from .gguf_record import BASE, LOCAL_EXPERTS, GGUFMetadata
from .gguf_shared import rope_keys
from .layers_shared import layers_by_type
from .registry import family
from .rope_shared import rope_from

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

GATE_UP = ("mlp.experts.{e}.gate", "mlp.experts.{e}.up")
NAMES = HF.with_changes(
    inside={
        "mlp.router": "mlp.router",
        **{f"{x}.weight": "mlp.experts.gate_up_proj" for x in GATE_UP},
        **{f"{x}.bias": "mlp.experts.gate_up_proj_bias" for x in GATE_UP},
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
        "mlp.experts.{e}.down.bias": "mlp.experts.down_proj_bias",
    },
    layouts={
        **{f"{x}.weight": "rows flip" for x in GATE_UP},
        **{f"{x}.bias": "rows" for x in GATE_UP},
        "mlp.experts.{e}.down.weight": "flip",
    },
)
RENAMED = GGUF.with_changes(inside={"mlp_norm": "post_attention_norm"})
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return YaRN without truncation of its range; the family's default would be a scaling of
    its own.
    """
    from ..checkpoint.gguf_metadata.gguf_rope import read_rope_parameters

    rope = read_rope_parameters(h)
    return {"rope_parameters": rope | ({"truncate": False} if rope["rope_type"] == "yarn" else {})}


@family(
    hf=NAMES,
    gguf=RENAMED,
    gguf_arch="gpt-oss",
    gguf_metadata=GGUFMetadata(
        keys=f"{BASE} rms_norm_eps {LOCAL_EXPERTS} attention_bias sliding_window "
        "layer_types=sliding_layer_types",
        read=_read_gguf,
        write=lambda f: rope_keys(f) | expert_width_keys(f),
        unstated="where the experts' gates are clamped (swiglu_limit); using 7",
    ),
    causal_class="GptOssForCausalLM",
)
def gpt_oss(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", any_name("num_local_experts")), c.dim("k", any_name("num_experts_per_tok"))
    H, K, h = c.heads(d, num_kv_heads=8, head_dim=64)
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    positions = rope_from(
        c,
        c.rope() if "rope_parameters|rope_scaling" in c else Config(YARN),
        theta=c.get("rope_theta", 150000.0),
        dim=h,
    )
    attn = gqa(
        d,
        Heads(H, K, h),
        c.get("attention_bias", True),
        sinks=weight(H, role="bias"),
        rope=positions,
    )
    expert = ClampedMLP(
        gate=linear(F, d, True),
        up=linear(F, d, True),
        down=linear(d, F, True),
        activation=c.activation("hidden_act"),
        limit=c.get("swiglu_limit", 7.0),
        alpha=c.get("swiglu_alpha", 1.702),
    )
    moe = MoE(router=linear(E, d, True), experts=repeat(expert, E, active=k), top_k=k)
    full = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe)
    local = full.replace(
        attn=attn.replace(window=AttentionWindow(size=c.get("sliding_window", 128)))
    )
    L = c.dim("L", "num_hidden_layers")
    layers = layers_by_type(
        c, L, {"full_attention": full, "sliding_attention": local}, cycle((local, full), L)
    )
    c.ignore("initial_context_length")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
