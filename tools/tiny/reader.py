"""Stories read back: is every sentence one that the world knows, and can it be true where it stands?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .words import ANIMALS, PLACES, at
from .world import GRAMMAR, KNOWN, PRONOUN, Event, World

NAMES = "|".join((*KNOWN["p"], "[Hh]e", "[Ss]he"))
PARTS = {
    "p": f"(?P<p>{NAMES})",
    "q": f"(?P<q>{'|'.join(KNOWN['q'])})",
    "o": f"(?:(?P<c>{'|'.join(KNOWN['c'])}) )?(?P<o>{'|'.join(KNOWN['o'])})",
    "co": f"(?P<c>{'|'.join(KNOWN['c'])}) (?P<o>{'|'.join(KNOWN['o'])})",
    "at": "(?P<at>(?:in|at|on) the [a-z]+)",
    "l": f"(?P<l>{'|'.join(KNOWN['l'])})",
    "a": f"(?P<a>{'|'.join(KNOWN['a'])})",
    "says": "(?P<says>[A-Z][a-z]+)",
    "eats": "(?P<eats>[a-z]+)",
}

PLACED = frozenset(map(at, PLACES))


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template.replace(" a {a}", " an? {a}"))
    return re.compile("".join(PARTS[x] if i % 2 else x.replace(".", r"\.") for i, x in enumerate(parts)))


PATTERNS = [(kind, _pattern(template)) for kind, templates in GRAMMAR.items() for template in templates]


class Verdict(NamedTuple):
    """A sentence: whether it is one of the world's, and whether it can be so."""

    sentence: str
    known: bool
    true: bool


def sentences(text: str) -> list[str]:
    """A story's sentences; what was said aloud belongs to who said it."""
    return [x.strip() for x in re.findall(r'\s*"[^"]*" [^".]*\.|[^".]+"[^"]*"|[^".]+\.|.+$', text) if x.strip()]


def read(text: str) -> Iterator[Verdict]:
    """Every sentence with its verdict; one that cannot be so changes nothing."""
    world = World()
    for line in sentences(text):
        events = list(_events(line, world))
        true = next((e for e in events if world.possible(e)), None)
        yield Verdict(line, any(pattern.fullmatch(line) for _, pattern in PATTERNS), true is not None)
        if true is not None:
            world.happen(true)


def _events(line: str, world: World) -> Iterator[Event]:
    """What a sentence may mean."""
    for kind, pattern in PATTERNS:
        found = pattern.fullmatch(line)
        if found:
            e = _event(kind, {k: v or "" for k, v in found.groupdict().items()}, world)
            if e is not None:
                yield e


def _event(kind: str, said: dict[str, str], world: World) -> Event | None:
    p = said.get("p", "")
    if p.lower() in ("he", "she"):
        if PRONOUN.get(world.told) != p.lower():
            return None
        p = world.told
    o, c, a = said.get("o", ""), said.get("c", ""), said.get("a", "")
    if kind not in ("own", "lie") and c and world.colour.get(o) != c:
        return None
    if a and (said.get("says", ANIMALS[a].says), said.get("eats", ANIMALS[a].eats)) != (ANIMALS[a].says, ANIMALS[a].eats):
        return None
    place = said.get("at", "").rpartition(" ")[2]
    if place and said["at"] not in PLACED:
        return None
    return Event(kind, p, said.get("q", ""), o, c, said.get("l", "") or place, a)
