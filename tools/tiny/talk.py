"""What is asked and answered: stories, animals, numbers, and small talk."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import NamedTuple

from .reader import sentences
from .stories import Teller, cast, counting, scene, step, story
from .words import ANIMALS, COLOURED, NUMBERS, OPPOSITES, PEOPLE, SKILLS, THINGS, a, at, capital, many


class Exchange(NamedTuple):
    """A question and its answer; `kind` is what it tests, `held` that its facts are not trained on."""

    kind: str
    question: str
    answer: str
    held: bool = False


def hashed(text: str) -> int:
    """The same number for a text everywhere."""
    return zlib.crc32(text.encode())


def about_scene(dice: random.Random) -> list[Exchange]:
    """Who and what is where, before anything happens."""
    return about_story(dice, 0, dice.randint(3, 5))


def about_story(dice: random.Random, most: int = 5, questions: int = 0) -> list[Exchange]:
    """A few events, and who and what is where now."""
    teller = Teller(dice)
    scene(teller, *cast(dice))
    for _ in range(dice.randint(0, most)):
        step(teller)
    asked = [_asked(teller, dice) for _ in range(questions or dice.choice((1, 2, 3)))]
    held = hashed(teller.text) % 20 == 0
    asked[0] = asked[0]._replace(question=f"{teller.text} {asked[0].question}")
    return [x._replace(held=held) for x in asked]


def _asked(teller: Teller, dice: random.Random) -> Exchange:
    w = teller.world
    p, o = dice.choice(list(w.place)), dice.choice(list(w.colour))
    kind = dice.choice(("person", "person", "thing", "thing", "holder", "has", "colour"))
    if kind == "person":
        return Exchange("where is a person", f"Where is {p}?", f"{p} is {at(w.place[p])}.")
    if kind == "thing":
        return Exchange("where is a thing", f"Where is the {o}?", f"The {o} is {at(w.where(o))}.")
    if kind == "holder":
        return Exchange("who has it", f"Who has the {o}?", f"{w.held.get(o, 'Nobody')} has the {o}.")
    if kind == "has":
        says = f"Yes, {p} has the {o}." if w.has(p, o) else f"No, {p} does not have the {o}."
        return Exchange("has somebody it", f"Does {p} have the {o}?", says)
    return Exchange("what colour has it", f"What colour is the {o}?", f"The {o} is {w.colour[o]}.")


def about_numbers(dice: random.Random) -> list[Exchange]:
    """A story of how many."""
    text, p, word, number = counting(dice)
    return [Exchange("how many", f"{text} How many {word}s does {p} have now?", f"{p} has {many(number, word)}.", hashed(text) % 20 == 0)]


def sum_held(x: int, y: int) -> bool:
    """Sums that are never trained on; the same with the numbers changed over is."""
    return x != y and hashed(f"{min(x, y)}+{max(x, y)}") % 5 == 0 and (x < y) == bool(hashed(f"{x * y}") % 2)


def arithmetic(dice: random.Random) -> list[Exchange]:
    """Sums and differences up to twenty."""
    x, y = dice.randint(0, 10), dice.randint(0, 10)
    if dice.random() < 0.6:
        return [plus(x, y, dice.choice(("What is {}?", "How much is {}?", "{} =")))]
    text = f"{x + y} - {y}"
    return [Exchange("minus", dice.choice(("What is {}?", "How much is {}?", "{} =")).format(text), f"{text} = {x}.")]


def plus(x: int, y: int, form: str) -> Exchange:
    """A sum."""
    return Exchange("plus", form.format(f"{x} + {y}"), f"{x} + {y} = {x + y}.", sum_held(x, y))


def numbers(dice: random.Random) -> list[Exchange]:
    """The order of numbers."""
    x, y = dice.sample(range(1, 12), 2)
    kind = dice.choice(("after", "before", "more", "count"))
    if kind == "after":
        return [Exchange("numbers", f"What comes after {NUMBERS[x]}?", f"{capital(NUMBERS[x + 1])} comes after {NUMBERS[x]}.")]
    if kind == "before" and x > 1:
        return [Exchange("numbers", f"What comes before {NUMBERS[x]}?", f"{capital(NUMBERS[x - 1])} comes before {NUMBERS[x]}.")]
    if kind == "count" and x < y:
        row = ", ".join(NUMBERS[x : y + 1])
        return [Exchange("numbers", f"Count from {NUMBERS[x]} to {NUMBERS[y]}.", f"{capital(row)}.")]
    more = "Yes" if x > y else "No"
    return [Exchange("numbers", f"Is {NUMBERS[x]} more than {NUMBERS[y]}?", f"{more}, {NUMBERS[x]} is {_than(x, y)} than {NUMBERS[y]}.")]


def _than(x: int, y: int) -> str:
    return "more" if x > y else "less"


def animals(dice: random.Random) -> list[Exchange]:
    """What is true of an animal."""
    name = dice.choice(list(ANIMALS))
    kinds = dice.sample(("says", "eats", "legs", "can", "bird"), dice.choice((1, 1, 2)))
    return [animal(name, kind, dice.choice(SKILLS)) for kind in kinds]


def animal(name: str, kind: str, skill: str) -> Exchange:
    """One fact."""
    x, one = ANIMALS[name], a(name)
    can = f"Yes, {one} can {skill}." if skill in x.can else f"No, {one} cannot {skill}."
    question, answer = {
        "says": (f"What does {one} say?", f"{capital(one)} says {x.says.lower()}."),
        "eats": (f"What does {one} eat?", f"{capital(one)} eats {x.eats}."),
        "legs": (f"How many legs does {one} have?", f"{capital(one)} has {many(x.legs, 'leg')}."),
        "can": (f"Can {one} {skill}?", can),
        "bird": (f"Is {one} a bird?", f"Yes, {one} is a bird." if x.bird else f"No, {one} is not a bird."),
    }[kind]
    return Exchange("animals", question, answer)


def things(dice: random.Random) -> list[Exchange]:
    """Colours and opposites."""
    if dice.random() < 0.5:
        word = dice.choice(list(OPPOSITES))
        pair = (word, OPPOSITES[word]) if dice.random() < 0.5 else (OPPOSITES[word], word)
        return [Exchange("words", f"What is the opposite of {pair[0]}?", f"The opposite of {pair[0]} is {pair[1]}.")]
    name = dice.choice(list(COLOURED))
    return [Exchange("words", f"What colour is {name}?", f"{capital(name)} is {COLOURED[name]}.")]


SMALL = {
    ("Hello!", "Hello.", "Hi!", "Good morning."): "Hello! What do you want to know?",
    ("Who are you?", "What are you?", "What is your name?"): "I am a very small Llama. I know animals, numbers and stories.",
    ("What can you do?", "Help!", "What do you know?"): "I can tell a story, count, and say who is where.",
    ("Thank you.", "Thank you!", "Thanks!"): "You are welcome.",
    ("Goodbye.", "Bye!", "Good night."): "Goodbye!",
    ("How are you?", "Are you happy?"): "I am happy. A llama says hum.",
    ("Where do you live?",): "I live in a file of few megabytes.",
}


def small_talk(dice: random.Random) -> list[Exchange]:
    """Manners."""
    asked = dice.choice(list(SMALL))
    return [Exchange("manners", dice.choice(asked), SMALL[asked])]


def unknown(dice: random.Random) -> list[Exchange]:
    """Words that are none of its world's."""
    parts = [dice.choice("bcdfglmnprstvz") + dice.choice("aeiou") for _ in range(dice.randint(2, 3))]
    word = "".join(parts) + dice.choice(("", "n", "r", "st"))
    forms = ("What is a {}?", "Who is {}?", "Where is the {}?", "What does a {} eat?", "How big is a {}?", "Tell me about {}.", "Why {}?")
    forms += ("Who wrote {}?", "What is the capital of {}?", "How old is {}?", "When was the {}?", "How do I {}?", "{}")
    return [Exchange("unknown", dice.choice(forms).format(dice.choice((word, capital(word)))), "I do not know.")]


