"""Mistakes recovered from their numbers, over the questions of all lessons about all presets."""

from __future__ import annotations

import sys
from collections import Counter

import llamath
from harness import keep
from llamath.analysis.learn.answer_parser import parse_answer
from llamath.analysis.learn.course import LESSONS, exercises_of
from llamath.analysis.learn.diagnosis import find_mistakes, wrong_accounts
from llamath.analysis.learn.exercise import Exercise
from llamath.analysis.learn.study import ModelStudy
from llamath.catalog import slugs

SHOWN = 25


def recover(x: Exercise, counts: Counter[str], shared: Counter[str], lost: Counter[str]) -> None:
    """Give the number of each mistake as the answer, and see which mistakes are found."""
    names: dict[object, list[str]] = {}
    for mistake, wrong in wrong_accounts(x):
        names.setdefault(wrong.number, []).append(mistake.name)
    for number, made in names.items():
        findings = find_mistakes(x, parse_answer(f"{number.numerator}/{number.denominator}"))
        found = {name for y in findings for name in y.mistakes}
        counts["mistakes"] += len(made)
        counts["found"] += sum(name in found for name in made)
        counts["named first"] += bool(findings) and findings[0].mistakes[0] in made
        counts["numbers"] += 1
        counts["numbers of one mistake"] += len(made) == 1
        if len(made) > 1:
            shared[f"{x.id}: {' = '.join(sorted(made))}"] += 1
        for name in set(made) - found:
            lost[f"{x.id}: {name}"] += 1


def main() -> None:
    every = slugs()[:: int(sys.argv[1]) if len(sys.argv) > 1 else 1]
    counts: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for slug in every:
        study = ModelStudy.of(llamath.load(slug))
        for lesson in LESSONS:
            for x in () if lesson.lacks(study) else exercises_of(lesson, study):
                counts["questions"] += 1
                recover(x, counts, shared, lost)
    rows = {
        "presets": len(every),
        **counts,
        "found, of all": round(counts["found"] / counts["mistakes"], 4),
        "named first, of all numbers": round(counts["named first"] / counts["numbers"], 4),
    }
    for name, n in rows.items():
        print(f"  {name:30} {n:>12,}")
    results: list[dict[str, object]] = [
        {"title": "mistakes recovered from their numbers", "rows": rows},
        {"title": "mistakes that are not found", "rows": dict(lost.most_common(SHOWN))},
        {"title": "mistakes of the same number", "rows": dict(shared.most_common(SHOWN))},
    ]
    keep("mistakes", results)


if __name__ == "__main__":
    main()
