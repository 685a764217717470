"""Streamed pieces make up the text, and a stop string ends it wherever pieces are split."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from llamath.generation.detokenizer import StopStringMatcher, StreamingDetokenizer
from llamath.tokenizers import Tokenizer
from support.tiny_checkpoint import train_tokenizer

WORDS = Tokenizer(train_tokenizer(), "test")
LETTERS = st.text("abé🙂", max_size=12)
ANY = st.sampled_from(range(32, 127)) | st.integers(0, 0x10FFFF).filter(
    lambda x: not 0xD800 <= x < 0xE000
)
"""All characters; `st.text()` would sort them first, which takes seconds."""


def text(least: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(ANY.map(chr), min_size=least, max_size=most).map("".join)


def upto(text: str, stops: list[str]) -> tuple[str, str]:
    """The text before the first complete stop string, found letter by letter."""
    for emitted in accumulate(text):
        ending = [x for x in stops if emitted.endswith(x)]
        if ending:
            longest = max(ending, key=len)
            return emitted.removesuffix(longest), longest
    return text, ""


@settings(deadline=None)
@given(
    st.lists(LETTERS, max_size=8),
    st.lists(st.text("abé🙂", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_string_across_pieces(pieces: list[str], stops: list[str]) -> None:
    ours = StopStringMatcher(stops)
    emitted = ""
    for piece in pieces:
        emitted += ours.add(piece)
        if ours.matched:
            break
        assert not any(stop in emitted for stop in stops)
    assert (emitted + ours.flush(), ours.matched) == upto("".join(pieces), stops)


@given(st.text("ab", max_size=20), st.text("ab", min_size=1, max_size=4))
def test_only_possible_stop_strings_are_buffered(text: str, stop: str) -> None:
    ours = StopStringMatcher([stop])
    emitted = "".join(ours.add(x) for x in text)
    if not ours.matched:
        pending = text.removeprefix(emitted)
        assert stop.startswith(pending)
        assert pending != stop


@settings(deadline=None)
@given(text(0, 40))
def test_pieces_make_up_the_text(text: str) -> None:
    ours = StreamingDetokenizer(WORDS)
    pieces = [ours.add(x) for x in WORDS.encode(text, add_special_tokens=False)]
    assert "".join(pieces) + ours.flush() == text
    assert not any(piece.endswith("\ufffd") for piece in pieces) or "\ufffd" in text


@settings(deadline=None)
@given(text(1, 20), text(1, 20))
def test_text_continues_a_prefix(before: str, text: str) -> None:
    ours = StreamingDetokenizer(WORDS, WORDS.encode(before))
    assert (
        "".join(ours.add(x) for x in WORDS.encode(text, add_special_tokens=False)) + ours.flush()
        == text
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 319), max_size=60))
def test_invalid_bytes_are_emitted(ids: list[int]) -> None:
    ours = StreamingDetokenizer(WORDS)
    emitted = "".join(ours.add(x) for x in ids) + ours.flush()
    assert emitted.replace("\ufffd", "") == WORDS.decode(ids).replace("\ufffd", "")


def test_sentencepiece_space_only_between_words() -> None:
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models

    engine = Engine(models.BPE(vocab={"▁a": 0, "b": 1, "▁c": 2}, merges=[]))
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pieces = Tokenizer(engine, "test")
    first, later = StreamingDetokenizer(pieces), StreamingDetokenizer(pieces, [0, 1])
    assert [first.add(x) for x in (0, 1, 2)] == ["a", "b", " c"]
    assert [later.add(x) for x in (2, 1, 0)] == [" c", "b", " a"]
