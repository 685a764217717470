"""Multimodal models on the command line: parts, and images in FLOPs, memory and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.analysis.graph.image_pass import parse_images
from llamath.cli import cli
from llamath.core.image_sizes import FixedImage, NativeImage, ScaledImage, SplitImage, TiledImage

GEMMA = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "num_attention_heads": 16,
        "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
    },
}  # fmt: skip
"""google/gemma-3-4b-it."""


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GEMMA))
    return str(path)


def test_count_has_the_total_of_the_file_and_its_parts(config: str) -> None:
    assert "4,300,079,472 parameters (4.30B), text model 3,880,263,168" in run(
        "count", config
    ).stdout.replace("\n", " ")
    document = json.loads(run("count", config, "--json").stdout)
    assert document["parameters"]["total"] == 4_300_079_472
    assert document["parameters"]["parts"] == {"text": 3_880_263_168, "vision": 419_816_304}
    vision = json.loads(run("count", config, "--part", "vision", "--json").stdout)
    assert (vision["part"], vision["parameters"]["total"]) == ("vision", 419_816_304)
    assert {x["group"] for x in vision["weights"]} == {"vision", "projector"}
    assert llamath.count(config, part="text").total == 3_880_263_168


def test_missing_part_is_refused_with_those_there_are(config: str) -> None:
    done = run("count", config, "--part", "audio")
    assert done.exit_code == 2
    assert "no audio part" in done.stderr and "text and vision" in done.stderr
    assert (
        run("count", "llama-3-8b", "--part", "text", "--brief").stdout
        == run("count", "llama-3-8b", "--brief").stdout
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2x",
        "0x5",
        "3x0",
        "1x2x3x4",
        "-1x3",
        "2x1024.5",
        "99999x4",
        "1x999999999999",
        "２x3",
    ],
)
def test_wrong_images_are_refused(text: str) -> None:
    with pytest.raises(llamath.LlamathError, match="images"):
        parse_images(text)


def test_images_have_a_count_and_one_or_two_sides() -> None:
    found = [parse_images(x) for x in ("1024", "2x1024", "2x640x480", "2×640×480")]
    assert [(x.count, x.width, x.height) for x in found] == [
        (1, 1024, 1024),
        (2, 1024, 1024),
        (2, 640, 480),
        (2, 640, 480),
    ]


def test_flops_show_the_tower_apart(config: str) -> None:
    alone, with_images = (llamath.flops(config, context=4096, images=x) for x in ("", "2x1024"))
    assert alone.images is None and with_images.images is not None
    assert with_images.prefill.total == alone.prefill.total and with_images.images.tokens == 512
    patches, d, F, layers = 2 * 4096, 1152, 4304, 27
    tower = (
        2 * patches * (588 * d + layers * (4 * d * d + 2 * d * F)) + layers * 4 * 2 * 4096**2 * d
    )
    assert with_images.images.flops.total == tower + 2 * 512 * d * 2560
    text = run("flops", config, "--context", "4k", "--images", "2x1024").stdout
    assert "images, vision" in text and f"{tower:,}" in text
    assert (
        json.loads(run("flops", config, "--context", "4k", "--images", "2x1024", "--json").stdout)[
            "images"
        ]["tokens"]
        == 512
    )


def test_more_image_tokens_than_the_context_are_refused(config: str) -> None:
    for command in ("flops", "memory"):
        done = run(command, config, "--context", "1000", "--images", "4x1024")
        assert (
            done.exit_code == 2
            and "1,024" in done.stderr
            and "text and images together" in done.stderr
        )


@pytest.mark.slow
def test_images_of_a_text_model_are_refused() -> None:
    for command in ("flops", "memory", "trace"):
        done = run(command, "llama-3-8b", "--images", "1x300")
        assert done.exit_code == 2 and "reads no images" in done.stderr


def test_memory_of_many_images_is_that_of_the_tower(config: str) -> None:
    few, many = (llamath.memory(config, context=8192, images=x) for x in ("1x1024", "30x1024"))
    assert few.activations == llamath.memory(config, context=8192).activations < many.activations
    assert many.weights == few.weights == 2 * 4_300_079_472


def test_trace_sums_to_the_flops_of_the_images(config: str) -> None:
    pytest.importorskip("torch")
    document = json.loads(
        run("trace", config, "--images", "2x1024", "--context", "8", "--json").stdout
    )
    images = document["images"]
    assert len(document["tokens"]) == 8 + 512
    assert sum(x["times"] * x["flops"] for x in images["stages"]) == images["flops"]
    assert sum(x["times"] * x["parameters"] for x in images["stages"]) == 419_816_304
    assert run("trace", config, "hello", "--images", "1x300").exit_code == 2


@pytest.mark.slow
def test_images_of_counted_towers_are_refused_with_their_tokens(tmp_path: Path) -> None:
    tiny = json.loads(
        (Path(__file__).parent.parent / "tiny_multimodal" / "blip_2.json").read_text()
    )
    config = tmp_path / "config.json"
    config.write_text(json.dumps(next(iter(tiny.values()))))
    for command in (("flops",), ("memory",), ("trace", "--context", "2")):
        name, *options = command
        assert run(name, str(config), *options, "--json").exit_code == 0
        result = run(name, str(config), *options, "--images", "2x64")
        assert (
            result.exit_code == 2
            and "counted, not computed (2 images of 64 × 64 pixels: 10 tokens)" in result.stderr
        )


SIZES: list[tuple[Any, tuple[int, int], tuple[int, int, int]]] = [
    (FixedImage(patch=14, size=896), (300, 2000), (1, 64, 64)),
    (NativeImage(patch=14, multiple=28, longest=1540), (100, 29), (1, 4, 8)),
    (NativeImage(patch=14, multiple=28, longest=1540), (3080, 1540), (1, 56, 110)),
    (ScaledImage(patch=16, multiple=48, max_patches=2520), (1000, 1000), (1, 48, 48)),
    (ScaledImage(patch=16, multiple=48, max_patches=2520), (10, 100_000), (1, 840, 3)),
    (SplitImage(patch=14, size=364, longest=1456), (1000, 500), (9, 26, 26)),
    (
        TiledImage(patch=14, size=336, resolutions=((336, 672), (672, 336), (672, 672))),
        (1000, 300),
        (3, 24, 24),
    ),
]


@pytest.mark.parametrize(("sizes", "image", "grid"), SIZES)
def test_images_become_tiles_of_patches(
    sizes: Any, image: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    assert tuple(sizes.grid(*image)) == grid
