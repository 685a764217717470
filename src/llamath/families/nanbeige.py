"""Nanbeige 4.2: Llama's layers, which run twice, with the last norm after each time."""

from __future__ import annotations

from typing import cast

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from .llama import llama_decoder
from .looped_shared import looped_layers
from .registry import family

_OFF = (
    "qk_layernorm",
    "ngram_insert_all_layers",
    "enable_double_loop_split",
    "loop_share_kv",
    "enable_hyper_connection",
    "enable_mhc",
    "enable_h_res_identity",
    "enable_depth_attention",
)
"""Switches of the class that no published model has on."""


@family(hf=HF)
def nanbeige(c: Config) -> Decoder:
    heads = c.heads(c.dim("d", "hidden_size"))
    c.require("kv_channels", heads.head_dim.plain(), "it is head_dim again")
    for key in _OFF:
        c.require(key, False, "no published model has it")
    for key in ("insert_ngram_layer_idx", "loop_middle_layers"):
        if c.get(key, cast("list[int]", [])):
            raise c.error(key, "should be empty", "no published model has it")
    if "emb_neighbor_num" in c:
        raise c.error("emb_neighbor_num", "is set", "no published model has tables of n-grams")
    c.ignore("loop_loss_weights")
    tree = llama_decoder(
        c,
        heads,
        eps=1e-6,
        bias=c.get("attention_bias", False),
        mlp_bias=c.get("mlp_bias", False),
    )
    layer = cast("Layer", tree.layers[0])
    norm = None if c.get("skip_loop_final_norm", False) else tree.norm
    return tree.replace(layers=looped_layers(c, layer, "num_loops", norm))
