"""Packed weights: the layout of every quantizer is mapped to the model's weights and compared with published sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llamath
from llamath.analysis.storage.listing import list_tensors
from llamath.checkpoint.formats.manifest import Tensor
from llamath.checkpoint.quantization.packed_tensors import Packing
from llamath.checkpoint.quantization.registry import find_packings
from support import quantized_headers as make
from support.reference_data import truth

LLAMA_8B, LLAMA_2_7B = 8_030_261_248, 6_738_415_616
FOUR = {
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "group_size": 128, "strategy": "group"},
        }
    },
    "ignore": ["lm_head"],
}
CHANNELS = {
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "group_size": None, "strategy": "channel"},
        }
    },
    "ignore": ["lm_head"],
}

WRITERS: dict[str, tuple[make.Writer, str, dict[str, Any] | None]] = {
    "awq-gemm": (make.awq, "awq", None),
    "awq-gemv": (make.awq_gemv, "awq", None),
    "awq-gemv-fast": (make.awq_fast, "awq", None),
    "gptq-2": (make.gptq(2), "gptq", None),
    "gptq-3": (make.gptq(3), "gptq", None),
    "gptq-4": (make.gptq(4), "gptq", None),
    "gptq-8": (make.gptq(8, group=64), "gptq", None),
    "gptq-without-index": (make.gptq(4, index=False), "gptq", None),
    "gptq-without-zeros": (make.gptq(4, zeros=False), "gptq", None),
    "gptq-declared": (
        make.gptq(4, index=False, zeros=False),
        "gptq",
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
    ),
    "gptq-marlin": (make.marlin, "gptq", None),
    "bnb-nf4": (make.bnb4(), "bnb-nf4", None),
    "bnb-fp4": (make.bnb4("fp4", nested=False), "bnb-fp4", None),
    "bnb-nf4-in-bf16": (make.bnb4(storage="BF16"), "bnb-nf4", None),
    "bnb-int8": (make.bnb8, "bnb-int8", None),
    "fp8-blocks": (make.fp8_blocks, "fp8", None),
    "fp8-channels": (make.fp8_channels, "fp8", None),
    "fp8-mistral": (make.fp8_mistral, "fp8", None),
    "int8": (make.int8, "int8", None),
    "nvfp4": (make.nvfp4, "nvfp4", None),
    "compressed-nvfp4": (make.compressed_nvfp4, "nvfp4", None),
    "compressed-mxfp4": (make.compressed_mxfp4, "mxfp4", None),
    "compressed-declared": (make.compressed(4, 128), "compressed-int4", FOUR),
    "compressed-channels": (make.compressed(8, 0), "compressed-int8", CHANNELS),
    "compressed-zeros": (make.compressed(4, 128, zeros=True), "compressed-int4", None),
    "compressed-index": (make.compressed(8, 64, index=True), "compressed-int8", None),
    "mlx-4": (make.mlx(4, 64), "mlx", {"group_size": 64, "bits": 4}),
    "mlx-3": (make.mlx(3, 64), "mlx", {"group_size": 64, "bits": 3}),
    "mlx-mxfp4": (make.mlx_mxfp4, "mlx", None),
}


def count_logical_elements(tensors: Iterable[Tensor], packings: dict[str, Packing]) -> int:
    return sum(packings[x.name].elements if x.name in packings else x.elements for x in tensors)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.slow
def test_packed_weights_match_model_shapes(name: str) -> None:
    writer, kind, quantization = WRITERS[name]
    plain = make.plain("llama-3.1-8b")
    tensors = make.tensors(make.packed(plain, writer))
    packings = find_packings(tensors, quantization)
    assert count_logical_elements(tensors, packings) == LLAMA_8B
    values = {x.weight: x for x in packings.values() if x.role == "values"}
    assert {x.kind for x in packings.values()} == {kind}
    assert values.keys() == {name for name, _, _ in plain if "_proj" in name}
    assert all(x.known and x.fits(shape) for name, _, shape in plain if (x := values.get(name)))
    assert not any(
        x.fits((*shape[:-1], shape[-1] // 2)) for name, _, shape in plain if (x := values.get(name))
    )
    assert {x.name for x in tensors} - packings.keys() == {
        name for name, _, _ in plain if "_proj" not in name
    }
    assert all(
        x.elements == 0 and not x.fits((1,)) for x in packings.values() if x.role != "values"
    )


def test_bitsandbytes_issue_834() -> None:
    tensors = make.tensors(make.packed(make.plain("llama-2-7b"), make.bnb4()))
    packings = find_packings(tensors)
    stored = sum(
        x.elements for x in tensors if x.name not in packings or packings[x.name].role == "values"
    )
    assert (stored, count_logical_elements(tensors, packings)) == (3_500_412_928, LLAMA_2_7B)
    report = list_tensors(make.manifest(make.packed(make.plain("llama-2-7b"), make.bnb4())))
    assert report.total.elements - report.companions == 3_500_412_928
    assert report.total.parameters == LLAMA_2_7B


def published(name: str) -> dict[str, Any]:
    (entry,) = (x for x in truth("indexes.jsonl") if x["name"] == name)
    return entry


def check_published_index(headers: list[make.Header], name: str) -> Any:
    """Return the listing, after names and bytes are compared with the published index."""
    index = published(name)
    names = "\n".join(sorted(x for x, _, _ in headers))
    assert hashlib.sha256(names.encode()).hexdigest() == index["names_sha256"]
    return index


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("jeevanchaps--Meta-Llama3.1-8B-Instruct-assessment.st", "F16"),
        ("IrfanUruchi--Llama-3.1-8B-Computer-Networks-LLM.st", "F32"),
    ],
)
def test_published_bitsandbytes_int8_bytes_are_exact(name: str, dtype: str) -> None:
    headers = list(make.packed(make.plain("llama-3.1-8b", dtype), make.bnb8))
    index = check_published_index(headers, name)
    report = list_tensors(make.manifest(headers))
    assert (report.total.bytes, report.total.parameters) == (
        index["total_size"],
        index["oracle_params"],
    )


def test_published_mlx_bytes_are_exact() -> None:
    name = "gleneyre2022--1chat__model.st"
    index = published(name)
    config = next(x["config"] for x in truth("configs.jsonl") if x["name"] == index["config"])
    model = llamath.load(config)
    plain = [
        (x.name, "BF16", tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)
    ]
    headers = list(make.packed(plain, make.mlx(4, 64), include_embeddings=True))
    check_published_index(headers, name)
    report = list_tensors(make.manifest(headers), {"group_size": 64, "bits": 4})
    assert (report.total.bytes, report.total.parameters) == (
        index["total_size"],
        index["oracle_params"],
    )


@pytest.mark.parametrize(
    ("model", "total", "gib"),
    [("gpt-oss-20b", 20_914_757_184, 12.8), ("gpt-oss-120b", 116_829_156_672, 60.8)],
)
def test_gpt_oss_counts_equal_its_model_card(model: str, total: int, gib: float) -> None:
    report = list_tensors(make.manifest(make.gpt_oss(model)))
    assert report.total.parameters == total
    assert round(report.total.bytes / 2**30, 1) == gib
    codec = report.codecs["mxfp4"]
    assert Fraction(8 * codec.bytes, codec.parameters) == Fraction(17, 4)


@pytest.mark.slow
def test_mxfp4_shape_equals_transformers_unpacked_shape() -> None:
    torch = pytest.importorskip("torch")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks = torch.zeros(3, 10, 4, 16, dtype=torch.uint8)
    unpacked = convert_moe_packed_tensors(blocks, torch.zeros(3, 10, 4, dtype=torch.uint8))
    packings = find_packings(
        make.tensors(
            [("e.down_proj_blocks", "U8", (3, 10, 4, 16)), ("e.down_proj_scales", "U8", (3, 10, 4))]
        )
    )
    assert packings["e.down_proj_blocks"].fits(tuple(unpacked.shape))
    assert packings["e.down_proj_blocks"].shape == (3, 10, 128)


@pytest.mark.parametrize("codebooks", [(1, 256, 1, 8), (1, 0, 10**9, 10**9), (1, 2, 1, 10**9)])
def test_codebooks_without_vectors_or_of_huge_groups_are_none(codebooks: tuple[int, ...]) -> None:
    headers = [
        ("a.codes", "I8", (4, 4, 1)),
        ("a.codebooks", "F16", codebooks),
        ("a.scales", "F16", (4, 1, 1, 1)),
    ]
    values = [x for x in find_packings(make.tensors(headers)).values() if x.role == "values"]
    assert [x.shape for x in values] == ([(4, 32)] if codebooks[-1] == 8 else [])


def test_nvfp4_header_of_deepseek_r1() -> None:
    """The first layer of nvidia/DeepSeek-R1-0528-FP4, whose down projection is [7168, 18432]."""
    base = "model.layers.0.mlp.down_proj."
    headers = [
        ("weight", "U8", (7168, 9216)),
        ("weight_scale", "F8_E4M3", (7168, 1152)),
        ("weight_scale_2", "F32", ()),
        ("input_scale", "F32", ()),
    ]
    packings = find_packings(
        make.tensors((base + end, dtype, shape) for end, dtype, shape in headers)
    )
    assert packings[f"{base}weight"] == Packing(
        "nvfp4", f"{base}weight", "values", (7168, 18432), 7168 * 18432
    )
    assert {x.role for name, x in packings.items() if name != f"{base}weight"} == {"scale"}
    assert len(packings) == 4


@pytest.mark.parametrize(
    ("dtype", "bits", "gib"),
    [("Q6_K", 6.5633, 6.14), ("Q8_0", 8.5008, 7.95), ("F16", 16.0005, 14.96)],
)
def test_bits_per_weight_equal_llama_cpp_output(dtype: str, bits: float, gib: float) -> None:
    """The table of llama.cpp's tools/quantize/README.md for Llama 3.1 8B, where one type holds all matrices."""
    headers = [
        (name, dtype if len(shape) == 2 else "F32", shape)
        for name, _, shape in make.plain("llama-3.1-8b")
    ]
    report = list_tensors(make.manifest(headers))
    assert report.total.parameters == LLAMA_8B
    assert (round(float(report.bits_per_weight or 0), 4), round(report.total.bytes / 2**30, 2)) == (
        bits,
        gib,
    )


