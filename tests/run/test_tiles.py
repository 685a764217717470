"""Images that are cut into tiles which the projector reads together, of models whose code is shipped with them: Phi-3 Vision, Moondream."""

from __future__ import annotations

import json
from math import ceil, floor, prod, sqrt
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.image_pass import Images, image_tokens
from llamath.core.image_sizes import EnlargedImage, OverlappingTiles
from support.image_processors import IMAGES

PHI_TOKENS = {16: 1921, 4: 757}
"""Number of tiles → tokens of an image of 1,300 × 876 pixels in Phi-3.5 Vision, as vLLM's tests state."""
MOONDREAM2_BYTES = 3_854_538_968
"""The size of model.safetensors of vikhyatk/moondream2 of 2025-06-21, in bfloat16."""
MOONDREAM: dict[str, Any] = {
    "model_type": "moondream1",
    "architectures": ["HfMoondream"],
    "config": {},
    "torch_dtype": "bfloat16",
}


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
    assert config.is_multimodal
    rows, columns = sizes.canvas(1300, 876)
    assert (rows * columns + 1) * 144 + 1 + (rows + 1) * 12 == PHI_TOKENS[most]
    if most == 16:
        assert image_tokens(config, Images(count=1, width=1300, height=876)) == PHI_TOKENS[most]


# Moondream


def select_tiling(height: int, width: int, crop: int, most: int) -> tuple[int, int]:
    """Rows and columns of tiles, as Moondream's code finds them."""
    if height <= crop or width <= crop:
        return 1, 1
    rows, columns = ceil(height / crop), ceil(width / crop)
    if rows * columns > most:
        ratio = sqrt(most / (rows * columns))
        return max(1, floor(rows * ratio)), max(1, floor(columns * ratio))
    rows, columns = (
        max(floor(sqrt(most * height / width)), rows),
        max(floor(sqrt(most * width / height)), columns),
    )
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


def test_moondream2_file_has_its_published_size_to_the_byte() -> None:
    """The header has all names and shapes, so that its length depends on each of them."""
    model = llamath.load(MOONDREAM)
    at, header = 0, dict[str, Any]({"__metadata__": {"format": "pt"}})
    for x in sorted(model.family.hf.tensors(model.tree), key=lambda x: x.name):
        shape = [int(y) for y in x.shape]
        header[x.name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [at, at + 2 * prod(shape)],
        }
        at += 2 * prod(shape)
    length = len(json.dumps(header, separators=(",", ":")))
    assert at == 2 * model.parameters.total
    assert 8 + length + -length % 8 + at == MOONDREAM2_BYTES


def test_text_of_moondream_is_that_of_phi() -> None:
    phi = llamath.load("phi-1.5")
    model = llamath.load(MOONDREAM)
    assert model.parameters.parts["text"] == phi.parameters.total
    assert (
        llamath.flops(model, context=1024).prefill.total
        == llamath.flops(phi, context=1024).prefill.total
    )
    assert image_tokens(model.tree, Images(count=2, width=1024, height=700)) == 2 * 729
    with pytest.raises(llamath.LlamathError, match="counted, not computed"):
        llamath.flops(model, context=1024, images="1x1024")


def test_other_moondream_models_are_refused() -> None:
    for classes in (["Moondream"], []):
        with pytest.raises(
            llamath.UnknownModel, match="architectures of this moondream1 model are"
        ):
            llamath.load(
                {
                    "model_type": "moondream1",
                    "architectures": classes,
                    "text_config": {"model_type": "phi"},
                }
            )


@pytest.mark.parametrize("part", ["text", "region"])
def test_packed_weights_of_moondream_are_refused(part: str) -> None:
    with pytest.raises(llamath.LlamathError, match="packed weights of Moondream are not known"):
        llamath.load({**MOONDREAM, "config": {part: {"group_size": 128}}})


def test_sizes_in_the_config_of_moondream_are_read() -> None:
    fewer = llamath.load({**MOONDREAM, "config": {"text": {"n_layers": 23}}})
    assert llamath.load(MOONDREAM).parameters.total - fewer.parameters.total == 50_354_176
    with pytest.raises(
        llamath.ConfigError, match="proj_out_dim is 1024, and the text model reads 2048"
    ):
        llamath.load({**MOONDREAM, "config": {"vision": {"proj_out_dim": 1024}}})
