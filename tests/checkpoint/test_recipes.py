"""Quantization recipes compared with published files, transformers' quantizers on the meta device, and compressed-tensors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.storage.quantized_tensors import quantized_tensors
from llamath.analysis.storage.recipe_disagreements import recipe_disagreements
from llamath.analysis.storage.weight_bytes import WeightStorage
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.quantization.recipes import Matrix, module_names, read_recipe
from llamath.checkpoint.quantization.weight_format import declared_weight_format
from llamath.cli import cli
from llamath.utils.errors import LlamathError, UnknownQuantization
from support import quantized_headers
from support.reference_data import truth

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "dtype": "bfloat16",
}


def storage_of(config: Mapping[str, Any]) -> WeightStorage:
    """Return the weights of a model as its own config stores them."""
    storage = MemoryCalculator(llamath.load(config), MemoryRequest()).storage
    assert storage is not None
    return storage


def quantized_modules(storage: WeightStorage) -> Iterator[tuple[str, str]]:
    """Yield the name and the format of every quantized matrix outside of experts."""
    for x in storage.matrices:
        if x.choice.format is not None:
            for layer in x.layers or (-1,):
                yield x.name.replace("{l}", str(layer)), x.choice.format.name


# Published files

_BNB_INT8 = {"quant_method": "bitsandbytes", "load_in_8bit": True}
PUBLISHED: dict[str, dict[str, Any]] = {
    "gleneyre2022--1chat__model": {},
    "delsakov--mcp_tests": {},
    "Arp1tMoga--fast_qwen": {},  # with a vision tower
    "jeevanchaps--Meta-Llama3.1-8B-Instruct-assessment": {"quantization_config": _BNB_INT8},
    "IrfanUruchi--Llama-3.1-8B-Computer-Networks-LLM": {"quantization_config": _BNB_INT8},
}
"""Name → the recipe, which the reference data leave out for LLM.int8()."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_equals_the_published_index(name: str) -> None:
    found = {x["name"]: x for x in truth("configs.jsonl")}[f"{name}@mirror"]["config"]
    config = {key: value for key, value in found.items() if key != "_quantized"}
    index = {x["name"]: x for x in truth("indexes.jsonl")}[f"{name}.st"]
    assert storage_of(config | PUBLISHED[name]).bytes == index["total_size"]


@pytest.mark.parametrize(
    ("bits", "group", "file_size"),
    [(3, 128, 13509984992), (4, 32, 19435090976), (8, -1, 32990628688), (8, 128, 33730582288)],
)
def test_gptq_size_equals_the_published_file(bits: int, group: int, file_size: int) -> None:
    """Its AutoGPTQ also stored a bias of zeros for each matrix, and the frequencies of RoPE; the rest is the header."""
    config = {
        "model_type": "llama",
        "hidden_size": 6656,
        "intermediate_size": 17920,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "vocab_size": 32000,
        "torch_dtype": "float16",
        "quantization_config": {
            "quant_method": "gptq",
            "bits": bits,
            "group_size": group,
            "desc_act": True,
        },
    }
    biases, frequencies = 60 * 2 * (5 * 6656 + 2 * 17920), 60 * 4 * 64
    assert 200_000 < file_size - storage_of(config).bytes - biases - frequencies < 300_000


AQLM = json.loads((Path(__file__).parents[1] / "golden" / "aqlm_values.json").read_text())


@pytest.mark.parametrize("name", AQLM)
def test_aqlm_stores_the_same_tensors(name: str) -> None:
    to = read_recipe(AQLM[name]["config"], "F16").choose(Matrix(("a.b",), "linear")).format
    assert to is not None
    dtypes = {"float16": "F16", "int8": "I8", "int16": "I16"}
    assert {x.suffix: (x.dtype, x.shape) for x in to.tensors(8, 16)} == {
        f".{end}": (dtypes[dtype], tuple(shape))
        for end, (dtype, shape, _) in AQLM[name]["stored"].items()
    }


@pytest.mark.parametrize(
    ("model", "codebooks", "bits", "gb", "elements"),
    [
        ("llama-2-7b", 1, 16, 2.4, ""),
        ("llama-2-13b", 1, 16, 4.1, ""),
        ("llama-2-70b", 1, 16, 18.8, "9.38"),
        ("llama-2-70b", 2, 8, 18.2, "17.6"),
    ],
)
def test_aqlm_sizes_are_those_of_model_cards(
    model: str, codebooks: int, bits: int, gb: float, elements: str
) -> None:
    """The cards of ISTA-DASLab's Llama-2-*-AQLM-2Bit-*-hf, and the elements that the Hub counts, in billions."""
    section = {
        "quant_method": "aqlm",
        "num_codebooks": codebooks,
        "nbits_per_codebook": bits,
        "linear_weights_not_to_quantize": ["model.embed_tokens.weight", "lm_head.weight"],
    }
    config = {**llamath.load(model).config.data, "dtype": "float16", "quantization_config": section}
    assert round(storage_of(config).bytes / 1e9, 1) == gb
    if elements:
        tensors = quantized_tensors(llamath.load(config), declared_weight_format(config))
        count = sum(prod(x.shape) for x in tensors) / 1e9
        assert f"{count:.3g}" == elements


