"""The first plan as a config or flags of torchtitan, Megatron-LM, accelerate or DeepSpeed, or why
the framework cannot do it.

Names and values are those of one version of each framework; `tests/truth/frameworks.json` has them
as read from its own source, and tests compare. The model, the data and the learning rate are not
part of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ....questions.layout import Layout
from ....questions.plan_questions import FRAMEWORK_NAMES
from ....utils.errors import Argument, LlamathError
from ....utils.record_type import Record
from ...storage.parallel_layout import pipeline_stages

if TYPE_CHECKING:
    from .plan_ranking import PlanReport

Value = str | int | bool | list[list[str]]
Sections = dict[str, dict[str, Value]]


class _Obstacle(NamedTuple):
    """A limit of a framework, and the layout that avoids it."""

    why: str
    instead: Mapping[str, int] = {}


class TrainingConfig(Record):
    """The first plan for one framework: a text to paste, or the reason why there is none."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *("framework", "version", "text", "notes", "not_possible"),
    )

    framework: str
    version: str
    text: str | None
    notes: tuple[str, ...]  # what the text has no place for
    not_possible: str | None
    instead: Mapping[str, int]  # degrees of a layout that would be possible


class _Framework(NamedTuple):
    """A framework: the version whose names are written, what it cannot do, and how it is told."""

    title: str
    version: str
    obstacles: Callable[[PlanReport, Layout], Iterator[_Obstacle]]
    write: Callable[[PlanReport, Layout], str]
    notes: Callable[[PlanReport, Layout], Iterator[str]] = lambda _report, _layout: iter(())


def training_config(report: PlanReport, framework: str) -> TrainingConfig:
    """Write the first plan of a report for a framework."""
    target, layout = FRAMEWORKS[framework], report.plans[0].layout
    found = list(target.obstacles(report, layout))
    return TrainingConfig(
        framework=framework,
        version=target.version,
        text=None if found else target.write(report, layout),
        notes=() if found else tuple(target.notes(report, layout)),
        not_possible="; ".join(x.why for x in found) or None,
        instead={key: n for x in found for key, n in x.instead.items()},
    )


def refused_config(
    config: TrainingConfig, nearest: Callable[[Mapping[str, int]], PlanReport]
) -> LlamathError:
    """Return the error that a framework cannot do the first plan, with the nearest plan that it
    can; `nearest` plans with other degrees fixed.
    """
    title = FRAMEWORKS[config.framework].title
    problem = f"{title} {config.version} cannot do plan 1: {config.not_possible}"
    if not config.instead:
        return LlamathError(problem, hint="another framework, or other settings, can")
    wanted = Argument("layout", ",".join(f"{key}={n}" for key, n in config.instead.items()))
    try:
        other = nearest(config.instead)
    except LlamathError as error:
        return LlamathError(problem, hint=f"with {wanted}, {error}")
    if not other.plans or training_config(other, config.framework).text is None:
        return LlamathError(problem, hint=f"no other plan of {title} fits on these GPUs")
    return LlamathError(problem, hint=f"with {wanted}, it is {other.summary.partition(': ')[2]}")


def _unnamed(report: PlanReport, names: Mapping[str, Mapping[str, str]]) -> Iterator[_Obstacle]:
    """Yield the settings of the step that a framework has no name for."""
    request = report.request
    values = {
        "dtype": report.dtype,
        "optimizer": request.optimizer.lower(),
        "gradients": request.gradients or "fp32",
        "recompute": report.plans[0].layout.recompute,
        "loss": request.loss,
        "fp8": request.fp8 or "no",
    }
    for key, value in values.items():
        if value not in names[key]:
            yield _Obstacle(f"no {key}={value} (it has {', '.join(names[key])})")


