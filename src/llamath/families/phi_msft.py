"""Phi 1 to 2 as first published: the tensor names of Microsoft's own modeling code."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from .gguf_record import ROTARY, GGUFMetadata
from .phi import phi
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={"embed": "transformer.embd.wte", "norm": "lm_head.ln", "head": "lm_head.linear"},
    inside={
        "attn_norm": "ln",
        "attn.q": "mixer.Wqkv",
        "attn.k": "mixer.Wqkv",
        "attn.v": "mixer.Wqkv",
        "attn.o": "mixer.out_proj",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
    },
)
"""Tensor names of Microsoft's own modeling code, which is older than the class in transformers."""


@family(
    "phi-msft",
    name="phi",
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="phi2",
    gguf_metadata=GGUFMetadata(
        keys=f"{ROTARY} layer_norm_eps rotary_dim",
        applies=lambda h: h.has_tensor(".attn_qkv.weight"),  # one fused matrix
    ),
)
def phi_msft(c: Config) -> Decoder:
    return phi(c)