def test_modelopt_recipe_of_a_wrapper_is_applied() -> None:
    """A ModelOpt recipe stands in the outer config and names modules with the wrapper's prefix."""
    text = {**LLAMA, "model_type": "llama"}
    recipe = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        "ignore": [
            "lm_head",
            "language_model.model.layers.0*",
            "*.mlp.down_proj",
            "model.layers.3.self_attn*",
        ],
    }
    storage = storage_of(
        {
            "model_type": "llava",
            "text_config": text,
            "vision_config": {},
            "quantization_config": recipe,
        }
    )
    everything = dict(quantized_modules(storage))
    assert set(everything.values()) == {"nvfp4"}
    names = [x for x in everything if x.startswith("language_model.")]
    towers = {
        x.split(".")[0]: sum(y.startswith(x.split(".")[0]) for y in everything)
        for x in everything
        if x not in names
    }
    assert towers == {"vision_tower": 12 * 6, "multi_modal_projector": 2}
    assert {x.split("layers.")[1].split(".")[0] for x in names if "self_attn" in x} == {
        "1",
        "2",
        *map(str, range(4, 12)),
    }
    assert not any("down_proj" in x or "lm_head" in x for x in names)
    assert len(names) == 10 * 4 + 11 * 2


def test_mixed_precision_table_is_applied_by_layer_and_expert() -> None:
    config = {
        "model_type": "mixtral",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    layers = {
        f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"}
        for i in range(2)
        for x in "qkvo"
    }
    layers["model.layers.0.block_sparse_moe.experts"] = {"quant_algo": "NVFP4", "group_size": 16}
    layers |= {
        f"model.layers.1.block_sparse_moe.experts.{e}.w1": {"quant_algo": "MXFP8"} for e in (0, 3)
    }
    recipe = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers},
    }
    sums = {x.codec: x for x in storage_of({**config, "quantization_config": recipe}).sums()}
    attention, expert = 64 * 64 * 2 + 64 * 32 * 2, 64 * 96
    assert sums["fp8"].bytes == 2 * (attention + 4 * 8)
    assert sums["nvfp4"].bytes == 12 * (expert // 2 + expert // 16 + 8)
    assert sums["mxfp8"].bytes == 2 * (expert + expert // 32)


def test_modelopt_file_next_to_a_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    recipe = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(recipe))
    for path in (tmp_path, tmp_path / "config.json"):
        storage = MemoryCalculator(llamath.load(path), MemoryRequest()).storage
        assert (
            storage is not None
            and storage.packer.name == "fp8"
            and len(dict(quantized_modules(storage))) == 12 * 7
        )


@pytest.mark.parametrize(("group", "width"), [(32, 12), (64, 6), (128, 3)])
def test_awq_layouts_have_the_shapes_of_autoawq(group: int, width: int) -> None:
    """Its zeros of groups of 64 and 32 fill an even number of words, and a multiple of four."""
    out, into = 256, 2304
    shapes = {
        "gemm": {
            ".qweight": (into, 32),
            ".qzeros": (into // group, 32),
            ".scales": (into // group, out),
        },
        "gemv": {
            ".qweight": (out, into // 8),
            ".qzeros": (out, width),
            ".scales": (out, 8 * width),
        },
        "gemv_fast": {
            ".qweight": (out // 4, into),
            ".scales": (8 * width, out),
            ".scaled_zeros": (8 * width, out),
        },
    }
    for version, expected in shapes.items():
        section = {"quant_method": "awq", "bits": 4, "group_size": group, "version": version}
        to = read_recipe(section).choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
        assert to is not None and {x.suffix: x.shape for x in to.tensors(out, into)} == expected


# transformers' quantizers


def _random_patterns(rng: random.Random) -> list[str]:
    known = [
        "lm_head",
        "q_proj",
        "mlp",
        "self_attn.k_proj",
        "model.layers.1",
        "model.layers.1.mlp",
        "model.layers.*.self_attn",
        "gate",
    ]
    known += [
        f"model.layers.{rng.randrange(12)}.mlp.up_proj",
        f"layers.{rng.randrange(12)}.self_attn",
        "mlp.gate",
        "down_proj",
        "o_proj",
    ]
    return rng.sample(known, rng.randrange(5))


@pytest.mark.parametrize("seed", range(24))
def test_fp8_equals_the_tensors_of_transformers(seed: int) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.finegrained_fp8 import (
        replace_with_fp8_embedding,
        replace_with_fp8_linear,
    )
    from transformers.quantizers.base import get_keys_to_not_convert

    rng = random.Random(seed)
    sizes = {
        "hidden_size": 16 * rng.randrange(2, 9),
        "intermediate_size": rng.randrange(20, 200),
        "vocab_size": rng.randrange(50, 99),
    }
    config = {
        **LLAMA,
        **sizes,
        "tie_word_embeddings": rng.random() < 0.3,
        "attention_bias": rng.random() < 0.3,
    }
    listed = _random_patterns(rng) if rng.random() < 0.8 else None
    section = {
        "quant_method": "fp8",
        "weight_block_size": rng.choice([None, [128, 128], [32, 16]]),
        "activation_scheme": rng.choice(["dynamic", "static"]),
        "modules_to_not_convert": listed,
        "modules_to_convert": rng.choice(
            [None, ["embed_tokens"], ["model.embed_tokens"], ["tokens", "nothing"], ["q_proj"]]
        ),
    }
    config["tie_word_embeddings"] = (
        config["tie_word_embeddings"] and not section["modules_to_convert"]
    )
    if seed % 6 == 5:
        section |= {
            "quant_method": "mxfp8",
            "weight_block_size": [1, 32],
            "scale_fmt": "ue8m0",
            "activation_scheme": "dynamic",
        }
    settings = transformers.FineGrainedFP8Config(
        **{k: v for k, v in section.items() if k != "quant_method"}
    )
    own = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(own, dtype=torch.bfloat16)
    skipped = get_keys_to_not_convert(model) if listed is None else listed
    replace_with_fp8_embedding(model, section["modules_to_convert"] or [], skipped)
    model = replace_with_fp8_linear(
        model, modules_to_not_convert=skipped, quantization_config=settings, pre_quantized=True
    )
    converted = {
        name
        for name, x in model.named_modules()
        if type(x).__name__ in ("FP8Linear", "FP8Embedding")
    }
    storage = storage_of({**config, "quantization_config": section})
    assert {name for name, _ in quantized_modules(storage)} == converted - (
        {"lm_head"} if own.tie_word_embeddings else set()
    )
    state = {
        name: x
        for name, x in model.state_dict().items()
        if not (own.tie_word_embeddings and name.startswith("lm_head"))
    }
    # a bias stays in the dtype of the model, which FP8Linear creates in float32
    assert storage.bytes == sum(
        x.numel() * (2 if name.endswith("bias") else x.element_size()) for name, x in state.items()
    )


@pytest.mark.parametrize("method", ["fbgemm_fp8", "bitnet"])
def test_other_quantizers_of_transformers_have_the_same_tensors(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations import bitnet, fbgemm_fp8

    monkeypatch.setattr(fbgemm_fp8, "get_quantize_fp8_per_row", lambda: None)  # a kernel for GPUs
    listed = ["lm_head", "model.layers.3.mlp", "o_proj"]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**LLAMA), dtype=torch.bfloat16
        )
        if method == "bitnet":
            settings = transformers.BitNetQuantConfig(modules_to_not_convert=listed)
            model = bitnet.replace_with_bitnet_linear(model, listed, settings)
        else:
            settings = transformers.FbgemmFp8Config(modules_to_not_convert=listed)
            model = fbgemm_fp8.replace_with_fbgemm_fp8_linear(
                model, listed, settings, pre_quantized=True
            )
    storage = storage_of(
        {**LLAMA, "quantization_config": {"quant_method": method, "modules_to_not_convert": listed}}
    )
    packed = {
        name: x
        for name, x in model.state_dict().items()
        if name.endswith((".weight", "weight_scale"))
    }
    sizes = {
        name: (2 if name.endswith("_scale") and method == "bitnet" else x.element_size())
        for name, x in packed.items()
    }
    assert storage.bytes == sum(x.numel() * sizes[name] for name, x in packed.items())
    assert len(dict(quantized_modules(storage))) == 12 * 7 - 3 - 12


def test_eetq_has_the_shapes_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers.integrations.eetq import EetqLinear

    module = EetqLinear(96, 64, dtype=torch.int8)
    to = (
        read_recipe({"quant_method": "eetq"})
        .choose(Matrix(("model.layers.0.mlp.up_proj",), "linear"))
        .format
    )
    assert to is not None
    sizes = {x.suffix[1:]: (x.shape, x.bytes) for x in to.tensors(64, 96)}
    assert sizes == {
        name: (tuple(x.shape), x.numel() * x.element_size())
        for name, x in module.state_dict().items()
    }


def _names_of_dtypes() -> dict[Any, str]:
    torch = pytest.importorskip("torch")
    names = {
        torch.bfloat16: "BF16",
        torch.float16: "F16",
        torch.float32: "F32",
        torch.int8: "I8",
        torch.uint8: "U8",
    }
    return names | {torch.int32: "I32", torch.int64: "I64", torch.float8_e4m3fn: "F8_E4M3"}


@pytest.mark.parametrize(
    ("bits", "group", "mode"),
    [
        *((bits, 64, "affine") for bits in (2, 3, 4, 5, 6, 8)),
        (4, 32, "mxfp4"),
        (8, 32, "mxfp8"),
        (4, 16, "nvfp4"),
    ],
)
def test_mlx_stores_the_same_tensors(bits: int, group: int, mode: str) -> None:
    mx = pytest.importorskip("mlx.core")
    parts = mx.quantize(
        mx.zeros((64, 192)).astype(mx.bfloat16), group_size=group, bits=bits, mode=mode
    )
    to = (
        read_recipe({"bits": bits, "group_size": group, "mode": mode}, is_mlx=True)
        .choose(Matrix(("a.b",), "linear"))
        .format
    )
    assert to is not None
    names = {mx.uint32: "U32", mx.bfloat16: "BF16", mx.uint8: "U8"}
    assert [(x.dtype, x.shape) for x in to.tensors(64, 192)] == [
        (names[x.dtype], x.shape) for x in parts
    ]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("bits", "group"), [(1, 32), (2, 16), (3, 64), (4, 64), (8, 128)])
def test_hqq_stores_the_same_tensors(bits: int, group: int, axis: int) -> None:
    quantize = pytest.importorskip("hqq.core.quantize")
    torch = pytest.importorskip("torch")
    params = quantize.BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis)
    layer = torch.nn.Linear(256, 128, bias=False, dtype=torch.bfloat16)
    state = quantize.HQQLinear(
        layer, params, compute_dtype=torch.bfloat16, device="cpu"
    ).state_dict()
    section = {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": params["weight_quant_params"]},
    }
    to = read_recipe(section).choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
    assert to is not None
    names = _names_of_dtypes()
    expected = {
        name: (names[x.dtype], tuple(x.shape))
        for name, x in state.items()
        if name != "offload_meta"
    }
    assert {x.suffix[1:]: (x.dtype, x.shape) for x in to.tensors(128, 256)} == expected


@pytest.mark.parametrize(
    ("words", "shape"),
    [("uint8", ("U8", (96, 1))), ("bfloat16", ("BF16", (48, 1))), ("float32", ("F32", (24, 1)))],
)
def test_bitsandbytes_packs_into_the_declared_dtype(
    words: str, shape: tuple[str, tuple[int, ...]]
) -> None:
    """FSDP needs 4-bit weights in the dtype of the others; bitsandbytes 0.50 packs 16 × 12 weights into these tensors."""
    section = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_storage": words,
    }
    to = read_recipe(section).choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
    assert to is not None
    values = next(x for x in to.tensors(16, 12) if x.suffix == ".weight")
    assert (values.dtype, values.shape) == shape
    bnb = pytest.importorskip("bitsandbytes")
    import torch

    layer = bnb.nn.Linear4bit(12, 16, bias=False, quant_storage=getattr(torch, words)).to("cpu")
    assert tuple(layer.weight.shape) == shape[1] and layer.weight.dtype == getattr(torch, words)


def test_transforms_in_the_weights_store_nothing() -> None:
    plain = {
        key: x for key, x in _with_transform("weight_input").items() if key != "transform_config"
    }
    sizes = [
        storage_of({**LLAMA, "quantization_config": x}).bytes
        for x in (_with_transform("weight_input"), plain)
    ]
    assert sizes[0] == sizes[1]


def test_torchao_quantizes_the_head_where_its_config_says_so() -> None:
    section = {
        "quant_method": "torchao",
        "quant_type": "int8_weight_only",
        "modules_to_not_convert": ["lm_head", "up_proj"],
    }
    untied = {**LLAMA, "tie_word_embeddings": False}
    names = [
        dict(
            quantized_modules(
                storage_of(
                    {
                        **untied,
                        "quantization_config": {**section, "include_input_output_embeddings": x},
                    }
                )
            )
        )
        for x in (False, True)
    ]
    assert names[1].keys() - names[0].keys() == {"lm_head"} and not any(
        "up_proj" in x for x in names[1]
    )


@pytest.mark.parametrize(
    "name",
    [
        "Int8WeightOnlyConfig",
        "Int8DynamicActivationInt8WeightConfig",
        "Float8WeightOnlyConfig",
        "Float8DynamicActivationFloat8WeightConfig",
    ],
)
def test_torchao_stores_the_same_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    quantization = pytest.importorskip("torchao.quantization")
    monkeypatch.setattr(
        "torchao.quantization.quant_api._check_hardware_support", lambda _: None
    )  # products need a GPU
    from torchao.core.config import config_to_dict
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    settings = getattr(quantization, name)()
    model = torch.nn.Sequential(torch.nn.Linear(96, 64, bias=False, dtype=torch.bfloat16))
    quantization.quantize_(model, settings)
    state, _ = flatten_tensor_state_dict(model.state_dict())
    section = {"quant_method": "torchao", "quant_type": {"default": config_to_dict(settings)}}
    to = read_recipe(section).choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
    assert to is not None
    names = _names_of_dtypes()
    expected = {key.removeprefix("0"): (names[x.dtype], tuple(x.shape)) for key, x in state.items()}
    assert {x.suffix: (x.dtype, x.shape) for x in to.tensors(64, 96)} == expected


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_torchao_packs_int4_into_these_tiles(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    tiles = pytest.importorskip(
        "torchao.quantization.quantize_.workflows.int4.int4_tile_packed_to_4d_tensor"
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    weight = torch.empty(96, 1536, dtype=torch.bfloat16, device="meta")
    theirs = tiles.Int4TilePackedTo4dTensor.from_hp(weight, [1, group])
    keys = {"group_size": group, "int4_packing_format": {"_data": "tile_packed_to_4d"}}
    section = {
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": keys}},
    }
    to = read_recipe(section).choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
    assert to is not None
    names = _names_of_dtypes()
    expected = {
        f"._weight_{x}": (names[y.dtype], tuple(y.shape))
        for x in theirs.tensor_data_names
        for y in [getattr(theirs, x)]
    }
    assert {x.suffix: (x.dtype, x.shape) for x in to.tensors(96, 1536)} == expected


# compressed-tensors


def _weights(**keys: Any) -> dict[str, Any]:
    return {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": 32,
        "dynamic": False,
    } | keys


COMPRESSED = {
    "w4a16": ("pack-quantized", _weights(), None),
    "w4a16-asymmetric": ("pack-quantized", _weights(symmetric=False), None),
    "w8a16-rows": (
        "pack-quantized",
        _weights(num_bits=8, strategy="channel", group_size=None),
        None,
    ),
    "w8a8": (
        "int-quantized",
        _weights(num_bits=8, strategy="channel", group_size=None),
        {"num_bits": 8, "dynamic": True},
    ),
    "fp8-tensor": (
        "float-quantized",
        _weights(num_bits=8, type="float", strategy="tensor", group_size=None),
        {"num_bits": 8, "type": "float"},
    ),
    "fp8-rows": (
        "float-quantized",
        _weights(num_bits=8, type="float", strategy="channel", group_size=None),
        None,
    ),
    "fp8-blocks": (
        "float-quantized",
        _weights(
            num_bits=8, type="float", strategy="block", block_structure=[32, 16], group_size=None
        ),
        {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 16, "dynamic": True},
    ),
    "nvfp4-w4a16": (
        "nvfp4-pack-quantized",
        _weights(type="float", strategy="tensor_group", group_size=16),
        None,
    ),
    "mxfp4": (
        "mxfp4-pack-quantized",
        _weights(type="float", group_size=32, scale_dtype="torch.uint8"),
        None,
    ),
    "mxfp8": (
        "mxfp8-quantized",
        _weights(num_bits=8, type="float", group_size=32, scale_dtype="torch.uint8"),
        None,
    ),
}
"""Format, weights and activations of a group."""


SPARSE = {
    ("marlin-24", 4, 128): {
        "weight_packed": ("I32", (16, 512)),
        "scale_packed": ("F16", (4, 256)),
        "meta": ("I16", (16, 512)),
    },
    ("marlin-24", 4, None): {
        "weight_packed": ("I32", (16, 512)),
        "scale_packed": ("F16", (1, 256)),
        "meta": ("I16", (16, 512)),
    },
    ("marlin-24", 8, 128): {
        "weight_packed": ("I32", (16, 1024)),
        "scale_packed": ("F16", (4, 256)),
        "meta": ("I16", (16, 512)),
    },
    ("sparse-24", 16, None): {
        "compressed": ("BF16", (256, 256)),
        "bitmask": ("U8", (256, 64)),
        "shape": ("I64", (2, 1)),
    },
    ("sparse-24", 8, None): {
        "compressed": ("F8_E4M3", (256, 256)),
        "bitmask": ("U8", (256, 64)),
        "shape": ("I64", (2, 1)),
    },
}
"""Format, bits and group size → what compressed-tensors 0.9.4, the last with these formats, stores for a matrix of 256 × 512."""


@pytest.mark.parametrize(("kind", "bits", "group"), SPARSE)
def test_sparse_formats_are_those_of_compressed_tensors(
    kind: str, bits: int, group: int | None
) -> None:
    weights = _weights(num_bits=bits, strategy="group" if group else "channel", group_size=group)
    section: dict[str, Any] = {
        "format": kind,
        "config_groups": {"a": {"targets": ["Linear"], "weights": weights}},
    }
    if kind == "sparse-24":
        section = {"sparsity_config": {"format": "sparse-24-bitmask", "targets": ["Linear"]}}
    if (kind, bits) == ("sparse-24", 8):
        section |= {
            "format": "float-quantized",
            "config_groups": {"a": {"targets": ["Linear"], "weights": weights | {"type": "float"}}},
        }
    to = (
        read_recipe({"quant_method": "compressed-tensors", **section})
        .choose(Matrix(("model.layers.0.mlp.up_proj",), "linear"))
        .format
    )
    assert to is not None
    found = {x.suffix[1:]: (x.dtype, x.shape) for x in to.tensors(256, 512)}
    assert {name: found[name] for name in SPARSE[kind, bits, group]} == SPARSE[kind, bits, group]
    assert found.keys() - SPARSE[kind, bits, group].keys() <= {"weight_scale"}


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_tensors_stores_the_same_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.lifecycle import initialize_module_for_quantization

    kind, weights, activations = COMPRESSED[name]
    scheme = QuantizationScheme(
        targets=["Linear"], weights=weights, input_activations=activations, format=kind
    )
    layer = torch.nn.Linear(96, 64, bias=False, dtype=torch.bfloat16)
    initialize_module_for_quantization(layer, scheme)
    state = {key: x.data for key, x in layer.state_dict().items()}
    for key in state:
        if key.endswith("scale"):
            state[key] = torch.ones_like(state[key])
    stored = BaseCompressor.get_value_from_registry(kind).compress(state, scheme)
    section = {
        "quant_method": "compressed-tensors",
        "format": kind,
        "config_groups": {"a": {"targets": ["Linear"]}},
    }
    section["config_groups"]["a"] |= {"weights": weights, "input_activations": activations}
    recipe = read_recipe(section)
    from llamath.checkpoint.quantization.recipes import Matrix

    to = recipe.choose(Matrix(("model.layers.0.mlp.up_proj",), "linear")).format
    assert to is not None
    ours = {
        x.suffix[1:]: (DTYPES[x.dtype].size(prod(x.shape)), prod(x.shape))
        for x in to.tensors(64, 96)
    }
    assert ours == {key: (x.numel() * x.element_size(), x.numel()) for key, x in stored.items()}


@pytest.mark.parametrize("seed", range(20))
def test_compressed_tensors_matches_the_same_modules(seed: int) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.utils.match import match_named_modules

    rng = random.Random(seed)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**LLAMA)
        )
    ignore = rng.sample(
        [
            *(
                "lm_head",
                "re:.*lm_head",
                "re:.*self_attn.*",
                r"re:.*layers\.1\..*",
                "model.layers.1",
                "model.layers.1.mlp.up_proj",
            ),
            *("q_proj", r"re:.*mlp\.(gate|up)_proj$", "re:model.layers.1.*down_proj", "Embedding"),
            f"model.layers.{rng.randrange(12)}.self_attn.o_proj",
        ],
        rng.randrange(5),
    )
    targets = rng.choice(
        [
            ["Linear"],
            ["Linear"],
            [r"re:.*self_attn\..*", "model.layers.2.mlp.up_proj"],
            ["re:.*_proj$", "Embedding"],
        ]
    )
    weights = _weights(num_bits=8, strategy="channel", group_size=None)
    section = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ignore}
    section["config_groups"] = {
        "group_0": {"targets": targets, "weights": weights, "input_activations": None}
    }
    storage = storage_of({**LLAMA, "quantization_config": section})
    assert {name for name, _ in quantized_modules(storage)} == {
        name for name, _ in match_named_modules(model, targets, ignore)
    }


