"""The tensors of quantized checkpoints compared with those that ModelOpt and compressed-tensors store for the same models."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.storage.quantized_tensors import (
    QuantizedTensor,
    quantized_tensors,
)
from llamath.checkpoint.quantization.format_names import parse_weight_format
from llamath.checkpoint.quantization.weight_format import declared_weight_format
from llamath.cli import cli
from support.csv_tables import csv_rows
from support.each_case import each
from support.reference_data import multimodal_configs, tiny_configs, truth
from support.sparse_checkpoints import write_safetensors

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "dtype": "bfloat16",
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def tensors_of(config: Mapping[str, Any]) -> list[QuantizedTensor]:
    """The tensors that a config's recipe stores, whose bytes must be those of `memory`."""
    model = llamath.load(config)
    tensors = list(quantized_tensors(model, declared_weight_format(model.config.data)))
    storage = MemoryCalculator(model, MemoryRequest()).storage
    assert storage is not None and sum(x.bytes for x in tensors) == storage.bytes
    assert sum(x.parameters for x in tensors) == model.parameters.total
    return tensors


EXPORTS = {x["name"]: x for x in truth("modelopt_exports.jsonl")}


@each("name", EXPORTS)
@pytest.mark.slow
def test_tensors_are_those_that_modelopt_exports(name: str) -> None:
    """Its own names, dtypes and shapes, from the section in config.json and from hf_quant_config.json."""
    export = EXPORTS[name]
    for section in (export["quantization_config"], export["hf_quant_config"]):
        found = tensors_of(
            {**export["config"], "torch_dtype": "bfloat16", "quantization_config": section}
        )
        lines = "".join(
            sorted(f"{x.name}\t{x.dtype}\t{'x'.join(map(str, x.shape))}\n" for x in found)
        )
        assert (
            len(found) == export["tensors"]
            and hashlib.sha256(lines.encode()).hexdigest() == export["tensors_sha256"]
        )


QUANTIZER_EXPORTS = {x["name"]: x for x in truth("quantizer_exports.jsonl")}


@pytest.mark.parametrize("name", QUANTIZER_EXPORTS)
@pytest.mark.slow
def test_tensors_are_those_that_auto_round_and_quark_export(name: str) -> None:
    export = QUANTIZER_EXPORTS[name]
    found = tensors_of(
        {
            **export["config"],
            "torch_dtype": "bfloat16",
            "quantization_config": export["quantization_config"],
        }
    )
    lines = "".join(sorted(f"{x.name}\t{x.dtype}\t{'x'.join(map(str, x.shape))}\n" for x in found))
    assert (
        len(found) == export["tensors"]
        and hashlib.sha256(lines.encode()).hexdigest() == export["tensors_sha256"]
    )


def _weights(**keys: Any) -> dict[str, Any]:
    return {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": 32,
    } | keys


