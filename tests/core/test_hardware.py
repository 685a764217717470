"""The hardware catalog: figures checked against clocks and buses, names found, specifications parsed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from llamath import hardware
from llamath.cli import cli
from llamath.hardware import Device
from llamath.utils.errors import LlamathError
from support.csv_tables import csv_rows

DEVICES = {x.name: x for x in hardware.devices()}

CLOCKED = [
    # device, units, FLOP of each unit in a clock with 16-bit operands, boost clock in MHz: architecture white papers, not the data sheets
    ("h100-sxm", 132, 4096, 1830), ("h100-pcie", 114, 4096, 1620), ("h100-nvl", 132, 4096, 1545), ("h200", 132, 4096, 1830),
    ("a100-80gb", 108, 2048, 1410), ("a100-40gb", 108, 2048, 1410), ("a30", 56, 2048, 1440), ("v100-32gb", 80, 1024, 1530),
    ("v100-pcie", 80, 1024, 1370), ("t4", 40, 1024, 1590), ("l4", 58, 1024, 2040), ("l40s", 142, 1024, 2520), ("a40", 84, 1024, 1740),
    ("a10", 72, 1024, 1695), ("rtx-6000-ada", 142, 1024, 2505), ("rtx-a6000", 84, 1024, 1800), ("rtx-a5000", 64, 1024, 1695),
    ("rtx-pro-6000", 188, 1024, 2617),
    ("rtx-5090", 170, 512, 2407), ("rtx-5080", 84, 512, 2617), ("rtx-5070-ti", 70, 512, 2452), ("rtx-5070", 48, 512, 2512),
    ("rtx-4090", 128, 512, 2520), ("rtx-4080", 76, 512, 2505), ("rtx-4070-ti", 60, 512, 2610), ("rtx-4060-ti-16gb", 34, 512, 2535),
    ("rtx-3090-ti", 84, 512, 1860), ("rtx-3090", 82, 512, 1695), ("rtx-3080", 68, 512, 1710), ("rtx-3070", 46, 512, 1725),
    ("rtx-3060", 28, 512, 1777),
    ("mi355x", 256, 4096, 2400), ("mi350x", 256, 4096, 2200), ("mi325x", 304, 2048, 2100), ("mi300x", 304, 2048, 2100),
    ("mi300a", 228, 2048, 2100), ("mi250x", 220, 1024, 1700), ("mi250", 208, 1024, 1700), ("mi210", 104, 1024, 1700),
    ("rx-7900-xtx", 96, 512, 2500), ("w7900", 96, 512, 2495), ("b200", 148, 8192, 1850), ("gh200", 132, 4096, 1830), ("l40", 142, 512, 2490),
    ("h200-nvl", 132, 4096, 1545), ("a2", 10, 1024, 1770), ("a10g", 80, 512, 1710), ("max-1550", 128, 4096, 1600),
    ("tpu-v4", 8, 2 * 128 * 128, 1050), ("tpu-v5e", 4, 2 * 128 * 128, 1500), ("tpu-v5p", 8, 2 * 128 * 128, 1750),
]  # fmt: skip

WIRED = [
    # device, bits of the memory bus, Gbit/s of a pin
    ("h100-sxm", 5120, 5.23), ("h200", 6144, 6.25), ("b200", 7680, 8.0), ("a100-80gb", 5120, 3.186), ("a100-40gb", 5120, 2.43),
    ("v100-32gb", 4096, 1.75), ("t4", 256, 10), ("l4", 192, 12.5), ("l40s", 384, 18), ("a40", 384, 14.5), ("a10", 384, 12.5),
    ("a30", 3072, 2.43), ("rtx-5090", 512, 28), ("rtx-5080", 256, 30), ("rtx-5070-ti", 256, 28), ("rtx-5070", 192, 28),
    ("rtx-4090", 384, 21), ("rtx-4080", 256, 22.4), ("rtx-4070-ti", 192, 21), ("rtx-4060-ti-16gb", 128, 18), ("rtx-3090-ti", 384, 21),
    ("rtx-3090", 384, 19.5), ("rtx-3080", 320, 19), ("rtx-3070", 256, 14), ("rtx-3060", 192, 15), ("rtx-6000-ada", 384, 20),
    ("rtx-a6000", 384, 16), ("rtx-pro-6000", 512, 28), ("mi355x", 8192, 8), ("mi325x", 8192, 6), ("mi300x", 8192, 5.2), ("mi250x", 8192, 3.2),
    ("mi210", 4096, 3.2), ("rx-7900-xtx", 384, 20), ("gaudi-2", 6144, 3.2), ("gaudi-3", 8192, 3.6), ("m4-max-128gb", 512, 8.533),
    ("gh200", 6144, 5.21), ("h20", 6144, 5.21), ("h100-pcie", 5120, 3.19), ("h100-nvl", 6144, 5.1), ("h200-nvl", 6144, 6.25), ("a2", 128, 12.5),
    ("p40", 384, 7.2), ("l40", 384, 18), ("a10g", 384, 12.5), ("max-1550", 8192, 3.2), ("w7900", 384, 18), ("mi300a", 8192, 5.2),
    ("mi350x", 8192, 8), ("mi250", 8192, 3.2), ("rtx-a5000", 384, 16), ("m2-max-96gb", 512, 6.4), ("tpu-v4", 4096, 2.4), ("tpu-v5e", 2048, 3.2),
    ("tpu-v5p", 6144, 3.6), ("tpu-v6e", 2048, 6.4), ("tpu-v7x", 8192, 7.2), ("inferentia2", 2048, 3.2), ("trainium2", 4096, 5.6),
    ("m4-pro-64gb", 256, 8.533), ("m3-ultra-512gb", 1024, 6.4), ("m3-max-128gb", 512, 6.4), ("m2-ultra-192gb", 1024, 6.4), ("m1-max-64gb", 512, 6.4),
]  # fmt: skip

DRIVERS = {
    # as nvidia-smi prints the name, and its MiB
    "NVIDIA H100 80GB HBM3": ("h100-sxm", 81559),
    "NVIDIA H100 PCIe": ("h100-pcie", 81559),
    "NVIDIA H100 NVL": ("h100-nvl", 95830),
    "NVIDIA H200": ("h200", 143771),
    "NVIDIA B200": ("b200", 183359),
    "NVIDIA GB200": ("gb200", 189471),
    "NVIDIA B300 SXM6 AC": ("b300", 275040),
    "NVIDIA GB300": ("gb300", 284208),
    "NVIDIA A30": ("a30", 24576),
    "NVIDIA H20": ("h20", 97871),
    "NVIDIA RTX 6000 Ada Generation": ("rtx-6000-ada", 49140),
    "NVIDIA GeForce RTX 5080": ("rtx-5080", 16303),
    "NVIDIA GeForce RTX 5070": ("rtx-5070", 12227),
    "NVIDIA A100-SXM4-80GB": ("a100-80gb", 81920),
    "NVIDIA A100-SXM4-40GB": ("a100-40gb", 40960),
    "NVIDIA L40S": ("l40s", 46068),
    "NVIDIA L4": ("l4", 23034),
    "NVIDIA A10G": ("a10g", 23028),
    "Tesla T4": ("t4", 15360),
    "NVIDIA GeForce RTX 4090": ("rtx-4090", 24564),
    "NVIDIA GeForce RTX 5090": ("rtx-5090", 32607),
    "AMD Instinct MI300X": ("mi300x", 196592),
}

ISSUE = """h100 h200 b200 gb200 a100 l4 l40s a10 v100 t4 rtx-3090 rtx3060 4090 rtx4080 rtx-5090 mi210 mi250 mi300x mi325x mi355x gaudi-2
    gaudi3 m1-max-64gb m2-ultra-192gb m3-max-128gb m4-max-128gb tpu-v4 tpu-v5e tpu-v5p tpu-v6e h100-sxm""".split()


def run(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, ["gpus", *args], catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def test_catalog_has_at_least_forty_devices() -> None:
    assert len(DEVICES) >= 40 and len(DEVICES) == len(hardware.devices())


@pytest.mark.parametrize("name", ISSUE)
def test_required_device_is_found(name: str) -> None:
    assert hardware.find_device(name).source


@pytest.mark.parametrize(("name", "units", "each", "clock"), CLOCKED)
def test_peak_flops_are_units_times_clock(name: str, units: int, each: int, clock: int) -> None:
    flops = DEVICES[name].flops
    assert (flops.get("bf16") or flops["fp16"]) == pytest.approx(
        units * each * clock * 1e6, rel=0.015
    )


@pytest.mark.parametrize(("name", "bits", "rate"), WIRED)
def test_bandwidth_is_bus_width_times_rate(name: str, bits: int, rate: float) -> None:
    assert DEVICES[name].bandwidth == pytest.approx(bits / 8 * rate * 1e9, rel=0.025)


@pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))
def test_device_figures_are_consistent(device: Device) -> None:
    flops = device.flops
    assert 0.9 * device.nominal < device.memory <= device.nominal or device.vendor == "Apple"
    assert 8 * 2**30 <= device.nominal <= 512 * 2**30 and 10**11 < device.bandwidth < 10**13
    assert (
        device.node >= 1
        and device.network > 0
        and len(device.source) > 10
        and bool(device.link) == bool(device.kind)
    )
    assert "bf16" not in flops or "fp16" not in flops or flops["bf16"] == flops["fp16"]
    for less, more, most in (
        ("fp32", "fp16", 34),
        ("bf16", "fp8", 2.03),
        ("fp8", "fp4", 4.01),
    ):  # 2:4 sparsity would double each
        assert (
            less not in flops
            or more not in flops
            or flops[less] <= flops[more] <= most * flops[less]
        )


@pytest.mark.parametrize(
    ("driver_name", "name", "mebibytes"), [(x, *y) for x, y in DRIVERS.items()]
)
def test_driver_names_and_memory_are_recognized(
    driver_name: str, name: str, mebibytes: int
) -> None:
    result = hardware.find_device(driver_name)
    assert (result.name, result.memory) == (name, mebibytes * 2**20)


def test_variants_have_distinct_devices() -> None:
    assert (
        hardware.find_device("h100").name == "h100-sxm"
        and hardware.find_device("a100").nominal == 80 * 2**30
    )
    assert (
        DEVICES["a100-40gb"].bandwidth
        < DEVICES["a100-pcie-80gb"].bandwidth
        < DEVICES["a100-80gb"].bandwidth
    )
    assert (
        DEVICES["h100-pcie"].flops["bf16"]
        < DEVICES["h100-nvl"].flops["bf16"]
        < DEVICES["h100-sxm"].flops["bf16"]
    )


def test_device_names_are_unique() -> None:
    owner: dict[str, str] = {}
    entries = [
        x
        for path in Path(hardware.__file__).parent.glob("*.json")
        for x in json.loads(path.read_text()).get("devices", ())
    ]
    assert len(entries) == len(DEVICES)
    for entry in entries:
        if "sizes" in entry:
            assert all(
                hardware.find_device(f"{entry['name']} {x}GB").nominal == x * 2**30
                for x in entry["sizes"]
            )
            continue
        for name in (entry["name"], *entry["aliases"]):
            assert (
                owner.setdefault(hardware.normalize_name(name), entry["name"]) == entry["name"]
            ), name
            assert hardware.find_device(name.upper().replace("-", " ")).name == entry["name"]


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("h1000", "h100-sxm"), ("mi30x", "mi300x"), ("rtx-4091", "rtx-4090"), ("tpu-v5", "tpu-v5")],
)
def test_unknown_device_lists_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(LlamathError) as refused:
        hardware.find_device(wrong)
    assert near in refused.value.hint


def test_number_of_devices_is_parsed() -> None:
    assert hardware.parse_devices("h100") == (1, DEVICES["h100-sxm"])
    assert hardware.parse_devices("2xh100") == (2, DEVICES["h100-sxm"])
    assert hardware.parse_devices("16384 × H100") == (16_384, DEVICES["h100-sxm"])
    assert hardware.parse_devices("7900-xtx") == (1, DEVICES["rx-7900-xtx"])
    assert hardware.parse_devices("2x4090")[1].name == "rtx-4090"


def test_device_specification_is_parsed() -> None:
    n, device = hardware.parse_devices(
        "8x mem=80GiB bw=3.35TB/s bf16=989TF fp8=1.979PF link=450GB/s net=400Gbit/s node=16"
    )
    assert n == 8 and (device.memory, device.nominal, device.bandwidth) == (
        80 * 2**30,
        80 * 2**30,
        3_350_000_000_000,
    )
    assert device.flops == {"bf16": 989 * 10**12, "fp8": 1979 * 10**12}
    assert (device.link, device.network, device.node) == (450 * 10**9, 50 * 10**9, 16)
    smaller = hardware.parse_device("m3-max mem=64GiB")
    assert hardware.parse_device("mem=80GiB").bandwidth == 0
    assert (
        smaller.memory == 64 * 2**30
        and smaller.bandwidth == DEVICES["m3-max-128gb"].bandwidth
        and "mem=64GiB" in smaller.source
    )


@pytest.mark.parametrize(
    "text",
    ["mem=80G bw=3.35TB/s", "bw=3TB/s", "mem=80GiB bw=3TB/s bf16=989", "mem=80GiB mem=8GiB bw=3TB/s", "ram=80GiB bw=3TB/s",
     "mem=80GiB bw=3TB/s node=0", "mem=-80GiB bw=3TB/s", "0xh100", "99999999xh100", "", "2x", "h100 mem=0GiB", "mem= bw="],
)  # fmt: skip
def test_invalid_device_is_an_error_with_a_hint(text: str) -> None:
    with pytest.raises(LlamathError) as refused:
        hardware.parse_devices(text)
    assert refused.value.hint


@given(st.text(max_size=30))
@pytest.mark.slow
def test_any_text_is_a_device_or_an_error(text: str) -> None:
    try:
        n, device = hardware.parse_devices(text)
    except LlamathError:
        return
    assert n >= 1 and device.memory > 0


def test_gpu_table_fits_80_columns_with_all_devices() -> None:
    lines = run().splitlines()
    assert max(map(len, lines)) <= 80
    assert [x.split()[0] for x in lines[1 : len(DEVICES) + 1]] == list(DEVICES)


def test_gpus_command_filters() -> None:
    assert {x["vendor"] for x in json.loads(run("amd", "--json"))["gpus"]} == {"AMD"}
    assert {x["name"] for x in json.loads(run("h100", "--json"))["gpus"]} == {
        "h100-sxm",
        "h100-nvl",
        "h100-pcie",
    }
    assert [x["name"] for x in json.loads(run("a10", "--json"))["gpus"]] == ["a10"]
    assert "989.4 TFLOP/s dense" in run("h100-sxm") and "81559" not in run("h100-sxm")
    with pytest.raises(LlamathError):
        run("h1000")


def test_gpus_json_and_csv_agree() -> None:
    rows = csv_rows(run("--format", "csv"))
    for row, x in zip(rows, json.loads(run("--json"))["gpus"], strict=True):
        assert (
            row["name"] == x["name"]
            and int(row["memory"]) == x["memory"]
            and int(row["bandwidth"]) == x["bandwidth"]
        )
        assert {y: int(row[y]) for y in hardware.DTYPES if row[y]} == x["flops"]


def test_data_files_are_formatted() -> None:
    for name in ("nvidia", "amd", "others"):
        with open(f"{hardware.FOLDER}/{name}.json", encoding="utf-8") as file:
            text = file.read()
        assert max(map(len, text.splitlines())) <= 200 and text.endswith("}\n")
        assert all(
            re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", y)
            for x in json.loads(text)["devices"]
            for y in (x["name"], *x["aliases"])
        )


def test_a_device_is_not_its_sibling() -> None:
    with pytest.raises(LlamathError, match="unknown GPU 'rtx 4070'") as error:
        hardware.find_devices(("rtx", "4070"))
    assert "rtx-4070-ti" in error.value.hint
    assert {x.name for x in hardware.find_devices(("rtx", "40"))} > {"rtx-4070-ti", "rtx-4090"}
    for chip in (
        "m1-max",
        "m2-max",
        "m2-ultra",
        "m3-max",
        "M3 Max",
        "m3-ultra",
        "m4-max",
        "m4-pro",
    ):
        with pytest.raises(LlamathError, match="several sizes of memory") as error:
            hardware.parse_devices(chip)
        name = chip.lower().replace(" ", "-")
        sizes = [x for x in error.value.hint.replace(",", "").split() if x.startswith(f"{name}-")]
        found = [hardware.find_device(x) for x in sizes]
        assert len(found) > 1 and [x.memory for x in found] == sorted({x.memory for x in found})
        assert all(x.memory < x.nominal and x.bandwidth == found[0].bandwidth for x in found)
        assert hardware.parse_device(f"{name} mem=27GiB").memory == 27 * 2**30
