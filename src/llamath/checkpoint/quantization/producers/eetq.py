"""EETQ: INT8 with inputs first, and a scale for each output."""

from __future__ import annotations

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import NextCodes, next_int8
from ..shared.stored_matrix import Rows, StoredMatrix


def _read(config: Keys, _: str) -> Recipe:
    to = MatrixFormat(
        name="eetq",
        title="EETQ, INT8 with a scale for each row",
        parts=parts(".weight I8 in out", ".weight_scales F16 out"),
    )
    return skipping_recipe("eetq", config, to, "modules_to_not_convert")


def _detect(d: Detection, x: Tensor) -> None:
    scale = d.get(f"{x.name}_scales", *SCALE_DTYPES)
    if scale is not None and len(x.shape) == 2 and scale.shape == x.shape[1:]:
        values = Packing.of_values("eetq", x.name, (x.shape[1], x.shape[0]))
        d.record(x, values, {scale.name: "scale"})


def _open(m: StoredMatrix) -> Rows:
    np = require_numpy()
    values, scale = m.raw("values"), m.floats("weight_scales")
    m.check("values", values.shape, (m.into, m.out))
    return lambda first, last: (
        np.ascontiguousarray(values[:, first:last].T).astype(np.float32) * scale[first:last, None]
    )


PRODUCER = Producer(
    read=_read,
    recognized=("eetq",),
    detect=_detect,
    layouts={"eetq": PackedLayout(open=_open, steps=NextCodes(next_codes=next_int8))},
)