def _nodes(report: PlanReport) -> tuple[int, int]:
    """Return the number of nodes, and the GPUs of each."""
    each = min(report.device.node, report.gpus)
    return -(-report.gpus // each), each


def _torchrun(report: PlanReport) -> list[str]:
    """Return the beginning of the command that starts the ranks of one node, by lines."""
    nodes, each = _nodes(report)
    if nodes == 1:
        return [f"torchrun --nproc-per-node {each}"]
    return [
        f'torchrun --nnodes {nodes} --node-rank "$NODE_RANK" --nproc-per-node {each}',
        '--master-addr "$MASTER_ADDR" --master-port 29500',
    ]


def _chunks(report: PlanReport, layout: Layout) -> list[range]:
    """Return the layers of each virtual pipeline stage, in order."""
    stages = pipeline_stages(report.model.tree, layout)
    return [range(*x.runs[i]) for i in range(layout.interleave) for x in stages]


# ---- torchtitan

_TITAN = {
    "dtype": {"bf16": "bfloat16", "fp32": "float32"},
    "optimizer": {"adamw": "AdamW"},
    "gradients": {"fp32": "float32"},
    "recompute": {"none": "none", "op": "selective", "full": "full"},
    "loss": {"whole": ""},
    "fp8": {"no": "", "tensorwise": "tensorwise", "rowwise": "rowwise"},
}


def _titan_obstacles(report: PlanReport, layout: Layout) -> Iterator[_Obstacle]:
    yield from _unnamed(report, _TITAN)
    if layout.replicas == 1 and layout.tp * layout.pp > 1:
        yield _Obstacle("bf16 comes with FSDP, which needs data parallelism")
    elif layout.zero == 0 and layout.gpus > layout.dp:
        yield _Obstacle("replicas without sharding, of more than one GPU each", {"zero": 3})
    elif layout.zero == 1:
        yield _Obstacle("no ZeRO-1", {"zero": 2})


def _titan_text(report: PlanReport, layout: Layout) -> str:
    request, pipelined = report.request, layout.pp > 1
    local = layout.microbatch * (layout.count if pipelined else 1)
    fsdp = layout.zero > 1
    parallelism: dict[str, Value] = {
        "data_parallel_replicate_degree": 1 if fsdp else layout.dp,
        "data_parallel_shard_degree": layout.dp if fsdp else 1,
    }
    if fsdp:
        reshard = "always" if layout.zero == 3 else "never"
        parallelism["fsdp_reshard_after_forward"] = reshard
    parallelism |= {
        "tensor_parallel_degree": layout.tp,
        "pipeline_parallel_degree": layout.pp,
        "context_parallel_degree": layout.cp,
    }
    if layout.ep > 1:
        parallelism["expert_parallel_degree"] = layout.ep
    if pipelined:
        schedule = "Interleaved1F1B" if layout.interleave > 1 else "1F1B"
        parallelism |= {
            "pipeline_parallel_schedule": schedule,
            "pipeline_parallel_microbatch_size": layout.microbatch,
            **_titan_stages(_chunks(report, layout)),
        }
    sections: Sections = {
        "training": {
            "seq_len": report.context,
            "local_batch_size": local,
            "global_batch_size": report.sequences,
            "dtype": "float32",
            "mixed_precision_param": _TITAN["dtype"][report.dtype],
            "mixed_precision_reduce": "float32",
        },
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": _TITAN["recompute"][layout.recompute]},
        "optimizer": {"name": _TITAN["optimizer"][request.optimizer.lower()]},
        "compile": {"enable": request.kernels == "fused"},
    }
    if (run := report.plans[0].run) is not None:
        sections["training"]["steps"] = run.steps
    if layout.recompute == "op":
        sections["activation_checkpoint"]["selective_ac_option"] = "op"
    if request.fp8:
        sections["quantize.linear.float8"] = {"recipe_name": _TITAN["fp8"][request.fp8]}
    lines = [
        f"# torchtitan {FRAMEWORKS['torchtitan'].version}; later ones take [training] and",
        "# [parallelism] as options, such as --parallelism.tensor_parallel_degree.",
        "# "
        + " \\\n#   ".join((*_torchrun(report), "-m torchtitan.train --job.config_file plan.toml")),
        "# To add: [model] name and flavor, the data, the learning rate"
        + (', converters = ["quantize.linear.float8"] of [model].' if request.fp8 else "."),
    ]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {json.dumps(x)}" for key, x in values.items())]
    return "\n".join(lines)


def _titan_stages(chunks: list[range]) -> dict[str, Value]:
    """Return how layers are dealt to stages: as many each, at most one less at both ends, or a
    list.
    """
    first, middle, last = len(chunks[0]), max(map(len, chunks)), len(chunks[-1])
    less = middle - first
    if middle - last == less < 2 and all(len(x) == middle for x in chunks[1:-1]):
        return {
            "pipeline_parallel_layers_per_stage": middle,
            "pipeline_parallel_first_stage_less_layers": less,
            "pipeline_parallel_last_stage_less_layers": less,
        }
    parts = [[f"layers.{i}" for i in x] for x in chunks]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return {"module_fqns_per_model_part": parts}


# ---- Megatron-LM

_MEGATRON = {
    "dtype": {"bf16": "--bf16", "fp16": "--fp16", "fp32": ""},
    "optimizer": {
        "adamw": "--optimizer adam",
        "momentum": "--optimizer sgd",
        "sgd": "--optimizer sgd --sgd-momentum 0",
        "muon": "--optimizer muon",
    },
    "gradients": {"fp32": "--accumulate-allreduce-grads-in-fp32"},
    "recompute": {
        "none": "",
        "selective": "--recompute-granularity selective --recompute-modules core_attn",
        "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    },
    "loss": {"whole": "", "fused": "--cross-entropy-loss-fusion"},
    "fp8": {
        "no": "",
        "delayed": "--fp8-format hybrid --fp8-recipe delayed",
        "current": "--fp8-format hybrid --fp8-recipe tensorwise",
        "blockwise": "--fp8-format hybrid --fp8-recipe blockwise",
        "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    },
}
_MEGATRON_ZERO = (
    "",
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    "--use-distributed-optimizer --use-megatron-fsdp --ckpt-format fsdp_dtensor \\\n  "
    "--data-parallel-sharding-strategy optim_grads",
    "--use-distributed-optimizer --use-megatron-fsdp --ckpt-format fsdp_dtensor \\\n  "
    "--data-parallel-sharding-strategy optim_grads_params",
)
_MEGATRON_ATTENTION = {"eager": "unfused", "cudnn": "fused"}


def _megatron_obstacles(report: PlanReport, layout: Layout) -> Iterator[_Obstacle]:
    yield from _unnamed(report, _MEGATRON)
    if layout.zero > 1 and report.request.optimizer.lower() == "muon":
        yield _Obstacle(f"ZeRO-{layout.zero} is Megatron-FSDP, which has no Muon", {"zero": 1})


def _megatron_text(report: PlanReport, layout: Layout) -> str:
    request = report.request
    attention = _MEGATRON_ATTENTION.get(report.attention, "flash")
    arguments = [
        f"--tensor-model-parallel-size {layout.tp}",
        "--sequence-parallel" if layout.tp > 1 else "",
        f"--pipeline-model-parallel-size {layout.pp}",
        _megatron_stages(_chunks(report, layout), layout),
        f"--context-parallel-size {layout.cp}",
        "--cp-comm-type all_gather" if layout.cp > 1 else "",
        f"--expert-model-parallel-size {layout.ep} "
        f"--expert-tensor-parallel-size {layout.expert_tp} --moe-token-dispatcher-type alltoall"
        if layout.ep > 1
        else "",
        _MEGATRON_ZERO[layout.zero],
        f"--micro-batch-size {layout.microbatch} --global-batch-size {report.sequences}",
        f"--seq-length {report.context}",
        f"--train-iters {run.steps}" if (run := report.plans[0].run) else "",
        _MEGATRON["dtype"][report.dtype],
        _MEGATRON["gradients"]["fp32"] if report.dtype != "fp32" else "",
        _MEGATRON["fp8"][request.fp8 or "no"],
        _MEGATRON["optimizer"][request.optimizer.lower()],
        _MEGATRON["recompute"][layout.recompute],
        _MEGATRON["loss"][request.loss],
        f"--attention-backend {attention}",
    ]
    one_queue = layout.zero < 2 and layout.tp * layout.cp > 1
    lines = [
        f"# Megatron-LM {FRAMEWORKS['megatron'].version}. The model, the data and the learning "
        "rate follow as",
        "# arguments of this script.",
        *(["export CUDA_DEVICE_MAX_CONNECTIONS=1"] if one_queue else []),
        " \\\n  ".join((*_torchrun(report), "pretrain_gpt.py", *filter(None, arguments), '"$@"')),
    ]
    return "\n".join(lines)


def _megatron_stages(chunks: list[range], layout: Layout) -> str:
    """Return the argument for virtual stages, or, where layers do not divide, for all of them."""
    if layout.pp == 1:
        return ""
    sizes = [len(x) for x in chunks]
    if len(set(sizes)) == 1:
        v = layout.interleave
        return f"--num-virtual-stages-per-pipeline-rank {v}" if v > 1 else ""
    middle = "".join(
        f"({stage})*{n}" if n > 1 else stage
        for stage, n in ((f"{'t' * x}|", len(list(same))) for x, same in groupby(sizes[1:-1]))
    )
    layers = f"E{'t' * sizes[0]}|{middle}{'t' * sizes[-1]}L"
    return f"--pipeline-model-parallel-layout '{layers}'"


# ---- accelerate

_ACCELERATE = {
    "dtype": {"bf16": "bf16", "fp16": "fp16", "fp32": "no"},
    "optimizer": {"adamw": "adamw_torch", "sgd": "sgd"},
    "gradients": {"fp32": ""},
    "recompute": {"none": "", "full": ""},
    "loss": {"whole": ""},
    "fp8": {"no": ""},
}


_PRECISION = {"bf16": "bf16=True,", "fp16": "fp16=True,", "fp32": ""}


def _accelerate_obstacles(report: PlanReport, layout: Layout) -> Iterator[_Obstacle]:
    yield from _unnamed(report, _ACCELERATE)
    if layout.pp > 1:
        yield _Obstacle("no pipeline parallelism", {"pp": 1})
    if layout.tp > 1:
        yield _Obstacle("no sequence parallelism beside tensor parallelism", {"tp": 1})
    if layout.ep > 1:
        yield _Obstacle("no expert parallelism", {"ep": 1})
    if layout.zero < 2 and layout.replicas > 1 and not (layout.zero == 0 and layout.cp == 1):
        yield _Obstacle(f"FSDP2 has no ZeRO-{layout.zero}", {"zero": 3})


def _accelerate_text(report: PlanReport, layout: Layout) -> str:
    nodes, _ = _nodes(report)
    request, fsdp = report.request, layout.zero > 1
    kind = "FSDP" if fsdp else "MULTI_GPU" if report.gpus > 1 else "NO"
    values: list[tuple[str, Value]] = [
        ("compute_environment", "LOCAL_MACHINE"),
        ("distributed_type", kind),
        ("mixed_precision", _ACCELERATE["dtype"][report.dtype]),
        ("num_machines", nodes),
        ("num_processes", report.gpus),
    ]
    if nodes > 1:
        values += [("rdzv_backend", "c10d"), ("main_process_port", 29500)]
    lines = [
        f"# accelerate {FRAMEWORKS['accelerate'].version}.",
        "# accelerate launch --config_file plan.yaml"
        + (' --machine_rank "$NODE_RANK" \\\n#   --main_process_ip "$MASTER_ADDR"' * (nodes > 1))
        + " train.py",
        "# Of transformers' TrainingArguments, or of your own loop:",
        f"#   per_device_train_batch_size={layout.microbatch}, "
        f"gradient_accumulation_steps={layout.count}, {_PRECISION[report.dtype]}",
        f'#   optim="{_ACCELERATE["optimizer"][request.optimizer.lower()]}"'
        + (f", max_steps={run.steps}" if (run := report.plans[0].run) else "")
        + (", gradient_checkpointing=True" if layout.recompute == "full" and not fsdp else ""),
        f"# Sequences have {report.context} tokens.",
        *(f"{key}: {_yaml(x)}" for key, x in values),
    ]
    sections: Sections = {}
    if fsdp:
        sections["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": layout.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": layout.recompute == "full",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    if layout.cp > 1:
        sections["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": 1,
            "parallelism_config_dp_shard_size": layout.dp,
            "parallelism_config_tp_size": 1,
            "parallelism_config_cp_size": layout.cp,
            "parallelism_config_cp_comm_strategy": "allgather",
        }
    for section, entries in sections.items():
        lines += [f"{section}:", *(f"  {key}: {_yaml(x)}" for key, x in entries.items())]
    return "\n".join(lines)


def _yaml(value: Value) -> str:
    # YAML reads NO and no as false
    return json.dumps(value) if not isinstance(value, str) or value.lower() == "no" else value


# ---- DeepSpeed

_DEEPSPEED = {
    "dtype": {"bf16": "bf16", "fp16": "fp16", "fp32": ""},
    "optimizer": {"adamw": "AdamW", "muon": "Muon"},
    "gradients": {"fp32": "fp32", "bf16": "bf16"},
    "recompute": {"none": "", "full": ""},
    "loss": {"whole": ""},
    "fp8": {"no": ""},
}


def _deepspeed_obstacles(report: PlanReport, layout: Layout) -> Iterator[_Obstacle]:
    yield from _unnamed(report, _DEEPSPEED)
    if layout.pp > 1:
        with_zero = f", and none with ZeRO-{layout.zero}" if layout.zero > 1 else ""
        yield _Obstacle(
            f"pipeline stages are code (PipelineModule), not a configuration{with_zero}", {"pp": 1}
        )
    if layout.tp > 1:
        yield _Obstacle("no sequence parallelism beside tensor parallelism", {"tp": 1})
    if layout.cp > 1:
        yield _Obstacle("sequences are split by heads (Ulysses), not by gathered keys", {"cp": 1})
    if layout.ep > 1:
        yield _Obstacle("experts are code (deepspeed.moe), not a configuration", {"ep": 1})


def _deepspeed_text(report: PlanReport, layout: Layout) -> str:
    request = report.request
    zero: dict[str, object] = {"stage": layout.zero}
    if layout.zero:
        zero |= {"overlap_comm": True, "contiguous_gradients": True}
    config: dict[str, object] = {
        "train_batch_size": report.sequences,
        "train_micro_batch_size_per_gpu": layout.microbatch,
        "gradient_accumulation_steps": layout.count,
        "zero_optimization": zero,
        "optimizer": {"type": _DEEPSPEED["optimizer"][request.optimizer.lower()]},
    }
    if name := _DEEPSPEED["dtype"][report.dtype]:
        config[name] = {"enabled": True}
        grad = _DEEPSPEED["gradients"][request.gradients or "fp32"]
        config["data_types"] = {"grad_accum_dtype": grad}
    return json.dumps(config, indent=2)


def _deepspeed_notes(report: PlanReport, layout: Layout) -> Iterator[str]:
    yield f"sequences have {report.context:,} tokens, which DeepSpeed is not told"
    if layout.recompute == "full":
        yield "DeepSpeed does not recompute layers: the model does, gradient_checkpointing=True"


FRAMEWORKS = dict(
    zip(
        FRAMEWORK_NAMES,
        (
            _Framework("torchtitan", "0.2.2", _titan_obstacles, _titan_text),
            _Framework("Megatron-LM", "0.19.1", _megatron_obstacles, _megatron_text),
            _Framework("accelerate", "1.15.0", _accelerate_obstacles, _accelerate_text),
            _Framework(
                "DeepSpeed", "0.19.8", _deepspeed_obstacles, _deepspeed_text, _deepspeed_notes
            ),
        ),
        strict=True,
    )
)
"""Framework → how it is told a plan."""
