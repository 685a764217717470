"""Images that are cut into tiles which the projector reads together, of models whose code is shipped with them: Phi-3 Vision, Moondream."""

from __future__ import annotations

import json
from math import ceil, floor, prod, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.image_pass import Images, image_pass
from llamath.core.constructors import linear, weight
from llamath.core.image_sizes import EnlargedImage, OverlappingTiles
from llamath.core.multimodal import ModelPart, Multimodal
from llamath.core.towers import ArrangedProjector
from llamath.run import canonical_weights, load_weights
from llamath.run.kv_cache import Cache
from llamath.run.module import Module, TensorOptions
from llamath.run.torch_machine import TorchMachine
from support.image_processors import IMAGES

PHI_TOKENS = {16: 1921, 4: 757}
"""Number of tiles → tokens of an image of 1,300 × 876 pixels in Phi-3.5 Vision, as vLLM's tests state."""
MOONDREAM2_BYTES = 3_854_538_968
"""The size of model.safetensors of vikhyatk/moondream2 of 2025-06-21, in bfloat16."""
MOONDREAM: dict[str, Any] = {"model_type": "moondream1", "architectures": ["HfMoondream"], "config": {}, "torch_dtype": "bfloat16"}


def machine(shape: tuple[int, ...], tiles: tuple[int, int], grid: tuple[int, int]) -> TorchMachine:
    found = TorchMachine(torch.zeros(shape[:2], dtype=torch.long), Cache([], 0))
    found.tile_grid, found.patch_grid = tiles, grid
    return found


def module_of(block: Any) -> Module:
    found = Module(block, TensorOptions(torch.float32, torch.device("cpu")))
    for x in found.parameters():
        x.data.normal_()
    return found


# Phi-3 Vision


def hd_transform(width: int, height: int, most: int) -> tuple[int, int]:
    """Rows and columns of tiles, as the processor of Phi-3 Vision finds them."""
    transposed = width < height
    width, height = (height, width) if transposed else (width, height)
    ratio, scale = width / height, 1
    while scale * ceil(scale / ratio) <= most:
        scale += 1
    scale -= 1
    rows = ceil(int(scale * 336 / ratio) / 336) or 1
    return (scale, rows) if transposed else (rows, scale)


@pytest.mark.parametrize("most", [4, 16])
def test_tiles_and_tokens_of_phi3_equal_its_processor(most: int) -> None:
    sizes = EnlargedImage(patch=14, size=336, most=most)
    for width, height in IMAGES:
        assert sizes.canvas(width, height) == hd_transform(width, height, most), (width, height)
        assert sizes.grid(width, height) == (most + 1, 24, 24)
    config = llamath.load("phi-3-vision").tree
    assert isinstance(config, Multimodal)
    rows, columns = sizes.canvas(1300, 876)
    assert (rows * columns + 1) * 144 + 1 + (rows + 1) * 12 == PHI_TOKENS[most]
    if most == 16:
        assert image_pass(config, Images(count=1, width=1300, height=876)).tokens == PHI_TOKENS[most]


