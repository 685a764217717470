"""Stories: plots of consistent events, with varying sentences, people and things."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from itertools import groupby

from .events import SORTS, Event, format_sentence, happen, possible
from .words import ANIMALS, BOYS, COLOURS, FRUIT, GIRLS, PEOPLE, PLACES, THINGS, many
from .world import PRONOUN, World

PLOTS = (
    "both p q l, own p, [use,|] want q, [ask q, agree p,|] give p q, thank q p, glad q, [use,|] "
    "[keep q,|]",
    "both p q l, own p, want q, ask q, refuse p, sad q, sorry p, give p q, thank q p, [glad "
    "q|merry], [use|laugh]",
    "both p q l, own p, want q, ask q, refuse p, sad q, leave q",
    "both p q l, own p, [use,|] lose p, sad p, look, find q, give q p, thank p q, glad p, [use,|]",
    "both p q l, own p, [use,|] lose p, sad p, look, find p, glad p, [use,|]",
    "be p l, see p, take p, glad p, go p m, come q p, show p q, use, [merry,|]",
    "be p l, see p, [take p, alone p,|take p,] [glad p,|] leave p, [keep p,|]",
    "be p l, lonely p, [sad p,|] come q l, [own q, show q p, use,|walk m, laugh,] [merry|glad p]",
    "be p l, own p, [alone p,|] go p m, [come q p, want q, give p q, thank q p, glad q,|alone p, "
    "leave p,]",
    "be p l, own p, [alone p,|] come q l, want q, [give p q, thank q p, glad q,|use,]",
    "both p q l, own p, give p q, [thank q p,|] [use,|] [give q p, thank p q,|give q p,|glad q,|]",
    "be p l, own p, come q p, give p q, [thank q p,|] [glad q,|] [use, give q p,|use,|leave q,|]",
    "both p q l, watch, [cry,|] hungry, feed p, eat, [cry,|] merry",
    "be p l, spot p, cry, [feed p, eat,|] [glad p,|] leave p",
    "both p q l, own p, use, appear, steal, sad p, [feed q,|cry, feed q,] release, take p, glad "
    "p, [use,|]",
    "both p q l, own p, use, appear, steal, sad p, feed q, release, take q, give q p, thank p q",
    "both p q l, own p, [use,|] break, sad p, [sorry q,|] mend q, thank p q, glad p, [use,|]",
    "both p q l, hear p, fear p, explain q, [watch,|] [laugh|merry]",
    "both p q l, hide p, seek q p, catch q p, laugh, [hide q, seek p q, catch p q, laugh,|]",
    "both p q l, pet p, [cry,|] stray, sad p, miss, meet q, thank p q, glad p, [feed p, eat,|]",
    "both p q l, own p, [use,|] walk m, [use,|] [watch, cry,|] [want q, give p q, thank q p, "
    "glad q,|merry,]",
)
"""Plots: kinds of events with who, whom and where; one alternative of each bracket is chosen."""
NOBODY: Mapping[str, str] = {}
ENDS = ("", "home", "home", "merry", "stay p l", "")


class Cast:
    """The people and things of a plot by their letters; `wish` holds the requested ones."""

    def __init__(self, dice: random.Random, wish: Mapping[str, str]) -> None:
        girl, boy = dice.choice(GIRLS), dice.choice(BOYS)
        for name in (wish.get("p", ""), wish.get("q", "")):
            girl, boy = (name if name in GIRLS else girl), (name if name in BOYS else boy)
        self.p, self.q = dice.sample((girl, boy), 2)
        self.o, self.c = wish.get("o") or dice.choice(list(THINGS)), dice.choice(COLOURS)
        self.a = wish.get("a") or dice.choice(list(ANIMALS))
        self.l = dice.choice(ANIMALS[self.a].homes if dice.random() < 0.5 else list(PLACES))
        self.m = dice.choice([x for x in PLACES if x != self.l])


def script(dice: random.Random, plot: str) -> list[list[str]]:
    """One variant of a plot: kind, people and place of each event."""
    chosen = re.sub(r"\[([^\]]*)\]", lambda match: dice.choice(match[1].split("|")), plot)
    return [x.split() for x in chosen.split(",") if x.strip()]


class Teller:
    """Tells events, choosing sentences at random."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.world = dice, World()
        self.lines: list[str] = []
        self.last = Event("")

    def event(self, step: list[str], cast: Cast) -> Event:
        """Return the event of a step of a plot with this cast."""
        kind, roles = step[0], step[1:]
        needs = " ".join(SORTS[kind].forms)
        p, q = ([getattr(cast, x) for x in roles if x in "pq"] + ["", ""])[:2]
        where = next((getattr(cast, x) for x in roles if x in "lm"), "")
        o, c = (cast.o, cast.c) if "{o}" in needs or "{co}" in needs else ("", "")
        return Event(kind, p, q, o, c, where, cast.a if "{a}" in needs or "{says}" in needs else "")

    def tell(self, e: Event) -> bool:
        """Apply and tell an event if it is possible."""
        w, dice = self.world, self.dice
        if not possible(w, e):
            return False
        forms = [
            x for x in SORTS[e.kind].forms if all(getattr(e, y) for y in "ql" if f"{{{y}}}" in x)
        ]
        form = dice.choice(
            forms if not self.lines else [x for x in forms if not x.startswith("O")] or forms
        )
        mentioned = (
            e.p and e.p in (self.last.p, self.last.q) and w.pronouns.get(PRONOUN[e.p]) == e.p
        )
        who = PRONOUN[e.p] if mentioned and "d {p}" not in form and dice.random() < 0.4 else e.p
        thing = f"{e.c} {e.o}" if e.o and dice.random() < 0.3 else e.o
        self.lines.append(format_sentence(e, form, who, thing))
        happen(w, e)
        self.last = e
        return True

    @property
    def text(self) -> str:
        return " ".join(self.lines)


def play(dice: random.Random, wish: Mapping[str, str], most: int = 99) -> Teller:
    """Tell a plot, or its first events."""
    while True:
        plot = dice.choice(PLOTS)
        for _ in range(20):
            teller, cast = Teller(dice), Cast(dice, wish)
            steps = [
                x
                for x, _ in groupby(
                    [*script(dice, plot), *script(dice, dice.choice(ENDS)), ["end"]]
                )
            ]
            complete = all(teller.tell(teller.event(x, cast)) for x in steps[:most])
            if complete and {*wish.values()} <= {*re.findall("[A-Za-z]+", teller.text)}:
                return teller


def story(dice: random.Random, wish: Mapping[str, str] = NOBODY) -> str:
    """Return a story with the requested person, thing or animal."""
    return play(dice, wish).text


def counting(dice: random.Random) -> tuple[str, str, str, int]:
    """Return a counting story: text, person, thing and number."""
    p, q = dice.sample(PEOPLE, 2)
    word, number, more = dice.choice(FRUIT), dice.randint(1, 5), dice.randint(1, 5)
    text = f"{p} had {many(number, word)}. {q} gave {p} {many(more, word)}."
    return text, p, word, number + more