_FLOAT8 = {"num_bits": 8, "type": "float", "symmetric": True}
GROUPS = (
    {"weights": _weights()},
    {"weights": _weights(num_bits=8, symmetric=False)},
    {"weights": _weights(num_bits=3, strategy="channel", group_size=None)},
    {"weights": _weights(num_bits=8, strategy="channel", group_size=None), "input_activations": _weights(num_bits=8, strategy="token", dynamic=True, group_size=None)},
    {"weights": _weights(num_bits=8, strategy="tensor", group_size=None), "input_activations": _weights(num_bits=8, strategy="tensor", group_size=None)},
    {"weights": {**_FLOAT8, "strategy": "channel"}, "input_activations": {**_FLOAT8, "strategy": "token", "dynamic": True}},
    {"weights": {**_FLOAT8, "strategy": "tensor"}, "input_activations": {**_FLOAT8, "strategy": "tensor"}},
    {"weights": {**_FLOAT8, "strategy": "block", "block_structure": [48, 80]}},
    {"weights": {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}},
    {
        "weights": {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16},
        "input_activations": {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16, "dynamic": "local"},
    },
    {"weights": {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}},
)  # fmt: skip
TARGETS = (
    "Linear",
    "re:.*self_attn.*",
    r"re:.*mlp\.down_proj$",
    "model.layers.1.mlp.up_proj",
    r"re:.*layers\.[02]\..*",
    "re:.*_proj",
)
IGNORED = (
    "lm_head",
    "re:.*lm_head",
    r"re:.*layers\.3\..*",
    "model.layers.0.self_attn.q_proj",
    r"re:.*mlp\.(gate|up)_proj$",
    "mlp",
)
CACHES = (None, None, {**_FLOAT8, "strategy": "tensor"}, {**_FLOAT8, "strategy": "attn_head"})


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.slow
def test_tensors_are_those_that_compressed_tensors_stores(
    seed: int, request: pytest.FixtureRequest
) -> None:
    """Random groups, targets, exceptions and caches: the whole state of a compressed model, by name, dtype and shape."""
    if seed >= 20 and not request.config.getoption("all"):
        pytest.skip("with --all")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    rng = random.Random(seed)
    targets = rng.sample(TARGETS, rng.randrange(1, 4))
    groups = {
        f"group_{i}": {"targets": [target], **rng.choice(GROUPS)}
        for i, target in enumerate(targets)
    }
    ignore = ["re:.*embed.*", *rng.sample(IGNORED, rng.randrange(4))]
    config = {**LLAMA, "tie_word_embeddings": False, "attention_bias": rng.random() < 0.3}
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), dtype=torch.bfloat16
    )
    recipe = QuantizationConfig(
        config_groups=groups, ignore=ignore, kv_cache_scheme=rng.choice(CACHES)
    )
    apply_quantization_config(model, recipe)
    for name, x in model.named_parameters():
        if "scale" in name:
            x.data.fill_(1)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    section = json.loads(json.dumps(compressor.quantization_config.model_dump(mode="json")))
    names = {
        torch.bfloat16: "BF16",
        torch.int32: "I32",
        torch.int64: "I64",
        torch.int8: "I8",
        torch.uint8: "U8",
        torch.float32: "F32",
    }
    names |= {torch.float8_e4m3fn: "F8_E4M3"}
    stored = {(name, names[x.dtype], tuple(x.shape)) for name, x in model.state_dict().items()}
    assert {
        (x.name, x.dtype, x.shape) for x in tensors_of({**config, "quantization_config": section})
    } == stored


# llamath names


def _write(folder: Path, section: dict[str, Any] | None, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(
        json.dumps({**LLAMA, **changes, **({"quantization_config": section} if section else {})})
    )
    return str(path)


def test_names_lists_the_tensors_of_a_quantized_model(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["mlp"]},
    )
    csv = ["names", path, "--names", "hf", "--format", "csv"]
    rows = {x["name"]: x for x in csv_rows(CliRunner().invoke(cli, csv).stdout)}
    assert [
        (rows[f"model.layers.1.{x}"]["shape"], *list(rows[f"model.layers.1.{x}"].values())[2:])
        for x in ("self_attn.k_proj.qweight", "self_attn.k_proj.qzeros", "mlp.up_proj.weight")
    ] == [("128×8", "8192", "I32"), ("4×8", "0", "I32"), ("192×128", "24576", "BF16")]
    total = llamath.count(path).parameters.total
    assert sum(int(x["parameters"]) for x in rows.values()) == total
    assert [x["name"] for x in llamath.stored_names(path, names="hf").rows()] == list(rows)
    document = json.loads(CliRunner().invoke(cli, ["names", path, "--json"]).stdout)
    rows = {x["name"]: x for x in document["quantized"]["tensors"]}
    assert rows["model.layers.{0..3}.self_attn.k_proj.scales"] | {"bytes": 0} == {
        "name": "model.layers.{0..3}.self_attn.k_proj.scales",
        "dtype": "F16",
        "shape": [4, 64],
        "copies": 4,
        "bytes": 0,
        "parameters": 0,
        "codec": "awq-4bit-g32",
        "role": "scale",
    }
    assert document["quantized"]["bytes"] == sum(x["bytes"] for x in rows.values())
    text = " ".join(CliRunner().invoke(cli, ["names", path]).stdout.split())
    assert (
        "stored as awq-4bit-g32: " in text
        and "bits per weight" in text
        and "(in modules_to_not_convert)" in text
    )


