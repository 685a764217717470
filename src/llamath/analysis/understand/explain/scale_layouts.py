"""The scales of quantized weights, by which a total may be larger than the number of parameters."""

from __future__ import annotations

from typing import NamedTuple

from ....checkpoint.quantization.matrix_formats import MatrixFormat
from ....checkpoint.quantization.producers.awq import awq_format
from ....checkpoint.quantization.producers.gptq import gptq_format
from ....checkpoint.quantization.shared.fp4 import mxfp4_format, nvfp4_format
from ....checkpoint.quantization.shared.scaled_bytes import fp8_format, fp8_rows_format


class ScaleLayout(NamedTuple):
    """The elements stored for a matrix in addition to its values, such as scales."""

    name: str
    format: MatrixFormat
    formula: str

    def elements(self, out: int, into: int) -> int:
        """Return the number of these elements for a matrix of this shape."""
        return self.format.scale_elements(out, into)


_GROUPS = {n: f"out·in/{n} + out·in/{8 * n:,}" for n in (128, 64, 32)}
_LAYOUTS = (
    *(ScaleLayout(f"AWQ, groups of {n}", awq_format(n), x) for n, x in _GROUPS.items()),
    *(
        ScaleLayout(f"GPTQ, groups of {n}", gptq_format(4, n), f"{x} + in")
        for n, x in _GROUPS.items()
    ),
    ScaleLayout("MXFP4", mxfp4_format(), "out·⌈in/32⌉"),
    ScaleLayout("NVFP4", nvfp4_format(), "out·⌈in/16⌉ + 2"),
    ScaleLayout("blocks of 128×128", fp8_format(), "⌈out/128⌉·⌈in/128⌉"),
    ScaleLayout("rows", fp8_rows_format(), "out"),
    ScaleLayout("matrices", fp8_format(None), "1"),
)
SCALE_LAYOUTS = {x.name: x for x in _LAYOUTS}
