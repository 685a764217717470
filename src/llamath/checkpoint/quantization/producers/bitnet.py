"""BitNet: ternary values, four rows in one, and a scale for the matrix."""

from __future__ import annotations

from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import Detection, Packing
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.fp4 import is_block_of_gpt_oss
from ..shared.stored_matrix import Rows, StoredMatrix


def _read(config: Keys, dtype: str) -> Recipe:
    is_auto = config.get("linear_class") == "autobitlinear"
    if is_auto and config.get("quantization_mode") == "online":
        name, title = "bitnet-online", "BitNet, quantized when it is loaded"
        stored = parts(f".weight {dtype} out in")
    else:
        name, title = "bitnet", "BitNet, ternary weights, four in a byte"
        stored = parts(".weight U8 out/4 in", f".weight_scale {dtype} 1")
    to = MatrixFormat(name=name, title=title, parts=stored)
    return skipping_recipe("bitnet", config, to, "modules_to_not_convert")


def _detect(d: Detection, x: Tensor) -> None:
    """Detect ternary values, if the configuration declares them."""
    weight = x.name.removesuffix("_packed")
    scale = d.get(f"{weight}_scale")
    if is_block_of_gpt_oss(x) or d.config.get("quant_method") != "bitnet":
        return
    if scale is not None and scale.elements == 1 and len(x.shape) == 2:
        values = Packing.of_values("bitnet", weight, (4 * x.shape[0], x.shape[1]))
        d.record_with_companions(x, values)


def _open(m: StoredMatrix) -> Rows:
    """A byte holds values of four rows, a quarter of the matrix apart, as 2 bits each, plus 1."""
    np = require_numpy()
    values = m.raw("values")
    m.check("values", values.shape, (-(-m.out // 4), m.into))
    scale = m.floats("weight_scale").reshape(-1)[0]
    if m.config.get("linear_class", "bitlinear") != "autobitlinear":
        scale = np.float32(1) / scale  # BitLinear divides by its scale

    def rows(first: int, last: int) -> Any:
        at = np.arange(first, last)
        found = values[at % len(values)] >> (2 * (at // len(values))).astype(np.uint8)[:, None]
        return ((found & 3).astype(np.float32) - 1) * scale

    return rows


PRODUCER = Producer(
    read=_read,
    recognized=("bitnet",),
    detect=_detect,
    layouts={"bitnet": PackedLayout(open=_open)},
)
