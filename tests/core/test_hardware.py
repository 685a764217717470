"""The hardware catalog: figures checked against clocks and buses, names found, specifications parsed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from llamath import hardware
from llamath.cli import cli
from llamath.hardware import Device
from llamath.utils.errors import LlamathError
from support.csv_tables import csv_rows
from support.each_case import each

DEVICES = {x.name: x for x in hardware.devices()}
KNOWN = {x.name: x for x in hardware.find_devices().gpus}

CLOCKED = [
    # device, units, FLOP of each unit in a clock with 16-bit operands, boost clock in MHz: architecture white papers, not the data sheets
    ("h100-sxm", 132, 4096, 1830), ("h100-pcie", 114, 4096, 1620), ("h100-nvl", 132, 4096, 1545), ("h200", 132, 4096, 1830),
    ("a100-80gb", 108, 2048, 1410), ("a100-40gb", 108, 2048, 1410), ("a30", 56, 2048, 1440), ("v100-32gb", 80, 1024, 1530),
    ("v100-pcie", 80, 1024, 1370), ("t4", 40, 1024, 1590), ("l4", 58, 1024, 2040), ("l40s", 142, 1024, 2520), ("a40", 84, 1024, 1740),
    ("a10", 72, 1024, 1695), ("rtx-6000-ada", 142, 1024, 2505), ("rtx-a6000", 84, 1024, 1800), ("rtx-a5000", 64, 1024, 1695),
    ("rtx-pro-6000", 188, 1024, 2617),
    ("rtx-5090", 170, 512, 2407), ("rtx-5080", 84, 512, 2617), ("rtx-5070-ti", 70, 512, 2452), ("rtx-5070", 48, 512, 2512),
    ("rtx-4090", 128, 512, 2520), ("rtx-4080", 76, 512, 2505), ("rtx-4070-ti", 60, 512, 2610), ("rtx-4060-ti-16gb", 34, 512, 2535),
    ("rtx-3090-ti", 84, 512, 1860), ("rtx-3090", 82, 512, 1695), ("rtx-3080-10gb", 68, 512, 1710), ("rtx-3070", 46, 512, 1725),
    ("rtx-3060-12gb", 28, 512, 1777),
    ("mi355x", 256, 4096, 2400), ("mi350x", 256, 4096, 2200), ("mi325x", 304, 2048, 2100), ("mi300x", 304, 2048, 2100),
    ("mi300a", 228, 2048, 2100), ("mi250x", 220, 1024, 1700), ("mi250", 208, 1024, 1700), ("mi210", 104, 1024, 1700),
    ("rx-7900-xtx", 96, 512, 2500), ("w7900", 96, 512, 2495), ("b200", 148, 8192, 1850), ("gh200", 132, 4096, 1830), ("l40", 142, 512, 2490),
    ("h200-nvl", 132, 4096, 1545), ("a2", 10, 1024, 1770), ("a10g", 80, 512, 1710), ("max-1550", 128, 4096, 1600),
    ("rtx-5060-ti-16gb", 36, 512, 2572), ("rtx-5060", 30, 512, 2497), ("rtx-5050", 20, 512, 2572), ("rtx-4090-d-48gb", 114, 512, 2520),
    ("rtx-4080-super", 80, 512, 2550), ("rtx-4070-ti-super", 66, 512, 2610), ("rtx-4070-super", 56, 512, 2475), ("rtx-4070", 46, 512, 2475),
    ("rtx-4060-ti-8gb", 34, 512, 2535), ("rtx-4060", 24, 512, 2460), ("rtx-3080-12gb", 70, 512, 1710), ("rtx-3080-ti", 80, 512, 1665),
    ("rtx-3070-ti", 48, 512, 1770), ("rtx-3060-ti", 38, 512, 1665), ("rtx-3060-8gb", 28, 512, 1777), ("rtx-3050", 20, 512, 1777),
    ("tpu-v4", 8, 2 * 128 * 128, 1050), ("tpu-v5e", 4, 2 * 128 * 128, 1500), ("tpu-v5p", 8, 2 * 128 * 128, 1750),
]  # fmt: skip

WIRED = [
    # device, bits of the memory bus, Gbit/s of a pin
    ("h100-sxm", 5120, 5.23), ("h200", 6144, 6.25), ("b200", 7680, 8.0), ("a100-80gb", 5120, 3.186), ("a100-40gb", 5120, 2.43),
    ("v100-32gb", 4096, 1.75), ("t4", 256, 10), ("l4", 192, 12.5), ("l40s", 384, 18), ("a40", 384, 14.5), ("a10", 384, 12.5),
    ("a30", 3072, 2.43), ("rtx-5090", 512, 28), ("rtx-5080", 256, 30), ("rtx-5070-ti", 256, 28), ("rtx-5070", 192, 28),
    ("rtx-4090", 384, 21), ("rtx-4080", 256, 22.4), ("rtx-4070-ti", 192, 21), ("rtx-4060-ti-16gb", 128, 18), ("rtx-3090-ti", 384, 21),
    ("rtx-3090", 384, 19.5), ("rtx-3080-10gb", 320, 19), ("rtx-3070", 256, 14), ("rtx-3060-12gb", 192, 15), ("rtx-6000-ada", 384, 20),
    ("rtx-a6000", 384, 16), ("rtx-pro-6000", 512, 28), ("mi355x", 8192, 8), ("mi325x", 8192, 6), ("mi300x", 8192, 5.2), ("mi250x", 8192, 3.2),
    ("mi210", 4096, 3.2), ("rx-7900-xtx", 384, 20), ("gaudi-2", 6144, 3.2), ("gaudi-3", 8192, 3.6), ("m4-max-128gb", 512, 8.533),
    ("gh200", 6144, 5.21), ("h20", 6144, 5.21), ("h100-pcie", 5120, 3.19), ("h100-nvl", 6144, 5.1), ("h200-nvl", 6144, 6.25), ("a2", 128, 12.5),
    ("p40", 384, 7.2), ("l40", 384, 18), ("a10g", 384, 12.5), ("max-1550", 8192, 3.2), ("w7900", 384, 18), ("mi300a", 8192, 5.2),
    ("mi350x", 8192, 8), ("mi250", 8192, 3.2), ("rtx-a5000", 384, 16), ("m2-max-96gb", 512, 6.4), ("tpu-v4", 4096, 2.4), ("tpu-v5e", 2048, 3.2),
    ("tpu-v5p", 6144, 3.6), ("tpu-v6e", 2048, 6.4), ("tpu-v7x", 8192, 7.2), ("inferentia2", 2048, 3.2), ("trainium2", 4096, 5.6),
    ("rtx-5090-d", 512, 28), ("rtx-5060-ti-8gb", 128, 28), ("rtx-5060", 128, 28), ("rtx-5050", 128, 20), ("rtx-4090-d-24gb", 384, 21),
    ("rtx-4080-super", 256, 23), ("rtx-4070-ti-super", 256, 21), ("rtx-4070-super", 192, 21), ("rtx-4070", 192, 21), ("rtx-4060-ti-8gb", 128, 18),
    ("rtx-4060", 128, 17), ("rtx-3080-12gb", 384, 19), ("rtx-3080-ti", 384, 19), ("rtx-3070-ti", 256, 19), ("rtx-3060-ti", 256, 14),
    ("rtx-3060-8gb", 128, 15), ("rtx-3050", 128, 14), ("rtx-2080-ti-11gb", 352, 14), ("rtx-2080", 256, 14), ("rtx-2070-super", 256, 14),
    ("rtx-2070", 256, 14), ("rtx-2060-6gb", 192, 14), ("titan-rtx", 384, 14), ("gtx-1660", 192, 8), ("gtx-1080-ti", 352, 11), ("gtx-1080", 256, 10),
    ("gtx-1070-ti", 256, 8), ("gtx-1070", 256, 8), ("gtx-1060-6gb", 192, 8), ("gtx-1060-3gb", 192, 8), ("gtx-1050-ti", 128, 7),
    ("rtx-pro-6000-max-q", 512, 28), ("rtx-pro-5000-48gb", 384, 28), ("rtx-pro-4500", 256, 28), ("rtx-pro-4000", 192, 28),
    ("rtx-pro-4000-sff", 192, 18), ("rtx-pro-2000", 128, 18), ("rtx-5880-ada", 384, 20), ("rtx-5000-ada", 256, 18), ("rtx-4500-ada", 192, 18),
    ("rtx-4000-ada", 160, 18), ("rtx-4000-sff-ada", 160, 14), ("rtx-3500-ada-laptop", 192, 18), ("rtx-2000-ada", 128, 14), ("rtx-a4000", 256, 14),
    ("rtx-a2000-12gb", 192, 12), ("quadro-p6000", 384, 9), ("l20", 384, 18), ("a800-40gb", 5120, 2.43), ("p100", 4096, 1.43), ("gb10", 256, 8.533),
    ("jetson-agx-orin-64gb", 256, 6.4), ("jetson-orin-nx-16gb", 128, 6.4), ("jetson-agx-xavier-32gb", 256, 4.266), ("jetson-nano", 64, 3.2),
    ("jetson-xavier-nx-8gb", 128, 3.733), ("mi100", 4096, 2.4), ("mi60", 4096, 2), ("mi50-32gb", 4096, 2), ("r9700", 256, 20), ("rx-9070-xt", 256, 20),
    ("rx-9070", 256, 20), ("rx-9060-xt-16gb", 128, 20), ("rx-7900-xt", 320, 20), ("rx-7900-gre", 256, 18), ("rx-7800-xt", 256, 19.5),
    ("rx-7700-xt", 192, 18), ("rx-7600-xt", 128, 18), ("rx-7600", 128, 18), ("rx-6950-xt", 256, 18), ("rx-6900-xt", 256, 16), ("rx-6800-xt", 256, 16),
    ("rx-6800", 256, 16), ("rx-6750-xt", 192, 18), ("rx-6700-xt", 192, 16), ("rx-6700", 160, 16), ("rx-6650-xt", 128, 17.5), ("rx-6600-xt", 128, 16),
    ("rx-6600", 128, 14), ("rx-5700-xt", 256, 14), ("rx-5700", 256, 14), ("rx-5500-xt-8gb", 128, 14), ("w7800-32gb", 256, 18), ("w7800-48gb", 384, 18),
    ("w6900x", 256, 16), ("w6800x", 256, 16), ("v620", 256, 16), ("radeon-pro-vii", 4096, 2), ("strix-halo-128gb", 256, 8), ("arc-a380", 96, 15.5),
    ("arc-a750", 256, 16), ("arc-a770-8gb", 256, 16), ("arc-a770-16gb", 256, 17.5), ("arc-b570", 160, 19), ("arc-b580", 192, 19),
    ("arc-pro-b50", 128, 14), ("snapdragon-x-elite-x1e-84-100", 128, 8.448), ("m1-pro-16gb", 256, 6.4), ("m1-ultra-64gb", 1024, 6.4),
    ("m2-24gb", 128, 6.4), ("m2-pro-32gb", 256, 6.4), ("m3-8gb", 128, 6.4), ("m3-pro-18gb", 192, 6.4), ("m3-max-36gb", 384, 6.4),
    ("m3-ultra-256gb", 1024, 6.4), ("m4-16gb", 128, 7.5), ("m4-max-36gb", 384, 8.533), ("m5-16gb", 128, 9.6),
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

ISSUE = """h100 h200 b200 gb200 a100-80gb l4 l40s a10 v100-32gb t4 rtx-3090 rtx3060-12gb 4090 rtx4080 rtx-5090 mi210 mi250 mi300x mi325x mi355x gaudi-2
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


