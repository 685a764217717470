"""The reports of `verify`, `names` and `logits` on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ....utils.errors import safe
from ....utils.number_format import format_count, format_list, short_count
from ...table import align, bold, dim, note_lines, wrap

if TYPE_CHECKING:
    from ....analysis.verify.check_checkpoint import VerifyReport
    from ....analysis.verify.divergence import Divergence, Estimate
    from ....analysis.verify.full_check import FullCheck
    from ....analysis.verify.logits_agreement import (
        ComparedCheckpoint,
        FirstDifference,
        LogitsComparison,
        TreeDifference,
    )
    from ....analysis.verify.structure_report import StructureReport
    from ....analysis.verify.verify_tensors import Finding
    from ....analysis.verify.weight_names import NamesReport, QuantizedNames

MAX_ROWS, BAR_WIDTH = 12, 24
"""The most rows of a list; the length of the longest bar."""


def logits_text(report: LogitsComparison) -> str:
    """Format the verdict, the differences, the first differing module, and possible causes."""
    lines = [bold(x) for x in wrap(_verdict(report), indent="")]
    lines += [
        dim(x)
        for side, letter in ((report.a, "A"), (report.b, "B"))
        for x in wrap(f"{letter}  {_side(side)}", indent="")
    ]
    lines += [dim(x) for x in wrap(_describe_input(report), indent="")]
    lines += ["", *align(list(_rows(report)), right=(1, 2))]
    if report.divergence and not report.identical:
        lines += ["", *divergence_lines(report.divergence)]
    if report.same:
        return "\n".join(lines)
    if report.first:
        lines += ["", *wrap(_first(report.first), indent="")]
    lines += ["", *_layers(report)] if report.layers else []
    if report.facts:
        lines += [
            "",
            "config differences:",
            *align([_config_difference(x) for x in report.facts[:MAX_ROWS]], gap=3),
        ]
        lines += (
            [f"and {len(report.facts) - MAX_ROWS:,} more"] if len(report.facts) > MAX_ROWS else []
        )
    for x in report.hints:
        lines += ["", *wrap(f"hint: {safe(x, 500)}", indent="")]
    return "\n".join(lines)


def _verdict(report: LogitsComparison) -> str:
    if report.identical:
        return "identical, bit by bit"
    if report.same:
        return f"the same within {report.tolerance:g} of the largest logit"
    return (
        f"different: logits differ by {report.relative:.2g} of the largest logit (tolerance "
        f"{report.tolerance:g})"
    )


def _side(x: ComparedCheckpoint) -> str:
    return (
        f"{safe(x.name)}: {x.family}, {short_count(x.parameters)}, {x.format}, {x.names} "
        f"names, {x.dtype}"
    )


def _describe_input(report: LogitsComparison) -> str:
    text = report.text.replace("\n", " ")
    text = text if len(text) < 50 else f"{text[:46].rstrip()} …"
    what = f"tokens of “{safe(text)}”" if report.text else "token ids"
    return f"{len(report.tokens):,} {what}, in {report.dtype}"


def _rows(report: LogitsComparison) -> Iterator[tuple[str, ...]]:
    yield "", "mean", "largest"
    yield (
        "logit difference",
        f"{report.mean_difference:.3g}",
        f"{report.max_difference:.3g}",
        f"largest logit {report.largest_logit:.3g}",
    )
    yield "KL(A‖B), nats", f"{report.kl_mean:.3g}", f"{report.kl_max:.3g}"
    yield "same top-1 token", f"{report.same_top1:,}", f"of {len(report.tokens):,}"
    if report.losses:
        yield "loss of A and B, nats/token", f"{report.losses[0]:.3f}", f"{report.losses[1]:.3f}"


def divergence_lines(x: Divergence) -> list[str]:
    """Return the statistics as `llama-perplexity --kl-divergence` prints them: perplexity, KLD
    and Δp side by side.
    """
    rows: list[tuple[str, str, str]] = [(f"{x.positions:,} positions", "KLD", "Δp, %")]
    rows.append(("mean", _with_error(x.kld.mean, 6), _with_error(x.delta_p.mean, 3, 100)))
    rows.append(("maximum", _decimal(x.kld.maximum, 6), _decimal(100 * x.delta_p.maximum, 3)))
    of_kld = {y.percent: _decimal(y.value, 6) for y in x.kld.percentiles}
    for y in x.delta_p.percentiles:
        name = "median" if y.percent == 50 else f"{y.percent:.1f} %"
        rows.append((name, of_kld.get(y.percent, ""), _decimal(100 * y.value, 3)))
    rows.append(("minimum", _decimal(x.kld.minimum, 6), _decimal(100 * x.delta_p.minimum, 3)))
    rows.append(("RMS", "", _with_error(x.rms_delta_p, 3, 100)))
    lines = align(rows, right=(1, 2))
    lines += ["", f"same top token  {_with_error(x.same_top, 3, 100)} %"]
    perplexity = [
        ("perplexity of A", x.perplexity_a),
        ("perplexity of B", x.perplexity_b),
        ("PPL(B) / PPL(A)", x.ratio),
    ]
    perplexity += [("ln(PPL(B) / PPL(A))", x.log_ratio), ("PPL(B) − PPL(A)", x.difference)]
    lines += ["", *align([(name, _with_error(value, 6)) for name, value in perplexity], right=(1,))]
    return [*lines, f"correlation of ln PPL  {100 * x.correlation:.2f} %"]


def _with_error(x: Estimate, digits: int, factor: float = 1.0) -> str:
    return f"{_decimal(factor * x.value, digits)} ± {_decimal(factor * x.error, digits)}"


def _decimal(x: float, digits: int) -> str:
    """Return a number with this many decimals, as llama.cpp prints it, or with two significant
    digits if they would be too few.
    """
    return f"{x:.1e}" if 0 < abs(x) < 10 ** (1 - digits) else f"{x + 0.0:.{digits}f}"


def _first(gap: FirstDifference) -> str:
    names = [x for x in dict.fromkeys(gap.stored) if x]
    where = f" ({safe(', '.join(names))})" if names else ""
    return f"first difference: {gap.module}{where}, by {gap.difference:.2g} of its largest value"


def _layers(report: LogitsComparison) -> list[str]:
    """Return a bar for each layer, or for evenly spaced layers of a deep model."""
    n = len(report.layers)
    shown = (
        range(n)
        if n <= MAX_ROWS
        else sorted({round(i * (n - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)})
    )
    rows = [("after layer", "difference", "")]
    rows += [
        (
            str(i),
            f"{report.layers[i]:.2g}",
            "█" * min(BAR_WIDTH, round(BAR_WIDTH * report.layers[i])),
        )
        for i in shown
    ]
    return align(rows, right=(0, 1))


def _config_difference(x: TreeDifference) -> tuple[str, ...]:
    layers = f"({x.layers} layers)" if x.layers > 1 else ""
    return "  " + x.path, f"A {safe(str(x.a), 40)}", f"B {safe(str(x.b), 40)}", layers


def names_text(report: NamesReport) -> str:
    """Return each weight with its names below it."""
    from ....analysis.verify.weight_names import WHY_ROTARY

    model = report.model
    if model.claim:
        return "\n".join(_state_dict_names(report))
    lines = [
        bold(x)
        for x in wrap(
            f"{model.name}: the names of each weight in {', '.join(model.family.schemes)} files", ""
        )
    ]
    rotary = False
    for x in report.weights:
        layers = f"  × {x.layers} layers" if "{l}" in x.pattern else ""
        first, *rest = wrap(f"{x.pattern}  {_format_shape(x.shape)}{layers}", "")
        lines += ["", bold(first), *rest]
        for scheme, stored in x.names.items():
            shape = "" if stored.shape == x.shape else f"  {_format_shape(stored.shape)}"
            lines += _hanging(f"{scheme:5} {stored.name}{shape}", 2)
            lines += (
                [dim(line) for line in wrap(stored.transform, indent="          ")]
                if stored.transform
                else []
            )
            rotary = rotary or "neighboring" in stored.transform
    lines += ["", *wrap(WHY_ROTARY, indent="")] if rotary else []
    if report.quantized is not None:
        lines += ["", *_quantized_lines(report.quantized)]
    return "\n".join([*lines, *(["", *note_lines(report.notes)] if report.notes else [])])


def _state_dict_names(report: NamesReport) -> Iterator[str]:
    """Yield the names of the tensors of a model without a family, which are those in HF files."""
    model, total = report.model, sum(x.layers for x in report.weights)
    yield from map(
        bold,
        wrap(
            f"{safe(model.name)}: the names of {format_count(total, 'tensor')} "
            f"in hf files, {model.claim}",
            "",
        ),
    )
    yield ""
    yield from align(
        [(safe(x.pattern), "×".join(str(int(n)) for n in x.shape)) for x in report.weights]
    )
    yield from ("", *note_lines(report.notes)) if report.notes else ()


def _quantized_lines(stored: QuantizedNames) -> Iterator[str]:
    """Yield the tensors of a quantized checkpoint as a table, and the notes on its recipe."""
    total = stored.listing.total
    head = (
        f"stored as {stored.dtype}: {format_count(total.tensors, 'tensor')}, {total.bytes:,} bytes"
    )
    yield from map(bold, wrap(f"{head}, {float(stored.bits_per_weight):.4f} bits per weight", ""))
    yield ""
    from .ls_text import table_lines

    yield from table_lines(stored.listing.rows)
    yield from ("", *note_lines(stored.notes)) if stored.notes else ()


def _hanging(text: str, indent: int) -> list[str]:
    """Wrap a text indented by two, with a hanging indent of `indent` more."""
    first, *rest = wrap(text)
    return [first, *(" " * indent + x.lstrip() for x in rest)]


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(str(int(x)) for x in shape)


_NOT_FOUND = (
    "swapped or permuted weights cannot be found this way: `llamath same` compares with "
    "another copy"
)
_MARKS = {"error": "✗", "warning": "!", "info": "·"}


def verify_text(report: VerifyReport) -> str:
    """Return the verdict and the findings with their hints."""
    verdict, manifest, model = report.verdict, report.manifest, report.model
    size = sum(x.size for x in manifest.files)
    files = format_count(len(manifest.files), f"{manifest.format} file")
    what = (
        f"{format_count(len(manifest.tensors), 'tensor')} in {files}, {size:,} bytes, "
        f"{verdict.scheme} names"
    )
    expected = "its config" if report.has_own_config else model.name
    lines = [
        bold(line)
        for line in wrap(f"{safe(report.path)}: {report.answer(expected)}{report.about_values}", "")
    ]
    lines += [
        dim(line) for line in wrap(f"{what}; verified against {model.name} ({model.source})", "")
    ]
    total = (
        f"{format_count(verdict.expected, 'tensor')} of "
        f"{format_count(model.parameters.total, 'parameter')}"
    )
    if report.is_incomplete:
        lines += wrap(f"the config describes {total}", "")
    else:
        lines += wrap(
            f"{verdict.matched:,} of the {total} {'is' if verdict.matched == 1 else 'are'} there",
            "",
        )
    lines += _describe_reading(report.full) if report.full else []
    return "\n".join([*lines, *_findings(report.findings)])


def _describe_reading(full: FullCheck) -> list[str]:
    """Say how much was read, what the files were compared with, and what values cannot tell."""
    what = (
        f"values of {format_count(full.tensors, 'tensor')} examined"
        if full.values_checked
        else "values not examined"
    )
    sources = list(dict.fromkeys(source for x in full.files for source in x.compared_with))
    compared = (
        f"sums of {full.compared} of {format_count(len(full.files), 'file')} compared "
        f"with {format_list(sources)}"
    )
    lines = wrap(
        f"{full.bytes_read:,} bytes read, {what}; "
        f"{safe(compared) if sources else 'no sums to compare with'}",
        "",
    )
    return lines + (list(map(dim, wrap(_NOT_FOUND, ""))) if full.values_checked else [])


def structure_text(report: StructureReport) -> str:
    """Return what a checkpoint is, what was checked, its facts, and the findings with their
    hints.
    """
    bad = sum(x.severity != "info" for x in report.findings)
    answer = (report.matches or "is whole") if report.is_whole else format_count(bad, "problem")
    answer += f"; {report.full.summary}" if report.full else ""
    lines = [bold(line) for line in wrap(f"{safe(report.path)}: {report.title}, {answer}", "")]
    checked = (
        report.checked
        if report.full and report.full.values_checked
        else f"{report.checked}; values were not read (--full)"
    )
    lines += [dim(line) for line in wrap(checked, "")]
    rows = [
        (key.replace("_", " "), text)
        for key, value in report.facts.items()
        if (text := _fact(value))
    ]
    width = max((len(key) for key, _ in rows), default=0)
    for key, text in rows:
        first, *rest = wrap(text, " " * (width + 2))
        lines += [f"{key:{width}}  {first.lstrip()}", *rest]
    lines += _describe_reading(report.full) if report.full else []
    return "\n".join([*lines, *_findings(report.all_findings)])


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return format_list(f"{_fact(x)} {safe(str(key), 60)}" for key, x in value.items())
    if isinstance(value, (list, tuple)):
        return format_list(map(_fact, value), 8)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else safe(str(value), 200)
    )


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for x in findings:
        first, *rest = wrap(x.message, "  ")
        yield f"{_MARKS[x.severity]}{first[1:]}"
        yield from rest
        if x.hint:
            yield from (dim(line) for line in wrap(f"hint: {x.hint}", "    "))
