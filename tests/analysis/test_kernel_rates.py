"""Benchmarks of kernels: interpolation, substitutes, and predictions of products and attention that set none of them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llamath
from llamath import hardware
from llamath.analysis.size.plan.microbatch_work import (
    EXPERT_BLOCK,
    AchievedRates,
    MicrobatchCosts,
    achieved_rates,
)
from llamath.analysis.size.plan.training_run import TrainingCostModel
from llamath.analysis.size.training.training_memory import TrainRequest
from llamath.hardware.kernel_rates import ATTENTION_KERNELS, KernelRates, benchmark_sources
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError

H100, A100 = hardware.find_device("h100"), hardware.find_device("a100-80gb")
DATA = json.loads((Path(hardware.FOLDER) / "kernels.json").read_text())


def test_interpolation_returns_the_measured_points() -> None:
    for table in DATA["attention"]:
        device = hardware.find_device(DATA["gpus"][table["gpu"]][0])
        for row in table["rows"]:
            for i, length in enumerate(row.get("lengths", table["lengths"])):
                keys = length / 2 if row["causal"] else length
                found = KernelRates(device, table["kernel"]).attention(
                    row["head_dim"], keys, row["causal"]
                )
                for name, value in zip(("forward", "backward"), found, strict=True):
                    if (measured := row.get(name) or row.get("both")) is not None:
                        assert value == pytest.approx(min(1.0, measured[i] / table["peak"]))


@given(st.sampled_from([H100, A100]), st.integers(32, 256), st.floats(16, 2**20), st.booleans())
def test_attention_shares_are_between_zero_and_one(
    device: hardware.Device, head_dim: int, keys: float, causal: bool
) -> None:
    rates = KernelRates(device)
    shares = rates.attention(head_dim, keys, causal)
    assert 0 < shares.backward <= shares.forward < 1
    assert shares.forward <= rates.attention(head_dim, 2 * keys, causal).forward * (1 + 1e-9)


def test_newer_attention_kernels_are_faster() -> None:
    shares = [
        KernelRates(H100, x).attention(128, 4096, True) for x in ("flash1", "flash2", "flash3")
    ]
    assert all(a.forward < b.forward and a.backward < b.backward for a, b in pairwise(shares))


@pytest.mark.parametrize(
    "gpu, kernel, note",
    [
        ("h100", "flash2", ""),
        ("h200", "flash2", ""),
        ("b200", "cudnn", ""),
        ("h100 mem=94GiB", "flash2", ""),
        ("mi300x", "flash2", "no benchmark of FlashAttention-2 on Instinct MI300X 192GB is known"),
        ("tpu-v4", "flash2", "no benchmarks of kernels on TPU v4 are known"),
        ("mem=80GiB bw=2TB/s bf16=300TF", "flash2", "no benchmarks of kernels on"),
    ],
)
def test_substitutes_are_named(gpu: str, kernel: str, note: str) -> None:
    rates = KernelRates(hardware.parse_device(gpu))
    assert (
        rates.kernel == kernel
        and (not note) == (not rates.notes)
        and all(x.startswith(note) for x in rates.notes)
    )


def test_unmeasured_kernels_are_refused() -> None:
    with pytest.raises(LlamathError, match="no benchmark of FlashAttention-3 on A100"):
        KernelRates(A100, "flash3")
    with pytest.raises(LlamathError, match="unknown 'flash9'"):
        KernelRates(H100, "flash9")


def test_every_benchmark_has_a_source() -> None:
    assert len(list(benchmark_sources())) == len(DATA["attention"]) + 2 and all(
        source for _, source in benchmark_sources()
    )
    known = {x.name for x in hardware.devices()}
    assert {name for names in DATA["gpus"].values() for name in names} <= known
    assert {x["kernel"] for x in DATA["attention"]} == set(ATTENTION_KERNELS)


PRODUCTS = [
    # Azure AI Benchmarking Guide, Azure_Results: TFLOP/s of cuBLASLt with random values, FP16 on A100 and FP8 on H100 and H200
    ("a100-80gb", 2, 4096, 4096, 4096, 228.0),
    ("a100-80gb", 2, 8192, 8192, 8192, 253.7),
    ("a100-80gb", 2, 6144, 12288, 12288, 250.8),
    ("h100", 1, 4096, 4096, 4096, 1216.9),
    ("h100", 1, 8192, 8192, 8192, 1290.1),
    ("h100", 1, 6144, 12288, 12288, 1351.4),
    ("h200", 1, 8192, 8192, 8192, 1300.6),
]


def rates_of(gpu: str) -> AchievedRates:
    found = achieved_rates(hardware.find_device(gpu), "bf16", "BF16")
    assert found is not None
    return found


@pytest.mark.parametrize("gpu, width, m, n, k, measured", PRODUCTS)
def test_measured_products_are_predicted(
    gpu: str, width: int, m: int, n: int, k: int, measured: float
) -> None:
    """None of these figures sets a constant; products of 2,048 and less wait for their launch, which is not modeled."""
    rates = rates_of(gpu)
    flops = rates.matmul_fp8 if width == 1 else rates.matmul
    seconds = 2 * m * n * k / flops + (width * (m * k + n * k) + 2 * m * n) / rates.memory
    assert 2 * m * n * k / seconds / 1e12 == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize("out, into, seconds", [(8192, 5120, 1.31e-3), (5120, 8192, 1.26e-3)])
def test_a_measured_grouped_product_is_predicted(out: int, into: int, seconds: float) -> None:
    """pytorch/ao#2490: 8,192 tokens for 16 experts, torch._grouped_mm in bf16 on H100."""
    rates, tokens, experts = rates_of("h100"), 8192, 16
    padded = (
        tokens + experts * EXPERT_BLOCK / 2
    )  # numbers of tokens that are not multiples of the block fill half of one on average
    moved = 2 * (tokens * (out + into) + experts * out * into)
    assert 2 * padded * out * into / rates.matmul + moved / rates.memory == pytest.approx(
        seconds, rel=0.25
    )


def test_few_tokens_per_expert_cost_whole_blocks() -> None:
    model = llamath.load("qwen3-30b-a3b")
    seconds = []
    for context in (128, 1024, 2048):
        layout = Layout(microbatches=1)
        run = TrainingCostModel(
            model, TrainRequest(context=context, fused=True, layout=layout), H100
        )
        costs: MicrobatchCosts = run.time.costs
        (block,) = {id(x.block): x.block for x in costs._graph.layers}.values()
        leaf = next(x for x in costs._leaves(block) if x.num_experts and x.weight.role == "matmul")
        product = costs._product(leaf, layout)
        assert product.rows == 8 * context and product.copies == 128
        seconds.append(product.flops)
    # 8, 64 and 128 tokens for each of the 128 experts are a block each
    assert seconds[0] == seconds[1] == seconds[2]
