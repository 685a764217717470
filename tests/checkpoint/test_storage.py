"""Bytes of weights compared with llama.cpp's table and snapshots of types, published indexes and the layouts of quantizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.storage.choose_storage import gguf_naming, weight_storage
from llamath.analysis.storage.gguf_mixture import gguf_tensors, gguf_traits
from llamath.analysis.storage.quantized_tensors import mtp_quantized_tensors
from llamath.analysis.storage.weight_bytes import GGUFNaming, WeightStorage
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.quantization import gguf_file_types as rules
from llamath.checkpoint.quantization.format_names import (
    FILE_TYPES,
    WEIGHT_FORMATS,
    parse_weight_format,
)
from llamath.checkpoint.quantization.gguf_file_types import GGUFTensor, assign_types
from llamath.model import FamilyModel, Model
from llamath.utils.errors import LlamathError
from support import quantized_headers
from support.reference_data import conformance, published, tiny_configs, truth


def storage(
    model: Model | str, name: str, imatrix: bool | None = None, **changes: Any
) -> WeightStorage:
    loaded = llamath.load(model, changes=changes) if isinstance(model, str) else model
    packer, names = parse_weight_format(name), loaded.family.schemes.get("hf")
    return weight_storage(loaded.tree, packer, gguf_naming(loaded), imatrix, names)


def named(model: FamilyModel) -> GGUFNaming:
    naming = gguf_naming(model)
    assert naming is not None
    return naming


def test_mlx_groups_are_those_that_are_asked_for() -> None:
    sizes = {
        x: llamath.memory("llama-3.2-1b", dtype=x).storage for x in ("mlx-4bit", "mlx-4bit-g32")
    }
    assert [round(x.bits, 2) for x in sizes.values()] == [4.5, 5.0]
    with pytest.raises(LlamathError, match="mlx-4bit"):
        parse_weight_format("mlx-4bits")


def test_layers_of_a_gguf_file_are_those_of_its_release() -> None:
    names = llamath.stored_names("glm-4.5-air", names="gguf").tensors
    mtp = {x.name: x.parameters for x in names if x.mtp}
    assert sum(x.parameters for x in names) == 110_468_824_832  # 110.47B, as llama-bench prints
    assert "blk.46.nextn.eh_proj.weight" in mtp and mtp["blk.46.nextn.embed_tokens.weight"]
    types = {
        x.name
        for x in mtp_quantized_tensors(llamath.load("glm-4.5-air"), parse_weight_format("q4_k_m"))
    }
    assert types == mtp.keys()
    assert not any(x.mtp for x in llamath.stored_names("deepseek-v3", names="gguf").tensors)


def test_experts_released_in_bf16_are_quantized() -> None:
    released, plain = (
        storage("gpt-oss-20b", "q8_0", **x) for x in ({}, {"quantization_config": None})
    )
    assert {x.codec for x in released.weights} == {"MXFP4", "Q8_0", "F32"}
    assert {x.codec for x in plain.weights} == {"Q8_0", "F32"}


SECTIONS = """F32 F16 Q4_0 Q4_1 Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS
    IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 TQ1_0 TQ2_0 MXFP4_MOE"""
FIRST, LATER = "", "# Snapshot version: 1\n"
SNAPSHOTS = {
    "llama-3.1-70b": (
        FIRST,
        106_598,
        "Meta-Llama-3.1-70B-Instruct",
        "n_embd=8192, n_ff=28672, n_vocab=128256, n_layer=80, n_head=64, n_head_kv=8",
    ),
    "deepseek-v3": (
        FIRST,
        61_280,
        "DeepSeek-V3.1",
        "n_embd=7168, n_ff=18432, n_vocab=129280, n_layer=61, n_head=128, n_head_kv=1, n_expert=256",
    ),
    "gpt-oss-120b": (
        FIRST,
        44_616,
        "gpt-oss-120b",
        "n_embd=2880, n_ff=2880, n_vocab=0, n_layer=36, n_head=64, n_head_kv=8, n_expert=128",
    ),
    "qwen3.5-27b": (
        FIRST,
        65_490,
        "Qwen3.5-27B",
        "n_embd=5120, n_ff=17408, n_vocab=248320, n_layer=64, n_head=24, n_head_kv=4",
    ),
    "qwen3.5-397b-a17b": (
        FIRST,
        79_303,
        "Qwen3.5-397B-A17B",
        "n_embd=4096, n_ff=0, n_vocab=248320, n_layer=60, n_head=32, n_head_kv=2, n_expert=512",
    ),
    "qwen3-0.6b": (
        LATER,
        32_536,
        "Qwen3-0.6B",
        "n_embd=1024, n_ff=3072, n_vocab=151936, n_layer=28, n_head=16, n_head_kv=8",
    ),
    "qwen3-14b": (
        LATER,
        51_256,
        "Qwen3-14B",
        "n_embd=5120, n_ff=17408, n_vocab=151936, n_layer=40, n_head=40, n_head_kv=8",
    ),
    "nemotron-3-nano-30b": (
        LATER,
        102_391,
        "Nemotron-Nano-3-30B-A3B",
        "n_embd=2688, n_ff=0, n_vocab=131072, n_layer=52, n_head=32, n_head_kv=2, n_expert=128",
    ),
}
"""Preset → the version, the length and the head of the model's file in `tests/snapshots` of ggml-org/llama.cpp, which lists every tensor that
has another type than its file's default, for 33 file types. In the first version there is no fallback for rows that are not a whole number
of blocks, and F32, F16 and BF16 are treated as quantized."""


def listing(tensor_types: Iterable[tuple[GGUFTensor, str]], base: str) -> Iterator[str]:
    return (
        f"{x.name} {ggml(kind)}\n" for x, kind in tensor_types if x.is_quantized and kind != base
    )


def ggml(kind: str) -> str:
    return kind.lower().replace("_k", "_K")


@pytest.mark.parametrize("slug", SNAPSHOTS)
def test_tensor_types_equal_llama_cpp_snapshots(slug: str) -> None:
    version, length, title, sizes = SNAPSHOTS[slug]
    model = llamath.load(slug, changes={"tie_word_embeddings": False}).text
    naming = named(model)._replace(expert_type="")  # the rules, whatever the release
    tensors, traits = (
        [x.tensor for x in gguf_tensors(model.tree, naming)],
        gguf_traits(model.tree, naming),
    )
    text = f"{version}# Model: {title}\n# {sizes}\n"
    for name in SECTIONS.split():
        base = FILE_TYPES[name]
        text += f"\n[{name}] {ggml(base)}\n"
        if DTYPES[base].block > 1:
            text += "".join(
                listing(assign_types(name, tensors, traits, fallback=version != FIRST), base)
            )
        elif version == FIRST:
            text += "output.weight q6_K\n"
    assert len(text) == length


HEADER = 738_528
"""Bytes of the header with the tokenizer in microsoft/Phi-3-mini-4k-instruct-gguf."""


@pytest.mark.parametrize(
    ("slug", "name", "kind"), [("phi-3-mini", "Q4_K_M", "Q5_K"), ("phi-3.5-mini", "Q5_K_M", "Q6_K")]
)
def test_fused_qkv_has_one_type_as_in_published_files(slug: str, name: str, kind: str) -> None:
    model = llamath.load(slug)
    tensors = [x.tensor for x in gguf_tensors(model.tree, named(model))]
    types = assign_types(name, tensors, gguf_traits(model.tree, named(model)))
    assert {dtype for x, dtype in types if "attn_qkv" in x.name} == {kind}
    (note,) = (x for x in llamath.memory(model, dtype=name).notes if "llama-quantize of 2026" in x)
    assert note.endswith("3,538,944 bytes more" if name == "Q4_K_M" else "60,162,048 bytes less")


def test_phi_3_mixtures_have_published_sizes() -> None:
    """The file of Microsoft, and the size that is published of a Q5_K_M file of Phi-3.5-mini, 2.82 GB."""
    assert storage("phi-3-mini", "Q4_K_M").bytes + HEADER == 2_393_232_096
    assert round((storage("phi-3.5-mini", "Q5_K_M").bytes + HEADER) / 1e9, 2) == 2.82


def test_fused_qkv_of_linear_attention_has_the_types_of_v() -> None:
    model = llamath.load("qwen3.5-27b")
    assert gguf_traits(model.tree, named(model)).qkv_as_v
    assert not any(
        "llama-quantize of 2026" in x for x in llamath.memory(model, dtype="q4_k_m").notes
    )


def test_qwen3_q4_k_m_types_equal_llama_cpp() -> None:
    model = llamath.load("qwen3-0.6b", changes={"tie_word_embeddings": False})
    tensors = [x.tensor for x in gguf_tensors(model.tree, named(model))]
    q6_k_names = {
        f"blk.{i}.{x}.weight"
        for i in (0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27)
        for x in ("attn_v", "ffn_down")
    }
    types = assign_types("Q4_K_M", tensors, gguf_traits(model.tree, named(model)))
    assert {x.name for x, kind in types if kind == "Q6_K"} == q6_k_names | {"output.weight"}


@pytest.mark.parametrize(
    ("columns", "kind", "other"),
    [(576, "Q4_K", "Q5_0"), (64, "IQ4_XS", "IQ4_NL"), (100, "Q6_K", "F16"), (512, "Q3_K", "Q3_K")],
)
def test_type_falls_back_for_odd_row_lengths(columns: int, kind: str, other: str) -> None:
    assert rules.type_for_rows(kind, columns) == other


def test_eight_experts_have_rules_of_their_own() -> None:
    types = {
        x.leaf.pattern.removeprefix("layers.{l}."): x.codec
        for x in storage("mixtral-8x7b", "q4_k_m").weights
    }
    assert types["attn.v.weight"] == types["attn.k.weight"] == "Q8_0"
    assert types["attn.o.weight"] == "Q5_K"
    assert types["mlp.router.weight"] == "F32"


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_converted_files_have_the_predicted_bytes(name: str, tmp_path: Any) -> None:
    pytest.importorskip("numpy")
    from llamath.checkpoint.formats import checkpoint_files as checkpoint
    from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint

    convert_checkpoint(
        "examples/tiny-llama",
        str(tmp_path / "x.gguf"),
        ConvertOptions(to="gguf", dtype=name.upper()),
    )
    manifest = checkpoint.read_checkpoint(str(tmp_path / "x.gguf"))
    assert storage("examples/tiny-llama", f"gguf-{name}").bytes == sum(
        x.bytes for x in manifest.tensors
    )
    convert_checkpoint(
        "examples/tiny-llama", str(tmp_path / "hf"), ConvertOptions(to="hf", dtype=name.upper())
    )
    assert storage("examples/tiny-llama", name).bytes == sum(
        x.bytes for x in checkpoint.read_checkpoint(str(tmp_path / "hf")).tensors
    )


WRITERS: dict[str, Any] = {
    "awq": quantized_headers.awq,
    "gptq": quantized_headers.gptq(4),
    "gptq-8bit": quantized_headers.gptq(8),
    "gptq-2bit-g64": quantized_headers.gptq(2, 64),
    "gptq-3bit": quantized_headers.gptq(3),
    "fp8": quantized_headers.fp8_blocks,
    "bnb-int8": quantized_headers.bnb8,
    "bnb-nf4": quantized_headers.bnb4(nested=False),
    "bnb-nf4-dq": quantized_headers.bnb4(),
    "nvfp4": quantized_headers.nvfp4,
}
"""Scheme → the tensors that its quantizer stores for a matrix, as in the tests of packings."""


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("model", ["llama-3.2-1b", "mixtral-8x7b"])
def test_scheme_sizes_equal_the_quantizers_files(name: str, model: str) -> None:
    headers = [x for x in quantized_headers.plain(model) if "block_sparse_moe" not in x[0]]
    experts = [
        (f"{x[:-7]}_proj.weight", dtype, shape)
        for x, dtype, shape in quantized_headers.plain(model)
        if ".experts." in x
    ]
    router = [x for x in quantized_headers.plain(model) if "block_sparse_moe.gate" in x[0]]
    stored = quantized_headers.tensors(
        quantized_headers.packed([*headers, *experts, *router], WRITERS[name])
    )
    assert storage(model, name).bytes == sum(
        x.bytes for x in stored if ".quant_state." not in x.name
    )


@pytest.mark.parametrize(
    ("out", "into", "single", "double"),
    [
        (512, 1024, 262_144 + 32_768 + 64, 262_144 + 8_192 + 64 + 128 + 1_024),
        (192, 320, 34_624, 32_784),
        (100, 70, 4_004, 4_702),
    ],
)
def test_bnb_4bit_size_equals_bitsandbytes(out: int, into: int, single: int, double: int) -> None:
    """Bytes of `quantize_4bit(…).as_dict(packed=True)` of bitsandbytes 0.50.2, values included, the JSON of its state left out."""
    for name, size in (("bnb-nf4", single), ("bnb-nf4-dq", double)):
        matrix_bytes = parse_weight_format(name).matrix_bytes
        assert matrix_bytes is not None and matrix_bytes(out, into) == size


INDEXES = {x["name"]: x for x in truth("indexes.jsonl")}
CONFIGS = {x["name"]: x["config"] for x in truth("configs.jsonl")}
SAME = [
    name
    for name, x in INDEXES.items()
    if str(x["match"]).startswith("exact") and x["config"] in CONFIGS
]


@pytest.mark.parametrize("name", SAME)
def test_bytes_equal_published_indexes(name: str) -> None:
    entry = INDEXES[name]
    model = llamath.load(CONFIGS[entry["config"]])
    dtype = "fp32" if "x 4" in entry["match"] else "bf16"
    again = [x for x in llamath.walk(model.tree) if x.weight.tied] if entry["tied_stored"] else []
    twice = sum(
        int(x.weight.size) * DTYPES[parse_weight_format(dtype).unpacked_dtype].bytes for x in again
    )
    whole = entry["total_size"] if "text_config" not in CONFIGS[entry["config"]] else None
    if whole is None:
        pytest.skip("the text model is a part of it")
    assert storage(model, dtype).bytes + twice == whole


def test_enough_published_indexes_are_compared() -> None:
    assert len(SAME) > 25


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("jeevanchaps--Meta-Llama3.1-8B-Instruct-assessment.st", 2),
        ("IrfanUruchi--Llama-3.1-8B-Computer-Networks-LLM.st", 4),
    ],
)
def test_bitsandbytes_int8_bytes_equal_published_indexes(name: str, rest: int) -> None:
    stored = storage("llama-3.1-8b", "int8")
    plain = sum(x.elements for x in stored.sums() if x.codec == "F16")
    assert stored.bytes + (rest - 2) * plain == INDEXES[name]["total_size"]


def test_mxfp4_size_equals_gpt_oss() -> None:
    """`total_size` in the index of openai/gpt-oss-20b; and the model card's sizes of the checkpoints."""
    assert storage("gpt-oss-20b", "mxfp4").bytes == 13_761_264_768
    card = published("gpt_oss_model_card_table1")["rows"]["Checkpoint size"]
    assert [
        f"{storage(x, 'mxfp4').bytes / 2**30:.1f} GiB" for x in ("gpt-oss-120b", "gpt-oss-20b")
    ] == card