def test_names_takes_a_dtype(tmp_path: Path) -> None:
    path = _write(tmp_path, None)
    found = llamath.stored_names(path, names="hf", dtype="fp8").tensors
    scales = {x.name: (x.dtype, x.shape) for x in found}
    assert scales["model.layers.0.mlp.up_proj.weight_scale_inv"] == ("F32", (2, 1))
    types = {
        x.name: x.dtype
        for x in llamath.stored_names("llama-3.2-1b", names="gguf", dtype="q4_k_m").tensors
    }
    assert types["blk.0.attn_v.weight"] == "Q6_K" and types["output_norm.weight"] == "F32"
    done = CliRunner().invoke(cli, ["names", path, "--names", "gguf", "--dtype", "fp8"])
    assert done.exit_code == 2 and "fp8 is a format of hf files, not of gguf files" in done.stderr
    assert "quantized" in CliRunner().invoke(cli, ["names", path, "--json"]).stdout


def test_names_of_an_unknown_recipe_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, {"quant_method": "unheard-of"})
    done = CliRunner().invoke(cli, ["names", path, "--names", "hf"])
    assert done.exit_code == 2 and "unknown quantization quant_method unheard-of" in done.stderr
    text = " ".join(CliRunner().invoke(cli, ["names", path]).stdout.split())
    assert "not known: unknown quantization quant_method unheard-of" in text
    assert CliRunner().invoke(cli, ["names", path, "--names", "gguf"]).exit_code == 0
    assert (
        CliRunner().invoke(cli, ["names", path, "--names", "hf", "--dtype", "bf16"]).exit_code == 0
    )


def test_experts_of_mlx_are_stacked() -> None:
    found = {
        x.name: (x.dtype, x.shape)
        for x in tensors_of({**MIXTRAL, "quantization": {"bits": 4, "group_size": 32}})
    }
    assert found["model.layers.0.block_sparse_moe.switch_mlp.w1.weight"] == ("U32", (4, 192, 16))
    assert parse_weight_format("fp8").matrix is not None


def _meta_model(config: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config), dtype=torch.bfloat16
        )


@pytest.mark.parametrize("seed", range(8))
def test_bitsandbytes_packs_the_matrices_that_transformers_replaces(seed: int) -> None:
    pytest.importorskip("bitsandbytes")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    rng = random.Random(seed)
    config = {**LLAMA, "tie_word_embeddings": rng.random() < 0.3}
    model = _meta_model(config)
    listed = (
        rng.sample(
            ["lm_head", "q_proj", "mlp", "model.layers.1", "layers.2.self_attn", "down_proj"],
            rng.randrange(4),
        )
        or None
    )
    keys = (
        {"load_in_8bit": True}
        if rng.random() < 0.5
        else {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    )
    settings = transformers.BitsAndBytesConfig(**keys, llm_int8_skip_modules=listed)
    model = replace_with_bnb_linear(
        model, get_keys_to_not_convert(model) if listed is None else listed, settings
    )
    replaced = {
        name
        for name, x in model.named_modules()
        if type(x).__name__ in ("Linear8bitLt", "Linear4bit")
    }
    section = {"quant_method": "bitsandbytes", **keys, "llm_int8_skip_modules": listed}
    packed = {
        x.module
        for x in tensors_of({**config, "quantization_config": section})
        if x.role == "values"
    }
    assert packed == replaced - ({"lm_head"} if config["tie_word_embeddings"] else set())


@pytest.mark.slow
def test_gpt_oss_has_the_experts_of_transformers() -> None:
    pytest.importorskip("transformers")
    from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_hidden_layers": 2,
        "head_dim": 16,
        "vocab_size": 96,
    }
    config = {
        "model_type": "gpt_oss",
        **sizes,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts_per_tok": 2,
    }
    experts = Mxfp4GptOssExperts(_meta_model(config).config)
    stored = {
        x.name: x for x in tensors_of({**config, "quantization_config": {"quant_method": "mxfp4"}})
    }
    for name, x in experts.state_dict().items():
        if name.endswith(("_blocks", "_scales")):
            found = stored[f"model.layers.1.mlp.experts.{name}"]
            assert found.shape == tuple(x.shape) and found.bytes == x.numel() * x.element_size()


