"""`llamath design`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..analysis.design.design_request import TOLERANCE, DesignBounds, DesignRequest, FixedDims

if TYPE_CHECKING:
    from ..analysis.design.design_report import DesignReport
    from ..analysis.diff.model_diff import DiffReport
    from ..analysis.flops.scaling_laws import ScalingLaw, TrainingBudget

Callback = Callable[[click.Context, click.Parameter, "str | None"], Any]
MOST = 2**40


def _read(parse: Callable[[str], Any]) -> Callback:
    """A callback that reads an option that may be absent."""
    return lambda _context, _parameter, text: None if text is None else parse(text)


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    if not low.isascii() or not low.isdigit() or (":" in text and not (high.isascii() and high.isdigit())):
        raise click.BadParameter(f"{text!r} is neither a number (80) nor a range (60:100)")
    first, last = int(low), int(high or low)
    if not 0 < first <= last < MOST:
        raise click.BadParameter(f"{text!r} should go from a positive number to one that is not smaller")
    return first, last


def _whole(text: str) -> int:
    low, high = _span(text)
    if low != high:
        raise click.BadParameter(f"{text!r} should be one number")
    return low


def _ratio(text: str) -> tuple[float, float]:
    try:
        parts = [float(Fraction(x)) for x in text.split(":")]
    except (ValueError, ZeroDivisionError, OverflowError):
        parts = []
    if len(parts) not in (1, 2) or not all(1e-3 <= x <= 1e6 for x in parts) or parts[0] > parts[-1]:
        raise click.BadParameter(f"{text!r} is neither a ratio (4, 8/3, 3.5) nor a range of them (2.5:4)")
    return parts[0], parts[-1]


def _tolerance(text: str) -> Fraction:
    try:
        value = Fraction(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise click.BadParameter(f"{text!r} is no share: say 0.5% or 0.005") from None
    if not 0 <= value <= Fraction(1, 2) or (value >= Fraction(1, 10) and "%" not in text):
        raise click.BadParameter(f"{text!r} is no tolerance: say 0.5% or 0.005, at most 50%")
    return value


def _count(text: str) -> int:
    from ..core.units import parse_count

    return parse_count(text)


def _size(text: str) -> int:
    from ..core.units import parse_bytes

    return parse_bytes(text)


OPTIONS = (
    click.option("--like", default="llama-3", show_default=True, help="Whose habits: a series (llama-3), a family or any MODEL."),
    click.option("--vocab", callback=_read(_whole), metavar="N", help="Rows of the embedding."),
    click.option("--tied/--untied", default=None, help="Is the head the embedding?"),
    click.option("--layers", callback=_read(_span), metavar="N|A:B", help="So many layers."),
    click.option("--width", callback=_read(_span), metavar="N|A:B", help="Width of the stream."),
    click.option("--heads", callback=_read(_span), metavar="N|A:B", help="Query heads."),
    click.option("--kv-heads", callback=_read(_span), metavar="N|A:B", help="Key/value heads."),
    click.option("--head-dim", callback=_read(_span), metavar="N|A:B", help="Size of a head."),
    click.option("--ffn-ratio", callback=_read(_ratio), metavar="R|A:B", help="Feed-forward width over width."),
    click.option("--aspect", callback=_read(_ratio), metavar="R|A:B", help="Width over layers."),
    click.option("--multiple-of", callback=_read(_whole), metavar="N", help="The feed-forward width is a multiple of this."),
    click.option(
        "--tensor-parallel", default="1", callback=_read(_whole), metavar="N", help="Heads, KV heads, widths, vocabulary divide by N."
    ),
    click.option("--experts", callback=_read(_whole), metavar="N", help="Experts in place of the feed-forward."),
    click.option("--top-k", callback=_read(_whole), metavar="N", help="Experts that a token passes through."),
    click.option("--active", callback=_read(_count), metavar="COUNT", help="Parameters that a token passes through."),
    click.option("--max-kv-per-token", callback=_read(_size), metavar="SIZE", help="Bound of the cache a token, in bfloat16: 320KiB."),
    click.option("--max-memory", callback=_read(_size), metavar="SIZE", help="Bound of the weights in bfloat16: 80GiB."),
    click.option("--tolerance", callback=_read(_tolerance), metavar="SHARE", help="How far the total may be off.  [default: 0.5%]"),
    click.option("--rank", type=click.Choice(["habits", "error"]), help="Default: habits; error for an exact TARGET."),
    click.option("-n", "--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="So many candidates."),
    click.option("--tokens", callback=_read(_count), metavar="COUNT", help="Training tokens: 15T."),
    click.option("--flops", callback=_read(_count), metavar="COUNT", help="Training compute in operations: 3.8e25."),
    click.option("--law", "law_name", help="Scaling law: hoffmann-1, hoffmann-2, hoffmann-3, besiroglu, kaplan."),
    click.option("--against", metavar="LIKE", help="Say how the best design like LIKE differs from the best one."),
    click.option("--json", "form", flag_value="json", help="For programs."),
    click.option("--params-json", "form", flag_value="params", help="The best as Meta's params.json."),
    click.option("-o", "--output", metavar="FILE", help="Write the best as config.json (with --params-json as params.json)."),
    click.option("--svg", metavar="FILE", help="Draw the candidates: error against aspect ratio."),
    click.option("--force", is_flag=True, help="Let -o and --svg write over a file."),
)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command("design")
@click.argument("target", required=False)
@_with_options
def command(target: str | None, **options: Any) -> None:
    """Dimensions for a model of TARGET parameters (405B, 1.5e9, 8030261248), by the habits of a series; exit code 1 if there are none.

    Without TARGET, --tokens or --flops and a scaling law say how large the model should be.
    """
    from ..analysis.design.design_report import design

    law = _law(options)
    request = _request(target, law, options)
    found = design(request)
    other = _contrast(found, options["against"])
    budget = _budget(found, law, options)
    for line in _shown(found, other, budget, options):
        click.echo(line)
    _save(found, options)
    if not found.candidates:
        sys.exit(1)


def _law(options: dict[str, Any]) -> ScalingLaw:
    from ..analysis.flops.scaling_laws import DEFAULT_LAW, find_law

    return find_law(options["law_name"] or DEFAULT_LAW)


def _request(target: str | None, law: ScalingLaw, options: dict[str, Any]) -> DesignRequest:
    tokens, flops = options["tokens"], options["flops"]
    if target is None and tokens is None and flops is None:
        raise click.UsageError("which TARGET? a count (405B, 1.5e9, 8030261248), or --tokens and --flops for a scaling law's")
    if target is not None and tokens is not None and flops is not None:
        raise click.UsageError("TARGET, --tokens and --flops: any two say the third")
    wanted, exact = _target(target, law, tokens, flops)
    fixed = {name: options[name] for name in FixedDims.fields}
    bounds = {name: options[name] for name in DesignBounds.fields}
    return DesignRequest(
        target=wanted,
        like=options["like"],
        fixed=FixedDims(**fixed),
        bounds=DesignBounds(**bounds),
        tolerance=TOLERANCE if options["tolerance"] is None else options["tolerance"],
        by_error=exact if options["rank"] is None else options["rank"] == "error",
        limit=options["limit"],
    )


def _target(target: str | None, law: ScalingLaw, tokens: int | None, flops: int | None) -> tuple[int, bool]:
    """The parameters wanted, and whether they were written out."""
    if target is not None:
        from ..core.units import parse_quantity

        found = parse_quantity(target)
        return found.value, found.exact
    if tokens and flops:
        return max(flops // (6 * tokens), 1), False
    wanted = round(law.for_compute(flops) if flops else law.for_tokens(tokens or 1))
    click.echo(f"{wanted:,} parameters are optimal by {law.name}", err=True)
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


def _shown(
    found: DesignReport, other: tuple[str, DesignReport, DiffReport] | None, budget: TrainingBudget | None, options: dict[str, Any]
) -> list[str]:
    if options["form"] == "params" and found.candidates:
        return [_params(found)] if options["output"] is None else []
    if options["form"] == "json":
        import json

        from ..render.text.design_data import budget_json, contrast_json, design_json

        data = design_json(found)
        data["compute"] = budget_json(budget) if budget else None
        data["contrast"] = contrast_json(other[0], dict(other[1].candidates[0].config), other[2]) if other else None
        return [json.dumps(data)]
    from ..render.text.design_text import budget_text, contrast_text, design_text

    if options["form"] == "params":
        click.echo(design_text(found), err=True)
        return []
    lines = [design_text(found)]
    if other:
        lines.append(contrast_text(found.candidates[0].model, other[1].candidates[0].model, other[0], other[2]))
    return [*lines, budget_text(budget)] if budget else lines


def _params(found: DesignReport) -> str:
    from ..analysis.config_report import config_report
    from ..render.text.config_text import params_json_text

    best = found.candidates[0].model
    text = params_json_text(best)
    for remark in config_report(best).remarks:
        click.echo(f"note: {remark}", err=True)
    return text


def _save(found: DesignReport, options: dict[str, Any]) -> None:
    from .save_file import save

    if options["output"] is not None and found.candidates:
        import json

        text = _params(found) if options["form"] == "params" else json.dumps(dict(found.candidates[0].config), indent=2)
        save(options["output"], f"{text}\n", options["force"])
    if options["svg"] is not None:
        from ..render.svg.design_svg import design_svg

        save(options["svg"], design_svg(found), options["force"])
