"""The scales of quantized weights, by which a total may be larger than the number of parameters."""

from __future__ import annotations

from collections.abc import Callable

from ....checkpoint.quantization.producers.awq import awq_format
from ....checkpoint.quantization.producers.gptq import gptq_format
from ....checkpoint.quantization.shared.fp4 import mxfp4_format, nvfp4_format
from ....checkpoint.quantization.shared.scaled_bytes import fp8_format, fp8_rows_format
from ....utils.record_type import Record


class ScaleLayout(Record):
    """The elements stored for a matrix in addition to its values, such as scales."""

    name: str
    elements: Callable[[int, int], int]  # of outputs and inputs
    formula: str


_LAYOUTS = (
    *(
        ScaleLayout(
            name=f"AWQ, groups of {n}",
            elements=awq_format(n).scale_elements,
            formula=f"out·in/{n} + out·in/{8 * n:,}",
        )
        for n in (128, 64, 32)
    ),
    *(
        ScaleLayout(
            name=f"GPTQ, groups of {n}",
            elements=gptq_format(4, n).scale_elements,
            formula=f"out·in/{n} + out·in/{8 * n:,} + in",
        )
        for n in (128, 64, 32)
    ),
    ScaleLayout(name="MXFP4", elements=mxfp4_format().scale_elements, formula="out·⌈in/32⌉"),
    ScaleLayout(name="NVFP4", elements=nvfp4_format().scale_elements, formula="out·⌈in/16⌉ + 2"),
    ScaleLayout(
        name="blocks of 128×128",
        elements=fp8_format().scale_elements,
        formula="⌈out/128⌉·⌈in/128⌉",
    ),
    ScaleLayout(name="rows", elements=fp8_rows_format().scale_elements, formula="out"),
    ScaleLayout(name="matrices", elements=fp8_format(None).scale_elements, formula="1"),
)
SCALE_LAYOUTS = {x.name: x for x in _LAYOUTS}
