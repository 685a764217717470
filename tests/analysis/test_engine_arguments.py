"""Flags of engines: read as the engine spells them, sized, refused by name, printed again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import llamath
from llamath.analysis.size.serving.engine_arguments import layout_of, read_engine_arguments
from llamath.analysis.size.serving.engine_report import EngineReport
from llamath.engines import ENGINES, find_engine

GIB = 2**30
WITH_FLAGS = ("vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm")


def values(engine: str, text: str) -> dict[str, Any]:
    return dict(read_engine_arguments(find_engine(engine), text).settings)


def plan(engine: str, flags: str = "", on: str = "h100", **more: Any) -> EngineReport:
    model = more.pop("model", "llama-3.1-8b")
    report = llamath.fit_engine(model, on=on, engine=engine, engine_args=flags, **more)
    assert isinstance(report, EngineReport)
    return report


@pytest.mark.parametrize("name", WITH_FLAGS)
def test_meanings_are_of_flags_that_the_engine_has(name: str) -> None:
    from llamath.engines import _read

    flags, data = find_engine(name).flags, _read(name)
    assert len(flags.all) > 20
    for x in (*data["flags"], *data["uncounted_flags"]):
        assert x in flags.by_name, x
    means = [x.means for x in flags.all if x.means]
    assert len(means) == len(set(means)) and {"context", "all_context"} & set(means)


@pytest.mark.parametrize(
    ("engine", "text", "expected"),
    [
        ("vllm", "-tp 8 --data_parallel_size=2 -ep", {"tp": 8, "dp": 2, "ep": True}),
        ("vllm", "--tensor-parallel 4", {"tp": 4}),
        ("vllm", "--max-model-len 25.6k --max-num-batched-tokens 1K", {"context": 25600, "batched_tokens": 1024}),
        ("vllm", "--no-enforce-eager", {"eager": False}),
        ("vllm", "--compilation-config.level 3 -O3 --port 80", {}),
        ("vllm", "--compilation-config '{\"level\": 3}'", {}),
        ("vllm", "--served-model-name a b --enforce-eager", {"eager": True}),
        ("vllm", "--kv-cache-dtype fp8_e4m3", {"kv_dtype": "fp8"}),
        ("sglang", "--tp 8 --ep-size 8 --mem-fraction-static .85", {"tp": 8, "ep": 8, "memory_fraction": 0.85}),
        ("llama.cpp", "-c 32768 --no-kv-offload -np 4 -ctk q8_0", {"all_context": 32768, "batch": 4, "kv_dtype": "q8_0"}),
        ("llama.cpp", "-fa -ub 64", {"flash_attention": "on", "ubatch_tokens": 64}),
        ("tensorrt-llm", "--tensor_parallel_size 2 --max_num_tokens=4096", {"tp": 2, "batched_tokens": 4096}),
    ],
)  # fmt: skip
def test_flags_are_read_as_the_engine_spells_them(
    engine: str, text: str, expected: dict[str, Any]
) -> None:
    assert values(engine, text) == expected


@pytest.mark.parametrize(
    ("engine", "text", "message"),
    [
        ("vllm", "--max-model-length 8", "has no flag --max-model-length"),
        ("vllm", "--max 8", "could be --max-"),
        ("vllm", "meta-llama/Llama-3.1-8B", "expected a flag of vLLM, found 'meta-llama"),
        ("vllm", "-tp", "needs a value"),
        ("vllm", "-tp --enforce-eager", "needs a value"),
        ("vllm", "-tp two", "a number from 1 on, found 'two'"),
        ("vllm", "-tp 99999999999999999999", "a number from 1 on"),
        ("vllm", "--enforce-eager=yes", "takes no value, found 'yes'"),
        ("vllm", "-tp 2 --tensor-parallel-size 4", "4 contradicts -tp 2"),
        ("vllm", "--gpu-memory-utilization 1.5", "above 0 and at most 1"),
        ("vllm", "--kv-cache-dtype q8_0", "one of auto, float16"),
        ("vllm", "--kv-cache-dtype nvfp4", "its size is not known"),
        ("vllm", "--max-model-len 1.5K", "8k (8,000) or 8K (8,192)"),
        ("vllm", "--max-model-len '8", "not a command line: no closing quotation"),
        ("vllm", "--max-num-active-seqs 8".replace("--max", "--swap-space 4 --max"), "0.11.0 has it"),
        ("vllm@0.11.0", "--max-num-active-seqs 8", "0.33.0 has it"),
        ("sglang", "--tp_size 8", "has no flag --tp_size"),
        ("sglang", "--cuda-graph-max-bs 8", "could be --cuda-graph-max-bs-decode, --cuda-graph"),
        ("llama.cpp", "-c=8192", "has no flag -c=8192"),
        ("llama.cpp", "--ctx 8192", "has no flag --ctx"),
        ("transformers", "--dtype bfloat16", "no command line"),
        ("vllm", "x" * 5000, "at most 4,096 are read"),
        ("vllm", "--port 1 " * 300, "600 words"),
    ],
)  # fmt: skip
def test_what_an_engine_does_not_take_is_refused(engine: str, text: str, message: str) -> None:
    with pytest.raises(llamath.LlamathError) as error:
        plan(engine, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("engine", "flags", "more", "message"),
    [
        ("vllm", "--max-model-len 4096", {"context": 8192}, "8192 contradicts --max-model-len 4096"),
        ("vllm", "--kv-cache-dtype fp8", {"kv_dtype": "bf16"}, "bf16 contradicts --kv-cache-dtype fp8"),
        ("vllm", "-tp 2", {"layout": "pp=2", "on": "2xh100"}, "PP 2 contradicts the flags: TP 2"),
        ("vllm", "-tp 2", {}, "the layout TP 2 needs 2 GPUs, not 1"),
        ("sglang", "--tp 8 --attn-dp-size 3", {"on": "8xh100"}, "must be divisible by attention_data"),
        ("sglang", "--tp 8 --ep 4", {"on": "8xh100"}, "sized are 1 and the 8"),
        ("llama.cpp", "-ctk q8_0", {"dtype": "q4_k_m"}, "keys in q8_0 and values in fp16"),
        ("llama.cpp", "-ctk q8_0 -ctv q8_0 -fa off", {"dtype": "q4_k_m"}, "requires flash_attn"),
        ("llama.cpp", "-ngl 20", {"dtype": "q4_k_m"}, "33 layers"),
        ("llama.cpp", "-c 8192", {"dtype": "q4_k_m", "context": 4096}, "4096 contradicts -c 8192"),
    ],
)  # fmt: skip
def test_flags_that_contradict_are_refused_by_name(
    engine: str, flags: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(llamath.LlamathError) as error:
        plan(engine, flags, **more)
    assert message in str(error.value)


def test_flags_give_the_same_answer_as_own_arguments() -> None:
    own = plan("vllm", on="2xh100", context=32768, kv_dtype="fp8", layout="tp=2")
    flags = plan("vllm", "--max-model-len 32768 --kv-cache-dtype fp8 -tp 2", on="2xh100")
    assert own.to_json() == flags.to_json()


def test_fewer_tokens_of_a_step_leave_more_for_the_cache() -> None:
    usual, few, eager = (
        plan("vllm", x) for x in ("", "--max-num-batched-tokens 1024", "--enforce-eager")
    )
    assert usual.kv_memory and few.kv_memory and eager.kv_memory
    assert few.kv_memory[0] > usual.kv_memory[0] < eager.kv_memory[0]
    assert usual.own_memory and eager.own_memory
    assert usual.own_memory[1] - eager.own_memory[1] == int(3.4 * GIB)


def test_pages_have_the_tokens_of_a_flag() -> None:
    for size in (16, 32):
        cache = plan("vllm", f"--block-size {size}").cache
        assert cache is not None and cache.groups[0].block_tokens == size


def test_too_few_tokens_for_all_sequences_are_refused() -> None:
    report = plan("vllm", "--max-num-batched-tokens 64 --max-num-seqs 128")
    assert [x.rule for x in report.why] == ["batched-tokens"] and "(128)" in report.why[0].says


def test_fixed_cache_memory_needs_room_beside_the_weights() -> None:
    report = plan("vllm", "--kv-cache-memory-bytes 70G")
    assert not report.starts and report.why[0].rule == "memory"
    assert plan("vllm", "--kv-cache-memory-bytes 57G").verdict == "may start"
    assert plan("vllm", "--kv-cache-memory-bytes 40G").verdict == "starts"


def test_copies_of_the_attention_share_their_experts() -> None:
    model, flags = "qwen3-30b-a3b", "-tp 2 --data-parallel-size 4"
    whole = plan("vllm", f"{flags} --enable-expert-parallel", model=model, on="8xh100")
    split = plan("vllm", flags, model=model, on="8xh100")
    one = plan("vllm", "-tp 2", model=model, on="2xh100")
    assert whole.weights == split.weights and split.weights and one.weights
    assert split.weights < one.weights / 2
    assert "--enable-expert-parallel" in whole.command
    assert "--enable-expert-parallel" not in split.command


def test_sglang_counts_copies_of_the_attention_among_tensor_ranks() -> None:
    engine = find_engine("sglang")
    for text in ("--tp 8 --attn-dp-size 4", "--tp 8 --dp-size 4 --enable-dp-attention"):
        layout = layout_of(engine, read_engine_arguments(engine, text))
        assert layout is not None and (layout.tp, layout.dp, layout.gpus) == (2, 4, 8)
    copies = plan("sglang", "--tp 2 --dp-size 4", on="8xh100")
    assert copies.starts and "--dp-size 4" in copies.command
    assert copies.weights == plan("sglang", "--tp 2", on="2xh100").weights


def test_slots_of_llama_cpp_divide_the_context() -> None:
    more: dict[str, Any] = {"dtype": "q4_k_m", "on": "rtx-4090"}
    apart = plan("llama.cpp", "-c 32768 -np 4", **more)
    together = plan("llama.cpp", "-c 32768 -np 4 -kvu", **more)
    assert (apart.context, together.context) == (8192, 32768)
    assert "4096.00 MiB ( 32768 cells" in apart.prints[0] == together.prints[0]
    assert "-c 32768 " in apart.command and "-np 4 " in apart.command


def test_windows_keep_the_tokens_of_a_batch() -> None:
    sizes = [
        plan("llama.cpp", f"-ub {n} -c 32768", model="gemma-3-4b", dtype="q4_k_m").prints
        for n in (512, 2048)
    ]
    assert "(  1536 cells" in "".join(sizes[0]) and "(  3072 cells" in "".join(sizes[1])


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", "--max-model-len 4096 --max-num-seqs 64 --enforce-eager --port 8000 --no-async-scheduling"),
        ("sglang", "--context-length 4096 --page-size 64 --max-total-tokens 100k --disable-cuda-graph"),
        ("llama.cpp", "-c 4096 -ub 1024 -fa on --port 80 --no-mmap"),
        ("trtllm", "--max_seq_len 4096 --max_num_tokens 2048 --trust_remote_code"),
    ],
)  # fmt: skip
def test_the_command_has_every_flag_and_reads_the_same(engine: str, flags: str) -> None:
    more: dict[str, Any] = {"dtype": "q4_k_m"} if engine == "llama.cpp" else {}
    report = plan(engine, flags, **more)
    assert report.starts
    words = shlex.split(report.command.replace("\\\n", " "))
    start = (
        next(i for i, x in enumerate(words) if x.startswith("-") and len(x) > 2)
        if engine != "llama.cpp"
        else 3
    )
    if engine == "sglang":
        start = 5
    again = plan(engine, shlex.join(words[start:]), **more)
    assert again.command == report.command and again.prints == report.prints
    assert (
        read_engine_arguments(find_engine(engine), flags).settings.items()
        <= read_engine_arguments(find_engine(engine), shlex.join(words[start:])).settings.items()
    )


def test_flags_without_an_effect_are_named() -> None:
    notes = plan("vllm", "--port 80 --cpu-offload-gb 4").notes
    assert "neither memory nor layout depend on --port" in notes
    assert any("not counted" in x and x.endswith("--cpu-offload-gb") for x in notes)


def test_a_total_of_tokens_bounds_the_pool_of_sglang() -> None:
    report = plan("sglang", "--max-total-tokens 50000 --page-size 64")
    assert report.most is not None and report.most.tokens == 50000 // 64 * 64


@pytest.mark.parametrize(
    ("engine", "model", "on", "flags"),
    [
        ("vllm", "llama-3.1-405b", "16xh100", ""),
        ("vllm@0.11.0", "llama-3.1-405b", "32xh100", "-tp 8 -pp 4"),
        ("vllm", "deepseek-v3", "16xh200", "-dp 16 -ep"),
        ("vllm", "deepseek-v3", "32xh200", "-dp 2 -tp 16 -ep"),
        ("sglang", "llama-3.1-405b", "32xh100", "--tp 8 --pp-size 4"),
        ("sglang", "deepseek-v3", "16xh200", "--tp 16 --ep 16"),
    ],
)
def test_a_command_of_several_nodes_has_known_flags(
    engine: str, model: str, on: str, flags: str
) -> None:
    report = plan(engine, flags, on, model=model)
    assert report.starts
    nodes = report.count // 8
    commands = [x for x in report.command.splitlines() if x[0] not in " #"]
    lines = [shlex.split(x.strip(" \\")) for x in report.command.splitlines() if x[0] == " "]
    for name, *values in lines:
        flag = report.engine.flags.by_name[name]
        assert report.engine.has(flag) and bool(values) == (flag.kind != "switch")
    given = {name: values for name, *values in lines}
    if engine == "vllm@0.11.0":
        assert "ray start --head" in report.command and "--nnodes" not in given
    elif "-dp 16" in flags:
        local = int(given["--data-parallel-size-local"][0])
        assert local * nodes == 16 and len(commands) == 2
        assert given["--data-parallel-start-rank"] == [f"$((NODE_RANK * {local}))"]
    else:
        assert given["--nnodes"] == [str(nodes)] and given["--node-rank"] == ["$NODE_RANK"]
        assert len(commands) == 1 + engine.startswith("vllm")


def test_tensorrt_starts_a_rank_for_each_gpu() -> None:
    command = plan("trtllm", on="16xh100", model="llama-3.1-405b").command
    assert "srun -N 2 --ntasks 16 --ntasks-per-node 8 " in command
    assert "trtllm-llmapi-launch" in command and "--pp_size 2" in command
    assert "srun" not in plan("trtllm", on="8xh100", model="llama-3.1-70b").command


def test_flags_of_nodes_that_are_given_are_kept() -> None:
    flags = "-tp 8 -pp 2 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --headless"
    report = plan("vllm", flags, "16xh100", model="llama-3.1-405b")
    assert report.command.count("--nnodes 2") == 1 and "NODE_RANK" not in report.command


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_serving_plan_has_the_command_of_fit(engine: str) -> None:
    report = llamath.plan_serving("llama-3.1-405b", on="16xh100")
    best = report.plans[0].layout
    (found,) = (x for x in report.commands if x.engine == engine)
    layout = f"tp={best.tp},pp={best.pp}"
    same = llamath.fit_engine("llama-3.1-405b", on="16xh100", engine=engine, layout=layout)
    assert isinstance(same, EngineReport)
    assert found.command == same.command and "NODE_RANK" in found.command
    assert found.command in str(report.terminal_text())


def test_every_engine_with_a_command_line_has_its_flags() -> None:
    assert set(WITH_FLAGS) == {x for x in ENGINES if find_engine(x).flags.all}


@pytest.mark.parametrize(
    ("engine", "flag"), [("vllm", True), ("sglang", True), ("llama.cpp", False)]
)
def test_text_alone_is_sized_and_asked_for(engine: str, flag: bool) -> None:
    asked = {"model": "gemma-3-27b", "dtype": "q8_0" if engine == "llama.cpp" else "bf16"}
    whole, text = plan(engine, **asked), plan(engine, part="text", **asked)
    assert ("--language-model-only" in text.command) is flag
    assert "--language-model-only" not in whole.command
    of_text = llamath.memory("gemma-3-27b", part="text", dtype=asked["dtype"])
    assert text.weights == of_text.weights < whole.weights
    assert "google/gemma-3-27b-pt" in text.command or engine == "llama.cpp"
    if flag:
        typed = plan(engine, "--language-model-only", **asked)
        assert typed.weights == text.weights and typed.command == text.command
    alone = plan(engine, part="text", dtype=asked["dtype"])
    assert "--language-model-only" not in alone.command


@pytest.mark.parametrize("engine", ["transformers", "trtllm", "ollama", "vllm@0.11.0"])
def test_engines_that_load_towers_refuse_text_alone(engine: str) -> None:
    with pytest.raises(llamath.LlamathError, match="no flag that leaves the towers of a model out"):
        plan(engine, model="gemma-3-27b", part="text")


def test_part_contradicts_the_negated_flag() -> None:
    with pytest.raises(
        llamath.LlamathError, match="part text contradicts --no-language-model-only"
    ):
        plan("vllm", "--no-language-model-only", model="gemma-3-27b", part="text")
