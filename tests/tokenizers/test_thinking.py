"""Reasoning in a reply is told from the answer, however its tokens cut it."""

from __future__ import annotations

import pytest

from llamath.generation.detokenizer import StreamingDetokenizer
from llamath.tokenizers import Tokenizer
from llamath.tokenizers.thinking import SECTIONS, ReplyReader
from llamath.tokenizers.vocabulary_engines import byte_alphabet
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Engine


def vocabulary(special: tuple[str, ...] = (), added: tuple[str, ...] = ()) -> Tokenizer:
    engine = Engine(
        models.BPE(vocab={x: i for i, x in enumerate(byte_alphabet().values())}, merges=[])
    )
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in special])
    engine.add_tokens([AddedToken(x, special=False, normalized=False) for x in added])
    return Tokenizer(engine, "test")


def read(tokenizer: Tokenizer, text: str, prompt: str = "") -> tuple[str, str, ReplyReader]:
    """The reasoning and the answer in a reply, and its reader."""
    reader = ReplyReader(
        tokenizer, tokenizer.encode(prompt, parse_special_tokens=True, add_special_tokens=False)
    )
    detokenizer, parts = StreamingDetokenizer(tokenizer), []
    for token in tokenizer.encode(text, parse_special_tokens=True, add_special_tokens=False):
        parts += reader.add(token, detokenizer.add(token))
    parts += reader.flush()
    return (
        "".join(x.text for x in parts if x.is_reasoning),
        "".join(x.text for x in parts if not x.is_reasoning),
        reader,
    )


REPLIES = {
    "<think>\nhm\n</think>\n\nyes": ("<think>\nhm\n</think>\n\n", "yes"),
    "\n<think>hm</think>yes": ("\n<think>hm</think>", "yes"),
    "yes": ("", "yes"),
    "": ("", ""),
    "<thin": ("", "<thin"),
    "<thought>": ("", "<thought>"),
    "say <think>x</think>": ("", "say <think>x</think>"),
    "<think>a</thin": ("<think>a</thin", ""),
    "<think>a</think></think>b": ("<think>a</think>", "</think>b"),
    "<think></think>  ": ("<think></think>  ", ""),
}


@pytest.mark.parametrize("added", [(), ("<think>", "</think>")])
@pytest.mark.parametrize("text", REPLIES)
def test_reasoning_is_told_from_the_answer(text: str, added: tuple[str, ...]) -> None:
    reasoning, answer, reader = read(vocabulary(added=added), text)
    assert (reasoning, answer) == REPLIES[text]
    assert reader.content == text
    assert reader.reasoning == ""


@pytest.mark.parametrize("marker", SECTIONS)
def test_special_tokens_begin_and_end_reasoning(marker: str) -> None:
    end = SECTIONS[marker]
    reasoning, answer, _ = read(vocabulary(special=(marker, end)), f"{marker}hm{end}\nyes")
    assert (reasoning.strip(), answer) == ("hm", "yes")  # they have no text
    assert read(vocabulary(), f"{marker}hm{end}\nyes")[:2] == (f"{marker}hm{end}\n", "yes")


def test_prompt_may_begin_the_reasoning() -> None:
    reasoning, answer, _ = read(
        vocabulary(added=("<think>",)), "hm</think>\nyes", prompt="<|assistant|><think>\n"
    )
    assert (reasoning, answer) == ("hm</think>\n", "yes")
    assert read(vocabulary(), "hm", prompt="<think>x</think>\n")[:2] == ("", "hm")


HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")


def test_channels_hold_reasoning_and_answer() -> None:
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>"
    reasoning, answer, reader = read(vocabulary(special=HARMONY), text, prompt="<|start|>assistant")
    assert (reasoning, answer) == (reader.reasoning, reader.content) == ("hm", "yes")
    assert read(
        vocabulary(special=HARMONY), "yes", prompt="<|start|>assistant<|channel|>final<|message|>"
    )[:2] == ("", "yes")
