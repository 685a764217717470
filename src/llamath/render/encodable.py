"""`to_encodable`: text for an output whose encoding lacks some characters, such as cp1252 or
ASCII.
"""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹ᵀᵍᵏ]+")
_ASCII = {
    "−": "-", "–": "-", "—": "-", "‑": "-", "…": "...", "·": "*", "×": "x", "÷": "/", "±": "+-",
    "√": "sqrt ", "′": "'",
    "→": "->", "←": "<-", "↑": "^", "↓": "v", "↻": "@", "▶": ">", "◀": "<", "≈": "~", "≤": "<=",
    "≥": ">=", "∝": "~", "∞": "inf",
    "█": "#", "▓": "%", "▒": "+", "░": "-", "▏": "|", "━": "-", "─": "-", "│": "|", "├": "|",
    "└": "`", "‖": "||",
    "✗": "x", "✓": "v", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "Σ": "sum ", "⊗": "(x)",
    "§": "section ", "“": '"', "”": '"',
    "α": "alpha", "β": "beta", "θ": "theta", "▁": "_", "⁄": "/",
}  # fmt: skip
"""ASCII replacements of symbols for terminals without UTF-8."""


def to_encodable(text: str, encoding: str | None) -> str:
    """Return the text with every character that the encoding lacks replaced: by ASCII where
    there is a likeness, else by its escape.
    """
    encoding = encoding or "ascii"
    if _encodes(text, encoding):
        return text
    text = _SUPERSCRIPTS.sub(lambda found: "^" + unicodedata.normalize("NFKD", found[0]), text)
    return "".join(char if _encodes(char, encoding) else _replacement(char) for char in text)


def _encodes(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.isascii()
    return True


def _replacement(char: str) -> str:
    if char in _ASCII:
        return _ASCII[char]
    plain = "".join(_ASCII.get(x, x) for x in unicodedata.normalize("NFKD", char))
    plain = "".join(x for x in plain if x.isascii())
    return plain or char.encode("ascii", "backslashreplace").decode()