@torch.no_grad()
def test_projector_of_phi3_equals_its_code() -> None:
    """The order of tokens, separators and newlines of `hd_transform_order` sub_glb."""
    d, out, side, rows, columns = 6, 10, 4, 2, 3
    block = ArrangedProjector(
        separator=weight(1, 1, 4 * d),
        newline=weight(1, 1, 1, 4 * d),
        linear_1=linear(out, 4 * d, True),
        linear_2=linear(out, out, True),
        activation="gelu",
        merge=2,
        tiles=9,
    )
    module, x = module_of(block), torch.randn(2 * 9, side * side, d)
    ours = module(machine(x.shape, (rows, columns), (side, side)), x)
    for i, image in enumerate(x.unflatten(0, (2, 9))):
        found = []
        for tiles, h, w in ((image[1 : 1 + rows * columns], rows, columns), (image[:1], 1, 1)):
            squares = tiles.reshape(h * w, side // 2, 2, side // 2, 2, d).permute(0, 1, 3, 2, 4, 5).reshape(h * w, -1, 4 * d)
            grid = squares.reshape(h, w, side // 2, side // 2, 4 * d).permute(0, 2, 1, 3, 4).reshape(h * side // 2, w * side // 2, 4 * d)
            newlines = module.newline.reshape(1, 1, -1).expand(len(grid), 1, -1)
            found.append(torch.cat([grid, newlines], 1).flatten(0, 1))
        tokens = torch.cat([found[0], module.separator.reshape(1, -1), found[1]])
        hidden = F.gelu(F.linear(tokens, module.linear_1.weight, module.linear_1.bias))
        torch.testing.assert_close(ours[i], F.linear(hidden, module.linear_2.weight, module.linear_2.bias))


@pytest.mark.transformers
def test_flops_of_phi3_equal_those_of_clip_and_its_projector() -> None:
    import transformers

    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = transformers.CLIPVisionConfig(image_size=336, patch_size=14, **sizes)
    images = image_pass(llamath.load("phi-3-vision").tree, Images(count=1, width=1300, height=876))
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        transformers.CLIPVisionModel._from_config(config, attn_implementation="eager")(torch.zeros(17, 3, 336, 336))
        nn.Sequential(nn.Linear(4096, 3072), nn.GELU(), nn.Linear(3072, 3072))(torch.zeros(images.tokens, 4096))
    assert images.flops.total == counter.get_total_flops()


# Moondream


def select_tiling(height: int, width: int, crop: int, most: int) -> tuple[int, int]:
    """Rows and columns of tiles, as Moondream's code finds them."""
    if height <= crop or width <= crop:
        return 1, 1
    rows, columns = ceil(height / crop), ceil(width / crop)
    if rows * columns > most:
        ratio = sqrt(most / (rows * columns))
        return max(1, floor(rows * ratio)), max(1, floor(columns * ratio))
    rows, columns = max(floor(sqrt(most * height / width)), rows), max(floor(sqrt(most * width / height)), columns)
    if rows * columns > most and columns > rows:
        columns = floor(most / rows)
    elif rows * columns > most:
        rows = floor(most / columns)
    return max(1, rows), max(1, columns)


def test_tiles_of_moondream_equal_its_processor() -> None:
    sizes = OverlappingTiles(patch=14, size=378, margin=4, most=12)
    for width, height in IMAGES:
        rows, columns = select_tiling(height - 112, width - 112, 266, 12)
        assert sizes.canvas(width, height) == (rows, columns), (width, height)
        assert sizes.grid(width, height) == (rows * columns + 1, 27, 27)


def reconstructed(crops: Tensor, rows: int, columns: int, margin: int) -> Tensor:
    """The features of overlapping tiles `(tiles, side, side, d)` as one image, as Moondream's code places them."""
    side = crops.shape[1]
    step = side - 2 * margin
    image = torch.zeros(step * rows + 2 * margin, step * columns + 2 * margin, crops.shape[-1])
    for n, crop in enumerate(crops):
        i, j = divmod(n, columns)
        top, bottom = (margin if i else 0), (side if i == rows - 1 else side - margin)
        left, right = (margin if j else 0), (side if j == columns - 1 else side - margin)
        image[i * step + top : i * step + bottom, j * step + left : j * step + right] = crop[top:bottom, left:right]
    return image


@pytest.mark.transformers
@pytest.mark.parametrize(("width", "height", "tiles"), [(20, 20, (1, 1)), (40, 24, (2, 4)), (24, 60, (4, 1))])
@torch.no_grad()
def test_features_and_flops_of_moondream_equal_siglip_and_torch(width: int, height: int, tiles: tuple[int, int]) -> None:
    import transformers

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "patch_size": 4,
        "image_size": 20,
        "intermediate_size": 60,
    }
    config = transformers.SiglipVisionConfig(layer_norm_eps=1e-5, vision_use_head=False, **sizes)
    siglip = transformers.SiglipVisionModel._from_config(config, attn_implementation="eager")
    for x in siglip.parameters():
        x.add_(torch.randn_like(x) * 0.05)
    vision = {
        "enc_dim": 24, "enc_ff_dim": 60, "enc_n_layers": 2, "enc_n_heads": 3, "enc_patch_size": 4, "crop_size": 20, "overlap_margin": 1,
        "max_crops": 8, "proj_out_dim": 32, "proj_inner_dim": 40,
    }  # fmt: skip
    region = {"dim": 32, "inner_dim": 12, "coord_feat_dim": 4, "coord_out_dim": 6, "size_feat_dim": 8, "size_out_dim": 10}
    text = {"dim": 32, "vocab_size": 50, "n_layers": 1, "n_heads": 4, "ff_dim": 36}
    model = llamath.load({**MOONDREAM, "config": {"text": text, "vision": vision, "region": region}})
    assert isinstance(model.tree, Multimodal) and not any("ignored" in x for x in model.notes)
    images = image_pass(model.tree, Images(count=1, width=width, height=height))
    assert images.grid == (tiles[0] * tiles[1] + 1, 5, 5) and images.tokens == 25
    projector = nn.Sequential(nn.Linear(48, 40), nn.GELU("tanh"), nn.Linear(40, 32))
    tensors = {f"model.vision.{name}": x for name, x in own_names(siglip.state_dict()).items()}
    tensors |= {
        f"model.vision.proj_mlp.fc{i}.{kind}": projector.state_dict()[f"{j}.{kind}"]
        for i, j in ((1, 0), (2, 2))
        for kind in ("weight", "bias")
    }
    part = ModelPart(vision=model.tree.vision, projector=model.tree.projector)
    stored = {x.name: x for x in model.family.hf.tensors(model.tree) if ".region." in x.name}
    tensors |= {name: torch.zeros(*map(int, x.shape)) for name, x in stored.items()}
    module = Module(part, TensorOptions(torch.float32, torch.device("cpu")))
    load_weights(module, canonical_weights(part, model.family.hf, tensors))

    pixels = torch.randn(images.grid.tiles, 3, 20, 20)
    patches = F.unfold(pixels, 4, stride=4).mT
    ours = module(machine(patches.shape, tiles, (5, 5)), patches)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        features = siglip(pixels).last_hidden_state
        local = reconstructed(features[1:].unflatten(1, (5, 5)), *tiles, 1)
        pooled = F.adaptive_avg_pool2d(local.permute(2, 0, 1), (5, 5)).permute(1, 2, 0).flatten(0, 1)
        expected = projector(torch.cat([features[0], pooled], -1))
    torch.testing.assert_close(ours[0], expected, atol=2e-5, rtol=1e-4)
    assert images.flops.total == counter.get_total_flops()


def own_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of SigLIP in transformers under Moondream's names, queries, keys and values joined."""
    found = {"pos_emb": tensors["embeddings.position_embedding.weight"][None]}
    for kind in ("weight", "bias"):
        found[f"post_ln.{kind}"] = tensors[f"post_layernorm.{kind}"]
        patches = tensors[f"embeddings.patch_embedding.{kind}"]
        found[f"patch_emb.{kind}"] = patches.flatten(1) if kind == "weight" else patches
        for i in range(2):
            layer, block = f"encoder.layers.{i}.", f"blocks.{i}."
            found[f"{block}attn.qkv.{kind}"] = torch.cat([tensors[f"{layer}self_attn.{x}_proj.{kind}"] for x in "qkv"])
            found |= {f"{block}{x}.{kind}": tensors[f"{layer}{y}.{kind}"] for x, y in _LAYER.items()}
    return found


_LAYER = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn.proj": "self_attn.out_proj", **{x: x for x in ("mlp.fc1", "mlp.fc2")}}


@pytest.mark.transformers
@torch.no_grad()
def test_flops_of_windows_equal_those_of_step() -> None:
    """The whole image and six windows of another size, each a pass of the tower."""
    import transformers

    config = dict(multimodal_config("step3p7"))
    config["vision_config"] = {"width": 24, "layers": 1, "heads": 3, "patch_size": 14, "image_size": 728, "mlp_ratio": 1.5}
    made = transformers.AutoConfig.for_model(**config)
    reference = transformers.AutoModelForImageTextToText.from_config(made, attn_implementation="eager")
    with FlopCounterMode(display=False) as counter:
        pixels = torch.zeros(1, 3, 728, 728), torch.zeros(6, 3, 504, 504)
        found = reference.model.get_image_features(pixels[0], pixel_values_local=pixels[1], num_local_patches=[6])
    images = image_pass(llamath.load(config).tree, Images(count=1, width=1500, height=1000))
    assert images.tokens == len(found.pooler_output[0]) == 169 + 6 * 81
    assert images.flops.total == counter.get_total_flops()
    assert "6 tiles of 36 × 36" in images.summary


def multimodal_config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent.parent / "tiny_multimodal" / f"{name}.json").read_text())["plain"]
    return found


