"""Stories: events that follow from one another, told one after the other."""

from __future__ import annotations

import random

from .words import ANIMALS, COLOURS, FRUIT, PEOPLE, PLACES, THINGS, many
from .world import GRAMMAR, PRONOUN, Event, World, told


class Teller:
    """Tells events as they happen, with the dice for the words."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.world = dice, World()
        self.lines: list[str] = []
        self.last = Event("")

    def tell(self, e: Event) -> None:
        """Let it happen, and say so."""
        w, dice = self.world, self.dice
        assert w.possible(e), e
        who = PRONOUN[e.p] if e.p == w.told and dice.random() < 0.35 else e.p
        short = e.kind in ("own", "lie") or dice.random() < 0.6
        thing = e.o if short or not e.o else f"{w.colour[e.o]} {e.o}"
        forms = GRAMMAR[e.kind]
        if e.kind == "be":
            forms = forms[1:] if not self.lines and dice.random() < 0.6 else forms[:1]
        self.lines.append(told(e, dice.choice(forms), who, thing))
        w.happen(e)
        self.last = e

    @property
    def text(self) -> str:
        return " ".join(self.lines)


def scene(teller: Teller, people: list[str], things: list[tuple[str, str]]) -> None:
    """Who and what there is, and where."""
    dice = teller.dice
    for i, p in enumerate(people):
        if i < 2 or dice.random() < 0.5:
            near = list(teller.world.place.values())
            teller.tell(Event("be", p, l=near[0] if near and dice.random() < 0.2 else dice.choice(list(PLACES))))
        if i < len(things):
            c, o = things[i]
            if dice.random() < 0.5:
                teller.tell(Event("own", p if p in teller.world.place else people[0], o=o, c=c))
            else:
                teller.tell(Event("lie", o=o, c=c, l=dice.choice(list(PLACES))))


def cast(dice: random.Random, about: str = "", thing: str = "") -> tuple[list[str], list[tuple[str, str]]]:
    """Two people, sometimes three, and one or two things."""
    people = dice.sample([x for x in PEOPLE if x != about], dice.choice((1, 1, 1, 2)) + (not about))
    nouns = dice.sample([x for x in THINGS if x != thing], dice.choice((1, 1, 2)) - bool(thing))
    named = ([about] if about else []) + people
    return named, [(dice.choice(COLOURS), o) for o in ([thing] if thing else []) + nouns]


def step(teller: Teller) -> None:
    """One more event: what the wish asks for, what follows from the last one, or anything."""
    w, dice = teller.world, teller.dice
    if w.given[0] and dice.random() < 0.6:
        return teller.tell(Event("thank", w.given[1], w.given[0]))
    if w.near and dice.random() < 0.8:
        following = [Event("cry", a=w.near), Event("feed", w.by, a=w.near)]
        teller.tell(dice.choice(following))
        if teller.lines[-1].startswith("The") or dice.random() < 0.5:
            w.near = w.by = ""
        return None
    wish = towards(w, dice) if w.want[0] and dice.random() < 0.7 else None
    return teller.tell(wish or anything(w, dice, teller.last))


def towards(w: World, dice: random.Random) -> Event | None:
    """The next event on the way to what is wanted."""
    p, o = w.want
    if w.has(p, o):
        return None
    if o in w.lies:
        return Event("take", p, o=o) if w.beside(p, o) else Event("go", p, l=w.lies[o])
    r = w.held[o]
    if w.together(p, r):
        return Event("give", r, p, o)
    return Event("go", p, l=w.place[r]) if dice.random() < 0.5 else Event("go", r, l=w.place[p])


WEIGHTS = {"go": 4.0, "take": 3.0, "drop": 1.5, "give": 3.0, "meet": 1.0, "find": 1.0, "spot": 0.5}


def anything(w: World, dice: random.Random, last: Event) -> Event:
    """Some event that can happen and does not undo the last one."""
    people, things = list(w.place), list(w.colour)
    while True:
        kind = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        p = w.told if w.told and dice.random() < 0.5 else dice.choice(people)
        need = {"go": "l", "take": "o", "drop": "o", "give": "qo", "meet": "q", "find": "o", "spot": "a"}[kind]
        pools = {"l": list(PLACES), "o": things, "q": people, "a": list(ANIMALS)}
        if kind == "go" and dice.random() < 0.4:
            pools["l"] = list(w.place.values())
        e = Event(kind, p, **{x: dice.choice(pools[x]) for x in need})
        idle = (kind == "go" == last.kind and p == last.p) or (e.o and e.o == last.o and kind in ("take", "drop", "give", "find"))
        if w.possible(e) and not idle:
            return e


def wish(teller: Teller) -> None:
    """Somebody wants what somebody else has, or what lies somewhere."""
    w, dice = teller.world, teller.dice
    o = dice.choice(list(w.colour))
    teller.tell(Event("want", dice.choice([p for p in w.place if not w.has(p, o)]), o=o))


def close(teller: Teller) -> None:
    """How things are in the end."""
    w, dice = teller.world, teller.dice
    if w.want[0]:
        teller.tell(Event("glad" if w.has(*w.want) else "sad", w.want[0]))
    for o in dice.sample(list(w.colour), min(len(w.colour), dice.choice((0, 1, 1, 2)))):
        teller.tell(Event("keep", w.held[o], o=o) if o in w.held else Event("rest", o=o, l=w.lies[o]))
    for p in dice.sample(list(w.place), dice.choice((0, 1, 1))):
        teller.tell(Event("stay", p, l=w.place[p]))
    teller.tell(Event("end"))


def story(dice: random.Random, about: str = "", thing: str = "") -> str:
    """A story, of somebody and something if asked for."""
    teller = Teller(dice)
    people, things = cast(dice, about, thing)
    scene(teller, people, things)
    if dice.random() < 0.85:
        wish(teller)
    for i in range(dice.randint(5, 10)):
        if i < 3 or not (teller.world.want[0] and teller.world.has(*teller.world.want)):
            step(teller)
    close(teller)
    return teller.text


def drill(dice: random.Random) -> str:
    """Who and what is where, said again and again in any order: what is learned first is to find it in what was said."""
    teller = Teller(dice)
    people = dice.sample(PEOPLE, dice.choice((2, 3, 4)))
    places = dice.sample(list(PLACES), len(people) + 1)
    for p, place in zip(people, places, strict=False):
        teller.tell(Event("be", p, l=place))
    o, c = dice.choice(THINGS), dice.choice(COLOURS)
    p = dice.choice(people)
    teller.tell(Event("own", p, o=o, c=c) if dice.random() < 0.5 else Event("lie", o=o, c=c, l=places[-1]))
    last = Event("keep", p, o=o) if o in teller.world.held else Event("rest", o=o, l=places[-1])
    facts = [*(Event("stay", p, l=place) for p, place in zip(people, places, strict=False)), last]
    for _ in range(10):
        teller.tell(dice.choice([x for x in facts if x != teller.last]))
    return teller.text


def counting(dice: random.Random) -> tuple[str, str, str, int]:
    """A story of how many: the text, whose, of what, and how many there are."""
    p, q = dice.sample(PEOPLE, 2)
    word, number = dice.choice(FRUIT), dice.randint(1, 8)
    lines = [f"{p} had {many(number, word)}."]
    for _ in range(dice.choice((1, 1, 2, 3))):
        up = dice.random() < 0.5 if number else True
        change = dice.randint(1, min(5, 12 - number) if up else min(5, number)) if number < 12 or not up else 0
        if not change:
            break
        number += change if up else -change
        lines.append(f"{q} gave {p} {many(change, word)}." if up else _less(dice, p, q, change, word))
        if dice.random() < 0.5:
            lines.append(f"Now {p} had {many(number, word)}.")
    return " ".join(lines), p, word, number


def _less(dice: random.Random, p: str, q: str, change: int, word: str) -> str:
    return dice.choice((f"{p} gave {q} {many(change, word)}.", f"{p} lost {many(change, word)}."))