# Names, exceptions and refusals


@pytest.mark.parametrize(
    ("section", "quantized"),
    [
        (
            {"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["mlp"]},
            12 * 4,
        ),
        (
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 32,
                "dynamic": {r"-:model\.layers\.1\..*": {}},
            },
            11 * 7,
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": True}, 12 * 7 + 1),
        (
            {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 32,
                "modules_in_block_to_quantize": [["self_attn.q_proj"]],
            },
            12,
        ),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "llm_int8_skip_modules": ["lm_head", "up_proj"],
            },
            12 * 6,
        ),
        (
            {
                "quant_method": "auto-round",
                "bits": 4,
                "group_size": 32,
                "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 16}},
            },
            12 * 7 - 1,
        ),
        ({"quant_method": "eetq"}, 12 * 7),
        (
            {
                "quant_method": "hqq",
                "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
            },
            12 * 7,
        ),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, 12 * 7),
        (
            {"quant_method": "quark", "exclude": ["lm_head", "re:model.layers.0.*"]}
            | {"global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}},
            11 * 7,
        ),
        ({"bits": 4, "group_size": 32, "model.layers.0.mlp.up_proj": False}, 12 * 7 + 2 - 1),
        ({"bits": 4, "group_size": 64}, 12 * 6 + 2),
    ],
)
def test_exceptions_stay_unquantized(section: dict[str, Any], quantized: int) -> None:
    storage = storage_of({**LLAMA, "quantization_config": section})
    assert len(list(quantized_modules(storage))) == quantized
    assert all(x.choice.reason for x in storage.matrices if x.choice.format is None)


