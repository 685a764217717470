"""`verify --full` of folders of training runs and of pipelines: values are named by parameter, and sums are compared."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath import StructureReport, verify
from llamath.checkpoint.folders.dcp_parts import dcp_parts
from llamath.checkpoint.folders.deepspeed_parts import deepspeed_parts
from llamath.checkpoint.folders.stored_parts import StoredParts
from llamath.cli import cli

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytest.importorskip("safetensors")
from safetensors.torch import save_file  # noqa: E402

from support.dcp_ranks import save_with_two_ranks  # noqa: E402
from support.deepspeed_files import SHAPES, write_zero  # noqa: E402

NAN = float("nan")


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


def full(path: Path) -> dict[str, str]:
    """The findings about values, but not remarks, by code."""
    report = verify(path, full=True)
    assert (
        isinstance(report, StructureReport)
        and report.full is not None
        and report.full.values_checked
    )
    return {x.code: x.message for x in report.full.findings if x.severity != "info"}


def bytes_of(parts: StoredParts, name: str) -> bytes:
    (x,) = (x for x in parts.manifest.tensors if x.name == name)
    return Path(parts.manifest.files[x.file].name).read_bytes()[x.start : x.end]


def fill_zero(
    folder: Path, stage: int, ranks: int, groups: int, weights: dict[str, Any], sub_groups: int = 1
) -> None:
    """Replace the zeros of `write_zero` by these weights, partitioned as DeepSpeed does."""
    names = list(weights)
    for rank in range(ranks):
        path = folder / "global_step10" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        content = torch.load(path, weights_only=False)
        state = content["optimizer_state_dict"]
        if stage == 3:
            ordered = [weights[x] for i in range(groups) for x in names[i::groups]]
            sizes = [math.ceil(x.numel() / ranks) for x in ordered]
            padded = [
                torch.cat([x.flatten(), torch.zeros(ranks * n - x.numel())])
                for x, n in zip(ordered, sizes, strict=True)
            ]
            flat = torch.cat(
                [x[rank * n : (rank + 1) * n] for x, n in zip(padded, sizes, strict=True)]
            )
            state["fp32_flat_groups"] = [x.clone() for x in flat.tensor_split(sub_groups)]
        else:
            for i, part in enumerate(state["single_partition_of_fp32_groups"]):
                flat = torch.cat([weights[x].flatten() for x in names[i::groups]])
                flat = torch.cat([flat, torch.zeros(part.numel() * ranks - flat.numel())])
                part[:] = flat[rank * part.numel() : (rank + 1) * part.numel()]
        state["base_optimizer_state"] = {"state": {0: {"exp_avg": torch.zeros(12, 4), "step": 3}}}
        torch.save(content, path)


@pytest.mark.parametrize(
    ("stage", "groups", "sub_groups"), [(1, 1, 1), (2, 2, 1), (3, 1, 1), (3, 2, 3)]
)
def test_master_weights_are_read_under_their_names(
    stage: int, groups: int, sub_groups: int, tmp_path: Path
) -> None:
    folder = write_zero(tmp_path, stage, ranks=3, groups=groups)
    weights = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    fill_zero(folder, stage, 3, groups, weights, sub_groups)
    parts = deepspeed_parts(str(folder))
    covered = {
        name: torch.zeros(shape, dtype=torch.int32).flatten() for name, shape in SHAPES.items()
    }
    for x in parts.manifest.tensors:
        if (base := parts.bases[x.name]) in SHAPES and x.dtype == "F32":
            flat = weights[base].flatten()
            if x.name == base:
                low, high = 0, flat.numel()
            else:
                low, high = map(int, x.name.rpartition("[")[2].strip("]").split(":"))
                width = 1 if "flatten" in x.name or len(SHAPES[base]) == 1 else SHAPES[base][1]
                low, high = low * width, high * width
            assert bytes_of(parts, x.name) == flat[low:high].numpy().tobytes()
            assert math.prod(x.shape) == high - low
            covered[base][low:high] += 1
    assert all(bool((x == 1).all()) for x in covered.values())
    assert parts.unread == ()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_values_of_deepspeed_are_named_by_parameter(stage: int, tmp_path: Path) -> None:
    folder = write_zero(tmp_path, stage, ranks=2)
    weights = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    fill_zero(folder, stage, 2, 1, weights)
    assert "not_finite" not in full(folder)
    weights["layer.0.weight"][3, 2] = NAN
    fill_zero(folder, stage, 2, 1, weights)
    assert "layer.0.weight" in full(folder)["not_finite"] and "1 NaN" in full(folder)["not_finite"]
    done = run("verify", str(folder), "--full")
    assert done.exit_code == 1 and "1 error" in done.stdout


def test_partitions_that_do_not_fit_are_read_as_they_are(tmp_path: Path) -> None:
    folder = write_zero(tmp_path, 2, ranks=3)
    fill_zero(folder, 2, 3, 1, {name: torch.full(shape, NAN) for name, shape in SHAPES.items()})
    (folder / "global_step10" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert "single_partition_of_fp32_groups.0 of zero_pp_rank_2" in full(folder)["not_finite"]


def save_dcp(folder: Path, state: dict[str, Any]) -> Path:
    import torch.distributed.checkpoint as checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(state, checkpoint_id=str(folder), no_dist=True)
    return folder


def state_of(layers: int = 5) -> dict[str, Any]:
    torch.manual_seed(0)
    weights = {f"layers.{i}.mlp.weight": torch.randn(16, 32) for i in range(layers)}
    optimizer = {
        name: {"exp_avg": torch.zeros(16, 32), "step": torch.tensor(3.0)} for name in weights
    }
    return {
        "model": weights | {"embed_tokens.weight": torch.randn(64, 16)},
        "optimizer": {"state": optimizer},
        "step": 7,
    }


def test_sound_distributed_checkpoint_has_no_finding(tmp_path: Path) -> None:
    folder = save_dcp(tmp_path / "x", state_of())
    assert full(folder) == {}
    report = verify(folder, full=True)
    assert isinstance(report, StructureReport) and report.full is not None
    assert report.full.bytes_read == sum(x.stat().st_size for x in folder.glob("*.distcp"))
    assert report.full.tensors == 5 * 3 + 1


def test_values_of_distributed_checkpoints_are_named(tmp_path: Path) -> None:
    state = state_of()
    state["model"]["layers.2.mlp.weight"][4, 5] = NAN
    state["model"]["layers.3.mlp.weight"][2] = 0
    state["model"]["layers.4.mlp.weight"] *= 100
    state["model"]["embed_tokens.weight"][9] = 0
    found = full(save_dcp(tmp_path / "x", state))
    assert (
        "model.layers.2.mlp.weight (layer 2) has values that are not finite: 1 NaN, in row 4"
        in found["not_finite"]
    )
    assert found["zero_rows"] == "1 row of model.layers.3.mlp.weight (layer 3) is all zero: 2"
    assert "model.layers.4.mlp.weight" in found["far_norm"]


def test_chunks_of_ranks_are_named_with_their_slice(tmp_path: Path) -> None:
    state = (
        "{'rows': put(torch.arange(28.).reshape(7, 4).where(torch.arange(28).reshape(7, 4) != 21, float('nan')),"
        " Shard(0)), 'columns': put(torch.arange(12.).reshape(2, 6), Shard(1))}"
    )
    save_with_two_ranks(tmp_path / "x", state)
    parts = dcp_parts(str(tmp_path / "x"))
    assert {x.name: x.shape for x in parts.manifest.tensors} == {
        "rows[0:4]": (4, 4),
        "rows[4:7]": (3, 4),
        "columns[:, 0:3]": (2, 3),
        "columns[:, 3:6]": (2, 3),
    }
    wanted = np.arange(12, dtype="f4").reshape(2, 6)[:, 3:6].tobytes()
    assert bytes_of(parts, "columns[:, 3:6]") == wanted
    assert "rows[4:7] has values that are not finite: 1 NaN" in full(tmp_path / "x")["not_finite"]


def test_damaged_chunks_are_not_taken_for_examined(tmp_path: Path) -> None:
    folder = save_dcp(tmp_path / "x", state_of())
    file = next(folder.glob("*.distcp"))
    file.write_bytes(file.read_bytes()[:-3000])
    found = full(folder)
    assert "were not examined: they are compressed, damaged or missing" in found["not_examined"]


def test_sums_of_a_distributed_checkpoint_are_written_and_compared(tmp_path: Path) -> None:
    folder = save_dcp(tmp_path / "x", state_of())
    assert run("verify", str(folder), "-o", f"{folder}/SHA256SUMS").exit_code == 0
    if shutil.which("sha256sum"):
        assert (
            subprocess.run(
                ["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, timeout=120
            ).returncode
            == 0
        )
    assert ".metadata" in (folder / "SHA256SUMS").read_text()
    assert (
        json.loads(run("verify", str(folder), "--full", "--json").stdout)["full"]["files"][0][
            "matches"
        ]
        is True
    )
    file = next(folder.glob("*.distcp"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert "differs from what SHA256SUMS says" in full(folder)["wrong_sum"]


def write_pipeline(folder: Path) -> Path:
    """A pipeline with two parts of weights, one of them in two precisions."""
    parts = {
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "scheduler": ["diffusers", "PNDMScheduler"],
    }
    folder.mkdir()
    (folder / "model_index.json").write_text(
        json.dumps({"_class_name": "StableDiffusionPipeline", **parts})
    )
    for part in parts:
        (folder / part).mkdir()
        (
            folder / part / ("config.json" if part != "scheduler" else "scheduler_config.json")
        ).write_text("{}")
    torch.manual_seed(0)
    unet = {"conv_in.weight": torch.randn(4, 3, 3, 3), "conv_in.bias": torch.randn(4)}
    save_file(unet, folder / "unet" / "diffusion_pytorch_model.safetensors")
    save_file(
        {name: x.half() for name, x in unet.items()},
        folder / "unet" / "diffusion_pytorch_model.fp16.safetensors",
    )
    save_file(
        {"quant_conv.weight": torch.randn(16, 16)},
        folder / "vae" / "diffusion_pytorch_model.safetensors",
    )
    return folder


def test_each_part_of_a_pipeline_is_read_once(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x")
    assert full(folder) == {}
    report = verify(folder, full=True)
    assert isinstance(report, StructureReport) and report.full is not None
    assert report.full.tensors == 5
    assert report.full.bytes_read == sum(x.stat().st_size for x in folder.glob("*/*.safetensors"))
    assert sorted(x.name for x in report.full.files) == sorted(
        str(x.relative_to(folder)) for x in folder.glob("*/*.safetensors")
    )


def test_values_of_a_variant_of_a_part_are_named(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x")
    weights = {
        "conv_in.weight": torch.randn(4, 3, 3, 3).half(),
        "conv_in.bias": torch.randn(4).half(),
    }
    weights["conv_in.weight"][1, 2, 0, 1] = NAN
    save_file(weights, folder / "unet" / "diffusion_pytorch_model.fp16.safetensors")
    assert full(folder)["not_finite"].startswith(
        "unet: conv_in.weight has values that are not finite: 1 NaN"
    )
    assert run("verify", str(folder), "--full").exit_code == 1


def test_sums_of_all_parts_are_written_and_compared(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x")
    assert run("verify", str(folder), "-o", f"{folder}/SHA256SUMS").exit_code == 0
    listed = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    files = {
        str(x.relative_to(folder)): x
        for x in folder.rglob("*")
        if x.is_file() and x.name != "SHA256SUMS"
    }
    assert listed == {name: hashlib.sha256(x.read_bytes()).hexdigest() for name, x in files.items()}
    assert full(folder) == {}
    (folder / "vae" / "config.json").write_text('{"x": 1}')
    assert full(folder)["wrong_sum"].startswith(
        "vae: config.json differs from what SHA256SUMS says"
    )
    (folder / "vae" / "config.json").unlink()
    assert "config.json" in full(folder)["missing_file"]


# files from strangers


@pytest.mark.parametrize("kind", ["link", "pipe", "sums"])
def test_files_out_of_a_distributed_checkpoint_are_refused(kind: str, tmp_path: Path) -> None:
    import os

    secret = tmp_path / "secret"
    secret.write_bytes(b"TOP SECRET" * 500)
    folder = save_dcp(tmp_path / "x", state_of())
    file = next(folder.glob("*.distcp"))
    if kind == "sums":
        os.mkfifo(folder / "SHA256SUMS")
    else:
        file.unlink()
        os.symlink(secret, file) if kind == "link" else os.mkfifo(file)
    done = run("verify", str(folder), "--full")
    assert done.exit_code == 2 and not done.stdout
    assert {"link": "symbolic link out of", "pipe": "found a pipe", "sums": "found a pipe"}[
        kind
    ] in done.stderr


def test_sums_of_a_pipeline_lead_nowhere_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"TOP SECRET")
    folder = write_pipeline(tmp_path / "x")
    names = ("unet/../../secret", "../secret", "/etc/passwd", "unet/none")
    (folder / "SHA256SUMS").write_text(
        "".join(f"{i}" * 64 + f"  {name}\n" for i, name in enumerate(names))
    )
    report = verify(folder, full=True)
    assert isinstance(report, StructureReport) and report.full is not None and report.full.ok
    assert not any(x.name in names or "secret" in x.name for x in report.full.files)
    messages = {x.code: x.message for x in report.full.findings}
    assert (
        "files in other folders were not compared" in messages["not_examined"]
        and "none" in messages["missing_file"]
    )


@pytest.mark.parametrize("place", ["part", "weights", "beside"])
def test_links_out_of_a_pipeline_are_not_read(place: str, tmp_path: Path) -> None:
    import os

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text('{"secret": 1}')
    folder = write_pipeline(tmp_path / "x")
    if place == "part":
        shutil.rmtree(folder / "vae")
        os.symlink(outside, folder / "vae")
    else:
        os.symlink(
            outside / "config.json",
            folder / "vae" / ("diffusion_pytorch_model.bin" if place == "weights" else "notes.txt"),
        )
    done = run("verify", str(folder), "-o", f"{folder}/SHA256SUMS")
    assert done.exit_code in (1, 2) and not (folder / "SHA256SUMS").exists()
