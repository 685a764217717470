"""Llama-Nemotron of neural architecture search (Puzzle, arXiv:2411.19146): Llama's layers, each
with attention, MLP, both, or a matrix.
"""

from __future__ import annotations

from typing import Any

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from .layers_shared import layers_from, numbered
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(inside={"attn": "self_attn.linear_attn", "mlp": "mlp.linear_mlp"})
_NOTHING, _MATRIX = -1, -2
"""In place of key/value heads or the width of an MLP: the layer has none, or a single matrix."""
_UNSUPPORTED = (
    "window_length",
    "num_sink_tokens",
    "sparsify",
    "unshifted_sink",
    "use_prefill_window_in_sink_attention",
)


@family("nemotron-nas", hf=NAMES)
def nemotron_nas(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    blocks: list[Any] = c["block_configs"]
    if (
        not isinstance(blocks, list)
        or len(blocks) != L
        or not all(isinstance(x, dict) for x in blocks)
    ):
        raise c.error("block_configs", f"should be a list with an object for each of {L} layers")
    H, _, h = c.heads(d, "num_attention_heads")
    norm, rotary, activation = (
        rms(d, c.get("rms_norm_eps", 1e-6)),
        read_rope(c, h),
        c.activation("hidden_act"),
    )
    bias, mlp_bias = c.get("attention_bias", False), c.get("mlp_bias", False)

    parts = [_read_block(c, x, d, H) for x in blocks]
    letters = {
        name: numbered(name, (x for part in parts if (x := part[i]) > 0))
        for i, name in enumerate("KF")
    }

    def layer(K: int, F: int) -> Layer:
        attn = (
            gqa(d, Heads(H, letters["K"][K], h), bias, rope=rotary)
            if K > 0
            else None
            if K == _NOTHING
            else linear(d, d)
        )
        mlp = (
            swiglu(d, letters["F"][F], activation, mlp_bias)
            if F > 0
            else None
            if F == _NOTHING
            else linear(d, d)
        )
        return Layer(
            attn_norm=norm if attn else None, attn=attn, mlp_norm=norm if mlp else None, mlp=mlp
        )

    layers = layers_from(layer, *zip(*parts, strict=True), count_dim=L)
    c.ignore("intermediate_size", "num_key_value_heads")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _read_block(c: Config, block: dict[str, Any], d: int, H: int) -> tuple[int, int]:
    """Return the key/value heads of a layer and the width of its MLP, or what it has instead."""
    attn, mlp = block.get("attention"), block.get("ffn")
    if not isinstance(attn, dict) or not isinstance(mlp, dict):
        raise c.error("block_configs", "should have attention and ffn in each object")
    if used := [key for key in _UNSUPPORTED if attn.get(key) or mlp.get(key)]:
        raise c.error("block_configs", f"asks for {used[0]}, which no published model has")
    K, F = (
        _NOTHING if x.get("no_op") else _MATRIX if x.get("replace_with_linear") else 0
        for x in (attn, mlp)
    )
    if not K:
        group = attn.get("n_heads_in_group")
        if type(group) is not int or group < 1 or H % group:
            raise c.error(
                "block_configs",
                f"has n_heads_in_group {group!r:.40}, which does not divide the {H} heads",
            )
        K = H // group
    if not F:
        multiplier: Any = mlp.get("ffn_mult")
        if type(multiplier) not in (int, float) or not 0 < multiplier < 1e6:
            raise c.error(
                "block_configs", f"has ffn_mult {multiplier!r:.40}, not a positive number"
            )
        F = -(-int(2 * multiplier * d / 3) // 256) * 256 or 256  # two thirds of it, rounded up
    return K, F
