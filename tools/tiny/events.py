"""Every kind of event: its sentences, its preconditions and its effects.

The same rules let the generator tell its plots and the reader judge what a model tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .words import ANIMALS, COLOURS, FRAGILE, PEOPLE, PLACES, THIEVES, THINGS, at
from .world import World


class Event(NamedTuple):
    """The content of one sentence: the kind of event, and who, what and where."""

    kind: str
    p: str = ""  # who
    q: str = ""  # whom
    o: str = ""  # which thing
    c: str = ""  # its colour
    l: str = ""  # where  # noqa: E741
    a: str = ""  # which animal


def _own(w: World, e: Event) -> None:
    w.colour[e.o], w.holder[e.o], w.owner[e.o] = e.c, e.p, e.p


def _lie(w: World, e: Event) -> None:
    w.colour[e.o], w.lying_at[e.o] = e.c, e.l or w.place[e.p]


def _want(w: World, e: Event) -> None:
    w.want = (e.p, e.o)


def _take(w: World, e: Event) -> None:
    w.pass_on(e.o, e.p)
    w.owner.setdefault(e.o, e.p)
    w.feel("happy", e.p)


def _drop(w: World, e: Event) -> None:
    w.lying_at[e.o] = w.place[w.holder.pop(e.o)]


def _lose(w: World, e: Event) -> None:
    del w.holder[e.o]
    w.lost.add(e.o)
    w.feel("sad", e.p)


def _break(w: World, e: Event) -> None:
    w.broken.add(e.o)
    w.feel("sad", w.owner[e.o])


def _mend(w: World, e: Event) -> None:
    w.broken.discard(e.o)
    w.last_act = ("done", e.p)
    w.feel("happy", w.owner[e.o])


def _steal(w: World, e: Event) -> None:
    w.holder[e.o] = e.a
    w.feel("sad", w.owner[e.o])


def _release(w: World, e: Event) -> None:
    del w.holder[e.o]
    w.lying_at[e.o] = next(iter(w.place.values()))


def _refuse(w: World, e: Event) -> None:
    w.last_act = ("refused", e.p)
    w.feel("sad", w.want[0])


def _near(w: World, e: Event) -> None:
    w.near, w.heard = e.a, ""


def _pet(w: World, e: Event) -> None:
    w.pet, w.near = (e.p, e.a), e.a


def _stray(w: World, _: Event) -> None:
    w.near = ""
    w.feel("sad", w.pet[0])


def _meet(w: World, e: Event) -> None:
    w.near, w.last_act = e.a, ("done", e.p)
    w.feel("happy", w.pet[0])


def _said(what: str) -> Callable[[World, Event], None]:
    def then(w: World, e: Event) -> None:
        w.last_act = (what, e.p)

    return then


def _nothing(_: World, __: Event) -> None:
    """The state did not change."""


class Sort(NamedTuple):
    """A kind of event: its sentences, preconditions and effects."""

    forms: tuple[str, ...]
    can: Callable[[World, Event], bool]
    then: Callable[[World, Event], None] = _nothing


SORTS: dict[str, Sort] = {
    "be": Sort(
        ("Once upon a time, {p} was {at}.", "One day, {p} was {at}.", "{p} was {at}."),
        lambda w, e: e.p not in w.place and e.l in PLACES,
        lambda w, e: w.place.update({e.p: e.l}),
    ),
    "both": Sort(
        (
            "Once upon a time, {p} and {q} were {at}.",
            "One day, {p} and {q} were {at}.",
            "{p} and {q} were {at}.",
        ),
        lambda w, e: not w.place and e.p != e.q and e.l in PLACES,
        lambda w, e: w.place.update({e.p: e.l, e.q: e.l}),
    ),
    "come": Sort(
        ("{p} came to the {l}.", "Then {p} came.", "There {q} met {p}.", "{q} met {p} there."),
        lambda w, e: (
            e.p not in w.place
            and bool(w.place)
            and (e.l or e.q) in ("", *w.place, *w.place.values())
        ),
        lambda w, e: w.place.update({e.p: next(iter(w.place.values()))}),
    ),
    "own": Sort(("{p} had a {co}.",), lambda w, e: e.p in w.place and e.o not in w.colour, _own),
    "lie": Sort(("There was a {co} {at}.",), lambda w, e: e.o not in w.colour, _lie),
    "see": Sort(
        ("{p} saw a {co} there.", "There {p} saw a {co}."),
        lambda w, e: e.p in w.place and e.o not in w.colour,
        _lie,
    ),
    "want": Sort(
        ("{p} wanted the {o}.", "{p} wanted to have the {o}."),
        lambda w, e: not w.want[0] and e.p in w.place and e.o in w.colour and not w.has(e.p, e.o),
        _want,
    ),
    "ask": Sort(
        ('"May I have the {o}?" asked {p}.', '{p} asked, "May I have the {o}?"'),
        lambda w, e: w.want == (e.p, e.o),
        _said("asked"),
    ),
    "agree": Sort(
        ('"Yes," said {p}.', '{p} said, "Yes."'),
        lambda w, e: w.format_question(e.p),
        _said("agreed"),
    ),
    "refuse": Sort(
        ('"No," said {p}.', '{p} said, "No."'), lambda w, e: w.format_question(e.p), _refuse
    ),
    "sorry": Sort(
        ('"I am sorry," said {p}.', '{p} said, "I am sorry."'), lambda w, e: w.anyone("sad", e.p)
    ),
    "go": Sort(
        (
            "{p} went to the {l}.",
            "{p} walked to the {l}.",
            "{p} ran to the {l}.",
            "Then {p} went to the {l}.",
        ),
        lambda w, e: e.p in w.place and w.place[e.p] != e.l,
        lambda w, e: w.move(e.l, e.p),
    ),
    "walk": Sort(
        (
            "They went to the {l}.",
            "They walked to the {l}.",
            "They ran to the {l}.",
            "Then they went to the {l}.",
        ),
        lambda w, e: w.pair() and e.l not in w.place.values(),
        lambda w, e: w.move(e.l),
    ),
    "take": Sort(
        ("{p} took the {o}.", "{p} picked up the {o}."), lambda w, e: w.in_reach(e.p, e.o), _take
    ),
    "drop": Sort(
        ("{p} put down the {o}.", "{p} left the {o} there."), lambda w, e: w.has(e.p, e.o), _drop
    ),
    "give": Sort(
        ("{p} gave the {o} to {q}.", "{p} gave {q} the {o}."),
        lambda w, e: w.has(e.p, e.o) and w.together(e.p, e.q),
        lambda w, e: w.pass_on(e.o, e.q, "done", e.p),
    ),
    "show": Sort(
        ("{p} showed {q} the {o}.", "{p} showed the {o} to {q}."),
        lambda w, e: w.has(e.p, e.o) and w.together(e.p, e.q),
    ),
    "use": Sort(
        ("They {does} the {o}.", "Then they {does} the {o}."),
        lambda w, e: w.pair() and w.usable(e.o),
        lambda w, _: w.feel("happy"),
    ),
    "alone": Sort(
        ("{p} {does} the {o}.", "Then {p} {does} the {o}."),
        lambda w, e: w.has(e.p, e.o) and w.usable(e.o),
    ),
    "lose": Sort(
        ("{p} lost the {o}.", "Then {p} lost the {o}."), lambda w, e: w.has(e.p, e.o), _lose
    ),
    "look": Sort(("They looked for the {o}.",), lambda w, e: w.pair() and e.o in w.lost),
    "find": Sort(
        ("{p} found the {o}.", "Then {p} found the {o}."),
        lambda w, e: e.p in w.place and e.o in w.lost,
        lambda w, e: w.pass_on(e.o, e.p),
    ),
    "break": Sort(
        ("Then the {o} broke.", "The {o} broke."),
        lambda w, e: e.o in FRAGILE and w.usable(e.o),
        _break,
    ),
    "mend": Sort(
        ("{p} mended the {o}.", "Then {p} mended the {o}."),
        lambda w, e: e.p in w.place and e.o in w.broken,
        _mend,
    ),
    "thank": Sort(
        ('{p} said, "Thank you, {q}!"', '"Thank you, {q}!" said {p}.'),
        lambda w, e: w.last_act == ("done", e.q) and w.together(e.p, e.q),
    ),
    "spot": Sort(
        ("{p} saw a {a} there.", "{p} met a {a} there."),
        lambda w, e: w.place.get(e.p) in ANIMALS[e.a].homes,
        _near,
    ),
    "watch": Sort(
        ("They saw a {a} there.", "There they saw a {a}."),
        lambda w, e: w.pair() and w.lives(e.a),
        _near,
    ),
    "appear": Sort(("Then a {a} came.", "A {a} came."), lambda w, e: w.lives(e.a), _near),
    "hear": Sort(
        ('{p} heard, "{says}!"',),
        lambda w, e: e.p in w.place,
        lambda w, e: setattr(w, "heard", e.a),
    ),
    "fear": Sort(("{p} was afraid.",), lambda w, e: e.p in w.place and bool(w.heard)),
    "explain": Sort(
        ('"It is only a {a}," said {p}.', '{p} said, "It is only a {a}."'),
        lambda w, e: e.p in w.place and w.heard == e.a,
        _near,
    ),
    "pet": Sort(("{p} had a {a}.",), lambda w, e: e.p in w.place and not w.pet[0], _pet),
    "stray": Sort(
        ("The {a} ran away.", "Then the {a} ran away."),
        lambda w, e: w.company(e.a) and w.pet[1] == e.a,
        _stray,
    ),
    "miss": Sort(
        ("They looked for the {a}.",), lambda w, e: w.pair() and w.pet[1] == e.a != w.near
    ),
    "meet": Sort(
        ("{p} found the {a}.", "Then {p} found the {a}."),
        lambda w, e: e.p in w.place and w.pet[1] == e.a != w.near,
        _meet,
    ),
    "cry": Sort(
        ('The {a} said, "{says}!"', '"{says}!" said the {a}.'), lambda w, e: w.company(e.a)
    ),
    "hungry": Sort(("The {a} was hungry.",), lambda w, e: w.company(e.a)),
    "feed": Sort(
        ("{p} gave the {a} some {eats}.",),
        lambda w, e: w.company(e.a) and e.p in w.place,
        lambda w, e: w.feel("happy", e.p),
    ),
    "eat": Sort(("The {a} ate the {eats}.", "The {a} was happy."), lambda w, e: w.company(e.a)),
    "steal": Sort(
        ("The {a} took the {o}.",),
        lambda w, e: e.a in THIEVES and w.company(e.a) and w.usable(e.o),
        _steal,
    ),
    "release": Sort(("The {a} put down the {o}.",), lambda w, e: w.has(e.a, e.o), _release),
    "hide": Sort(
        ("{p} hid.", "{p} ran away and hid."),
        lambda w, e: e.p in w.place,
        lambda w, e: setattr(w, "hidden", e.p),
    ),
    "seek": Sort(("{p} looked for {q}.",), lambda w, e: w.hidden == e.q != e.p),
    "catch": Sort(
        ("{p} found {q}.", "Then {p} found {q}."),
        lambda w, e: w.hidden == e.q != e.p,
        lambda w, _: setattr(w, "hidden", ""),
    ),
    "laugh": Sort(("They laughed.",), lambda w, _: w.pair(), lambda w, _: w.feel("happy")),
    "lonely": Sort(
        ("{p} was alone.",), lambda w, e: list(w.place) == [e.p], lambda w, e: w.feel("sad", e.p)
    ),
    "stay": Sort(("{p} was still {at}.",), lambda w, e: w.place.get(e.p) == e.l),
    "keep": Sort(("Now {p} had the {o}.", "{p} had the {o}."), lambda w, e: w.has(e.p, e.o)),
    "glad": Sort(
        ("{p} was happy.", "{p} was very happy.", "Now {p} was happy."),
        lambda w, e: w.mood.get(e.p) == "happy",
    ),
    "merry": Sort(
        ("They were happy.", "They were very happy."),
        lambda w, _: w.pair() and "sad" not in w.mood.values(),
    ),
    "sad": Sort(("{p} was sad.", "{p} was very sad."), lambda w, e: w.mood.get(e.p) == "sad"),
    "home": Sort(
        ("In the evening, they went home.", "Then they went home."),
        lambda w, _: w.pair(),
        lambda w, _: w.move("home"),
    ),
    "leave": Sort(
        ("In the evening, {p} went home.", "Then {p} went home."),
        lambda w, e: e.p in w.place,
        lambda w, e: w.move("home", e.p),
    ),
    "end": Sort(("The end.",), lambda w, _: bool(w.place), lambda w, _: setattr(w, "over", True)),
}
"""All kinds of events."""

KNOWN = {
    "p": PEOPLE,
    "q": PEOPLE,
    "o": tuple(THINGS),
    "c": COLOURS,
    "l": tuple(PLACES),
    "a": tuple(ANIMALS),
}


def possible(w: World, e: Event) -> bool:
    """Whether the event is possible now, or the statement true."""
    return not w.over and SORTS[e.kind].can(w, e)


def happen(w: World, e: Event) -> None:
    """Apply the effects of an event."""
    w.last_act = ("", "")
    SORTS[e.kind].then(w, e)
    w.named(e.q, e.p)


def format_sentence(e: Event, form: str, who: str, thing: str) -> str:
    """Return the sentence of an event; `who` and `thing` are the words for p and o."""
    beast = ANIMALS.get(e.a)
    line = form.format(
        p=who, q=e.q, o=thing, co=f"{e.c} {e.o}", l=e.l, a=e.a, at=at(e.l) if e.l else "",
        does=THINGS.get(e.o, ""),
        says=beast.says if beast else "", eats=beast.eats if beast else "",
    )  # fmt: skip
    return (line[0].upper() + line[1:]).replace(" a owl", " an owl").replace("A owl", "An owl")
