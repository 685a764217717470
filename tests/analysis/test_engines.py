"""Engines: their rules against threads in which they refused, their caches against their own planner and their logs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import llamath
import predictions
from llamath import catalog
from llamath.analysis.graph.recorder import record
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.serving.device_rules import longest_request
from llamath.analysis.size.serving.engine_report import (
    EngineReport,
    EngineSettings,
    plan_engine,
)
from llamath.analysis.size.serving.paged_cache import (
    layer_caches,
)
from llamath.analysis.size.serving.token_pools import TokenPools, pool_layers
from llamath.engines import ENGINES, find_engine
from llamath.hardware import find_device

GIB = 2**30


def sizes_of(model: str, kv_dtype: str = "", context: int = 8192) -> MemoryCalculator:
    return MemoryCalculator(llamath.load(model), MemoryRequest(kv_dtype=kv_dtype, context=context))


def plan(model: str, on: str, engine: str, **settings: Any) -> EngineReport:
    report = llamath.fit_engine(model, on=on, engine=engine, **settings)
    assert isinstance(report, EngineReport)
    return report


def test_a_refused_layout_comes_with_the_nearest_and_a_command() -> None:
    report = plan("minimax-m2", "8xh100", "vllm@0.25.1")
    assert not report.starts and report.why[0].rule == "fp8-block-experts" and report.why[0].source
    assert report.nearest[0] == "TP 8 with expert parallelism"
    assert (
        "--enable-expert-parallel" in report.command
        and "--tensor-parallel-size 8" in report.command
    )


def test_newer_versions_say_what_older_ones_refuse() -> None:
    report = plan("minimax-m2", "8xh100", "vllm")
    assert report.starts and report.older[0].rule == "fp8-block-experts" and not report.why


def test_given_cache_memory_prints_exact_lines() -> None:
    report = plan(
        "llama-3.1-8b", "h100", "vllm", context=8192, engine_args="--kv-cache-memory-bytes 10G"
    )
    assert report.prints[-2:] == (
        "GPU KV cache size: 81,920 tokens",
        "Maximum concurrency for 8,192 tokens per request: 10.00x",
    )
    assert report.verdict == "starts"


def test_a_long_context_is_refused_in_vllms_words() -> None:
    report = plan(
        "llama-3.1-8b", "rtx-4090", "vllm", context="128k", engine_args="--kv-cache-memory-bytes 5G"
    )
    assert report.verdict == "does not start"
    assert (
        "(131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.00 GiB)."
        in report.prints[-1]
    )
    assert "the estimated maximum model length is 40944" in report.prints[-1]


def test_unknown_caches_are_named_and_not_printed() -> None:
    report = plan("deepseek-v3.2", "8xh200", "tensorrt-llm", context="64k")
    assert report.least is None and not report.prints and "keys of the indexer" in report.notes[0]


@pytest.mark.parametrize(
    ("gpu", "kv_dtype", "row"), [("h200", "bf16", 1284), ("h200", "fp8", 788), ("b200", "fp8", 708)]
)
def test_sparse_latents_take_a_format_of_the_kernel(gpu: str, kv_dtype: str, row: int) -> None:
    for name in ("vllm", "sglang"):
        sizes = sizes_of("deepseek-v3.2", kv_dtype, 65536)
        settings = EngineSettings(kv_memory=20 * GIB)
        report = plan_engine(sizes, name, find_device(gpu), 8, settings)
        assert report.most is not None and report.most.tokens == 20 * GIB // (61 * row) // 64 * 64


def test_sparse_latents_equal_bytes_that_vllm_measured() -> None:
    # https://github.com/local-inference-lab/vllm/pull/82: 54,728 bytes of a token of GLM-5.2 with its layer for multi-token prediction
    paged = predictions.pages({"engine": "vllm", "model": "glm-5.2", "given": {"kv_dtype": "fp8"}})
    assert paged.block_bytes[0] // 64 + 656 + 132 == 54728


def pools(model: str, kv_dtype: str = "bf16", state_bytes: int = 4) -> TokenPools:
    sizes = sizes_of(model, kv_dtype)
    caches = layer_caches(record(sizes.tree, decode=True), 1, sizes.kv_dtype, state_bytes)
    assert not isinstance(caches, str)
    kind = sizes.model.config.data["model_type"]
    found = pool_layers(
        sizes.tree, caches, find_engine("sglang"), {kind}, [[(0, int(sizes.tree.layers.n))]]
    )
    assert isinstance(found, TokenPools)
    return found


def test_sglang_divides_memory_between_windows_and_all_tokens() -> None:
    found = pools("gpt-oss-20b")
    row = 12 * 8 * 64 * 2 * 2
    assert found.full_tokens(10 * GIB) == int(10 * GIB // (1.8 * row)) and found.window == 128
    assert found.lines(10 * GIB, 10 * GIB) == (
        f"Use sliding window memory pool. full_layer_tokens={found.full_tokens(10 * GIB)}, swa_layer_tokens={found.window_tokens(10 * GIB)}",
    )
    few = found.capacity(129 * row, 8192)
    assert (
        few.longest == 0 and not few.starts
    )  # 71 tokens in the pool of windows, fewer than the window


def test_sglang_starts_with_a_short_pool() -> None:
    sizes = sizes_of("gemma-4-31b", context=131072)
    report = plan_engine(
        sizes, "sglang", find_device("h100"), 1, EngineSettings(kv_memory=10 * GIB)
    )
    assert report.verdict == "does not start" and "refuses requests" in report.notes[0]
    none = plan("gemma-4-31b", "rtx-4090", "sglang")
    assert none.prints == (
        "Not enough memory. Please try to increase --mem-fraction-static.",
    ) and "refuses" not in " ".join(none.notes)


def test_sglang_keeps_all_tokens_of_other_models_with_windows() -> None:
    found = pools("gemma-3-27b")
    assert not found.window and found.full_tokens(10 * GIB) == 10 * GIB // (62 * 16 * 128 * 2 * 2)


def test_sglang_trades_states_for_tokens_as_a_thread_measured() -> None:
    # https://github.com/noonghunna/club-3090/pull/1331: 11 states fewer are 24,785 tokens more, in FP8 with 17 layers of keys and values
    found = pools("qwen3.5-27b", "fp8", 2)
    (stage,) = found.stages
    assert stage.full == 16 * 2048 and round(stage.state / (17 * 2048), 1) == 2253.2
    states = found.states(10 * GIB)
    assert 0.46 < (states + 1) * stage.state / (10 * GIB) <= 0.9 / 1.9
    assert found.full_tokens(10 * GIB) == (10 * GIB - states * stage.state) // stage.full


@pytest.mark.parametrize("name", ENGINES)
def test_every_rule_and_figure_has_a_source(name: str) -> None:
    engine = find_engine(name)
    assert (
        engine.source
        and all(x.source and x.says for x in engine.rules)
        and all(x.source for x in engine.figures.values())
    )


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_gives_a_command_for_a_small_model(name: str) -> None:
    dtype = "q4_k_m" if find_engine(name).runner == "llama.cpp" else ""
    report = plan("llama-3.2-1b", "2xrtx-4090", name, dtype=dtype)
    assert report.starts and report.command
    assert not re.search(r"[\x00-\x08]", report.command)


def test_llama_cpp_prints_the_known_cache_of_llama_3() -> None:
    report = plan("llama-3-8b", "rtx-4090", "llama.cpp", dtype="q4_k_m", context=8192)
    assert report.prints == ("llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers)",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "vlm", "on": "h100"}, "unknown engine"),
        ({"engine": "vllm@0.3.0", "on": "h100"}, "its rules are known"),
        ({"engine": "vllm", "on": "8xh100", "layout": "tp=4"}, "needs 4 GPUs"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.LlamathError, match=message):
        llamath.fit_engine("llama-3.1-8b", **arguments)


@pytest.mark.parametrize(
    "engine,dtype,says",
    [
        ("vllm", "q4_k_m", "Invalid quantization method: gguf"),
        ("vllm@0.19.1", "q4_k_m", ""),
        ("vllm", "bnb-nf4", "Unknown quantization method: bitsandbytes."),
        ("vllm@0.26.0", "bnb-nf4", ""),
        ("sglang", "bnb-nf4", ""),
        ("trtllm", "bnb-nf4", "weights quantized by bitsandbytes are none of its formats"),
        ("transformers", "bnb-nf4", ""),
    ],
)
def test_engines_refuse_formats_that_they_do_not_read(engine: str, dtype: str, says: str) -> None:
    report = llamath.fit_engine("llama-3.1-8b", on="rtx-4090", dtype=dtype, engine=engine)
    assert [x.says for x in report.why] == ([says] if says else []) and report.starts == (not says)


def test_an_mlx_checkpoint_starts_nowhere_but_with_mlx(tmp_path: Path) -> None:
    config = json.loads(
        (Path(__file__).parents[2] / "examples" / "tiny-llama" / "config.json").read_text()
    )
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"quantization": {"bits": 4, "group_size": 64}})
    )
    for engine in ("vllm", "sglang", "transformers", "trtllm"):
        report = llamath.fit_engine(str(tmp_path), on="rtx-4090", engine=engine, context=64)
        assert [x.rule for x in report.why] == ["method"], engine


@pytest.mark.parametrize(
    "model,options,loads,note",
    [
        ("llama-3.1-8b", {}, "vllm serve meta-llama/Llama-3.1-8B ", ""),
        (
            "llama-3.1-8b",
            {"dtype": "fp16"},
            "vllm serve meta-llama/Llama-3.1-8B \\\n  --dtype float16 ",
            "",
        ),
        (
            "llama-3.1-8b",
            {"dtype": "fp8"},
            "vllm serve ./Llama-3.1-8B-FP8 ",
            "./Llama-3.1-8B-FP8 stands for a checkpoint",
        ),
        (
            "minimax-m2",
            {"dtype": "bf16", "on": "8xh200"},
            "vllm serve ./MiniMax-M2-BF16 ",
            "put its public id or path there",
        ),
        (
            "llama-3.1-8b",
            {"changes": {"num_hidden_layers": 4}},
            "vllm serve ./Llama-3.1-8B ",
            "with this configuration",
        ),
        ("examples/tiny-llama", {"context": 64}, "vllm serve examples/tiny-llama ", ""),
        ("qwen2.5-vl-7b", {}, "vllm serve Qwen/Qwen2.5-VL-7B-Instruct ", ""),
    ],
)
def test_the_command_loads_the_weights_that_were_asked_for(
    model: str, options: dict[str, Any], loads: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    loaded = llamath.load(model, changes=options.pop("changes", None))
    report = llamath.fit_engine(loaded, **({"on": "h100", "engine": "vllm"} | options))
    assert report.command.startswith(loads), report.command
    assert (
        any(note in x for x in report.notes) if note else "stands for" not in " ".join(report.notes)
    )


def test_transformers_quantizes_with_bitsandbytes_while_it_loads() -> None:
    command = llamath.fit_engine(
        "llama-3.1-8b", on="rtx-4090", engine="transformers", dtype="bnb-nf4"
    ).command
    assert (
        "'meta-llama/Llama-3.1-8B', dtype=torch.bfloat16" in command
        and 'bnb_4bit_quant_type="nf4"' in command
    )
    compile(command, "command", "exec")


@pytest.mark.parametrize(
    ("engine", "on", "starts"),
    [
        ("vllm", "m3-max-128gb", False),
        ("vllm", "tpu-v5p", False),
        ("vllm", "gaudi-3", False),
        ("vllm", "p40", False),
        ("vllm", "v100-32gb", False),
        ("vllm@0.19.1", "v100-32gb", True),
        ("vllm", "t4", True),
        ("vllm", "mi300x", True),
        ("vllm", "mem=80GiB bw=2TB/s", True),
        ("sglang", "v100-32gb", False),
        ("sglang", "tpu-v5p", False),
        ("sglang", "rtx-3090", True),
        ("tensorrt-llm", "mi300x", False),
        ("tensorrt-llm", "m3-max-128gb", False),
        ("tensorrt-llm", "t4", False),
        ("tensorrt-llm", "l40s", True),
        ("llama.cpp", "m3-max-128gb", True),
        ("llama.cpp", "tpu-v5p", False),
    ],
)
def test_engines_start_only_on_devices_that_they_support(
    engine: str, on: str, starts: bool
) -> None:
    dtype = "q4_k_m" if engine == "llama.cpp" else ""
    report = plan("llama-3.2-1b", on, engine, dtype=dtype, context=4096)
    assert report.starts == starts, report.why
    if not starts:
        assert report.why[0].rule.startswith(("platform", "compute-capability"))
        assert all(x.argument == "engine" for x in report.instead) and not report.command


@pytest.mark.parametrize(
    ("engine", "model", "on", "context", "says", "instead"),
    [
        ("vllm", "llama-3-8b", "h100", 32768, "max_position_embeddings=8192.0", "8192"),
        ("vllm", "gpt2", "h100", 8192, "n_positions=1024 or", "1024"),
        ("vllm@0.29.0", "deepseek-v3", "8xh200", 163_841, "max_position_embeddings=163840.0", None),
        ("vllm", "deepseek-v3", "8xh200", 163_841, "max_position_embeddings=163840.0", None),
        ("sglang", "llama-2-7b", "h100", 32768, "derived context_length (4096)", "4096"),
    ],
)
def test_requests_longer_than_the_engine_allows_are_refused(
    engine: str, model: str, on: str, context: int, says: str, instead: str | None
) -> None:
    report = plan(model, on, engine, context=context)
    assert report.verdict == "does not start" and says in report.why[0].says
    assert instead is None or report.instead[0].value == instead
    assert plan(model, on, engine, context=1024).starts


def test_yarn_multiplies_the_original_length_in_older_versions() -> None:
    config = {
        **catalog.find_preset("llama-3.2-1b").config,
        "max_position_embeddings": 8192,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 4096,
        },
    }
    sizes = MemoryCalculator(llamath.load(config), MemoryRequest())
    lengths = [longest_request(find_engine(x), sizes)[0] for x in ("vllm@0.29.0", "vllm", "sglang")]
    assert lengths == [16384, 8192, 8192]


def test_llama_cpp_warns_of_more_tokens_than_were_trained() -> None:
    report = plan("llama-3-8b", "h100", "llama.cpp", dtype="q4_k_m", context=32768)
    assert report.starts and "n_ctx_train (8192)" in report.warnings[0].says


def test_gemma_takes_float32_where_bfloat16_is_missing() -> None:
    report = plan("gemma-2-2b", "t4", "vllm")
    assert report.weights == 2 * plan("gemma-2-2b", "l4", "vllm").weights
    assert "Falling back to torch.float32" in report.warnings[0].says
    assert "--dtype float32" in report.command
    half = plan("gemma-2-2b", "l4", "vllm", dtype="fp16")
    assert "'gemma2' does not support float16" in half.why[0].says
    llama = plan("llama-3.2-1b", "t4", "vllm")
    assert "Falling back to torch.float16" in llama.warnings[0].says and llama.starts
    assert "at least 8.0" in plan("gpt2", "t4", "vllm", dtype="bf16", context=1024).why[0].says


@pytest.mark.parametrize(
    ("engine", "dtype", "on", "verdict"),
    [
        ("vllm", "fp8", "rtx-3090", "Marlin"),
        ("vllm", "fp8", "rtx-4090", ""),
        ("vllm", "nvfp4", "rtx-4090", "Marlin"),
        ("vllm", "nvfp4", "rtx-5090", ""),
        ("vllm@0.11.0", "fp8", "t4", "Minimum capability: 80. Current capability: 75."),
        ("sglang", "nvfp4", "t4", "Minimum capability: 80. Current capability: 75."),
        ("tensorrt-llm", "fp8", "rtx-3090", "compute capability 8.6 has no products in FP8"),
    ],
)
def test_formats_need_a_generation_of_gpus(engine: str, dtype: str, on: str, verdict: str) -> None:
    report = plan("llama-3.2-3b", on, engine, dtype=dtype, context=4096)
    refused, warned = ([x.says for x in y] for y in (report.why, report.warnings))
    if verdict == "Marlin":
        assert not refused and any("Marlin" in x for x in warned)
    elif verdict:
        assert any(verdict in x for x in refused) and not report.starts
    else:
        assert not refused and not warned


def test_refusal_for_memory_offers_what_starts() -> None:
    report = plan("llama-3.1-405b", "8xh100", "vllm")
    assert [(x.argument, x.value, x.layout) for x in report.instead] == [
        ("dtype", "fp8", ""),
        ("on", "16xh100-sxm", "TP 8 × PP 2"),
    ]
    assert plan("llama-3.1-405b", "8xh100", "vllm", dtype="fp8").starts
    assert plan("llama-3.1-405b", "16xh100", "vllm").starts


def test_floats_that_were_asked_for_fall_back_to_none() -> None:
    assert not plan("gemma-2-2b", "t4", "vllm", dtype="fp32").warnings
    assert not plan("gemma-2-2b", "l4", "vllm").warnings
    packed = plan("gemma-2-2b", "t4", "vllm", dtype="fp8")
    assert any("Falling back to torch.float32" in x.says for x in packed.warnings)


@pytest.mark.parametrize("factor", [1e308, -5.0, 0, "4", [], None, True])
def test_factors_of_a_file_give_a_length_or_none(factor: object) -> None:
    """GPT-2 has no rotary positions, so no family checks the factor, and vLLM multiplies by it."""
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    model = llamath.load({**catalog.find_preset("gpt2").config, **scaling})
    report = llamath.fit_engine(model, on="h100", engine="vllm", context=512)
    assert (
        report.starts == (factor not in (-5.0, 0))
        and report.command.startswith("vllm") == report.starts
    )
