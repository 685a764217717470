"""Phi 1 and 1.5 in their first files, whose modules are one sequence: the embedding, the layers,
the last norm with the head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..core.blocks import Decoder
from ..core.config import Config
from .phi import phi
from .phi_msft import NAMES as NAMES_PHI
from .phi_msft import phi_msft
from .registry import family

NAMES = NAMES_PHI.replace(
    layer="layers.{l}.",
    first_layer=1,
    outside={"embed": "layers.0.wte", "norm": "layers.{n}.ln", "head": "layers.{n}.linear"},
)


@family(
    "mixformer-sequential",
    name="phi",
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="phi2",
    gguf_metadata=phi_msft.gguf_metadata,
)
def mixformer(c: Config) -> Decoder:
    for key in ("n_inner", "rotary_dim"):
        if key not in c.data:
            raise c.error(
                key,
                "is missing",
                "every config.json of such a model has it; n_inner of null is four times n_embd",
            )
    if c.dim("V", "vocab_size") % c.get("pad_vocab_size_multiple", 64):
        raise c.error(
            "vocab_size",
            f"is {c['vocab_size']}, no multiple of pad_vocab_size_multiple",
            "the matrices have rows for a multiple",
        )
    c.require("embd_layer", "default", "every published model has it")
    architecture = c.sub("architecture")
    kinds = architecture.get("block_cls", "parallel"), architecture.sub("mlp").get("mlp_cls", "mlp")
    if (
        kinds[0] != "parallel"
        or kinds[1] not in ("mlp", "fused_mlp")
        or architecture.get("mixer", dict[str, object]())
    ):
        raise c.error(
            "architecture",
            f"has the blocks {kinds!r:.80}, or options of its mixer; "
            "known: parallel with mlp or fused_mlp",
        )
    return phi(c)
