"""`compare_engines`: one model in several engines or versions, and what changed for it between two
versions of one engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from ....engines import Engine, find_engine, format_version
from ....hardware import Device
from ....model import FamilyModel
from ....render.report import Report
from ....render.tables import Column, Part, Table
from ....utils.number_format import format_count, format_list
from ....utils.record_type import Record
from ..fit.fit_words import gpus_option
from ..memory.inference_memory import MemoryCalculator
from .engine_arguments import with_arguments
from .engine_layouts import BrokenRule
from .engine_report import EngineReport, EngineSettings, EngineTrial, plan_engine, try_layout


class EngineChange(Record):
    """A change for a model from one version to the next, with its source."""

    name: str  # of the figure or rule
    effect: str
    source: str


class ComparedEngine(Record):
    """The report of one engine, and what changed for the model since the version before it."""

    json_fields: ClassVar[tuple[str, ...]] = ("*report", "since", "changes")

    report: EngineReport
    since: str | None = None  # the version before; None for the first of an engine
    changes: tuple[EngineChange, ...] = ()


class EngineComparison(Report):
    """A report for each engine, in the order in which they were given."""

    model: FamilyModel
    engines: tuple[ComparedEngine, ...]

    @property
    def starts(self) -> bool:
        """Whether all of them may start."""
        return all(x.report.starts for x in self.engines)

    @property
    def reports(self) -> tuple[EngineReport, ...]:
        """The report of each engine."""
        return tuple(x.report for x in self.engines)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that all engines share."""
        shared = [set(x.notes) for x in self.reports]
        return tuple(x for x in self.reports[0].notes if all(x in y for y in shared))

    @property
    def summary(self) -> str:
        """The engines that start, and those that do not."""
        verdicts = dict.fromkeys(x.verdict for x in self.reports)
        texts = (
            f"{format_list([x.engine.label for x in self.reports if x.verdict == y])} "
            f"{y if sum(x.verdict == y for x in self.reports) == 1 else _plural(y)}"
            for y in verdicts
        )
        first = self.reports[0]
        gpus = gpus_option(first.count, first.gpu)
        return f"{self.model.name} on {gpus}: {'; '.join(texts)}"

    @property
    def setting(self) -> str:
        """The length of requests."""
        lengths = sorted({x.context for x in self.reports})
        return f"requests of {' or '.join(format_count(x, 'token') for x in lengths)}"

    def to_json(self) -> Any:
        """Return a list of the engines."""
        return [x.to_json() for x in self.engines]

    def __bool__(self) -> bool:
        return self.starts

    def tables(self) -> Iterable[Part]:
        """A row for each engine, why those that do not start do not, and what changed between
        versions.
        """
        yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.reports)))
        for x in self.engines:
            label = x.report.engine.label
            refused = [*x.report.why] or (
                [_printed(x.report)] if not x.report.starts and x.report.prints else []
            )
            if refused:
                rows = tuple((y.says, y.source) for y in refused)
                yield Table(title=f"{label} does not start", columns=_REASONS, rows=rows)
            if x.since is not None:
                rows = tuple((y.effect, f"{y.name}: {y.source}") for y in x.changes)
                title = f"from {x.since} to {format_version(x.report.engine.version)}"
                unchanged = (("nothing that is known changed for this model", ""),)
                yield Table(title=title, columns=_REASONS, rows=rows or unchanged)


def _plural(verdict: str) -> str:
    return {"starts": "start", "does not start": "do not start"}.get(verdict, verdict)


_COLUMNS = (
    Column("engine"),
    Column("", key="verdict"),
    Column("layout", drop=1),
    Column("KV cache GiB", key="kv_memory"),
    Column("tokens"),
    Column("requests", key="concurrency", drop=2),
)
_REASONS = (Column("", key="says", wrap=True), Column("source", below=True))


def _cells(x: EngineReport) -> tuple[Any, ...]:
    memory = x.kv_memory if x.memory is not None else None
    ends = (x.least, x.most)
    return (
        x.engine.label,
        x.verdict,
        x.layout,
        _gib(memory),
        _span(*(f"{y.tokens:,}" if y else "" for y in ends)),
        _span(*(f"{y.concurrency:.2f}x" if y else "" for y in ends)),
    )


def _printed(x: EngineReport) -> BrokenRule:
    return BrokenRule(rule="", says=x.prints[-1], where="", source="")


