"""The FLOPs for programs: the contract of `--json`, and the products as CSV or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from ...analysis.flops.arithmetic_intensity import Intensity
from ...analysis.flops.flop_count import Flops
from ...analysis.flops.flops_report import FlopsReport, Row
from ...analysis.flops.mfu import Speed, Utilisation
from ...core.number_format import format_ranges
from ...model import Model
from ..csv_rows import format_table
from .flops_text import notes

COLUMNS = ("group", "product", "layers", "times", "formula", "forward", "decode", "training")


def flops_json(model: Model, report: FlopsReport, used: tuple[Speed, Sequence[Utilisation]] | None = None) -> dict[str, Any]:
    """What `llamath flops --json` prints."""
    t, request = report.training, report.request
    found: dict[str, Any] = {
        "name": model.name,
        "context": request.context,
        "batch": request.batch,
        "attention": "causal" if request.masked else "full",
        "forward": report.forward.total,
        "train": t.model,
        "per_token": number(report.per_token),
        "conventions": {x.name: _convention(report, x.name) for x in report.conventions},
        "full_attention": {"forward": report.full.total, "train": 3 * report.full.total},
        "prefill": report.prefill.total,
        "decode": report.decode.total,
        "latent": "unpacked" if request.unpacked else "absorbed",
        "decode_otherwise": report.other.total,
        "training": {
            "forward": t.forward,
            "backward": t.backward,
            "recomputed": t.recomputed,
            "rescored": t.rescored,
            "hardware": t.hardware,
        },
        "groups": {"forward": _groups(report.forward), "prefill": _groups(report.prefill), "decode": _groups(report.decode)},
        "formula": report.forward.formula.symbol,
        "letters": dict(report.letters),
        "products": [
            {
                "section": x.section,
                "layers": format_ranges(x.indices),
                "product": x.what,
                "group": x.group,
                "mixing": x.mixing,
                "times": x.times,
            }
            | {"formula": x.formula, "forward": x.forward, "decode": x.decode, "train": x.train}
            for x in report.rows
        ],
        "intensity": {"prefill": _intensity(report.reading), "decode": _intensity(report.writing)},
        "notes": list(notes(model, report)),
    }
    if used is not None:
        speed, shares = used
        found["mfu"] = {
            "gpus": speed.gpus,
            "gpu": speed.name,
            "peak": speed.peak,
            "tokens_per_second": number(speed.tokens),
            "by": {x.name: {"flops_per_second": number(x.rate), "mfu": float(x.share)} for x in shares},
        }
    return found


def flops_rows(report: FlopsReport, form: str) -> Iterator[str]:
    """The products, layers of a kind together."""
    rows = ((x.group, _product(x), format_ranges(x.indices), str(x.times), x.formula, *map(str, _passes(x))) for x in report.rows)
    return format_table(COLUMNS, rows, form)


def _product(row: Row) -> str:
    return row.what + (" mixing" if row.mixing else "")


def _passes(row: Row) -> tuple[int, int, int]:
    return row.forward, row.decode, row.train


def number(value: Fraction) -> int | float:
    """An integer where it is one."""
    return int(value) if value.denominator == 1 else float(value)


def _groups(found: Flops) -> dict[str, dict[str, int]]:
    names = dict.fromkeys((*found.weights, *found.mixing))
    return {x: {"weights": int(found.weights.get(x, 0)), "mixing": int(found.mixing.get(x, 0))} for x in names}


def _convention(report: FlopsReport, name: str) -> dict[str, Any]:
    x = next(x for x in report.conventions if x.name == name)
    return {
        "title": x.title,
        "formula": x.train.symbol,
        "per_token": int(x.train),
        "train": int(x.train) * report.tokens,
        "ratio": float(x.ratio(report.exact)),
        "hardware": x.hardware,
        "source": x.source,
        "says": x.says,
    }


def _intensity(found: Sequence[Intensity]) -> dict[str, dict[str, float]]:
    return {x.group: {"flops": x.flops, "weights": x.weights, "cache": x.cache, "ratio": x.ratio} for x in found}
