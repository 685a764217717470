"""The small world: people, places, things, animals and facts about them, numbers."""

from __future__ import annotations

from typing import NamedTuple

GIRLS = ("Anna", "Clara", "Emma", "Grace", "Ida", "Lena")
BOYS = ("Ben", "David", "Finn", "Hugo", "Jack", "Max")
PEOPLE = (*GIRLS, *BOYS)
PLACES = {
    **dict.fromkeys(("garden", "kitchen", "park", "forest", "barn", "library"), "in"),
    **dict.fromkeys(("market", "river", "school", "well"), "at"),
    "hill": "on",
}
"""With their prepositions."""
COLOURS = ("red", "blue", "green", "yellow", "white", "black")
THINGS = {
    "ball": "played with", "book": "read", "kite": "flew", "hat": "tried on", "lamp": "lit",
    "drum": "played",
    "cup": "filled", "key": "looked at", "basket": "filled", "coin": "looked at", "rope": "pulled",
    "doll": "played with",
}  # fmt: skip
"""With the actions that people do with them."""
FRAGILE = ("kite", "lamp", "drum", "cup", "basket", "doll")
FRUIT = ("apple", "pear", "plum", "nut", "cookie", "egg")
NUMBERS = tuple("no one two three four five six seven eight nine ten eleven twelve".split())


class Animal(NamedTuple):
    """Facts about a kind of animal."""

    says: str
    eats: str
    legs: int
    can: tuple[str, ...]
    homes: tuple[str, ...]
    bird: bool = False


ANIMALS = {
    "cow": Animal("Moo", "grass", 4, ("walk",), ("barn", "hill")),
    "dog": Animal("Woof", "meat", 4, ("walk", "run", "swim"), ("garden", "park", "market")),
    "cat": Animal("Meow", "fish", 4, ("walk", "run", "climb"), ("garden", "kitchen", "barn")),
    "hen": Animal("Cluck", "corn", 2, ("walk",), ("barn", "garden"), True),
    "duck": Animal("Quack", "bread", 2, ("walk", "swim", "fly"), ("river", "park"), True),
    "sheep": Animal("Baa", "grass", 4, ("walk",), ("hill", "barn")),
    "horse": Animal("Neigh", "hay", 4, ("walk", "run"), ("barn", "hill")),
    "pig": Animal("Oink", "corn", 4, ("walk",), ("barn", "market")),
    "owl": Animal("Hoo", "mice", 2, ("fly",), ("forest", "barn"), True),
    "frog": Animal("Croak", "flies", 4, ("swim", "jump"), ("river", "well")),
    "bee": Animal("Buzz", "honey", 6, ("fly",), ("garden", "hill")),
    "llama": Animal("Hum", "hay", 4, ("walk", "run"), ("hill", "barn")),
}
THIEVES = ("dog", "cat", "pig", "llama")
SKILLS = ("walk", "run", "swim", "fly", "climb", "jump")
COLOURED = {
    "grass": "green", "snow": "white", "the sun": "yellow", "the sky": "blue",
    "the night": "black", "blood": "red", "milk": "white",
}  # fmt: skip
OPPOSITES = {
    "big": "small",
    "hot": "cold",
    "day": "night",
    "old": "new",
    "fast": "slow",
    "wet": "dry",
    "up": "down",
    "open": "closed",
}


def a(word: str) -> str:
    """Add the indefinite article."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def many(number: int, word: str) -> str:
    """`one apple`, `two apples`, `no apples`."""
    return f"{NUMBERS[number]} {word}{'' if number == 1 else 's'}"


def at(place: str) -> str:
    """`in the garden`."""
    return f"{PLACES[place]} the {place}"


def capital(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]
