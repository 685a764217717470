"""The tiles and patches of images compared with the image processors of transformers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llamath.core.image_sizes import (
    BoundedImage,
    ClosestShape,
    CoveringTiles,
    CroppedImage,
    LeastScaledImage,
    LeastScaledTiles,
    LinedImage,
    NativeImage,
    PatchBudget,
    PatchRange,
    PixelBudget,
    ScaledImage,
    SplitBudget,
    SplitImage,
    TiledImage,
    WholeAndCrops,
    WindowedImage,
)
from support.image_processors import IMAGES, functions_of, squares_of_molmo2

pytestmark = pytest.mark.transformers


@pytest.mark.parametrize("most", [1, 6, 12, 40])
def test_crops_equal_the_processor_of_internvl(most: int) -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    sizes = CroppedImage(patch=14, size=448, max_tiles=most)
    for width, height in IMAGES:
        columns, rows = get_optimal_tiled_canvas((height, width), (448, 448), 1, most)
        tiles = columns * rows
        assert sizes.grid(width, height) == (tiles + 1 if tiles > 1 else 1, 32, 32), (width, height)


@pytest.mark.parametrize("most", [1, 6, 12])
def test_crops_equal_the_processor_of_command_a(most: int) -> None:
    get_optimal_tiled_canvas = functions_of("cohere2_vision/image_processing_cohere2_vision.py")[
        "get_optimal_tiled_canvas"
    ]
    sizes = LeastScaledImage(patch=16, size=512, max_tiles=most)
    for width, height in IMAGES:
        columns, rows = get_optimal_tiled_canvas((height, width), (512, 512), 1, most)
        tiles = int(columns * rows)
        assert sizes.grid(width, height) == (tiles + 1 if tiles > 1 else 1, 32, 32), (width, height)


def test_tiles_equal_the_processor_of_llava_next() -> None:
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    resolutions = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
    sizes = TiledImage(patch=14, size=336, resolutions=resolutions)
    for width, height in IMAGES:
        tiles = image_size_to_num_patches([height, width], list(map(list, resolutions)), 336)
        assert sizes.grid(width, height) == (tiles, 24, 24), (width, height)


def test_sizes_equal_the_processor_of_gemma4() -> None:
    from transformers.models.gemma4.image_processing_pil_gemma4 import (
        get_aspect_ratio_preserving_size,
    )

    sizes = ScaledImage(patch=16, multiple=48, max_patches=2520)
    for width, height in IMAGES:
        h, w = get_aspect_ratio_preserving_size(height, width, 16, 2520, 3)
        assert sizes.grid(width, height) == (1, h // 16, w // 16), (width, height)


def test_sizes_equal_the_processor_of_pixtral() -> None:
    import numpy as np
    from transformers.models.pixtral.image_processing_pil_pixtral import (
        get_resize_output_image_size,
    )

    sizes = NativeImage(patch=14, multiple=28, longest=1540)
    for width, height in IMAGES:
        image = np.zeros((3, height, width), "u1")
        h, w = get_resize_output_image_size(image, size=(1540, 1540), patch_size=(28, 28))
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_tiles_equal_the_processor_of_idefics3() -> None:
    import numpy as np
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    processor, sizes = Idefics3ImageProcessorPil(), SplitImage(patch=14, size=364, longest=4 * 364)
    for width, height in IMAGES[
        1:
    ]:  # a single pixel has no shape from which the processor tells its channels
        tiles = processor([[np.zeros((height, width, 3), "u1")]], return_tensors="np")[
            "pixel_values"
        ].shape[1]
        assert sizes.grid(width, height) == (tiles, 26, 26), (width, height)


@pytest.mark.parametrize("most", [16_384, 65_536])
def test_sizes_equal_the_processor_of_kimi(most: int) -> None:
    resize = functions_of("kimi_k25/image_processing_kimi_k25.py")["navit_resize"]
    sizes = PatchBudget(patch=14, multiple=28, most=most, longest=512)
    for width, height in [*IMAGES, (9000, 8000), (20_000, 50)]:
        _, (h, w) = resize(height, width, 14, 2, most, 512)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_muse_glimmer() -> None:
    resize = functions_of("muse_glimmer/image_processing_muse_glimmer.py")["smart_resize"]
    sizes = ClosestShape(patch=14, multiple=28, most=4096)
    for width, height in IMAGES:
        h, w = resize(height, width, 28, 4096)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_glm4v() -> None:
    resize = functions_of("glm4v/image_processing_glm4v.py")["smart_resize"]
    sizes = PixelBudget(patch=14, multiple=28, fewest=12_544 // 2, most=9_633_792 // 2)
    for width, height in IMAGES[1:]:  # a single pixel is too small
        h, w = resize(2, height, width, 2, 28)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_video_llama() -> None:
    resize = functions_of("video_llama_3/image_processing_video_llama_3.py")["smart_resize"]
    sizes = PixelBudget(patch=14, multiple=14, fewest=56 * 56, most=28 * 28 * 1280)
    for width, height in IMAGES[1:]:
        h, w = resize(height, width, 14)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_paddleocr() -> None:
    resize = functions_of("paddleocr_vl/image_processing_paddleocr_vl.py")["smart_resize"]
    sizes = PixelBudget(patch=14, multiple=28, fewest=384**2, most=1536**2, enlarges=True)
    for width, height in [*IMAGES, (20, 90), (200, 9)]:
        h, w = resize(height, width, 28, 384**2, 1536**2)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_hunyuan() -> None:
    resize = functions_of("hunyuan_vl/image_processing_hunyuan_vl.py")["smart_resize"]
    sizes = PixelBudget(patch=16, multiple=32, fewest=512**2, most=2048**2)
    for width, height in IMAGES:
        h, w = resize(height, width, 32, 512**2, 2048**2)
        assert sizes.grid(width, height) == (1, h // 16, w // 16), (width, height)


def test_sizes_equal_the_processor_of_minimax() -> None:
    resize = functions_of("minimax_m3_vl/image_processing_minimax_m3_vl.py")["smart_resize"]
    sizes = PixelBudget(patch=14, multiple=28, fewest=4 * 28 * 28, most=451_584)
    for width, height in IMAGES[1:]:
        h, w = resize(height, width, 28, 4 * 28 * 28, 451_584)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_tiles_and_tokens_equal_the_processor_of_lfm2() -> None:
    functions = functions_of("lfm2_vl/image_processing_lfm2_vl.py")
    processor = SimpleNamespace(_target_ratios=lambda *x: functions["_target_ratios"](None, *x))
    sizes = SplitBudget(
        patch=16,
        multiple=32,
        fewest=64 * 1024,
        most=256 * 1024,
        size=512,
        min_tiles=2,
        max_tiles=10,
    )
    for width, height in IMAGES:
        w, h = functions["smart_resize"](None, height, width, 2, 64, 256, 16)
        whole = h * w // 1024
        if functions["_is_image_too_large"](None, height, width, 256, 16, 2, 2.0):
            columns, rows, *_ = functions["_get_grid_layout"](processor, height, width, 2, 10, 512)
            assert sizes.grid(width, height) == (columns * rows + 1, 32, 32), (width, height)
            assert sizes.tokens(width, height, 256) == columns * rows * 256 + whole
        else:
            assert sizes.grid(width, height) == (1, h // 16, w // 16), (width, height)
            assert sizes.tokens(width, height, whole) == whole


def test_sizes_equal_the_processor_of_ernie() -> None:
    resize = functions_of("ernie4_5_vl_moe/image_processing_ernie4_5_vl_moe.py")["smart_resize"]
    sizes = PixelBudget(patch=14, multiple=28, fewest=56 * 56, most=28 * 28 * 6177)
    for width, height in IMAGES:
        h, w = resize(height, width, 28, 56 * 56, 28 * 28 * 6177)
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_idefics2() -> None:
    resize = functions_of("idefics2/image_processing_idefics2.py")["get_resize_output_image_size"]
    sizes = BoundedImage(patch=14, shortest=378, longest=980)
    for width, height in IMAGES:
        image = SimpleNamespace(shape=(3, height, width))
        h, w = resize(image, SimpleNamespace(shortest_edge=378, longest_edge=980))
        assert sizes.grid(width, height) == (1, h // 14, w // 14), (width, height)


def test_sizes_equal_the_processor_of_fuyu() -> None:
    import numpy as np
    from transformers.models.fuyu.image_processing_pil_fuyu import FuyuImageProcessorPil

    processor, sizes = FuyuImageProcessorPil(), LinedImage(patch=30, height=1080, width=1920)
    for width, height in IMAGES[
        1:
    ]:  # a single pixel has no shape from which the processor tells its channels
        found = processor([[np.zeros((height, width, 3), "u1")]], return_tensors="np")
        h, w = int(found["image_unpadded_heights"][0][0]), int(found["image_unpadded_widths"][0][0])
        rows, columns = -(-h // 30), -(-w // 30)
        assert sizes.grid(width, height) == (1, rows, columns), (width, height)
        assert sizes.tokens(width, height, rows * columns) == rows * (columns + 1)


def test_sizes_equal_the_processor_of_nemotron() -> None:
    resize = functions_of("nemotron_h_omni/image_processing_nemotron_h_omni.py")[
        "get_patch_grid_size"
    ]
    sizes = PatchRange(patch=16, side=2, fewest=1024, most=13_312)
    for width, height in [*IMAGES, (16, 9000), (1830, 1830)]:
        assert sizes.grid(width, height) == (1, *resize(height, width, 16, 2, 1024, 13_312)), (
            width,
            height,
        )


def test_sizes_equal_the_processor_of_cosmos() -> None:
    resize = functions_of("cosmos3_edge/image_processing_cosmos3_edge.py")["smart_resize"]
    sizes = PixelBudget(patch=16, multiple=32, fewest=256**2, most=4096**2, enlarges_both=True)
    for width, height in [*IMAGES, (20, 90), (200, 9)]:
        h, w = resize(1, height, width, 1, 32, 256**2, 4096**2)
        assert sizes.grid(width, height) == (1, h // 16, w // 16), (width, height)


def test_windows_equal_the_processor_of_step() -> None:
    functions = functions_of("step3p7/image_processing_step3p7.py")
    processor = SimpleNamespace(
        _is_extreme_aspect=functions["_is_extreme_aspect"], max_image_size=3024
    )
    sizes = WindowedImage(patch=14, size=728, tile=504, longest=3024)
    for width, height in [*IMAGES, (728, 728), (700, 100), (20, 400), (605, 604), (1200, 1109)]:
        *_, columns, rows, _padded = functions["_plan_patches"](processor, width, height, 728, 504)
        found = sizes.beside(width, height)
        assert (found or (0,))[0] == columns * rows, (width, height)
        assert found is None or found[1:] == (36, 36)


def test_covering_tiles_equal_the_processor_of_ovis() -> None:
    functions = functions_of("ovis2/image_processing_ovis2.py")
    for most in (1, 6, 12):
        sizes = CoveringTiles(patch=14, size=448, max_tiles=most)
        for width, height in IMAGES[1:]:  # a single pixel cannot be cut
            columns, rows = functions["get_min_tile_covering_grid"]((height, width), 448, most)
            tiles = columns * rows
            assert sizes.grid(width, height) == (tiles + 1 if tiles > 1 else 1, 32, 32), (
                width,
                height,
            )


@pytest.mark.parametrize("most", [1, 8, 24])
def test_tiles_equal_the_processor_of_molmo(most: int) -> None:
    functions = functions_of("molmo2/image_processing_molmo2.py")
    sizes = LeastScaledTiles(patch=14, size=378, margin=4, most=most, side=2)
    for width, height in [*IMAGES, (112, 112), (112, 500), (700, 111), (532, 378)]:
        rows, columns, *_ = functions["compute_crop_geometry"](height, width, most, [4, 4], 378, 14)
        assert sizes.canvas(width, height) == (rows, columns), (width, height)
        assert sizes.grid(width, height) == (rows * columns + 1, 27, 27)
        grid, squares = squares_of_molmo2(width, height, 378, 14, most)
        assert (
            sizes.tokens(width, height, 14 * 14)
            == len(squares)
            == grid[0] * grid[1] + grid[2] * grid[3]
        )


def test_tiles_and_tokens_equal_the_processor_of_unlimited_ocr() -> None:
    from transformers.models.unlimited_ocr.processing_unlimited_ocr import UnlimitedOcrProcessor

    tiles_of = functions_of("unlimited_ocr/image_processing_unlimited_ocr.py")[
        "get_optimal_tiled_canvas"
    ]
    image_processor = SimpleNamespace(size={"height": 1024, "width": 1024}, tile_size=640)
    processor = SimpleNamespace(
        image_processor=image_processor, patch_size=16, downsample_ratio=4, image_token="x"
    )
    sizes = WholeAndCrops(patch=16, size=1024, tile=640, max_tiles=32)
    for width, height in [*IMAGES, (640, 640), (641, 640)]:
        columns, rows = (
            tiles_of((height, width), (640, 640), 2, 32) if max(width, height) > 640 else (1, 1)
        )
        tiles = columns * rows if max(width, height) > 640 else 0
        beside = sizes.beside(width, height)
        assert (beside or (0,))[0] == tiles and sizes.grid(width, height) == (1, 64, 64), (
            width,
            height,
        )
        found = {"patches_grid": [[columns, rows]], "num_local_patches": [tiles]}
        expected = UnlimitedOcrProcessor.replace_image_token(processor, found, 0)
        assert sizes.tokens(width, height, 256) + tiles * 100 == len(expected)