@each(("name", "units", "each", "clock"), CLOCKED)
def test_peak_flops_are_units_times_clock(name: str, units: int, each: int, clock: int) -> None:
    flops = hardware.find_device(name).flops
    assert (flops.get("bf16") or flops["fp16"]) == pytest.approx(
        units * each * clock * 1e6, rel=0.015
    )


@each(("name", "bits", "rate"), WIRED)
def test_bandwidth_is_bus_width_times_rate(name: str, bits: int, rate: float) -> None:
    assert hardware.find_device(name).bandwidth == pytest.approx(bits / 8 * rate * 1e9, rel=0.025)


@each("device", DEVICES.values(), ids=list(DEVICES))
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
        and hardware.find_device("a100-pcie").nominal == 80 * 2**30
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
    assert len(DEVICES) < len(KNOWN) and len(entries) > 250
    for entry in entries:
        for size in entry.get("sizes", ()):
            assert hardware.find_device(f"{entry['name']} {size}GB").nominal == size * 2**30
        several = len(entry.get("sizes", ())) > 1
        for name in (entry["name"], *entry.get("aliases", ())):
            key = entry["name"] + str(entry.get("sizes", ""))
            known = owner.setdefault(hardware.normalize_name(name), key)
            assert known == key or (several and known.startswith(entry["name"])), name
            if not several:
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
    assert [x.split()[0] for x in lines[1 : len(KNOWN) + 1]] == list(KNOWN)


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
            and int(row["memory"] or 0) == (x["memory"] or 0)
            and int(row["bandwidth"] or 0) == (x["bandwidth"] or 0)
        )
        assert {y: int(row[y]) for y in hardware.DTYPES if row[y]} == x["flops"]


