"""The names of each weight in files on a terminal."""

from __future__ import annotations

from ...analysis.verify.weight_names import WHY_ROTARY, NamesReport
from ..table import bold, dim, wrap


def names_text(report: NamesReport) -> str:
    """Return each weight with its names below it."""
    model = report.model
    lines = [bold(x) for x in wrap(f"{model.name}: the names of each weight in {', '.join(model.family.schemes)} files", "")]
    rotary = False
    for x in report.weights:
        layers = f"  × {x.layers} layers" if "{l}" in x.pattern else ""
        first, *rest = wrap(f"{x.pattern}  {_format_shape(x.shape)}{layers}", "")
        lines += ["", bold(first), *rest]
        for scheme, stored in x.names.items():
            shape = "" if stored.shape == x.shape else f"  {_format_shape(stored.shape)}"
            lines += _hanging(f"{scheme:5} {stored.name}{shape}", 2)
            lines += [dim(line) for line in wrap(stored.transform, indent="          ")] if stored.transform else []
            rotary = rotary or "neighboring" in stored.transform
    return "\n".join([*lines, *(["", *wrap(WHY_ROTARY, indent="")] if rotary else [])])


def _hanging(text: str, indent: int) -> list[str]:
    """Return a text indented by two, and further lines by more."""
    first, *rest = wrap(text)
    return [first, *(" " * indent + x.lstrip() for x in rest)]


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(int(x)) for x in shape)
