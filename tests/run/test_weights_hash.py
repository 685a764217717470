"""The canonical hash: equal for equal weights in every lossless format, different after any change, as the documentation defines it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.torch import canonical_weights
from support.planted_checkpoints import (
    LLAMA,
    Tensors,
    fuse_experts,
    plant,
    random_tensors,
    save_folder,
)

NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.float64: "F64"}


def definition(weights: dict[str, torch.Tensor]) -> str:
    """The hash, written from docs/reference/hash.md alone."""
    lines = []
    for path, x in weights.items():
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            y = x.to(dtype)
            if ((y.double() == x.double()) | x.isnan()).all():
                break
        y = torch.where(y == 0, torch.zeros_like(y), y)
        bits = y.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
        quiet = {"BF16": 0x7FC0, "F16": 0x7E00, "F32": 0x7FC00000, "F64": 0x7FF8 << 48}[
            NAMES[dtype]
        ]
        data = torch.where(y.isnan(), quiet, bits).numpy().tobytes()
        lines.append(
            (path, NAMES[dtype], "x".join(map(str, x.shape)), hashlib.sha256(data).hexdigest())
        )
    text = "llamath-hash-1\n" + "".join(f"{' '.join(line)}\n" for line in sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(config: dict[str, Any], tensors: Tensors) -> dict[str, torch.Tensor]:
    model = llamath.load(config)
    return dict(canonical_weights(model.tree, model.scheme("hf"), tensors))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("base") / "a")


def hash_of(path: Path) -> str:
    return llamath.hash_weights(path).hash


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_hash_follows_its_definition(tmp_path: Path, dtype: torch.dtype) -> None:
    model = llamath.load(LLAMA)
    tensors = {name: x.to(dtype) for name, x in random_tensors(model, model.scheme("hf")).items()}
    x = tensors["model.layers.0.mlp.up_proj.weight"]
    x[0, :4] = torch.tensor([-0.0, float("nan"), -float("nan"), float("inf")])
    tensors["model.norm.weight"] = torch.ones(64, dtype=dtype)
    assert hash_of(save_folder(tmp_path / "a", LLAMA, tensors, None)) == definition(
        canonical(LLAMA, tensors)
    )


@pytest.mark.parametrize(
    ("to", "dtype"),
    [("meta", ""), ("gguf", ""), ("gguf", "fp32"), ("hf", "fp32"), ("meta", "fp32")],
)
def test_lossless_formats_have_one_hash(base: Path, tmp_path: Path, to: str, dtype: str) -> None:
    convert_checkpoint(
        str(base), str(tmp_path / "b"), ConvertOptions(to=to, dtype=dtype, max_shard_size=20_000)
    )
    assert hash_of(tmp_path / "b") == hash_of(base)


def test_half_precision_weights_have_one_hash(tmp_path: Path) -> None:
    model = llamath.load(LLAMA)
    tensors = {name: x.half() for name, x in random_tensors(model, model.scheme("hf")).items()}
    source = save_folder(tmp_path / "a", LLAMA, tensors, None)
    found = {hash_of(source)}
    for to, dtype in (("gguf", "fp16"), ("meta", "fp32"), ("gguf", "fp32")):
        convert_checkpoint(
            str(source), str(tmp_path / f"{to}-{dtype}"), ConvertOptions(to=to, dtype=dtype)
        )
        found.add(hash_of(tmp_path / f"{to}-{dtype}"))
    assert len(found) == 1


def test_fused_experts_have_the_hash_of_single_ones(tmp_path: Path) -> None:
    config = json.loads((Path(__file__).parents[1] / "tiny" / "mixtral.json").read_text())["plain"]
    model = llamath.load(config)
    tensors = random_tensors(model, model.scheme("hf"))
    one, fused = (
        save_folder(tmp_path / "a", config, tensors),
        save_folder(tmp_path / "b", config, fuse_experts(model, tensors)),
    )
    assert hash_of(one) == hash_of(fused)


def test_a_tied_head_has_the_hash_of_a_stored_copy(tmp_path: Path) -> None:
    a = plant(tmp_path / "a", config={**LLAMA, "tie_word_embeddings": True})
    b = plant(
        tmp_path / "b", lambda x: x.update({"lm_head.weight": x["model.embed_tokens.weight"]})
    )
    assert hash_of(a) == hash_of(b)


def test_every_change_changes_the_hash(base: Path, tmp_path: Path) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    changes = {
        "one step": lambda x: x[name][3, 4].mul_(1 + 2**-7),
        "two values swapped": lambda x: x.update({name: x[name].flip(0)}),
        "two weights swapped": lambda x: x.update(
            {name.replace("down", "up"): x[name.replace("down", "gate")]}
        ),
    }
    hashes = {
        hash_of(base),
        *(hash_of(plant(tmp_path / label, change)) for label, change in changes.items()),
    }
    assert len(hashes) == 4


def test_quantized_weights_get_a_note(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from support.planted_checkpoints import quantize_gguf

    convert_checkpoint(str(base), str(tmp_path / "a.gguf"), ConvertOptions(to="gguf", dtype="fp32"))
    report = llamath.hash_weights(quantize_gguf(tmp_path / "a.gguf", tmp_path / "b.gguf", "Q8_0"))
    assert "the weights are quantized (Q8_0)" in report.notes[0]
