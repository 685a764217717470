"""`verify_deepspeed`: check that the partitions of a DeepSpeed ZeRO checkpoint hold all
parameters: ranks, stages, numbers of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from ....checkpoint.folders.deepspeed import (
    ModelStates,
    OptimizerPartition,
    RankFile,
    Shape,
    ZeroFolder,
    find_zero_files,
    read_model_states,
    read_optimizer,
)
from ....utils.errors import FormatError, safe
from ....utils.number_format import format_count, format_list
from ..verify.structure_report import StructureReport
from ..verify.verify_tensors import Finding, summarize_names

T = TypeVar("T", OptimizerPartition, ModelStates)


def verify_deepspeed(path: str) -> StructureReport:
    """Check the checkpoint of DeepSpeed in a folder, or the newest one in the folder around it."""
    found = find_zero_files(path)
    findings: list[Finding] = []
    partitions = list(_read_all(found, found.optimizers, read_optimizer, findings))
    models = list(_read_all(found, found.models, read_model_states, findings))
    findings += [
        *_ranks(found, partitions),
        *_agreement(partitions, models),
        *_elements(partitions, models),
        *_remarks(found, partitions, models),
    ]
    stage = partitions[0].stage if partitions else 0
    shapes = parameter_shapes(models)
    return StructureReport(
        path=path,
        kind="deepspeed",
        title=f"DeepSpeed checkpoint{f', ZeRO stage {stage}' if stage else ''}, "
        f"{format_count(len(shapes), 'parameter tensor')}",
        format="deepspeed",
        checked="ranks, stages and parameter shapes of all files are compared, and the elements "
        "of the partitions with the shapes",
        findings=tuple(findings),
        expected=len(shapes),
        matched=len(shapes) if not any(x.code == "partition" for x in findings) else 0,
        facts=_facts(found, partitions, models),
        matches="the partitions hold all parameters",
    )


def parameter_shapes(models: Sequence[ModelStates]) -> dict[str, Shape]:
    """Return the shapes of all parameters, trained and frozen, of the first of each rank's model
    states.
    """
    shapes: dict[str, Shape] = {}
    for x in models[:1]:
        for group in (*x.groups, x.frozen):
            shapes |= group
    return shapes


def _facts(
    found: ZeroFolder, partitions: Sequence[OptimizerPartition], models: Sequence[ModelStates]
) -> dict[str, Any]:
    shapes = parameter_shapes(models)
    first = partitions[0] if partitions else None
    return {
        "tag": found.tag,
        "latest": found.latest or None,
        "stage": first.stage if first else None,
        "world_size": max(first.partition_counts) if first else None,
        "model_parallel": len({x.model_rank for x in (*found.optimizers, *found.models)}),
        "parameters": sum(map(prod, shapes.values())),
        "tensors": len(shapes),
        "frozen": len(models[0].frozen) if models else 0,
        "master_dtype": first.dtype if first else None,
        "steps": next((x.steps for x in models if x.steps is not None), None),
        "version": next(
            (x for x in (*(x.version for x in models), *(x.version for x in partitions)) if x), None
        ),
        "files": len(found.optimizers) + len(found.models) + len(found.others),
    }


def _read_all(
    found: ZeroFolder,
    files: Iterable[RankFile],
    read: Callable[[str, RankFile], T],
    findings: list[Finding],
) -> Iterator[T]:
    """Yield what each file says; files that cannot be read become findings."""
    for file in files:
        try:
            yield read(found.folder, file)
        except FormatError as error:
            findings.append(
                Finding(
                    code=error.code,
                    severity="error",
                    message=str(error),
                    hint=error.hint,
                    tensors=(file.name,),
                )
            )


def _ranks(found: ZeroFolder, partitions: Sequence[OptimizerPartition]) -> Iterator[Finding]:
    """Yield findings about files of ranks that are missing, or left from a run on more GPUs."""
    hint = "each node saves the files of its own ranks: copy the folders of all nodes together"
    if not found.optimizers:
        message = (
            "no optimizer states: the master weights and the state of the optimizer are missing"
        )
        yield Finding(code="missing_shard", severity="error", message=message, hint=hint)
    if not found.models:
        message = "no model states: the names and shapes of the parameters are missing"
        yield Finding(code="missing_shard", severity="error", message=message, hint=hint)
    if not partitions:
        return
    count, stage = max(partitions[0].partition_counts), partitions[0].stage
    model_ranks = sorted({x.model_rank for x in found.optimizers})
    kinds = [("optimizer", found.optimizers)] + ([("model", found.models)] if stage == 3 else [])
    for kind, files in kinds:
        for model_rank in model_ranks:
            ranks = [x.rank for x in files if x.model_rank == model_rank]
            missing = sorted(set(range(count)) - set(ranks))
            where = f" of model rank {model_rank}" if len(model_ranks) > 1 else ""
            if missing:
                message = (
                    f"{kind} states of {len(missing):,} of {count:,} ranks{where} are "
                    f"missing: {format_list(map(str, missing), 8)}"
                )
                yield Finding(code="missing_shard", severity="error", message=message, hint=hint)
            if extra := sorted(x for x in ranks if x >= count):
                message = (
                    f"{kind} states of ranks{where} {format_list(map(str, extra), 8)}, "
                    f"though the run had {count:,} ranks"
                )
                yield Finding(
                    code="extra_file",
                    severity="error",
                    message=message,
                    hint="left from an earlier run on more GPUs: remove them",
                )
    if stage < 3 and (lacking := sorted(set(model_ranks) - {x.model_rank for x in found.models})):
        message = f"model states of model ranks {format_list(map(str, lacking), 8)} are missing"
        yield Finding(code="missing_shard", severity="error", message=message, hint=hint)


def _agreement(
    partitions: Sequence[OptimizerPartition], models: Sequence[ModelStates]
) -> Iterator[Finding]:
    """Yield findings about files that disagree with the first of their kind."""
    hint = "files of different runs or steps are mixed: copy the folder again"
    for values, what in (
        ([(x.file.name, x.stage) for x in partitions], "the stage"),
        ([(x.file.name, x.partition_counts) for x in partitions], "the number of ranks"),
        ([(x.file.name, x.version) for x in partitions], "the version of DeepSpeed"),
        ([(x.file.name, x.steps) for x in models], "the step"),
    ):
        if other := [name for name, value in values if value != values[0][1]]:
            message = f"{what} in {summarize_names(other)} is not that in {safe(values[0][0])}"
            yield Finding(
                code="mixed", severity="error", message=message, hint=hint, tensors=tuple(other)
            )
    by_model_rank: dict[int, ModelStates] = {}
    wrong = [
        x.file.name
        for x in models
        if by_model_rank.setdefault(x.file.model_rank, x).groups != x.groups
    ]
    if wrong:
        message = (
            f"the parameters of {summarize_names(wrong)} have other names or shapes than "
            "those of the first rank"
        )
        yield Finding(
            code="mixed", severity="error", message=message, hint=hint, tensors=tuple(wrong)
        )


def _elements(
    partitions: Sequence[OptimizerPartition], models: Sequence[ModelStates]
) -> Iterator[Finding]:
    """Yield findings about partitions with other numbers of elements than the shapes of the
    parameters.
    """
    shapes = {x.file.model_rank: x.groups for x in reversed(models)}
    for model_rank in sorted({x.file.model_rank for x in partitions} & shapes.keys()):
        own = [x for x in partitions if x.file.model_rank == model_rank]
        count = max(own[0].partition_counts)
        if len(own) != count or len({x.stage for x in own}) > 1:
            continue  # missing or mixed files are findings of their own
        groups = shapes[model_rank]
        problem = (
            _stage_3_problem(own, groups, count)
            if own[0].stage == 3
            else _flat_problem(own, groups, count)
        )
        if problem:
            hint = "a file is damaged, or belongs to another run"
            yield Finding(code="partition", severity="error", message=problem, hint=hint)


def _flat_problem(
    own: Sequence[OptimizerPartition], groups: Sequence[Mapping[str, Shape]], count: int
) -> str:
    """Return what is wrong with partitions of stage 1 or 2, which are equal parts of each
    group's parameters one after the other.
    """
    numbers = {len(x.groups) for x in own}
    if numbers != {len(groups)}:
        return (
            f"the optimizer has {format_list(sorted(numbers))} parameter groups, the model "
            f"states have {len(groups)}"
        )
    align = 2 * count
    for i, group in enumerate(groups):
        stored, needed = sum(x.groups[i] for x in own), sum(map(prod, group.values()))
        if -(-stored // align) != -(-needed // align):
            return (
                f"the partitions of parameter group {i} have {stored:,} elements; its "
                f"parameters have {needed:,}"
            )
    return ""


def _stage_3_problem(
    own: Sequence[OptimizerPartition], groups: Sequence[Mapping[str, Shape]], count: int
) -> str:
    """Return what is wrong with partitions of stage 3, in which each rank has an equal, padded
    part of every parameter.
    """
    needed = sum(-(-prod(shape) // count) for group in groups for shape in group.values())
    wrong = {x.file.name: sum(x.groups) for x in own if sum(x.groups) != needed}
    if not wrong:
        return ""
    first = next(iter(wrong.values()))
    return (
        f"{summarize_names(list(wrong))}: the partition has {first:,} elements; a rank's part "
        f"of all parameters has {needed:,}"
    )


def _remarks(
    found: ZeroFolder, partitions: Sequence[OptimizerPartition], models: Sequence[ModelStates]
) -> Iterator[Finding]:
    if found.others:
        message = (
            f"{format_count(len(found.others), 'file')} of experts or pipeline stages "
            f"{'is' if len(found.others) == 1 else 'are'} not read"
        )
        yield Finding(code="other_part", severity="info", message=message)
    if classes := sorted(
        {
            name
            for names in (*(x.classes for x in partitions), *(x.classes for x in models))
            for name in names
        }
    ):
        message = f"objects of {format_list((safe(x, 80) for x in classes), 4)} were not created"
        yield Finding(
            code="objects",
            severity="info",
            message=message,
            hint="DeepSpeed runs code from these files: load only those you trust",
        )
