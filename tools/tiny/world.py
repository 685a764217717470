"""Who is where and who has what: `World` says of every event whether it can happen, and what is true afterwards.

The same rules let the generator choose events and the reader judge them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .words import ANIMALS, BOYS, COLOURS, GIRLS, PEOPLE, PLACES, THINGS, at


class Event(NamedTuple):
    """One sentence's worth: its kind, and who, what, where."""

    kind: str
    p: str = ""  # who
    q: str = ""  # whom
    o: str = ""  # which thing
    c: str = ""  # its colour
    l: str = ""  # where  # noqa: E741
    a: str = ""  # which animal


GRAMMAR: dict[str, tuple[str, ...]] = {
    "be": ("{p} was {at}.", "One day, {p} was {at}.", "Once upon a time, {p} was {at}."),
    "own": ("{p} had a {co}.",),
    "lie": ("There was a {co} {at}.",),
    "want": ("{p} wanted the {o}.",),
    "go": ("{p} went to the {l}.", "{p} walked to the {l}.", "{p} ran to the {l}.", "Then {p} went to the {l}."),
    "take": ("{p} took the {o}.", "{p} picked up the {o}."),
    "drop": ("{p} put down the {o}.", "{p} left the {o} there."),
    "give": ("{p} gave the {o} to {q}.", "{p} gave {q} the {o}."),
    "meet": ("There {p} met {q}.", "{p} met {q} there."),
    "find": ("There {p} saw the {o}.", "{p} found the {o} there."),
    "thank": ('{p} said, "Thank you, {q}!"', '"Thank you, {q}!" said {p}.'),
    "spot": ("{p} saw a {a} there.", "{p} met a {a} there."),
    "cry": ('The {a} said, "{says}!"',),
    "feed": ("{p} gave the {a} some {eats}.",),
    "stay": ("In the evening, {p} was {at}.", "{p} was still {at}."),
    "rest": ("The {o} was still {at}.", "The {o} was {at}."),
    "keep": ("Now {p} had the {o}.", "{p} had the {o}."),
    "glad": ("{p} was happy.", "{p} was very happy."),
    "sad": ("{p} was sad.",),
    "end": ("The end.",),
}
"""How each kind of event is told."""


class World:
    """What is true at one moment of a story."""

    def __init__(self) -> None:
        self.place: dict[str, str] = {}  # of people
        self.colour: dict[str, str] = {}  # of things
        self.held: dict[str, str] = {}  # thing → who has it
        self.lies: dict[str, str] = {}  # thing → where it lies
        self.want = ("", "")  # who wants what
        self.given = ("", "")  # by whom to whom, in the last event
        self.near = ""  # the animal that was met last, by
        self.by = ""
        self.told = ""  # the last sentence is about
        self.over = False

    def possible(self, e: Event) -> bool:
        """Whether this can happen now, or is true now."""
        return not self.over and RULES[e.kind](self, e)

    def happen(self, e: Event) -> None:
        """What is true afterwards."""
        given = self.given
        self.given = given if e.kind == "thank" else ("", "")
        if e.kind in CHANGES:
            CHANGES[e.kind](self, e)
        self.told = e.p or self.told
        if e.kind == "go" and e.p == self.by:
            self.near = self.by = ""

    def where(self, thing: str) -> str:
        """Where a thing is, with whoever has it."""
        return self.place[self.held[thing]] if thing in self.held else self.lies[thing]

    def has(self, p: str, o: str) -> bool:
        return bool(o) and self.held.get(o) == p

    def together(self, p: str, q: str) -> bool:
        return p != q and p in self.place and self.place[p] == self.place.get(q)

    def beside(self, p: str, o: str) -> bool:
        return p in self.place and self.place[p] == self.lies.get(o)


def _own(w: World, e: Event) -> None:
    w.colour[e.o], w.held[e.o] = e.c, e.p


def _lie(w: World, e: Event) -> None:
    w.colour[e.o], w.lies[e.o] = e.c, e.l


def _take(w: World, e: Event) -> None:
    del w.lies[e.o]
    w.held[e.o] = e.p


def _drop(w: World, e: Event) -> None:
    w.lies[e.o] = w.place[w.held.pop(e.o)]


def _give(w: World, e: Event) -> None:
    w.held[e.o], w.given = e.q, (e.p, e.q)


def _spot(w: World, e: Event) -> None:
    w.near, w.by = e.a, e.p


RULES: dict[str, Callable[[World, Event], bool]] = {
    "be": lambda w, e: e.p not in w.place and e.l in PLACES,
    "own": lambda w, e: e.p in w.place and e.o not in w.colour,
    "lie": lambda w, e: e.o not in w.colour,
    "want": lambda w, e: not w.want[0] and e.p in w.place and e.o in w.colour and not w.has(e.p, e.o),
    "go": lambda w, e: e.p in w.place and w.place[e.p] != e.l,
    "take": lambda w, e: w.beside(e.p, e.o),
    "drop": lambda w, e: w.has(e.p, e.o),
    "give": lambda w, e: w.has(e.p, e.o) and w.together(e.p, e.q),
    "meet": lambda w, e: w.together(e.p, e.q),
    "find": lambda w, e: w.beside(e.p, e.o),
    "thank": lambda w, e: w.given == (e.q, e.p),
    "spot": lambda w, e: w.place.get(e.p) in ANIMALS[e.a].homes,
    "cry": lambda w, e: bool(e.a) and w.near == e.a,
    "feed": lambda w, e: bool(e.a) and (w.near, w.by) == (e.a, e.p),
    "stay": lambda w, e: w.place.get(e.p) == e.l,
    "rest": lambda w, e: w.lies.get(e.o) == e.l,
    "keep": lambda w, e: w.has(e.p, e.o),
    "glad": lambda w, e: w.given[1] == e.p or (w.want[0] == e.p and w.has(*w.want)),
    "sad": lambda w, e: w.want[0] == e.p and not w.has(*w.want),
    "end": lambda w, _: bool(w.place),
}
CHANGES: dict[str, Callable[[World, Event], None]] = {
    "be": lambda w, e: w.place.update({e.p: e.l}),
    "own": _own,
    "lie": _lie,
    "want": lambda w, e: setattr(w, "want", (e.p, e.o)),
    "go": lambda w, e: w.place.update({e.p: e.l}),
    "take": _take,
    "drop": _drop,
    "give": _give,
    "spot": _spot,
    "end": lambda w, _: setattr(w, "over", True),
}

PRONOUN = {**dict.fromkeys(GIRLS, "she"), **dict.fromkeys(BOYS, "he")}
KNOWN = {"p": PEOPLE, "q": PEOPLE, "o": THINGS, "c": COLOURS, "l": tuple(PLACES), "a": tuple(ANIMALS)}


def told(e: Event, template: str, who: str, thing: str) -> str:
    """The event in words; `who` and `thing` are what p and o are called this time."""
    beast = ANIMALS.get(e.a)
    line = template.format(
        p=who, q=e.q, o=thing, co=f"{e.c} {e.o}", l=e.l, a=e.a, at=at(e.l) if e.l else "",
        says=beast.says if beast else "", eats=beast.eats if beast else "",
    )  # fmt: skip
    return (line[0].upper() + line[1:]).replace(" a owl", " an owl")