def test_data_files_are_formatted() -> None:
    for name in ("nvidia", "amd", "others", "named"):
        with open(f"{hardware.FOLDER}/{name}.json", encoding="utf-8") as file:
            text = file.read()
        assert max(map(len, text.splitlines())) <= 200 and text.endswith("}\n")
        assert all(
            re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", y)
            for x in json.loads(text)["devices"]
            for y in (x["name"], *x.get("aliases", ()))
        )


def test_a_device_is_not_its_sibling() -> None:
    assert [x.name for x in hardware.find_devices(("rtx", "4070")).gpus] == ["rtx-4070"]
    assert next(x.name for x in hardware.find_devices(("M3 Max",)).gpus).startswith("m3-max-")
    with pytest.raises(LlamathError, match="unknown GPU 'rtx 4071'") as error:
        hardware.find_devices(("rtx", "4071"))
    assert "rtx-4070" in error.value.hint
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
        assert all(x.memory < x.nominal and x.bandwidth for x in found)
        assert hardware.parse_device(f"{name} mem=27GiB").memory == 27 * 2**30


LISTED = json.loads((Path(__file__).parents[1] / "truth" / "hardware.json").read_text())
NOT_SOLD = {
    # sizes of the list that the maker's specifications do not have
    "RTX A5000": [8, 12],
    "RX 7600 XT": [8],
    "Radeon Pro VII": [32],
    "Apple M1 Pro": [24],
    "Apple M1 Max": [16, 24],
    "Apple M1 Ultra": [16, 24, 32, 96],
    "Apple M2 Pro": [24],
    "Apple M2 Ultra": [96],
}
OTHERWISE = {"B300": 270, "B200": 180}
"""Sizes as sold, where the list has those of the memory chips."""


