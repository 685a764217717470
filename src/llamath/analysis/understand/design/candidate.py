"""`Candidate`: a design that is built through its family, so that its total is counted on the
tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from ....checkpoint.meta_args import ffn_width_args
from ....loading import load_family
from ....model import FamilyModel
from ....utils.record_type import Record
from .design_ranking import RankedDesign, design_dims
from .design_search import BF16_BYTES, dense_ffn_width
from .family_shape import FamilyShape


class Candidate(Record):
    """One design that meets the request."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "config",
            "parameters=total",
            "error_ppm=ppm",
            "reasons",
            "distance",
            "active",
            "aspect=rounded_aspect",
            "ffn_ratio",
        ),
        *("kv_bytes_per_token=kv_bytes", "multiple_of", "ffn_dim_multiplier"),
    )

    model: FamilyModel
    config: Mapping[str, Any]  # HF keys
    ranked: RankedDesign
    active: int
    error: Fraction  # relative to the target
    cost: float  # the distance from the series' habits
    reasons: tuple[str, ...]
    kv_bytes: int  # KV-cache bytes per token in bfloat16
    # Meta's multiple_of and ffn_dim_multiplier that give the FFN width
    rounding: tuple[int, float | None] | None = None

    @property
    def distance(self) -> float:
        """The distance from the series' habits, to four digits."""
        return round(self.cost, 4)

    @property
    def rounded_aspect(self) -> float:
        """Width over layers, to four digits."""
        return round(self.aspect, 4)

    @property
    def ffn_ratio(self) -> float:
        """Feed-forward width over width, to four digits."""
        return round(self.ffn / self.width, 4)

    @property
    def multiple_of(self) -> int | None:
        """Meta's `multiple_of`."""
        return self.rounding and self.rounding[0]

    @property
    def ffn_dim_multiplier(self) -> float | None:
        """Meta's `ffn_dim_multiplier`."""
        return self.rounding and self.rounding[1]

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.ranked.layers

    @property
    def width(self) -> int:
        """The hidden size."""
        return self.ranked.outer.d

    @property
    def ffn(self) -> int:
        """The FFN width, of one expert for MoE models."""
        return self.ranked.ffn

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.ranked.outer.H

    @property
    def kv_heads(self) -> int:
        """The number of key/value heads."""
        return self.ranked.outer.K

    @property
    def head_dim(self) -> int:
        """The size of a head."""
        return self.ranked.outer.h

    @property
    def total(self) -> int:
        """The parameters."""
        return self.ranked.total

    @property
    def aspect(self) -> float:
        """The aspect ratio: hidden size over number of layers."""
        return self.width / self.layers

    @property
    def ppm(self) -> float:
        """The error in parts per million of the target."""
        return float(round(self.error * 10**6, 1))


def build_candidate(
    design: RankedDesign, shape: FamilyShape, target: int, cost: float, reasons: tuple[str, ...]
) -> Candidate:
    """Build a design through its family and count its tree."""
    x, sizes = design.outer, dict(design_dims(design, shape.ffn))
    if shape.ffn == "Fe" and "F" in shape.keys:
        sizes["F"] = dense_ffn_width(shape, x.d)
    if not shape.grouped:
        sizes.pop("K")
    config = shape.config(sizes)
    model = load_family(config)
    model = model.replace(name=f"{design.layers} layers of {x.d:,}")
    total = model.parameters.total
    assert total == design.total, f"the polynomial says {design.total:,}, the tree {total:,}"
    return Candidate(
        model=model,
        config=config,
        ranked=design,
        active=model.parameters.active,
        error=Fraction(total - target, target),
        cost=cost,
        reasons=reasons,
        kv_bytes=BF16_BYTES * shape.kv_elements(design.layers, x.K, x.h),
        rounding=next(ffn_width_args(x.d, design.ffn), None) if model.family.meta else None,
    )
