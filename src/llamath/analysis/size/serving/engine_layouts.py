"""`check_engine_layout`: the rules of an engine that a layout breaks, and the nearest layouts
that start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....engines import Engine, EngineRule
from ....utils.errors import LlamathError
from ....utils.record_type import Record
from ..memory.inference_memory import MemoryCalculator
from .rank_shapes import EngineLayout, Facts, matrix_facts, model_facts


class BrokenRule(Record):
    """A rule that a layout breaks, with the engine's words."""

    rule: str
    says: str
    where: str  # the matrix; empty for a value of the whole model
    source: str
    workaround: str = ""


def rule_source(source: str, workaround: str) -> str:
    """Return where a rule is from, and what avoids it."""
    if not source:
        return ""
    return f"from {source}" + (f"; {workaround} avoids it" if workaround else "")


class CheckedLayout(Record):
    """A layout with the rules that it breaks, and those that only warn."""

    layout: EngineLayout
    broken: tuple[BrokenRule, ...]
    warnings: tuple[BrokenRule, ...] = ()
    older: tuple[BrokenRule, ...] = ()  # rules of older versions that it breaks

    @property
    def starts(self) -> bool:
        """Whether the engine starts, as far as its rules tell."""
        return not self.broken


def check_engine_layout(
    engine: Engine,
    calculator: MemoryCalculator,
    layout: EngineLayout,
    device: Facts | None = None,
) -> CheckedLayout:
    """Return the rules that a layout breaks, on a device or on any."""
    of_device = () if device is None else (device,)
    facts = (*of_device, model_facts(calculator, layout), *matrix_facts(calculator, layout))
    broken = [(rule, x) for rule in engine.rules for x in _violations(rule, facts)]
    same = {_describe(rule, x).says for rule, x in broken}
    return CheckedLayout(
        layout=layout,
        broken=_first_of_each(
            [_describe(rule, x) for rule, x in broken if rule.level == "refuses"]
        ),
        warnings=_first_of_each(
            [_describe(rule, x) for rule, x in broken if rule.level == "warns"]
        ),
        older=_first_of_each(
            [
                found
                for rule in engine.later
                for x in _violations(rule, facts)
                if (found := _describe(rule, x)).says not in same
            ]
        ),
    )


def broken_rules(rule: EngineRule, facts: Facts) -> Iterator[BrokenRule]:
    """Yield a rule about one set of values if they break it."""
    if all(_matches(facts[name], wanted) for name, wanted in rule.when.items()) and not _holds(
        rule, facts
    ):
        yield _describe(rule, facts)


def _first_of_each(found: list[BrokenRule]) -> tuple[BrokenRule, ...]:
    """Return each message once."""
    by_text: dict[str, BrokenRule] = {}
    for x in found:
        by_text.setdefault(x.says, x)
    return tuple(by_text.values())


def _violations(rule: EngineRule, every: Sequence[Facts]) -> Iterator[Facts]:
    for facts in every:
        if (
            facts["of"] == rule.of
            and all(_matches(facts[name], wanted) for name, wanted in rule.when.items())
            and not _holds(rule, facts)
        ):
            yield facts


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return value in wanted
    if isinstance(wanted, str) and wanted.startswith(">"):
        return bool(value > int(wanted[1:]))
    return bool(value == wanted)


def _holds(rule: EngineRule, facts: Facts) -> bool:
    """Return whether values keep a rule; one that is not known breaks none."""
    value, other = (
        facts[rule.value],
        facts[rule.other] if isinstance(rule.other, str) else rule.other,
    )
    if value is None or other is None:
        return True
    if rule.check == "multiple_of":
        return not other or value % other == 0
    if rule.check == "divides_either":
        return not value or value % other == 0 or other % value == 0
    if rule.check == "at_least":
        return bool(value >= other)
    if rule.check == "at_most":
        return bool(value <= other)
    if rule.check == "none_of":
        return value not in other
    if rule.check == "one_of":
        return value in other
    raise LlamathError(f"rule {rule.id}: unknown check {rule.check!r}")


def _describe(rule: EngineRule, facts: Facts) -> BrokenRule:
    where = str(facts.get("name", ""))
    return BrokenRule(
        rule=rule.id,
        says=rule.says.format(**facts),
        where=where,
        source=rule.source,
        workaround=rule.workaround,
    )


def candidate_layouts(
    engine: Engine, gpus: int, node: int, has_experts: bool
) -> list[EngineLayout]:
    """Return the layouts that people try on a number of GPUs, the usual one first."""
    if engine.runner in ("llama.cpp", "transformers"):
        return [EngineLayout(pp=gpus)]
    found = []
    for tp in sorted((n for n in range(1, gpus + 1) if gpus % n == 0), reverse=True):
        rest = gpus // tp
        if has_experts and rest == 1 and gpus > 1:
            found += [EngineLayout(tp=tp), EngineLayout(tp=tp, whole_experts=True)]
            continue
        found.append(EngineLayout(tp=tp, pp=rest))
        if rest > 1:
            found.append(EngineLayout(tp=tp, dp=rest, whole_experts=has_experts))
    return sorted(dict.fromkeys(found), key=lambda x: (x.tp > node, -x.tp, x.whole_experts, x.dp))
