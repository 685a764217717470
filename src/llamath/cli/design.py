"""`llamath design`."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..analysis.design.design_request import TOLERANCE, DesignBounds, DesignRequest, FixedDims
from ..core.key_values import Reader, integer, parse_key_values, yes_or_no
from ..core.units import parse_bytes, parse_count, parse_quantity
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import MODEL, svg_option
from .output import echo, echo_json, note, write_file

if TYPE_CHECKING:
    from ..analysis.design.design_report import DesignReport
    from ..analysis.diff.model_diff import DiffReport
    from ..analysis.flops.scaling_laws import ScalingLaw, TrainingBudget
    from ..model import Model

MAX_DIMENSION = 2**40
EXAMPLES = (
    "llamath design 8B",
    "llamath design 500M --set vocab=32000,tied=yes",
    "llamath design 70B --set layers=60:100,kv_heads=8,max_memory=80GiB",
    "llamath design --flops 5.76e23 --law besiroglu",
    "llamath design 8B --format config > config.json",
)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not low.isascii() or not low.isdigit() or (":" in text and not (high.isascii() and high.isdigit())):
        raise ValueError("expected a number (80) or a range (60:100)")
    first, last = int(low), int(high or low)
    if not 0 < first <= last < MAX_DIMENSION:
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
        value = Fraction(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError("expected a share, such as 0.5% or 0.005") from None
    if not 0 <= value <= Fraction(1, 2) or (value >= Fraction(1, 10) and "%" not in text):
        raise ValueError("expected a share of at most 50%, such as 0.5% or 0.005")
    return value


DIMENSIONS: dict[str, Reader] = {
    **dict.fromkeys(("layers", "width", "heads", "kv_heads", "head_dim"), _span),
    "vocab": integer(1, MAX_DIMENSION),
    "tied": yes_or_no,
    **dict.fromkeys(("experts", "top_k"), integer(1, MAX_DIMENSION)),
    **dict.fromkeys(("ffn_ratio", "aspect"), _ratio),
    **dict.fromkeys(("multiple_of", "tensor_parallel"), integer(1, MAX_DIMENSION)),
    "active": parse_count,
    **dict.fromkeys(("max_kv_per_token", "max_memory"), parse_bytes),
    "tolerance": _tolerance,
}
"""Keys of --set: dimensions (60:100 is a range) and bounds."""


def _read_count(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else parse_count(text)


@make_command("design", EXAMPLES, brief=True, formats=("config", "params"))
@click.argument("target", required=False)
@click.option(
    "--like", default="llama-3", show_default=True, type=MODEL, metavar="MODEL", help="Follow a series (llama-3), family or MODEL."
)
@click.option(
    "--set",
    "fixed",
    multiple=True,
    metavar="KEY=VALUE,…",
    help="Fix dimensions or bounds: layers=80, width=4096:8192, heads, kv_heads, head_dim, vocab, tied=yes, ffn_ratio=3.5, aspect=100:140, "
    "multiple_of, tensor_parallel=8, experts, top_k, active=13B, max_memory=80GiB, max_kv_per_token=320KiB, tolerance=0.5%.",
)
@click.option("--rank", type=click.Choice(["habits", "error"]), help="Order of designs.  [default: habits; error for an exact TARGET]")
@click.option("--top", type=click.IntRange(1, 200), default=10, show_default=True, metavar="N", help="Number of designs to show.")
@click.option("--tokens", callback=_read_count, metavar="COUNT", help="Training tokens, for a scaling law: 15T.")
@click.option("--flops", callback=_read_count, metavar="COUNT", help="Training compute, for a scaling law: 3.8e25.")
@click.option("--law", "law_name", metavar="NAME", help="hoffmann-1, hoffmann-2, hoffmann-3, besiroglu or kaplan.")
@click.option("--against", type=MODEL, metavar="MODEL", help="Compare with the best design of another series.")
@svg_option("Also draw the designs: error against aspect ratio.")
def command(target: str | None, *, form: str | None, svg: str | None, force: bool, **options: Any) -> int:
    """Find dimensions for a model of TARGET parameters (405B, 1.5e9, 8030261248), in the style of a series. Exit code 1: there are none.

    Without TARGET, a scaling law computes it from --tokens or --flops. --format config or params prints the best design as config.json or
    params.json.
    """
    from ..analysis.design.design_report import design

    law = _law(options)
    request = _request(target, law, options)
    with Progress("searching designs"):
        found = design(request)
        other = _contrast(found, options["against"])
    budget = _budget(found, law, options)
    _print(found, other, budget, form)
    if svg is not None:
        from ..render.svg.design_svg import design_svg

        write_file(svg, design_svg(found), overwrite=force)
    return int(not found.candidates)


def _law(options: dict[str, Any]) -> ScalingLaw:
    from ..analysis.flops.scaling_laws import DEFAULT_LAW, find_law

    return find_law(options["law_name"] or DEFAULT_LAW)


def _request(target: str | None, law: ScalingLaw, options: dict[str, Any]) -> DesignRequest:
    tokens, flops = options["tokens"], options["flops"]
    if target is None and tokens is None and flops is None:
        raise click.UsageError("which TARGET? A count (405B, 1.5e9, 8030261248), or --tokens or --flops for a scaling law")
    if target is not None and tokens is not None and flops is not None:
        raise click.UsageError("TARGET, --tokens and --flops: give at most two of them")
    wanted, exact = _target(target, law, tokens, flops)
    given = parse_key_values(",".join(options["fixed"]), "--set", DIMENSIONS) if options["fixed"] else {}
    return DesignRequest(
        target=wanted,
        like=options["like"],
        fixed=FixedDims(**{name: x for name, x in given.items() if name in FixedDims.fields}),
        bounds=DesignBounds(**{name: x for name, x in given.items() if name in DesignBounds.fields}),
        tolerance=given.get("tolerance", TOLERANCE),
        by_error=exact if options["rank"] is None else options["rank"] == "error",
        limit=options["top"],
    )


def _target(target: str | None, law: ScalingLaw, tokens: int | None, flops: int | None) -> tuple[int, bool]:
    """The parameters wanted, and whether they were written out."""
    if target is not None:
        found = parse_quantity(target)
        return found.value, found.exact
    if tokens and flops:
        return max(flops // (6 * tokens), 1), False
    wanted = round(law.for_compute(flops) if flops else law.for_tokens(tokens or 1))
    echo(f"{wanted:,} parameters are optimal by {law.name}", err=True)
    return max(wanted, 1), False


def _budget(found: DesignReport, law: ScalingLaw, options: dict[str, Any]) -> TrainingBudget | None:
    from ..analysis.flops.scaling_laws import training_budget

    tokens, flops = options["tokens"], options["flops"]
    if not found.candidates or not (tokens or flops or options["law_name"]):
        return None
    return training_budget(found.candidates[0].active, law, tokens, None if tokens else flops)


def _contrast(found: DesignReport, against: str | None) -> tuple[str, DesignReport, DiffReport] | None:
    """The best design of another series; of a model with learned positions Llama 3's, unless another is named."""
    from ..analysis.design.design_report import design
    from ..analysis.diff.model_diff import diff

    if not found.candidates:
        return None
    best = found.candidates[0].model
    like = against or ("llama-3" if best.tree.positions is not None else None)
    if like is None:
        return None
    other = design(DesignRequest(target=found.request.target, like=like, limit=1))
    return (like, other, diff(best, other.candidates[0].model)) if other.candidates else None


