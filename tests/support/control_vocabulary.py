"""A byte vocabulary with every control token of the tests' chat templates."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llamath.tokenizers import Tokenizer
from llamath.tokenizers.vocabulary_engines import byte_alphabet
from support.chat_templates import TEMPLATES
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Engine

CONTROL = sorted(
    {x for text in TEMPLATES.values() for x in re.findall(r"<\|?/?\w+\|?>|\[/?[A-Z_]+\]", text)}
    | {"<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<think>", "</think>"}
)
"""Everything in the templates that looks like a control token."""


def vocabulary(
    special: bool, normalized: bool = False, control: Sequence[str] = CONTROL
) -> Tokenizer:
    engine = Engine(
        models.BPE(vocab={x: i for i, x in enumerate(byte_alphabet().values())}, merges=[])
    )
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    tokens = [AddedToken(x, special=special, normalized=normalized) for x in control]
    (engine.add_special_tokens if special else engine.add_tokens)(tokens)
    return Tokenizer(engine, "test")
