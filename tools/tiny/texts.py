"""The texts that the model learns: a stream without end from a seed, its tokenizer, and rows of tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from llamath.text.splits import SPLITS

from .stories import drill, story
from .talk import Exchange, about_scene, arithmetic, exchanges, hashed
from .words import ANIMALS, a, capital, many

START, END, OPEN, CLOSE = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
MARKS = (START, END, OPEN, CLOSE)


def portrait(dice: random.Random) -> str:
    """All about an animal."""
    name = dice.choice(list(ANIMALS))
    x = ANIMALS[name]
    lines = [f"It has {many(x.legs, 'leg')}.", f"It says {x.says.lower()}.", f"It eats {x.eats}.", f"It can {' and '.join(x.can)}."]
    dice.shuffle(lines)
    return " ".join([f"{capital(a(name))} is {'a bird' if x.bird else 'an animal'}.", *lines])


def sums(dice: random.Random) -> str:
    """A few sums."""
    found = [x for _ in range(6) for x in arithmetic(dice)]
    return " ".join(x.answer for x in found if not x.held)


def asked(x: Exchange) -> str:
    """A question in ChatML, ready for the answer."""
    return f"{OPEN}user\n{x.question}{CLOSE}\n{OPEN}assistant\n"


def talk(found: list[Exchange]) -> str:
    """A conversation in ChatML."""
    return "".join(f"{asked(x)}{x.answer}{CLOSE}\n" for x in found)


def first(seed: int) -> Iterator[str]:
    """What is learned first: to find in a short text what is asked for."""
    dice = random.Random(seed)
    while True:
        found = about_scene(dice) if dice.random() < 0.3 else []
        if not found:
            yield START + drill(dice) + END
        elif not found[0].held:
            yield talk(found) + END


def texts(seed: int, held: bool = False) -> Iterator[str]:
    """Texts for training, or those that are held out from it."""
    dice = random.Random(seed)
    while True:
        kind = dice.random()
        if kind < 0.66:
            found = exchanges(dice)
            if any(x.held for x in found) == held:
                yield talk(found) + END
        elif kind < 0.92:
            text = story(dice)
            if (hashed(text) % 20 == 0) == held:
                yield START + text + END
        elif not held:
            yield START + (portrait(dice) if kind < 0.96 else sums(dice)) + END


@cache
def tokenizer(size: int, count: int = 6000) -> Tokenizer:
    """Byte-level BPE that cuts words as Llama 3's does, learned from the first texts."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(SPLITS["llama-3"][0]), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(MARKS), initial_alphabet=letters, show_progress=False)
    stream = texts(seed=0)
    made.train_from_iterator((_plain(next(stream)) for _ in range(count)), trainer)
    made.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 0)])
    return made


def _plain(text: str) -> str:
    for mark in MARKS:
        text = text.replace(mark, "\n")
    return text


def rows(stream: Iterator[str], made: Tokenizer, length: int) -> Iterator[tuple[list[int], list[int]]]:
    """Rows of tokens: whole texts one after the other, the last one cut off; and the tokens that should follow each.

    What somebody asks is to be read and not learned: -100, which torch's loss passes over, stands for it.
    """
    row: list[int] = []
    while True:
        row += made.encode(next(stream), add_special_tokens=False).ids
        if len(row) > length:
            row = row[: length + 1]
            yield row[:-1], spoken(row, made)[1:]
            row = []


def spoken(row: list[int], made: Tokenizer) -> list[int]:
    """The tokens of stories and of answers, the others -100."""
    begin, opens, closes, answers = (made.token_to_id(x) for x in (START, OPEN, CLOSE, "assistant"))
    learned, role, found = True, 0, []
    for i, x in enumerate(row):
        if x == begin:
            learned = True
        elif x == opens:
            learned, role = False, i + 1
        found.append(x if learned else -100)
        if x == closes:
            learned = False
        elif i == role + 1 and role and row[role] == answers:
            learned = True
    return found
