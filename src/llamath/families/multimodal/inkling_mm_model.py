"""Inkling: patches that linear layers fold step by step into one token each, and an embedding of
the bins of sound.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import rms
from ...core.expr import product
from ..counted_towers import counted_part, table
from ..folding_tower import folding_tower
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config

_EXPERT, _SHARED = "layers.{l}.mlp.experts.{e}.", "layers.{l}.mlp.shared_experts.{e}."
_MODULES = {
    "embed": "model.language_model.embed_tokens",
    "embed_norm": "model.language_model.embed_tokens.embed_norm",
    "norm": "model.language_model.norm",
    "head": "lm_head",
    "layers.{l}.attn_norm": "input_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"self_attn.{x}_proj" for x in "qkvo"},
    **{f"layers.{{l}}.attn.{x}_norm": f"self_attn.{x}_norm" for x in "qk"},
    **{f"layers.{{l}}.attn.{x}_conv": f"self_attn.{x}_sconv.conv1d" for x in "kv"},
    "layers.{l}.attn.relative": "self_attn.r_proj",
    "layers.{l}.attn.distance.weight": "self_attn.rel_logits_proj.proj",
    "layers.{l}.attn_conv": "attn_sconv.conv1d",
    "layers.{l}.mlp_norm": "post_attention_layernorm",
    "layers.{l}.mlp_conv": "mlp_sconv.conv1d",
    **{f"layers.{{l}}.mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    "layers.{l}.mlp.correction": "mlp.gate.e_score_correction_bias",
    **{f"{_EXPERT}{x}.weight": "mlp.experts.gate_up_proj" for x in ("gate", "up")},
    f"{_EXPERT}down.weight": "mlp.experts.down_proj",
    **{f"{_SHARED}{x}.weight": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
    "vision.layers.{l}.linear": "model.vision_tower.encoder_layers.{l}.projection",
    "vision.layers.{l}.norm": "model.vision_tower.encoder_layers.{l}.layer_norm",
    "vision.final_norm": "model.vision_tower.final_norm",
    "audio.encoder.weight": "model.audio_tower.embed_audio_tokens.embed_audio_tokens.weight",
    "audio.final_norm.weight": "model.audio_tower.norm.weight",
}
"""Names of modules in memory."""


@multimodal(Wrapper(types="inkling_mm_model", text_type="inkling_text"), modules=_MODULES)
def inkling_mm_model(c: Config, text: Decoder) -> Assembly:
    c.ignore("mtp_config")
    v, a, d = part_config(c, "vision_config", {}), part_config(c, "audio_config", {}), text.width
    a.ignore("initializer_range", "rms_norm_eps", "text_hidden_size")
    L = int(v.dim("L_v", "n_layers|num_hidden_layers", default=24))
    tower = folding_tower(v, L, d)
    names = {
        "layers.{l}.linear": "layers.linear_{l}",
        "layers.{l}.norm": "layers.norm_{l}",
        "final_norm": "final_norm",
    }
    bins = product(
        (
            a.dim("m_a", "n_mel_bins|num_codebooks", default=80),
            a.dim("V_a", "mel_vocab_size|codebook_size", default=256),
        )
    )
    sound = counted_part({"encoder": table(bins, d), "final_norm": rms(d, 1e-6)})
    return assemble(
        text, vision=("model.visual.", Part(tower, names)), audio=("model.audio.", sound)
    )
