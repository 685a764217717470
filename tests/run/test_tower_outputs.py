"""Towers and projectors compute what those of transformers do, with as many FLOPs as torch counts there."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.graph.image_pass import Images, image_pass, image_tokens
from llamath.core.image_sizes import (
    BoundedImage,
    CanvasImage,
    CroppedImage,
    FixedImage,
    ImageSizes,
    LeastScaledTiles,
    LinedImage,
    PatchRange,
    PixelBudget,
    ScaledImage,
    SplitImage,
    TiledImage,
    UnsupportedImage,
)
from llamath.core.multimodal import CountedTower, ModelPart, is_computed
from llamath.families.gemma4_towers import PooledVisionTower
from llamath.torch.kv_cache import Cache
from llamath.torch.torch_machine import TorchMachine
from support.each_case import each
from support.image_processors import squares_of_molmo2
from support.reference_data import multimodal_configs
from support.tower_modules import part_with_weights, patches_of, reference_of

pytestmark = pytest.mark.transformers


PROJECTORS = {
    **dict.fromkeys(("gemma4", "gemma4_unified"), "embed_vision"),
    **dict.fromkeys(("idefics3", "smolvlm"), "connector"),
    "deepseek_vl": "aligner",
    "lighton_ocr": "vision_projection",
}
"""Names of projectors that differ."""
PATCH = 4
"""Pixels on a side of a patch of Gemma 4's tiny tower."""


def image_size(sizes: ImageSizes) -> tuple[int, int]:
    """Width and height of test images, different if a model reads such."""
    if isinstance(sizes, (LeastScaledTiles, SplitImage)):
        return 100, 60
    if isinstance(sizes, (CanvasImage, TiledImage)):
        return sizes.size * 2 - 9, sizes.size - 5
    if isinstance(sizes, LinedImage):
        return sizes.patch * 3 - 1, sizes.patch * 2
    if isinstance(sizes, PatchRange):
        return 160, 75
    if isinstance(sizes, (BoundedImage, ScaledImage)):
        return 640, 300
    return (
        (sizes.size, sizes.size)
        if isinstance(sizes, (FixedImage, CroppedImage))
        else (3 * sizes.multiple, 2 * sizes.multiple)
    )  # type: ignore[attr-defined]