def test_gpt2_conv1d_matches_transposed() -> None:
    packings = find_packings(make.tensors(make.gptq(4)("h.0.attn.c_attn", 2304, 768)))
    assert packings["h.0.attn.c_attn.qweight"].fits((768, 2304))
    assert not find_packings(make.tensors(make.int8("h.0.attn.c_attn", 2304, 768)))[
        "h.0.attn.c_attn.weight"
    ].fits((768, 2304))


@pytest.mark.parametrize(
    "headers",
    [
        [("x.qweight", "I32", (64, 32))],
        [("x.qweight", "F16", (64, 32)), ("x.scales", "F16", (4, 32))],
        [
            ("x.qweight", "I32", (64, 32)),
            ("x.scales", "F16", (4, 48)),
            ("x.qzeros", "I32", (4, 32)),
        ],
        [("x.qweight", "I32", (64, 32)), ("x.scales", "I32", (4, 32))],
        [("x.qweight", "I32", (64, 0)), ("x.scales", "F16", (4, 0))],
        [("x.qweight", "I32", (64,)), ("x.scales", "F16", (4, 32))],
        [("x.weight", "F8_E4M3", (32, 32))],
        [("x.weight", "F8_E4M3", (4, 4)), ("x.weight_scale", "F32", (5, 5))],
        [("x.weight", "I8", (32, 32)), ("x.SCB", "F32", (31,))],
        [("x.weight", "U8", (64, 1)), ("x.weight.quant_state.bitsandbytes__nf4", "U8", (81,))],
        [
            ("x.weight", "U8", (64, 1)),
            ("x.weight.absmax", "F32", (2,)),
            ("x.weight.quant_state.bitsandbytes__nf5", "U8", (81,)),
        ],
        [
            ("x.weight", "U8", (8, 8)),
            ("x.weight.absmax", "F32", (2,)),
            ("x.weight.quant_state.bitsandbytes__nf4", "U8", (81,)),
        ],
        [("x.weight", "U8", (32, 32)), ("x.weight_scale", "F32", (32, 4))],
        [("x.weight", "U8", ()), ("x.weight_scale", "U8", ())],
        [("x.weight", "U8", (32, 30)), ("x.weight_scale", "F8_E4M3", (32, 4))],
        [("x.weight_packed", "I32", (32, 4))],
        [("x.weight_packed", "I32", (32, 4)), ("x.weight_scale", "F16", (31, 1))],
        [("x_blocks", "U8", (3, 4, 16)), ("x_scales", "U8", (3, 5))],
        [("x_blocks", "U8", (16,)), ("x_scales", "U8", ())],
        [("x.B", "I32", (4, 64)), ("x.s", "F16", (1, 30))],
        [("x.weight", "U32", (8, 8)), ("x.biases", "F16", (8, 1))],
        [("x.weight", "U32", (8, 8)), ("x.scales", "F16", (8, 0)), ("x.biases", "F16", (8, 0))],
        [("lora_A.weight", "F32", (8, 8)), ("x.input_scale", "F32", ())],
    ],
)
def test_packing_is_not_detected_by_name_alone(headers: list[make.Header]) -> None:
    assert find_packings(make.tensors(headers), FOUR) == {}