@each("entry", LISTED, ids=[x["name"] for x in LISTED])
def test_listed_hardware_is_known_with_its_sizes(entry: dict[str, Any]) -> None:
    name = entry["name"]
    sizes = [x for x in entry["memory_gb"] if x not in NOT_SOLD.get(name, ())]
    if not sizes:
        with pytest.raises(LlamathError, match=r"memory of .* is that of the machine") as error:
            hardware.parse_devices(name)
        assert "mem=32GiB" in error.value.hint
        assert hardware.parse_device(f"{name} mem=32GiB").memory == 2**35
        return
    found = hardware.find_chip(name)
    if not found:
        found = [hardware.find_device(name)]
    assert {x.vendor for x in found} == {entry["vendor"]}
    expected = {OTHERWISE.get(name, x) * 2**30 for x in sizes}
    assert expected <= {x.nominal for x in found}
    if len(sizes) > 1:
        with pytest.raises(LlamathError, match="several") as error:
            hardware.parse_devices(name)
        assert all(x.name in error.value.hint for x in found)
        assert all(hardware.find_device(f"{name} {x}GB").nominal in expected for x in sizes)


@pytest.mark.parametrize("name, sizes", NOT_SOLD.items())
def test_sizes_that_are_not_sold_are_refused(name: str, sizes: list[int]) -> None:
    for size in sizes:
        with pytest.raises(LlamathError):
            hardware.find_device(f"{name} {size}GB")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        *(("rtx 4070 ti super", "rtx-4070-ti-super"), ("4070", "rtx-4070"), ("rtx4070", "rtx-4070")),
        *(("dgx spark", "gb10"), ("DGX-Spark", "gb10"), ("NVIDIA GB10", "gb10")),
        *(("m3-max:64GB", "m3-max-64gb"), ("m3-max-64gb", "m3-max-64gb"), ("M3 Max 64 GB", "m3-max-64gb")),
        *(("Apple M4 16GiB", "m4-16gb"), ("rtx-4060-ti:8GB", "rtx-4060-ti-8gb")),
        *(("rtx-4070-mobile", "rtx-4070-laptop"), ("NVIDIA GeForce RTX 4070 Laptop GPU", "rtx-4070-laptop")),
        *(("6800 xt", "rx-6800-xt"), ("Radeon RX 7900 XT", "rx-7900-xt"), ("a750", "arc-a750")),
        *(("Intel(R) Arc(TM) B580 Graphics", "arc-b580"), ("x1e-84-100", "snapdragon-x-elite-x1e-84-100")),
        *(("AMD Ryzen 9 7950X", "ryzen-9-7000"), ("ryzen 7 5800x3d", "ryzen-7-5000"), ("i7-13700K", "core-i7-13th")),
        *(("Intel Core i5-1135G7", "core-i5-11th"), ("EPYC 9654", "epyc-genoa"), ("xeon platinum 8480+", "xeon-sapphire-rapids")),
        *(("Xeon E5-2680 v4", "xeon-e5-v4"), ("threadripper pro 7995wx", "threadripper-7000")),
        *(("7900xtx", "rx-7900-xtx"), ("RTX Titan", "titan-rtx"), ("m4 max 128", "m4-max-128gb")),
        *(("rtx-4090:24GB", "rtx-4090"), ("MacBook Pro M3 Max 36GB", "m3-max-36gb")),
        *(("AMD Ryzen AI Max+ 395 128GB", "strix-halo-128gb"),),
        *(("strix halo 128gb", "strix-halo-128gb"), ("jetson orin nano 8gb", "jetson-orin-nano-8gb")),
    ],
)  # fmt: skip
def test_names_that_people_type_are_found(typed: str, name: str) -> None:
    assert hardware.find_device(typed).name == name
    if hardware.find_device(typed).memory:
        assert hardware.parse_devices(typed) == (1, hardware.find_device(typed))


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("m3", "m3-8gb m3-16gb m3-24gb m3-pro m3-max m3-ultra"),
        ("m3-max", "m3-max-36gb m3-max-48gb m3-max-64gb m3-max-96gb m3-max-128gb"),
        ("rtx-3060", "rtx-3060-8gb rtx-3060-12gb"),
        ("2x4060-ti", "rtx-4060-ti-8gb rtx-4060-ti-16gb"),
        ("a100", "a100-40gb a100-pcie-40gb a100-80gb a100-pcie-80gb"),
        ("rx-7900", "rx-7900-xtx rx-7900-xt rx-7900-gre"),
        ("ryzen ai max+ 395", "strix-halo-64gb strix-halo-96gb strix-halo-128gb"),
        ("snapdragon x elite", "snapdragon-x-elite-x1e-84-100 snapdragon-x-elite-x1e-00-1de"),
    ],
)
def test_ambiguous_name_is_asked_back_with_candidates(typed: str, names: str) -> None:
    with pytest.raises(LlamathError, match="several") as error:
        hardware.parse_devices(typed)
    assert all(re.search(rf"\b{x}\b", error.value.hint) for x in names.split())


