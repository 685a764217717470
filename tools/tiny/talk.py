"""Conversations: stories, animals, numbers and small talk."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

from .reader import sentences
from .stories import NOBODY, Teller, counting, play, story
from .words import (
    ANIMALS,
    BOYS,
    COLOURED,
    GIRLS,
    NUMBERS,
    OPPOSITES,
    PEOPLE,
    PLACES,
    SKILLS,
    THINGS,
    a,
    at,
    capital,
    many,
)


class Exchange(NamedTuple):
    """A question and its answer; `kind` is the skill it tests, `held` marks held-out facts."""

    kind: str
    question: str
    answer: str
    held: bool = False


def hashed(text: str) -> int:
    """A hash of a text that is the same on every machine."""
    return zlib.crc32(text.encode())


def about_story(dice: random.Random) -> list[Exchange]:
    """The beginning of a story, and its state."""
    while True:
        teller = play(dice, NOBODY, dice.randint(2, 7))
        exchanges_ = [x for x in (_asked(teller, dice) for _ in range(dice.choice((1, 1, 2)))) if x]
        if exchanges_ and not teller.world.over:
            held_out = hashed(teller.text) % 20 == 0
            exchanges_[0] = exchanges_[0]._replace(
                question=f"{teller.text} {exchanges_[0].question}"
            )
            return [x._replace(held=held_out) for x in exchanges_]


def _asked(teller: Teller, dice: random.Random) -> Exchange | None:
    w = teller.world
    p, o = dice.choice(list(w.place)), next(iter(w.colour), "")
    place, holder = w.place[p], w.holder.get(o, "")
    kind = dice.choice(("person", "thing", "holder", "holder", "colour"))
    if kind == "person" and place in PLACES:
        return Exchange("where is a person", f"Where is {p}?", f"{p} is {at(place)}.")
    if kind == "thing" and w.place.get(holder) in PLACES:
        return Exchange(
            "where is a thing", f"Where is the {o}?", f"The {o} is {at(w.place[holder])}."
        )
    if kind == "holder" and holder:
        who = holder if holder in PEOPLE else f"The {holder}"
        return Exchange("who has it", f"Who has the {o}?", f"{who} has the {o}.")
    if kind == "colour" and o:
        return Exchange(
            "what colour has it", f"What colour is the {o}?", f"The {o} is {w.colour[o]}."
        )
    return None


def about_numbers(dice: random.Random) -> list[Exchange]:
    """A counting story."""
    text, p, word, number = counting(dice)
    return [
        Exchange(
            "how many",
            f"{text} How many {word}s does {p} have now?",
            f"{p} has {many(number, word)}.",
            hashed(text) % 20 == 0,
        )
    ]


def arithmetic(dice: random.Random) -> list[Exchange]:
    """Sums and differences up to twenty."""
    x, y = dice.randint(0, 10), dice.randint(0, 10)
    return [
        plus(x, y, dice.choice(SUMS)) if dice.random() < 0.6 else minus(x + y, y, dice.choice(SUMS))
    ]


SUMS = ("What is {}?", "How much is {}?", "{} =", "{}")


def plus(x: int, y: int, form: str) -> Exchange:
    """A sum."""
    return Exchange("plus", form.format(f"{x} + {y}"), f"{x} + {y} = {x + y}.")


def minus(x: int, y: int, form: str) -> Exchange:
    """A difference."""
    return Exchange("minus", form.format(f"{x} - {y}"), f"{x} - {y} = {x - y}.")


def numbers(dice: random.Random) -> list[Exchange]:
    """The order of numbers."""
    x, y = sorted(dice.sample(range(1, 13), 2))
    kind = dice.choice(("after", "before", "count"))
    if kind == "after":
        return [
            Exchange(
                "numbers",
                f"What comes after {NUMBERS[x]}?",
                f"{capital(NUMBERS[x + 1])} comes after {NUMBERS[x]}.",
            )
        ]
    if kind == "before":
        return [
            Exchange(
                "numbers",
                f"What comes before {NUMBERS[y]}?",
                f"{capital(NUMBERS[y - 1])} comes before {NUMBERS[y]}.",
            )
        ]
    return [
        Exchange(
            "numbers",
            f"Count from {NUMBERS[x]} to {NUMBERS[y]}.",
            f"{capital(', '.join(NUMBERS[x : y + 1]))}.",
        )
    ]


def animals(dice: random.Random) -> list[Exchange]:
    """Facts about an animal."""
    name = dice.choice(list(ANIMALS))
    kinds = dice.sample(FACTS, dice.choice((1, 1, 2)))
    return [
        animal(name, kind, dice.choice(dice.choice((SKILLS, ANIMALS[name].can)))) for kind in kinds
    ]


FACTS = ("says", "eats", "legs", "can", "can", "bird", "all")


def portrait(name: str) -> str:
    """All facts about an animal."""
    x = ANIMALS[name]
    lines = [
        f"It has {many(x.legs, 'leg')}.",
        f"It says {x.says.lower()}.",
        f"It eats {x.eats}.",
        f"It can {' and '.join(x.can)}.",
    ]
    return " ".join([f"{capital(a(name))} is {'a bird' if x.bird else 'an animal'}.", *lines])


def animal(name: str, kind: str, skill: str) -> Exchange:
    """One fact."""
    x, name_ = ANIMALS[name], a(name)
    can = f"Yes, {name_} can {skill}." if skill in x.can else f"No, {name_} cannot {skill}."
    question, answer = {
        "says": (f"What does {name_} say?", f"{capital(name_)} says {x.says.lower()}."),
        "eats": (f"What does {name_} eat?", f"{capital(name_)} eats {x.eats}."),
        "legs": (
            f"How many legs does {name_} have?",
            f"{capital(name_)} has {many(x.legs, 'leg')}.",
        ),
        "can": (f"Can {name_} {skill}?", can),
        "all": (f"Tell me about {name_}.", portrait(name)),
        "bird": (
            f"Is {name_} a bird?",
            f"Yes, {name_} is a bird." if x.bird else f"No, {name_} is not a bird.",
        ),
    }[kind]
    return Exchange("animals", question, answer)


def things(dice: random.Random) -> list[Exchange]:
    """Colours and opposites."""
    if dice.random() < 0.5:
        word = dice.choice(list(OPPOSITES))
        pair = (word, OPPOSITES[word]) if dice.random() < 0.5 else (OPPOSITES[word], word)
        return [
            Exchange(
                "words",
                f"What is the opposite of {pair[0]}?",
                f"The opposite of {pair[0]} is {pair[1]}.",
            )
        ]
    name = dice.choice(list(COLOURED))
    return [Exchange("words", f"What colour is {name}?", f"{capital(name)} is {COLOURED[name]}.")]


SMALL = {
    ("Hello!", "Hello.", "Hi!", "Good morning."): "Hello! What do you want to know?",
    ("Who are you?", "What are you?", "What is your name?"): "I am a very small Llama. I know "
    "animals, numbers and stories.",
    ("What can you do?", "Help!", "What do you know?"): "I can tell a story, count, and say who "
    "is where.",
    ("Thank you.", "Thank you!", "Thanks!"): "You are welcome.",
    ("Goodbye.", "Bye!", "Good night."): "Goodbye!",
    ("How are you?", "Are you happy?"): "I am happy. A llama says hum.",
    ("Where do you live?",): "I live in a file of few megabytes.",
}


def small_talk(dice: random.Random) -> list[Exchange]:
    """Manners."""
    greetings = dice.choice(list(SMALL))
    return [Exchange("manners", dice.choice(greetings), SMALL[greetings])]


def unknown(dice: random.Random) -> list[Exchange]:
    """Unknown words and numbers that are too large."""
    if dice.random() < 0.2:
        least, sign = dice.choice(((11, "+"), (21, "-"), (2, "*")))
        return [
            Exchange(
                "unknown",
                dice.choice(SUMS).format(f"{dice.randint(least, 99)} {sign} {dice.randint(1, 99)}"),
                "I do not know.",
            )
        ]
    parts = [
        dice.choice("bcdfglmnprstvz") + dice.choice("aeiou") for _ in range(dice.randint(2, 3))
    ]
    word = "".join(parts) + dice.choice(("", "n", "r", "st"))
    forms: tuple[str, ...] = (
        "What is a {}?",
        "Who is {}?",
        "Where is the {}?",
        "What does a {} eat?",
        "How big is a {}?",
        "Tell me about {}.",
        "Why {}?",
    )
    forms += (
        "Who wrote {}?",
        "What is the capital of {}?",
        "How old is {}?",
        "When was the {}?",
        "How do I {}?",
        "{}",
        "Tell me a story about a {}.",
    )
    return [
        Exchange(
            "unknown",
            dice.choice(forms).format(dice.choice((word, capital(word)))),
            "I do not know.",
        )
    ]


def tale(dice: random.Random) -> list[Exchange]:
    """A story on request."""
    all_ = {"p": GIRLS, "q": BOYS, "o": THINGS, "a": ANIMALS}
    wish = {
        x: dice.choice(list(all_[x]))
        for x in dice.choice(("", "p", "q", "o", "a", "po", "qo", "pa", "qa", "pq", "qp"))
    }
    about = " and ".join(x if x in PEOPLE else a(x) for x in wish.values())
    text = story(dice, wish)
    return [
        Exchange(
            "story",
            f"Tell me a story about {about}." if about else "Tell me a story.",
            text,
            hashed(text) % 20 == 0,
        )
    ]


BEGINNINGS = (
    "Once upon a time",
    "Once upon a time,",
    "Once upon a time...",
    "One day",
    "One day,",
    "A story!",
    "Another story.",
    "Tell me a story!",
)


def going_on(dice: random.Random) -> list[Exchange]:
    """Continuation of a story."""
    whole = sentences(story(dice))
    if dice.random() < 0.3:
        text = " ".join(whole)
        return [Exchange("story", dice.choice(BEGINNINGS), text, hashed(text) % 20 == 0)]
    cut = dice.randint(1, min(5, len(whole) - 1))
    opening = " ".join(whole[:cut])
    return [Exchange("going on", opening, " ".join(whole[cut:]), hashed(opening) % 20 == 0)]


KINDS: dict[Callable[[random.Random], list[Exchange]], float] = {
    about_story: 3.0,
    about_numbers: 1.0,
    arithmetic: 2.5,
    numbers: 0.7,
    animals: 1.5,
    things: 0.5,
    small_talk: 0.5,
    unknown: 0.5,
    tale: 2.0,
    going_on: 1.0,
}
"""Kinds of questions and their weights."""
TELLING = ("going on", "how many")
"""Questions in full sentences."""


def loosely(question: str) -> str:
    """A carelessly typed question."""
    first, _, rest = question.partition(" ")
    return f"{first if first in PEOPLE else first.lower()} {rest}".strip(" .?!")


def exchanges(dice: random.Random) -> list[Exchange]:
    """A conversation: a few questions of one kind or several."""
    conversation: list[Exchange] = []
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
        conversation += dice.choices(list(KINDS), list(KINDS.values()))[0](dice)
    return [
        x._replace(question=loosely(x.question))
        if x.kind not in TELLING and dice.random() < 0.1
        else x
        for x in conversation
    ]
