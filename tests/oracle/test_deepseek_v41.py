"""DeepSeek-V4.1 against what was published: its config, the bytes of its index by part, names, shapes and hashes."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.image_pass import Images, image_tokens
from llamath.checkpoint.naming.scheme import StoredTensor
from llamath.core.expr import ceil_div
from llamath.core.extensions.ngram_tables import rows_of_hashes
from llamath.core.multimodal import CountedTower
from llamath.core.tree import fold

TOTAL_SIZE, TENSORS = 510_286_023_000, 96_085
"""`total_size` of the published index of DeepSeek-V4.1-Flash, and its number of tensors."""
SIZES = {
    "engram": 203_073_076_240,
    "mtp": 7_921_077_000 + 11_797_632,
    "experts": 288_777_830_400,
    "vision": 970_506_240,
}
"""Bytes of parts of its files, as several loaders of them state."""
BACKBONE, MEMORY, ACTIVE = 552, 196, 16
"""Parameters of its model card, in billions."""
TEXT: dict[str, Any] = {
    "model_type": "deepseek_v41_text", "vocab_size": 129280, "hidden_size": 5120, "moe_intermediate_size": 2304, "num_hidden_layers": 40,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1280,
    "o_lora_rank": 1024, "o_groups": 8, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-20, "attention_bias": False,
    "max_position_embeddings": 1048576, "rope_theta": 10000, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "rope_scaling": {
        "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 65536,
    },
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
    "sliding_window": 128, "compress_ratios": [0, 0] + [2] * 18 + [1] * 20, "compress_rope_theta": 160000,
    "kv_source_layer_ids": [2, 8, 14, 20], "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36], "index_n_heads": 32,
    "index_head_dim": 128, "index_topk": 512, "candidate_source_layer_id": 20, "candidate_topk_blocks": 2048, "candidate_block_size": 8,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": [1, 14], "engram_num_embeddings": [384006168, 384016682],
    "engram_max_ngram_size": 4, "engram_vocab_size": 16000000, "engram_n_heads": 8, "engram_head_dim": 256, "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 99092, "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 128799,
    "dspark_target_layer_ids": [37, 38, 39], "dspark_markov_rank": 256, "dspark_n_routed_experts": 128, "dspark_num_experts_per_tok": 3,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v41",
    "architectures": ["DeepseekV41ForCausalLM"],
    "text_config": TEXT,
    "vision_config": {
        "model_type": "deepseek_v41_vision", "num_hidden_layers": 32, "hidden_size": 1024, "num_attention_heads": 16,
        "intermediate_size": 2816, "patch_size": 14, "rope_theta": 10000, "downsample_ratio": 3, "max_image_tokens": 1024,
        "min_pixels": 295936, "max_wh_ratio": None,
    },
}  # fmt: skip
PUBLISHED = {
    "embed.weight": (129280, 5120),
    "layers.6.attn.wo_a.weight": (8192, 4096),
    "layers.6.ffn.gate.bias_vl": (384,),
    "layers.6.ffn.shared_experts.w1.weight": (2304, 5120),
    "layers.6.hc_attn_fn": (24, 20480),
    "layers.6.hc_attn_scale": (3,),
    "layers.1.engram.embed.weight": (384006168, 256),
    "layers.1.engram.wkv.weight": (25600, 6144),
    "layers.14.engram.q_weight": (4, 5120),
    "layers.2.attn.indexer.wq_b.weight": (4096, 1280),
    "layers.2.attn.indexer.wk.weight": (128, 512),
    "layers.24.attn.indexer.weights_proj.weight": (32, 5120),
    "layers.2.attn.compressor.wgate.weight": (512, 5120),
    "layers.20.attn.compressor.wkv.weight": (512, 5120),
    "mtp.0.main_proj.weight": (5120, 15360),
    "mtp.2.markov_head.embed.weight": (129280, 256),
    "mtp.2.confidence_head.proj.weight": (1, 5376),
    "vision.patch_embed.weight": (1024, 588),
    "vision.blocks.0.attn.wqkv.weight": (3072, 1024),
    "vision.blocks.31.mlp.w1.weight": (5632, 1024),
    "aligner.w1.weight": (5120, 9216),
    "image_newline": (5120,),
}
ABSENT = (
    "layers.20.attn.compressor.wgate.weight",
    "layers.24.attn.indexer.wk.weight",
    "layers.3.attn.compressor.wkv.weight",
)
IN_BLOCKS = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "main_proj")
"""Matrices of eight bits, with a scale for each 32 × 32."""
FLOAT32 = ("attn_sink", "gate.bias", "gate.bias_vl", "_fn", "_base", "_scale")


IMAGES = [
    (1, 1, 13, 13, 184), (2, 3, 16, 11, 194), (28, 14, 10, 19, 202), (543, 544, 13, 13, 184), (545, 545, 13, 13, 184),
    (240, 180, 12, 15, 194), (180, 240, 15, 12, 197), (640, 480, 12, 16, 206), (800, 600, 15, 20, 317), (1024, 768, 19, 25, 496),
    (768, 1024, 25, 19, 502), (1280, 960, 23, 31, 738), (1600, 1200, 27, 36, 1001), (4096, 4096, 31, 31, 994), (4, 400, 130, 2, 392),
    (400, 4, 2, 130, 264), (4200, 100, 3, 100, 305), (10000, 10, 1, 410, 413), (10, 10000, 410, 1, 822), (2653, 1236, 21, 45, 968),
    (594, 4390, 81, 11, 974), (4775, 476, 10, 100, 1012), (1444, 1240, 29, 34, 1017), (839, 2, 1, 266, 269), (99, 3973, 95, 3, 382),
]  # fmt: skip
"""Images, and the rows, columns and tokens that the image processor of its publisher makes of them."""


@pytest.fixture(scope="module")
def model() -> llamath.Model:
    return llamath.load(CONFIG)


@pytest.fixture(scope="module")
def tensors(model: llamath.Model) -> list[StoredTensor]:
    hf = model.family.hf
    return [*hf.tensors(model.tree), *hf.mtp_tensors(model.tree)]


def stored(x: StoredTensor) -> tuple[int, int]:
    """The bytes of a tensor in the published files, and the number of tensors that it is there: with its scales, if it has some."""
    n, shape, word = prod(map(int, x.shape)), [int(y) for y in x.shape], x.name.split(".")[-2:][0]
    if ".ffn.experts." in x.name:
        return n // 2 + n // 32, 2
    if x.name.endswith("engram.embed.weight"):
        return n + n // 32, 2
    if ".compressor." not in x.name and (word in IN_BLOCKS or ".shared_experts." in x.name):
        return n + prod(y // 32 for y in shape), 2
    return n * (4 if x.name.endswith(FLOAT32) else 2), 1


def test_bytes_and_tensors_equal_the_published_index(tensors: list[StoredTensor]) -> None:
    assert sum(stored(x)[0] for x in tensors) == TOTAL_SIZE
    assert sum(stored(x)[1] for x in tensors) == TENSORS


def test_bytes_of_parts_equal_those_of_other_loaders(tensors: list[StoredTensor]) -> None:
    sums: Counter[str] = Counter()
    for x in tensors:
        start = x.name.split(".")[0]
        part = (
            "mtp"
            if start == "mtp"
            else "engram"
            if ".engram." in x.name
            else "experts"
            if ".ffn.experts." in x.name
            else start
        )
        sums["vision" if part == "aligner" else part] += stored(x)[0]
    assert {name: sums[name] for name in SIZES} == SIZES


def test_names_and_shapes_equal_published(tensors: list[StoredTensor]) -> None:
    shapes = {x.name: tuple(map(int, x.shape)) for x in tensors}
    assert {name: shapes.get(name) for name in PUBLISHED} == PUBLISHED
    assert not shapes.keys() & set(ABSENT)


def test_parameters_are_those_of_the_model_card(model: llamath.Model) -> None:
    assert model.tree.is_multimodal
    p = model.parameters
    memory = sum(
        int(x.weight.size) for x in model.weights if x.pattern.endswith("ngrams.table.weight")
    )
    assert int(memory / 1e9) == MEMORY
    assert round((p.parts["text"] - memory) / 1e9) == BACKBONE
    assert round((p.active - int(model.tree.embed.weight.size)) / 1e9) == ACTIVE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compress_ratios": [0]}, "should list a number for each of the 40 layers"),
        ({"kv_source_layer_ids": [0]}, "names a layer whose compress_ratios is 0"),
        ({"engram_num_embeddings": [5]}, "should have a number for each of the 2 layers"),
        ({"o_groups": 7}, "does not divide the 64 heads"),
        ({"engram_num_embeddings": [5, 5]}, "less than the 384,006,168 rows"),
        ({"engram_layer_ids": [14, 1]}, "in their order"),
        ({"index_source_layer_ids": [2, 8, 14]}, "should name all layers of kv_source_layer_ids"),
        (
            {"compress_ratios": [0, 0] + [2] * 19 + [1] * 19},
            "the nearest earlier layer with windows has",
        ),
        ({"candidate_source_layer_id": 14}, "later layers should read the windows of this one"),
        ({"candidate_topk_blocks": 64}, "too few for the 512"),
        ({"gate_temp": 2.0}, "only routers without a temperature"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load({**CONFIG, "text_config": {**TEXT, **changes}})


def test_rows_of_hashes_fill_the_published_tables() -> None:
    hashes = (TEXT["engram_max_ngram_size"] - 1) * TEXT["engram_n_heads"]
    tables = [rows_of_hashes(TEXT["engram_vocab_size"], place, hashes) for place in range(2)]
    assert [sum(x) for x in tables] == TEXT["engram_num_embeddings"]


def test_heads_groups_and_rows_are_sharded(model: llamath.Model) -> None:
    cuts = {
        x.pattern.partition(".{l}.")[2]: x.split
        for x in fold(model.text.tree)
        if x.split is not None
    }
    found = {
        name: (cut.axis, cut.parts)
        for name, cut in cuts.items()
        if ".experts." not in name and ".shared." not in name
    }
    assert found == {
        "": (0, 129280),
        "attn.q_up.weight": (0, 64),
        "attn.sinks": (0, 64),
        "attn.o_down.weight": (0, 8),
        "attn.o_up.weight": (1, 8),
        "ngrams.table.weight": (0, 384016682),
    }


@pytest.mark.parametrize(("width", "height", "rows", "columns", "tokens"), IMAGES)
def test_tokens_of_images_equal_those_of_the_published_code(
    width: int, height: int, rows: int, columns: int, tokens: int
) -> None:
    tree = llamath.load(CONFIG).tree
    assert tree.is_multimodal and isinstance(tree.vision, CountedTower)
    grid = tree.vision.image_sizes.grid(width, height)
    assert (ceil_div(grid.rows, 3), ceil_div(grid.columns, 3)) == (rows, columns)
    assert image_tokens(tree, Images(count=1, width=width, height=height)) == tokens