@pytest.mark.parametrize(
    "keys",
    [
        {"num_hidden_layers": 10**9},
        {"model_type": "mixtral", "num_local_experts": 10**9, "num_experts_per_tok": 2},
    ],
)
def test_hostile_sizes_are_refused_quickly(keys: dict[str, Any]) -> None:
    section = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 32,
        "dynamic": {r"-:.*experts\.1\..*": {}},
    }
    with pytest.raises(
        llamath.LlamathError, match="are too many to match with the 1 patterns of the recipe"
    ):
        storage_of({**LLAMA, **keys, "quantization_config": section})
    assert (
        storage_of({**LLAMA, **keys, "quantization_config": {"quant_method": "fp8"}}).packer.name
        == "fp8-tensor"
    )


def test_overrides_change_bits_of_single_layers() -> None:
    section = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 32,
        "dynamic": {r"+:.*layers\.3\..*mlp.*": {"bits": 8, "group_size": 16}},
    }
    names = dict(quantized_modules(storage_of({**LLAMA, "quantization_config": section})))
    assert {x for x, to in names.items() if to == "gptq-8bit-g16"} == {
        f"model.layers.3.mlp.{x}_proj" for x in ("gate", "up", "down")
    }


def _with_transform(location: str) -> dict[str, Any]:
    """A recipe of compressed-tensors whose linear layers are rotated."""
    rotation = {
        "type": "hadamard",
        "apply": [
            {"targets": ["Linear"], "location": location, "inverse": False, "ignore": ["lm_head"]}
        ],
    }
    groups = {"a": {"targets": ["Linear"], "weights": _weights()}}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": groups,
        "transform_config": {"config_groups": {"u": rotation}},
    }


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"quant_method": "vptq"}, "quant_method vptq in quantization_config cannot be sized"),
        ({"quant_method": "unheard-of"}, "unknown quantization quant_method unheard-of"),
        ({"bits": 4}, "without a quant_method"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "unknown quantization quant_algo FP3"),
        ({"quant_method": "compressed-tensors"}, "without config_groups"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {}}},
                "sparsity_config": {"format": "sparse-bitmask"},
            },
            "sparse",
        ),
        ({"quant_method": "awq", "bits": 5}, "bits should be one of 4, found 5"),
        ({"quant_method": "awq", "q_group_size": {}}, "q_group_size should be an integer"),
        ({"quant_method": "awq", "q_group_size": 1.5}, "q_group_size should be an integer"),
        (
            {
                "quant_method": "torchao",
                "quant_type": "int4_weight_only",
                "quant_type_kwargs": {"group_size": -1},
            },
            "torchao group_size -1",
        ),
        (
            {"quant_method": "aqlm", "nbits_per_codebook": 24},
            "nbits_per_codebook should be from 1 to 16, found 24",
        ),
        ({"quant_method": "gptq", "bits": "4"}, "bits should be an integer, found '4'"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "two positive integers"),
        ({"quant_method": "torchao", "quant_type": "uint1"}, "torchao quant_type uint1"),
        ({"quant_method": "fp8", "modules_to_not_convert": [3]}, "should be a list of names"),
        ({"quant_method": "fp8", "modules_to_convert": [3]}, "should be a list of names"),
        (
            {"quant_method": "mxfp8", "weight_block_size": [128, 128]},
            "mxfp8 with weight_block_size",
        ),
        (
            {"quant_method": "fp8", "modules_to_not_convert": [r"(a)\1"]},
            "a back reference at character",
        ),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"(": {}}}, "cannot be matched: missing"),
        ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"type": "posit"}}},
            },
            "type posit",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": "16"},
            "group_size 16 of NVFP4",
        ),
        ({"quant_method": "awq", "format": "llm-awq"}, "AWQ version llm-awq"),
        ({"quant_method": "awq", "backend": "llm-awq"}, "AWQ version llm-awq"),
        (
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "bitblas"},
            "GPTQ checkpoint_format bitblas",
        ),
        ({"quant_method": "gptq", "bits": 4, "format": "qqq"}, "GPTQ checkpoint_format qqq"),
        ({"quant_method": "gptq", "bits": 4, "pack_dtype": "int16"}, "GPTQ pack_dtype int16"),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_quant_storage": "uint4",
            },
            "bnb_4bit_quant_storage should be one of uint8, .*, found 'uint4'",
        ),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_quant_type": "nf5",
            },
            "bnb_4bit_quant_type should be nf4 or fp4, found 'nf5'",
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True},
            "load_in_4bit and load_in_8bit exclude each other",
        ),
        (_with_transform("input"), "transform_config with hadamard at input"),
        (_with_transform("k_cache"), "transform_config with hadamard at k_cache"),
    ],
)
def test_unknown_recipes_are_refused_by_name(section: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnknownQuantization, match=problem.replace("(", r"\(")):
        read_recipe(section)