def test_unknown_rates_are_null_and_never_zero() -> None:
    (laptop,) = json.loads(run("rtx-4070-laptop", "--json"))["gpus"]
    assert laptop["bandwidth"] is None and laptop["flops"] == {} and laptop["memory"] == 2**33
    (cpu,) = json.loads(run("core-i7-13th", "--json"))["gpus"]
    assert cpu["memory"] is cpu["nominal"] is cpu["bandwidth"] is None
    assert "unknown" in run("rtx-4070-laptop") and "that of the machine" in run("core-i7-13th")
    for command in (
        "fit llama-3.2-1b --on rtx-4070-laptop",
        "fit llama-3.2-1b --on rtx-4070-laptop+rtx-4060",
        "fit llama-3.2-1b --on 2xrtx-4070-laptop",
    ):
        data = json.loads(invoke(f"{command} --json"))
        assert data["fits"] and data["ceilings"] is data["decode_ceiling"] is None
        assert "speed: unknown" in invoke(command)
    placed = json.loads(invoke("fit llama-3.1-8b --on rtx-4070-laptop --ram 32GiB --json"))
    assert placed["fits"] and placed["decode_ceiling"] is None
    assert "speed unknown" in invoke("fit llama-3.1-8b --on rtx-4070-laptop --ram 32GiB --brief")
    for command in ("plan llama-3.2-1b --on rtx-4070-laptop", "fit gpt2 --on m1-8gb --price 2/h"):
        with pytest.raises(LlamathError, match=r"memory bandwidth of .* is not known"):
            invoke(command)


