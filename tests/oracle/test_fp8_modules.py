"""Which matrices FP8 recipes quantize, family by family, compared with transformers' quantizer; and DeepSeek-V4's published files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.storage.quantized_tensors import quantized_tensors
from llamath.analysis.storage.weight_bytes import WeightStorage
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.quantization.weight_format import declared_weight_format
from llamath.cli import cli
from llamath.utils.errors import UnknownQuantization
from support.reference_data import tiny_configs

HEADS = ["lm_head", "embed_out", "output_projection"]
FP8 = {"quant_method": "fp8", "weight_block_size": [16, 16], "modules_to_not_convert": HEADS}


def storage_of(config: dict[str, Any]) -> WeightStorage:
    storage = MemoryCalculator(llamath.load(config), MemoryRequest()).storage
    assert storage is not None
    return storage


def quantized(storage: WeightStorage) -> int:
    """Return the number of weights in quantized matrices."""
    return sum(
        int(x.out) * int(x.into) * x.copies for x in storage.matrices if x.choice.format is not None
    )


# DeepSeek-V4, and tables of layers

V4_FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "vocab_size": 129280,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "hc_mult": 4,
    "max_position_embeddings": 1048576,
    "compress_ratios": [0, 0, *(4, 128) * 20, 4],
    "torch_dtype": "bfloat16",
    "expert_dtype": "fp4",
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
}
"""deepseek-ai/DeepSeek-V4-Flash's config."""
MTP_MATRICES = {"mxfp4": 256 * 3, "fp8": 10}
"""In its layer for multi-token prediction, which is not counted: the experts; and attention, the shared expert and two projections."""