_WEIGHTS = {
    "num_bits": 4,
    "type": "int",
    "group_size": 128,
    "strategy": "group",
    "actorder": "group",
}
RECIPES: tuple[dict[str, Any], ...] = (
    {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"],
        "quantized_layers": {"a": {}},
    },
    {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "version": "gemm",
        "modules_to_not_convert": ["a"],
    },
    {
        "quant_method": "gptq",
        "bits": 4,
        "dynamic": {"+:.*a": {"bits": 8}},
        "modules_in_block_to_quantize": [["a", "b"]],
    },
    {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "llm_int8_skip_modules": ["a"],
    },
    {
        "quant_method": "modelopt",
        "quantization": {
            "quant_algo": "NVFP4",
            "exclude_modules": ["a*"],
            "quantized_layers": {"a": {}},
        },
    },
    {
        "quant_method": "modelopt",
        "config_groups": {
            "a": {"weights": {"type": "float", "num_bits": 4}, "targets": ["Linear"]}
        },
    },
    {
        "quant_method": "compressed-tensors",
        "config_groups": {"a": {"targets": ["Linear"], "weights": _WEIGHTS}},
        "ignore": ["lm_head"],
    },
    {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "extra_config": {"a.b": {"bits": 8}},
        "block_name_to_quantize": "a",
    },
    {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "int8", "qscheme": "per_tensor"}},
        "exclude": ["a"],
    },
    {"quant_method": "mlx", "bits": 4, "group_size": 64, "model.a": {"bits": 8, "group_size": 32}},
    {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
        "skip_modules": ["a"],
    },
    {
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}},
    },
    {
        "quant_method": "aqlm",
        "num_codebooks": 1,
        "nbits_per_codebook": 16,
        "linear_weights_not_to_quantize": ["lm_head.weight"],
    },
)
WRONG_VALUES = (None, True, 0, -1, 1.5, "a", "(", [], {}, [1], [[{}]], {"a": 1}, 10**30)


