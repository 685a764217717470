"""Dequantization compared with the quantizers themselves: compressed-tensors, MLX, bitsandbytes, transformers and torch's dtypes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import pytest

from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.formats.number_arrays import StoredArray
from llamath.checkpoint.quantization.dequantizers import (
    dequantize,
    open_packed,
    why_not_dequantized,
)
from llamath.checkpoint.quantization.packed_tensors import packed_weights
from llamath.checkpoint.quantization.registry import find_packings
from llamath.utils.errors import LlamathError
from support import quantized_headers

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

OUT, IN = 64, 256
NAMES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8", torch.uint8: "U8", torch.int16: "I16",
    torch.int32: "I32", torch.int64: "I64", torch.uint32: "U32", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip


def stored(x: torch.Tensor) -> StoredArray:
    """A tensor as a file stores it."""
    return StoredArray(
        NAMES[x.dtype],
        tuple(x.shape),
        x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
    )


def dequantized(
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None = None,
    weight: str = "a.weight",
) -> torch.Tensor:
    """The values of the one packed weight among these tensors."""
    arrays = {name: stored(x) for name, x in tensors.items()}
    packings = find_packings(
        quantized_headers.tensors([(name, x.dtype, x.shape) for name, x in arrays.items()]), config
    )
    assert packings.keys() == tensors.keys()
    return torch.from_numpy(
        dequantize(packed_weights(packings)[weight], arrays.__getitem__, config)
    )


def weights(seed: int = 0, out: int = OUT, into: int = IN) -> torch.Tensor:
    return torch.randn(out, into, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [x for x in NAMES if "float8" in str(x)], ids=str)
def test_every_8_bit_float_has_its_value_in_torch(dtype: torch.dtype) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(4, 64)
    if dtype == torch.float8_e8m0fnu:
        tensors = {
            "a.weight": torch.ones(256, 32, dtype=torch.float8_e4m3fn),
            "a.weight_scale": values.reshape(256, 1),
        }
        expected = values.float().reshape(256, 1).expand(256, 32)
    else:
        tensors, expected = (
            {"a.weight": values, "a.weight_scale": torch.tensor(0.5)},
            values.float() * 0.5,
        )
    assert torch.equal(
        dequantized(tensors).nan_to_num(nan=12345.0), expected.nan_to_num(nan=12345.0)
    )


GROUP = {"strategy": "group", "group_size": 32}
COMPRESSED = {
    **{
        f"pack-{bits}": ("pack-quantized", {"num_bits": bits, "type": "int", **GROUP})
        for bits in range(2, 9)
    },
    **{
        f"pack-{bits}-asymmetric": (
            "pack-quantized",
            {"num_bits": bits, "type": "int", "symmetric": False, **GROUP},
        )
        for bits in (3, 4, 8)
    },
    "pack-rows": ("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "channel"}),
    "int-rows": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "int-asymmetric": (
        "int-quantized",
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False},
    ),
    "float-tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "float-blocks": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [24, 96]},
    ),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    ),
    "mxfp4": (
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "scale_dtype": "torch.uint8", **GROUP},
    ),
    "mxfp8": (
        "mxfp8-quantized",
        {"num_bits": 8, "type": "float", "scale_dtype": "torch.uint8", **GROUP},
    ),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_values_are_those_of_compressed_tensors(name: str) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.lifecycle import initialize_module_for_quantization

    kind, arguments = COMPRESSED[name]
    arguments = {"symmetric": True, "dynamic": False} | arguments
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments, format=kind)
    layer = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.bfloat16)
    initialize_module_for_quantization(layer, scheme)
    generator = torch.Generator().manual_seed(1)
    state = {key: x.data.clone() for key, x in layer.state_dict().items()}
    state["weight"] = weights().bfloat16() / 50
    for key, x in state.items():
        if key.endswith("_scale") and x.dtype.is_floating_point:
            state[key] = (torch.rand(x.shape, generator=generator) / 100 + 0.002).to(x.dtype)
        elif key == "weight_scale":
            state[key] = torch.randint(117, 123, x.shape, generator=generator).to(x.dtype)
        elif key.endswith("zero_point"):
            half = 1 << arguments["num_bits"] - 1
            state[key] = torch.randint(-half, half, x.shape, generator=generator).to(x.dtype)
        elif key.endswith("global_scale"):
            state[key] = torch.full_like(x, 300.0)
    compressor = BaseCompressor.get_value_from_registry(kind)
    packed = compressor.compress(dict(state), scheme)
    expected = compressor.decompress(dict(packed), scheme)["weight"]
    config = {"config_groups": {"a": {"weights": arguments}}}
    found = dequantized({f"a.{key}": x for key, x in packed.items()}, config)
    assert torch.allclose(
        found, expected.float(), rtol=2**-7, atol=0
    )  # it rounds to bfloat16 at each step
    assert (found.bfloat16() != expected.bfloat16()).float().mean() < 0.6


@pytest.mark.parametrize(
    "name", [x for x in COMPRESSED if "asymmetric" not in x and not x.startswith("mx")]
)
def test_half_steps_bound_the_nearest_codes(name: str) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from compressed_tensors.quantization.lifecycle import initialize_module_for_quantization

    kind, arguments = COMPRESSED[name]
    arguments = {"symmetric": True, "dynamic": False} | arguments
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments, format=kind)
    layer = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.float32)
    initialize_module_for_quantization(layer, scheme)
    state = {key: x.data.clone() for key, x in layer.state_dict().items()}
    state["weight"] = weight = weights() / 50
    largest = float(weight.abs().max())
    top = 448.0 if arguments["type"] == "float" else 2 ** (arguments["num_bits"] - 1) - 1
    scale = 2.0 ** np.ceil(np.log2(300 * largest / 6)) if name == "nvfp4" else largest / top
    for key, x in state.items():
        if key == "weight_scale":
            state[key] = torch.full_like(x, float(scale))
        elif key.endswith("global_scale"):
            state[key] = torch.full_like(x, 300.0)
    packed = BaseCompressor.get_value_from_registry(kind).compress(dict(state), scheme)
    config = {"config_groups": {"a": {"weights": arguments}}}
    arrays = {f"a.{key}": stored(x) for key, x in packed.items()}
    packings = find_packings(
        quantized_headers.tensors([(key, x.dtype, x.shape) for key, x in arrays.items()]), config
    )
    opened = open_packed(packed_weights(packings)["a.weight"], arrays.__getitem__, config)
    assert opened.has_half_steps
    values, (inward, outward) = opened.rows(0, 0, OUT), opened.half_steps(0, 0, OUT)
    difference = weight.double().numpy() - values
    away = (difference > 0) == (values > 0)
    assert (np.abs(difference) <= np.where(away, outward, inward) * (1 + 1e-5)).all()
    assert np.abs(difference).max() > 0.8 * np.median(inward)  # the bound is not loose


@pytest.mark.parametrize(
    ("bits", "group", "mode"),
    [
        *((bits, 64, "affine") for bits in (2, 3, 4, 5, 6, 8)),
        (4, 32, "affine"),
        (4, 32, "mxfp4"),
        (8, 32, "mxfp8"),
        (4, 16, "nvfp4"),
    ],
)
def test_values_are_those_of_mlx(bits: int, group: int, mode: str) -> None:
    mx = pytest.importorskip("mlx.core")
    dtype = mx.float32 if mode == "affine" else mx.bfloat16
    parts = mx.quantize(
        mx.array(weights().numpy()).astype(dtype), group_size=group, bits=bits, mode=mode
    )
    expected = torch.from_numpy(
        np.array(mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=mx.float32))
    )
    names = dict(zip(("a.weight", "a.scales", "a.biases"), parts, strict=False))
    tensors = {name: torch.from_numpy(np.array(x)) for name, x in names.items()}
    assert torch.equal(
        dequantized(tensors, {"bits": bits, "group_size": group, "mode": mode}), expected
    )


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_values_are_those_of_bitsandbytes_in_4_bits(kind: str, nested: bool) -> None:
    bnb = pytest.importorskip("bitsandbytes")
    layer = bnb.nn.Linear4bit(IN, OUT - 1, bias=False, compress_statistics=nested, quant_type=kind)
    layer.weight = bnb.nn.Params4bit(
        weights(out=OUT - 1), requires_grad=False, compress_statistics=nested, quant_type=kind
    )
    layer.to("cpu")
    expected = bnb.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    found = dequantized({f"a.{key}": x for key, x in layer.state_dict().items()})
    assert found.shape == expected.shape and torch.allclose(
        found, expected.float(), rtol=2**-22, atol=0
    )


def test_values_are_those_of_bitsandbytes_in_8_bits() -> None:
    bnb = pytest.importorskip("bitsandbytes")
    values, scale, _ = bnb.functional.int8_vectorwise_quant(weights().half())
    tensors = {
        "a.weight": values,
        "a.SCB": scale,
        "a.weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    assert torch.allclose(
        dequantized(tensors),
        bnb.functional.int8_vectorwise_dequant(values, scale),
        rtol=2**-22,
        atol=0,
    )


def test_values_are_those_of_transformers_in_mxfp4() -> None:
    pytest.importorskip("transformers")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(2)
    blocks = torch.randint(0, 256, (3, OUT, IN // 32, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(100, 140, (3, OUT, IN // 32), generator=generator, dtype=torch.uint8)
    found = dequantized({"a_blocks": blocks, "a_scales": scales}, weight="a")
    assert torch.equal(found.mT, convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))


@pytest.mark.parametrize("kind", ["bitlinear", "autobitlinear"])
def test_values_are_those_of_transformers_in_bitnet(kind: str) -> None:
    pytest.importorskip("transformers")
    from transformers.integrations.bitnet import pack_weights, unpack_weights

    ternary = torch.randint(-1, 2, (OUT, IN), generator=torch.Generator().manual_seed(3))
    packed, scale = pack_weights(ternary.clone()), torch.tensor([0.25], dtype=torch.bfloat16)
    assert torch.equal(unpack_weights(packed, torch.float32), ternary.float())
    found = dequantized(
        {"a.weight": packed, "a.weight_scale": scale},
        {"quant_method": "bitnet", "linear_class": kind},
    )
    assert torch.equal(found, ternary * (4.0 if kind == "bitlinear" else 0.25))


# AutoGPTQ and AutoAWQ, value by value as their pack functions do


def packed_words(rows: Any, bits: int) -> torch.Tensor:
    """Pack each row of integers, the first in the lowest bits, into 32-bit words."""
    words = []
    for row in rows.tolist():
        number = sum(int(x) << bits * i for i, x in enumerate(row))
        words.append([number >> 32 * i & 0xFFFFFFFF for i in range(-(-len(row) * bits // 32))])
    return torch.tensor(words, dtype=torch.int64).to(torch.int32)


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize(
    ("bits", "version"), [(2, "gptq"), (3, "gptq"), (4, "gptq"), (4, "gptq_v2"), (8, "gptq")]
)
def test_gptq_is_dequantized(bits: int, version: str, act_order: bool) -> None:
    generator = torch.Generator().manual_seed(bits)
    q = torch.randint(0, 1 << bits, (OUT, IN), generator=generator)
    zero = torch.randint(1, 1 << bits, (IN // 32, OUT), generator=generator)
    scale = torch.rand(IN // 32, OUT, generator=generator).half()
    group = torch.randperm(IN, generator=generator) // 32 if act_order else torch.arange(IN) // 32
    tensors = {
        "a.qweight": packed_words(q, bits).T,
        "a.qzeros": packed_words(zero - int(version == "gptq"), bits),
        "a.scales": scale,
        "a.g_idx": group.int(),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": 32, "checkpoint_format": version}
    assert torch.equal(dequantized(tensors, config), (q - zero[group].T) * scale.float()[group].T)


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def test_awq_is_dequantized() -> None:
    generator = torch.Generator().manual_seed(4)
    q, zero = (
        torch.randint(0, 16, (IN, OUT), generator=generator),
        torch.randint(0, 16, (IN // 32, OUT), generator=generator),
    )
    scale = torch.rand(IN // 32, OUT, generator=generator).half()
    words = [
        packed_words(x.reshape(-1, OUT // 8, 8)[..., AWQ_ORDER].reshape(-1, OUT), 4)
        for x in (q, zero)
    ]
    group = torch.arange(IN) // 32
    found = dequantized(
        {"a.qweight": words[0], "a.qzeros": words[1], "a.scales": scale},
        {"quant_method": "awq", "bits": 4},
    )
    assert torch.equal(found, ((q - zero[group]) * scale.float()[group]).T)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_awq_gemv_is_dequantized(group_size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    into, width = 1024, {32: 4, 64: 2, 128: 1}[group_size]
    q, zero = (
        torch.randint(0, 16, (OUT, into), generator=generator),
        torch.randint(0, 16, (OUT, 8 * width), generator=generator),
    )
    scale = torch.rand(OUT, 8 * width, generator=generator).half()
    group = torch.arange(into) // group_size
    tensors = {
        "a.qweight": packed_words(q, 4),
        "a.qzeros": packed_words(zero, 4),
        "a.scales": scale,
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": group_size, "version": "gemv"}
    assert torch.equal(dequantized(tensors, config), (q - zero[:, group]) * scale.float()[:, group])


def test_fast_awq_is_dequantized() -> None:
    generator = torch.Generator().manual_seed(6)
    q = torch.randint(0, 16, (OUT, IN), generator=generator)
    scale, zero = (torch.rand(8, OUT, generator=generator).half() for _ in range(2))
    kernel = (
        q.numpy()
        .reshape(OUT, IN // 32, 4, 4, 2)
        .transpose(0, 1, 3, 2, 4)
        .reshape(OUT, IN // 32, 4, 4, 2)
        .transpose(0, 1, 2, 4, 3)
    )
    kernel = (
        kernel.reshape(OUT // 4, 4, IN // 64, 64)
        .transpose(0, 2, 1, 3)
        .reshape(OUT // 4, IN // 64, 64, 4)
    )
    words = sum(kernel[..., i] << 4 * i for i in range(4)).reshape(OUT // 4, IN).astype("int16")
    group = torch.arange(IN) // 128
    tensors = {"a.qweight": torch.from_numpy(words), "a.scales": scale, "a.scaled_zeros": zero}
    config = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv_fast"}
    assert torch.equal(
        dequantized(tensors, config), q * scale.float()[group].T + zero.float()[group].T
    )


def test_group_index_of_compressed_tensors_is_applied() -> None:
    generator = torch.Generator().manual_seed(8)
    q, group = (
        torch.randint(0, 16, (OUT, IN), generator=generator),
        torch.randperm(IN, generator=generator) // 32,
    )
    scale = torch.rand(OUT, IN // 32, generator=generator).bfloat16()
    tensors = {
        "a.weight_packed": packed_words(q, 4),
        "a.weight_scale": scale,
        "a.weight_g_idx": group.int(),
    }
    assert torch.equal(dequantized(tensors), (q - 8) * scale.float()[:, group])


def test_large_matrices_are_dequantized_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from llamath.checkpoint.quantization import dequantizers

    rng = random.Random(7)
    q = torch.tensor([[rng.randrange(16) for _ in range(32)] for _ in range(200)])
    tensors = {
        "a.weight_packed": packed_words(q, 4),
        "a.weight_scale": torch.rand(200, 1).bfloat16(),
    }
    config = {"config_groups": {"a": {"weights": {"num_bits": 4}}}}
    whole = dequantized(tensors, config)
    monkeypatch.setattr(dequantizers, "_CHUNK_ELEMENTS", 64 * 32)
    assert torch.equal(dequantized(tensors, config), whole)
    assert torch.equal(whole, (q - 8) * tensors["a.weight_scale"].float())


def test_what_cannot_be_dequantized_is_named() -> None:
    tensors = {
        "a.B": torch.zeros(16, 2 * 256, dtype=torch.int32),
        "a.s": torch.zeros(2, 256).half(),
    }
    headers = [(name, NAMES[x.dtype], tuple(x.shape)) for name, x in tensors.items()]
    (weight,) = packed_weights(find_packings(quantized_headers.tensors(headers))).values()
    assert "Marlin" in why_not_dequantized(weight)
    with pytest.raises(
        LlamathError, match="cannot be dequantized: Marlin's tiles have no dequantization"
    ):
        dequantize(weight, lambda name: stored(tensors[name]))


def test_scales_that_do_not_match_are_refused() -> None:
    tensors = {
        "a.weight": torch.zeros(10, 8).to(torch.float8_e4m3fn),
        "a.weight_scale_inv": torch.ones(3, 1),
    }
    with pytest.raises(LlamathError, match="a number of scales that divides 10, found 3"):
        dequantized(tensors)
    tensors["a.weight_scale_inv"] = torch.ones(3, 1, 1)
    with pytest.raises(LlamathError, match="expected scales of the tensor"):
        dequantized(tensors)


def test_blocks_of_modelopt_are_dequantized() -> None:
    """Its blocks of FP8 have axes of length 1, and its INT4 two outputs in a byte and scales of inputs."""
    scale = torch.rand(2, 1, 4, 1)
    values = weights().to(torch.float8_e4m3fn)
    expected = values.float() * scale[:, 0, :, 0].repeat_interleave(32, 0).repeat_interleave(64, 1)
    assert torch.equal(dequantized({"a.weight": values, "a.weight_scale": scale}), expected)
    generator = torch.Generator().manual_seed(9)
    q = torch.randint(-8, 8, (OUT, IN), generator=generator)
    pairs = q.T.reshape(IN, OUT // 2, 2) & 15
    tensors = {
        "a.weight": (pairs[..., 0] | pairs[..., 1] << 4).T.contiguous().to(torch.uint8),
        "a.weight_scale": torch.rand(OUT, 2, generator=generator),
        "a.pre_quant_scale": torch.rand(IN, generator=generator).bfloat16(),
        "a.weight_scale_2": torch.tensor(0.5),
    }
    per_input = (tensors["a.weight_scale"] * 0.5).repeat_interleave(128, 1) * tensors[
        "a.pre_quant_scale"
    ].float()
    assert torch.allclose(dequantized(tensors), q * per_input, rtol=2**-22, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("bits", "group"), [(1, 32), (2, 16), (3, 64), (4, 64), (8, 128)])
def test_values_are_those_of_hqq(bits: int, group: int, axis: int) -> None:
    quantize = pytest.importorskip("hqq.core.quantize")
    params = quantize.BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis)
    layer = torch.nn.Linear(IN, OUT, bias=False)
    layer.weight.data = weights()
    packed = quantize.HQQLinear(layer, params, compute_dtype=torch.float32, device="cpu")
    tensors = {f"a.{name}": x for name, x in packed.state_dict().items() if name != "offload_meta"}
    assert torch.allclose(dequantized(tensors), packed.dequantize(), rtol=2**-20, atol=2**-20)


@pytest.mark.parametrize("name", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig"])
def test_values_are_those_of_torchao(name: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

    model = torch.nn.Sequential(torch.nn.Linear(IN, OUT, bias=False))
    model[0].weight.data = weights()
    quantization.quantize_(model, getattr(quantization, name)())
    state, _ = flatten_tensor_state_dict(model.state_dict())
    tensors = {name.replace("0", "a", 1): x for name, x in state.items()}
    assert torch.allclose(dequantized(tensors), model[0].weight.dequantize(), rtol=2**-20, atol=0)


def test_eetq_is_dequantized() -> None:
    values, scale = torch.randint(-128, 128, (IN, OUT)).to(torch.int8), torch.rand(OUT).half()
    found = dequantized({"a.weight": values, "a.weight_scales": scale}, {"quant_method": "eetq"})
    assert torch.equal(found, values.T.float() * scale.float()[:, None])


_PARTS = {
    "qweight": ("I32", "I16"), "qzeros": ("I32",), "scales": ("F16", "U8", "BF16"), "scaled_zeros": ("F16",), "g_idx": ("I32",),
    "biases": ("BF16",), "weight": ("F8_E4M3", "I8", "U8", "U32", "F16"), "weight_scale": ("F32", "U8", "F8_E4M3", "BF16"),
    "weight_scale_2": ("F32",), "weight_packed": ("I32", "U8"), "weight_zero_point": ("I32", "I8"), "weight_g_idx": ("I32",),
    "weight_global_scale": ("F32",), "pre_quant_scale": ("BF16",), "SCB": ("F32",), "weight_format": ("U8",), "W_q": ("U8", "I32"),
    "scale": ("F16", "F32"), "zero": ("F16",), "shape": ("I64",), "nbits": ("I32",), "axis": ("I32",), "weight_scales": ("F16",),
    "_weight_qdata": ("I8", "F8_E4M3"), "_weight_scale": ("F32",), "_weight_zero_point": ("I8",), "weight.absmax": ("U8", "F32"),
    "weight.quant_map": ("F32",), "weight.nested_absmax": ("F32",), "weight.nested_quant_map": ("F32",), "B": ("I32",), "s": ("F16",),
    "weight.quant_state.bitsandbytes__nf4": ("U8",),
}  # fmt: skip
_STATE = b'{"blocksize": 64, "shape": [4, 32], "nested_blocksize": 256, "nested_offset": 0.1}'


def test_hostile_tensors_are_dequantized_or_refused() -> None:
    """Any mixture of names, dtypes, shapes and bytes of any scheme raises nothing but an error for users."""
    rng, dequantizable = random.Random(0), 0
    groups = (
        *(
            ("qweight", "qzeros", "scales", "g_idx"),
            ("qweight", "scales", "scaled_zeros"),
            ("weight", "scales", "biases"),
        ),
        *(
            ("weight", "weight_scale", "weight_scale_2", "pre_quant_scale"),
            ("W_q", "scale", "zero", "shape", "nbits", "axis"),
        ),
        *(
            (
                "weight_packed",
                "weight_scale",
                "weight_zero_point",
                "weight_g_idx",
                "weight_global_scale",
            ),
            ("weight", "weight_scales"),
        ),
        *(
            ("_weight_qdata", "_weight_scale", "_weight_zero_point"),
            ("weight", "SCB", "weight_format"),
        ),
        (
            "weight",
            "weight.absmax",
            "weight.quant_map",
            "weight.nested_absmax",
            "weight.nested_quant_map",
            next(reversed(_PARTS)),
        ),
    )
    for _ in range(6000):
        arrays: dict[str, StoredArray] = {}
        sizes = [rng.choice((0, 1, 2, 4, 8, 16, 32, 64)) for _ in range(3)]
        for part in rng.choice(groups):
            if rng.random() < 0.1:
                continue
            shape = tuple(rng.choice(sizes) for _ in range(rng.choice((0, 1, 2, 2, 2, 2, 3))))
            data = rng.randbytes(DTYPES[dtype := rng.choice(_PARTS[part])].size(prod(shape)))
            is_state = "quant_state" in part and rng.random() < 0.8
            arrays[f"a.{part}"] = (
                StoredArray(dtype, (len(_STATE),), _STATE)
                if is_state
                else StoredArray(dtype, shape, data)
            )
        bits, size = rng.choice((None, 2, 3, 4, 8, 0, -1)), rng.choice((None, 16, 32, 128, -1, 0))
        config = {
            "bits": bits,
            "group_size": size,
            "quant_method": rng.choice(("awq", "gptq", "bitnet")),
        }
        packings = find_packings(
            quantized_headers.tensors([(name, x.dtype, x.shape) for name, x in arrays.items()]),
            config,
        )
        for weight in packed_weights(packings).values():
            with suppress(LlamathError), np.errstate(all="ignore"):
                dequantizable += dequantize(weight, arrays.__getitem__, config).size > 0
    assert dequantizable > 50


SPARSE = json.loads((Path(__file__).parents[1] / "golden" / "sparse_bitmask.json").read_text())
"""Matrices as compressed-tensors 0.9.4 wrote them, the last version with these formats, and their values."""


def sparse_tensors(name: str) -> dict[str, torch.Tensor]:
    return {
        f"a.{end.removeprefix('m.')}": torch.frombuffer(
            bytearray.fromhex(data), dtype=getattr(torch, dtype)
        ).reshape(shape)
        for end, (dtype, shape, data) in SPARSE[name]["stored"].items()
    }


@pytest.mark.parametrize("name", SPARSE)
def test_values_are_those_of_sparse_compressed_tensors(name: str) -> None:
    expected = torch.tensor(SPARSE[name]["values"])
    assert (
        torch.equal(dequantized(sparse_tensors(name)), expected)
        and 0 < (expected == 0).sum() < expected.numel()
    )
    scale = torch.arange(1, 7, dtype=torch.bfloat16)[:, None]
    assert torch.equal(
        dequantized({**sparse_tensors(name), "a.weight_scale": scale}), expected * scale.float()
    )


@pytest.mark.parametrize("change", ["bit", "shape", "rows"])
def test_bitmasks_that_do_not_match_are_refused(change: str) -> None:
    tensors = sparse_tensors("sparse-bitmask bf16")
    tensors["a.bitmask"] = tensors["a.bitmask"].clone()
    if change == "bit":
        tensors["a.bitmask"][0, 0] ^= 1
    elif change == "shape":
        tensors["a.shape"] = torch.tensor([1 << 30, 1 << 30])
    else:
        tensors["a.shape"] = torch.tensor([3, 48])
    with pytest.raises(LlamathError):
        dequantized(tensors)


QUARK = json.loads((Path(__file__).parents[1] / "golden" / "quark_values.json").read_text())
"""A matrix as Quark 0.13 stored it, and the values that Quark read (`tools/quark_values.py`)."""


def tensor_of(dtype: str, shape: list[int], data: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(data), dtype=getattr(torch, dtype)).reshape(shape)


@pytest.mark.parametrize("name", QUARK)
def test_values_are_those_of_quark(name: str) -> None:
    tensors = {f"a.{end}": tensor_of(*x) for end, x in QUARK[name]["stored"].items()}
    assert torch.equal(
        dequantized(tensors, QUARK[name]["config"]), tensor_of(*QUARK[name]["values"])
    )


@pytest.mark.parametrize("name", QUARK)
def test_half_steps_bound_what_quark_rounds(name: str) -> None:
    arrays = {f"a.{end}": stored(tensor_of(*x)) for end, x in QUARK[name]["stored"].items()}
    headers = quantized_headers.tensors([(name, x.dtype, x.shape) for name, x in arrays.items()])
    opened = open_packed(
        packed_weights(find_packings(headers))["a.weight"],
        arrays.__getitem__,
        QUARK[name]["config"],
    )
    original, values = tensor_of(*QUARK[name]["original"]).float().numpy(), opened.rows(0, 0, 16)
    inward, outward = opened.half_steps(0, 0, 16)
    bound = np.where(np.abs(original) > np.abs(values), outward, inward)
    distance = np.abs(original - values)
    assert opened.has_half_steps and (distance <= bound * 1.000001).all()
    assert 2 * distance.mean() > (0.7 if name == "int4_fp8" else 0.9) * bound.mean(), (
        "the bounds are hardly larger than needed"
    )


AQLM = json.loads((Path(__file__).parents[1] / "golden" / "aqlm_values.json").read_text())
"""Matrices as aqlm 1.1.7 stores them, and the values that it reads (`tools/aqlm_values.py`)."""


@pytest.mark.parametrize("name", AQLM)
def test_values_are_those_of_aqlm(name: str) -> None:
    tensors = {f"a.{end}": tensor_of(*x) for end, x in AQLM[name]["stored"].items()}
    expected = tensor_of(*AQLM[name]["values"])
    assert torch.allclose(dequantized(tensors), expected, rtol=1e-6, atol=0)
    tensors["a.codebooks"] = tensors["a.codebooks"][:, 1:]
    with pytest.raises(LlamathError, match=r"expected codebooks of 2, 4, 8, … vectors"):
        dequantized(tensors)
    del tensors["a.codebooks"]
    headers = [(name, NAMES[x.dtype], tuple(x.shape)) for name, x in tensors.items()]
    assert find_packings(quantized_headers.tensors(headers)) == {}


def test_words_of_quark_have_the_order_in_the_config() -> None:
    config, x = QUARK["int4_wo_per_channel"]["config"], QUARK["int4_wo_per_channel"]["stored"]
    tensors = {f"a.{end}": tensor_of(*x[end]) for end in x}
    found = dequantized(tensors, {**config, "export": {"pack_method": "order"}})
    assert torch.equal(
        found.reshape(16, 8, 8),
        dequantized(tensors, config).reshape(16, 8, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]],
    )


@pytest.mark.parametrize("name", ["int4_wo_32", "mxfp6_e2m3"])
def test_quark_s_integers_need_a_config(name: str) -> None:
    tensors = {f"a.{end}": tensor_of(*x) for end, x in QUARK[name]["stored"].items()}
    with pytest.raises(
        LlamathError,
        match=r"expected (int4 or uint4|fp6_e2m3 or fp6_e3m2) in the config's global_quant_config, found nothing",
    ):
        dequantized(tensors)


def test_older_exponents_of_quark_are_refused_by_name() -> None:
    config = {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "mx", "mx_element_dtype": "fp4"}},
    }
    tensors = {
        "a.weight": torch.zeros(64, 32, dtype=torch.uint8),
        "a.weight_scale": torch.zeros(64, 2, dtype=torch.uint8),
    }
    with pytest.raises(LlamathError, match="Quark's older dtype mx has no dequantization"):
        dequantized(tensors, config)
