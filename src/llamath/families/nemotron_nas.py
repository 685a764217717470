"""Llama-Nemotron of neural architecture search (Puzzle, arXiv:2411.19146): Llama's layers, each with attention, MLP, both, or a matrix."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from ..core.expr import Expr
from ..core.tree import Block, sequence
from .registry import family
from .shared import MAX_LISTED_LAYERS, read_rope

NAMES = HF.with_changes(inside={"attn": "self_attn.linear_attn", "mlp": "mlp.linear_mlp"})
_UNSUPPORTED = ("window_length", "num_sink_tokens", "sparsify", "unshifted_sink", "use_prefill_window_in_sink_attention")


@family(hf=NAMES)
def nemotron_nas(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    blocks: list[Any] = c["block_configs"]
    if not isinstance(blocks, list) or len(blocks) != L or L > MAX_LISTED_LAYERS or not all(isinstance(x, dict) for x in blocks):
        raise c.error("block_configs", f"should be a list with an object for each of {L} layers")
    H = c.dim("H", "num_attention_heads")
    h = c.dim("h", "head_dim", default=Expr.const(d // H))
    norm, rotary, activation = rms(d, c.get("rms_norm_eps", 1e-6)), read_rope(c, h), c.activation("hidden_act")
    bias, mlp_bias = c.get("attention_bias", False), c.get("mlp_bias", False)

    @cache
    def attention(group: int | None) -> Block:
        K = None if group is None else H // group
        if K is None or K * (group or 0) != H:
            raise c.error("block_configs", f"has n_heads_in_group {group}, which does not divide the {H} heads")
        return gqa(d, Heads(H, Expr("K", K), h), bias, rope=rotary)

    @cache
    def layer(kind: str, group: int | None, mlp_kind: str, multiplier: float | None) -> Layer:
        attn = None if kind == "no_op" else linear(d, d) if kind == "linear" else attention(group)
        mlp = None if mlp_kind == "no_op" else linear(d, d) if mlp_kind == "linear" else None
        if mlp_kind == "full":
            mlp = swiglu(d, Expr("F", _width(c, multiplier, d)), activation, mlp_bias)  # type: ignore[assignment]
        return Layer(attn_norm=norm if attn else None, attn=attn, mlp_norm=norm if mlp else None, mlp=mlp)

    def parts(x: dict[str, Any]) -> Layer:
        attn, mlp = x.get("attention") or {}, x.get("ffn") or {}
        if used := [key for key in _UNSUPPORTED if attn.get(key) or mlp.get(key)]:
            raise c.error("block_configs", f"asks for {used[0]}, which no published model has")
        return layer(_kind(attn), attn.get("n_heads_in_group"), _kind(mlp), mlp.get("ffn_mult"))

    layers = sequence((parts(x) for x in blocks), count_dim=L)
    c.ignore("intermediate_size", "num_key_value_heads")
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))


def _kind(x: dict[str, Any]) -> str:
    return "no_op" if x.get("no_op") else "linear" if x.get("replace_with_linear") else "full"


def _width(c: Config, multiplier: float | None, d: int) -> int:
    """Return the width of an MLP: two thirds of multiplier · d, rounded up to a multiple of 256."""
    if type(multiplier) not in (int, float) or not 0 < (multiplier or 0) < 1e6:
        raise c.error("block_configs", f"has ffn_mult {multiplier!r:.40}, not a positive number")
    width = int(2 * (multiplier or 0) * d / 3)
    return -(-width // 256) * 256