def replaced_values(section: Any, wrong: Any) -> Iterator[Any]:
    """Yield the section with each value inside it replaced once."""
    yield wrong
    if isinstance(section, dict):
        yield from (
            {**section, key: x}
            for key, value in section.items()
            for x in replaced_values(value, wrong)
        )
    elif isinstance(section, list):
        yield from (
            [*section[:i], x, *section[i + 1 :]]
            for i, value in enumerate(section)
            for x in replaced_values(value, wrong)
        )


@pytest.mark.parametrize("section", RECIPES, ids=lambda x: x["quant_method"])
def test_malformed_recipes_are_read_or_refused(section: dict[str, Any]) -> None:
    matrices = [
        Matrix(module_names("model.layers.1.mlp.up_proj"), kind)
        for kind in ("linear", "expert", "head", "embedding", "router")
    ]
    method = section["quant_method"]
    num_read = 0
    for wrong in WRONG_VALUES:
        for keys in replaced_values(
            {key: value for key, value in section.items() if key != "quant_method"}, wrong
        ):
            if isinstance(keys, dict):
                with suppress(LlamathError):
                    recipe = read_recipe({"quant_method": method} | keys, is_mlx=method == "mlx")
                    assert all(recipe.choose(x).format or recipe.choose(x).reason for x in matrices)
                    num_read += 1
    assert num_read