def with_fewer_patches(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with patches of 16 pixels where the smallest image has thousands of 4 pixels: only the time differs."""
    sizes = getattr(llamath.load(config).tree.vision, "image_sizes", None)  # type: ignore[attr-defined]
    many = isinstance(sizes, PixelBudget) and sizes.fewest >= 4096 * int(sizes.patch) ** 2
    if not many:
        return config
    return {**config, "vision_config": {**config["vision_config"], "patch_size": 16}}


def qwen_features(reference: Any, image: Tensor) -> tuple[Tensor, int]:
    """The features of one image in Qwen's form of pixels: patches in squares that become one token, each twice in time."""
    c = reference.config.vision_config
    p, k = c.patch_size, c.spatial_merge_size
    rows, columns = image.shape[-2] // p, image.shape[-1] // p
    patches = patches_of(image, p, getattr(c, "temporal_patch_size", 1))[0].unflatten(
        0, (rows // k, k, columns // k, k)
    )
    grid = torch.tensor([[1, rows, columns]])
    found = reference.model.get_image_features(
        pixel_values=patches.transpose(1, 2).flatten(0, 3), image_grid_thw=grid
    )
    main = torch.cat(found.pooler_output)
    earlier = [
        x if isinstance(x, Tensor) else torch.cat(x) for x in found.get("deepstack_features") or ()
    ]
    return torch.cat([main, *earlier], -1), len(main)


def native_features(reference: Any, image: Tensor, patch: int) -> tuple[Tensor, int]:
    """The features of one image whose patches are given row by row."""
    patches = patches_of(image, patch)
    rows, columns = (n // patch for n in image.shape[-2:])
    if reference.config.model_type == "lfm2_vl":
        shape = {
            "spatial_shapes": torch.tensor([[rows, columns]]),
            "pixel_attention_mask": torch.ones(1, rows * columns, dtype=torch.long),
        }
    else:
        shape = {"image_grid_thw": torch.tensor([[1, rows, columns]])}
        if reference.config.model_type == "video_llama_3":
            shape["image_merge_sizes"] = torch.ones(1, dtype=torch.long)
        in_squares = reference.config.model_type in ("kimi_k25", "paddleocr_vl")
        patches = patches[0].unflatten(-1, (-1, patch, patch)) if in_squares else patches[0]
    found = torch.cat(
        list(reference.model.get_image_features(pixel_values=patches, **shape).pooler_output)
    )
    return found, len(found)


def whole_features(reference: Any, tiles: Tensor) -> tuple[Tensor, int] | None:
    """The features of an image that is resized to a square, of classes that return no others; None for other classes."""
    kind, c = reference.config.model_type, reference.config
    if kind == "step3p7":
        y = torch.cat(list(reference.model.get_image_features(pixel_values=tiles).pooler_output))
        return y, len(y)
    if kind in ("blip-2", "janus", "ovis2"):
        y = (
            getattr(reference, "model", reference)
            .get_image_features(pixel_values=tiles)
            .pooler_output
        )
        return y.flatten(0, -2), y[..., 0].numel()
    if kind == "kosmos-2":
        y = reference.vision_model.model.post_layernorm(
            reference.vision_model(pixel_values=tiles).last_hidden_state
        )
        y, _ = reference.image_to_text_projection(torch.nn.functional.normalize(y, dim=-1))
        return y.flatten(0, -2), y[..., 0].numel()
    if kind == "blip":
        return reference.vision_model(tiles).last_hidden_state.flatten(0, -2), 0
    if kind == "nemotron_h_omni":
        p = c.vision_config.patch_size
        grid = torch.tensor([[n // p for n in tiles.shape[2:]]])
        y = torch.cat(
            list(
                reference.get_image_features(
                    pixel_values=patches_of(tiles, p)[0], image_grid_hw=grid
                ).pooler_output
            )
        )
        return y, len(y)
    if kind == "git":
        y = reference.git.visual_projection(reference.git.image_encoder(tiles).last_hidden_state)
        return y.flatten(0, -2), y[..., 0].numel()
    if kind == "idefics":
        y = reference.model.vision_model(tiles).last_hidden_state
        y = reference.model.perceiver_resampler(y) if c.use_resampler else y
        return y.flatten(0, -2), 1
    if kind == "fuyu":
        patches = patches_of(tiles, c.patch_size)
        y = reference.model.get_image_features(pixel_values=patches).last_hidden_state
        return y.flatten(0, -2), y[..., 0].numel() + tiles.shape[2] // c.patch_size
    if kind == "idefics2":
        y = torch.cat(
            list(reference.model.get_image_features(pixel_values=tiles[None]).pooler_output)
        )
        return y, len(y)
    return None


def features(reference: Any, tiles: Tensor, width: int, height: int) -> tuple[Tensor, int]:
    """What the projector of transformers makes of one image, and its number of tokens in the text."""
    if (whole := whole_features(reference, tiles)) is not None:
        return whole
    if reference.config.model_type.startswith(
        ("cosmos3", "ernie4_5_vl", "exaone4_5", "glm", "hyperclovax", "minimax_m3_vl", "qwen")
    ):
        return qwen_features(reference, tiles)
    if reference.config.model_type in (
        "hunyuan_vl",
        "kimi_k25",
        "lfm2_vl",
        "muse_glimmer",
        "muse_spark",
        "paddleocr_vl",
        "video_llama_3",
    ):
        return native_features(reference, tiles, reference.config.vision_config.patch_size)
    if reference.config.model_type == "molmo2":
        v = reference.config.vision_config
        grid, squares = squares_of_molmo2(width, height, v.image_size[0], v.patch_size, 8)
        found = reference.model.get_image_features(
            patches_of(tiles, v.patch_size), squares, grid[None]
        ).pooler_output
        return torch.cat(found), len(torch.cat(found))
    if reference.config.model_type == "mllama":
        vision = reference.model.vision_model(
            tiles[None, None], torch.tensor([[1]]), torch.ones(1, 1, len(tiles), dtype=torch.long)
        )
        found = reference.model.multi_modal_projector(vision.last_hidden_state)
        return found.flatten(0, -2), 1
    if reference.config.model_type == "llama4":
        found = reference.multi_modal_projector(
            reference.get_image_features(pixel_values=tiles).last_hidden_state
        )
        return found.flatten(0, -2), found[..., 0].numel()
    made: list[Tensor] = []
    projector = getattr(
        reference.model, PROJECTORS.get(reference.config.model_type, "multi_modal_projector")
    )
    hook = projector.register_forward_hook(lambda _module, _inputs, y: made.append(y))
    kind, options, pixels = reference.config.model_type, {}, tiles
    if kind.startswith(("llava_next", "llava_onevision")):
        options, pixels = {"image_sizes": torch.tensor([[height, width]])}, tiles[None]
    elif kind in ("idefics3", "smolvlm"):
        pixels = tiles[None]
    elif kind.startswith("gemma4"):
        places = torch.cartesian_prod(
            torch.arange(tiles.shape[2] // PATCH), torch.arange(tiles.shape[3] // PATCH)
        ).flip(-1)
        options, pixels = {"image_position_ids": places[None]}, patches_of(tiles, PATCH)
        pixels = (pixels + 1) / 2 if kind == "gemma4" else pixels
    elif reference.config.vision_config.model_type == "pixtral":
        options = {"image_sizes": torch.tensor([[height, width]])}
    found = reference.model.get_image_features(pixel_values=pixels, **options).pooler_output
    hook.remove()
    made = [y for x in made for y in ([x] if isinstance(x, Tensor) else x[1])]
    return torch.cat([x.flatten(0, -2) for x in made]), sum(len(x.flatten(0, -2)) for x in found)


def products_of_masks(vision: Any, patches: int) -> int:
    """FLOPs of products with zeros and ones: what averages Gemma 4's features."""
    return (
        2 * patches * patches // vision.pool**2 * int(vision.patches.weight.shape[0])
        if isinstance(vision, PooledVisionTower)
        else 0
    )


FIRSTS = list(
    {x.values[0]["model_type"]: x.values[0] for x in reversed(multimodal_configs())}.values()
)


@each("config", multimodal_configs())
@torch.no_grad()
def test_features_and_flops_equal_transformers(
    config: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Of a tower that is counted, the tokens alone; of the first configuration of each model
    type, and with `--all` of every one.
    """
    if config not in FIRSTS and not request.config.getoption("--all"):
        pytest.skip("with --all")
    config = with_fewer_patches(config)
    model, reference = llamath.load(config), reference_of(config)
    vision = model.tree.vision  # type: ignore[attr-defined]
    if vision is None:
        pytest.skip("the model reads no images")
    if isinstance(getattr(vision, "image_sizes", None), UnsupportedImage):
        with pytest.raises(llamath.LlamathError, match="images cannot be computed"):
            image_pass(model.tree, Images(count=1, width=64, height=64))
        return
    computed = is_computed(ModelPart(vision=vision, projector=model.tree.projector))  # type: ignore[attr-defined]
    if not computed:
        with pytest.raises(
            llamath.LlamathError, match="the vision tower of this model is counted, not computed"
        ):
            image_pass(model.tree, Images(count=1, width=64, height=64))
        if not isinstance(vision, CountedTower):
            return
    width, height = image_size(vision.image_sizes)
    grid, patch = vision.image_sizes.grid(width, height), int(vision.patch_size)
    shape = vision.child("patches").weight.shape
    times = int(shape[2]) if len(shape) > 4 else 1
    tiles = torch.randn(
        grid.tiles, prod(shape[1:]) // patch**2 // times, grid.rows * patch, grid.columns * patch
    )
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        expected, tokens = features(reference, tiles, width, height)
    assert image_tokens(model.tree, Images(count=1, width=width, height=height)) == tokens
    if not computed:
        return
    module, patches = part_with_weights(model, reference), patches_of(tiles, patch, times)
    machine = TorchMachine(torch.zeros(patches.shape[:2], dtype=torch.long), Cache([], 0))
    machine.patch_grid = (grid.rows, grid.columns)
    ours = module(machine, patches).flatten(0, -2)
    assert ours.shape == expected.shape
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)
    images = image_pass(model.tree, Images(count=1, width=width, height=height))
    if vision.pooling is None:  # transformers computes it, though nothing reads it
        assert (
            images.flops.total + products_of_masks(vision, grid.patches)
            == counter.get_total_flops()
        )
    assert (
        image_pass(model.tree, Images(count=1, width=width, height=height), batch=3).flops.total
        == 3 * images.flops.total
    )


@torch.no_grad()
def test_tokens_of_windows_equal_those_of_step() -> None:
    """The whole image and six windows of another size."""
    (config,) = [x.values[0] for x in multimodal_configs() if x.id == "step3p7-plain"]
    vision = {
        "width": 24,
        "layers": 1,
        "heads": 3,
        "patch_size": 14,
        "image_size": 728,
        "mlp_ratio": 1.5,
    }
    config = {**config, "vision_config": vision}
    pixels = torch.zeros(1, 3, 728, 728), torch.zeros(6, 3, 504, 504)
    found = reference_of(config).model.get_image_features(
        pixels[0], pixel_values_local=pixels[1], num_local_patches=[6]
    )
    assert (
        image_tokens(llamath.load(config).tree, Images(count=1, width=1500, height=1000))
        == len(found.pooler_output[0])
        == 169 + 6 * 81
    )
