"""Names side by side: for a terminal and for programs."""

from __future__ import annotations

from typing import Any

from ...analysis.verify.weight_names import WHY_ROTARY, WeightNames, weight_names
from ...checkpoint.naming.scheme import Scheme
from ...model import Model
from ..table import bold, dim, wrap


def _spelled(model: Model) -> tuple[WeightNames, ...]:
    schemes: list[Scheme] = list(model.family.schemes.values())
    return weight_names(model.tree, schemes)


def names_text(model: Model) -> str:
    """Each weight with its names under it."""
    lines = [bold(f"{model.name}: one matrix, {len(model.family.schemes) + 1} spellings")]
    rotary = False
    for x in _spelled(model):
        lines += ["", bold(x.pattern) + f"  {_shape(x.shape)}" + (f"  × {x.layers} layers" if "{l}" in x.pattern else "")]
        for scheme, one in x.names.items():
            shape = "" if one.shape == x.shape else f"  {_shape(one.shape)}"
            lines.append(f"  {scheme:5} {one.name}{shape}")
            lines += [dim(line) for line in wrap(one.transform, indent="          ")] if one.transform else []
            rotary = rotary or "neighbouring" in one.transform
    return "\n".join([*lines, *(["", *wrap(WHY_ROTARY, indent="")] if rotary else [])])


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(int(x)) for x in shape)


def spellings_json(model: Model) -> dict[str, Any]:
    """The same for programs; `{l}` and `{e}` stand for the numbers of layer and expert."""
    return {
        "model": model.name,
        "weights": [
            {
                "path": x.pattern,
                "shape": list(map(int, x.shape)),
                "dims": [y.symbol for y in x.shape],
                "layers": x.layers,
                "names": {
                    scheme: {"name": one.name, "shape": list(map(int, one.shape)), "transform": one.transform}
                    for scheme, one in x.names.items()
                },
            }
            for x in _spelled(model)
        ],
    }
