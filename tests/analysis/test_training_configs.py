"""What `plan` prints for torchtitan, Megatron-LM, accelerate and DeepSpeed: each name and value is
one that the framework itself has, and the text says what the plan is.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.plan import PlanReport
from llamath.analysis.size.plan.training_configs import FRAMEWORKS
from llamath.analysis.storage.parallel_layout import pipeline_stages
from llamath.utils.errors import LlamathError
from support.typed_commands import Typed

FACTS = json.loads((Path(__file__).parents[1] / "truth" / "frameworks.json").read_text())
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"model": "llama-3-8b", "on": "8xh100"},
    {"model": "llama-3-8b", "on": "16xh100", "layout": "tp=1,pp=1,cp=1,zero=3", "tokens": "1T"},
    {"model": "llama-3-8b", "on": "8xh100", "layout": "tp=2,cp=2", "context": "16k"},
    {"model": "llama-3-8b", "on": "8xh100", "layout": "cp=2,zero=3,tp=1,pp=1", "context": "16k"},
    {"model": "llama-3.2-1b", "on": "8xh100", "layout": "zero=0,tp=1,pp=1,cp=1"},
    {"model": "llama-3.2-1b", "on": "8xh100", "layout": "zero=1,pp=2,tp=2"},
    {"model": "llama-3.2-1b", "on": "h100", "training": "recompute=full"},
    {"model": "tinyllama-1.1b", "on": "8xh100", "layout": "pp=4,zero=2,interleave=1"},
    {"model": "llama-3.1-405b", "on": "16384xh100", "batch_tokens": "16M", "tokens": "15.6T"},
    {"model": "llama-3.1-405b", "on": "4096xh100", "layout": "pp=16,tp=8,interleave=8"},
    {"model": "mixtral-8x7b", "on": "64xh100", "layout": "ep=8,zero=2"},
    {"model": "llama-3-8b", "on": "8xh100", "training": "recompute=op,fp8=rowwise"},
    {"model": "llama-3-8b", "on": "8xh100", "training": "fp8=delayed,optimizer=muon,loss=fused"},
    {"model": "llama-3-8b", "on": "8xh100", "dtype": "fp16", "training": "recompute=full"},
    {"model": "llama-3-8b", "on": "8xh100", "training": "grad_dtype=bf16", "layout": "tp=1,cp=1"},
)


@pytest.fixture(scope="module")
def reports() -> list[PlanReport]:
    return [llamath.plan(**x, top=1) for x in QUESTIONS]


def written(reports: list[PlanReport], framework: str) -> Iterator[tuple[PlanReport, str]]:
    found = [
        (x, text)
        for x in reports
        if (text := next(y.text for y in x.configs if y.framework == framework)) is not None
    ]
    assert len(found) >= 5
    yield from found


def facts(framework: str) -> dict[str, Any]:
    found: dict[str, Any] = FACTS[framework][FRAMEWORKS[framework].version]
    return found


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, x in values.items():
        if isinstance(x, dict):
            yield from flat(x, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", x


def check(fact: dict[str, Any], value: Any) -> None:
    """Check a value by the type and the choices of its field."""
    assert value in fact.get("choices", [value])
    kinds = {"bool": bool, "int": int, "str": str, "list": list}
    wanted = {kinds[x] for x in re.findall(r"\b(?:bool|int|str|list)\b", fact.get("type", ""))}
    assert not wanted or type(value) in wanted


@pytest.mark.slow
def test_torchtitan_has_each_key_and_value(reports: list[PlanReport]) -> None:
    known = facts("torchtitan")
    for _, text in written(reports, "torchtitan"):
        for key, value in flat(tomllib.loads(text)):
            check(known[key], value)
            if key.split(".")[0] in ("training", "parallelism"):  # the first line says so
                check(FACTS["torchtitan"]["0.3.0"][key], value)


def test_torchtitan_is_told_the_plan(reports: list[PlanReport]) -> None:
    for report, text in written(reports, "torchtitan"):
        layout, config = report.plans[0].layout, tomllib.loads(text)
        p, t = config["parallelism"], config["training"]
        dp = p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"]
        degrees = [p[f"{x}_parallel_degree"] for x in ("tensor", "pipeline", "context")]
        assert (dp, *degrees) == (layout.dp, layout.tp, layout.pp, layout.cp)
        passes = t["global_batch_size"] // (dp * t["local_batch_size"])
        in_pass = t["local_batch_size"] // p.get(
            "pipeline_parallel_microbatch_size", layout.microbatch
        )
        assert (passes * in_pass, t["seq_len"]) == (layout.count, report.context)
        if layout.pp > 1:
            assert titan_layers(p, int(report.model.tree.layers.n)) == stage_layers(report)


def titan_layers(p: dict[str, Any], layers: int) -> list[int]:
    """Return the layers of each stage, as torchtitan deals them."""
    if parts := p.get("module_fqns_per_model_part"):
        assert [x for y in parts for x in y] == [
            *("tok_embeddings", *(f"layers.{i}" for i in range(layers)), "norm", "output")
        ]
        return [sum(x.startswith("layers.") for x in y) for y in parts]
    first = p["pipeline_parallel_first_stage_less_layers"]
    last = p["pipeline_parallel_last_stage_less_layers"]
    each = p["pipeline_parallel_layers_per_stage"]
    stages = -(-(layers + first + last) // each)
    assert stages * each == layers + first + last
    return [each - first, *[each] * (stages - 2), each - last]


def stage_layers(report: PlanReport) -> list[int]:
    layout = report.plans[0].layout
    stages = pipeline_stages(report.model.tree, layout)
    return [x.runs[i][1] - x.runs[i][0] for i in range(layout.interleave) for x in stages]


def megatron_arguments(text: str) -> dict[str, str | None]:
    words = shlex.split(text.partition("pretrain_gpt.py")[2].replace("\\\n", " "))
    assert words.pop() == "$@"
    found: dict[str, str | None] = {}
    for word in words:
        if word.startswith("--"):
            name, found[word] = word, None
        else:
            assert found[name] is None
            found[name] = word
    return found


def test_megatron_has_each_argument(reports: list[PlanReport]) -> None:
    known = facts("megatron")
    for _, text in written(reports, "megatron"):
        for name, value in megatron_arguments(text).items():
            fact = known[name]
            assert (value is None) == fact.get("action", "").startswith("store_")
            assert value is None or value in fact.get("choices", [value])
            assert value is None or "int" not in fact.get("type", "") or value.isdecimal()


def test_megatron_is_told_the_plan(reports: list[PlanReport]) -> None:
    for report, text in written(reports, "megatron"):
        layout, given = report.plans[0].layout, megatron_arguments(text)
        names = ("tensor-model-parallel", "pipeline-model-parallel", "context-parallel")
        degrees = [int(given[f"--{x}-size"] or 0) for x in names]
        assert degrees == [layout.tp, layout.pp, layout.cp]
        batch = [int(given[f"--{x}-batch-size"] or 0) for x in ("micro", "global")]
        assert batch == [layout.microbatch, report.sequences]
        sizes = stage_layers(report)
        if stages := given.get("--pipeline-model-parallel-layout"):
            assert unrolled(stages) == sizes
        else:
            virtual = int(given.get("--num-virtual-stages-per-pipeline-rank") or 1)
            assert len(set(sizes)) == 1 and len(sizes) == virtual * layout.pp


def unrolled(stages: str) -> list[int]:
    """Return the layers of each stage of a layout, as Megatron unrolls it."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        stages = re.sub(pattern, lambda x: x[1] * int(x[2]), stages)
    assert stages[0] == "E" and stages[-1] == "L"
    return [x.count("t") for x in stages.split("|")]


