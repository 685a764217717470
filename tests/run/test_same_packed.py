"""`same` and packed weights: the bounds of bitsandbytes, AWQ, GPTQ and others hold for their quantizers, and a larger change is found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import llamath
from llamath.analysis.check.same.compare_checkpoints import compare_checkpoints
from llamath.analysis.check.same.same_report import SameReport
from llamath.checkpoint.formats.number_arrays import StoredArray
from llamath.checkpoint.quantization.dequantizers import OpenedPacked, open_packed
from llamath.checkpoint.quantization.packed_tensors import PackedWeight
from support.planted_checkpoints import LLAMA, Tensors, random_tensors, save_folder

torch.set_num_threads(1)
GROUP = 32
DOWN = "model.layers.1.mlp.down_proj.weight"
DTYPES = {
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float16: "F16",
}
Pack = Callable[[torch.Tensor], Tensors]


def words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack rows of codes into 32-bit words, the first in the lowest bits, also across words."""
    flat = (codes.long().unsqueeze(-1) >> torch.arange(bits)) & 1
    rows = flat.reshape(len(codes), -1, 32)
    packed = (rows << torch.arange(32)).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def round_to_nearest(
    x: torch.Tensor, bits: int, group: int = GROUP
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, zero points and scales of groups of inputs, as AWQ and GPTQ choose them without their corrections."""
    wide = x.float().reshape(len(x), -1, group)
    low, high = wide.amin(-1).clamp(max=0), wide.amax(-1).clamp(min=0)
    scale = (high - low).clamp(min=1e-5) / (2**bits - 1)
    zero = (-low / scale).round().clamp(0, 2**bits - 1)
    codes = ((wide / scale[..., None]).round() + zero[..., None]).clamp(0, 2**bits - 1)
    return codes.reshape(x.shape).int(), zero.int(), scale.half()


def gptq(x: torch.Tensor, bits: int = 4, codes: torch.Tensor | None = None) -> Tensors:
    nearest, zero, scale = round_to_nearest(x, bits)
    codes = nearest if codes is None else codes
    index = torch.arange(x.shape[1]) // GROUP
    zeros = words(((zero - 1) % 2**bits).T, bits)
    return {
        "qweight": words(codes, bits).T,
        "qzeros": zeros,
        "scales": scale.T,
        "g_idx": index.int(),
    }


def compensated(x: torch.Tensor, bits: int = 4) -> Tensors:
    """GPTQ itself (arXiv:2210.17323, algorithm 1): the error of each column is spread over those that follow it."""
    _, zero, scale = round_to_nearest(x, bits)
    inputs = torch.randn(512, x.shape[1], generator=torch.Generator().manual_seed(1)) @ torch.randn(
        x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(2)
    )
    hessian = inputs.T @ inputs
    hessian += 0.01 * hessian.diagonal().mean() * torch.eye(len(hessian))
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    w, codes = x.float().clone(), torch.zeros(x.shape, dtype=torch.int32)
    for j in range(x.shape[1]):
        s, z = scale[:, j // GROUP].float(), zero[:, j // GROUP]
        codes[:, j] = ((w[:, j] / s).round() + z).clamp(0, 2**bits - 1).int()
        error = (w[:, j] - (codes[:, j] - z) * s) / upper[j, j]
        w[:, j:] -= error[:, None] * upper[j, j:]
    return gptq(x, bits, codes)


def awq(x: torch.Tensor) -> Tensors:
    codes, zero, scale = round_to_nearest(x, 4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    packed = [
        words(y.T.reshape(-1, y.shape[0] // 8, 8)[..., order].reshape(-1, y.shape[0]), 4)
        for y in (codes, zero)
    ]
    return {"qweight": packed[0], "qzeros": packed[1], "scales": scale.T}


NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495,
    0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
])  # fmt: skip


def nf4(x: torch.Tensor) -> Tensors:
    blocks = x.float().reshape(-1, 64)
    largest = blocks.abs().amax(-1)
    codes = (blocks[..., None] / largest[:, None, None] - NF4).abs().argmin(-1).reshape(-1)
    state = json.dumps(
        {"quant_type": "nf4", "blocksize": 64, "shape": list(x.shape), "dtype": "bfloat16"}
    ).encode()
    return {
        "weight": (codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None],
        "weight.absmax": largest,
        "weight.quant_map": NF4,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(state), dtype=torch.uint8),
    }


RECIPES: dict[str, dict[str, Any]] = {
    "gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "sym": False,
        "desc_act": False,
    },
    "awq": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
    },
    "bnb": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
PACKS: dict[str, tuple[str, Pack]] = {
    "gptq": ("gptq", gptq),
    "awq": ("awq", awq),
    "bnb nf4": ("bnb", nf4),
}


def pair(
    folder: Path, recipe: str, pack: Pack, change: Callable[[Tensors], object] = lambda _: None
) -> tuple[Path, Path]:
    """A checkpoint and its quantized copy, of which the first is changed after that."""
    model = llamath.load(LLAMA)
    tensors = {
        name: x.half().float() for name, x in random_tensors(model, model.scheme("hf")).items()
    }
    packed: Tensors = {}
    for name, x in tensors.items():
        if name.endswith("_proj.weight"):
            packed |= {name.removesuffix("weight") + end: y for end, y in pack(x).items()}
        else:
            packed[name] = x.half()
    change(tensors)
    config = LLAMA | {"quantization_config": RECIPES[recipe]}
    return save_folder(folder / "a", LLAMA, tensors, torch.float16), save_folder(
        folder / "b", config, packed, None
    )


def same(a: Path, b: Path) -> SameReport:
    return compare_checkpoints(str(a), str(b))


def modelopt_fp8(x: torch.Tensor) -> Tensors:
    """A scale for the matrix, by which bfloat16 numbers are divided in bfloat16, as ModelOpt 0.47 does."""
    scale = x.float().abs().amax() / 448
    return {
        "weight": (x / scale.bfloat16()).to(torch.float8_e4m3fn),
        "weight_scale": scale,
        "input_scale": torch.ones(()),
    }


def torchao_int8(x: torch.Tensor) -> Tensors:
    """Its scale is computed in the dtype of the weights and stored in float32."""
    scale = (x.abs().amax(1, keepdim=True) / 127.5).float()
    codes = (x * (1 / scale)).round().clamp(-128, 127).to(torch.int8)
    return {
        "_weight_qdata": codes,
        "_weight_scale": scale,
        "_weight_zero_point": torch.zeros(len(x), 1, dtype=torch.int8),
    }


def torchao_fp8(x: torch.Tensor) -> Tensors:
    scale = x.float().abs().amax(1, keepdim=True) / 448
    return {"_weight_qdata": (x / scale.bfloat16()).to(torch.float8_e4m3fn), "_weight_scale": scale}


IN_BFLOAT16: dict[str, tuple[Pack, dict[str, Any]]] = {
    "modelopt fp8": (
        modelopt_fp8,
        {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
    ),
    "torchao int8": (torchao_int8, {"quant_method": "torchao", "quant_type": "int8_weight_only"}),
    "torchao fp8": (torchao_fp8, {"quant_method": "torchao", "quant_type": "float8_weight_only"}),
}


@pytest.mark.parametrize("change", [0.0, 0.03])
@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_quantizers_that_divide_in_bfloat16_are_within_their_bounds(
    name: str, change: float, tmp_path: Path
) -> None:
    pack, recipe = IN_BFLOAT16[name]
    model = llamath.load(LLAMA)
    tensors = {key: x.bfloat16() for key, x in random_tensors(model, model.scheme("hf")).items()}
    packed: Tensors = {}
    for key, x in tensors.items():
        quantized = key.endswith("_proj.weight")
        packed |= (
            {key.removesuffix("weight") + end: y for end, y in pack(x).items()}
            if quantized
            else {key: x}
        )
    tensors[DOWN][3, 5] += change
    report = same(
        save_folder(tmp_path / "a", LLAMA, tensors),
        save_folder(tmp_path / "b", LLAMA | {"quantization_config": recipe}, packed, None),
    )
    assert report.verdict == ("different" if change else "rounding"), report.summary
    assert [x.path for x in report.differences if x.beyond] == (
        ["layers.1.mlp.down.weight"] if change else []
    )


@pytest.mark.parametrize("name", PACKS)
def test_packed_copies_are_within_their_bounds(name: str, tmp_path: Path) -> None:
    report = same(*pair(tmp_path, *PACKS[name]))
    assert report.verdict == "rounding" and not any(x.beyond for x in report.differences), (
        report.summary
    )
    (kind,) = report.rounded_types
    assert 0.9 < kind.share_of_bound <= 1


@pytest.mark.parametrize("name", PACKS)
def test_a_value_beyond_a_packed_bound_is_found(name: str, tmp_path: Path) -> None:
    report = same(*pair(tmp_path, *PACKS[name], lambda x: x[DOWN][3, 5].add_(0.05)))
    (wrong,) = [x for x in report.differences if x.verdict == "different" or x.beyond]
    assert (wrong.path, wrong.first, wrong.beyond) == ("layers.1.mlp.down.weight", (3, 5), 1)


def test_values_moved_by_gptq_are_equal_by_matrix(tmp_path: Path) -> None:
    a, b = pair(tmp_path, "gptq", compensated)
    report = same(a, b)
    assert report.verdict == "rounding" and any(x.beyond for x in report.differences), (
        report.summary
    )
    assert any(
        "further than half a step apart" in x and "slight fine-tuning" in x for x in report.notes
    )


@pytest.mark.parametrize("change", ["row", "other", "swapped"])
def test_damage_of_gptq_copies_is_not_taken_for_rounding(change: str, tmp_path: Path) -> None:
    def damage(tensors: Tensors) -> None:
        if change == "row":
            tensors[DOWN][7] = (
                torch.randn(tensors[DOWN].shape[1], generator=torch.Generator().manual_seed(5))
                * 0.05
            )
        elif change == "other":
            tensors[DOWN] = (
                torch.randn(tensors[DOWN].shape, generator=torch.Generator().manual_seed(5)) * 0.05
            )
        else:
            q, k = (f"model.layers.{i}.mlp.up_proj.weight" for i in (0, 1))
            tensors[q], tensors[k] = tensors[k], tensors[q]

    report = same(*pair(tmp_path, "gptq", compensated, damage))
    assert report.verdict == "different"
    assert {x.path for x in report.differences if x.verdict == "different"} <= {
        f"layers.{i}.mlp.{x}.weight" for i in (0, 1) for x in ("down", "up")
    }


def test_one_changed_value_beside_dequantized_values_is_different(tmp_path: Path) -> None:
    _, b = pair(tmp_path, "awq", awq)
    llamath.convert(b, tmp_path / "c", names="hf", dtype="fp32")
    assert same(b, tmp_path / "c").verdict == "identical"
    from safetensors.torch import load_file, save_file

    tensors = load_file(tmp_path / "c" / "model.safetensors")
    tensors[DOWN][0, 0] += 0.05
    save_file(tensors, tmp_path / "c" / "model.safetensors", {"format": "pt"})
    assert same(b, tmp_path / "c").verdict == "different"


# the bounds of each kind, by the stored tensors of one matrix


def opened(
    kind: str, tensors: Tensors, shape: tuple[int, ...] | None = None, values: str = "weight"
) -> OpenedPacked:
    def read(name: str) -> StoredArray:
        x = tensors[name.removeprefix("m.")].contiguous()
        return StoredArray(
            DTYPES[x.dtype], tuple(x.shape), x.reshape(-1).view(torch.uint8).numpy().tobytes()
        )

    weight = PackedWeight(
        "m.weight", kind, shape, f"m.{values}", tuple(f"m.{x}" for x in tensors if x != values)
    )
    return open_packed(weight, read, {})


def largest_share(x: OpenedPacked, weights: Any) -> float:
    """The largest part of its bound that a weight uses."""
    values, (inward, outward) = x.rows(0, 0, x.shape[-2]), x.half_steps(0, 0, x.shape[-2])
    bound = np.where((weights > values) == (values > 0), outward, inward) + 2.0**-18 * np.abs(
        values
    )
    return float((np.abs(weights - values) / np.maximum(bound, 1e-30)).max())


@pytest.mark.parametrize("case", ["nf4", "fp4", "nf4 nested", "fp4 nested"])
def test_bounds_hold_for_bitsandbytes(case: str) -> None:
    """Tensors that bitsandbytes 0.50.2 wrote."""
    golden = json.loads((Path(__file__).parents[1] / "golden" / "bnb_4bit.json").read_text())[
        "cases"
    ][case]
    tensors = {
        name: torch.from_numpy(np.frombuffer(base64.b64decode(data), np.uint8).copy())
        .view(getattr(torch, dtype))
        .reshape(shape)
        for name, (dtype, shape, data) in golden.items()
    }
    weights = np.random.default_rng(0).standard_normal((64, 128), dtype=np.float32)
    assert 0.99 < largest_share(opened(f"bnb-{case[:3]}", tensors), weights) <= 1


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_bounds_hold_for_gptq_of_any_bits(bits: int) -> None:
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(3))
    assert 0.9 < largest_share(opened("gptq", gptq(x, bits), (64, 96), "qweight"), x.numpy()) <= 1


@pytest.mark.parametrize(("bits", "axis"), [(2, 1), (3, 0), (4, 1), (8, 0)])
def test_bounds_hold_for_hqq(bits: int, axis: int) -> None:
    """The last step of HQQ rounds to the nearest code with the zero that it optimized."""
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(3))
    grouped = x.reshape(-1, 64) if axis else x.reshape(64, -1)
    low, high = grouped.amin(axis, keepdim=True), grouped.amax(axis, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    zero = -low / scale + 0.1
    codes = (grouped / scale + zero).round().clamp(0, 2**bits - 1).int()
    count = 10 if bits == 3 else 8 // bits
    padded = torch.cat(
        [codes, torch.zeros((-len(codes)) % count, codes.shape[1], dtype=torch.int32)]
    )
    pieces = padded.reshape(count, -1, codes.shape[1])
    packed = sum(pieces[i] << bits * (count - 1 - i) for i in range(count))
    assert isinstance(packed, torch.Tensor)
    numbers = {
        name: torch.tensor([n], dtype=torch.int32) for name, n in (("nbits", bits), ("axis", axis))
    }
    tensors = {
        "W_q": packed if bits == 3 else packed.to(torch.uint8),
        "scale": scale,
        "zero": zero,
        "shape": torch.tensor([64, 128]).int(),
    }
    assert 0.9 < largest_share(opened("hqq", tensors | numbers, None, "W_q"), x.numpy()) <= 1
