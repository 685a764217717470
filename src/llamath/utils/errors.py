"""The errors that this package raises: each says what was expected, what was found and where, with
one hint.

LlamathError ├── ArgumentError     a wrong argument of a public function ├── ConfigError       an
invalid configuration │   └── ImpossibleModel  one whose values do not fit together ├──
UnknownQuantization  a quantization that is not understood ├── UnknownModel      an unknown model
name or model type ├── FormatError       a file that violates its format ├── RemoteError       a
failed download or request ├── ConvertError      a conversion that would lose information, or whose
destination cannot be written └── MissingExtra      an optional dependency that is not installed
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\uffff\U000e0000-\U000e0fff]"
)
"""The characters that are most often used to hide text; others that are not printable are rare."""


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LlamathError(Exception):
    """Base of all errors; `str()` is one paragraph, and `hint` a suggestion."""

    field = ""
    """The parameter of a command that is wrong, as programs name it: `kv_dtype`."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ArgumentError(LlamathError):
    """A wrong argument of a public function; the command line shows it with the spelling of its
    option.

    The message is the argument followed by `problem`. `call` is an example in Python, for which the
    command line has its own help.
    """

    def __init__(self, argument: str, problem: str, *, hint: str = "", call: str = "") -> None:
        super().__init__(f"{argument}{problem}", hint=hint or call)
        self.argument, self.problem, self._plain_hint = argument, problem, hint

    def spelled(self, argument: str, help_hint: str) -> LlamathError:
        """Return the error about an argument with another spelling; `help_hint` replaces an
        example in Python.
        """
        error = LlamathError(
            f"{argument}{self.problem}", hint=self._plain_hint or (help_hint if self.hint else "")
        )
        error.field = argument.lstrip("-").replace("-", "_")
        return error


class ConfigError(LlamathError):
    """An invalid configuration."""


class ImpossibleModel(ConfigError):
    """A configuration whose values do not fit together, found by a block of the model while it is
    made.

    Blocks know no files: a `Family` adds the file whose config it reads.
    """


class UnknownModel(LlamathError):
    """An unknown model name or model type."""


class UnknownQuantization(LlamathError):
    """A quantization config that is not understood."""


class FormatError(LlamathError):
    """A file that violates its format; `code` names the violation, `manifest` holds the part
    that could be read.
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.manifest: object | None = None


class RemoteError(LlamathError):
    """A failed download or request; `code` names the failure."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ConvertError(LlamathError):
    """A conversion that would lose information, or whose destination cannot be written."""


class MissingExtra(LlamathError):
    """An optional dependency that is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"this needs {module}, which is not installed", hint=f"pip install 'llamath[{extra}]'"
        )


def os_error_reason(error: OSError) -> str:
    """Return why the operating system refused to read or write a file."""
    return (
        "the disk or your quota is full"
        if error.errno in _DISK_FULL
        else error.strerror or str(error)
    )


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Turn an error of the operating system, as that of a full disk, into one that says what
    cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise LlamathError(f"cannot write {safe(name)}: {os_error_reason(error)}") from None


def safe(text: str, limit: int = 200) -> str:
    """Return untrusted text for display: characters that are not printable escaped, long text
    truncated.
    """
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    cut = text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
    escaped = re.sub(_UNSAFE, lambda found: _escape(found[0]), cut)
    return (
        escaped
        if escaped.isprintable()
        else "".join(x if x.isprintable() else _escape(x) for x in escaped)
    )


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def nearest(word: str, known: Iterable[str], most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the known words most similar to this one, best first."""
    from difflib import get_close_matches

    return get_close_matches(word[:80], list(known), n=most, cutoff=cutoff)