def _gib(memory: tuple[int, int] | None) -> str:
    return _span(*(f"{max(x, 0) / 2**30:.2f}" for x in memory)) if memory is not None else ""


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low}–{high}"


def compare_engines(
    asked: Sequence[tuple[str, MemoryCalculator, EngineSettings]], gpu: Device, count: int
) -> EngineComparison:
    """Return the report of each engine, and what changed from one version of it to the next that
    is listed.
    """
    found: list[ComparedEngine] = []
    before: dict[str, Engine] = {}
    contexts: dict[str, int] = {}
    for name, sizes, settings in asked:
        report = plan_engine(sizes, name, gpu, count, settings)
        engine = find_engine(name)
        older = before.get(engine.name)
        before[engine.name] = engine
        if older is None:
            found.append(ComparedEngine(report=report))
            contexts[engine.name] = report.context
            continue
        trials = _Trials(sizes, report, gpu, settings)
        found.append(
            ComparedEngine(
                report=report,
                since=format_version(older.version),
                changes=(
                    *_context_change(contexts[engine.name], report, engine),
                    *_rule_changes(trials, older, engine),
                    *_changes(trials, older, engine),
                ),
            )
        )
        contexts[engine.name] = report.context
    return EngineComparison(model=asked[0][1].model, engines=tuple(found))


class _Trials(NamedTuple):
    """The layout of a report, tried with other rules and figures."""

    sizes: MemoryCalculator
    report: EngineReport
    gpu: Device
    settings: EngineSettings

    def of(self, engine: Engine) -> EngineTrial:
        """Return what an engine does with the layout."""
        changed = with_arguments(engine, self.settings.arguments)
        layout = self.report.asked.layout
        return try_layout(changed, self.sizes, layout, self.gpu, self.settings)


def _context_change(before: int, report: EngineReport, engine: Engine) -> Iterator[EngineChange]:
    """Yield the change of the context that an engine takes by default."""
    if before != report.context:
        yield EngineChange(
            name="default_context",
            effect=f"requests of {before:,} → {report.context:,} tokens",
            source=engine.figures["default_context"].source,
        )


def _rule_changes(trials: _Trials, older: Engine, newer: Engine) -> Iterator[EngineChange]:
    """Yield the rules that one version breaks and the other does not."""
    sides = [trials.of(x).checked for x in (older, newer)]
    for level in ("broken", "warnings"):
        old, new = ({x.rule: x for x in getattr(side, level)} for side in sides)
        verb = {"broken": "refused", "warnings": "warned of"}[level]
        for rules, others, words in ((old, new, f"no longer {verb}"), (new, old, verb)):
            for name, x in rules.items():
                if name not in others:
                    yield EngineChange(name=name, effect=f"{words}: {x.says}", source=x.source)


def _changes(trials: _Trials, older: Engine, newer: Engine) -> Iterator[EngineChange]:
    """Yield the figures that differ and change the answer: the newer version is tried with the
    older one's.
    """
    now = trials.of(newer)
    for name in sorted(older.figures.keys() & newer.figures.keys()):
        then, value = older.figures[name], newer.figures[name]
        if then.value == value.value:
            continue
        trial = trials.of(newer.replace(figures={**newer.figures, name: then}))
        if effects := list(_effects(trial, now)):
            yield EngineChange(name=name, effect="; ".join(effects), source=value.source)


def _effects(then: EngineTrial, now: EngineTrial) -> Iterator[str]:
    """Yield what differs between two trials of a layout."""
    if then.verdict != now.verdict:
        yield f"{then.verdict} → {now.verdict}"
    if then.memory is not None and now.memory is not None:
        before, after = _gib(then.memory.available), _gib(now.memory.available)
        if before != after:
            yield f"KV cache {before} → {after} GiB"
    if then.least and then.most and now.least and now.most:
        for what, form in (("tokens", "{0.tokens:,}"), ("requests", "{0.concurrency:.2f}x")):
            before, after = (_span(form.format(x.least), form.format(x.most)) for x in (then, now))
            if before != after:
                yield f"{what} {before} → {after}"
    before, after = (x.prints[-1] if x.prints else "" for x in (then, now))
    if then.verdict == now.verdict == "does not start" and before != after:
        yield f"it prints: {after}"
