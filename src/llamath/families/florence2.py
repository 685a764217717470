"""Florence-2: DaViT, attention in windows and among channels by turns, before BART, an encoder
and a decoder.
"""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import weight
from ..core.extensions.encoder_decoder import EncoderDecoder
from ..core.multimodal import CountedBlock
from .bart import bart, bart_modules
from .counted_models import counted_model
from .counted_towers import Modules, counted
from .davit import davit, davit_projector
from .tower_parts import part_config

_SHARED = "model.language_model.shared.weight"
_PUBLISHED = {
    ".conv.": ".proj.",
    ".conv1.": ".conv1.fn.dw.",
    ".conv2.": ".conv2.fn.dw.",
    "spatial_block.norm1": "spatial_block.window_attn.norm",
    "channel_block.norm1": "channel_block.channel_attn.norm",
    "_attn.qkv": "_attn.fn.qkv",
    "_attn.proj": "_attn.fn.proj",
    ".norm2": ".ffn.norm",
    ".ffn.fc": ".ffn.fn.net.fc",
    "image_projection.weight": "image_projection",
    "image_position_embed": "image_pos_embed",
    "model.multi_modal_projector.": "",
    "model.vision_tower": "vision_tower",
    "model.language_model.": "language_model.model.",
    "lm_head": "language_model.lm_head",
}
"""Parts of names in transformers → in the files of Microsoft, whose code is shipped with them;
in order."""


def _modules(c: Config) -> tuple[CountedBlock, dict[str, str]]:
    """Return the modules, and the parts of names that differ in the files of this configuration."""
    v = part_config(c, "vision_config", {})
    original = "dim_embed" in v or v.get("model_type", "") == "davit"
    text = _text(c, computes=False)
    rows = text.embed.weight
    modules: Modules = {
        **{f"model.vision_tower.{name}": x for name, x in davit(v).parts.items()},
        **{
            f"model.multi_modal_projector.{name}": x
            for name, x in davit_projector(v, transposed=original).items()
        },
        **{f"model.language_model.{name}": x for name, x in bart_modules(text, _SHARED).items()},
        "lm_head.weight": rows.replace(tied=_SHARED)
        if c.get("tie_word_embeddings", True)
        else rows,
        "language_model.final_logits_bias": weight(1, rows.shape[0], role="bias").replace(
            buffer=True
        )
        if original
        else None,
    }
    return counted(modules), _PUBLISHED if original else {}


@counted_model("as an encoder-decoder model", _modules)
def florence2(c: Config) -> Decoder:
    """Return the tree whose text computes."""
    v = part_config(c, "vision_config", {})
    return _text(c, computes=True).replace(
        vision=davit(v),
        projector=counted(davit_projector(v, transposed=False)),
    )


def _text(c: Config, computes: bool) -> EncoderDecoder:
    c.ignore("projection_dim", "vocab_size", "image_token_id", "is_encoder_decoder")
    return bart(part_config(c, "text_config", {}), c.get("tie_word_embeddings", True), computes)