def config_groups_of(*schemes: object) -> dict[str, Any]:
    return {"config_groups": {str(i): {"weights": x} for i, x in enumerate(schemes)}}


@pytest.mark.parametrize(
    ("writer", "quantization"),
    [
        (make.compressed(4, 128), None),
        (make.compressed(4, 128), config_groups_of({"num_bits": 4, "group_size": 64})),
        (
            make.compressed(4, 128),
            config_groups_of({"num_bits": 4, "group_size": 128}, {"num_bits": 8, "group_size": 64}),
        ),
        (
            make.compressed(4, 128),
            config_groups_of(
                {"num_bits": "4"}, None, {"num_bits": 10**9}, {"num_bits": 4, "group_size": "128"}
            ),
        ),
        (make.compressed(4, 128), {"config_groups": "group_0"}),
        (make.compressed(4, 128), {"config_groups": {"a": None}}),
        (make.gptq(4, index=False, zeros=False), None),
        (make.gptq(4, index=False, zeros=False), {"bits": True}),
        (make.mlx(4, 64), None),
        (make.mlx(4, 64), {"group_size": 64, "bits": 8}),
        (make.mlx(4, 64), {"group_size": -64, "bits": -4}),
    ],
)
def test_unknown_packing_is_reported(
    writer: make.Writer, quantization: dict[str, Any] | None
) -> None:
    tensors = make.tensors(writer("m.q_proj", 1024, 4096))
    packings = find_packings(tensors, quantization)
    (values,) = (x for x in packings.values() if x.role == "values")
    assert (values.known, values.shape, values.elements) == (False, None, tensors[0].elements)
    assert values.fits((1024, 4096))
    assert not values.fits((2, 2))
    assert (
        "headers leave open"
        in list_tensors(make.manifest(writer("m.q_proj", 1024, 4096)), quantization).notes[0]
    )


