"""Training texts: an endless stream from a seed, the tokenizer, and batches of tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from llamath.tokenizers.pretokenizers import SPLIT_PATTERNS
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .stories import story
from .talk import Exchange, arithmetic, exchanges, hashed, portrait
from .words import ANIMALS

START, END, OPEN, CLOSE = "<s>", "</s>", "<|im_start|>", "<|im_end|>"
MARKS = (START, END, OPEN, CLOSE)
POOL = 1000  # texts that are sorted by length


def sums(dice: random.Random) -> str:
    """A few sums."""
    exchanges_ = [x for _ in range(6) for x in arithmetic(dice)]
    return " ".join(x.answer for x in exchanges_)


def format_question(x: Exchange) -> str:
    """A question in ChatML, ready for the answer."""
    return f"{OPEN}user\n{x.question}{CLOSE}\n{OPEN}assistant\n"


def talk(exchanges_: list[Exchange]) -> str:
    """A conversation in ChatML."""
    return "".join(f"{format_question(x)}{x.answer}{CLOSE}\n" for x in exchanges_)


def texts(seed: int, held: bool = False) -> Iterator[str]:
    """Training texts, or held-out ones."""
    dice = random.Random(seed)
    while True:
        kind = dice.random()
        if kind < 0.64:
            conversation = exchanges(dice)
            if any(x.held for x in conversation) == held:
                yield talk(conversation) + END
        elif kind < 0.94:
            text = story(dice)
            if (hashed(text) % 20 == 0) == held:
                yield START + text + END
        elif not held:
            yield (
                START + (portrait(dice.choice(list(ANIMALS))) if kind < 0.98 else sums(dice)) + END
            )


@cache
def tokenizer(size: int, count: int = 6000) -> Tokenizer:
    """Byte-level BPE with Llama 3's pre-tokenizer, trained on the first texts."""
    engine = Tokenizer(models.BPE(ignore_merges=True))
    cut = pre_tokenizers.Split(Regex(SPLIT_PATTERNS["llama-3"][0]), "isolated")
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    engine.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(MARKS), initial_alphabet=letters, show_progress=False
    )
    stream = texts(seed=0)
    engine.train_from_iterator((_plain(next(stream)) for _ in range(count)), trainer)
    engine.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, 0)]
    )
    return engine


def _plain(text: str) -> str:
    for mark in MARKS:
        text = text.replace(mark, "\n")
    return text


def batches(
    stream: Iterator[str], tokenizer_: Tokenizer, tokens: int, longest: int
) -> Iterator[list[list[int]]]:
    """Batches of texts of similar length with a fixed number of tokens; longer texts are
    truncated."""
    dice = random.Random(0)
    while True:
        pool = sorted(
            (
                tokenizer_.encode(next(stream), add_special_tokens=False).ids[: longest + 1]
                for _ in range(POOL)
            ),
            key=len,
        )
        batches_: list[list[list[int]]] = [[]]
        for x in pool:
            if (len(batches_[-1]) + 1) * len(x) > tokens and batches_[-1]:
                batches_.append([])
            batches_[-1].append(x)
        dice.shuffle(batches_)
        yield from batches_


def padded(batch: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Inputs and targets; padding after a text has the target -100, which torch's loss ignores."""
    width = max(map(len, batch))
    return [x + [0] * (width - len(x)) for x in batch], [
        x[1:] + [-100] * (width - len(x) + 1) for x in batch
    ]