def test_deepseek_v4_flash_has_its_published_matrices() -> None:
    """An audit of its files counted 33,792 FP4 and 375 FP8 matrices; its index has 159.6 GB."""
    storage = storage_of(V4_FLASH)
    counts: dict[str, int] = {}
    for x in storage.matrices:
        if x.choice.format is not None:
            counts[x.choice.format.name] = counts.get(x.choice.format.name, 0) + x.copies
    assert {name: n + MTP_MATRICES[name] for name, n in counts.items()} == {
        "mxfp4": 33_792,
        "fp8": 375,
    }
    experts = sum(x.total for x in storage.weights if x.codec == "mxfp4")
    elsewhere = 10 * 4096 * 4096  # at least, in FP8
    assert (
        abs(159_600_000_000 - storage.bytes - experts // 43 - elsewhere) < 55_000_000
    )  # half a unit of the printed digits
    tensors = {
        f"w1{x.suffix}": (x.dtype, x.shape)
        for m in storage.matrices
        if m.name.endswith("w1")
        for x in _tensors(m)
    }
    assert tensors["w1.weight"] == ("I8", (2048, 2048)) and tensors["w1.scale"] == (
        "F8_E8M0",
        (2048, 128),
    )


def _tensors(matrix: Any) -> Any:
    fmt = matrix.choice.format
    return (
        fmt.tensors(int(matrix.out), int(matrix.into))
        if fmt is not None and fmt.name == "mxfp4"
        else ()
    )


def test_table_of_layers_without_prefix_is_applied() -> None:
    """NVIDIA's NVFP4 of DeepSeek-V4 names `layers.0.ffn.experts` beside the fp8 of the other matrices."""
    table = {
        f"layers.{i}.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16} for i in range(43)
    }
    section = {
        **V4_FLASH["quantization_config"],
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": table,
    }
    sums = {x.codec: x for x in storage_of({**V4_FLASH, "quantization_config": section}).sums()}
    expert = 2048 * 4096
    assert (
        sums["nvfp4"].bytes == 43 * 256 * 3 * (expert // 2 + expert // 16 + 8)
        and "mxfp4" not in sums
    )


@pytest.mark.parametrize("method", ["fp8", "modelopt"])
def test_table_of_layers_that_names_nothing_is_refused(method: str) -> None:
    table = {"decoder.layers.0.experts": {"quant_algo": "NVFP4", "group_size": 16}}
    section = {"quant_method": method, "quant_algo": "MIXED_PRECISION", "quantized_layers": table}
    with pytest.raises(
        UnknownQuantization,
        match=r"quantized_layers names no matrix of this model; it has names such as decoder\.layers\.0\.experts",
    ):
        storage_of({**V4_FLASH, "quantization_config": section})


@pytest.mark.parametrize("dtype", ["fp6", "mxfp4"])
def test_unknown_dtype_of_experts_is_refused(dtype: str) -> None:
    with pytest.raises(UnknownQuantization, match=f"expert_dtype {dtype}"):
        storage_of({**V4_FLASH, "expert_dtype": dtype})


def test_bitnet_packs_the_matrices_behind_norms() -> None:
    """microsoft/bitnet-b1.58-2B-4T: 210 packed matrices in 1.18 GB."""
    keys = {
        "model_type": "bitnet",
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_hidden_layers": 30,
        "vocab_size": 128256,
    }
    keys |= {
        "num_attention_heads": 20,
        "num_key_value_heads": 5,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    storage = storage_of(
        {**keys, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "bitnet"}}
    )
    assert sum(x.copies for x in storage.matrices if x.choice.format is not None) == 30 * 7
    assert round(storage.bytes / 1e9, 2) == 1.18


def test_second_name_of_the_number_of_experts_is_accepted() -> None:
    """GLM-5.2 has num_experts beside n_routed_experts."""
    config = {key: value for key, value in V4_FLASH.items() if key != "quantization_config"}
    assert (
        llamath.load({**config, "num_experts": 256}).parameters.total
        == llamath.load(config).parameters.total
    )
    with pytest.raises(llamath.ConfigError, match="num_experts asks for 128 experts"):
        llamath.load({**config, "num_experts": 128})


def published_v4(folder: Path) -> Path:
    """Write a tiny DeepSeek-V4 with the names and dtypes of the published files, and a layer for multi-token prediction."""
    import torch
    from safetensors.torch import save_file

    sizes = {
        "hidden_size": 64,
        "moe_intermediate_size": 32,
        "q_lora_rank": 32,
        "o_lora_rank": 16,
        "max_position_embeddings": 128,
    }
    tiny = next(x.values[0] for x in tiny_configs() if x.id == "deepseek_v4-plain")
    config = {
        **tiny,
        **sizes,
        "num_nextn_predict_layers": 1,
        **{x: V4_FLASH[x] for x in ("torch_dtype", "expert_dtype")},
    }
    config["quantization_config"] = V4_FLASH["quantization_config"]
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64, "I8": torch.int8}
    dtypes |= {"F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu}
    tensors: dict[str, torch.Tensor] = {}
    for x in quantized_tensors(llamath.load(config), declared_weight_format(config)):
        name = (
            x.name.removeprefix("model.")
            .replace("embed_tokens.", "embed.")
            .replace("hc_head.hc_", "hc_head_")
        )
        zeros = torch.zeros((*x.shape, DTYPES[x.dtype].bytes.numerator), dtype=torch.uint8)
        tensors[name.replace(".attn.norm.", ".attn.kv_norm.")] = zeros.view(
            dtypes[x.dtype]
        ).reshape(x.shape)
    tensors |= {
        f"mtp.0.{name[9:]}": x.clone()
        for name, x in tensors.items()
        if name.startswith("layers.0.")
    }
    tensors |= {f"mtp.0.{x}_norm.weight": torch.zeros(64, dtype=torch.bfloat16) for x in "eh"}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_published_files_of_deepseek_v4_are_known(tmp_path: Path) -> None:
    path = published_v4(tmp_path / "v4")
    report = llamath.verify(str(path))
    assert (
        report.ok
        and report.verdict.scheme == "hf-published"
        and not [x for x in report.findings if x.severity != "info"]
    )
    assert [x.code for x in report.findings] == ["further", "packed", "packed"]
    done = CliRunner().invoke(cli, ["same", str(path)])
    assert done.exit_code == 0 and "the weights are quantized (mxfp4, fp8)" in " ".join(
        done.output.split()
    )


@pytest.mark.parametrize("dtype", ["", "fp32"])
def test_published_files_of_deepseek_v4_are_converted(dtype: str, tmp_path: Path) -> None:
    path, target = published_v4(tmp_path / "v4"), tmp_path / "converted"
    done = CliRunner().invoke(
        cli,
        [
            "convert",
            str(path),
            str(target),
            "--names",
            "hf",
            *(["--dtype", dtype] if dtype else []),
        ],
    )
    assert done.exit_code == 0, done.output
    report = llamath.verify(str(target))
    assert report.ok and report.verdict.scheme == "hf"
    tables = {
        x.name: x.dtype for x in report.checkpoint.manifest.tensors if x.name.endswith("tid2eid")
    }
    assert tables == {"model.layers.0.ffn.gate.tid2eid": "I64", "mtp.0.ffn.gate.tid2eid": "I64"}
    if not dtype:
        assert llamath.same(path, target).verdict == "identical"


def test_multi_token_prediction_that_no_config_declares_is_a_warning(tmp_path: Path) -> None:
    path = published_v4(tmp_path / "v4")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 0}))
    assert not llamath.verify(str(path)).ok