def test_fp8_tables_are_sized_or_refused() -> None:
    tiny = json.loads(
        (Path(__file__).parents[1] / "tiny_multimodal" / "qwen4_exp.json").read_text()
    )["tables of n-grams, indexers"]
    recipe = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    sizes = [
        storage_of({**tiny, "quantization_config": {**recipe, **x}}).bytes
        for x in ({}, {"modules_to_convert": ["embed_tokens"]})
    ]
    rows = tiny["text_config"]["vocab_size"] * tiny["text_config"]["hidden_size"]
    assert sizes[0] - sizes[1] == rows - 4
    with pytest.raises(UnknownQuantization, match="table in shards"):
        storage_of(
            {**tiny, "quantization_config": {**recipe, "modules_to_convert": ["ngram_embedding"]}}
        )


def test_unknown_recipe_does_not_matter_with_a_dtype(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({**LLAMA, "quantization_config": {"quant_method": "vptq"}})
    )
    assert CliRunner().invoke(cli, ["count", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(cli, ["memory", str(tmp_path), "--context", "4k"]).exit_code == 2
    assert (
        CliRunner()
        .invoke(cli, ["memory", str(tmp_path), "--context", "4k", "--dtype", "bf16"])
        .exit_code
        == 0
    )


def test_memory_tells_what_stays_unquantized(tmp_path: Path) -> None:
    section = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp"],
    }
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": section}))
    done = CliRunner().invoke(cli, ["memory", str(tmp_path), "--context", "4k"])
    text = " ".join(done.stdout.split())
    assert (
        "fp8 recipe" in text
        and "bits per weight; fp8 (FP8, a scale for each block of 128×128): 81 matrices" in text
    )
    assert (
        "lm_head, in layer 0: mlp.gate_proj, mlp.up_proj, mlp.down_proj (in modules_to_not_convert)"
        in text
    )


def test_bits_per_weight_are_exact() -> None:
    storage = storage_of({**LLAMA, "quantization_config": {"quant_method": "mxfp4"}})
    assert Fraction(storage.bits) == 16  # without experts nothing is packed


# verify


def _checkpoint(folder: Path, section: dict[str, Any], headers: Iterator[Any]) -> Any:
    from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
    from support.sparse_checkpoints import write_safetensors

    config = json.loads(json.dumps(dict(llamath.load("smollm2-135m").config.data)))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": section}))
    write_safetensors(
        folder / "model.safetensors", {name: (dtype, shape) for name, dtype, shape in headers}
    )
    return verify_checkpoint(str(folder)).verdict


def test_verify_finds_matrices_that_contradict_the_recipe(tmp_path: Path) -> None:
    section = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.3.mlp"],
    }
    plain = quantized_headers.plain("smollm2-135m")

    def headers(*unquantized: str) -> Iterator[Any]:
        for x in plain:
            kept = any(part in x[0] for part in unquantized)
            yield from [x] if kept else quantized_headers.packed([x], quantized_headers.fp8_blocks)

    assert _checkpoint(tmp_path, section, headers("layers.3.mlp")).ok
    verdict = _checkpoint(tmp_path, section, headers("layers.3.mlp", "layers.5.self_attn.k_proj"))
    (found,) = [x for x in verdict.findings if x.severity == "warning"]
    assert (
        found.code == "recipe_plain"
        and "1 matrix is not quantized, though the fp8 recipe says so" in found.message
    )
    assert found.tensors == ("model.layers.5.self_attn.k_proj.weight",)
    verdict = _checkpoint(
        tmp_path, section, headers("layers.3.mlp.up_proj", "layers.3.mlp.down_proj")
    )
    (found,) = [x for x in verdict.findings if x.severity == "warning"]
    assert (
        found.code == "recipe_excluded"
        and "leaves them out (in modules_to_not_convert)" in found.message
    )