def test_fp8_size_equals_minimax_m2_except_fp32_routers() -> None:
    (row,) = (x for x in conformance("published_sizes") if x.get("name") == "MiniMaxAI/MiniMax-M2")
    stored = storage("minimax-m2", "fp8")
    routers = sum(
        int(x.leaf.weight.size) * int(x.leaf.copies)
        for x in stored.weights
        if x.leaf.group == "router"
    )
    assert stored.bytes + 2 * routers == row["printed"]["bytes"]


SCHEMES = [*WEIGHT_FORMATS, "gptq-8bit-g32", "awq-g64"]


@given(config=st.sampled_from([x.values[0] for x in tiny_configs()]), name=st.sampled_from(SCHEMES))
@settings(deadline=None)
def test_every_weight_is_stored_once(config: dict[str, Any], name: str) -> None:
    model = llamath.load(config)
    if parse_weight_format(name).gguf_file_type and model.family.gguf is None:
        with pytest.raises(LlamathError, match="no tensor names for this family"):
            storage(model, name)
        return
    stored = storage(model, name)
    assert stored.elements == sum(x.elements for x in stored.sums()) == model.parameters.total
    assert stored.bytes == sum(x.bytes for x in stored.sums()) > 0
    assert sum(int(x.leaf.active) for x in stored.weights) <= sum(
        int(x.leaf.copies) for x in stored.weights
    )


