"""`fitting_presets`: the presets that fit on GPUs, each in the best dtype that does, with what
`fit` says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...hardware import Device
from ...utils.errors import LlamathError
from ...utils.number_format import format_count
from ..size.fit.fit_report import FitReport, fit
from ..size.fit.fit_words import gpus_option
from ..size.fit.format_support import suggested_bits, supported_formats
from ..size.fit.serving_layouts import LayoutChooser
from ..size.fit.suggestions import total_of_fitting
from ..size.memory.inference_memory import MemoryCalculator
from .preset_list import READING, PresetFit, PresetList, PresetSummary

LEAST_BITS = 4
"""Models of more weights in 4 bits do better than ones of fewer in more bits, down to 4 (Dettmers
and Zettlemoyer 2023, arXiv:2212.09720)."""
Sizes = Callable[[str, str], MemoryCalculator]
"""A preset and a dtype, empty for its own → its memory."""


def fitting_presets(
    presets: PresetList,
    sizes: Sizes,
    gpu: Device,
    count: int,
    context: int | None,
    dtype: str = "",
) -> PresetList:
    """Return the presets that fit on GPUs, with the tokens that `sizes` has for each of them.

    Without a dtype, each is in its own if that fits, else in the largest format of at least 4 bits
    that does. A model whose own context is shorter than a `context` that was asked for is left out,
    and so is one that is counted only or has no such dtype; where that is so for all of them, it is
    an error.
    """
    memory = sum(x.memory for x in gpu.members) or count * gpu.memory
    formats = () if dtype else _formats(gpu)
    found: list[tuple[PresetSummary, PresetFit]] = []
    refused: dict[str, LlamathError] = {}
    shorter = 0
    for x in presets:
        if context is not None and x.context is not None and x.context < context:
            shorter += 1
            continue
        smaller = (y for y in formats if x.total * (suggested_bits(y) or 0) <= 8 * memory)
        try:
            report = _fitting(x.preset, sizes, (dtype, *smaller), (gpu, count, memory))
        except LlamathError as error:
            refused[x.preset] = error
            continue
        if report is not None:
            found.append((x, _preset_fit(x.preset, report)))
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
        unknown_bandwidth="" if gpu.bandwidth else gpu.title,
        fits=tuple(x for _, x in found),
        notes=tuple(notes),
    )


def best_first(presets: PresetList) -> PresetList:
    """Return presets that fit with the largest first; those that cannot be as fast as one reads
    come last.
    """

    def rank(pair: tuple[PresetSummary, PresetFit]) -> tuple[bool, int]:
        limit = pair[1].decode_ceiling
        return (limit is None or limit >= READING, pair[0].total)

    ranked = sorted(zip(presets.models, presets.fits, strict=True), key=rank, reverse=True)
    models, fits = ((tuple(x[i] for x in ranked)) for i in range(2))
    return presets.replace(models=models, fits=fits, best_first=True)


def _formats(gpu: Device) -> tuple[str, ...]:
    """Return the formats that are tried after a model's own, most bits first."""
    bits = {x: suggested_bits(x) or 0 for x in supported_formats(gpu)}
    kept = (x for x in bits if bits[x] >= LEAST_BITS)
    return tuple(sorted(kept, key=lambda x: (-bits[x], x not in ("fp8", "q4_k_m"))))


def _fitting(
    preset: str, sizes: Sizes, dtypes: tuple[str, ...], machine: tuple[Device, int, int]
) -> FitReport | None:
    """Return the report of the first dtype that fits; an error of the first one is an error."""
    gpu, count, memory = machine
    own = sizes(preset, dtypes[0])
    weights = sum(line.bytes for line in own.weights)
    for calculator in _smaller(preset, sizes, own, dtypes[1:]):
        size = sum(line.bytes for line in calculator.weights)
        if size > memory or (calculator is not own and size >= weights):
            continue
        if gpu.members:
            report = fit(calculator, gpu, count)
            if report.fits:
                return report
        elif total_of_fitting(
            LayoutChooser(calculator), gpu, count, calculator.context, calculator.request.batch
        ):
            return fit(calculator, gpu, count)
    return None


def _smaller(
    preset: str, sizes: Sizes, own: MemoryCalculator, dtypes: tuple[str, ...]
) -> Iterator[MemoryCalculator]:
    """Yield the calculator of a model's own dtype, and of those that it can be in."""
    yield own
    for dtype in dtypes:
        try:
            calculator = sizes(preset, dtype)
            sum(line.bytes for line in calculator.weights)
        except LlamathError:  # no file of this kind is known of the model
            continue
        yield calculator


def _preset_fit(preset: str, report: FitReport) -> PresetFit:
    stage, limiting = report.fullest
    decode = None if report.ceilings is None else report.ceilings.decode
    return PresetFit(
        preset=preset,
        dtype=report.dtype,
        kv_dtype=report.kv_dtype,
        context=report.context,
        total=stage.total,
        memory=limiting.memory,
        max_context=report.max_context,
        decode_ceiling=None if decode is None else decode.tokens_per_second,
    )
