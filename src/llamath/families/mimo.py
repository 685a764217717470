"""MiMo 7B: Qwen2's layers with a layer for the prediction of further tokens."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.machine import Machine, X
from .deepseek_shared import MTPLayer, mtp_layers
from .qwen2 import qwen2_decoder
from .registry import family


class HiddenFirstMTPLayer(MTPLayer):
    """A multi-token prediction layer whose `join` reads [hidden_norm x; embed_norm e]; files
    store no second embedding and head (MiMo).
    """

    def forward(self, m: Machine[X], x: X, *ids: X) -> X:
        joined = m.concat(self.hidden_norm(m, x), self.embed_norm(m, self.embed(m, *ids)))
        x = Layer.forward(self, m, self.join(m, joined))
        return self.head(m, self.norm(m, x))


NAMES = HF.with_changes(
    mtp_layer="model.mtp_layers.{l}.",
    inside={
        "embed_norm": "token_layernorm",
        "hidden_norm": "hidden_layernorm",
        "join": "input_proj",
        "norm": "final_layernorm",
    },
)


@family(hf=NAMES)
def mimo(c: Config) -> Decoder:
    c.require("attention_bias", True, "every published model has it")
    tree = qwen2_decoder(c, theta=1e4, eps=1e-6, kv_heads=32, full=28)
    layer = tree.layers[0]
    assert isinstance(layer, Layer)
    mtp = mtp_layers(
        c, c.dim("V", "vocab_size"), c.dim("d", "hidden_size"), layer, HiddenFirstMTPLayer
    )
    return tree.replace(mtp=mtp)
