"""`convert --tp-shards` of packed weights: the values of each rank are those of the cut unquantized checkpoint, and joined ranks are the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
from safetensors.torch import load_file, save_file  # noqa: E402

import llamath  # noqa: E402
from llamath.checkpoint.formats.number_arrays import StoredArray  # noqa: E402
from llamath.checkpoint.open import open_checkpoint, packings_of  # noqa: E402
from llamath.checkpoint.quantization.dequantizers import dequantize  # noqa: E402
from llamath.checkpoint.quantization.packed_tensors import packed_weights  # noqa: E402
from llamath.utils.errors import LlamathError  # noqa: E402
from support.edited_checkpoints import edit  # noqa: E402
from support.packed_linears import GROUP, PACKERS, QUANTIZATION_CONFIGS  # noqa: E402
from support.planted_checkpoints import random_tensors  # noqa: E402

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip
Tensors = dict[str, Any]
METHODS = ("gptq", "gptq act-order", "gptq one group", "awq", "bnb nf4", "bnb int8")


def pack(method: str, generator: Any, out: int, into: int) -> tuple[Tensors, Any]:
    """The stored tensors of a matrix, and its values."""
    tensors, values = PACKERS[method.split(" act")[0].split(" one")[0]](generator, out, into)
    if method == "gptq act-order":
        order = torch.randperm(into, generator=generator)
        tensors["g_idx"] = tensors["g_idx"][order].contiguous()
    elif method == "gptq one group":
        tensors |= {
            "g_idx": torch.zeros(into, dtype=torch.int32),
            "qzeros": tensors["qzeros"][:1],
            "scales": tensors["scales"][:1],
        }
    return tensors, values


def checkpoint(folder: Path, method: str, **keys: Any) -> Path:
    """A Llama whose projections are packed."""
    base = QUANTIZATION_CONFIGS[method.split(" act")[0].split(" one")[0]]
    changes = {"gptq act-order": {"desc_act": True}, "gptq one group": {"group_size": -1}}.get(
        method, {}
    )
    config = {**LLAMA, **keys, "quantization_config": {**base, **changes}}
    model = llamath.load(config)
    generator = torch.Generator().manual_seed(0)
    stored: Tensors = {}
    for name, x in random_tensors(model, model.scheme("hf")).items():
        if name.endswith("_proj.weight"):
            parts, _ = pack(method, generator, *x.shape)
            stored |= {
                name.removesuffix("weight") + end: y.contiguous() for end, y in parts.items()
            }
        else:
            stored[name] = x.half()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    return folder


def values_of(folder: Path) -> dict[str, Any]:
    """The dequantized matrices of a checkpoint or a rank."""
    opened = open_checkpoint(str(folder))
    stored = {x.name: x for x in opened.manifest.tensors}

    def read(name: str) -> StoredArray:
        x = stored[name]
        data = Path(opened.manifest.files[x.file].name).read_bytes()[x.start : x.end]
        return StoredArray(x.dtype, x.shape, data)

    config = opened.quantization_config or {}
    return {
        name: dequantize(x, read, config)
        for name, x in packed_weights(packings_of(opened.manifest, config)).items()
    }


def cut(source: Path, folder: Path, ranks: int) -> list[Path]:
    edit(source, folder, tp_shards=ranks)
    return [folder / str(rank) for rank in range(ranks)]


@pytest.mark.parametrize("method", METHODS)
def test_ranks_have_the_values_of_the_cut_matrices(method: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", method)
    assert llamath.verify(source).ok
    folders = cut(source, tmp_path / "ranks", 2)
    whole, ranks = values_of(source), [values_of(x) for x in folders]
    assert len(whole) == 7
    for name, x in whole.items():
        axis = 1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0
        assert np.array_equal(np.concatenate([part[name] for part in ranks], axis), x), name
        assert all(part[name].shape[axis] == x.shape[axis] // 2 for part in ranks)
    for x in folders:
        found = llamath.verify(x)
        assert found.ok, found.findings
    edit(tmp_path / "ranks", tmp_path / "joined", join_shards=True)
    joined, original = (load_file(x / "model.safetensors") for x in (tmp_path / "joined", source))
    assert joined.keys() == original.keys()
    for name, x in original.items():
        if "quant_state" not in name:
            assert torch.equal(joined[name], x), name
    assert all(np.array_equal(x, whole[name]) for name, x in values_of(tmp_path / "joined").items())


@pytest.mark.parametrize("dtype", ["", "bf16"])
def test_packed_layers_of_an_edited_checkpoint_are_converted(dtype: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", "gptq", num_hidden_layers=2)
    edit(source, tmp_path / "edited", layers="1")
    one, two = (
        llamath.convert(path, tmp_path / name, names="hf", dtype=dtype, edit=edits)
        for path, name, edits in (
            (source, "one", "layers=1"),
            (tmp_path / "edited", "two", None),
        )
    )
    assert one.edits and not two.edits and one.dtype == two.dtype
    tensors = [load_file(tmp_path / x / "model.safetensors") for x in ("one", "two")]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(x, tensors[1][name]) for name, x in tensors[0].items())
    configs = [(tmp_path / x / "config.json").read_bytes() for x in ("one", "two")]
    assert configs[0] == configs[1] and (b"quantization_config" in configs[0]) == (not dtype)


def mxfp4_experts(source: Path, intermediate_size: int) -> Tensors:
    """Write a gpt-oss with packed experts; return its stored tensors."""
    config = json.loads((Path(__file__).parents[1] / "tiny" / "gpt_oss.json").read_text())["plain"]
    config = {
        **config,
        "hidden_size": 64,
        "intermediate_size": intermediate_size,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    model = llamath.load(config)
    stored: Tensors = {}
    for name, x in random_tensors(model, model.scheme("hf")).items():
        if name.endswith("_proj") and "experts" in name:
            experts, inputs, outputs = x.shape
            stored[f"{name}_blocks"] = torch.randint(
                0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8
            )
            stored[f"{name}_scales"] = torch.randint(
                115, 125, (experts, outputs, inputs // 32), dtype=torch.uint8
            )
        else:
            stored[name] = x.bfloat16()
    source.mkdir()
    (source / "config.json").write_text(json.dumps(config))
    save_file(stored, source / "model.safetensors", {"format": "pt"})
    return stored


def test_experts_in_mxfp4_are_cut_by_blocks(tmp_path: Path) -> None:
    source = tmp_path / "source"
    stored = mxfp4_experts(source, 128)
    whole, ranks = values_of(source), [values_of(x) for x in cut(source, tmp_path / "ranks", 2)]
    for name, x in whole.items():
        axis = 2 if "down" in name else 1
        assert np.array_equal(np.concatenate([part[name] for part in ranks], axis), x), name
    edit(tmp_path / "ranks", tmp_path / "joined", join_shards=True)
    joined = load_file(tmp_path / "joined" / "model.safetensors")
    assert all(torch.equal(joined[name], x) for name, x in stored.items())


def test_blocks_of_mxfp4_are_not_split(tmp_path: Path) -> None:
    mxfp4_experts(tmp_path / "source", 96)
    refused(
        tmp_path / "source",
        tmp_path / "out",
        "packed as mxfp4, in groups that a cut would split.*one for 32 values",
    )


def refused(source: Path, target: Path, match: str) -> None:
    with pytest.raises(LlamathError, match=match):
        edit(source, target, tp_shards=2)
    assert not target.exists()


@pytest.mark.parametrize(
    ("method", "keys", "match"),
    [
        ("awq", {"intermediate_size": 16 * 3}, f"one for {GROUP} values, and the cut is at 24"),
        ("gptq", {"intermediate_size": 16 * 3}, "in groups that a cut would split"),
        ("bnb nf4", {"intermediate_size": 64 * 3}, "in groups that a cut would split"),
        ("pack-quantized", {}, "whose layout is not cut"),
    ],
)
def test_cuts_through_groups_are_refused_with_the_reason(
    method: str, keys: dict[str, Any], match: str, tmp_path: Path
) -> None:
    refused(checkpoint(tmp_path / "source", method, **keys), tmp_path / "out", match)


def test_blocks_across_rows_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", "bnb nf4", intermediate_size=32 * 5)
    refused(
        source,
        tmp_path / "out",
        "in blocks of 64 values that go across rows|in groups that a cut would split",
    )


@pytest.mark.parametrize(
    "state",
    [b"[]", b"{", b"[" * 50, b'{"shape": [128, 128]}', b'{"shape": [true, 4], "blocksize": 64}', b'{"shape": [128, 128], "blocksize": "64"}',
     b'{"shape": [1e99, 4], "blocksize": 64}', b'{"shape": [128, 0], "blocksize": 64}', b'{"shape": [999999999999, 128], "blocksize": 64}'],
)  # fmt: skip
def test_hostile_quantization_states_are_refused(state: bytes, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", "bnb nf4")
    tensors = load_file(source / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4"
    tensors[name] = torch.tensor(list(state), dtype=torch.uint8)
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    refused(source, tmp_path / "out", "packed as bnb-nf4, and its quantization state")


@pytest.mark.parametrize("change", ["long", "short", "shape", "none"])
def test_hostile_groups_are_refused(change: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", "gptq")
    tensors = load_file(source / "model.safetensors")
    stem = "model.layers.0.self_attn.o_proj."
    index = tensors[f"{stem}g_idx"]
    if change == "none":
        del tensors[f"{stem}scales"]
    elif change == "shape":
        tensors[f"{stem}scales"] = tensors[f"{stem}scales"].reshape(-1)
    else:
        tensors[f"{stem}g_idx"] = index.long() if change == "long" else index[:-7].clone()
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    with pytest.raises(LlamathError):
        edit(source, tmp_path / "out", tp_shards=2)
    assert not (tmp_path / "out").exists()