def _print(
    found: DesignReport, other: tuple[str, DesignReport, DiffReport] | None, budget: TrainingBudget | None, form: str | None
) -> None:
    from ..render.text.design_text import budget_text, contrast_text, design_text

    best = found.candidates[0] if found.candidates else None
    if form == "json":
        from ..render.text.design_data import budget_json, contrast_json, design_json

        data = {"model": best.model.name if best else None, **design_json(found)}
        data["compute"] = budget_json(budget) if budget else None
        data["contrast"] = contrast_json(other[0], dict(other[1].candidates[0].config), other[2]) if other else None
        echo_json(data)
    elif form in ("config", "params"):
        if best is None:
            echo(design_text(found), err=True)
        else:
            echo(_params(best.model) if form == "params" else json.dumps(dict(best.config), indent=2))
    elif form == "brief":
        target = f"{found.request.target:,} parameters"
        if best is None:
            echo(f"{target}: no design")
        else:
            tree, total = best.model.tree, best.model.parameters.total
            echo(f"{target}: {int(tree.layers.n):,} layers of width {int(tree.embed.weight.shape[1]):,}, {total:,} parameters")
    else:
        lines = [design_text(found)]
        if other and best:
            lines.append(contrast_text(best.model, other[1].candidates[0].model, other[0], other[2]))
        echo("\n".join([*lines, budget_text(budget)] if budget else lines))


def _params(model: Model) -> str:
    from ..analysis.config_report import config_report
    from ..render.text.config_text import params_json_text

    text = params_json_text(model)
    for remark in config_report(model).remarks:
        note(remark)
    return text
