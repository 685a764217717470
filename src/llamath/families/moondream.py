"""The text model of Moondream 2 of 2025: Phi 1.5 with other names.

Its config.json is empty but for its class: the sizes are those of the code that is shipped with it,
unless `config` gives others.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp, unembedding
from ..core.expr import Expr
from ..core.positions import Rope
from ..core.tree import repeat
from ..utils.errors import UnknownModel, safe
from .registry import family

_CLASS = "HfMoondream"
NAMES = HF.with_changes(
    outside={
        "embed.weight": "model.text.wte",
        "norm": "model.text.post_ln",
        "head": "model.text.lm_head",
    },
    inside={
        "attn_norm": "ln",
        **{f"attn.{x}": "attn.qkv" for x in "qkv"},
        "attn.o": "attn.proj",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
    },
).replace(layer="model.text.blocks.{l}.")


@family("moondream_text", hf=NAMES)
def moondream(c: Config) -> Decoder:
    if (classes := c.get("architectures", [""])) != [_CLASS]:
        found = (
            f"{c.source}: the architectures of this moondream1 model are "
            f"{safe(repr(classes), 60)}, not {_CLASS}"
        )
        raise UnknownModel(
            found,
            hint="the releases of 2024 have other towers; count the "
            "checkpoint instead of its config",
        )
    c.ignore("prefix_attn")
    check_unpacked(c)
    d, V, L = (
        c.dim("d", "dim", default=2048),
        c.dim("V", "vocab_size", default=51_200),
        c.dim("L", "n_layers", default=24),
    )
    H = c.dim("H", "n_heads", default=32)
    K, F, h = (
        c.dim("K", "n_kv_heads", default=H),
        c.dim("F", "ff_dim", default=4 * int(d)),
        Expr("h", d // H),
    )
    norm, rope = layer_norm(d, 1e-5), Rope(theta=1e4, dim=h // 2)
    attn = gqa(d, Heads(H, K, h), bias=True, rope=rope)
    layer = Layer(
        attn_norm=norm, attn=attn, mlp=mlp(d, F, "gelu_pytorch_tanh", bias=True), parallel=True
    )
    head = unembedding(V, d, tied=False, bias=True)
    return decoder(
        V,
        d,
        repeat(layer, L),
        norm,
        tied=False,
        head=head,
        context=c.positive_int("max_context") or 2048,
    )


def check_unpacked(c: Config) -> None:
    """Refuse packed weights, whose form only the code beside a checkpoint describes."""
    if (size := c.get("group_size", None)) is not None:
        raise c.error(
            "group_size",
            f"is {safe(repr(size), 40)}: packed weights of Moondream are not known",
            "count the checkpoint instead",
        )