@pytest.mark.parametrize("slug", ["llama-3-8b", "gemma-2-2b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_pure_file_has_the_bits_of_its_type(slug: str) -> None:
    """Matrices of whole blocks take exactly the bits of the type."""
    stored = storage(slug, "q8_0-pure")
    for x in stored.weights:
        if x.codec == "Q8_0":
            assert x.bytes * 32 == prod(map(int, x.leaf.weight.shape)) * 34
    assert {x.codec for x in stored.weights} <= {"Q8_0", "F32", "F16"}


@pytest.mark.parametrize(
    "name", ["q4km", "bf17", "awq-8bit", "gptq-g33", "gptq-5bit", "q8_1-pure", ""]
)
def test_an_unknown_scheme_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(LlamathError) as problem:
        parse_weight_format(name)
    assert problem.value.hint


@pytest.mark.parametrize("slug", ["gpt2", "bloom-560m", "deepseek-v3", "gpt-oss-20b", "falcon-7b"])
def test_lines_of_weights_sum_to_their_bytes(slug: str) -> None:
    model = llamath.load(slug)
    for name in ("", *WEIGHT_FORMATS):
        calculator = MemoryCalculator(model, MemoryRequest(dtype=name, context=8))
        try:
            storage = calculator.storage
        except LlamathError:
            continue
        assert storage is not None and sum(x.bytes for x in calculator.weights) == storage.bytes, (
            name
        )


def test_biases_of_fused_qkv_are_counted_in_gguf_files() -> None:
    biases = [
        x
        for x in storage("gpt2", "q8_0").weights
        if x.leaf.pattern.endswith((".q.bias", ".k.bias", ".v.bias"))
    ]
    assert sum(x.total for x in biases) == 12 * 3 * 768 * 4
