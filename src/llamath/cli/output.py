"""Output of the commands: the answer on stdout, notes and errors on stderr, pictures and pages
in files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..render.progress import without_progress
from ..utils.errors import FormatError, LlamathError, RemoteError, safe
from ..utils.write_whole_file import write_whole_file

if TYPE_CHECKING:
    from ..render.report import Report
    from ..render.tables import Part


class CapturedOutput:
    """What a command wrote while its output was captured: stdout, stderr, and the error that
    ended it.
    """

    def __init__(self, most: int) -> None:
        self.text, self.notes, self.kind = "", "", ""
        self.error: LlamathError | None = None
        self._most = most

    def write(self, text: str, err: bool) -> None:
        """Add text; more of an answer than the limit is refused."""
        if err:
            self.notes += text
            return
        if len(self.text) + len(text) > self._most:
            self.text = ""
            raise LlamathError(
                f"the answer has more than {self._most:,} characters",
                hint="ask for less, or use the command line",
            )
        self.text += text


_captured: ContextVar[CapturedOutput | None] = ContextVar("captured", default=None)


def is_captured() -> bool:
    """Whether the command answers a program or an agent, and not a user."""
    return _captured.get() is not None


@contextmanager
def capture_output(most: int) -> Iterator[CapturedOutput]:
    """Capture what commands of this thread write, at most so many characters; nothing reaches
    the standard streams.
    """
    captured = CapturedOutput(most)
    before = _captured.set(captured)
    try:
        with without_progress():
            yield captured
    finally:
        _captured.reset(before)


def prepare_streams() -> None:
    """Replace closed standard streams by the null device, and write ASCII for characters that an
    output cannot encode.
    """
    import codecs

    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    codecs.register_error("llamath.ascii", _ascii_replacement)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            # standard streams stay open
            setattr(
                sys,
                name,
                open(number, "w" if number else "r", encoding="utf-8", closefd=False),  # noqa: SIM115
            )
        elif number and not _is_utf8(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="llamath.ascii")


def _is_utf8(stream: Any) -> bool:
    """Return whether a stream encodes every character."""
    return (getattr(stream, "encoding", None) or "").lower() in ("utf-8", "utf8")


def _ascii_replacement(error: UnicodeError) -> tuple[str, int]:
    from ..render.encodable import to_encodable

    assert isinstance(error, UnicodeEncodeError)
    return to_encodable(error.object[error.start : error.end], error.encoding), error.end


def echo(text: str, *, err: bool = False, end: str = "\n") -> bool:
    """Write text to stdout, or to stderr; return whether anybody reads it.

    When the reader of a pipe has closed it, the rest is discarded, so that the command still ends
    with its own exit code.
    """
    if (captured := _captured.get()) is not None:
        captured.write(f"{text}{end}", err)
        return True
    stream = sys.stderr if err else sys.stdout
    try:
        stream.write(text)
        stream.write(end)
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not err and not isinstance(error, BrokenPipeError):
            print_error(LlamathError(f"cannot write the output: {error.strerror}"))
            sys.exit(2)
        return False
    return True


def echo_json(data: Any) -> None:
    """Write one JSON value to stdout."""
    # the one control character that JSON leaves as it is
    echo(json.dumps(data, default=list).replace("\x7f", "\\u007f"))


TABLES = ("csv", "markdown")
"""Formats of the tables of a report."""
LONG = (*TABLES, "short")
"""Formats of a report that is longer than a terminal."""


def echo_report(report: Report, form: str | None, parts: Iterable[Part] | None = None) -> None:
    """Write a report, or other parts of it: as JSON, in one line, its tables as CSV or Markdown,
    or as text.
    """
    if form == "json":
        echo_json(report.to_json())
    elif form in TABLES:
        from ..render.csv_rows import report_rows

        echo("\n".join(report_rows(report, form or "", stated_command(), parts)))
    elif form == "brief":
        echo(report.summary)
    elif form == "short":
        echo(report.short_text())
    else:
        from ..render.report_text import report_text
        from ..render.table import bold, terminal_lines

        text = report.terminal_text() if parts is None else report_text(report, parts)
        echo(text)
        if 0 < terminal_lines() <= text.count("\n") + 1:  # the headline has scrolled away
            echo(f"\n{bold(report.summary)}")


_OPTIONS_OF_OUTPUT = {
    "-o": 1,
    "--output": 1,
    "--format": 1,
    "--force": 0,
    "--json": 0,
    "--brief": 0,
}
"""Options that change no number, and how many values they have."""


def stated_command() -> str:
    """Return the current command as it was typed, without what only concerns the output; of
    paths, only the names are left.
    """
    import shlex

    import click

    context = click.get_current_context()
    words: list[str] = []
    rest = iter(context.meta["llamath.words"])
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in _OPTIONS_OF_OUTPUT:
            for _ in range(0 if equals else _OPTIONS_OF_OUTPUT[name]):
                next(rest, None)
        else:
            words.append(
                os.path.basename(os.path.abspath(word))
                if os.sep in word and os.path.lexists(word)
                else word
            )
    return safe(" ".join([context.command_path, *(shlex.quote(x) for x in words)]), 2000)


class PictureFile:
    """The file that -o names: an SVG or a PNG, by its ending."""

    def __init__(self, path: str, overwrite: bool) -> None:
        from ..render.png import is_png

        self._path, self._overwrite = path, overwrite
        self._is_png = is_png(path, "-o: ")

    def write(self, picture: str) -> None:
        """Write a picture, with the command that draws it below."""
        from ..render.svg.svg_shapes import with_footer

        picture = with_footer(picture, stated_command())
        content: str | bytes = picture
        if self._is_png:
            from ..render.png import svg_to_png

            content = svg_to_png(picture)
        write_file(self._path, content, overwrite=self._overwrite)


def note(text: str) -> None:
    """Write a note to stderr."""
    _echo_wrapped(f"note: {text}")


def warn(text: str) -> None:
    """Write a warning to stderr."""
    _echo_wrapped(f"warning: {text}")


def _echo_wrapped(text: str) -> None:
    from ..render.table import wrap

    echo("\n".join(wrap(text, "")), err=True)


_ERROR_CODES = {
    "ConfigError": "invalid_config",
    "UnknownModel": "unknown_model",
    "ConvertError": "cannot_convert",
    "MissingExtra": "missing_extra",
    "UsageError": "usage",
}
"""Error class -> `code` of its JSON; other errors have a code of their own or `bad_input`."""


def print_error(error: LlamathError, *, as_json: bool = False, kind: str = "") -> None:
    """Write an error to stderr, and with `as_json` also as JSON to stdout."""
    hint = error.hint
    if (captured := _captured.get()) is not None:
        captured.error, captured.kind = error, kind
    if as_json:
        own = error.code if isinstance(error, FormatError | RemoteError) else ""
        names = [kind] if kind else [x.__name__ for x in type(error).__mro__]
        code = own or next((_ERROR_CODES[x] for x in names if x in _ERROR_CODES), "bad_input")
        field = {"field": error.field} if error.field else {}
        echo_json({"error": {"message": str(error), "hint": hint, "code": code, **field}})
    echo(f"error: {error}" + (f"\n\nhint: {hint}" if hint else ""), err=True)


def write_file(path: str, content: str | bytes, *, overwrite: bool = False) -> None:
    """Write a file completely or not at all, and report it on stderr; an existing file is
    replaced only with `overwrite`.
    """
    write_whole_file(path, content, overwrite=overwrite)
    echo(f"wrote {safe(path)}", err=True)


def under_torchrun() -> bool:
    """Return whether torchrun has started this process and others."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
