"""DeepSeek-VL2, which transformers has no class for: its tower compared with SigLIP there, its projector with torch, its sizes with the paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.graph.image_pass import Images, image_pass
from llamath.core.multimodal import ModelPart
from llamath.torch import canonical_weights, load_weights
from llamath.torch.kv_cache import Cache
from llamath.torch.module import Module, TensorOptions
from llamath.torch.torch_machine import TorchMachine

RESOLUTIONS = [
    [384 * i, 384 * j]
    for n in range(1, 10)
    for i in range(1, n + 1)
    for j in range(1, n + 1)
    if i * j <= 9 and max(i, j) == n
]
PLAIN = {
    "use_mla": False,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "v_head_dim": 0,
    "kv_lora_rank": None,
}
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
SIGLIP_SO400M = 428_225_600
"""Parameters of google/siglip-so400m-patch14-384's tower, its head included."""


def language(
    hidden: int,
    mlp: int,
    layers: int,
    heads: int,
    experts: int,
    expert: int,
    vocab: int,
    **other: Any,
) -> dict[str, Any]:
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    routing = {
        "n_routed_experts": experts,
        "moe_intermediate_size": expert,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
    }
    rest = {
        "model_type": "deepseek_v2",
        "vocab_size": vocab,
        "first_k_dense_replace": 1,
        "num_key_value_heads": heads,
        "q_lora_rank": None,
    }
    return sizes | routing | rest | {"max_position_embeddings": 4096} | other


TINY = language(1280, 6848, 12, 10, 64, 896, 129280, **PLAIN)
SMALL = language(2048, 10944, 27, 16, 64, 1408, 102400, **LATENT)
BASE = language(
    2560, 12288, 30, 32, 72, 1536, 129280, topk_method="noaux_tc", scoring_func="sigmoid", **LATENT
)


def config(text: dict[str, Any], **vision: Any) -> dict[str, Any]:
    """The configuration of one of the published models, with other sizes of the tower if there are any."""
    tower = {
        "layers": 27,
        "mlp_ratio": 3.7362,
        "model_name": "siglip_so400m_patch14_384",
        "patch_size": 14,
        "width": 1152,
    }
    tower |= {"model_type": "vision", **vision}
    return {
        "model_type": "deepseek_vl_v2",
        "architectures": ["DeepseekVLV2ForCausalLM"],
        "candidate_resolutions": RESOLUTIONS,
        "global_view_pos": "head",
        "tile_tag": "2D",
        "language_config": text,
        "projector_config": {
            "model_type": "mlp_projector",
            "n_embed": text["hidden_size"],
            "input_dim": tower["width"],
        },
        "vision_config": tower,
    }


@pytest.mark.parametrize(
    ("text", "total", "active"), [(TINY, 3, 0.57), (SMALL, 16, 2.4), (BASE, 27, 4.1)]
)
def test_sizes_are_those_of_the_paper(text: dict[str, Any], total: int, active: float) -> None:
    """Parameters of the text model, and those that are active in it without the embedding, in billions (arXiv:2412.10302, table 1)."""
    p = llamath.load(config(text)).parameters
    assert round(p.parts["text"] / 1e9) == total
    assert (
        abs((p.active - text["vocab_size"] * text["hidden_size"]) / 1e9 - active)
        < 0.03 * active + 0.05
    )


def test_tower_is_that_of_siglip() -> None:
    model = llamath.load(config(TINY))
    assert (
        sum(int(x.weight.size) for x in model.weights if x.pattern.startswith("vision."))
        == SIGLIP_SO400M
    )
    names = {x.name.split(".")[0] for x in model.family.hf.tensors(model.tree)}
    assert names == {"language", "vision", "projector", "image_newline", "view_seperator"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile_tag": "1D"}, "tile_tag should be 2D"),
        (
            {"projector_config": {"n_embed": 1280, "projector_type": "linear"}},
            "projector_type should be downsample_mlp_gelu",
        ),
        (
            {"projector_config": {"n_embed": 1280, "depth": 3}},
            "projector_type should be downsample_mlp_gelu of two layers",
        ),
        ({"projector_config": {"n_embed": 2048}}, "n_embed is 2048, and input_dim 1152"),
        ({"candidate_resolutions": [384]}, "candidate_resolutions should be a list"),
    ],
)
def test_other_configurations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load(config(TINY) | changes)


@pytest.mark.parametrize(
    ("width", "height", "rows", "columns"),
    [(384, 384, 1, 1), (1000, 700, 2, 3), (3000, 300, 1, 8), (500, 1500, 4, 2)],
)
def test_images_are_cut_as_in_its_processor(
    width: int, height: int, rows: int, columns: int
) -> None:
    """14 × 14 tokens of a tile; rows of the whole image and of all tiles together end with a newline, and a separator stands between."""
    images = image_pass(
        llamath.load(config(TINY)).tree, Images(count=1, width=width, height=height)
    )
    assert (images.grid.tiles, images.tokens) == (
        1 + rows * columns,
        14 * 15 + 1 + rows * 14 * (columns * 14 + 1),
    )