def test_moondream2_file_has_its_published_size_to_the_byte() -> None:
    """The header has all names and shapes, so that its length depends on each of them."""
    model = llamath.load(MOONDREAM)
    at, header = 0, dict[str, Any]({"__metadata__": {"format": "pt"}})
    for x in sorted(model.family.hf.tensors(model.tree), key=lambda x: x.name):
        shape = [int(y) for y in x.shape]
        header[x.name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * prod(shape)]}
        at += 2 * prod(shape)
    length = len(json.dumps(header, separators=(",", ":")))
    assert at == 2 * model.parameters.total
    assert 8 + length + -length % 8 + at == MOONDREAM2_BYTES


def test_text_of_moondream_is_that_of_phi() -> None:
    phi = llamath.load("phi-1.5")
    model = llamath.load(MOONDREAM)
    assert model.parameters.parts["text"] == phi.parameters.total
    assert llamath.flops(model, context=1024).prefill.total == llamath.flops(phi, context=1024).prefill.total
    assert llamath.flops(model, context=1024, images="1x1024").prefill.total == llamath.flops(model, context=1024).prefill.total


def test_other_moondream_models_are_refused() -> None:
    for classes in (["Moondream"], []):
        with pytest.raises(llamath.UnknownModel, match="architectures of this moondream1 model are"):
            llamath.load({"model_type": "moondream1", "architectures": classes, "text_config": {"model_type": "phi"}})


@pytest.mark.parametrize("part", ["text", "region"])
def test_packed_weights_of_moondream_are_refused(part: str) -> None:
    with pytest.raises(llamath.LlamathError, match="packed weights of Moondream are not known"):
        llamath.load({**MOONDREAM, "config": {part: {"group_size": 128}}})


def test_sizes_in_the_config_of_moondream_are_read() -> None:
    fewer = llamath.load({**MOONDREAM, "config": {"text": {"n_layers": 23}}})
    assert llamath.load(MOONDREAM).parameters.total - fewer.parameters.total == 50_354_176
    with pytest.raises(llamath.ConfigError, match="proj_out_dim is 1024, and the text model reads 2048"):
        llamath.load({**MOONDREAM, "config": {"vision": {"proj_out_dim": 1024}}})
