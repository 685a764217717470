"""Write docs/reference/config-keys.md from `llamath.config_keys`; with --check, fail if it is
out of date."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill

from llamath.config_keys import NO_EFFECT, SYNONYMS
from llamath.config_keys.key_meanings import MODEL_ARGS, SECTIONS, TOWER_KEYS, Entry

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config-keys.md"
HEAD = """# Configuration keys

Written by `tools/config_reference.py` from `config_keys/key_meanings.py`; change it there.

Every key that a family reads or knows, its meaning, and what it affects:

- **weights**, where a line says nothing else: their number or shapes, and so the total.
- **cache**: the size of the cache.
- **compute**: neither, but the output.
- **apart**: weights that files contain, but that are excluded from the total.
- **nothing**: nothing that is counted here.

[`llamath config MODEL`](config.md) says more of the keys of one model: their values, the defaults
of its family, and which weights or computation they affect. A key inside an object is dotted:
`rope_scaling.factor` (also for `rope_parameters`, and inside `rope_parameters.full_attention`).
After a key stands the model or family that its meaning is about. The letters are those of the
formula that `llamath count` prints.
"""
MANY = 50
"""As many keys that all affect nothing, for one reason, are named without their meanings."""


def wrap(line: str) -> str:
    return fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def lines_by_effect(
    entries: Mapping[str, Entry], same: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a section and their effects; keys with one meaning and one effect share a
    line, each with the model that it is about."""
    found: dict[Entry, list[str]] = {}
    for key, (says, effect) in entries.items():
        family, _, name = key.rpartition("/")
        match = re.fullmatch(r"(.*) \(([A-Z][^()]*)\)|(.*), in (MiniMax's own config)", says)
        meaning, about = filter(None, match.groups()) if match else (says, family)
        names = [name, *(word for word, other in same.items() if other == key)]
        words = ", ".join(f"`{word}`" for word in names) + (f" ({about})" if about else "")
        found.setdefault((meaning, effect), []).append(words)
    for (meaning, effect), keys in found.items():
        yield f"- {', '.join(keys)}: {meaning}", effect


_PLAIN = r"(weights|cache|compute|apart)(:| of (the|these|this|that) (\w+ ?){1,4}$)"


def brief(effect: str) -> str:
    """Return an effect without what its key's meaning says: "compute: one factor" as "compute";
    and without "compute" after the weights or the cache."""
    first, *others = effect.split("; ")
    parts = [first, *(x for x in others if not x.startswith("compute"))]
    return "; ".join(match[1] if (match := re.match(_PLAIN, x)) else x for x in parts)


def key_list(entries: Mapping[str, Entry], same: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of a section."""
    counts = Counter(effect for _, effect in entries.values())
    many = [x for x in counts if counts[x] >= MANY and x.startswith("nothing")]
    yield from (
        wrap(f"{line}. *{mark}*" if (mark := brief(effect)) != "weights" else line)
        for line, effect in lines_by_effect(entries, same)
        if effect not in many
    )
    for effect in many:
        names = (key.rpartition("/") for key, (_, x) in entries.items() if x == effect)
        yield wrap(
            f"- {effect}: "
            + ", ".join(f"`{key}`" + (f" ({family})" if family else "") for family, _, key in names)
        )
    yield ""


def tower_keys() -> Iterator[str]:
    """Yield the keys of towers; those of one model by the model, without their meanings."""
    common, models = dict(TOWER_KEYS), dict[str, list[str]]()
    for key, (says, _) in TOWER_KEYS.items():
        if match := re.fullmatch(r".* \(([A-Z][^()]*)\)", says):
            models.setdefault(match[1], []).append(f"`{key}`")
            del common[key]
    yield from key_list(common, {})
    yield from ("Keys of single models, which `llamath config` explains:", "")
    yield from (wrap(f"- {model}: {', '.join(keys)}") for model, keys in models.items())
    yield ""


def page() -> str:
    lines = [HEAD]
    for title, entries in SECTIONS.items():
        lines += [f"## {title}", "", *key_list(entries, SYNONYMS)]
    lines += ["## Towers and projectors of multimodal models", ""]
    lines += ["Keys inside `vision_config` and `audio_config`, and those beside them.", ""]
    lines += [*tower_keys(), "## Keys without effect", ""]
    reasons: dict[str, list[str]] = {}
    for key, why in NO_EFFECT.items():
        reasons.setdefault(why, []).append(f"`{key}`")
    lines += [wrap(f"- {why}: {', '.join(keys)}") for why, keys in reasons.items()]
    lines += ["", "## Meta's `ModelArgs`", "", *key_list(MODEL_ARGS, {})]
    return "\n".join(lines).rstrip() + "\n"


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