def test_memory_of_a_chip_chooses_its_size() -> None:
    """The M3 Max with 36 GB has 30 cores and a slower memory than that with 64 GB."""
    small, large = (hardware.parse_device(f"m3-max mem={x}GiB") for x in (27, 64))
    assert small.bandwidth == 300 * 10**9 and large.bandwidth == 400 * 10**9


def test_shared_memory_is_noted_and_takes_no_offload() -> None:
    done = invoke("fit llama-3.2-1b --on strix-halo-64gb --json")
    assert any("shares its memory" in x for x in json.loads(done)["notes"])
    assert not any(
        "shares" in x for x in json.loads(invoke("fit gpt2 --on m3-8gb --json"))["notes"]
    )
    with pytest.raises(LlamathError, match="shares its memory with the host"):
        invoke("fit llama-3.2-1b --on gb10 --offload 1GiB")


def invoke(command: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, command.split(), catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def test_compute_capabilities_are_those_of_the_public_list() -> None:
    """But for B300, which NVIDIA's own table has as 10.3."""
    path = Path(__file__).parents[1] / "truth" / "hardware.json"
    listed = [x for x in json.loads(path.read_text()) if "compute_capability" in x]
    differing = {
        x.name
        for row in listed
        for x in hardware.find_devices([row["name"]]).gpus
        if x.compute_capability != row["compute_capability"]
    }
    assert len(listed) > 90 and differing == {"b300"}
    nvidia = [x for x in KNOWN.values() if x.vendor == "NVIDIA"]
    assert all(x.compute_capability and x.sm >= 53 for x in nvidia)
    assert not any(x.compute_capability for x in KNOWN.values() if x.vendor != "NVIDIA")


def test_table_of_known_hardware_is_that_of_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "gpus.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    shown = {vendor: tuple(map(int, counts)) for vendor, *counts in rows}
    found: dict[str, list[int]] = {}
    for entry in LISTED:
        name = entry["name"]
        device = (hardware.find_chip(name) or [hardware.find_device(name)])[-1]
        unknown = (not device.flops) + (not device.bandwidth or not device.memory)
        counts = found.setdefault(entry["vendor"], [0] * 5)
        counts[0] += 1
        counts[1 + (unknown if device.memory else 3)] += 1
    assert shown == {vendor: tuple(counts) for vendor, counts in found.items()}
    assert f"All {len(LISTED)} entries" in text
