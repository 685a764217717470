"""`memory` for inference: lines sum, formulas evaluate, limits are exact, and the peak matches transformers' forward pass."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.size.memory.inference_memory import (
    MAX_TOKENS,
    MemoryCalculator,
    MemoryRequest,
    largest_fitting,
    memory,
    peak_activations,
)
from llamath.analysis.size.training.training_memory import TrainRequest, training
from llamath.cli import cli
from llamath.core.expr import Expr
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs

GOLDEN = Path(__file__).parents[1] / "golden"
SHOWN = {
    "llama-3.1-70b": (
        "--context",
        "4k",
        "--context",
        "32k",
        "--context",
        "128k",
        "--on",
        "mem=80GiB",
        "--dtype",
        "q4_k_m",
        "--kv-dtype",
        "q8_0",
    ),
    "deepseek-v3": ("--dtype", "fp8", "--context", "32k", "--on", "mem=640GB"),
    "gemma-3-27b": (
        "--batch",
        "4",
        "--context",
        "8192",
        "--dtype",
        "bnb-nf4-dq",
        "--on",
        "mem=48GiB",
    ),
    "qwen3-next-80b-a3b": ("--context", "64k", "--dtype", "awq", "--batch-tokens", "all"),
}


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, ["memory", *args])


def memory_json(*args: str) -> dict[str, Any]:
    done = run(*args, "--json")
    assert done.exit_code in (0, 1) and not isinstance(done.exception, LlamathError), done.output
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def error_of(*args: str) -> str:
    done = CliRunner().invoke(cli, ["memory", *args], standalone_mode=False)
    assert isinstance(done.exception, (LlamathError, Exception)) and not isinstance(
        done.exception, (SystemExit, AssertionError)
    )
    error = done.exception
    return getattr(error, "message", None) or str(error)


@pytest.mark.parametrize("slug", SHOWN)
def test_printed_report_is_golden(slug: str) -> None:
    text = run(slug, *SHOWN[slug]).stdout
    path = GOLDEN / f"memory-{slug}.txt"
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "LLAMATH_GOLDEN=1 writes it anew; read the difference"
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("slug", SHOWN)
def test_printed_lines_sum_to_the_printed_total(slug: str) -> None:
    table = (GOLDEN / f"memory-{slug}.txt").read_text().split("\n\n")[1]
    rows = [
        int(x[1].replace(",", ""))
        for x in re.finditer(r"^\S.*?  +([\d,]+)  +[\d.,e-]+ +[\d.,e-]+", table, re.MULTILINE)
    ]
    *parts, total = rows[: -("MTP, not loaded" in table) or None]
    assert len(parts) > 3 and sum(parts) == total


CONTRACT = {
    "weights",
    "kv_cache",
    "kv_per_token",
    "activations",
    "logits",
    "overhead",
    "total",
    "lines",
}


@pytest.mark.parametrize("slug", SHOWN)
def test_json_has_the_documented_keys(slug: str) -> None:
    output = memory_json(slug, *SHOWN[slug])
    assert output.keys() >= CONTRACT
    parts = ("weights", "kv_cache", "activations", "logits", "overhead")
    assert (
        output["total"] == sum(output[x] for x in parts) == sum(x["bytes"] for x in output["lines"])
    )
    assert all(
        x.keys() == {"what", "bytes", "formula", "exact"} and x["formula"] for x in output["lines"]
    )
    assert [x["what"] for x in output["lines"] if not x["exact"]] == ["activations", "overhead"]
    assert "an estimate" in output["lines"][-1]["formula"]


def evaluate(text: str) -> int:
    """Evaluate the numbers of a formula."""
    plain = text.replace("·", "*").replace("−", "-")
    plain = re.sub(r"⌈([^⌈⌉]*) / (\d+)⌉", r"(-(-(\1) // \2))", plain)
    return int(eval(re.sub(r"⌊([^⌊⌋]*) / (\d+)⌋", r"((\1) // \2)", plain)))


@pytest.mark.parametrize(
    "slug",
    [
        "llama-3.1-8b",
        "deepseek-v3",
        "gemma-3-27b",
        "qwen3-next-80b-a3b",
        "nemotron-3-nano-30b",
        "lfm2-1.2b",
        "gpt-oss-20b",
    ],
)
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "q4_k_m", ""])
@pytest.mark.slow
def test_formulas_evaluate_to_their_bytes(slug: str, dtype: str) -> None:
    report = memory(
        llamath.load(slug),
        MemoryRequest(
            dtype=dtype, context=5000, batch=3, kv_dtype="q8_0" if dtype == "q4_k_m" else ""
        ),
    )
    for x in report.lines:
        assert isinstance(x.bytes, Expr) and evaluate(x.bytes.numbers) == x.bytes, x


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "deepseek-v3", "mixtral-8x7b"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_training_formulas_evaluate_to_their_bytes(slug: str, zero: int) -> None:
    layout = Layout(tp=2, dp=4, ep=1 if slug == "llama-3.1-8b" else 2, zero=zero, recompute="full")
    for x in training(llamath.load(slug), TrainRequest(layout=layout)).largest_stage.lines:
        assert isinstance(x.bytes, Expr) and evaluate(x.bytes.numbers) == x.bytes, x


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b"])
def test_weights_are_expressions_of_the_dimensions(slug: str) -> None:
    model = llamath.load(slug)
    lines = [
        x for x in memory(model, MemoryRequest(context=8)).lines if x.what.startswith("weights")
    ]
    tree = json.dumps([x.bytes.to_expression_json() for x in lines])
    for letter in ("d", "V", "Fe" if slug == "deepseek-v3" else "F"):
        assert f'["let", "{letter}", {model.count.formula.letters[letter]}]' in tree


def test_llama_70b_at_128k_has_its_known_memory() -> None:
    output = memory_json("llama-3.1-70b", "--context", "128k")
    assert (output["kv_per_token"], output["kv_cache"], output["weights"]) == (
        327_680,
        42_949_672_960,
        2 * 70_553_706_496,
    )
    assert (
        memory_json("llama-3.1-70b", "--context", "128k", "--set", "num_key_value_heads=64")[
            "kv_cache"
        ]
        == 320 * 2**30
    )
    text = run("llama-3.1-70b", "--context", "128k")
    assert "131,072 tokens" in text.stdout and "42.95" in text.stdout and "40.00" in text.stdout
    assert "2·L·K·h·T·B·2 = 2·80·8·128·131,072·1·2" in text.stdout
    assert not text.stderr


def test_context_beyond_the_models_own_is_a_warning() -> None:
    done = run("llama-3-8b", "--context", "32k")
    assert done.exit_code == 0
    assert "32,768 tokens are more than the model's own context, 8,192" in done.stderr
    assert "more than" not in run("llama-3-8b", "--context", "8k").stderr


def test_several_contexts_make_a_table() -> None:
    output = memory_json("llama-3.1-8b", "--context", "4k", "--context", "128k", "--context", "32k")
    assert output["context"] == 131_072 and [x["context"] for x in output["contexts"]] == [
        4096,
        131_072,
        32_768,
    ]
    assert [x["total"] for x in output["contexts"]] == [
        memory_json("llama-3.1-8b", "--context", x)["total"] for x in ("4096", "131072", "32768")
    ]


@pytest.mark.parametrize(("dtype", "kv"), [("q4_k_m", "q8_0"), ("bf16", ""), ("bnb-nf4", "fp8")])
def test_one_more_token_or_sequence_does_not_fit(dtype: str, kv: str) -> None:
    model = llamath.load("llama-3.1-8b")
    request = MemoryRequest(dtype=dtype, kv_dtype=kv, context=8192, batch=2)
    sizes = MemoryCalculator(model, request)
    for budget in (18 * 10**9, 24 * 2**30, 80 * 2**30):
        context, batch = sizes.max_context(budget), sizes.max_batch(budget)
        assert context and batch
        assert (
            memory(model, request.replace(context=context)).total
            <= budget
            < memory(model, request.replace(context=context + 1)).total
        )
        assert (
            memory(model, request.replace(batch=batch)).total
            <= budget
            < memory(model, request.replace(batch=batch + 1)).total
        )


def test_limits_that_nothing_or_everything_fits() -> None:
    output = memory_json("llama-3.1-70b", "--on", "mem=24GiB")
    assert (output["within"], output["fits"], output["max_context"], output["max_batch"]) == (
        24 * 2**30,
        False,
        0,
        0,
    )
    done = run("llama-3.1-70b", "--on", "mem=24GiB")
    assert "not even one token fits" in done.stdout and done.exit_code == 1
    windows = ("mistral-7b", "--context", "4096")
    assert memory_json(*windows, "--on", "mem=80GiB")["max_context"] is None
    assert "any number of tokens (the model's own context is 32,768)" in " ".join(
        run(*windows, "--on", "mem=80GiB").stdout.split()
    )


@given(limit=st.integers(0, 10**9))
@settings(deadline=None)
def test_largest_fitting_finds_the_limit(limit: int) -> None:
    assert largest_fitting(lambda n: n <= limit) == limit
    assert largest_fitting(lambda _: True) is None


@given(
    config=st.sampled_from([x.values[0] for x in tiny_configs(computed=True)]),
    context=st.integers(1, 10**5),
    batch=st.integers(1, 64),
    chunk=st.integers(1, 10**4),
)
@settings(deadline=None)
@pytest.mark.slow
def test_memory_grows_with_context_and_batch(
    config: dict[str, Any], context: int, batch: int, chunk: int
) -> None:
    sizes = MemoryCalculator(llamath.load(config), MemoryRequest(chunk=chunk))
    report = sizes.at(context, batch)
    assert report.total == sum(x.bytes for x in report.lines) and all(
        x.bytes >= 0 for x in report.lines
    )
    assert report.activations == report.prefill >= report.decode > 0
    assert sizes.at(context + 1, batch).total >= report.total < sizes.at(context, batch + 1).total


def test_weights_of_a_checkpoint_are_its_stored_bytes(tmp_path: Path) -> None:
    shutil.copytree("examples/tiny-llama", tmp_path / "tiny")
    path = str(tmp_path / "tiny")
    output = memory_json(path)
    assert output["dtype"] == "as stored" and output["weights"] == 65_856
    assert output["lines"][0]["what"] == "weights, BF16"
    assert memory_json(path, "--dtype", "fp32")["weights"] == 2 * 65_856
    (tmp_path / "tiny" / "model.safetensors").unlink()
    assert memory_json(path)["dtype"] == "bf16"


def test_weights_of_a_gguf_file_are_its_stored_bytes(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint

    convert_checkpoint(
        "examples/tiny-llama",
        path := str(tmp_path / "x.gguf"),
        ConvertOptions(to="gguf", dtype="F16"),
    )
    output = memory_json(path)
    assert {x["what"]: x["bytes"] for x in output["lines"][:2]} == {
        "weights, F16": 65_536,
        "weights, F32": 640,
    }
    assert output["weights"] == memory_json(path, "--dtype", "gguf-f16")["weights"] == 66_176


def test_unknown_family_has_only_weights(tmp_path: Path) -> None:
    shutil.copy("examples/tiny-llama/model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(
        '{"model_type": "rwkv", "hidden_size": 8, "vocab_size": 8}'
    )
    done = run(str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    output = json.loads(done.stdout)
    assert output["weights"] == 65_856 and output["kv_cache"] is output["total"] is None
    assert "rwkv" in run(str(tmp_path)).stdout
    assert "rwkv" in error_of(str(tmp_path), "--context", "4k")


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"torch_dtype": "float32"}, "fp32"),
        ({"dtype": "float16"}, "fp16"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}},
            "awq-4bit-g64",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 32}},
            "gptq-8bit-g32",
        ),
        (
            {
                "quantization_config": {
                    "load_in_4bit": True,
                    "bnb_4bit_quant_type": "nf4",
                    "bnb_4bit_use_double_quant": True,
                }
            },
            "bnb-nf4-dq",
        ),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "bnb-fp4",
        ),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({}, "bf16"),
    ],
)
def test_declared_dtype_is_used(keys: dict[str, Any], dtype: str) -> None:
    config = json.loads(Path("examples/tiny-llama/config.json").read_text())
    assert (
        memory(llamath.load({x: config[x] for x in config if "dtype" not in x} | keys)).dtype
        == dtype
    )


@pytest.mark.parametrize(
    "command", [("memory",), ("fit", "--on", "h100"), ("plan", "--on", "8xh100", "--serve")]
)
def test_unknown_quantization_is_refused_by_name(tmp_path: Path, command: tuple[str, ...]) -> None:
    config = json.loads(Path("examples/tiny-llama/config.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"quantization_config": {"quant_method": "qqq"}}))
    name, *options = command
    done = CliRunner().invoke(cli, [name, str(path), *options])
    assert done.exit_code == 2
    assert (
        "unknown quantization quant_method qqq in quantization_config: expected one of aqlm, auto-round"
        in " ".join(done.stderr.split())
    )
    assert "--dtype" in done.stderr
    assert CliRunner().invoke(cli, [name, str(path), *options, "--dtype", "fp8"]).exit_code == 0
    for dtype in ("float7", "int4", 16, "float8_e4m3fn", "float64", False):
        path.write_text(json.dumps({**config, "torch_dtype": "bfloat16", "dtype": dtype}))
        done = CliRunner().invoke(cli, [name, str(path), *options])
        assert done.exit_code == 2 and f"the config's dtype is {dtype}: expected" in done.stderr
    assert CliRunner().invoke(cli, [name, str(path), *options, "--dtype", "fp8"]).exit_code == 0


@pytest.mark.parametrize(
    "keys",
    [
        {"model_type": "mixtral", "num_local_experts": 10**9, "num_experts_per_tok": 2},
        {"hidden_size": 10**18, "num_attention_heads": 10**14, "num_key_value_heads": 10**14},
    ],
)
def test_hostile_sizes_are_handled_quickly(tmp_path: Path, keys: dict[str, Any]) -> None:
    config = json.loads(Path("examples/tiny-llama/config.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | keys))
    done = CliRunner().invoke(cli, ["fit", str(path), "--on", "h100"])
    assert done.exit_code == 1 and "does not fit" in done.stdout


@pytest.mark.parametrize(
    ("slug", "dtype"),
    [("deepseek-v3", "fp8"), ("deepseek-r1", "fp8"), ("kimi-k2", "fp8"), ("gpt-oss-20b", "mxfp4")],
)
def test_presets_published_quantized_default_to_it(slug: str, dtype: str) -> None:
    assert memory(llamath.load(slug)).dtype == dtype


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--batch", "0"), "--batch should be a positive integer, found '0'"),
        (("--batch", "-3"), "--batch should be a positive integer"),
        (("--batch", "9" * 30), "--batch should be a positive integer"),
        (("--context", "0"), "0 is too small"),
        (("--context", ""), "--context is empty"),
        (("--context", "-5"), "negative"),
        (("--context", "1.5"), "not a whole number of tokens"),
        (("--context", "4k,"), "is not a number of tokens"),
        (("--context", "9" * 20), "too large"),
        (("--context", "9" * 12), "context should be from 1 to 4,294,967,295, not 999,999,999,999"),
        (("--context", "4q"), "unknown unit q"),
        (
            ("--batch-tokens", "0"),
            "--batch-tokens: 0 is too small for a number of tokens",
        ),
        (("--on", "mem=24G"), "by 1,000 or by 1,024"),
        (("--on", "mem=24"), "it has no unit"),
        (("--dtype", "bf17"), "unknown dtype or quantization scheme"),
        (("--kv-dtype", "q6_k"), "dtype q6_k is not supported for a KV cache"),
    ],
)
def test_bad_input_is_rejected_with_a_reason(args: tuple[str, ...], words: str) -> None:
    assert words in error_of("llama-3-8b", *args)


def test_requests_out_of_range_are_rejected() -> None:
    with pytest.raises(LlamathError, match="context should be from 1"):
        memory(llamath.load("llama-3-8b"), MemoryRequest(context=0))
    with pytest.raises(LlamathError, match="chunk should be from 1"):
        memory(llamath.load("llama-3-8b"), MemoryRequest(chunk=MAX_TOKENS))


BASE = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 448, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 4096,
}  # fmt: skip


PLAIN = [
    {"model_type": "llama"},
    {"model_type": "mistral", "sliding_window": None},
    {"model_type": "qwen2"},
    {"model_type": "qwen3", "head_dim": 16},
]
TOKENS = 512


def measure_prefill(config: dict[str, Any], dtype: str) -> tuple[int, int]:
    """Peak memory of transformers during a prefill, without weights, cache and position tables, compared with our estimate."""
    import torch
    import transformers

    from support.live_bytes import LiveBytes

    hf_config = transformers.AutoConfig.for_model(**config)
    model = (
        transformers.AutoModelForCausalLM.from_config(hf_config, attn_implementation="sdpa")
        .to(getattr(torch, dtype))
        .eval()
    )
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    with torch.no_grad(), LiveBytes([*model.parameters(), *model.buffers()]) as live:
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
    size = torch.finfo(getattr(torch, dtype)).bits // 8
    cache_bytes = sum(x.keys.nbytes + x.values.nbytes for x in cache.layers)
    positions = TOKENS * (2 * 16 * size + 8)
    return live.most - cache_bytes - positions, int(
        peak_activations(llamath.load(config).tree).width
    ) * TOKENS * size


@pytest.mark.transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "config, dtype",
    [
        *((x, dtype) for x in PLAIN for dtype in ("float32", "bfloat16")),
        ({"model_type": "olmo2"}, "float32"),
    ],
    ids=lambda x: x if isinstance(x, str) else x["model_type"],
)
def test_peak_activations_match_transformers(config: dict[str, Any], dtype: str) -> None:
    measured, estimated = measure_prefill(BASE | config, dtype)
    assert measured == estimated


@pytest.mark.transformers
@pytest.mark.filterwarnings("ignore")
def test_transformers_exceeds_the_peak_by_documented_amounts() -> None:
    experts = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    older = {
        "model_type": "gpt2",
        "vocab_size": 512,
        "n_embd": 128,
        "n_layer": 3,
        "n_head": 8,
        "n_positions": 4096,
    }
    for config, times in ((BASE | experts, 1.3), (older, 1.8)):
        measured, estimated = measure_prefill(config, "float32")
        assert measured / estimated == pytest.approx(times, abs=0.1)
