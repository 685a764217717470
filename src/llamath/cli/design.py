"""`llamath design`."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..analysis.flops.scaling_laws import DEFAULT_LAW
from ..api import design
from ..render.progress import Progress
from ..utils.key_values import Reader, integer, parse_key_values, yes_or_no
from ..utils.units import parse_bytes, parse_count
from .command_group import command as make_command
from .model_options import SERIES, note_broken_files, svg_option
from .output import TABLES, PictureFiles, echo, echo_report, note

if TYPE_CHECKING:
    from ..analysis.design.design_report import DesignReport
    from ..model import Model

_MAX_DIMENSION = 2**40
_EXAMPLES = (
    "llamath design 8B",
    "llamath design 500M --set vocab=32000,tied=yes",
    "llamath design 70B --set layers=60:100,kv_heads=8,max_memory=80GiB",
    "llamath design --flops 5.76e23 --law besiroglu",
    "llamath design 8B --format config > config.json",
)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if (
        not low.isascii()
        or not low.isdigit()
        or (":" in text and not (high.isascii() and high.isdigit()))
    ):
        raise ValueError("expected a number (80) or a range (60:100)")
    first, last = int(low), int(high or low)
    if not 0 < first <= last < _MAX_DIMENSION:
        raise ValueError("expected a positive number, or a range from a smaller to a larger one")
    return first, last


def _ratio(text: str) -> tuple[float, float]:
    try:
        parts = [float(Fraction(x)) for x in text.split(":")]
    except (ValueError, ZeroDivisionError, OverflowError):
        parts = []
    if len(parts) not in (1, 2) or not all(1e-3 <= x <= 1e6 for x in parts) or parts[0] > parts[-1]:
        raise ValueError("expected a ratio (4, 8/3, 3.5) or a range of ratios (2.5:4)")
    return parts[0], parts[-1]


def _tolerance(text: str) -> Fraction:
    try:
        value = Fraction(text.strip().removesuffix("%")) / (
            100 if text.strip().endswith("%") else 1
        )
    except (ValueError, ZeroDivisionError):
        raise ValueError("expected a share, such as 0.5% or 0.005") from None
    if not 0 <= value <= Fraction(1, 2) or (value >= Fraction(1, 10) and "%" not in text):
        raise ValueError("expected a share of at most 50%, such as 0.5% or 0.005")
    return value


_DIMENSIONS: dict[str, Reader] = {
    **dict.fromkeys(("layers", "width", "heads", "kv_heads", "head_dim"), _span),
    "vocab": integer(1, _MAX_DIMENSION),
    "tied": yes_or_no,
    **dict.fromkeys(("experts", "top_k"), integer(1, _MAX_DIMENSION)),
    **dict.fromkeys(("ffn_ratio", "aspect"), _ratio),
    **dict.fromkeys(("multiple_of", "tensor_parallel"), integer(1, _MAX_DIMENSION)),
    "active": parse_count,
    **dict.fromkeys(("max_kv_per_token", "max_memory"), parse_bytes),
    "tolerance": _tolerance,
}
"""Keys of --set: dimensions (60:100 is a range) and bounds."""


def _read_count(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> int | None:
    return None if text is None else parse_count(text)


@make_command("design", _EXAMPLES, brief=True, formats=("config", "params", *TABLES))
@click.argument("target", required=False)
@click.option(
    "--like",
    default="llama-3",
    show_default=True,
    type=SERIES,
    metavar="MODEL",
    help="Follow a series (llama-3), family or MODEL.",
)
@click.option(
    "--set",
    "fixed",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="Fix dimensions or bounds: layers=80, width=4096:8192, heads, kv_heads, head_dim, "
    "vocab, tied=yes, ffn_ratio=3.5, aspect=100:140, "
    "multiple_of, tensor_parallel=8, experts, top_k, active=13B, max_memory=80GiB, "
    "max_kv_per_token=320KiB, tolerance=0.5%.",
)
@click.option(
    "--rank",
    type=click.Choice(["habits", "error"]),
    help="Order of designs.  [default: habits; error for an exact TARGET]",
)
@click.option(
    "--top",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of designs to show.",
)
@click.option(
    "--tokens",
    callback=_read_count,
    metavar="COUNT",
    help="Training tokens, for a scaling law: 15T.",
)
@click.option(
    "--flops",
    callback=_read_count,
    metavar="COUNT",
    help="Training compute, for a scaling law: 3.8e25.",
)
@click.option(
    "--law", metavar="NAME", help="hoffmann-1, hoffmann-2, hoffmann-3, besiroglu or kaplan."
)
@click.option(
    "--against",
    type=SERIES,
    metavar="MODEL",
    help="Compare with the best design of another series.",
)
@svg_option("Also draw the designs: error against aspect ratio.")
def command(
    target: str | None,
    *,
    fixed: tuple[str, ...],
    form: str | None,
    svg: PictureFiles | None,
    **options: Any,
) -> int:
    """Find dimensions for a model of TARGET parameters (405B, 1.5e9, 8030261248), in the style of a
    series. Exit code 1: there are none.

    Without TARGET, a scaling law computes it from --tokens or --flops. --format config or params
    prints the best design as config.json or params.json.
    """
    dimensions = parse_key_values(",".join(fixed), "--set", _DIMENSIONS) if fixed else {}
    with Progress("searching designs"):
        report = design(target, **dimensions, **options)
    note_broken_files(options["like"], options["against"])
    if target is None and (options["tokens"] is None or options["flops"] is None):
        echo(
            f"{report.request.target:,} parameters are optimal by {options['law'] or DEFAULT_LAW}",
            err=True,
        )
    _print(report, form)
    if svg is not None:
        from ..render.svg.design_svg import design_svg

        svg.write(design_svg(report))
    return int(not report)


def _print(report: DesignReport, form: str | None) -> None:
    best = report.best
    if form not in ("config", "params"):
        echo_report(report, form)
    elif best is None:
        echo(str(report), err=True)
    else:
        config = json.dumps(dict(best.config), indent=2)
        echo(_params(best.model) if form == "params" else config)


def _params(model: Model) -> str:
    from ..analysis.config_report import config_report, params_json_text

    text = params_json_text(model)
    for remark in config_report(model).remarks:
        note(remark)
    return text