def test_more_than_two_images_are_not_cut() -> None:
    images = image_pass(llamath.load(config(TINY)).tree, Images(count=3, width=3000, height=300))
    assert (images.grid.tiles, images.tokens) == (2, 3 * (14 * 15 + 1 + 14 * 15))


@pytest.mark.transformers
@pytest.mark.parametrize("side", [20, 24])
@torch.no_grad()
def test_features_and_flops_equal_siglip_and_torch(side: int) -> None:
    """With 5 patches on a side, the last row and column are padded with zeros."""
    import transformers

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "patch_size": 4,
        "image_size": side,
    }
    siglip = transformers.SiglipVisionModel._from_config(
        transformers.SiglipVisionConfig(intermediate_size=60, **sizes), attn_implementation="eager"
    )
    for x in siglip.parameters():
        x.add_(torch.randn_like(x) * 0.05)
    text = language(32, 40, 2, 2, 8, 12, 64, **PLAIN)
    small = {
        "layers": 2,
        "mlp_ratio": 2.5,
        "width": 24,
        "heads": 3,
        "patch_size": 4,
        "image_size": side,
    }
    model = llamath.load(config(text, **small) | {"candidate_resolutions": [[side, side]]})
    assert model.tree.is_multimodal
    part = ModelPart(vision=model.tree.vision, projector=model.tree.projector)
    projector = torch.nn.Sequential(
        torch.nn.Linear(96, 32), torch.nn.GELU(), torch.nn.Linear(32, 32)
    )
    tensors = timm_names(siglip.state_dict()) | {
        f"projector.layers.{name}": x for name, x in projector.state_dict().items()
    }
    tensors |= {"image_newline": torch.randn(32), "view_seperator": torch.randn(32)}
    module = Module(part, TensorOptions(torch.float32, torch.device("cpu")))
    load_weights(module, canonical_weights(part, model.family.hf, tensors))

    image, n = torch.randn(2, 3, side, side), side // 4
    patches = torch.nn.functional.unfold(image, 4, stride=4).mT
    ours = module(
        TorchMachine(torch.zeros(patches.shape[:2], dtype=torch.long), Cache([], 0)), patches
    )
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        hidden = siglip.embeddings(image)
        for layer in siglip.encoder.layers:
            hidden = layer(hidden, attention_mask=None)
        grid = siglip.post_layernorm(hidden).mT.unflatten(-1, (n, n))
        joined = torch.nn.functional.unfold(
            torch.nn.functional.pad(grid, (0, n % 2, 0, n % 2)), 2, stride=2
        ).mT
        expected = projector(joined)
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)
    assert (
        image_pass(model.tree, Images(count=1, width=side, height=side)).flops.total
        == counter.get_total_flops()
    )  # of two tiles


def timm_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of SigLIP in transformers under the names of timm, queries, keys and values joined."""
    found = {
        "pos_embed": tensors["embeddings.position_embedding.weight"][None],
        "attn_pool.latent": tensors["head.probe"],
        **{f"attn_pool.{x}": tensors[f"head.{y}"] for x, y in HEAD.items()},
    }
    for kind in ("weight", "bias"):
        joined = tensors[f"head.attention.in_proj_{kind}"]
        found |= {f"attn_pool.q.{kind}": joined[:24], f"attn_pool.kv.{kind}": joined[24:]}
        found |= {
            f"patch_embed.proj.{kind}": tensors[f"embeddings.patch_embedding.{kind}"],
            f"norm.{kind}": tensors[f"post_layernorm.{kind}"],
        }
        for i in range(2):
            layer, block = f"encoder.layers.{i}.", f"blocks.{i}."
            found[f"{block}attn.qkv.{kind}"] = torch.cat(
                [tensors[f"{layer}self_attn.{x}_proj.{kind}"] for x in "qkv"]
            )
            found |= {f"{block}{x}.{kind}": tensors[f"{layer}{y}.{kind}"] for x, y in LAYER.items()}
    return {f"vision.{name}": x for name, x in found.items()}


LAYER = {
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "attn.proj": "self_attn.out_proj",
    **{x: x for x in ("mlp.fc1", "mlp.fc2")},
}
HEAD = {
    **{f"proj.{x}": f"attention.out_proj.{x}" for x in ("weight", "bias")},
    **{f"norm.{x}": f"layernorm.{x}" for x in ("weight", "bias")},
    **{f"mlp.{y}.{x}": f"mlp.{y}.{x}" for y in ("fc1", "fc2") for x in ("weight", "bias")},
}