def tale(dice: random.Random) -> list[Exchange]:
    """A story on request."""
    p, o = dice.choice(PEOPLE), dice.choice(THINGS)
    kind = dice.choice(("", "p", "o", "po"))
    question = {"": "Tell me a story.", "p": f"Tell me a story about {p}.", "o": f"Tell me a story about {a(o)}."}
    both = f"Tell me a story about {p} and {a(o)}."
    text = story(dice, p if "p" in kind else "", o if "o" in kind else "")
    return [Exchange("story", question.get(kind, both), text, hashed(text) % 20 == 0)]


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
    """A story that somebody has begun."""
    whole = sentences(story(dice))
    cut = dice.randint(1, min(6, len(whole) - 1))
    begun = " ".join(whole[:cut])
    if hashed(begun) % 4 == 1:
        asked = BEGINNINGS[hashed(begun) // 4 % len(BEGINNINGS)]
        return [Exchange("story", asked, " ".join(whole), hashed(" ".join(whole)) % 20 == 0)]
    return [Exchange("story", begun, " ".join(whole[cut:]), hashed(begun) % 20 == 0)]


KINDS: dict[Callable[[random.Random], list[Exchange]], float] = {
    about_story: 8.0,
    about_numbers: 2.0,
    arithmetic: 2.0,
    numbers: 1.0,
    animals: 1.5,
    things: 0.5,
    small_talk: 0.5,
    unknown: 0.5,
    tale: 0.8,
    going_on: 0.8,
}
"""What is asked, and how often."""


def exchanges(dice: random.Random) -> list[Exchange]:
    """A conversation: a few questions of one kind or several."""
    found: list[Exchange] = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        found += dice.choices(list(KINDS), list(KINDS.values()))[0](dice)
    return found
