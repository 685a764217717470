"""`flops`: parts sum to the total, attended pairs match an explicit mask, and published FLOP/s and MFUs are reproduced."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.graph.flop_count import forward_flops, train_flops
from llamath.analysis.graph.recorder import record
from llamath.analysis.size.flops.flops_report import (
    FlopsReport,
    FlopsRequest,
    count_model_flops,
    expected_copies,
)
from llamath.analysis.size.flops.flops_tables import flops_by_convention
from llamath.analysis.size.flops.mfu import Throughput, speed_of, utilization
from llamath.cli import cli
from llamath.utils.errors import LlamathError
from llamath.utils.number_format import format_si
from support.csv_tables import csv_rows
from support.loaded_models import LoadedModels
from support.reference_data import published

GOLDEN = Path(__file__).parents[1] / "golden"
SHOWN = ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt2"]
PALM = {
    "model_type": "llama",
    "hidden_size": 18432,
    "intermediate_size": 73728,
    "num_hidden_layers": 118,
    "num_attention_heads": 48,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 256000,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
}
A100, H800, TPU_V4 = 312 * 10**12, 989 * 10**12, 275 * 10**12


MODELS = LoadedModels(
    *("llama-3-8b", "gemma-3-1b", "llama-4-scout", "deepseek-v2-lite", "qwen3-next-80b-a3b"),
    "mixtral-8x7b",
)


def run(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, args, catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def megatron_model(heads: int, hidden: int, layers: int, vocab: int = 51200) -> llamath.Model:
    sizes = {
        "n_embd": hidden,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 2048,
        "vocab_size": vocab,
    }
    return llamath.load({"model_type": "gpt2", **sizes})


def count_flops(model: llamath.Model | str, context: int, **how: Any) -> FlopsReport:
    return count_model_flops(
        llamath.load(model) if isinstance(model, str) else model,
        FlopsRequest(context=context, **how),
    )


def flops_per_token(flops: FlopsReport) -> dict[str, float]:
    return {name: float(worth) for name, (_, worth) in flops_by_convention(flops).items()}


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["llama-3-8b", "gemma-3-1b", "llama-4-scout", "qwen3-next-80b-a3b"]),
    st.integers(1, 20_000),
    st.integers(1, 5000),
)
@pytest.mark.slow
def test_chunks_and_decode_steps_sum_to_the_prompt(slug: str, first: int, then: int) -> None:
    prefill = forward_flops(record(MODELS[slug].tree)).total
    decode = forward_flops(record(MODELS[slug].tree, decode=True)).total
    both = prefill.at(T=first) + prefill.at(T=then, P=first)
    assert both == prefill.at(T=first + then)
    assert both + decode.at(P=first + then) == prefill.at(T=first + then + 1)


def test_chunks_expand_cached_latent_vectors_again() -> None:
    tree = MODELS["deepseek-v2-lite"].tree
    prefill = forward_flops(record(tree)).total
    again = prefill.at(T=100) + prefill.at(T=50, P=100) - prefill.at(T=150)
    assert again == 27 * 100 * 2 * 16 * (128 + 128) * 512


def test_only_active_experts_are_counted() -> None:
    flops = forward_flops(record(MODELS["mixtral-8x7b"].tree, new_tokens=5))
    assert flops.of("experts") == 32 * 2 * 2 * 5 * 3 * 4096 * 14336


def test_gpt2_flops_match_nanogpt() -> None:
    """karpathy/nanoGPT, transformer_sizing.ipynb: GPT-2 at 1,024 tokens, attention over all pairs."""
    counted = count_flops("gpt2", 1024, masked=False)
    assert (counted.forward.total, counted.training.backward, counted.training.model) == (
        291648307200,
        583296614400,
        874944921600,
    )
    biases = llamath.load("gpt2").parameters.total - 124337664
    palm = next(x for x in counted.conventions if x.name == "palm")
    assert 1024 * (int(palm.train) - 6 * biases) == 879894724608


def test_megatron_formulas_are_exact() -> None:
    for _, heads, hidden, layers, *_ in published("megatron_sc21_table1")["rows"]:
        by_convention = flops_by_convention(
            count_flops(megatron_model(heads, hidden, layers), 2048, masked=False, recompute="full")
        )
        assert (
            by_convention["hardware"][1] == by_convention["megatron"][1]
            and by_convention["exact"][1] == by_convention["megatron-model"][1]
        )


def test_megatron_sc21_table_1() -> None:
    for billions, heads, hidden, layers, _, _, gpus, _, rate, share, whole in published(
        "megatron_sc21_table1"
    )["rows"]:
        model = megatron_model(heads, hidden, layers)
        assert model.parameters.total / 1e9 == pytest.approx(billions, abs=0.06)
        counted = count_flops(model, 2048, masked=False)
        speed = Throughput(
            tokens=gpus * speed_of(counted, Fraction(rate) * 10**12, "megatron"),
            gpus=gpus,
            peak=A100,
            name="a100",
            precision="bf16",
        )
        used = {x.name: x for x in utilization(counted, speed)}["megatron"]
        assert float(100 * used.share) == pytest.approx(share, abs=0.6)
        assert float(used.rate * gpus) / 1e15 == pytest.approx(whole, abs=0.05 + 0.5 * gpus / 1000)


def test_megatron_turing_throughput() -> None:
    """Smith et al. 2022, arXiv:2201.11990, §3.2: 60.1, 50.2 and 44.4 s a batch of 1,920 on 280, 350, 420 servers: 126, 121, 113."""
    worth = flops_per_token(count_flops(megatron_model(128, 20480, 105), 2048))
    for servers, seconds, printed in ((280, 60.1, 126), (350, 50.2, 121), (420, 44.4, 113)):
        assert 1920 * 2048 * worth["megatron"] / seconds / (8 * servers) / 1e12 == pytest.approx(
            printed, rel=0.005
        )


def test_palm_table_3() -> None:
    """Chowdhery et al. 2022, §4.1: PaLM 45.7 % without attention, 46.2 % with; Megatron-Turing 29.7 % and 30.2 %."""
    palm = llamath.load(PALM)
    assert (
        round(palm.parameters.total / 1e9, 2) == 540.36
        or round(palm.parameters.total / 1e9, 1) == 540.4
    )
    for model, rate, peak, printed in (
        (palm, 238.3e3, 6144 * TPU_V4, (45.7, 46.2)),
        (megatron_model(128, 20480, 105), 65.43e3, 2240 * A100, (29.7, 30.2)),
    ):
        worth = flops_per_token(count_flops(model, 2048))
        assert tuple(round(100 * rate * worth[x] / peak, 1) for x in ("6n", "palm")) == printed


def test_korthikanti_utilization() -> None:
    """The times are printed to a hundredth of a second, so the 22B row is known to half a percent."""
    facts = published("korthikanti")
    for (_, heads, hidden, layers, _, _, gpus, batch, _), row in zip(
        facts["configs"]["rows"], facts["end_to_end"]["rows"], strict=True
    ):
        worth = flops_per_token(count_flops(megatron_model(heads, hidden, layers), 2048))
        _, _, seconds, _, mfu, hfu = row
        used = batch * 2048 / seconds / gpus / A100
        slack = 0.00055 + 0.005 / seconds * mfu
        assert worth["megatron-model"] * used == pytest.approx(mfu, abs=slack)
        assert worth["megatron-selective"] * used == pytest.approx(hfu, abs=slack)


def test_deepseek_v3_utilization() -> None:
    """Zhao et al. 2025 (ISCA), table 4: 272.80 billion tokens a day on 2,048 H800: 432 and 385 TFLOP/s, 43.73 % and 38.94 %; no router."""
    mfu, rate = count_flops("deepseek-v3", 4096), 272.80e9 / 86400 / 2048
    router = 3 * mfu.forward.of("router") / mfu.tokens
    worth = flops_per_token(mfu)
    for name, teraflops, share in (("full", 432, 43.73), ("exact", 385, 38.94)):
        achieved = rate * (worth[name] - router)
        assert int(achieved / 1e12) == teraflops and round(100 * achieved / H800, 2) == share
    assert round(100 * rate * worth["megatron-lm"] / H800, 2) == 38.94


def test_llama_3_training_budget() -> None:
    """Llama 3, §3.2: 3.8·10²⁵ FLOPs for 405B and 15.6T tokens."""
    assert round(flops_per_token(count_flops("llama-3.1-405b", 8192))["6n"] * 15.6e12 / 1e24) == 38


@pytest.mark.parametrize("slug", ["llama-3-8b", "mixtral-8x7b", "qwen2.5-7b", "granite-3.0-8b"])
def test_megatron_lm_formula(slug: str) -> None:
    """The formula of megatron/training/training.py, term by term."""
    model = llamath.load(slug)
    c, T = model.config.data, 4096
    d, L, H, K = (
        int(c[x])
        for x in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    )
    experts, gated = c.get("num_experts_per_tok", 1), Fraction(3, 2)
    attention = 1 + Fraction(K, H) + Fraction(T, d) / 2
    mlp = Fraction(c["intermediate_size"], d) * experts * gated
    logit = Fraction(int(model.tree.vocab), 2 * L * d)
    convention = next(x for x in count_flops(model, T).conventions if x.name == "megatron-lm")
    assert int(convention.train) == 12 * L * d * d * (attention + mlp + logit)


def test_absorbed_latent_attention_trades_prefill_for_decode() -> None:
    model = llamath.load("deepseek-v3")
    absorbed = forward_flops(record(model.tree, past_tokens=4095, decode=True))
    naive = forward_flops(record(model.tree, new_tokens=1, past_tokens=4095))
    expanded = 61 * 2 * 128 * (128 + 128) * 512
    assert naive.weights["attention"] - absorbed.weights["attention"] == 4095 * expanded
    assert naive.mixing_total == 61 * 2 * 128 * (128 + 64 + 128) * 4096
    assert absorbed.mixing_total == 61 * 2 * 128 * (512 + 64 + 512) * 4096
    for unpacked, decode, other in ((False, absorbed, naive), (True, naive, absorbed)):
        counted = count_flops(model, 4096, unpacked=unpacked)
        assert (counted.decode.total, counted.decode_otherwise.total) == (decode.total, other.total)
        assert counted.decode_intensity[-1].flops == absorbed.total


def test_recomputation_repeats_only_layers() -> None:
    graph = record(MODELS["llama-3-8b"].tree, new_tokens=2048)
    whole = forward_flops(graph)
    none, selective, full = (train_flops(graph, recompute=x) for x in ("none", "selective", "full"))
    assert none.hardware == none.model == 3 * whole.total
    assert selective.hardware == none.model + whole.mixing_total
    assert full.hardware == none.model + whole.total - whole.of("head")
    fused = train_flops(record(MODELS["llama-3-8b"].tree, batch=3, new_tokens=2048), flash=True)
    assert 2 * fused.rescored == 3 * whole.mixing_total and fused.model == 3 * none.model


def test_expected_experts_grow_with_the_batch() -> None:
    assert expected_copies(8, 2, 1) == 2 and expected_copies(8, 8, 1) == 8
    assert (
        expected_copies(256, 8, 1)
        < expected_copies(256, 8, 2)
        < expected_copies(256, 8, 64)
        < expected_copies(256, 8, 10**9)
        == 256
    )


def test_dense_decode_intensity() -> None:
    counted = count_flops("llama-3-8b", 4096, dtype="bf16")
    inner = {x.group: x for x in counted.decode_intensity}
    assert inner["mlp"].ratio == inner["head"].ratio == 1
    assert (
        inner["mlp"].weights == 2 * 32 * 3 * 4096 * 14336
        and inner["attention"].cache == 131072 * 4096
    )
    tied = {x.group: x for x in count_flops("llama-3.2-1b", 4096, dtype="bf16").decode_intensity}
    assert tied["head"].weights == 2 * 128256 * 2048
    assert (
        inner["attention"].bytes
        > {x.group: x for x in count_flops("llama-3-8b", 4096, kv_dtype="q8_0").decode_intensity}[
            "attention"
        ].bytes
    )


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10**27))
def test_si_keeps_four_digits(value: int) -> None:
    text = format_si(value)
    number, unit = (
        (text[:-1], 10 ** (3 * (" kMGTPEZY".index(text[-1])))) if text[-1].isalpha() else (text, 1)
    )
    assert float(number) * unit == pytest.approx(value, rel=0.51e-3)
    assert len(text) <= 7


@pytest.mark.parametrize("slug", SHOWN)
def test_golden(slug: str) -> None:
    shown = run("flops", slug, "--context", "4096")
    path = GOLDEN / f"flops-{slug}.txt"
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= 80


def test_json_keeps_its_contract() -> None:
    output = json.loads(run("flops", "mixtral-8x7b", "--context", "4k", "--batch", "2", "--json"))
    one = count_flops("mixtral-8x7b", 4096, batch=2)
    assert (output["forward"], output["train"]) == (one.forward.total, 3 * one.forward.total)
    assert output["per_token"] * output["context"] * output["batch"] == output["forward"]
    assert (
        output["attention"] == "causal" and output["forward"] < output["full_attention"]["forward"]
    )
    assert sum(x["train"] for x in output["products"]) == output["train"]
    for x in output["conventions"].values():
        assert x["per_token"] * 2 * 4096 == x["train"] and x["ratio"] == pytest.approx(
            x["train"] / output["train"]
        )
        assert x["source"] and x["formula"]
    assert {"kaplan", "6n", "6n-active", "palm", "nanogpt", "megatron", "megatron-lm"} <= output[
        "conventions"
    ].keys()
    groups = output["groups"]["forward"].values()
    assert sum(x["weights"] + x["mixing"] for x in groups) == output["forward"]


def test_csv_and_markdown_match() -> None:
    rows = csv_rows(run("flops", "gemma-3-1b", "--context", "8192", "--format", "csv"))
    counted = count_flops("gemma-3-1b", 8192)
    assert (
        sum(int(x["forward"]) for x in rows) == counted.forward.total
        and sum(int(x["decode"]) for x in rows) == counted.decode.total
    )
    products = run("flops", "gemma-3-1b", "--format", "markdown").split("\n\n")[2].splitlines()
    sums = [x for x in products if " | × " in x or x.startswith("| total ")]
    assert len(products) == len(rows) + len(sums) + 2


def test_mfu_by_every_convention() -> None:
    data = json.loads(
        run(
            "flops",
            "llama-3.1-405b",
            "--context",
            "8k",
            "--on",
            "16384xh100",
            "--mfu",
            "400TFLOP/s,counted_by=6n",
            "--json",
        )
    )
    mfu = data["mfu"]["by"]
    assert mfu["6n"]["mfu"] == pytest.approx(400e12 / data["mfu"]["peak"])
    assert mfu["palm"]["mfu"] / mfu["6n"]["mfu"] == pytest.approx(
        data["conventions"]["palm"]["per_token"] / data["conventions"]["6n"]["per_token"]
    )
    rate = str(data["mfu"]["tokens_per_second"])
    again = json.loads(
        run(
            "flops",
            "llama-3.1-405b",
            "--context",
            "8k",
            "--on",
            "16384xh100",
            "--mfu",
            f"{rate}tok/s",
            "--json",
        )
    )
    assert again["mfu"]["by"]["palm"]["mfu"] == pytest.approx(mfu["palm"]["mfu"])
    text = run("flops", "llama-3.1-405b", "--on", "16384xh100", "--mfu", "400TFLOP/s")
    assert "16,384" in text and "MFU" in text


def test_units_of_a_speed_are_read() -> None:
    speeds = (
        "0.15PFLOP/s",
        "150TF",
        "150 TFLOPS",
        "1.5e5GFLOP/s",
        llamath.MeasuredSpeed(tflops=150),
    )
    first, *others = (llamath.flops("gpt2", on="h100", mfu=x).to_json()["mfu"] for x in speeds)
    assert first["by"]["exact"]["flops_per_second"] == pytest.approx(150e12)
    assert all(x == first for x in others)
    mixed = llamath.flops("gpt2", on="h100", mfu="9.5e4tokens/s,dtype=fp8").to_json()["mfu"]
    assert (mixed["tokens_per_second"], mixed["precision"]) == (95_000, "fp8")


def test_conventions_cite_sources() -> None:
    text = run("flops", "llama-3-8b", "--format", "conventions")
    for x in count_flops("llama-3-8b", 8192).conventions:
        assert x.name in text and f"{int(x.train):,}" in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--context", "0"), "tokens"),
        (("--context", "-5"), "tokens"),
        (("--context", "4kb"), "tokens"),
        (("--batch", "0"), "batch"),
        (("--batch", str(2**60)), "batch"),
        (("--on", "h1000", "--mfu", "4TFLOP/s"), "h1000"),
        (("--on", "h100", "--mfu", "4TFLOP/s,counted_by=plam"), "palm"),
        (("--on", "h100", "--mfu", "4TFLOP/s,dtype=fp3"), "fp3"),
        *(
            (("--on", "h100", "--mfu", x), "expected a speed such as")
            for x in (
                "0TFLOP/s",
                "4",
                "4GB/s",
                "-4tok/s",
                "counted_by=palm",
                "tflops=4",
                "1e99tok/s",
            )
        ),
        (("--on", "h100", "--mfu", "1tok/s,tflops=1"), "unknown key 'tflops'"),
        (("--attention", "causal,full"), "either causal or full"),
        (("--attention", "sparse"), "unknown"),
        (("--dtype", "fp99"), "fp99"),
        (("--kv-dtype", "fp99"), "fp99"),
    ],
)
def test_invalid_options_are_refused(args: tuple[str, ...], says: str) -> None:
    with pytest.raises(LlamathError) as caught:
        run("flops", "llama-3-8b", *args)
    assert says in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "args",
    [
        ("--mfu", "3TFLOP/s"),
        ("--on", "h100"),
    ],
)
def test_mfu_needs_one_throughput(args: tuple[str, ...]) -> None:
    with pytest.raises(LlamathError, match="--mfu needs GPUs and one speed"):
        run("flops", "llama-3-8b", *args)


def test_context_beyond_the_model_is_noted() -> None:
    assert "beyond the model's context of 8,192" in run("flops", "llama-3-8b", "--context", "128k")
    assert "beyond" not in run("flops", "llama-3-8b", "--context", "8k")
