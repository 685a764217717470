"""Output for terminals and files whose encoding is not UTF-8."""

from __future__ import annotations

import pytest

from llamath.render.encodable import to_encodable


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        ("−805,306,368", "-805,306,368"),
        ("6.74B → 8.03B", "6.74B -> 8.03B"),
        ("█▓▒░", "#%+-"),
        ("≈ ✗ … 2·L·K·h, 8 × 16", "~ x ... 2*L*K*h, 8 x 16"),
        ("naïve, 10¹² + xᵀ", "naive, 10^12 + x^T"),
        ("漢", "\\u6f22"),
        ("plain text", "plain text"),
    ],
)
def test_symbols_become_ascii_where_needed(text: str, ascii_text: str) -> None:
    assert to_encodable(text, "ascii") == ascii_text


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "utf-16"])
def test_unicode_encodings_keep_every_character(encoding: str) -> None:
    assert to_encodable("−→≈█✗", encoding) == "−→≈█✗"


def test_only_missing_characters_are_replaced() -> None:
    assert to_encodable("ü × −", "cp1252") == "ü × -"


@pytest.mark.parametrize("encoding", [None, "no-such-encoding"])
def test_unknown_encodings_get_ascii(encoding: str | None) -> None:
    assert to_encodable("−1", encoding) == "-1"