SECTIONS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [16, 16]},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 16},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 16},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
    "compressed-tensors": {
        "config_groups": {"a": {"targets": ["Linear"], "weights": _weights()}},
        "kv_cache_scheme": _FLOAT8,
    },
    "mxfp4": {"quant_method": "mxfp4"},
    "mlx": {"bits": 4, "group_size": 16},
}


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.slow
def test_every_family_has_the_bytes_of_its_tensors(
    name: str, request: pytest.FixtureRequest
) -> None:
    """The list of tensors and the folded sizes are computed apart; both count every weight once.

    Each configuration has one of the sections, or every one with `--all`.
    """
    configs = tiny_configs()
    if not request.config.getoption("all"):
        configs = configs[[*SECTIONS].index(name) :: len(SECTIONS)]
    assert configs
    for config in configs:
        values = config.values[0] if hasattr(config, "values") else config
        found = tensors_of({**values, "quantization_config": SECTIONS[name]})
        assert len({x.name for x in found}) == len(found)


@each("config", multimodal_configs())
@pytest.mark.slow
def test_weights_of_multimodal_models_have_the_bytes_of_their_tensors(
    config: dict[str, Any],
) -> None:
    """Towers included, whose layers may lie in parts of parts."""
    assert any(x.format for x in tensors_of({**config, "quantization_config": SECTIONS["fp8"]}))


@pytest.mark.parametrize("name", QUANTIZER_EXPORTS)
@pytest.mark.slow
def test_verify_and_ls_accept_what_auto_round_and_quark_export(name: str, tmp_path: Path) -> None:
    export = QUANTIZER_EXPORTS[name]
    config = {
        **export["config"],
        "torch_dtype": "bfloat16",
        "quantization_config": export["quantization_config"],
    }
    write_safetensors(
        tmp_path / "model.safetensors", {x.name: (x.dtype, x.shape) for x in tensors_of(config)}
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    verdict = llamath.verify(tmp_path).verdict
    assert [x.message for x in verdict.findings if x.severity != "info" and x.code != "dtype"] == []
    listing = llamath.ls(tmp_path)
    assert listing.total.parameters == llamath.count(config).parameters.total and not listing.notes


VERIFIED = {name: x for name, x in SECTIONS.items() if name not in ("mxfp4", "bitsandbytes")} | {
    "eetq": {"quant_method": "eetq"},
    "hqq": {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
    },
    "torchao": {"quant_method": "torchao", "quant_type": "int8_weight_only"},
    "bitnet": {"quant_method": "bitnet"},
    "fbgemm": {"quant_method": "fbgemm_fp8"},
    "llm.int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "smoothquant": {"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"},
    "modelopt awq": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 32},
    "mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8"},
    "awq gemv": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
    "awq fast": {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv_fast"},
    "marlin": {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "marlin"},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 32},
    "marlin-24": {
        "quant_method": "compressed-tensors",
        "format": "marlin-24",
        "config_groups": {"a": {"targets": ["Linear"], "weights": _weights(group_size=64)}},
        "ignore": ["lm_head"],
    },
    "sparse-24": {
        "quant_method": "compressed-tensors",
        "sparsity_config": {
            "format": "sparse-24-bitmask",
            "targets": ["Linear"],
            "ignore": ["lm_head"],
        },
    },
    "sparse-24 in FP8": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {
            "a": {"targets": ["Linear"], "weights": {**_FLOAT8, "strategy": "channel"}}
        },
        "ignore": ["lm_head"],
        "sparsity_config": {
            "format": "sparse-24-bitmask",
            "targets": ["Linear"],
            "ignore": ["lm_head"],
        },
    },
    "quark": {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
    },
}


@pytest.mark.parametrize("name", VERIFIED)
@pytest.mark.slow
def test_verify_and_ls_accept_the_tensors_of_a_recipe(name: str, tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": VERIFIED[name]}
    write_safetensors(
        tmp_path / "model.safetensors", {x.name: (x.dtype, x.shape) for x in tensors_of(config)}
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    verdict = llamath.verify(tmp_path).verdict
    assert verdict.ok and not [x.message for x in verdict.findings if x.severity != "info"]
    listing = llamath.ls(tmp_path)
    assert listing.total.parameters == llamath.count(config).parameters.total and not listing.notes