def test_mlx_modules_can_have_different_bits() -> None:
    quantization = {
        "group_size": 64,
        "bits": 4,
        "m.v_proj": {"group_size": 32, "bits": 8},
        "m.o_proj": False,
    }
    tensors = make.tensors(
        [*make.mlx(4, 64)("m.q_proj", 64, 128), *make.mlx(8, 32)("m.v_proj", 64, 128)]
    )
    packings = find_packings(tensors, quantization)
    assert packings["m.q_proj.weight"].shape == packings["m.v_proj.weight"].shape == (64, 128)


def test_stacked_experts_are_detected() -> None:
    packings = find_packings(
        make.tensors(
            [
                ("e.gate_up_proj", "F8_E4M3", (16, 128, 512)),
                ("e.gate_up_proj_scale", "F32", (16, 1, 512)),
            ]
        )
    )
    assert packings["e.gate_up_proj"].fits((16, 128, 512))
    assert packings["e.gate_up_proj_scale"].role == "scale"


def test_cache_scales_are_not_parameters() -> None:
    headers = [
        *make.fp8_channels("layers.0.self_attn.k_proj", 64, 64),
        ("layers.0.self_attn.k_scale", "BF16", (1,)),
    ]
    tensors = make.tensors([*headers, ("layers.0.self_attn.k_proj.k_scale", "F32", ())])
    assert count_logical_elements(tensors, find_packings(tensors)) == 4096
    alone = make.tensors([("layers.0.self_attn.k_scale", "BF16", (1,))])
    assert find_packings(alone) == {}


def test_bitnet_is_detected_if_declared() -> None:
    tensors = make.tensors([("x.weight", "U8", (640, 2560)), ("x.weight_scale", "BF16", (1,))])
    assert find_packings(tensors) == {}
    assert find_packings(tensors, {"quant_method": "bitnet"})["x.weight"].shape == (2560, 2560)


outputs = st.integers(1, 64).map(lambda n: 32 * n)
inputs = st.tuples(st.integers(1, 32), st.sampled_from([32, 64, 128]))


@given(o=outputs, i=inputs, bits=st.sampled_from([2, 3, 4, 8]), index=st.booleans())
def test_gptq_shapes_are_exact(o: int, i: tuple[int, int], bits: int, index: bool) -> None:
    packing = find_packings(make.tensors(make.gptq(bits, i[1], index)("x", o, prod(i))))[
        "x.qweight"
    ]
    assert packing.shape == (o, prod(i))


@given(o=outputs, i=inputs, writer=st.sampled_from([make.awq, make.awq_gemv, make.awq_fast]))
def test_awq_shapes_are_exact(o: int, i: tuple[int, int], writer: Any) -> None:
    assert find_packings(make.tensors(writer("x", o, prod(i), i[1])))["x.qweight"].fits(
        (o, prod(i))
    )


@given(o=st.integers(1, 300), i=inputs, bits=st.sampled_from([4, 8]), declared=st.booleans())
def test_compressed_shapes_are_exact_or_unknown(
    o: int, i: tuple[int, int], bits: int, declared: bool
) -> None:
    tensors = make.tensors(make.compressed(bits, i[1], zeros=True)("x", o, prod(i)))
    packing = find_packings(tensors, {"bits": bits, "group_size": i[1]} if declared else None)[
        "x.weight_packed"
    ]
    assert packing.shape in ((o, prod(i)), None)
    assert packing.elements == (prod(packing.shape) if packing.shape else tensors[0].elements)
    assert packing.known or not declared
