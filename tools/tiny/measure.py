"""Quality of the model, measured on held-out texts."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn.functional import cross_entropy

from llamath.torch import Decoder, open_model
from tokenizers import Tokenizer

from .reader import read
from .stories import NOBODY, play
from .talk import (
    FACTS,
    SUMS,
    Exchange,
    about_numbers,
    about_story,
    animal,
    minus,
    numbers,
    plus,
    small_talk,
    tale,
    things,
    unknown,
)
from .texts import CLOSE, END, START, format_question, texts
from .words import ANIMALS, PEOPLE, SKILLS, THINGS

SEED = 1000
ROOM = 160  # tokens at most that are written


class TinyModel(NamedTuple):
    """A model and its tokenizer."""

    module: Decoder
    tokenizer: Tokenizer

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def open_tiny(folder: Path) -> TinyModel:
    """Open the model in a folder, with float32 weights."""
    return TinyModel(
        open_model(str(folder), "float32").module,
        Tokenizer.from_file(str(folder / "tokenizer.json")),
    )


@torch.inference_mode()
def continue_prompts(
    model: TinyModel, prompts: list[str], temperature: float = 0.0, seed: int = 0
) -> list[str]:
    """Continue each prompt; temperature 0 is greedy."""
    continuations: list[str] = []
    dice = torch.Generator().manual_seed(seed)
    for i in range(0, len(prompts), 50):
        continuations += _batch(model, prompts[i : i + 50], temperature, dice)
    return continuations


def _batch(
    model: TinyModel, prompts: list[str], temperature: float, dice: torch.Generator
) -> list[str]:
    prompt_ids = [model.ids(x) for x in prompts]
    width = max(map(len, prompt_ids))
    stops = torch.tensor([model.tokenizer.token_to_id(x) for x in (END, CLOSE)])
    ids = torch.tensor([[0] * (width - len(x)) + x for x in prompt_ids])
    cache, pads = (
        model.module.new_cache(width + ROOM),
        torch.tensor([width - len(x) for x in prompt_ids]),
    )
    logits, chosen = model.module(ids, cache, pads, True), []
    over = torch.zeros(len(prompt_ids), dtype=torch.bool)
    for _ in range(ROOM):
        chosen.append(_next(logits[:, -1], temperature, dice))
        over |= torch.isin(chosen[-1], stops)
        if over.all():
            break
        logits = model.module(chosen[-1][:, None], cache, None, True)
    rows = torch.stack(chosen, 1).tolist()
    ends = set(stops.tolist())
    return [
        model.tokenizer.decode(row[: next((i for i, x in enumerate(row) if x in ends), len(row))])
        for row in rows
    ]


def _next(logits: torch.Tensor, temperature: float, dice: torch.Generator) -> torch.Tensor:
    if not temperature:
        return logits.argmax(-1)
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=dice)[:, 0]


@torch.inference_mode()
def loss(model: TinyModel, count: int = 300) -> float:
    """Cross-entropy of held-out texts in nats per token."""
    total, tokens = 0.0, 0
    for text in islice(texts(SEED, held=True), count):
        ids = torch.tensor([model.ids(text)])
        total += cross_entropy(model.module(ids[:, :-1])[0], ids[0, 1:], reduction="sum").item()
        tokens += ids.shape[1] - 1
    return total / tokens


def held_out(
    make: Callable[[random.Random], list[Exchange]], count: int, seed: int = SEED
) -> Iterator[list[Exchange]]:
    """Held-out conversations of this kind."""
    dice = random.Random(seed)
    return islice((x for x in iter(lambda: make(dice), None) if x and x[0].held), count)


def questions(count: int) -> dict[str, list[tuple[str, str]]]:
    """Prompts with their right answers by topic: held-out stories, and all sums and facts of the
    world."""
    by_topic: dict[str, list[tuple[str, str]]] = {}
    for make in (about_story, about_numbers):
        for talk in held_out(make, count):
            by_topic.setdefault(f"{talk[0].kind}, held out", []).append(
                (format_question(talk[0]), talk[0].answer)
            )
    sums = [make(x, y) for x in range(11) for y in range(11) for make in (_plus, _minus)]
    facts = {animal(x, kind, skill) for x in ANIMALS for kind in FACTS for skill in SKILLS}
    for x in (*sums, *sorted(facts)):
        by_topic.setdefault(f"{x.kind}, seen", []).append((format_question(x), x.answer))
    dice = random.Random(SEED)
    others = {
        "numbers, seen": numbers,
        "words, seen": things,
        "manners, seen": small_talk,
        "unknown words, sampled anew": unknown,
    }
    for name, make in others.items():
        examples = sorted({x for _ in range(500) for x in make(dice)})
        by_topic[name] = [
            (format_question(x), x.answer) for x in dice.sample(examples, min(len(examples), 60))
        ]
    return by_topic


def _plus(x: int, y: int) -> Exchange:
    return plus(x, y, SUMS[0])


def _minus(x: int, y: int) -> Exchange:
    return minus(x + y, y, SUMS[0])


def openings(count: int, seed: int = SEED) -> list[str]:
    """Beginnings of stories that introduce people, things and places."""
    dice = random.Random(seed)
    return [START + play(dice, NOBODY, 3).text for _ in range(count)]


def story_requests(count: int) -> list[tuple[str, list[str]]]:
    """Prompts that request a story, and its requested topic."""
    requests = [x[0] for x in held_out(tale, count)]
    return [
        (
            format_question(x),
            [y for y in re.findall("[A-Za-z]+", x.question.partition(" about ")[2]) if y in ABOUT],
        )
        for x in requests
    ]


ABOUT = {*PEOPLE, *THINGS, *ANIMALS}


class StoryScores(NamedTuple):
    """Fractions of correct sentences and stories."""

    known: float
    true: float
    whole: float


def stories(
    model: TinyModel, openings: list[str], temperature: float, seed: int = 0
) -> tuple[StoryScores, list[str]]:
    """Complete stories, and check each generated sentence for being known and consistent."""
    counts: Counter[str] = Counter()
    texts_ = []
    for opening, rest in zip(
        openings, continue_prompts(model, openings, temperature, seed), strict=True
    ):
        before = opening.removeprefix(START)
        texts_.append(before + rest)
        verdicts = list(read(texts_[-1]))[len(list(read(before))) :]
        counts["all"] += len(verdicts)
        counts["known"] += sum(x.known for x in verdicts)
        counts["true"] += sum(x.true for x in verdicts)
        counts["whole"] += is_consistent(texts_[-1])
    all_ = max(1, counts["all"])
    return StoryScores(
        counts["known"] / all_, counts["true"] / all_, counts["whole"] / len(openings)
    ), texts_


def measure_requests(model: TinyModel, count: int, temperature: float = 0.0) -> float:
    """Fraction of requested stories that are on topic and consistent."""
    requests = story_requests(count)
    answers = continue_prompts(model, [x for x, _ in requests], temperature)
    return sum(
        all(x in text for x in about) and is_consistent(text)
        for text, (_, about) in zip(answers, requests, strict=True)
    ) / len(requests)


def is_consistent(text: str) -> bool:
    """Whether a story is complete and consistent."""
    return text.endswith("The end.") and all(x.true for x in read(text))


def count_correct(
    model: TinyModel, questions: list[tuple[str, str]], temperature: float = 0.0
) -> int:
    """Number of answers that equal the right one."""
    answers = continue_prompts(model, [x for x, _ in questions], temperature)
    return sum(a == b for a, (_, b) in zip(answers, questions, strict=True))


def report(folder: Path, count: int = 300) -> str:
    """All measures, as a table in Markdown."""
    model = open_tiny(folder)
    lines = ["| measured | greedy | temperature 0.8 |", "| --- | ---: | ---: |"]
    for kind, pairs in questions(count).items():
        plain, warm = (count_correct(model, pairs, t) / len(pairs) for t in (0.0, 0.8))
        lines.append(f"| {kind} ({len(pairs)} questions) | {plain:.1%} | {warm:.1%} |")
    prompts = openings(100)
    cold, hot = (stories(model, prompts, t)[0] for t in (0.0, 0.8))
    for i, name in enumerate(
        (
            "sentences that the grammar can generate",
            "sentences consistent with the story",
            "stories without a mistake",
        )
    ):
        lines.append(f"| {name} (100 stories) | {cold[i]:.1%} | {hot[i]:.1%} |")
    cold_, hot_ = (measure_requests(model, 100, t) for t in (0.0, 0.8))
    lines.append(
        "| stories without a mistake that match the request (100 requests) | "
        f"{cold_:.1%} | {hot_:.1%} |"
    )
    lines.append(f"| loss, nats per token (300 held-out texts) | {loss(model):.4f} | |")
    return "\n".join(lines)
