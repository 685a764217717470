"""Every error this package raises for a user: what was expected, what was found, where, and one hint.

LlamathError
├── ConfigError       a configuration that cannot be read as the model it claims to be
├── UnknownModel      a name or model type that nothing here answers to
├── FormatError       a file whose bytes are not what its format promises
├── RemoteError       a place on the network that does not give what is asked of it
├── ConvertError      a conversion that would lose something, or that cannot be written where it should go
└── MissingExtra      an optional dependency that is not installed
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff\U000e0000-\U000e0fff]"


class LlamathError(Exception):
    """Base of them all; `str()` is one paragraph, and `hint` one more line when there is something to try."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(LlamathError):
    """A configuration that cannot be read as the model it claims to be."""


class UnknownModel(LlamathError):
    """A name or model type that nothing here answers to."""


class FormatError(LlamathError):
    """A file whose bytes are not what its format promises; `code` names the broken promise, `manifest` is what was read all the same."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.manifest: object | None = None


class RemoteError(LlamathError):
    """A place on the network that does not give what is asked of it; `code` names how."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ConvertError(LlamathError):
    """A conversion that would lose something, or that cannot be written where it should go."""


class MissingExtra(LlamathError):
    """An optional dependency that is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed", hint=f"pip install 'llamath[{extra}]'")


def safe(text: str, limit: int = 200) -> str:
    """Strangers' text made fit for a terminal: control and bidirectional characters escaped, overlong text cut."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    cut = text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
    return re.sub(_UNSAFE, lambda found: f"\\u{{{ord(found[0]):x}}}", cut)


def nearest(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known words most like this one, best first."""
    from difflib import get_close_matches

    return get_close_matches(word[:80], list(known), n=most, cutoff=0.5)
