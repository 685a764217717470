"""Sections of docs/concepts/accuracy.md about rates that engines reached, next to llamath's
bounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import llamath
from accuracy_tables import wrap
from published_runs import DATA

SERVED = DATA["serving_maximum"]


def where(url: str) -> str:
    """Return a source as a link with a short text."""
    if not url.startswith("https://"):
        return url
    address, _, rest = url.partition(", ")
    return f"[{'/'.join(address.split('/')[3:])}]({address})" + (f", {rest}" if rest else "")


def reached() -> Iterator[tuple[str, float, float, str]]:
    """Yield decode rates that were reached by one sequence, and the ceilings at 128 tokens of
    context."""
    for group in DATA["reached"]:
        for slug, dtype, rate in group["rows"]:
            found = llamath.place(slug, on=group["on"], ram="64GiB", dtype=dtype, context=128)
            yield (
                f"{slug} {dtype.upper()} on {group['device']}",
                rate,
                found.decode_ceiling,
                where(group["url"]),
            )


def rates() -> Iterator[str]:
    """Yield decode rates that were reached, and the ceilings, by their sources."""
    sources: dict[tuple[str, str], list[str]] = {}
    for name, rate, ceiling, source in reached():
        file, _, device = name.partition(" on ")
        figures_ = f"{file} {rate:,.1f} of {ceiling:,.1f} ({rate / ceiling:.2f})"
        sources.setdefault((device, source), []).append(figures_)
    for (device, source), cases in sources.items():
        yield wrap(f"- {device}, {source}: {'; '.join(cases)}", "  ")


class Served(NamedTuple):
    """A published throughput, and its bounds with requests of their mean and of their whole
    length.
    """

    name: str
    rate: int
    of_mean: float
    of_whole: float


def served() -> Iterator[Served]:
    """Yield published throughputs of servers under full load, and what `plan --serve` gives."""
    for name, gpu, tp, dtype, cases in SERVED["rows"]:
        on = f"{tp}x{gpu}"
        for prompt, output, rate in cases:
            of_mean, of_whole = (
                max(
                    x.rate * tp
                    for x in llamath.plan_serving(
                        name, on=on, dtype=dtype, kv_dtype="fp8", context=tokens
                    ).plans
                )
                for tokens in (prompt + output // 2, prompt + output)
            )
            label = f"{name} {dtype} on {on}, {prompt} + {output}"
            yield Served(label, rate, of_mean, of_whole)


def throughputs() -> Iterator[str]:
    """Yield the shares of the bounds that servers reached."""
    found = list(served())
    shares = sorted(x.rate / x.of_mean for x in found)
    above = [f"{x.name} ({x.rate / x.of_whole:.2f})" for x in found if x.rate > x.of_whole]
    assert shares[-1] <= 1
    yield wrap(
        f"{len(found)} rates: from {shares[0]:.2f} to {shares[-1]:.2f} of the bound at the mean "
        f"length, median {statistics.median(shares):.2f}. {len(above)} are above the figure for "
        f"requests that have their whole length at each step, which is no bound for requests that "
        f"grow: {'; '.join(above)}."
    )


ENGINE_SECTIONS: tuple[tuple[str, str, Callable[[], Iterable[str]]], ...] = (
    (
        "Decode rates that were reached, tokens/s",
        "One sequence; the ceiling is bytes over the data sheet's bandwidth at 128 tokens of "
        "context. None was passed",
        rates,
    ),
    (
        "Throughputs of servers under full load",
        f"{SERVED['source']}. The bound is that of `llamath plan --serve --kv-dtype "
        "fp8` with the mean length of a request as context: its prompt and half of its output",
        throughputs,
    ),
)
