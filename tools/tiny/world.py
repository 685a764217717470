"""The state of a story: places, possessions and feelings."""

from __future__ import annotations

from .words import ANIMALS, BOYS, GIRLS

PRONOUN = {**dict.fromkeys(GIRLS, "she"), **dict.fromkeys(BOYS, "he")}


class World:
    """The state of a story at one moment."""

    def __init__(self) -> None:
        self.place: dict[str, str] = {}  # of people
        self.colour: dict[str, str] = {}  # of things
        self.holder: dict[str, str] = {}  # thing → which person or animal has it
        self.lying_at: dict[str, str] = {}  # thing → where it lies
        self.owner: dict[str, str] = {}  # thing → whose it is
        self.lost: set[str] = set()
        self.broken: set[str] = set()
        self.mood: dict[str, str] = {}
        self.want = ("", "")  # who wants what
        self.last_act = ("", "")  # what was just asked, answered or done for somebody, and by whom
        self.near = ""  # the animal that is there
        self.heard = ""  # the animal that only its voice is known of
        self.pet = ("", "")  # who has which animal
        self.hidden = ""
        self.pronouns: dict[str, str] = {}  # pronoun → whom it means
        self.over = False

    def named(self, *people: str) -> None:
        """Set the people that he and she refer to."""
        self.pronouns.update({PRONOUN[p]: p for p in people if p})

    def has(self, p: str, o: str) -> bool:
        return bool(o) and self.holder.get(o) == p

    def together(self, p: str, q: str) -> bool:
        return p != q and p in self.place and self.place[p] == self.place.get(q)

    def in_reach(self, p: str, o: str) -> bool:
        return p in self.place and self.place[p] == self.lying_at.get(o)

    def pair(self) -> bool:
        """Whether two people are present together."""
        return len(self.place) == 2 and len(set(self.place.values())) == 1

    def company(self, a: str) -> bool:
        """Whether this animal is present."""
        return bool(a) and self.near == a

    def lives(self, a: str) -> bool:
        """Whether an animal of this kind can be where the people are."""
        return any(x in ANIMALS[a].homes for x in self.place.values())

    def anyone(self, how: str, but: str) -> bool:
        """Whether another person has this feeling."""
        return any(x == how for p, x in self.mood.items() if p != but)

    def format_question(self, p: str) -> bool:
        """Whether a person present has just asked for something."""
        return self.last_act[0] == "asked" and self.together(p, self.last_act[1])

    def usable(self, o: str) -> bool:
        return o not in self.broken and self.holder.get(o) in self.place

    def move(self, where: str, *people: str) -> None:
        """Move these people, or all; an animal that is not theirs stays."""
        for p in people or tuple(self.place):
            self.place[p] = where
        self.near = ""

    def feel(self, how: str, *people: str) -> None:
        """Set the feeling of these people, or all."""
        for p in people or tuple(self.place):
            self.mood[p] = how

    def pass_on(self, o: str, to: str, said: str = "", by: str = "") -> None:
        """Give a thing to another person, which makes whoever wanted it glad."""
        self.lying_at.pop(o, None)
        self.lost.discard(o)
        self.holder[o], self.last_act = to, (said, by)
        if self.want == (to, o) or self.owner.get(o) == to or said:
            self.feel("happy", to)
