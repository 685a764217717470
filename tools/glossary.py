"""Write docs/reference/config.md from the glossary; with --check, fail where it is not what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from llamath.glossary import ARGS, NOTHING, SAME
from llamath.glossary.experts import EXPERTS
from llamath.glossary.mixers import MIXERS
from llamath.glossary.positions import POSITIONS
from llamath.glossary.settled import SETTLED
from llamath.glossary.sizes import SIZES
from llamath.glossary.steps import STEPS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"
SECTIONS = {
    "The whole model and its two ends": SIZES,
    "Attention, and mixers that keep a state": MIXERS,
    "Experts, and layers for further tokens": EXPERTS,
    "Norms, biases, curves and factors": STEPS,
    "Positions": POSITIONS,
    "Keys that a family has settled": SETTLED,
}
HEAD = """# Configuration keys

Written by `tools/glossary.py` from `src/llamath/glossary/`; change it there.

Every key that a family reads or knows, what it says, and what it moves:

- **weights**: which matrices there are, or how large; so the total.
- **cache**: no weight, but what is kept of each token.
- **compute**: neither, but what comes out.
- **apart**: weights that stand in files beside the model, and are in no total.
- **nothing**: nothing that is counted here.

`llamath config MODEL` shows the same for one model, with its values, its family's defaults, and Meta's `ModelArgs` beside them.
A key inside an object is dotted: `rope_scaling.factor` (also for `rope_parameters`, and inside `rope_parameters.full_attention`).
The letters are those of the formula that `llamath count` prints.
"""
TAIL = """
## `llamath config MODEL --json`

| field | what it holds |
| --- | --- |
| `model` | the model's name |
| `hf` | the configuration as it was read, in Hugging Face's keys |
| `meta` | the fields of `ModelArgs`, or null where the reference cannot express the model |
| `why` | why `meta` is null |
| `keys` | for each key: `key`, `value`, `absent` (absent or null, so `value` is the family's), `says`, `moves`, `group`, `meta` (fields) |
| `derived` | numbers that follow: `says`, `formula`, `value` |
| `widths` | every `multiple_of` and `ffn_dim_multiplier` tried that gives the same feed-forward width |
| `remarks` | what `ModelArgs` leave unsaid of this model |

`group` is the first word of `moves`, `nothing` for a key of which this model makes no use, or `unread` for one that its family never read.
`llamath config MODEL --params-json` prints a `params.json` that gives the model.
"""


def table(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    yield from ("| key | says | moves |", "| --- | --- | --- |")
    yield from (f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)


def rows(entries: dict[str, tuple[str, str]], same: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for key, (says, moves) in entries.items():
        where, _, name = key.rpartition("/")
        words = [name, *(word for word, other in same.items() if other == key)]
        yield ", ".join(f"`{word}`" for word in words) + (f" ({where})" if where else ""), says, moves


def page() -> str:
    lines = [HEAD]
    for title, entries in SECTIONS.items():
        lines += [f"## {title}", "", *table(rows(entries, SAME)), ""]
    lines += ["## Keys that change nothing", ""]
    lines += [f"- {why}: {', '.join(f'`{key}`' for key, _ in keys)}" for why, keys in groupby(NOTHING.items(), lambda x: x[1])]
    lines += ["", "## Meta's `ModelArgs`", "", *table(rows(ARGS, {}))]
    return "\n".join(lines) + "\n" + TAIL


def main() -> int:
    fresh = page()
    if PAGE.exists() and PAGE.read_text() == fresh:
        return 0
    if "--check" in sys.argv:
        print(f"stale: {PAGE.name}; python tools/glossary.py writes it", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
