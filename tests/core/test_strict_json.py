"""Parsing the index of a large checkpoint in pieces gives the same result as parsing it whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamath.utils import strict_json as strict
from llamath.utils.errors import ConfigError

TEXT = st.text(st.sampled_from('ab.c0{}[],: "\\\n\x00\x7fé'), max_size=9)
PLAIN = st.text(st.sampled_from("ab.c0{}[],: \x7f"), max_size=9)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (",\n  ", ":\t"), (" , ", " : ")])


def parse(data: bytes, long_index: int, piece_bytes: int = strict.PIECE_BYTES) -> tuple[str, str]:
    """Return the parsed object as JSON, and the error; an index of more than `long_index` bytes is parsed in pieces."""
    try:
        return json.dumps(
            strict.parse_json(data, "index", long_index=long_index, piece_bytes=piece_bytes)
        ), ""
    except ConfigError as error:
        return "", str(error)


@st.composite
def indexes(draw: st.DrawFn) -> bytes:
    """An index, unchanged or with one or two bytes changed."""
    comma, colon = draw(SPACES)
    pairs = draw(st.lists(st.tuples(draw(st.sampled_from([PLAIN, TEXT])), PLAIN), max_size=12))
    body = comma.join(f'"{key}"{colon}"{value}"' for key, value in pairs)
    text = list(
        draw(
            st.sampled_from(
                ['{"metadata": {"a": 1}, "weight_map": {%s}}', '{"weight_map":{%s}}', "{%s}"]
            )
        )
        % body
    )
    for _ in range(draw(st.integers(0, 2))):
        i = draw(st.integers(0, len(text) - 1))
        text[i : i + draw(st.integers(0, 1))] = draw(
            st.sampled_from([",", '"', "{", "}", ":", " ", "\\", "\n", "x", ""])
        )
    return "".join(text).encode()


@pytest.mark.slow
@given(indexes(), st.integers(64, 90), st.integers(0, 60))
@settings(max_examples=1000, deadline=None)
def test_parsing_in_pieces_equals_parsing_whole(
    data: bytes, long_index: int, piece_bytes: int
) -> None:
    assert parse(data, long_index, piece_bytes) == parse(data, strict.MAX_BYTES)


@pytest.mark.parametrize("indent", [None, 2])
def test_written_index_is_parsed_in_pieces(indent: int | None) -> None:
    names = {
        f"model.layers.{i}.mlp.experts.{j}.up_proj.weight": f"model-{i:05}.safetensors"
        for i in range(40)
        for j in range(64)
    }
    data = json.dumps({"metadata": {"total_size": 1}, "weight_map": names}, indent=indent).encode()
    assert len(data) > strict.LONG_INDEX and strict.parse_json(data, "index") == json.loads(data)


@pytest.mark.slow
def test_error_late_in_an_index_has_its_position() -> None:
    names = ", ".join(f'"model.layers.{i}.weight": "a"' for i in range(5000))
    for end, message in (
        (', "model.layers.7.weight": "a"}', "occurs twice"),
        (', "x": "a\n"}', "control character"),
        (",}", "property name"),
    ):
        with pytest.raises(ConfigError, match=message):
            strict.parse_json(f'{{"weight_map": {{{names}{end}}}'.encode(), "index")
    with pytest.raises(ConfigError, match="occurs twice"):
        strict.parse_json(f'{{"a": 1, "a": 2, "weight_map": {{{names}}}}}'.encode(), "index")
    many = ",".join(f'"{i}":"a"' for i in range(strict.VALUES + 2))
    with pytest.raises(ConfigError, match="more than 524,288 values"):
        strict.parse_json(f'{{"weight_map":{{{many}}}}}'.encode(), "index")
