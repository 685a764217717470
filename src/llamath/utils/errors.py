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

from .number_marks import own_text

_UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\uffff\U000e0000-\U000e0fff]"
)
"""The characters that are most often used to hide text; others that are not printable are rare."""


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Name(str):
    """A name in place of what the caller gives, such as `path` in `llamath.verify(path)`."""

    __slots__ = ()


class Argument:
    """An argument of a public function, in a message or a hint: `{Argument("dtype", "bf16")}`.

    As text, it is what the caller types: `dtype='bf16'` in Python, `--dtype bf16` in a shell.
    """

    def __init__(self, name: str, value: object = None) -> None:
        self.name, self.value = name, value

    def __str__(self) -> str:
        return wording().argument(self)


class Call:
    """A call of a public function, in a message or a hint: `{Call("verify", path)} lists all`.

    As text, it is what the caller types: `llamath.verify('x')` in Python, `llamath verify x` in a
    shell.
    """

    def __init__(self, function: str, *given: object, **arguments: object) -> None:
        self.function, self.given = function, given
        self.arguments = tuple(Argument(x, y) for x, y in arguments.items())

    def __str__(self) -> str:
        return wording().call(self)


class Command(Call):
    """A command with options that no function has, which each caller types in a shell."""

    def __str__(self) -> str:
        given = [x.upper() if isinstance(x, Name) else str(x) for x in self.given]
        for x in self.arguments:
            given.append(f"--{x.name.replace('_', '-')}")
            if isinstance(x.value, str):
                given.append(x.value.upper() if isinstance(x.value, Name) else x.value)
        return f"`{' '.join(('llamath', self.function, *given))}`"


class Wording:
    """The words of one way to call this package, here those of Python; `cli` has the others."""

    def argument(self, argument: Argument) -> str:
        """Return how an argument is typed."""
        value = argument.value
        return argument.name if value is None else f"{argument.name}={_code(value)}"

    def field(self, name: str) -> str:
        """Return the name of an argument for a program."""
        return name

    def call(self, call: Call) -> str:
        """Return how a call is typed."""
        words = [*map(_code, call.given), *map(self.argument, call.arguments)]
        return f"llamath.{call.function}({', '.join(words)})"

    def help(self, function: str) -> str:
        """Return where the arguments of a function are explained."""
        return f"help(llamath.{function})"


def _code(value: object) -> str:
    return str(value) if isinstance(value, Name) else safe(repr(value), 4096)


_wordings = [Wording()]
"""The words of this process, its threads included, the current ones last."""


def wording() -> Wording:
    """Return the words of whoever has called this package."""
    return _wordings[-1]


@contextmanager
def worded(words: Wording) -> Iterator[None]:
    """Write the messages and hints of errors in these words while the context lasts."""
    _wordings.append(words)
    try:
        yield
    finally:
        _wordings.remove(words)


class LlamathError(Exception):
    """Base of all errors; `str()` is one paragraph, and `hint` a suggestion."""

    field = ""
    """The parameter that is wrong, as programs name it: `kv_dtype`."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ArgumentError(LlamathError):
    """A wrong argument of a public function; the message is the argument, as the caller types it,
    followed by `problem`.
    """

    def __init__(self, argument: str, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{Argument(argument)}{problem}", hint=hint)
        self.argument, self.field = argument, wording().field(argument)


class ConfigError(LlamathError):
    """An invalid configuration; `about_key` is where, which key and what is wrong, if it is about
    one key.
    """

    about_key: tuple[str, str, str] | None = None

    @classmethod
    def of_key(cls, where: str, key: str, problem: str, *, hint: str = "") -> ConfigError:
        """Return an error about one key."""
        error = cls(f"{where}{key} {problem}", hint=hint)
        error.about_key = where, key, problem
        return error


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
    that could be read, and `file` is the file that the message names, if its reader says so.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", file: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code, self.file = code, file
        self.manifest: object | None = None

    def in_file(self, file: str, hint: str = "") -> FormatError:
        """Return the error with the name of a file before its message, unless it names one; the
        hint is for an error that has none.
        """
        text = str(self) if self.file else f"{safe(file)}: {self}"
        return FormatError(self.code, text, hint=self.hint or hint, file=self.file or file)


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
    if text != own_text(text):
        return text if (own := own_text(text)) == safe(own, limit) else safe(own, limit)
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