@pytest.mark.slow
def test_torchrun_reads_its_command(reports: list[PlanReport]) -> None:
    from torch.distributed.run import get_args_parser

    texts = {x: written(reports, x) for x in ("torchtitan", "megatron")}
    for report, text in (pair for x in texts.values() for pair in x):
        command = re.sub(r"\\\n#?", " ", text).partition("torchrun ")[2].partition("\n")[0]
        words = shlex.split(command.replace(' "$@"', "").replace('"$NODE_RANK"', "0"))
        args = get_args_parser().parse_args(words)
        nodes = 1 if args.nnodes == "1:1" else int(args.nnodes)
        assert nodes * int(args.nproc_per_node) == report.gpus
        assert (args.master_addr == "$MASTER_ADDR") == (nodes > 1)
        if args.module:  # torchtitan's option is a key of its own configuration
            assert args.training_script == "torchtitan.train"
            assert args.training_script_args[0].removeprefix("--") in facts("torchtitan")


def test_accelerate_reads_its_config(reports: list[PlanReport], tmp_path: Path) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env
    from transformers import TrainingArguments
    from transformers.training_args import OptimizerNames

    for report, text in written(reports, "accelerate"):
        layout, path = report.plans[0].layout, tmp_path / "plan.yaml"
        path.write_text(text)
        parsed = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        args, config, _ = _validate_launch_command(parsed)
        assert (config.num_processes, args.num_processes) == (report.gpus, report.gpus)
        assert {*re.findall(r"--\w+", text)} <= facts("accelerate").keys()
        names = {*config.fsdp_config, *config.parallelism_config}
        assert names <= {x.partition(".")[2] for x in facts("accelerate")}
        if layout.zero > 1:
            environment = prepare_multi_gpu_env(args)
            assert environment["FSDP_VERSION"] == "2"
            reshard = environment["FSDP_RESHARD_AFTER_FORWARD"] == "true"
            assert reshard == (layout.zero == 3)
        if layout.cp > 1:
            assert args.use_parallelism_config
            assert args.parallelism_config_cp_size == layout.cp
            assert args.parallelism_config_dp_shard_size == layout.dp
        given = dict(
            re.findall(r"(\w+)=([^,\s]+)", "\n".join(x for x in text.splitlines() if x[0] == "#"))
        )
        assert given.keys() <= TrainingArguments.__dataclass_fields__.keys()
        sizes = [
            int(given[x]) for x in ("per_device_train_batch_size", "gradient_accumulation_steps")
        ]
        assert sizes == [layout.microbatch, layout.count]
        assert OptimizerNames(given["optim"].strip('"'))


