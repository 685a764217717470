"""`fitting_presets`: the presets that fit on GPUs, each with what `fit` says of it."""

from __future__ import annotations

from collections.abc import Callable

from ...hardware import Device
from ...utils.errors import LlamathError
from ...utils.number_format import format_count
from ..size.fit.fit_report import fit
from ..size.fit.suggestions import gpus_option
from ..size.memory.inference_memory import MemoryCalculator
from .preset_list import PresetFit, PresetList, PresetSummary


def fitting_presets(
    presets: PresetList,
    sizes: Callable[[str], MemoryCalculator],
    gpu: Device,
    count: int,
    context: int | None,
) -> PresetList:
    """Return the presets that fit on GPUs, with the tokens that `sizes` has for each of them.

    A model whose own context is shorter than a `context` that was asked for is left out, and so is
    one that is counted only or has no such dtype; where that is so for all of them, it is an error.
    """
    memory = sum(x.memory for x in gpu.members) or count * gpu.memory
    found: list[tuple[PresetSummary, PresetFit]] = []
    refused: dict[str, LlamathError] = {}
    shorter = 0
    for x in presets:
        calculator = sizes(x.preset)
        if context is not None and x.context is not None and x.context < context:
            shorter += 1
            continue
        try:
            if sum(line.bytes for line in calculator.weights) > memory:
                continue
            report = fit(calculator, gpu, count)
        except LlamathError as error:
            refused[x.preset] = error
            continue
        if report.fits:
            stage, limiting = report.fullest
            decode = None if report.ceilings is None else report.ceilings.decode
            found.append(
                (
                    x,
                    PresetFit(
                        preset=x.preset,
                        dtype=report.dtype,
                        kv_dtype=report.kv_dtype,
                        context=report.context,
                        total=stage.total,
                        memory=limiting.memory,
                        max_context=report.max_context,
                        decode_ceiling=None if decode is None else decode.tokens_per_second,
                    ),
                )
            )
    if len(refused) + shorter == len(presets) and refused:
        raise next(iter(refused.values()))
    notes = []
    if shorter:
        notes.append(f"{format_count(shorter, 'preset')} with a shorter context left out")
    if refused:
        notes.append(f"not known, counted only or not in this dtype: {', '.join(refused)}")
    return presets.replace(
        models=tuple(x for x, _ in found),
        refused=(),
        on=gpus_option(count, gpu),
        fits=tuple(x for _, x in found),
        notes=tuple(notes),
    )
