"""`quants`: a model in each dtype, and the GGUF files of a folder or repository."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.fit.format_support import is_supported
from llamath.cli.command_group import cli
from llamath.hardware import find_device
from support.hub_server import Hub
from support.release import usual


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quants")
    for dtype in ("fp16", "q8_0", "q4_0"):
        llamath.convert("examples/tiny-llama", path / f"tiny-{dtype}.gguf", dtype=dtype)
    return path


def run(*args: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["quants", *args, "--json"])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-27b"])
@pytest.mark.slow
def test_rows_are_what_memory_and_fit_say(name: str) -> None:
    report = llamath.quants(name, on="2xrtx-4090", context=4096)
    assert [x.bytes for x in report.quants] == sorted(
        (x.bytes for x in report.quants), reverse=True
    )
    for x in report.quants[::5]:
        memory, fit = (
            llamath.memory(name, dtype=x.name, context=4096),
            llamath.fit(name, on="2xrtx-4090", dtype=x.name, context=4096),
        )
        assert (x.bytes, x.bits) == (memory.weights, memory.storage.bits) and x.fits is fit.fits
        assert x.total in (None, fit.total)
        if x.fits:
            own = llamath.load(name).tree.context
            assert (
                x.max_context == own
                or not llamath.fit(
                    name, on="2xrtx-4090", dtype=x.name, context=x.max_context + 1
                ).fits
            )
            assert llamath.fit(name, on="2xrtx-4090", dtype=x.name, context=x.max_context).fits


@pytest.mark.parametrize(
    "name", usual("deepseek-v4-flash", "gpt-oss-20b", release=["kimi-k2.5", "deepseek-v3"])
)
def test_the_format_of_the_release_is_a_row_and_best(name: str) -> None:
    report = llamath.quants(name, on="8xh200")
    row = next(x for x in report.quants if x.name == report.released)
    assert row == report.best and row.bytes == llamath.memory(name).weights


@pytest.mark.slow
def test_mixtures_of_experts_have_their_own_formats() -> None:
    assert {"mxfp4", "mxfp4_moe"} <= {x.name for x in llamath.quants("gpt-oss-20b").quants}
    assert not {"mxfp4", "mxfp4_moe"} & {x.name for x in llamath.quants("llama-3.1-8b").quants}


def test_unquantized_parts_are_named() -> None:
    rows = {x.name: x for x in llamath.quants("llama-3.1-8b").quants}
    assert rows["awq"].unquantized == ("head", "embedding", "norm") or rows["awq"].unquantized == (
        "embedding",
        "head",
        "norm",
    )
    assert rows["awq"].unquantized_bytes == 2 * (2 * 128_256 * 4096 + 65 * 4096)
    assert (
        rows["q4_k_m"].unquantized == ("norm",)
        and rows["q4_k_m"].unquantized_bytes == 4 * 65 * 4096
    )
    assert rows["bf16"].unquantized_bytes == rows["bf16"].bytes


@pytest.mark.slow
def test_formats_without_kernels_are_not_chosen() -> None:
    report = llamath.quants("llama-3.1-8b", on="v100-16gb")
    assert {x.name for x in report.quants if not x.supported} == {"fp8", "nvfp4"}
    assert report.best is not None
    assert report.best.bits == max(
        x.bits for x in report.quants if x.fits and is_supported(find_device("v100-16gb"), x.name)
    )


@pytest.mark.parametrize(
    ("gpu", "runs"), [("p40", False), ("v100-16gb", False), ("t4", True), ("rtx-3090", True)]
)
def test_floats_are_unpacked_since_compute_capability_7_5(gpu: str, runs: bool) -> None:
    """As `is_fp8_marlin_supported` and `is_fp4_marlin_supported` say in vLLM and SGLang."""
    assert {is_supported(find_device(gpu), x) for x in ("fp8", "nvfp4")} == {runs}


@pytest.mark.slow
def test_old_types_are_chosen_only_if_no_other_fits() -> None:
    best = llamath.quants("llama-3.3-70b", on="2x3090", context=16_384).best
    assert best is not None and best.name == "bnb-nf4"


def test_files_of_a_folder_are_listed(folder: Path) -> None:
    code, data = run(str(folder))
    assert (
        code == 0
        and data["are_files"]
        and [x["dtype"] for x in data["rows"]] == ["F16", "Q8_0", "Q4_0"]
    )
    for x in data["rows"]:
        assert x["bytes"] == llamath.memory(folder / x["name"]).weights
    assert data["rows"][1]["unquantized"] == ["F32"] and data["best"] is None


def test_largest_file_that_fits_is_chosen(folder: Path) -> None:
    totals = [llamath.memory(folder / f"tiny-{x}.gguf").total for x in ("fp16", "q8_0", "q4_0")]
    for limit, best in (
        (totals[0], "tiny-fp16.gguf"),
        (totals[0] - 1, "tiny-q8_0.gguf"),
        (totals[2], "tiny-q4_0.gguf"),
        (totals[2] - 1, None),
    ):
        code, data = run(str(folder), "--on", f"mem={limit}B bw=1GB/s")
        assert data["best"] == best and code == (best is None)


def test_files_of_a_repository_are_listed(folder: Path, pair: Any) -> None:
    Hub(*pair, {x.name: x.read_bytes() for x in folder.iterdir()} | {"README.md": b"text"})
    code, data = run("org/name", "--on", "rtx-3060-12gb")
    here = llamath.quants(folder, on="rtx-3060-12gb").to_json()
    assert (
        code == 0
        and [x["bytes"] for x in data["rows"]] == [x["bytes"] for x in here["rows"]]
        and data["best"] == "tiny-fp16.gguf"
    )


def test_adapters_and_encoders_are_no_models(folder: Path, tmp_path: Path) -> None:
    for x in folder.iterdir():
        shutil.copy(x, tmp_path)
    shutil.copy(folder / "tiny-q8_0.gguf", tmp_path / "mmproj-q8_0.gguf")
    assert len(llamath.quants(tmp_path).quants) == 3


@pytest.mark.parametrize(
    "args", [("no-such-model",), ("gpt2", "--on", "nope"), ("gpt2", "--context", "0"), ()]
)
def test_bad_input_is_refused(args: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, ["quants", *args]).exit_code == 2


def test_nothing_larger_than_the_release_is_chosen() -> None:
    """What is converted from a format has lost at least as much, however many bits it has."""
    whole = llamath.quants("gpt-oss-20b", on="t4")
    assert whole.released == "mxfp4" == whole.best.name
    less = llamath.quants("gpt-oss-20b", on="mem=13.3GiB bw=300GB/s")
    assert less.best is not None and less.best.bytes < whole.best.bytes
    assert any(x.fits and x.bits > less.best.bits for x in whole.quants if x.name != "mxfp4")
    assert llamath.quants("deepseek-v3", on="16xh100").best.name == "fp8"
    assert llamath.quants("llama-3.2-1b", on="t4").best.name == "bf16"


def test_mlx_formats_are_listed_for_apple_gpus() -> None:
    mlx = {f"mlx-{bits}bit" for bits in (3, 4, 5, 6, 8)}
    for on, listed in ((None, True), ("m4-max-36gb", True), ("rtx-4090", False)):
        rows = {x.name: x for x in llamath.quants("llama-3.1-8b", on=on).quants}
        assert mlx & rows.keys() == (mlx if listed else set())
        if listed:
            found = llamath.memory("llama-3.1-8b", dtype="mlx-4bit").weights
            assert rows["mlx-4bit"].bytes == found
            assert on is None or all(rows[x].supported and rows[x].fits for x in mlx)