def test_deepspeed_has_each_key(reports: list[PlanReport]) -> None:
    known = facts("deepspeed")
    for report, text in written(reports, "deepspeed"):
        layout, config = report.plans[0].layout, json.loads(text)
        assert config.keys() <= known.keys()
        for section in ("zero_optimization", "bf16", "fp16"):
            for key, value in config.get(section, {}).items():
                check(known[f"{section}.{key}"] if key != "stage" else {"type": "int"}, value)
        assert config.get("data_types", {}).keys() <= known.keys()
        assert f"optimizer.type={config['optimizer']['type'].lower()}" in known
        assert config["zero_optimization"]["stage"] == layout.zero
        micro = config["train_micro_batch_size_per_gpu"]
        steps = config["gradient_accumulation_steps"]
        assert config["train_batch_size"] == micro * steps * report.gpus == report.sequences


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_refusal_names_a_plan_that_works(framework: str) -> None:
    layout = {"accelerate": "tp=2,pp=2", "deepspeed": "tp=2,pp=2", "torchtitan": "zero=1"}
    question: dict[str, Any] = {"model": "llama-3.2-1b", "on": "8xh100"}
    if framework == "megatron":
        question["training"], given = "optimizer=muon", "zero=3"
    else:
        given = layout[framework]
    report = llamath.plan(**question, layout=given)
    with pytest.raises(LlamathError, match="cannot do plan 1") as error:
        report.config(framework)
    wanted = re.search(r"layout='([^']+)'", error.value.hint)
    assert wanted
    assert llamath.plan(**question, layout=wanted[1]).config(framework).text


def test_what_no_layout_mends_is_refused_by_name() -> None:
    report = llamath.plan("llama-3.2-1b", on="8xh100", training="optimizer=adafactor", top=1)
    assert [x.text for x in report.configs] == [None] * len(FRAMEWORKS)
    for x in report.configs:
        assert x.not_possible and "no optimizer=adafactor (it has " in x.not_possible


def test_the_command_prints_the_config_alone(typed: Typed) -> None:
    plan = ("plan", "llama-3-8b", "--on", "8xh100", "--format")
    answer = typed(*plan, "torchtitan")
    assert answer.status == 0
    assert tomllib.loads(answer.out)["parallelism"]["data_parallel_shard_degree"] == 8
    assert typed(*plan, "megatron", "--serve").status == 2
    answer = typed(*plan, "deepspeed", "--training", "recompute=full")
    assert json.loads(answer.out) and "gradient_checkpointing=True" in answer.err
    assert typed("plan", "llama-3.1-405b", "--on", "h100", "--format", "megatron").status == 1