def test_verify_finds_missing_input_scales(tmp_path: Path) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}

    def write(name: str, out: int, into: int) -> Iterator[Any]:
        yield f"{name}.weight", "F8_E4M3", (out, into)
        yield f"{name}.weight_scale", "F32", ()
        if not name.endswith("layers.7.mlp.up_proj"):
            yield f"{name}.input_scale", "F32", ()

    verdict = _checkpoint(
        tmp_path, section, quantized_headers.packed(quantized_headers.plain("smollm2-135m"), write)
    )
    (found,) = [x for x in verdict.findings if x.severity == "warning"]
    assert (
        found.code == "missing_scale"
        and "without input_scale, which all others have" in found.message
    )
    assert found.tensors == ("model.layers.7.mlp.up_proj.weight",)


FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def test_experts_in_fp4_agree_with_the_fp8_recipe() -> None:
    """DeepSeek-V4 stores its experts in FP4, and its other matrices in FP8."""
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
    assert list(recipe_disagreements(section, ["fp8", "mxfp4"])) == []
    assert "weights of awq" in next(recipe_disagreements(section, ["fp8", "awq"]))


@pytest.mark.parametrize(
    ("packed", "section", "message"),
    [
        (False, FP8_BLOCKS, "no tensor is quantized, though the config has the fp8 recipe"),
        (
            True,
            None,
            "210 matrices are quantized (fp8), though the config declares no quantization",
        ),
        (
            True,
            {"quant_method": "unheard-of"},
            "the recipe cannot be checked: unknown quantization quant_method unheard-of",
        ),
    ],
)
def test_a_recipe_that_contradicts_the_files_is_told(
    packed: bool, section: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    plain = quantized_headers.plain("smollm2-135m")
    verdict = _checkpoint(
        tmp_path,
        section or {},
        quantized_headers.packed(plain, quantized_headers.fp8_blocks) if packed else iter(plain),
    )
    if section is None:
        config = json.loads((tmp_path / "config.json").read_text())
        del config["quantization_config"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        verdict = llamath.verify(tmp_path).verdict
    assert message in " ".join(x.message for x in verdict.findings)
    assert verdict.ok is (section is not None and section["quant_method"] == "unheard-of")
    for command in ("count", "memory", "fit"):
        done = CliRunner().invoke(
            cli,
            [command, str(tmp_path), "--brief", *(["--on", "3090"] if command == "fit" else [])],
        )
        assert done.exit_code == 0 and message.split("(")[0].strip() in " ".join(
            done.stderr.split()
        ), command


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        (
            "quantize_config.json",
            {"bits": 4, "group_size": 128, "desc_act": True, "sym": True},
            "gptq-4bit-g128",
        ),
        (
            "quantize_config.json",
            {"bits": 4, "group_size": 64, "quant_method": "awq", "version": "gemv"},
            "awq-4bit-g64",
        ),
        (
            "quant_config.json",
            {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"},
            "awq-4bit-g64",
        ),
    ],
)
def test_recipes_in_files_of_their_own_are_read(
    name: str, keys: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """AutoGPTQ and AutoAWQ wrote them there before transformers had a section for them."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / name).write_text(json.dumps(keys))
    storage = MemoryCalculator(llamath.load(str(tmp_path)), MemoryRequest()).storage
    assert storage is not None and storage.packer.name == expected
    (tmp_path / name).write_text(json.dumps({"bits": 4, "quant_method": "unheard-of"}))
    assert CliRunner().invoke(cli, ["memory", str(tmp_path)]).exit_code == 2


def test_memory_tells_the_size_of_mtp_layers_and_scales() -> None:
    report = llamath.memory("deepseek-v3", context=4096)
    (mtp,) = report.not_loaded
    assert mtp.bytes == 15_424_227_552 and "11,717,511,392 without copies" in mtp.note
    assert any(
        "files that store them in BF16 are 81,676,464 bytes smaller" in x for x in report.notes
    )
    assert report.weights + mtp.bytes == 688_574_839_360
    hostile = llamath.memory(
        dict(llamath.load("deepseek-v3").config.data) | {"num_nextn_predict_layers": 10**9},
        context=4096,
    )
    assert "not counted: 1,000,000,000 layers for multi-token prediction" in hostile.notes
    qwen = dict(llamath.load("llama-3.2-1b").config.data) | {"mtp_num_hidden_layers": 2}
    notes = llamath.memory(qwen, context=4096).notes
    assert (
        "not counted: 2 layers for multi-token prediction, whose tensors are not known for this family"
        in notes
    )


def test_scales_that_modelopt_may_have_moved_are_noted() -> None:
    config = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4_AWQ",
        "producer": {"name": "modelopt", "version": "0.47.0"},
    }
    assert any(
        "since 0.40, ModelOpt moves those of Llama's" in note for note in read_recipe(config).notes
    )
    assert not read_recipe({**config, "quant_algo": "NVFP4", "ignore": ["lm_head"]}).notes
