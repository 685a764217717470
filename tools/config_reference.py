"""Write docs/reference/config-keys.md from `llamath.config_keys`; with --check, fail if it is
out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from textwrap import fill

from llamath.config_keys import MODEL_ARGS, NO_EFFECT, SECTIONS, SYNONYMS, TOWER_KEYS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config-keys.md"
HEAD = """# Configuration keys

Written by `tools/config_reference.py` from `src/llamath/config_keys.py`; change it there.

Every key that a family reads or knows, its meaning, and what it affects:

- **weights**: the number or the shapes of the weights, and so the total.
- **cache**: no weights, but the cache.
- **compute**: neither, but the output.
- **apart**: weights that files contain, but that are excluded from the total.
- **nothing**: nothing that is counted here.

[`llamath config MODEL`](config.md) shows this for one model, with its values, the defaults of its
family, and Meta's `ModelArgs`. A key inside an object is dotted: `rope_scaling.factor` (also for
`rope_parameters`, and inside `rope_parameters.full_attention`). The letters are those of the
formula that `llamath count` prints.
"""


def table(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield from ("| key | meaning | affects |", "| --- | --- | --- |")
    yield from (f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)


def rows(
    entries: dict[str, tuple[str, str]], same: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    for key, (says, moves) in entries.items():
        where, _, name = key.rpartition("/")
        words = [name, *(word for word, other in same.items() if other == key)]
        yield (
            ", ".join(f"`{word}`" for word in words) + (f" ({where})" if where else ""),
            says,
            moves,
        )


def wrap(line: str) -> str:
    return fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def page() -> str:
    lines = [HEAD]
    for title, entries in SECTIONS.items():
        lines += [f"## {title}", "", *table(rows(entries, SYNONYMS)), ""]
    lines += ["## Towers and projectors of multimodal models", ""]
    lines += [
        "Keys inside `vision_config` and `audio_config`, and those beside them.",
        "",
        *table(rows(TOWER_KEYS, {})),
        "",
    ]
    lines += ["## Keys without effect", ""]
    lines += [
        wrap(f"- {why}: {', '.join(f'`{key}`' for key, _ in keys)}")
        for why, keys in groupby(NO_EFFECT.items(), lambda x: x[1])
    ]
    lines += ["", "## Meta's `ModelArgs`", "", *table(rows(MODEL_ARGS, {}))]
    return "\n".join(lines) + "\n"


def main() -> int:
    fresh = page()
    if PAGE.exists() and PAGE.read_text() == fresh:
        return 0
    if "--check" in sys.argv:
        print(f"{PAGE.name} is out of date; run python tools/config_reference.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
