"""Tables of docs/concepts/numbers-we-predicted.md, from the predictions in conformance/."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from accuracy_tables import table, wrap

FOLDER = Path(__file__).parents[1] / "conformance"
PEERS = FOLDER.with_name("bench") / "results" / "peers.json"
FILES = ("engine_logs.jsonl", "published_sizes.jsonl")
UNITS = {
    "available_gib": "GiB for the cache",
    "gib": "GiB",
    "cache_gib": "GiB",
    "needs_gib": "GiB needed",
    "weights_gib": "GiB of weights",
    "gpu_mib": "MiB on the GPU",
    "concurrency": "requests at once",
    "billions": "billion",
}
"""The words for a quantity, where its name is another one."""


def rows() -> list[dict[str, Any]]:
    """Return all predictions."""
    lines = (x for name in FILES for x in (FOLDER / name).read_text().splitlines())
    return [json.loads(x) for x in lines]


def number(value: Any) -> str:
    """Return a figure, or an interval, as text."""
    if isinstance(value, list):
        low, high = (number(x) for x in value)
        return low if low == high else f"{low} to {high}"
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if value < 100 else f"{value:,.2f}"


def percent(value: float) -> str:
    """Return a difference in percent with three significant digits."""
    return "0" if not value else f"{value:+.3g}"


def worst(found: Sequence[dict[str, Any]]) -> float:
    """Return the largest difference."""
    return max((y for x in found for y in x["difference_percent"].values()), key=abs, default=0)


def summary(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of all kinds."""
    kinds = dict.fromkeys(x["kind"] for x in found)
    lines = []
    for kind, group in [
        *((x, [y for y in found if y["kind"] == x]) for x in kinds),
        ("all", found),
    ]:
        printed = sum(len(x["printed"]) for x in group)
        missed = sum(len(x["misses"]) for x in group)
        differences = [abs(y) for x in group for y in x["difference_percent"].values()]
        median = f"{statistics.median(differences):.2g}" if differences else ""
        extreme = percent(worst(group)) if differences else ""
        lines.append((kind, f"{printed:,}", f"{printed - missed:,}", median, extreme))
    yield from table(("kind", "figures", "equal", "median difference, %", "worst, %"), lines)


def misses(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the figures that are not equal, by reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for x in found:
        for quantity in x["misses"]:
            unit = UNITS.get(quantity, quantity.replace("_", " "))
            printed, predicted = x["printed"][quantity], x["predicted"][quantity]
            given = x["given"]
            settings = [given["dtype"]] if "dtype" in given else []
            settings += [f"TP {given['tp']}"] if given.get("tp", 1) > 1 else []
            tokens = given.get("cache_of_tokens") or given.get("tokens")
            settings += [f"{tokens:,} tokens"] if tokens else []
            name = ", ".join((x["model"], *settings))
            difference = x["difference_percent"].get(quantity)
            groups.setdefault((x["kind"], x.get("reason", "")), []).append(
                f"{name}: {number(printed)} {unit}, predicted {number(predicted)}"
                + ("" if difference is None else f" ({percent(difference)}%)")
            )
    for (kind, reason), cases in groups.items():
        yield wrap(f"- {kind}, {reason or 'reason not known'}: {'; '.join(cases)}", "  ")


def peers() -> Iterator[str]:
    """Yield a table of other tools' answers about presets."""
    return peer_table(json.loads(PEERS.read_text())["results"])


def peer_table(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of what `bench/peers.py` found."""
    lines = []
    for x in results:
        near = sum(abs(found / right - 1) < 1e-3 for found, right in x["off"].values())
        counts = (x["tried"], x["exact"], near, len(x["off"]) - near, sum(x["refused"].values()))
        lines.append((f"{x['peer']} {x['version']}", x["question"], *(f"{n:,}" for n in counts)))
    header = ("tool", "asked for", "tried", "exact", "within 0.1%", "off", "refused")
    yield from table(header, lines)


def tables() -> Iterator[str]:
    """Yield the generated part of the page."""
    found = rows()
    yield from summary(found)
    yield ""
    yield "What is not equal to the printed digits:"
    yield ""
    yield from misses(found)
