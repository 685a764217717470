"""`fit --ram`: bytes on each device against llama.cpp's printouts, the flags, and the bound on decode."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import llamath
import published_engines
from llamath.analysis.check.checkpoint_weights import read_stored_weights
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.placement.layer_sizes import layer_sizes
from llamath.analysis.size.placement.placement import RAM_RESERVE, Placement
from llamath.analysis.size.placement.placement_flags import _module_bytes
from llamath.cli import cli
from llamath.engines import find_engine
from llamath.utils.errors import LlamathError
from llamath.utils.units import parse_bytes

MIB = 2**20


def place(model: str, on: str = "rtx-3060-12gb", ram: str = "64GiB", **settings: Any) -> Placement:
    return llamath.place(model, on=on, ram=ram, context=settings.pop("context", 8192), **settings)


def test_everything_is_placed_exactly_once() -> None:
    for model, on, dtype in (
        ("gpt-oss-120b", "rtx-3060-12gb", "mxfp4_moe"),
        ("llama-3.1-70b", "3060-12gb+4090", "q4_k_m"),
        ("qwen3-30b-a3b", "rtx-3060-12gb", "q8_0"),
    ):
        report = place(model, on, dtype=dtype)
        placed = sum(x.dense + x.experts for x in report.devices)
        copied = report.sizes.embedding if report.sizes.tied and report.head_on_gpu else 0
        assert placed - copied == report.sizes.weights
        assert sum(x.cache for x in report.devices) == sum(x.cache for x in report.sizes.layers)
        assert all(x.used <= x.memory for x in report.devices if x.kind == "gpu")


def test_attention_comes_first_and_experts_last() -> None:
    report = place("gpt-oss-120b", dtype="mxfp4_moe")
    assert report.layers_on_gpu == 36 and report.head_on_gpu
    assert 0 < report.layers_with_experts_in_ram < 36
    assert f"--n-cpu-moe {report.cpu_experts}" in report.llama_cpp and "-ngl 37" in report.llama_cpp


def test_one_layer_of_experts_more_would_not_fit() -> None:
    report = place("gpt-oss-120b", dtype="mxfp4_moe")
    gpu = report.devices[0]
    spare = gpu.memory - gpu.used
    assert report.sizes.layers[report.cpu_experts - 1].experts > spare - 2**30


def test_the_regular_expression_names_exactly_the_experts_in_ram() -> None:
    report = place("qwen3-30b-a3b", dtype="q4_k_m")
    match = re.fullmatch(r'-ot "(.*)=CPU"', report.override_tensor)
    assert match
    pattern = re.compile(match[1])
    for layer in range(48):
        for part in ("gate", "up", "down"):
            assert bool(pattern.search(f"blk.{layer}.ffn_{part}_exps.weight")) == (
                layer < report.cpu_experts
            )
        assert not pattern.search(f"blk.{layer}.attn_q.weight") and not pattern.search(
            f"blk.{layer}.ffn_gate_inp.weight"
        )


def test_a_dense_model_keeps_its_first_layers_in_ram() -> None:
    report = place("llama-3.1-70b", "rtx-4090", dtype="q4_k_m")
    assert not report.override_tensor and report.first_gpu_layer > 0
    assert f"-ngl {report.layers_on_gpu + 1}" in report.llama_cpp
    assert report.owners[: report.first_gpu_layer] == (-1,) * report.first_gpu_layer


def test_several_cards_are_filled_in_their_order() -> None:
    report = place("llama-3.1-70b", "3060-12gb+4090", dtype="q4_k_m")
    counts = [int(x) for x in re.search(r"--tensor-split ([\d,]+)", report.llama_cpp)[1].split(",")]  # type: ignore[index]
    assert sum(counts) == report.layers_on_gpu + 1 and counts[0] < counts[1]


def test_what_exceeds_the_ram_needs_a_disk() -> None:
    report = place("deepseek-v3", "2xrtx-4090", "128GiB", dtype="q4_k_m")
    assert not report.fits and report.shortfall > 200 * 2**30
    with_disk = place("deepseek-v3", "2xrtx-4090", "128GiB disk=7GB/s", dtype="q4_k_m")
    assert (
        with_disk.fits
        and with_disk.devices[-1].kind == "disk"
        and with_disk.devices[-1].dense + with_disk.devices[-1].experts == report.shortfall
    )
    assert with_disk.devices[-2].used == 128 * 2**30 - RAM_RESERVE
    full = place("deepseek-v3", "2xrtx-4090", "1TiB", dtype="q4_k_m")
    assert full.decode_ceiling > 2 * with_disk.decode_ceiling
    reads = [sum(x.read for x in y.devices) for y in (with_disk, full)]
    assert abs(reads[0] - reads[1]) < 1


@pytest.mark.parametrize(
    "model, on, ram, dtype",
    [
        ("deepseek-v3", "2xrtx-4090", "128GiB", "q4_k_m"),
        ("llama-3.1-70b", "rtx-3060-12gb", "16GiB", "bf16"),
        ("qwen3-30b-a3b", "rtx-3060-12gb", "16GiB", "bf16"),
    ],
)
@pytest.mark.slow
def test_the_device_map_has_on_disk_what_exceeds_the_ram(
    model: str, on: str, ram: str, dtype: str
) -> None:
    with_disk = place(model, on, f"{ram} disk=7GB/s", dtype=dtype)
    full = place(model, on, "2TiB", dtype=dtype)
    assert with_disk.device_map.keys() == full.device_map.keys()
    moved = [name for name, where in with_disk.device_map.items() if where == "disk"]
    assert moved and all(full.device_map[x] == "cpu" for x in moved)
    assert all(
        where == with_disk.device_map[x] or x in moved for x, where in full.device_map.items()
    )
    sizes = with_disk.sizes
    bytes_of = _module_bytes(full.device_map, sizes)
    kept = sum(n for x, n in bytes_of.items() if with_disk.device_map[x] == "cpu")
    room = parse_bytes(ram) - RAM_RESERVE
    assert kept <= room < kept + max(bytes_of[x] for x in moved)  # not a module more than needed
    assert any("offload_folder" in x for x in with_disk.notes)


def test_the_bound_is_the_sum_of_reading_times() -> None:
    report = place("gpt-oss-120b", dtype="mxfp4_moe", ram="64GiB bw=50GB/s")
    gpu, ram = report.devices
    expected = 1 / (gpu.read / gpu.bandwidth + ram.read / 50e9)
    assert abs(report.decode_ceiling - expected) < 1e-9
    assert report.distinct_experts == pytest.approx(4) and ram.read == pytest.approx(
        ram.experts * 4 / 128
    )


@pytest.mark.parametrize(
    "ram",
    [
        "64GiB bw=50",
        "64GiB bw=1GB/s bw=2GB/s",
        "bw=50GB/s",
        "64GiBbw=50GB/s",
        "64GiB x=1",
        "64GiB disk",
    ],
)
def test_ram_with_another_bandwidth_is_refused(ram: str) -> None:
    with pytest.raises(LlamathError, match="ram"):
        place("gpt2", ram=ram)


def test_more_sequences_use_more_distinct_experts() -> None:
    one, eight = (place("gpt-oss-120b", dtype="mxfp4_moe", batch=n) for n in (1, 8))
    assert eight.distinct_experts == pytest.approx(128 * (1 - (1 - 4 / 128) ** 8))
    assert one.decode_ceiling < eight.decode_ceiling < 8 * one.decode_ceiling


def test_the_device_map_covers_every_module_of_the_files() -> None:
    for model in ("gpt-oss-120b", "qwen3-30b-a3b", "llama-3.1-8b", "deepseek-v3"):
        report = place(
            model, "rtx-4090", "2TiB", dtype="q4_k_m" if model != "gpt-oss-120b" else "mxfp4_moe"
        )
        keys = tuple(report.device_map)
        for name in _hf_names(model):
            assert any(name == key or name.startswith(f"{key}.") for key in keys), name


def _hf_names(model: str) -> list[str]:
    loaded = llamath.load(model)
    return [
        x.name.replace("{l}", "3")
        for x in loaded.scheme("hf").tensors_of_block("layers", loaded.tree.layers[3])
    ]


def test_kt_and_llama_cpp_keep_as_many_experts() -> None:
    report = place("gpt-oss-120b", dtype="mxfp4_moe")
    kept = int(re.search(r"--kt-num-gpu-experts (\d+)", report.ktransformers)[1])  # type: ignore[index]
    assert kept == 128 * (36 - report.cpu_experts) // 36


def test_a_checkpoint_is_placed_by_the_tensors_of_its_header() -> None:
    folder = Path(__file__).parents[2] / "examples" / "tiny-llama"
    model = llamath.load(str(folder))
    stored = read_stored_weights(model)
    sizes = layer_sizes(
        MemoryCalculator(model, MemoryRequest(context=64), stored), find_engine("llama.cpp")
    )
    data = (folder / "model.safetensors").read_bytes()
    assert sizes.weights == len(data) - 8 - int.from_bytes(data[:8], "little")
    assert len(sizes.layers) == int(model.tree.layers.n) and all(x.dense for x in sizes.layers)


def test_the_picture_has_a_bar_for_each_device(tmp_path: Path) -> None:
    target = tmp_path / "place.svg"
    ran = CliRunner().invoke(
        cli,
        [
            "fit",
            "gpt-oss-20b",
            "--on",
            "rtx-3060-12gb",
            "--ram",
            "64GiB",
            "--dtype",
            "mxfp4_moe",
            "-o",
            str(target),
        ],
    )
    assert ran.exit_code == 0, ran.output
    root = ElementTree.parse(target).getroot()
    texts = [x.text or "" for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(x.startswith("GeForce RTX 3060 12GB") for x in texts) and any(
        x.startswith("RAM") for x in texts
    )


def test_forms_agree_and_exit_codes_say_whether_it_fits() -> None:
    arguments = [
        "fit",
        "llama-3.1-8b",
        "--on",
        "rtx-3060-12gb",
        "--ram",
        "16GiB",
        "--dtype",
        "q4_k_m",
        "--context",
        "8k",
    ]
    ran = CliRunner().invoke(cli, [*arguments, "--json"])
    report = place("llama-3.1-8b", ram="16GiB", dtype="q4_k_m")
    assert ran.exit_code == 0 and json.loads(ran.stdout) == json.loads(json.dumps(report.to_json()))
    assert (
        CliRunner()
        .invoke(cli, ["fit", "llama-3.1-405b", "--on", "rtx-3060-12gb", "--ram", "16GiB"])
        .exit_code
        == 1
    )


REACHED = list(published_engines.reached())


@pytest.mark.parametrize("name,rate,ceiling", [x[:3] for x in REACHED], ids=[x[0] for x in REACHED])
def test_no_published_rate_passes_its_ceiling(name: str, rate: float, ceiling: float) -> None:
    assert 0.4 < rate / ceiling < 1, name


def test_text_of_a_multimodal_model_is_placed_alone() -> None:
    asked = {"on": "rtx-4090", "ram": "64GiB", "dtype": "bf16"}
    whole, text = (llamath.place("gemma-3-27b", part=x, **asked) for x in (None, "text"))
    model = llamath.load("gemma-3-27b")
    towers = 2 * (model.parameters.total - model.text.parameters.total)
    assert towers and whole.sizes.weights - text.sizes.weights == towers
    assert whole.device_map and not text.device_map
    assert any("transformers loads the towers" in x for x in text.notes)
    with_experts = llamath.place("kimi-k2.5", on="8xh100", ram="1TB", part="text")
    assert "--language-model-only" in with_experts.ktransformers
