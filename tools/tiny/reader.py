"""Parser for stories: checks that every sentence is known, and consistent with the sentences
before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .events import KNOWN, SORTS, Event, happen, possible
from .words import ANIMALS, PLACES, THINGS, at
from .world import World

NAMES = "|".join((*KNOWN["p"], "[Hh]e", "[Ss]he"))
PARTS = {
    "p": f"(?P<p>{NAMES})",
    "q": f"(?P<q>{'|'.join(KNOWN['q'])})",
    "o": f"(?:(?P<c>{'|'.join(KNOWN['c'])}) )?(?P<o>{'|'.join(KNOWN['o'])})",
    "co": f"(?P<c>{'|'.join(KNOWN['c'])}) (?P<o>{'|'.join(KNOWN['o'])})",
    "at": "(?P<at>(?:in|at|on) the [a-z]+)",
    "l": f"(?P<l>{'|'.join(KNOWN['l'])})",
    "a": f"(?P<a>{'|'.join(KNOWN['a'])})",
    "does": f"(?P<does>{'|'.join(THINGS.values())})",
    "says": "(?P<says>[A-Z][a-z]+)",
    "eats": "(?P<eats>[a-z]+)",
}

VOICES = {x.says: name for name, x in ANIMALS.items()}
NEW = ("own", "lie", "see")
"""Kinds of events that introduce a thing with its colour."""
PLACED = frozenset(map(at, PLACES))


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", re.sub(r"\b([Aa]) \{a\}", r"\1n? {a}", template))
    return re.compile(
        "".join(
            PARTS[x] if i % 2 else x.replace(".", r"\.").replace('?"', r"\?\"")
            for i, x in enumerate(parts)
        )
    )


PATTERNS = [(kind, _pattern(template)) for kind, sort in SORTS.items() for template in sort.forms]


class Verdict(NamedTuple):
    """A sentence: whether it is known, and whether it is consistent."""

    sentence: str
    known: bool
    true: bool


def sentences(text: str) -> list[str]:
    """Split a story into sentences; direct speech stays with its speaker."""
    return [
        x.strip()
        for x in re.findall(r'\s*"[^"]*" [^".]*\.|[^".]+"[^"]*"|[^".]+\.|.+$', text)
        if x.strip()
    ]


def read(text: str) -> Iterator[Verdict]:
    """Check every sentence; an inconsistent one has no effect on the state."""
    world = World()
    for line in sentences(text):
        events = list(_events(line, world))
        true = next((e for e in events if possible(world, e)), None)
        yield Verdict(
            line, any(pattern.fullmatch(line) for _, pattern in PATTERNS), true is not None
        )
        if true is not None:
            happen(world, true)


def _events(line: str, world: World) -> Iterator[Event]:
    """The possible meanings of a sentence."""
    for kind, pattern in PATTERNS:
        match = pattern.fullmatch(line)
        if match:
            e = _event(kind, {k: v or "" for k, v in match.groupdict().items()}, world)
            if e is not None:
                yield e


def _event(kind: str, groups: dict[str, str], world: World) -> Event | None:
    """The event that a sentence describes, if its statements are true."""
    place = groups.get("at", "").rpartition(" ")[2]
    if place and groups["at"] not in PLACED:
        return None
    p, o, c = (groups.get(x, "") for x in "poc")
    who = world.pronouns.get(p.lower(), "") if p.lower() in ("he", "she") else p
    beast = VOICES.get(groups["says"], "") if kind == "hear" else groups.get("a", "")
    if (p and not who) or (kind == "hear" and not beast) or not _true(groups, beast):
        return None
    if kind not in NEW and c and world.colour.get(o) != c:
        return None
    return Event(kind, who, groups.get("q", ""), o, c, groups.get("l", "") or place, beast)


def _true(groups: dict[str, str], beast: str) -> bool:
    """Whether the animal makes this sound and eats this, and the thing is used this way."""
    if groups.get("does", THINGS.get(groups.get("o", ""))) != THINGS.get(groups.get("o", "")):
        return False
    x = ANIMALS.get(beast)
    return x is None or (groups.get("says", x.says), groups.get("eats", x.eats)) == (x.says, x.eats)
